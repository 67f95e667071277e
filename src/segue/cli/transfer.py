"""`segue export`, `import`, `migrate` and `forget`: moves whole conversations, or deletes them."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import (
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, BinaryIO, Final

import typer

from segue.cli.output import FAILED, Answer, AsJson, is_piped, print_lines, print_table
from segue.cli.target import Place
from segue.core.text import harmless, one_line
from segue.errors import ConflictError, NotFoundError, UsageError
from segue.journal.records import Deleted
from segue.migrate.ledger import Ledger, MigrationReport
from segue.migrate.migration import Migration, Owners, open_source
from segue.offline import OfflineSegue, open_offline
from segue.runtime.clock import SystemClock
from segue.settings import Settings
from segue.stores import is_begun, is_there
from segue.transfer.export import Scope, export_all, export_user
from segue.transfer.imports import (
    BatchTaken,
    ImportOptions,
    ImportResult,
    import_staged,
    stage_file,
)
from segue.transfer.lines import ExportWriter

# Number of lines after which progress is printed.
_PROGRESS_EVERY: Final = 10_000
_THREADS = "Only these threads, including nested ones."
_FULL = "For operators: everything, triggers too; the file that `segue import` reads."
_REMAP = "Give everything new ids, in the same order: a copy beside the original."
_SKIP = "Skip threads, memories and preferences that exist already."
_TRUSTED = "Also accept system messages, addresses and file ids, which users cannot send."
_COUNT = "Only show how much would be deleted."
# Export lines are named in the singular, tables in the plural.
_PLURALS: Final = {
    "batch": "batches",
    "summary": "summaries",
    "memory": "memories",
    "user's preferences": "users' preferences",
}
_SINGULARS: Final = {plural: singular for singular, plural in _PLURALS.items()} | {
    **dict.fromkeys(("users", "preferences"), "user's preferences"),
    "push_subscriptions": "notified browser",
}
_KEYS: Final = "api_keys"
_ALWAYS_COUNTED: Final = ("threads", "messages", "memories")


def export(
    threads: Annotated[list[str] | None, typer.Argument(metavar="THREAD", help=_THREADS)] = None,
    *,
    user: Annotated[str | None, "Only data of this user."] = None,
    full: Annotated[bool, _FULL] = False,
    out: Annotated[Path | None, "File to write; stdout if not given."] = None,
    place: Place,
    as_json: AsJson = False,
) -> Answer:
    """Write conversations as lines of JSON: as their user sees them, or everything."""
    if not (full or user or threads):
        raise UsageError("Name a thread or a --user; --full exports everything.")
    if as_json and out is None:
        raise UsageError("--json prints what was written, so --out has to name a file.")
    scope = Scope(threads=tuple(threads or ()), user_id=user)
    counts = place.run(lambda segue: _export(segue, scope, out, is_full=full))
    typer.echo(f"Exported {_amounts(counts)}.", err=True)
    return Answer({"file": str(out), "lines": counts}, lambda: None)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `segue export --full` wrote.")],
    *,
    remap: Annotated[bool, _REMAP] = False,
    skip_existing: Annotated[bool, _SKIP] = False,
    dry_run: Annotated[bool, "Check everything, write nothing."] = False,
    trusted: Annotated[bool, _TRUSTED] = False,
    place: Place,
) -> Answer:
    """Import a full export: all of it or, if anything is wrong, nothing."""
    settings = place.load_settings()

    async def work(opened: BinaryIO) -> ImportResult:
        # The file is checked first: a refused one must not create a database.
        async with (
            stage_file(opened, trusted=trusted) as staged,
            _existing(settings, dry_run=dry_run) as existing,
            open_offline(existing, make=True) as segue,
            segue.new_ids(dry_run=dry_run) if remap else nullcontext() as ids,
        ):
            with _conflict_hints(remap=remap, skip_existing=skip_existing):
                options = ImportOptions(ids, skip_existing, dry_run, trusted)
                now = segue.clock.now()
                return await import_staged(segue.journal, staged, options, now=now)

    with _open(file) as opened:
        imported = asyncio.run(work(opened))
    return Answer(imported, lambda: print_lines(_import_lines(imported, dry_run=dry_run)))


def forget(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user whose data to delete.")],
    *,
    yes: Annotated[bool, "Do not ask for confirmation."] = False,
    dry_run: Annotated[bool, _COUNT] = False,
    place: Place,
) -> Answer:
    """Delete all data of a user: conversations, memories, preferences."""

    async def count(segue: OfflineSegue) -> Deleted:
        await _warn_of_migration(segue, user)
        return await segue.count_user(user)

    async def delete(segue: OfflineSegue) -> Deleted:
        if yes:
            await _warn_of_migration(segue, user)
        return await segue.delete_user(user)

    if not yes and not dry_run:
        stored = place.run(count).rows
        amount = _amounts({name: stored.get(name, 0) for name in _ALWAYS_COUNTED})
        question = f"Delete everything of {user}: {amount}? This cannot be undone."
        typer.confirm(question, abort=True, err=True)
    rows = place.run(count if dry_run else delete).rows
    return Answer(rows, lambda: print_lines(_forget_lines(user, rows, dry_run=dry_run)))


async def _export(
    segue: OfflineSegue, scope: Scope, out: Path | None, *, is_full: bool
) -> Mapping[str, int]:
    writer, number = ExportWriter(), 0
    export_lines = export_all if is_full else export_user
    lines = export_lines(segue.journal, scope, writer, created_at=segue.clock.now())
    is_shown = out is None and not is_piped()
    with _target(out) as target:
        async with aclosing(lines):
            async for line in lines:
                target.write(harmless(line.decode()).encode() if is_shown else line)
                number += 1
                if number % _PROGRESS_EVERY == 0:
                    typer.echo(f"{number} lines", err=True)
        target.flush()
    return writer.counts


@contextmanager
def _target(out: Path | None) -> Iterator[BinaryIO]:
    """Stdout, or a file that appears under its name once it is complete."""
    if out is None:
        yield typer.get_binary_stream("stdout")
        return
    part = out.parent / f"{out.name}.part"
    try:
        with part.open("wb") as file:
            yield file
        part.replace(out)
    except OSError as error:
        raise UsageError(f"{str(out)!r} cannot be written: {error.strerror}.") from error
    finally:
        with suppress(OSError):  # it was renamed, or its folder does not exist
            part.unlink()


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise NotFoundError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    with file:
        yield file


@asynccontextmanager
async def _existing(settings: Settings, *, dry_run: bool) -> AsyncIterator[Settings]:
    """The database to import into; a dry run without one uses a temporary database."""
    if not dry_run or await is_begun(settings):
        yield settings
        return
    with TemporaryDirectory(prefix="segue-") as folder:
        yield settings.model_copy(update={"database": folder})


@contextmanager
def _conflict_hints(*, remap: bool, skip_existing: bool) -> Iterator[None]:
    """Add the options that resolve a conflict to its error."""
    try:
        yield
    except ConflictError as error:
        hints = []
        if not skip_existing and not isinstance(error, BatchTaken):
            hints.append("--skip-existing skips what exists already.")
        if not remap:
            hints.append("--remap imports a copy under new ids.")
        raise ConflictError(" ".join([str(error), *hints])) from error


async def _warn_of_migration(segue: OfflineSegue, user: str) -> None:
    """The next migration imports these threads again, as long as the source has them."""
    if count := await segue.count_migrated(user):
        typer.echo(
            f"{count} of {user}'s threads came from `segue migrate`; delete them in the source, "
            "too, or the next run imports them again.",
            err=True,
        )


def _import_lines(imported: ImportResult, *, dry_run: bool) -> Iterator[str]:
    yield f"{'Would import' if dry_run else 'Imported'} {_amounts(imported.rows)}."
    for thread_id in imported.skipped:
        yield f"Thread {thread_id} exists already and was skipped."
    for old, new in imported.renamed.items():
        yield f"Thread {old} is now {new}."


def _forget_lines(user: str, rows: Mapping[str, int], *, dry_run: bool) -> Iterator[str]:
    in_order = {**dict.fromkeys(_ALWAYS_COUNTED, 0), **rows}
    gone = {name: count for name, count in in_order.items() if count and name != _KEYS}
    done = "Would delete" if dry_run else "Deleted"
    yield f"{done} {_amounts(gone)}." if gone else f"{user} has no data here."
    if keys := rows.get(_KEYS, 0):
        yield f"Keys that {'would be' if dry_run else 'are'} revoked, but not deleted: {keys}."


def _amounts(counts: Mapping[str, int]) -> str:
    return ", ".join(_amount(count, name) for name, count in counts.items()) or "nothing"


def _amount(count: int, name: str) -> str:
    singular = _SINGULARS.get(name, name.removesuffix("s"))
    return f"{count} {singular if count == 1 else _PLURALS.get(singular, f'{singular}s')}"


_SOURCE = "A LangGraph app's checkpoints (a SQLite file or a postgresql:// address), or a .jsonl."
_USER_FROM = "Field of each conversation that names its user, such as metadata.user_id."
# A dry run prints "would be" in place of the braces.
_ROWS = {
    "threads": "conversations found",
    "migrated": "{}migrated",
    "continued": "continued since the last run",
    "unchanged": "unchanged",
    "held_back": "last batch {}held back: it may still be running",
    "messages": "messages {}stored",
    "markers": "old markers {}turned into triggers",
    "orphans": "results without a call",
    "repairs": "unfinished batches {}settled",
}
# Number of users to list, those with the most threads first.
_USERS = 10
# Number of progress lines.
_LINES = 20


def migrate(  # noqa: PLR0913 - they are its options
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=_SOURCE)],
    *,
    user: Annotated[str | None, "Owner of conversations that name no user."] = None,
    user_from: Annotated[str | None, _USER_FROM] = None,
    agent: Annotated[
        str | None, "Agent of conversations that name none; by default the first one."
    ] = None,
    agent_from: Annotated[str | None, "Field that names the agent, such as metadata.agent."] = None,
    prefix: Annotated[str, "Prefix for the ids of the new threads."] = "",
    dry_run: Annotated[bool, "Read everything, write nothing."] = False,
    place: Place,
) -> Answer:
    """Import conversations of a LangGraph app, or chats in a file. The source is only read.

    Run it again to continue an interrupted run, or to add what is new in the source.
    """
    settings = place.load_settings()
    agents = [each.id for each in settings.agents]
    owners = Owners(
        agents=agents,
        agent=agent or agents[0],
        agent_from=agent_from,
        user=user,
        user_from=user_from,
    )
    report = asyncio.run(_migrate(source, settings, owners, prefix=prefix, is_dry_run=dry_run))
    has_failed = report.threads and len(report.skipped) == report.threads
    return Answer(report, lambda: _print(report), FAILED if has_failed else 0)


async def _migrate(
    source: str, settings: Settings, owners: Owners, *, prefix: str, is_dry_run: bool
) -> MigrationReport:
    with closing(open_source(source)) as opened:
        async with AsyncExitStack() as stack:
            journal = None
            if not is_dry_run or is_there(settings):
                segue = await stack.enter_async_context(open_offline(settings, make=True))
                journal = segue.journal
            ledger = Ledger(journal, is_dry_run=is_dry_run)
            now = SystemClock().now()
            return await Migration(opened, ledger, owners, now=now, prefix=prefix).run(
                _print_progress
            )


def _print_progress(done: int, of: int) -> None:
    if done == of or done % -(-of // _LINES) == 0:
        typer.echo(f"{done} of {of} conversations", err=True)


def _shares(users: Mapping[str, int]) -> list[tuple[str, str]]:
    by_size = sorted(users.items(), key=lambda share: (-share[1], share[0]))
    rows = [(user, str(threads)) for user, threads in by_size[:_USERS]]
    if rest := by_size[_USERS:]:
        rows.append((f"and {len(rest)} more", str(sum(threads for _, threads in rest))))
    return rows


def _print(report: MigrationReport) -> None:
    would = "would be " if report.is_dry_run else ""
    rows = [(label.format(would), str(getattr(report, name))) for name, label in _ROWS.items()]
    print_table(("what", "how many"), rows)
    if report.users:
        print_table(("user", "threads"), _shares(report.users))
    if report.renamed:
        renamed = ((each.thread, each.became) for each in report.renamed)
        print_table(("conversation", "new id"), renamed)
    if report.skipped:
        skipped = ((each.thread, one_line(each.why, 400)) for each in report.skipped)
        print_table(("skipped", "why"), skipped)
    if report.is_dry_run:
        typer.echo("Nothing was written: this was a dry run.")

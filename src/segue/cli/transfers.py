"""`segue export`, `import` and `forget`: conversations out, in, and away."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from segue.cli.errors import told_plainly
from segue.cli.options import AsJson, ConfigFile, Database
from segue.cli.output import print_json
from segue.cli.working import with_journal
from segue.core.errors import ConflictError, NotFoundError, UsageError

if TYPE_CHECKING:
    from segue.core.snowflake import SnowflakeSource
    from segue.journal.ports import Journal
    from segue.journal.records import Deleted
    from segue.settings import Settings
    from segue.transfer.importing import Imported

_EVERY: Final = 10_000
_THREADS = "Only these, with those nested in them."
_FULL = "For operators: everything, triggers too; what `segue import` takes."
_OUT = "Where to write it; to stdout if not given."
_REMAP = "Give everything new ids, in the same order: a copy beside the original."
_SKIP = "Leave threads, memories and preferences alone that are there already."
_DRY = "Check and try everything, and write nothing."
_COUNT = "Only say how much would be deleted."
# What there is one of, and more. A line has the one's name, a table that of the others.
_PLURALS: Final[Mapping[str, str]] = {
    "thread": "threads",
    "batch": "batches",
    "message": "messages",
    "summary": "summaries",
    "turn": "turns",
    "timer": "timers",
    "decision": "decisions",
    "effect": "effects",
    "memory": "memories",
    "user's preferences": "users' preferences",
}
_ONE: Final[Mapping[str, str]] = {
    **{more: one for one, more in _PLURALS.items()},
    **dict.fromkeys(("preferences", "users"), "user's preferences"),
}
_KEYS: Final = "api_keys"
_ASKED: Final = ("threads", "messages", "memories")


def export(  # noqa: PLR0913 - they are its options
    threads: Annotated[list[str] | None, typer.Argument(metavar="THREAD", help=_THREADS)] = None,
    *,
    user: Annotated[str | None, typer.Option(help="Only what is this user's.")] = None,
    full: Annotated[bool, typer.Option("--full", help=_FULL)] = False,
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Write conversations as lines of JSON: as their user sees them, or whole."""
    with told_plainly():
        if not (full or user or threads):
            raise UsageError("Whose? Name a thread or a --user; --full exports everything.")
        if as_json and out is None:
            raise UsageError("--json prints what was written, so --out has to say where to.")
    counts = with_journal(
        config, database, lambda journal, _: _export(journal, tuple(threads or ()), user, out, full)
    )
    if as_json:
        print_json({"file": str(out), "lines": counts})


def import_(  # noqa: PLR0913 - they are its options
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `segue export --full` wrote.")],
    *,
    remap: Annotated[bool, typer.Option("--remap", help=_REMAP)] = False,
    skip_existing: Annotated[bool, typer.Option("--skip-existing", help=_SKIP)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=_DRY)] = False,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Take in a full export: all of it or, if anything is wrong, nothing."""
    from segue.cli.opening import open_journal, read_settings, run  # noqa: PLC0415
    from segue.runtime.clock import SystemClock  # noqa: PLC0415
    from segue.transfer.importing import Manner, checked, import_draft  # noqa: PLC0415

    settings = read_settings(config, database)

    async def work() -> "Imported":
        now = SystemClock().now()
        # Before a database is begun: for a file that is refused there is none.
        async with (
            checked(opened) as draft,
            _place(settings, dry_run=dry_run) as place,
            open_journal(place, make=True) as journal,
            _ids(journal, remap=remap, dry_run=dry_run) as ids,
        ):
            with _options_named(remap=remap, skip_existing=skip_existing):
                manner = Manner(ids, skip_existing, dry_run)
                return await import_draft(journal, draft, manner, now=now)

    with told_plainly(), _opened(file) as opened:
        came = run(work())
    if as_json:
        print_json(came)
        return
    typer.echo(f"{'Would import' if dry_run else 'Imported'} {_told(came.rows)}.")
    for thread_id in came.skipped:
        typer.echo(f"Thread {thread_id} is here already and was left alone.")
    for old, new in came.renamed.items():
        typer.echo(f"Thread {old} is now {new}.")


def forget(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user to forget.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=_COUNT)] = False,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Delete all that is stored of a user: conversations, memories, preferences."""

    async def look(journal: "Journal", _: "Settings") -> "Deleted":
        from segue.transfer.counting import count_user  # noqa: PLC0415

        await _warn_of_return(journal, user)
        return await count_user(journal, user)

    async def work(journal: "Journal", settings: "Settings") -> "Deleted":
        if yes:
            await _warn_of_return(journal, user)
        return await _forget(journal, settings, user)

    if not yes and not dry_run:
        stored = with_journal(config, database, look).rows
        amount = _told({name: stored.get(name, 0) for name in _ASKED})
        question = f"Delete everything of {user}: {amount}? It does not come back."
        typer.confirm(question, abort=True, err=True)
    rows = with_journal(config, database, look if dry_run else work).rows
    if as_json:
        print_json(rows)
    else:
        _print_forgotten(user, rows, dry_run=dry_run)


async def _export(
    journal: "Journal", threads: tuple[str, ...], user: str | None, out: Path | None, full: bool
) -> Mapping[str, int]:
    from segue.runtime.clock import SystemClock  # noqa: PLC0415
    from segue.transfer.lines import Writing  # noqa: PLC0415
    from segue.transfer.writing import Scope, export_all, export_user  # noqa: PLC0415

    writing, scope = Writing(), Scope(threads=threads, user_id=user)
    lines = (export_all if full else export_user)(
        journal, scope, writing, created_at=SystemClock().now()
    )
    with _target(out) as target:
        async with aclosing(lines):
            number = 0
            async for line in lines:
                target.write(line)
                number += 1
                if number % _EVERY == 0:
                    typer.echo(f"{number} lines", err=True)
        target.flush()
    typer.echo(f"Exported {_told(writing.counts)}.", err=True)
    return writing.counts


@contextmanager
def _target(out: Path | None) -> Iterator[BinaryIO]:
    """A file that has its name only once it is whole, or stdout."""
    if out is None:
        yield typer.get_binary_stream("stdout")
        return
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(out)
    except OSError as error:
        raise UsageError(f"{str(out)!r} cannot be written: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise NotFoundError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    with file:
        yield file


@asynccontextmanager
async def _place(settings: "Settings", *, dry_run: bool) -> AsyncIterator["Settings"]:
    """Where to import into. A trial begins no database: where there is none, it has its own."""
    from segue.stores import is_begun  # noqa: PLC0415

    if not dry_run or await is_begun(settings):
        yield settings
        return
    with TemporaryDirectory(prefix="segue-") as folder:
        yield settings.model_copy(update={"database": folder})


@asynccontextmanager
async def _ids(
    journal: "Journal", *, remap: bool, dry_run: bool
) -> AsyncIterator["SnowflakeSource | None"]:
    """For a copy, ids that no process has that may be running beside; of a trial none stays."""
    from segue.runtime.clock import SystemClock  # noqa: PLC0415
    from segue.runtime.ids import LeasedIds  # noqa: PLC0415
    from segue.runtime.snowflakes import SnowflakeGenerator  # noqa: PLC0415

    if dry_run or not remap:
        yield SnowflakeGenerator() if remap else None
        return
    owner = f"import {os.getpid()}"
    ids = LeasedIds(journal, SystemClock(), owner=owner, lease_for=timedelta(minutes=10))
    await ids.open()
    try:
        yield ids
    finally:
        await ids.close()


@contextmanager
def _options_named(*, remap: bool, skip_existing: bool) -> Iterator[None]:
    """Say which options there still are for what is here already."""
    from segue.journal.restoring import BatchTaken  # noqa: PLC0415

    try:
        yield
    except ConflictError as error:
        hints = []
        if not skip_existing and not isinstance(error, BatchTaken):
            hints.append("--skip-existing leaves alone what is here.")
        if not remap:
            hints.append("--remap imports a copy under new ids.")
        raise ConflictError(" ".join([str(error), *hints])) from error


async def _warn_of_return(journal: "Journal", user: str) -> None:
    """Say that what was migrated comes again, as long as its source has it."""
    from segue.journal.tables import THREADS, Whose, all_rows  # noqa: PLC0415
    from segue.migrate.ledger import SETTING  # noqa: PLC0415

    threads = [row async for row in all_rows(journal, THREADS, Whose(user_id=user))]
    if count := sum(SETTING in row["settings"] for row in threads):
        typer.echo(
            f"Of {user}'s threads, {count} came by `segue migrate`: the next run over the same "
            "source brings them in again, unless they are deleted there, too.",
            err=True,
        )


async def _forget(journal: "Journal", settings: "Settings", user: str) -> "Deleted":
    from segue.runtime.clock import SystemClock  # noqa: PLC0415
    from segue.runtime.sweeper import Sweeper  # noqa: PLC0415
    from segue.stores import checkpoints_of  # noqa: PLC0415

    deleted = await journal.delete_user(user)
    checkpoints = await checkpoints_of(settings).open()
    try:
        await Sweeper(journal, checkpoints, SystemClock()).step()
    finally:
        await checkpoints.close()
    return deleted


def _print_forgotten(user: str, rows: Mapping[str, int], *, dry_run: bool) -> None:
    in_order = {**dict.fromkeys(_ASKED, 0), **rows}
    gone = {name: count for name, count in in_order.items() if count and name != _KEYS}
    done = "Would delete" if dry_run else "Deleted"
    typer.echo(f"{done} {_told(gone)}." if gone else f"Nothing was stored of {user}.")
    if keys := rows.get(_KEYS, 0):
        would = "would open" if dry_run else "open"
        typer.echo(f"Keys that are not deleted, but {would} nothing any more: {keys}.")


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(_amount(count, name) for name, count in counts.items()) or "nothing"


def _amount(count: int, name: str) -> str:
    one = _ONE.get(name, name)
    return f"{count} {one if count == 1 else _PLURALS.get(one, name)}"

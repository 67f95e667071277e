"""`segue export`, `import` and `forget`: writes, reads and deletes conversations."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, BinaryIO, Final

import typer

from segue.cli.access import open_journal, with_journal
from segue.cli.output import AsJson, ConfigFile, Database, print_json
from segue.core.snowflake import SnowflakeSource
from segue.errors import ConflictError, NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import Deleted
from segue.journal.tables import THREADS, Whose, all_rows
from segue.journal.transfer import BatchTaken
from segue.migrate.ledger import SETTING
from segue.runtime.clock import SystemClock
from segue.runtime.housekeeping import Sweeper
from segue.runtime.ids import LeasedIds, SnowflakeGenerator
from segue.settings import Settings, load_settings
from segue.stores import checkpoints_of, is_begun
from segue.transfer.export import Scope, count_user, export_all, export_user
from segue.transfer.imports import ImportOptions, ImportResult, import_staged, stage_file
from segue.transfer.lines import ExportWriter

# Number of lines after which progress is printed.
_PROGRESS_EVERY: Final = 10_000
_THREADS = "Only these threads, with those nested in them."
_FULL = "For operators: everything, triggers too; the file that `segue import` reads."
_OUT = "File to write; stdout if not given."
_REMAP = "Give everything new ids, in the same order: a copy beside the original."
_SKIP = "Skip threads, memories and preferences that exist already."
_DRY = "Check everything, write nothing."
_TRUSTED = "Also accept system messages, addresses and file ids, which users cannot send."
_COUNT = "Only show how much would be deleted."
# Export lines are named in the singular, tables in the plural.
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
_SINGULARS: Final[Mapping[str, str]] = {
    **{plural: singular for singular, plural in _PLURALS.items()},
    **dict.fromkeys(("preferences", "users"), "user's preferences"),
}
_KEYS: Final = "api_keys"
_ALWAYS_COUNTED: Final = ("threads", "messages", "memories")


def export(
    threads: Annotated[list[str] | None, typer.Argument(metavar="THREAD", help=_THREADS)] = None,
    *,
    user: Annotated[str | None, typer.Option(help="Only data of this user.")] = None,
    full: Annotated[bool, typer.Option("--full", help=_FULL)] = False,
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Write conversations as lines of JSON: as their user sees them, or everything."""
    if not (full or user or threads):
        raise UsageError("Name a thread or a --user; --full exports everything.")
    if as_json and out is None:
        raise UsageError("--json prints what was written, so --out has to name a file.")
    counts = with_journal(
        config, database, lambda journal, _: _export(journal, tuple(threads or ()), user, out, full)
    )
    if as_json:
        print_json({"file": str(out), "lines": counts})


def import_(  # noqa: PLR0913 - an option each
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `segue export --full` wrote.")],
    *,
    remap: Annotated[bool, typer.Option("--remap", help=_REMAP)] = False,
    skip_existing: Annotated[bool, typer.Option("--skip-existing", help=_SKIP)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=_DRY)] = False,
    trusted: Annotated[bool, typer.Option("--trusted", help=_TRUSTED)] = False,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Import a full export: all of it or, if anything is wrong, nothing."""
    settings = load_settings(config, database=database)

    async def work(opened: BinaryIO) -> ImportResult:
        # The file is checked first: a refused one must not create a database.
        async with (
            stage_file(opened, trusted=trusted) as staged,
            _place(settings, dry_run=dry_run) as place,
            open_journal(place, make=True) as journal,
            _ids(journal, remap=remap, dry_run=dry_run) as ids,
        ):
            with _conflict_hints(remap=remap, skip_existing=skip_existing):
                options = ImportOptions(ids, skip_existing, dry_run, trusted)
                return await import_staged(journal, staged, options, now=SystemClock().now())

    with _open(file) as opened:
        imported = asyncio.run(work(opened))
    if as_json:
        print_json(imported)
        return
    typer.echo(f"{'Would import' if dry_run else 'Imported'} {_amounts(imported.rows)}.")
    for thread_id in imported.skipped:
        typer.echo(f"Thread {thread_id} exists already and was skipped.")
    for old, new in imported.renamed.items():
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
    """Delete all data of a user: conversations, memories, preferences."""

    async def count(journal: Journal, _: Settings) -> Deleted:
        await _warn_of_migration(journal, user)
        return await count_user(journal, user)

    async def delete(journal: Journal, settings: Settings) -> Deleted:
        if yes:
            await _warn_of_migration(journal, user)
        return await _forget(journal, settings, user)

    if not yes and not dry_run:
        stored = with_journal(config, database, count).rows
        amount = _amounts({name: stored.get(name, 0) for name in _ALWAYS_COUNTED})
        question = f"Delete everything of {user}: {amount}? This cannot be undone."
        typer.confirm(question, abort=True, err=True)
    rows = with_journal(config, database, count if dry_run else delete).rows
    if as_json:
        print_json(rows)
    else:
        _print_forgotten(user, rows, dry_run=dry_run)


async def _export(
    journal: Journal, threads: tuple[str, ...], user: str | None, out: Path | None, full: bool
) -> Mapping[str, int]:
    writer, scope = ExportWriter(), Scope(threads=threads, user_id=user)
    lines = (export_all if full else export_user)(
        journal, scope, writer, created_at=SystemClock().now()
    )
    with _target(out) as target:
        async with aclosing(lines):
            number = 0
            async for line in lines:
                target.write(line)
                number += 1
                if number % _PROGRESS_EVERY == 0:
                    typer.echo(f"{number} lines", err=True)
        target.flush()
    typer.echo(f"Exported {_amounts(writer.counts)}.", err=True)
    return writer.counts


@contextmanager
def _target(out: Path | None) -> Iterator[BinaryIO]:
    """Stdout, or a file that gets its name once it is complete."""
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
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise NotFoundError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    with file:
        yield file


@asynccontextmanager
async def _place(settings: Settings, *, dry_run: bool) -> AsyncIterator[Settings]:
    """The database to import into; a dry run without one uses a temporary database."""
    if not dry_run or await is_begun(settings):
        yield settings
        return
    with TemporaryDirectory(prefix="segue-") as folder:
        yield settings.model_copy(update={"database": folder})


@asynccontextmanager
async def _ids(
    journal: Journal, *, remap: bool, dry_run: bool
) -> AsyncIterator[SnowflakeSource | None]:
    """New ids for a copy, leased if they are stored: other processes may run at the same time."""
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


async def _warn_of_migration(journal: Journal, user: str) -> None:
    """Migrated threads come back with the next migration, as long as the source has them."""
    threads = [row async for row in all_rows(journal.transfer, THREADS, Whose(user_id=user))]
    if count := sum(SETTING in row["settings"] for row in threads):
        typer.echo(
            f"{count} of {user}'s threads came from `segue migrate`; delete them in the source, "
            "too, or the next run imports them again.",
            err=True,
        )


async def _forget(journal: Journal, settings: Settings, user: str) -> Deleted:
    deleted = await journal.removal.delete_user(user)
    checkpoints = await checkpoints_of(settings).open()
    try:
        await Sweeper(journal, checkpoints, SystemClock()).step()
    finally:
        await checkpoints.close()
    return deleted


def _print_forgotten(user: str, rows: Mapping[str, int], *, dry_run: bool) -> None:
    in_order = {**dict.fromkeys(_ALWAYS_COUNTED, 0), **rows}
    gone = {name: count for name, count in in_order.items() if count and name != _KEYS}
    done = "Would delete" if dry_run else "Deleted"
    typer.echo(f"{done} {_amounts(gone)}." if gone else f"There is no data of {user}.")
    if keys := rows.get(_KEYS, 0):
        typer.echo(
            f"Keys that {'would be' if dry_run else 'are'} revoked, but not deleted: {keys}."
        )


def _amounts(counts: Mapping[str, int]) -> str:
    return ", ".join(_amount(count, name) for name, count in counts.items()) or "nothing"


def _amount(count: int, name: str) -> str:
    singular = _SINGULARS.get(name, name)
    return f"{count} {singular if count == 1 else _PLURALS.get(singular, name)}"

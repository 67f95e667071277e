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
from segue.core.errors import NotFoundError, UsageError

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


def export(  # noqa: PLR0913 - they are its options
    threads: Annotated[list[str] | None, typer.Argument(metavar="THREAD…", help=_THREADS)] = None,
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
    file: Annotated[Path, typer.Argument(help="What `segue export --full` wrote.")],
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
    from segue.transfer.importing import Manner, import_file  # noqa: PLC0415

    settings = read_settings(config, database)

    async def work() -> "Imported":
        now = SystemClock().now()
        async with (
            _place(settings, dry_run=dry_run) as place,
            open_journal(place, make=True) as journal,
            _ids(journal, remap=remap, dry_run=dry_run) as ids,
        ):
            manner = Manner(ids, skip_existing, dry_run)
            return await import_file(journal, opened, manner, now=now)

    with told_plainly(), _opened(file) as opened:
        came = run(work())
    if as_json:
        print_json(came)
        return
    total = ", ".join(f"{count} {name}" for name, count in came.rows.items()) or "nothing"
    typer.echo(f"{'Would import' if dry_run else 'Imported'} {total}.")
    for thread_id in came.skipped:
        typer.echo(f"Thread {thread_id} is here already and was left alone.")
    for old, new in came.renamed.items():
        typer.echo(f"Thread {old} is now {new}.")


def forget(
    user: Annotated[str, typer.Argument(help="Whose.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Delete all that is stored of a user: conversations, memories, preferences."""
    if not yes:
        typer.confirm(f"Delete everything of {user}? It does not come back.", abort=True, err=True)

    async def work(journal: "Journal", settings: "Settings") -> "Deleted":
        return await _forget(journal, settings, user)

    deleted = with_journal(config, database, work)
    if as_json:
        print_json(deleted.rows)
        return
    found = [f"{count} {name}" for name, count in deleted.rows.items() if count]
    typer.echo(f"Deleted {', '.join(found)}." if found else f"Nothing was stored of {user}.")


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
    typer.echo(_told(writing.counts), err=True)
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


def _told(counts: Mapping[str, int]) -> str:
    found = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"Exported {found or 'nothing'}."

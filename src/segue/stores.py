"""The journal and the checkpoints that the settings name: which backend, and which files.

`journal_of` and `checkpoints_of` make them, and the caller opens them.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Final

from segue.errors import BackendError, NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.journal.sqlite import SqliteJournal
from segue.journal.tx import migrations
from segue.settings import Settings

if TYPE_CHECKING:
    from segue.agent.checkpoints.store import Checkpoints

JOURNAL_FILE: Final = "journal.db"
CHECKPOINT_FILE: Final = "checkpoints.db"
_CONNECT_SECONDS: Final = 10


def journal_of(settings: Settings) -> Journal:
    """The journal, not opened yet."""
    if not settings.is_postgres:
        return SqliteJournal(settings.folder / JOURNAL_FILE)
    require_postgres()
    from segue.journal.postgres import PostgresJournal  # noqa: PLC0415 - an extra

    return PostgresJournal(settings.database)


def checkpoints_of(settings: Settings) -> "Checkpoints":
    """The checkpoints of running turns, not opened yet."""
    # Imported here: commands that only read the journal do not need LangGraph.
    if settings.is_postgres:
        require_postgres()
        from segue.agent.checkpoints.postgres import PostgresCheckpoints  # noqa: PLC0415

        return PostgresCheckpoints(settings.database)
    from segue.agent.checkpoints.store import SqliteCheckpoints  # noqa: PLC0415

    return SqliteCheckpoints(settings.folder / CHECKPOINT_FILE)


def make_folder(settings: Settings) -> None:
    """Create the folder of the SQLite files; a PostgreSQL database has to exist."""
    if settings.is_postgres:
        return
    folder = settings.folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # conversations are private
    except OSError as error:
        in_the_way = next((p for p in (folder, *folder.parents) if p.is_file()), None)
        why = f"{str(in_the_way)!r} is a file" if in_the_way else error.strerror
        raise UsageError(
            f"database: the folder {str(folder)!r} cannot be made ({why}); give the path of a "
            "folder that this process may write to, or the address of a PostgreSQL database."
        ) from error


@asynccontextmanager
async def open_journal(settings: Settings, *, make: bool = False) -> AsyncIterator[Journal]:
    """The journal, open. With `make`, a missing SQLite database is created."""
    if make:
        make_folder(settings)
    elif not is_there(settings):
        raise NotFoundError(
            f"The folder {str(settings.folder.absolute())!r} has no database yet; `segue serve` or "
            "`segue chat` creates one. Name another folder with --database or --config."
        )
    journal = journal_of(settings)
    try:
        await journal.open()
        yield journal
    finally:
        await journal.close()


def is_there(settings: Settings) -> bool:
    """Whether the SQLite database exists; True for PostgreSQL, where only connecting shows it."""
    return settings.is_postgres or (settings.folder / JOURNAL_FILE).exists()


async def is_begun(settings: Settings) -> bool:
    """Whether the database holds a journal; creates none."""
    return is_there(settings) and (await schema_versions(settings))[0] > 0


async def schema_versions(settings: Settings) -> tuple[int, int]:
    """The version of the stored schema, and the one that this Segue knows; changes nothing."""
    if settings.is_postgres:
        return await _postgres_version(settings.database), len(migrations("postgres"))
    file = settings.folder / JOURNAL_FILE
    try:
        with closing(sqlite3.connect(file)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        raise BackendError(f"SQLite file {str(file)!r}: {error}.") from None
    return int(version), len(migrations("sqlite"))


async def _postgres_version(address: str) -> int:
    require_postgres()
    import psycopg  # noqa: PLC0415 - an extra
    from psycopg.rows import dict_row  # noqa: PLC0415

    from segue.journal.postgres.database import schema_version  # noqa: PLC0415

    try:
        async with await psycopg.AsyncConnection.connect(
            address, connect_timeout=_CONNECT_SECONDS, row_factory=dict_row
        ) as connection:
            return await schema_version(connection) or 0
    except psycopg.Error as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise BackendError(f"PostgreSQL: {reason.rstrip('.')}.") from None


def describe_location(settings: Settings) -> str:
    """Where data is stored, as a text without the address's secrets."""
    if not settings.is_postgres:
        return f"SQLite in {settings.folder.absolute()}"
    require_postgres()
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - an extra

    from segue.journal.postgres.database import check_address  # noqa: PLC0415

    check_address(settings.database)
    known = conninfo_to_dict(settings.database)
    return f"PostgreSQL, database {known.get('dbname')} on {known.get('host', 'this machine')}"


def require_postgres() -> None:
    """`UsageError` says what to install if the extra for PostgreSQL is missing."""
    try:
        import segue.journal.postgres  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise UsageError(
            f"PostgreSQL needs {error.name}; pip install 'segue[postgres]'."
        ) from error

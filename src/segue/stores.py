"""The journal and the checkpoints that the settings name: which backend, and which files.

They are made here; the caller opens them.
"""

from typing import TYPE_CHECKING, Final

from segue.errors import UsageError
from segue.journal.journal import Journal
from segue.journal.sqlite import SqliteJournal
from segue.settings import Settings

if TYPE_CHECKING:
    from segue.agent.checkpoints.store import Checkpoints

JOURNAL_FILE: Final = "journal.db"
CHECKPOINT_FILE: Final = "checkpoints.db"


def journal_of(settings: Settings) -> Journal:
    """The journal, not opened yet."""
    if not settings.is_postgres:
        return SqliteJournal(settings.folder / JOURNAL_FILE)
    require_postgres()
    from segue.journal.postgres import PostgresJournal  # noqa: PLC0415 - an extra

    return PostgresJournal(settings.database)


def checkpoints_of(settings: Settings) -> "Checkpoints":
    """The checkpoints of turns at work, not opened yet."""
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


def is_there(settings: Settings) -> bool:
    """Whether the SQLite database exists; True for PostgreSQL, which tells on connecting."""
    return settings.is_postgres or (settings.folder / JOURNAL_FILE).exists()


async def is_begun(settings: Settings) -> bool:
    """Whether the database holds a journal; creates none."""
    if not settings.is_postgres:
        return is_there(settings)
    require_postgres()
    from segue.journal.postgres.database import Database  # noqa: PLC0415 - an extra

    return await Database(settings.database, pool_size=1).has_tables()


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

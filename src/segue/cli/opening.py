"""What commands work on: the settings, and the journal without the workers around it.

A command that only looks must not begin to answer messages; so it opens the journal alone, and it
makes no database where there is none.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from segue.cli.errors import told_plainly
from segue.compose import JOURNAL_FILE
from segue.core.errors import NotFoundError, UsageError
from segue.journal.ports import Journal
from segue.journal.sqlite import SqliteJournal
from segue.settings import Settings, load_settings

if TYPE_CHECKING:
    from segue.server.settings import ServerSettings

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; what is wrong is told in one line."""
    with told_plainly():
        return asyncio.run(work)


def read_settings(config: Path | None, database: str | None = None) -> Settings:
    """The settings of a command that serves nobody."""
    with told_plainly():
        return load_settings(config, database=database)


def read_server_settings(
    config: Path | None, database: str | None = None, **flags: Any
) -> tuple[Settings, "ServerSettings"]:
    """The settings, and those of the server, which are in the same file."""
    with told_plainly():
        try:
            from segue.server.settings import ServerSettings  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise UsageError(
                f"The server needs {error.name}; pip install 'segue[server]'."
            ) from error

        class WithServer(Settings):
            server: ServerSettings = ServerSettings()

        given = {f"server__{name}": value for name, value in flags.items()}
        settings = load_settings(config, kind=WithServer, database=database, **given)
        return settings, settings.server


@asynccontextmanager
async def open_journal(settings: Settings, *, make: bool = False) -> AsyncIterator[Journal]:
    """The journal alone. Without `make`, a SQLite file has to be there."""
    journal = _journal(settings, make=make)
    try:
        await journal.open()
        yield journal
    finally:
        await journal.close()


def is_there(settings: Settings) -> bool:
    """Whether there is a database that can be opened; of PostgreSQL one sees it when one tries."""
    return settings.is_postgres or (settings.folder / JOURNAL_FILE).exists()


def _journal(settings: Settings, *, make: bool) -> Journal:
    if settings.is_postgres:
        _require_postgres()
        from segue.journal.postgres import PostgresJournal  # noqa: PLC0415 - an extra

        return PostgresJournal(settings.database)
    if make:
        _make_folder(settings.folder)
    elif not is_there(settings):
        raise NotFoundError(
            f"There is no database in {str(settings.folder.absolute())!r} yet; `segue serve` and "
            "`segue chat` begin one. Is it another folder? --database or --config says so."
        )
    return SqliteJournal(settings.folder / JOURNAL_FILE)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"database: the folder {str(folder)!r} cannot be made: {error.strerror}."
        ) from error


def place_of(settings: Settings) -> str:
    """Where data is kept, for people: of an address only what is no secret."""
    if not settings.is_postgres:
        return f"SQLite in {settings.folder.absolute()}"
    _require_postgres()
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - an extra

    from segue.journal.postgres.database import check_address  # noqa: PLC0415

    check_address(settings.database)
    known = conninfo_to_dict(settings.database)
    return f"PostgreSQL, database {known.get('dbname')} on {known.get('host', 'this machine')}"


def _require_postgres() -> None:
    try:
        import segue.journal.postgres  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise UsageError(
            f"PostgreSQL needs {error.name}; pip install 'segue[postgres]'."
        ) from error

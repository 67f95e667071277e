"""What commands work on: the settings, and the journal without the workers around it.

A command that only looks must not begin to answer messages; so it opens the journal alone, and it
makes no database where there is none.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from segue.agent.config import AgentConfig
from segue.cli.errors import told_plainly
from segue.core.errors import NotFoundError, UsageError
from segue.journal.ports import Journal
from segue.settings import Settings, load_settings
from segue.stores import is_there, journal_of, make_folder

if TYPE_CHECKING:
    from segue.server.settings import ServedSettings

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; what is wrong is told in one line."""
    with told_plainly():
        return asyncio.run(work)


def read_settings(config: Path | None, database: str | None = None) -> Settings:
    """The settings of a command that runs agents without a server."""
    with told_plainly():
        return load_settings(config, database=database)


def read_data_settings(config: Path | None, database: str | None = None) -> Settings:
    """The settings of a command that only works at the database: it needs no agent's secrets."""
    with told_plainly():
        return load_settings(config, without=("webhook",), database=database)


def read_served_settings(
    config: Path | None, database: str | None = None, **flags: Any
) -> "ServedSettings":
    """The settings with those of the server, which are in the same file."""
    with told_plainly():
        try:
            from segue.server.settings import ServedSettings  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise UsageError(
                f"The server needs {error.name}; pip install 'segue[server]'."
            ) from error
        given = {f"server__{name}": value for name, value in flags.items()}
        settings: ServedSettings = load_settings(
            config, kind=ServedSettings, database=database, **given
        )
        return settings


@asynccontextmanager
async def open_journal(settings: Settings, *, make: bool = False) -> AsyncIterator[Journal]:
    """The journal alone. Without `make`, a SQLite file has to be there."""
    if make:
        make_folder(settings)
    elif not is_there(settings):
        raise NotFoundError(
            f"There is no database in {str(settings.folder.absolute())!r} yet; `segue serve` and "
            "`segue chat` begin one. Is it another folder? --database or --config says so."
        )
    journal = journal_of(settings)
    try:
        await journal.open()
        yield journal
    finally:
        await journal.close()


def config_of(settings: Settings, agent_id: str) -> AgentConfig:
    """The agent of a thread; `NotFoundError` if the settings do not know it."""
    for config in settings.agents:
        if config.id == agent_id:
            return config
    known = ", ".join(config.id for config in settings.agents)
    raise NotFoundError(
        f"The thread is with agent {agent_id!r}, and the settings have only: {known}. "
        "Name the settings that it was begun with by --config."
    )

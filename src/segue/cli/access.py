"""How commands reach data: the journal of the settings, or a server that returns the same JSON."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from segue.errors import NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import Thread
from segue.settings import Settings, load_settings
from segue.settings.agents import AgentConfig
from segue.stores import is_there, journal_of, make_folder

T = TypeVar("T")
JournalWork = Callable[[Journal, Settings], Awaitable[T]]
ThreadWork = Callable[[Journal, Thread, Settings], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class Target:
    """What a command reads: a server, or the database of the settings.

    `UsageError` if both are given, or if `url` is not an HTTP address.
    """

    url: str | None
    key: str | None
    config: Path | None
    database: str | None

    def __post_init__(self) -> None:
        if self.url is None:
            return
        if self.config is not None or self.database is not None:
            raise UsageError("With --url, settings are the server's: no --config, no --database.")
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"--url is {self.url!r}; expected http://… or https://….")


@asynccontextmanager
async def open_journal(settings: Settings, *, make: bool = False) -> AsyncIterator[Journal]:
    """The journal, open. With `make`, a missing SQLite database is created."""
    if make:
        make_folder(settings)
    elif not is_there(settings):
        raise NotFoundError(
            f"There is no database in {str(settings.folder.absolute())!r} yet; `segue serve` and "
            "`segue chat` create one. Name another folder with --database or --config."
        )
    journal = journal_of(settings)
    try:
        await journal.open()
        yield journal
    finally:
        await journal.close()


def with_journal(
    config: Path | None, database: str | None, work: JournalWork[T], *, make: bool = False
) -> T:
    """Run `work` with the journal of the settings; secrets of webhooks need not be set."""
    settings = load_settings(config, without=("webhook",), database=database)

    async def run() -> T:
        async with open_journal(settings, make=make) as journal:
            return await work(journal, settings)

    return asyncio.run(run())


def with_thread(
    thread_id: str, config: Path | None, database: str | None, work: ThreadWork[T]
) -> T:
    """Run `work` with a thread that has to exist."""
    return with_journal(config, database, of_thread(thread_id, work))


def look(target: Target, path: str, work: JournalWork[Any], **params: Any) -> Any:
    """The JSON that a server returns for `path`, or that `work` returns for the database."""
    if target.url is None:
        return with_journal(target.config, target.database, work)
    # httpx takes as long to import as the rest of a command.
    from segue.cli.client import call, open_client  # noqa: PLC0415

    async def request(url: str) -> Any:
        given = {name: value for name, value in params.items() if value is not None}
        async with open_client(url, target.key, None) as client:
            return await call(client, "GET", path, params=given)

    return asyncio.run(request(target.url))


def of_thread(thread_id: str, work: ThreadWork[T]) -> JournalWork[T]:
    """Work at the journal that loads the thread first; `NotFoundError` if there is none."""

    async def run(journal: Journal, settings: Settings) -> T:
        try:
            thread = await journal.threads.get(thread_id)
        except NotFoundError as error:
            hint = "`segue threads --user NAME` lists a user's threads, `--all` those of all users."
            raise NotFoundError(f"{error} {hint}") from None
        return await work(journal, thread, settings)

    return run


def config_of(settings: Settings, agent_id: str) -> AgentConfig:
    """The agent of a thread; `NotFoundError` if it is not in the settings."""
    for config in settings.agents:
        if config.id == agent_id:
            return config
    known = ", ".join(config.id for config in settings.agents)
    raise NotFoundError(
        f"The thread is with agent {agent_id!r}, and the settings have only: {known}. "
        "Name the settings file of that agent with --config."
    )

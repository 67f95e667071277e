"""How commands reach data: the journal of the settings, or a server that returns the same JSON."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from segue.cli.output import ConfigFile, Database, Key, Url
from segue.core.snowflake import SnowflakeSource
from segue.errors import NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import Thread
from segue.runtime.clock import SystemClock
from segue.runtime.ids import LeasedIds, SnowflakeGenerator
from segue.settings import Settings, load_settings
from segue.settings.agents import AgentConfig
from segue.stores import is_there, journal_of, make_folder

T = TypeVar("T")
JournalWork = Callable[[Journal, Settings], Awaitable[T]]
ThreadWork = Callable[[Journal, Thread, Settings], Awaitable[T]]
# Longer than any command stores; a crashed command blocks its node for this long.
_LEASE: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Place:
    """The settings and the database of a command."""

    config: ConfigFile = None
    database: Database = None

    def load_settings(self) -> Settings:
        """The settings; secrets of webhooks need not be set."""
        return load_settings(self.config, without=("webhook",), database=self.database)

    def run(self, work: JournalWork[T], *, make: bool = False) -> T:
        """Run `work` with the journal; with `make`, a missing SQLite database is created."""
        settings = self.load_settings()

        async def run() -> T:
            async with open_journal(settings, make=make) as journal:
                return await work(journal, settings)

        return asyncio.run(run())


@dataclass(frozen=True, slots=True)
class Target(Place):
    """What a command reads: a server, or the database of the settings.

    `UsageError` if both are given, or if `url` is not an HTTP address.
    """

    url: Url = None
    key: Key = None

    def __post_init__(self) -> None:
        if self.url is None:
            return
        if self.config is not None or self.database is not None:
            raise UsageError("With --url, settings are the server's: no --config, no --database.")
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"--url is {self.url!r}; expected http://… or https://….")

    def look(self, path: str, work: JournalWork[Any], **params: Any) -> Any:
        """The JSON that the server returns for `path`, or that `work` reads from the database."""
        return self.call("GET", path, work, params=params)

    def call(
        self,
        method: str,
        path: str,
        work: JournalWork[Any],
        *,
        user: str | None = None,
        **given: Mapping[str, Any],
    ) -> Any:
        """The JSON of a request with a `body` or `params`, for a `user` if the key speaks for many;
        or what `work` does at the database.
        """
        if self.url is None:
            return self.run(work)
        # httpx takes as long to import as the rest of a command.
        from segue.cli.client import call, open_client  # noqa: PLC0415

        sent = {
            place: {name: value for name, value in values.items() if value is not None}
            for place, values in given.items()
        }

        async def request(url: str) -> Any:
            async with open_client(url, self.key, user) as client:
                return await call(client, method, path, **sent)

        return asyncio.run(request(self.url))


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


@asynccontextmanager
async def new_ids(journal: Journal, *, dry_run: bool) -> AsyncIterator[SnowflakeSource]:
    """Ids that no other process makes; a dry run stores nothing, not even a lease."""
    if dry_run:
        yield SnowflakeGenerator()
        return
    owner = f"segue:{os.getpid()}"
    ids = LeasedIds(journal, SystemClock(), owner=owner, lease_for=_LEASE)
    await ids.open()
    try:
        yield ids
    finally:
        await ids.close()


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

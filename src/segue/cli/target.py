"""How commands reach data: the database of the settings, or a server that returns the same JSON."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from segue.cli.output import ConfigFile, Key
from segue.errors import NotFoundError, UsageError
from segue.journal.records import Thread
from segue.offline import OfflineSegue, open_offline
from segue.settings import Settings, load_settings

T = TypeVar("T")
Work = Callable[[OfflineSegue], Awaitable[T]]
ThreadWork = Callable[[OfflineSegue, Thread], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class Place:
    """The settings and the database of a command."""

    config: ConfigFile = None
    database: Annotated[
        str | None, "SQLite folder or PostgreSQL address; overrides the settings file."
    ] = None

    def load_settings(self) -> Settings:
        """The settings; secrets of webhooks need not be set."""
        return load_settings(self.config, without=("webhook",), database=self.database)

    def run(self, work: Work[T], *, make: bool = False) -> T:
        """Run `work` at the database; with `make`, a missing SQLite database is created."""
        settings = self.load_settings()

        async def run() -> T:
            async with open_offline(settings, make=make) as segue:
                return await work(segue)

        return asyncio.run(run())


@dataclass(frozen=True, slots=True)
class Target(Place):
    """What a command reads: a server, or the database of the settings.

    `UsageError` if both are given, or if `url` is not an HTTP address.
    """

    url: Annotated[
        str | None, "A server's URL, instead of a database; most commands need an operator's key."
    ] = None
    key: Key = None

    def __post_init__(self) -> None:
        if self.url is None:
            return
        if self.config is not None or self.database is not None:
            raise UsageError("With --url, settings are the server's: no --config, no --database.")
        if not _is_http(self.url):
            raise UsageError(f"--url is {self.url!r}; expected http://… or https://….")

    def look(self, path: str, work: Work[Any], **params: Any) -> Any:
        """The JSON that the server returns for `path`, or that `work` reads from the database."""
        return self.call("GET", path, work, params=params)

    def call(
        self,
        method: str,
        path: str,
        work: Work[Any],
        *,
        user: str | None = None,
        **given: Mapping[str, Any],
    ) -> Any:
        """The JSON of a request with a `body` or `params`, for a `user` if the key acts for many
        users; or what `work` returns from the database.
        """
        if self.url is None:
            return self.run(work)
        # httpx takes as long to import as the rest of a command.
        from segue.cli.client import call, open_client  # noqa: PLC0415

        # In a body, null may mean something: it removes a preference.
        sent = {
            place: {n: v for n, v in values.items() if v is not None or method == "PATCH"}
            for place, values in given.items()
        }

        async def request(url: str) -> Any:
            async with open_client(url, self.key, user) as client:
                found = await call(client, method, path, **sent)
                # A list comes as a page.
                return found["items"] if isinstance(found, dict) and "items" in found else found

        return asyncio.run(request(self.url))


@contextmanager
def suggest_user(*, if_missing: bool) -> Iterator[None]:
    """If a server does not find a thread, suggest to name its user: each user has own threads."""
    try:
        yield
    except NotFoundError as error:
        if not if_missing:
            raise
        hint = "If it is another user's, name the user with --user."
        raise NotFoundError(f"{error} {hint}") from None


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port or an IPv6 address
        return False


def of_thread(thread_id: str, work: ThreadWork[T]) -> Work[T]:
    """Work that loads the thread first; `NotFoundError` if it does not exist."""

    async def run(segue: OfflineSegue) -> T:
        try:
            thread = await segue.get_thread(thread_id)
        except NotFoundError as error:
            hint = "`segue threads --user NAME` lists a user's threads, `--all` those of all users."
            raise NotFoundError(f"{error} {hint}") from None
        return await work(segue, thread)

    return run

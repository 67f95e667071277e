"""Runs a command's work at the journal, or asks a server for what the same work would find.

Loads the system only when there is work, so that whoever asks for help does not wait for it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from segue.cli.errors import told_plainly
from segue.core.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from segue.journal.ports import Journal
    from segue.journal.records import Thread
    from segue.settings import Settings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Where:
    """What a command looks at: a server, or the database of the settings."""

    url: str | None
    key: str | None
    config: Path | None
    database: str | None

    def check(self) -> None:
        """`UsageError` if both are named, or the address cannot be one."""
        if self.url is None:
            return
        if self.config is not None or self.database is not None:
            raise UsageError("With --url, settings are the server's: no --config, no --database.")
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"--url is {self.url!r}; expected http://… or https://….")


def look(
    where: Where,
    path: str,
    work: "Callable[[Journal, Settings], Awaitable[Any]]",
    **params: Any,
) -> Any:
    """What a server answers, or what `work` finds at the database: the same JSON."""
    with told_plainly():
        where.check()
    if where.url is None:
        return with_journal(where.config, where.database, work)
    from segue.cli.http import call, client_of  # noqa: PLC0415
    from segue.cli.opening import run  # noqa: PLC0415

    async def asked(url: str) -> Any:
        given = {name: value for name, value in params.items() if value is not None}
        async with client_of(url, where.key, None) as client:
            return await call(client, "GET", path, params=given)

    return run(asked(where.url))


def look_at_thread(
    where: Where,
    thread_id: str,
    view: str,
    work: "Callable[[Journal, Thread, Settings], Awaitable[Any]]",
    **params: Any,
) -> Any:
    """What a server or the database has of a thread, which has to be there."""
    path = f"/api/admin/threads/{quote(thread_id, safe='')}/{view}"
    return look(where, path, _at_thread(thread_id, work), **params)


def with_journal(
    config: Path | None,
    database: str | None,
    work: "Callable[[Journal, Settings], Awaitable[T]]",
) -> T:
    """What some work finds at the journal of the settings."""
    from segue.cli.opening import open_journal, read_data_settings, run  # noqa: PLC0415

    settings = read_data_settings(config, database)

    async def opened() -> T:
        async with open_journal(settings) as journal:
            return await work(journal, settings)

    return run(opened())


def with_thread(
    thread_id: str,
    config: Path | None,
    database: str | None,
    work: "Callable[[Journal, Thread, Settings], Awaitable[T]]",
) -> T:
    """The same for a thread, which has to be there."""
    return with_journal(config, database, _at_thread(thread_id, work))


def _at_thread(
    thread_id: str, work: "Callable[[Journal, Thread, Settings], Awaitable[T]]"
) -> "Callable[[Journal, Settings], Awaitable[T]]":
    async def found(journal: "Journal", settings: "Settings") -> T:
        try:
            thread = await journal.get_thread(thread_id)
        except NotFoundError as error:
            hint = "`segue threads --user NAME` lists a user's, `--all` everybody's."
            raise NotFoundError(f"{error} {hint}") from None
        return await work(journal, thread, settings)

    return found

"""Runs a command's work at the journal, which is opened for it and closed again.

Loads the system only when there is work, so that who asks for help does not wait for it.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from segue.core.errors import NotFoundError

if TYPE_CHECKING:
    from segue.journal.ports import Journal
    from segue.journal.records import Thread
    from segue.settings import Settings

T = TypeVar("T")


def with_journal(
    config: Path | None,
    database: str | None,
    work: "Callable[[Journal, Settings], Awaitable[T]]",
) -> T:
    """What some work finds at the journal of the settings."""
    from segue.cli.opening import open_journal, read_settings, run  # noqa: PLC0415

    settings = read_settings(config, database)

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

    async def found(journal: "Journal", settings: "Settings") -> T:
        try:
            thread = await journal.get_thread(thread_id)
        except NotFoundError as error:
            hint = "`segue threads --user NAME` lists a user's, `--all` everybody's."
            raise NotFoundError(f"{error} {hint}") from None
        return await work(journal, thread, settings)

    return with_journal(config, database, found)

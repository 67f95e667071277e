"""`ThreadService`: which conversations a user has, and what a person sees of one.

Used by the facade, the server and the command line. What is hidden from people is filtered by the
journal's own `history`, so that no caller can forget it.
"""

from typing import Any

from segue.core.errors import UsageError
from segue.core.metadata import MessageMetadata
from segue.journal.ports import Journal
from segue.journal.records import Page, Thread, ThreadPlace, Turn


class ThreadService:
    """Lists threads and reads their visible history. `UsageError` for what cannot be a page."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def list_threads(
        self,
        user_id: str,
        agent_id: str | None = None,
        *,
        limit: int = 50,
        before: ThreadPlace | None = None,
    ) -> list[Thread]:
        """A user's threads, the one written to last first; without those of agents among
        themselves. `before` is the `place` of the last one of the page before.
        """
        return await self._journal.list_threads(
            user_id, agent_id=agent_id, limit=check_limit(limit), before=before
        )

    async def history(
        self,
        thread_id: str,
        *,
        limit: int = 50,
        before: int | None = None,
        after: int | None = None,
    ) -> Page:
        """What a person sees of the thread: the newest messages, or those next to a position."""
        return await self._journal.history(
            thread_id,
            limit=check_limit(limit),
            before=_position(before, "before"),
            after=_position(after, "after"),
        )

    async def turns_of(self, thread_id: str, page: Page, *, limit: int) -> list[Turn]:
        """The turns in which the messages of a page were written."""
        batches = {MessageMetadata.of(message).batch or 0 for message in page.messages}
        return await self._journal.list_turns(thread_id, batches=batches, limit=limit)


def check_limit(given: Any) -> int:
    if not isinstance(given, int) or given < 0:
        raise UsageError(f"limit is {given!r:.80}; expected a whole number of zero or more.")
    return given


def _position(given: Any, what: str) -> int | None:
    if given is not None and (not isinstance(given, int) or given < 0):
        raise UsageError(f"{what} is {given!r:.80}; expected a position, as a page has it.")
    return given

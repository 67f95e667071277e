"""`ThreadService`: a user's threads, and the visible history of one.

The journal's own `history` leaves out hidden messages, so that no caller can forget to.
"""

from typing import Any

from segue.core.metadata import MessageMetadata
from segue.errors import UsageError
from segue.journal.journal import Journal
from segue.journal.records import Page, Thread, ThreadPlace, Turn


class ThreadService:
    """Lists threads and reads their visible history. `UsageError` for an invalid page."""

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
        """A user's threads, the most recently updated first, without those between agents.
        `before` is the `place` of the previous page's last thread.
        """
        return await self._journal.threads.list_of(
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
        """The newest visible messages, or those next to a position."""
        return await self._journal.messages.history(
            thread_id,
            limit=check_limit(limit),
            before=_position(before, "before"),
            after=_position(after, "after"),
        )

    async def turns_of(self, thread_id: str, page: Page, *, limit: int) -> list[Turn]:
        """The turns that wrote the messages of a page."""
        batches = {MessageMetadata.of(message).batch or 0 for message in page.messages}
        return await self._journal.turns.list_of(thread_id, batches=batches, limit=limit)


def check_limit(given: Any) -> int:
    if not isinstance(given, int) or given < 0:
        raise UsageError(f"limit is {given!r:.80}; expected a whole number of zero or more.")
    return given


def _position(given: Any, what: str) -> int | None:
    if given is not None and (not isinstance(given, int) or given < 0):
        raise UsageError(f"{what} is {given!r:.80}; expected a position, as a page has it.")
    return given

"""`Retainer`: removes batches that have been kept long enough, once a day.

Which ones is a policy's to say, and `segue.core.retention`'s; that nothing goes that somebody works
on, the journal's.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from segue.core.errors import NotFoundError
from segue.core.metadata import BatchType
from segue.core.retention import RetentionPolicy
from segue.journal.ports import Journal
from segue.journal.retention import Removed, ThreadBatches
from segue.runtime.clock import Clock

logger = logging.getLogger(__name__)

_EVERY: Final = timedelta(days=1)
# Batches of a thread that go at once: others who write to it wait so long.
_PORTION: Final = 200


@dataclass(frozen=True, slots=True)
class Retained:
    """What goes of one thread: how many batches and messages, of which types, and from when."""

    thread_id: str
    user_id: str
    agent_id: str
    batches: int
    messages: int
    types: dict[BatchType, int]
    oldest_at: datetime
    newest_at: datetime


class Retainer:
    """Without a policy it does nothing."""

    def __init__(self, journal: Journal, policy: RetentionPolicy | None, clock: Clock) -> None:
        self._journal = journal
        self._policy = policy
        self._clock = clock

    async def step(self) -> datetime | None:
        """Look at all threads; when to look again."""
        if self._policy is None:
            return None
        now = self._clock.now()
        async for gone in retain(self._journal, self._policy, now=now):
            logger.info("Retention removed %d batches of thread %s", gone.batches, gone.thread_id)
        return now + _EVERY


async def retain(
    journal: Journal, policy: RetentionPolicy, *, now: datetime, is_dry_run: bool = False
) -> AsyncIterator[Retained]:
    """Remove what a policy says, thread by thread, and tell of each that something goes of."""
    removed = False
    parts = ((policy, False), (policy.among_agents, True))
    for part, nested in parts:
        if part is None:
            continue
        async for thread in _stored(journal, nested=nested):
            if gone := await _retain_thread(journal, thread, part, now, is_dry_run=is_dry_run):
                removed = not is_dry_run
                yield gone
    if removed:
        await journal.wipe_removed()


async def _stored(journal: Journal, *, nested: bool) -> AsyncIterator[ThreadBatches]:
    after = ""
    while page := await journal.list_stored(after=after, nested=nested):
        after = page[-1].thread_id
        for thread in page:
            yield thread


async def _retain_thread(
    journal: Journal,
    thread: ThreadBatches,
    policy: RetentionPolicy,
    now: datetime,
    *,
    is_dry_run: bool,
) -> Retained | None:
    expired = policy.expired(thread.batches, now)
    removed = Removed(len(expired), sum(batch.messages for batch in expired))
    if not is_dry_run:
        removed = await _remove(journal, thread.thread_id, [batch.id for batch in expired])
    if not removed.batches:
        return None
    return Retained(
        thread.thread_id,
        thread.user_id,
        thread.agent_id,
        removed.batches,
        removed.messages,
        dict(Counter(batch.type for batch in expired)),
        expired[0].last_at,
        expired[-1].last_at,
    )


async def _remove(journal: Journal, thread_id: str, batches: list[int]) -> Removed:
    total = Removed()
    for start in range(0, len(batches), _PORTION):
        try:
            removed = await journal.remove_batches(thread_id, batches[start : start + _PORTION])
        except NotFoundError:  # somebody deleted the thread
            break
        total = Removed(total.batches + removed.batches, total.messages + removed.messages)
    return total

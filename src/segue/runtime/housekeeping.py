"""`Retainer` removes old batches by policy; `Sweeper` drops checkpoints that are not needed.

A turn drops its own checkpoints at its end. The sweeper finds those of turns that were stopped
while a step was being stored, settled by the user's next message, or lost with their process.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from segue.core.metadata import BatchType
from segue.core.retention import RetentionPolicy
from segue.errors import NotFoundError
from segue.journal.journal import Journal
from segue.journal.retention import Removed, ThreadBatches
from segue.runtime.clock import Clock

logger = logging.getLogger(__name__)

_A_DAY: Final = timedelta(days=1)
# Batches that one transaction removes; writers to the thread wait for it.
_PORTION: Final = 200


@dataclass(frozen=True, slots=True)
class ThreadRemoval:
    """What was removed of one thread, or would be: counts, batch types and the time range."""

    thread_id: str
    user_id: str
    agent_id: str
    batches: int
    messages: int
    types: dict[BatchType, int]
    oldest_at: datetime
    newest_at: datetime


class Retainer:
    """Applies the retention policy once a day, if there is one."""

    def __init__(self, journal: Journal, policy: RetentionPolicy | None, clock: Clock) -> None:
        self._journal = journal
        self._policy = policy
        self._clock = clock

    async def step(self) -> datetime | None:
        """Apply the policy to all threads; return the next due time."""
        if self._policy is None:
            return None
        now = self._clock.now()
        async for gone in apply_retention(self._journal, self._policy, now=now):
            logger.info("Retention removed %d batches of thread %s", gone.batches, gone.thread_id)
        return now + _A_DAY


async def apply_retention(
    journal: Journal, policy: RetentionPolicy, *, now: datetime, is_dry_run: bool = False
) -> AsyncIterator[ThreadRemoval]:
    """Remove what the policy says; yield each thread that loses batches."""
    removed = False
    for rules, nested in ((policy, False), (policy.among_agents, True)):
        if rules is None:
            continue
        async for thread in _stored(journal, nested=nested):
            if removal := await _retain_thread(journal, thread, rules, now, is_dry_run=is_dry_run):
                removed = True
                yield removal
    if removed and not is_dry_run:
        await journal.removal.wipe()


async def _stored(journal: Journal, *, nested: bool) -> AsyncIterator[ThreadBatches]:
    after = ""
    while page := await journal.removal.list_stored(after=after, nested=nested):
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
) -> ThreadRemoval | None:
    expired = policy.expired(thread.batches, now)
    removed = Removed(len(expired), sum(batch.messages for batch in expired))
    if not is_dry_run:
        removed = await _remove(journal, thread.thread_id, [batch.id for batch in expired])
    if not removed.batches:
        return None
    return ThreadRemoval(
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
            removed = await journal.removal.remove_batches(
                thread_id, batches[start : start + _PORTION]
            )
        except NotFoundError:  # the thread was deleted
            break
        total = Removed(total.batches + removed.batches, total.messages + removed.messages)
    return total


class CheckpointStore(Protocol):
    """The checkpoints of running turns."""

    async def attempts(self) -> set[tuple[str, int]]:
        """The batches that have checkpoints, each with the turns that stored them."""

    async def drop(self, batch: str) -> None: ...

    async def wipe(self) -> None:
        """Erase deleted checkpoints from the files, as far as the database can."""


class Sweeper:
    """Compares the checkpoints with the turns of the journal, once a day."""

    def __init__(self, journal: Journal, checkpoints: CheckpointStore, clock: Clock) -> None:
        self._journal = journal
        self._checkpoints = checkpoints
        self._clock = clock

    async def step(self) -> datetime:
        """Drop what is not needed; return the next due time."""
        for batch, turn_id in sorted(await self._checkpoints.attempts()):
            if not await is_batch_in_use(self._journal, turn_id):
                await self._checkpoints.drop(batch)
                logger.debug("Left-over checkpoints of batch %s are dropped", batch)
        await self._checkpoints.wipe()
        return self._clock.now() + _A_DAY

    async def drop(self, batches: Iterable[str | int]) -> None:
        """Drop the checkpoints of batches, and erase dropped ones from the files."""
        for batch in batches:
            await self._checkpoints.drop(str(batch))
        await self._checkpoints.wipe()


async def is_batch_in_use(journal: Journal, turn_id: int) -> bool:
    """Whether another turn of the batch runs or will: it then drops the checkpoints."""
    try:
        turn = await journal.turns.get(turn_id)
        turns = await journal.turns.list_of(turn.thread_id, batches=[turn.batch])
    except NotFoundError:  # its thread was deleted
        return False
    return any(each.is_live or each.is_waiting for each in turns)

"""`Retainer` removes old batches by policy; `Sweeper` drops checkpoints that are not needed;
`Discarder` deletes threads, and looks for temporary ones that were left.

A turn drops its own checkpoints at its end. The sweeper finds those of turns that were stopped
while a step was being stored, settled by the user's next message, or lost with their process.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from segue.core.metadata import BatchType
from segue.core.retention import RetentionPolicy
from segue.errors import NotFoundError
from segue.journal.journal import Journal
from segue.journal.records import Deleted, Thread
from segue.journal.retention import Removed, ThreadBatches
from segue.runtime.bus import Bus
from segue.runtime.clock import Clock

logger = logging.getLogger(__name__)

_A_DAY: Final = timedelta(days=1)
_A_MINUTE: Final = timedelta(minutes=1)
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


@dataclass(frozen=True, slots=True)
class Retainer:
    """Applies the retention policy once a day, if there is one."""

    journal: Journal
    policy: RetentionPolicy | None
    clock: Clock

    async def step(self) -> datetime | None:
        """Apply the policy to all threads; return the next due time."""
        if self.policy is None:
            return None
        now = self.clock.now()
        async for gone in apply_retention(self.journal, self.policy, now=now):
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


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Compares the checkpoints with the turns of the journal, once a day."""

    journal: Journal
    checkpoints: CheckpointStore
    clock: Clock

    async def step(self) -> datetime:
        """Drop what is not needed; return the next due time."""
        for batch, turn_id in sorted(await self.checkpoints.attempts()):
            if not await is_batch_in_use(self.journal, turn_id):
                await self.checkpoints.drop(batch)
                logger.debug("Left-over checkpoints of batch %s are dropped", batch)
        await self.checkpoints.wipe()
        return self.clock.now() + _A_DAY

    async def drop(self, batches: Iterable[str | int]) -> None:
        """Drop the checkpoints of batches, and erase dropped ones from the files."""
        for batch in batches:
            await self.checkpoints.drop(str(batch))
        await self.checkpoints.wipe()


@dataclass(frozen=True, slots=True)
class Discarder:
    """Deletes threads. The process that runs a temporary thread deletes it after its turn; if that
    process was stopped or killed before, `step` deletes it later.
    """

    journal: Journal
    bus: Bus
    sweeper: Sweeper
    clock: Clock

    async def step(self) -> datetime:
        """Delete temporary threads that are over; return the next due time."""
        now, is_done = self.clock.now(), True
        for thread in await self.journal.threads.list_temporary():
            # The first message may be on its way, or a client may be reading the reply.
            if thread.updated_at > now - _A_MINUTE or not await self._discard(thread):
                is_done = False
        return now + (_A_DAY if is_done else _A_MINUTE)

    async def _discard(self, thread: Thread) -> bool:
        """Delete a thread unless it has a live turn."""
        with suppress(NotFoundError):  # deleted in the meantime
            turns = await self.journal.turns.list_of(thread.id)
            if any(turn.is_live for turn in turns):
                return False
            await self.delete(thread)
            logger.info("Temporary thread %s is deleted", thread.id)
        return True

    async def delete(self, thread: Thread) -> Deleted:
        """Delete a thread with its rows and checkpoints; its listeners hear of it."""
        turns = await self.journal.turns.list_of(thread.id)
        deleted = await self.journal.threads.delete(thread.id)
        self.bus.deleted(thread.id, thread.user_id)
        await self.bus.notify_stored(thread.id, thread.user_id)
        await self.sweeper.drop({turn.batch for turn in turns})
        return deleted


async def is_batch_in_use(journal: Journal, turn_id: int) -> bool:
    """Whether another turn of the batch runs or will: it then drops the checkpoints."""
    try:
        turn = await journal.turns.get(turn_id)
        turns = await journal.turns.list_of(turn.thread_id, batches=[turn.batch])
    except NotFoundError:  # its thread was deleted
        return False
    return any(each.is_live or each.is_waiting for each in turns)

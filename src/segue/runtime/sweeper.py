"""`Sweeper`: drops the checkpoints that nobody will go on from.

A turn drops its own at its end. What is left is of those that had no proper end: stopped while a
step was being stored, settled by the user's next message, or of a process that was lost.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from segue.agent.checkpoints import Checkpoints
from segue.core.errors import NotFoundError
from segue.journal.ports import Journal
from segue.journal.records import TurnState
from segue.runtime.clock import Clock

logger = logging.getLogger(__name__)

# It reads all checkpoints, also those that others may keep in the same database.
_EVERY: Final = timedelta(days=1)
_LIVE: Final = frozenset({TurnState.QUEUED, TurnState.RUNNING})


class Sweeper:
    """Compares what is checkpointed with what the journal says is still to be done."""

    def __init__(self, journal: Journal, checkpoints: Checkpoints, clock: Clock) -> None:
        self._journal = journal
        self._checkpoints = checkpoints
        self._clock = clock

    async def step(self) -> datetime:
        """Look at all checkpoints; when to look again."""
        for batch, turn_id in sorted(await self._checkpoints.attempts()):
            if not await is_gone_on_with(self._journal, turn_id):
                await self._checkpoints.saver().adelete_thread(batch)
                logger.debug("The checkpoints of batch %s were left over, and are dropped", batch)
        await self._checkpoints.wipe()
        return self._clock.now() + _EVERY

    async def drop(self, batches: Iterable[str | int]) -> None:
        """Drop the checkpoints of batches, and what files hold of any that were dropped before."""
        for batch in batches:
            await self._checkpoints.saver().adelete_thread(str(batch))
        await self._checkpoints.wipe()


async def is_gone_on_with(journal: Journal, turn_id: int) -> bool:
    """Whether somebody works on a turn's batch or will: then its checkpoints are theirs to drop."""
    try:
        turn = await journal.get_turn(turn_id)
        turns = await journal.list_turns(turn.thread_id, batches=[turn.batch])
    except NotFoundError:  # its thread was deleted
        return False
    return any(each.state in _LIVE or each.is_waiting for each in turns)

"""`Sweeper`: drops the checkpoints that nobody will go on from.

A turn drops its own at its end. What is left is of those that had no proper end: stopped while a
step was being stored, settled by the user's next message, or of a thread that was deleted.
"""

import logging
from datetime import datetime

from segue.agent.checkpoints import Checkpoints
from segue.core.errors import NotFoundError
from segue.journal.ports import Journal
from segue.journal.records import TurnState

logger = logging.getLogger(__name__)

_LIVE = frozenset({TurnState.QUEUED, TurnState.RUNNING})


class Sweeper:
    """Compares what is checkpointed with what the journal says is still to be done."""

    def __init__(self, journal: Journal, checkpoints: Checkpoints) -> None:
        self._journal = journal
        self._checkpoints = checkpoints

    async def attempts(self) -> set[tuple[str, int]]:
        """The batches that have checkpoints, each with the turns that stored them."""
        return await self._checkpoints.attempts()

    async def step(self) -> datetime | None:
        """Look at all checkpoints; there are only as many as turns at work."""
        for batch, turn_id in sorted(await self.attempts()):
            if not await self._goes_on(turn_id):
                await self._checkpoints.saver().adelete_thread(batch)
                logger.debug("The checkpoints of batch %s were left over, and are dropped", batch)
        return None

    async def _goes_on(self, turn_id: int) -> bool:
        try:
            turn = await self._journal.get_turn(turn_id)
            turns = await self._journal.list_turns(turn.thread_id, batches=[turn.batch])
        except NotFoundError:  # its thread was deleted
            return False
        return any(each.state in _LIVE or each.is_waiting for each in turns)

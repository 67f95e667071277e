"""What a running turn has produced so far: messages, questions, and the draft of the next one."""

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.batch import Batch
from segue.errors import BackendError
from segue.events import MemoriesRecalled, ProgressReported
from segue.journal.journal import Journal
from segue.journal.records import Partial, TurnKind, TurnLease
from segue.runtime.run import Run

logger = logging.getLogger(__name__)

# Drafts are saved for listeners in other processes, and for those that resume after a crash.
_SAVE_EVERY_SECONDS: Final = 0.25
# Wait at least 10 times the duration of the last draft save before saving again.
_SAVE_SPACING: Final = 10


@dataclass
class TurnOutput:
    """The batch as it is stored, and what is left to store."""

    run: Run
    is_shown: bool
    stored: list[BaseMessage] = field(default_factory=list)
    # The newest message, held back while it may be the reply: that is stored with the turn's end.
    last: list[BaseMessage] = field(default_factory=list)
    questions: dict[str, Any] = field(default_factory=dict)
    first_token_at: datetime | None = None
    # Reports of the agent that listeners get once a follow-up is shown.
    reports: list[MemoriesRecalled | ProgressReported] = field(default_factory=list)

    @cached_property
    def batch(self) -> Batch:
        """The whole batch; to be read once nothing is added any more."""
        return Batch(self.run.batch.id, [*self.run.batch.messages, *self.stored, *self.last])


class DraftSaver:
    """Saves the text so far of a turn's message in the journal, now and then."""

    def __init__(self, journal: Journal, lease: TurnLease) -> None:
        self._journal = journal
        self._lease = lease
        # A follow-up's first text is saved at once: other processes show it only then.
        wait = 0 if lease.turn.kind is TurnKind.FOLLOW_UP else _SAVE_EVERY_SECONDS
        self._next_at = asyncio.get_running_loop().time() + wait

    async def save(self, partial: Partial) -> None:
        started = asyncio.get_running_loop().time()
        if started < self._next_at:
            return
        try:
            await self._journal.turns.save_draft(self._lease, partial.message_id, partial.text)
        except BackendError as error:  # the reply does not depend on its drafts
            logger.debug("The draft of turn %s was not saved: %s", partial.turn_id, error)
        ended = asyncio.get_running_loop().time()
        self._next_at = ended + max(_SAVE_EVERY_SECONDS, _SAVE_SPACING * (ended - started))

"""Rules of turns that settings name; apart from what works by them, which takes long to load."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from segue.core.batch import BATCH_TIMEOUT
from segue.journal.records import Turn

COLLECT_FOR: Final = timedelta(seconds=2)
_LONGEST_PAUSE: Final = timedelta(seconds=30)


class DoubleTexting(StrEnum):
    """What happens to a message that comes while another is being answered."""

    ENQUEUE = "enqueue"  # it waits for its turn
    INTERRUPT = "interrupt"  # the answer is stopped, and what was seen of it is kept
    REJECT = "reject"  # it is refused, and nothing is stored
    COLLECT = "collect"  # messages that come close together are answered together


@dataclass(frozen=True, slots=True)
class TurnRules:
    """How often a turn is tried, and how long its batch may take."""

    # Tries that its own run may break.
    max_attempts: int = 5
    # Tries that a shutdown, a crash or an outage may end; more, since the turn is hardly to blame.
    max_interruptions: int = 20
    # Of a model that failed for a moment.
    retries: int = 2
    first_pause: timedelta = timedelta(seconds=1)
    # Of all tries together.
    batch_time: timedelta = BATCH_TIMEOUT

    def pause_after(self, faults: int) -> timedelta:
        return self.first_pause * float(4 ** max(faults - 1, 0))

    def pause_in_outage(self, interruptions: int) -> timedelta:
        """Longer and longer, so that all tries together outlast an outage of minutes."""
        return min(self.first_pause * float(2 ** min(interruptions, 9)), _LONGEST_PAUSE)

    def time_left(self, turn: Turn) -> timedelta:
        """How long the present try of a turn may take."""
        return max(self.batch_time - turn.worked, timedelta(0))

    def may_retry(self, turn: Turn, now: datetime) -> bool:
        """Whether a turn whose run broke this try may have another, in the time that is left."""
        tried = now - (turn.begun_at or now)
        left = self.time_left(turn) - tried - self.pause_after(turn.faults + 1)
        return turn.faults < min(self.retries, self.max_attempts - 1) and left > timedelta(0)

    def is_hopeless(self, turn: Turn) -> bool:
        return turn.faults >= self.max_attempts or turn.interruptions >= self.max_interruptions

"""Limits on the attempts and the time of a turn, and the strategies for double texting."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from segue.core.batch import BATCH_TIMEOUT

COLLECT_FOR: Final = timedelta(seconds=2)
_LONGEST_PAUSE: Final = timedelta(seconds=30)


class DoubleTexting(StrEnum):
    """What happens to a message that arrives while another is being answered."""

    ENQUEUE = "enqueue"  # it waits in the queue
    INTERRUPT = "interrupt"  # the running answer is stopped; queued messages stay
    REJECT = "reject"  # it is refused and not stored
    COLLECT = "collect"  # messages close together are answered as one


class TurnAttempts(Protocol):
    """The attempts of a turn so far."""

    @property
    def begun_at(self) -> datetime | None:
        """When the current attempt began."""

    @property
    def worked(self) -> timedelta:
        """The total duration of earlier attempts."""

    @property
    def faults(self) -> int:
        """Number of attempts that failed through an error in the run itself."""

    @property
    def interruptions(self) -> int:
        """Number of attempts that a shutdown, a crash or an outage ended."""


@dataclass(frozen=True, slots=True)
class TurnRules:
    """Limits on the attempts of a turn and on the time of its batch."""

    # Attempts that may fail through an error in the run itself.
    max_attempts: int = 5
    # Attempts that a shutdown, a crash or an outage may end; more, since the turn did not fail.
    max_interruptions: int = 20
    # Retries after a temporary failure of the model.
    retries: int = 2
    first_pause: timedelta = timedelta(seconds=1)
    # For all attempts together.
    batch_time: timedelta = BATCH_TIMEOUT

    def pause_after(self, faults: int) -> timedelta:
        return self.first_pause * float(4 ** max(faults - 1, 0))

    def pause_in_outage(self, interruptions: int) -> timedelta:
        """Doubles each time, so that all attempts together outlast an outage of minutes."""
        return min(self.first_pause * float(2 ** min(interruptions, 9)), _LONGEST_PAUSE)

    def time_left(self, turn: TurnAttempts) -> timedelta:
        """How long the current attempt may take."""
        return max(self.batch_time - turn.worked, timedelta(0))

    def may_retry(self, turn: TurnAttempts, now: datetime) -> bool:
        """Whether a failed attempt may be repeated within the time that is left."""
        tried = now - (turn.begun_at or now)
        left = self.time_left(turn) - tried - self.pause_after(turn.faults + 1)
        return turn.faults < min(self.retries, self.max_attempts - 1) and left > timedelta(0)

    def is_hopeless(self, turn: TurnAttempts) -> bool:
        return turn.faults >= self.max_attempts or turn.interruptions >= self.max_interruptions

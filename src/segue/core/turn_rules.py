"""Limits on the attempts and the time of a turn, and the strategies for double texting."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from segue.core.batch import BATCH_TIMEOUT

COLLECT_FOR: Final = timedelta(seconds=2)
_LONGEST_PAUSE: Final = timedelta(seconds=30)


class DoubleTexting(StrEnum):
    """What happens to a message that arrives while another is being answered."""

    ENQUEUE = "enqueue"  # it waits in the queue
    INTERRUPT = "interrupt"  # the running answer is stopped; queued messages stay
    REJECT = "reject"  # it is refused and not stored
    COLLECT = "collect"  # messages close together are answered as one


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

    def time_left(self, worked: timedelta) -> timedelta:
        """How long the next attempt may take, after earlier ones that took `worked` together."""
        return max(self.batch_time - worked, timedelta(0))

    def may_retry(self, faults: int, worked: timedelta) -> bool:
        """Whether an attempt that failed after `faults` earlier ones may be repeated in time."""
        left = self.batch_time - worked - self.pause_after(faults + 1)
        return faults < min(self.retries, self.max_attempts - 1) and left > timedelta(0)

    def is_hopeless(self, faults: int, interruptions: int) -> bool:
        return faults >= self.max_attempts or interruptions >= self.max_interruptions

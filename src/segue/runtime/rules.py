"""Rules of turns that settings name; apart from what works by them, which takes long to load."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from segue.core.batch import BATCH_TIMEOUT

COLLECT_FOR: Final = timedelta(seconds=2)


class DoubleTexting(StrEnum):
    """What happens to a message that comes while another is being answered."""

    ENQUEUE = "enqueue"  # it waits for its turn
    INTERRUPT = "interrupt"  # the answer is stopped, and what was seen of it is kept
    REJECT = "reject"  # it is refused, and nothing is stored
    COLLECT = "collect"  # messages that come close together are answered together


@dataclass(frozen=True, slots=True)
class TurnRules:
    """How often a turn is tried, and how long its batch may take."""

    # Claims in all, those included that ended with their process.
    max_attempts: int = 5
    # Of a model that failed for a moment.
    retries: int = 2
    first_pause: timedelta = timedelta(seconds=1)
    batch_time: timedelta = BATCH_TIMEOUT

    def pause_after(self, attempts: int) -> timedelta:
        return self.first_pause * float(4 ** max(attempts - 1, 0))

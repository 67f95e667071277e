"""Outcomes of follow-ups, and rates with their intervals.

Pure statistics. `segue.journal.stats` counts, `segue.insight.stats` puts both together.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

# The two-sided 95 % quantile of the normal distribution.
_Z: Final = 1.959963984540054


class FollowUpOutcome(StrEnum):
    """What became of a follow-up."""

    REPLIED = "replied"
    IGNORED = "ignored"
    # Its window is still open, or it is still being written.
    PENDING = "pending"
    # The user wrote first, or it was cancelled before it was shown.
    STOPPED = "stopped"
    SUPPRESSED = "suppressed"
    HELD_OUT = "held_out"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of cases with its Wilson 95 % interval."""

    cases: int
    value: float
    low: float
    high: float

    @classmethod
    def of(cls, hits: float, cases: int) -> Self | None:
        """None if there is no case. `hits` has fractions if each case is a share itself."""
        return cls(cases, hits / cases, *wilson(hits / cases, cases)) if cases else None


@dataclass(frozen=True, slots=True)
class Difference:
    """One rate minus another with its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(share: float, cases: int) -> tuple[float, float]:
    """The Wilson 95 % interval of a share of `cases`."""
    spread = _Z * _Z / cases
    middle = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    # Rounding must not put the share outside of its own interval.
    low = min((middle - half) / (1 + spread), share)
    high = max((middle + half) / (1 + spread), share)
    return max(low, 0.0), min(high, 1.0)


def compare(rate: Rate, other: Rate) -> Difference:
    """How much larger `rate` is than `other`, by Newcombe's interval from both Wilson intervals."""
    value = rate.value - other.value
    low = value - math.hypot(rate.value - rate.low, other.high - other.value)
    high = value + math.hypot(rate.high - rate.value, other.value - other.low)
    return Difference(value, max(low, -1.0), min(high, 1.0))

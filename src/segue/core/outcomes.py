"""What became of follow-ups, and whether one way to follow up does better than another.

Pure statistics. Counting is the journal's, `segue.runtime.stats` puts both together. A rate has
Wilson's 95 % interval. Two arms are compared by an interval that holds however often one looks:
a normal-mixture confidence sequence, wider than the usual interval by about half. Each thread
counts once in its arm, since threads, not moments, were assigned to arms.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

# How often an interval may be wrong.
ALPHA: Final = 0.05
_Z: Final = 1.959963984540054
# A difference of fewer points than this is not worth waiting for.
MARGIN: Final = 0.05
# Fewer threads in an arm say nothing, whatever they say.
MIN_THREADS: Final = 20
# Where the sequence is tightest: about 500 threads in each arm.
_RHO: Final = 126.0
_FAR: Final = 1e9


class FollowUpOutcome(StrEnum):
    """What became of a follow-up."""

    REPLIED = "replied"
    IGNORED = "ignored"
    # Too early to say, or still being written.
    PENDING = "pending"
    # The user spoke first, or somebody stopped it before it was seen.
    STOPPED = "stopped"
    SUPPRESSED = "suppressed"
    HELD_OUT = "held_out"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of cases, with the interval that it lies in 95 times of 100."""

    hits: int
    cases: int
    value: float
    low: float
    high: float

    @classmethod
    def of(cls, hits: int, cases: int) -> Self | None:
        """None without a case."""
        if cases == 0:
            return None
        low, high = wilson(hits / cases, cases)
        return cls(hits, cases, hits / cases, low, high)


def wilson(share: float, cases: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many cases."""
    spread = _Z * _Z / cases
    middle = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    # Rounding must not put the share outside of its own interval.
    low = min((middle - half) / (1 + spread), share)
    high = max((middle + half) / (1 + spread), share)
    return max(low, 0.0), min(high, 1.0)


@dataclass(frozen=True, slots=True)
class Arm:
    """Threads that were treated alike: after which share of its moments each thread's user wrote.

    A moment is the first follow-up since the user wrote that all gates let pass, sent or held out.
    `total` and `squares` sum the shares and their squares.
    """

    threads: int
    total: float
    squares: float
    moments: int = 0

    def __add__(self, other: "Arm") -> "Arm":
        return Arm(
            self.threads + other.threads,
            self.total + other.total,
            self.squares + other.squares,
            self.moments + other.moments,
        )

    @property
    def mean(self) -> float:
        return self.total / self.threads if self.threads else 0.0

    @property
    def variance(self) -> float:
        """Of the mean. Never nothing: ten threads that all agree prove little."""
        count, mean = self.threads, self.mean
        spread = max(self.squares / count - mean * mean, 0.0) / max(count - 1, 1)
        shrunk = (self.total + 1) / (count + 2)
        # Shares of several moments vary less than one moment's yes or no.
        per_thread = max(self.moments / count, 1.0)
        return max(spread, shrunk * (1 - shrunk) / ((count + 2) * per_thread))


class Verdict(StrEnum):
    """What can be said of one arm against another."""

    BETTER = "better"
    WORSE = "worse"
    # They differ by less than `MARGIN`.
    ALIKE = "alike"
    TOO_EARLY = "too_early"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm against another: the difference of their means, and what it proves.

    `needed` is how many more threads it takes, in both arms together and at their present sizes,
    if the difference stays as it is; None where nobody can say.
    """

    arm: Arm
    other: Arm
    difference: float
    low: float
    high: float
    verdict: Verdict
    needed: int | None

    def sentence(self, name: str, other: str) -> str:
        """For people. The names are of arms, as in `with "warm"`."""
        if not (self.arm.threads and self.other.threads):
            missing = name if not self.arm.threads else other
            return f"Too early to say: there is no conversation {missing} yet."
        shares = (
            f"users wrote after {_percent(self.arm.mean)} of the moments {name} "
            f"and after {_percent(self.other.mean)} {other}"
        )
        return f"{self._judgement(name)}: {shares}{self._proof()}"

    def _judgement(self, name: str) -> str:
        words = {
            Verdict.BETTER: "Better",
            Verdict.WORSE: "Worse",
            Verdict.ALIKE: "No difference worth speaking of",
            Verdict.TOO_EARLY: "Too early to say",
        }
        said = words[self.verdict]
        return f"{said} {name}" if self.verdict in (Verdict.BETTER, Verdict.WORSE) else said

    def _proof(self) -> str:
        if self.verdict is not Verdict.TOO_EARLY:
            return f" ({_points(self.low)} to {_points(self.high)} points)."
        if self.needed is None:
            return "."
        return f"; about {self.needed:,} more conversations would tell."


def compare(arm: Arm, other: Arm) -> Comparison:
    """What can be said of `arm` against `other`, however often one has looked before."""
    if not (arm.threads and other.threads):
        return Comparison(arm, other, 0.0, -1.0, 1.0, Verdict.TOO_EARLY, None)
    difference = arm.mean - other.mean
    information = 1 / (arm.variance + other.variance)
    half = half_width(information)
    low, high = difference - half, difference + half
    verdict, needed = _verdict(low, high), None
    small = min(arm.threads, other.threads)
    if small < MIN_THREADS:
        verdict = Verdict.TOO_EARLY
    if verdict is Verdict.TOO_EARLY:
        growth = max(_growth(difference, information), MIN_THREADS / small)
        needed = max(math.ceil((growth - 1) * (arm.threads + other.threads)), 1)
    return Comparison(arm, other, difference, max(low, -1.0), min(high, 1.0), verdict, needed)


def half_width(information: float) -> float:
    """Half of the interval around a difference of known information, one over its variance.

    Of all moments at which one could look, the truth lies outside at any with a chance of 5 % at
    most (Robbins' normal mixture).
    """
    grown = information + _RHO
    return math.sqrt(grown * math.log(grown / (_RHO * ALPHA * ALPHA))) / information


def _verdict(low: float, high: float) -> Verdict:
    if low > 0:
        return Verdict.BETTER
    if high < 0:
        return Verdict.WORSE
    return Verdict.ALIKE if low > -MARGIN and high < MARGIN else Verdict.TOO_EARLY


def _growth(difference: float, information: float) -> float:
    """By how much the arms must grow until the difference, as it is, can be judged."""
    size = abs(difference)
    goal = max(size, MARGIN - size)
    low, high = 1.0, _FAR
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        if half_width(information * middle) < goal:
            high = middle
        else:
            low = middle
    return high


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _points(difference: float) -> str:
    return f"{100 * difference:+.0f}"

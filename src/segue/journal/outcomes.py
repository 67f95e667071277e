"""What the journal tells of what became of follow-ups: counts, made by the database.

A follow-up is a timer that ended without being fired, or the turn of one that was. Which outcome
it has follows from what is stored of it; nothing is written for this.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

from segue.core.outcomes import Arm, FollowUpOutcome


class Row(Protocol):
    """A row of either database."""

    def __getitem__(self, name: str, /) -> Any: ...


# How long after a follow-up a message counts as its answer.
WINDOW: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeQuery:
    """Follow-ups that were fired or ended from `since` on and before `until`, as seen at `now`."""

    now: datetime
    since: datetime
    until: datetime
    window: timedelta = WINDOW
    agent_id: str | None = None
    trigger_type: str | None = None


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """How many follow-ups of a kind had an outcome.

    `variant` is the prompt's, None if none was chosen. `gate` is the one that suppressed them, None
    if it was no gate. `wrote` is of those held out: whether the user wrote within the window, None
    if nobody can say yet. `latency` is of those replied to: the median, to the minute if it is
    above ten. `is_over` is of those shown or held out: whether the window is over. Only then they
    belong in a rate, or else those who write at once would be in before the silent ones.
    """

    agent_id: str
    trigger_type: str | None
    variant: str | None
    outcome: FollowUpOutcome
    count: int
    gate: str | None = None
    wrote: bool | None = None
    latency: timedelta | None = None
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class ArmTally:
    """What users did in the threads of one arm: those of a variant, or those held out (None)."""

    agent_id: str
    trigger_type: str | None
    variant: str | None
    arm: Arm


@dataclass(frozen=True, slots=True)
class SearchCount:
    """How many follow-ups searched memories with the words of a source, and how many of these
    searches failed; `none` stands for no words to search with.
    """

    agent_id: str
    trigger_type: str | None
    source: str
    count: int
    failed: int


def outcome_counts(rows: Iterable[Row]) -> list[OutcomeCount]:
    """Counts out of rows that are one for each length of time as well."""
    spread: dict[OutcomeCount, Counter[int]] = {}
    for row in rows:
        kind = OutcomeCount(
            agent_id=row["agent_id"],
            trigger_type=row["trigger_type"],
            variant=row["variant"],
            outcome=FollowUpOutcome(row["outcome"]),
            count=0,
            gate=row["gate"],
            wrote=None if row["wrote"] is None else bool(row["wrote"]),
            is_over=bool(row["is_over"]),
        )
        spread.setdefault(kind, Counter())[int(row["seconds"] or 0)] += row["count"]
    return in_order(
        replace(kind, count=lengths.total(), latency=_latency(kind, lengths))
        for kind, lengths in spread.items()
    )


def _latency(kind: OutcomeCount, lengths: Counter[int]) -> timedelta | None:
    if kind.outcome is not FollowUpOutcome.REPLIED:
        return None
    total = lengths.total()
    middle = {(total + 1) // 2, (total + 2) // 2}
    found, passed = [], 0
    for seconds in sorted(lengths):
        found += [seconds for place in middle if passed < place <= passed + lengths[seconds]]
        passed += lengths[seconds]
    return timedelta(seconds=sum(found) / len(found))


def arm_tally(row: Row) -> ArmTally:
    arm = Arm(row["threads"], float(row["total"]), float(row["squares"]), int(row["moments"]))
    return ArmTally(row["agent_id"], row["trigger_type"], row["variant"], arm)


def search_count(row: Row) -> SearchCount:
    return SearchCount(
        row["agent_id"], row["trigger_type"], row["source"], row["count"], int(row["failed"])
    )


Counted = TypeVar("Counted", OutcomeCount, ArmTally, SearchCount)


def in_order(counted: Iterable[Counted]) -> list[Counted]:
    """By agent, trigger and the rest, whatever a database thinks comes first."""
    return sorted(counted, key=str)

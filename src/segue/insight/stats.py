"""Outcomes of follow-ups: counts, rates, and each variant compared with the hold-out.

Built from the journal's counts. Names and numbers only: no message text and no prompt.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final, Self

from segue.core.autonomy.local_time import as_utc
from segue.core.triggers import check_trigger_name
from segue.errors import UsageError
from segue.journal.journal import Journal
from segue.journal.stats import (
    WINDOW,
    ArmCount,
    FollowUpOutcome,
    OutcomeCount,
    OutcomeQuery,
    ReminderCount,
    SearchCount,
)

# Stands for the gate of suppressed follow-ups that no gate decided on.
NO_GATE: Final = "none"
# Sources of a memory query that are not text of the user.
_FALLBACKS: Final = frozenset({"conversation_summary", "none"})
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The two-sided 95 % quantile of the normal distribution.
_Z: Final = 1.959963984540054


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
    """The difference of `rate` and `other`, with Newcombe's interval from both Wilson intervals."""
    value = rate.value - other.value
    low = value - math.hypot(rate.value - rate.low, other.high - other.value)
    high = value + math.hypot(rate.high - rate.value, other.value - other.low)
    return Difference(value, max(low, -1.0), min(high, 1.0))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Of one agent, trigger and variant; `variant` is None if no prompt was chosen."""

    agent: str
    trigger: str | None
    variant: str | None
    counts: Mapping[FollowUpOutcome, int]
    suppressed_by: Mapping[str, int] = field(default_factory=dict)
    # Of those that were shown and whose window is over; the latency is the median.
    replied: Rate | None = None
    latency: timedelta | None = None

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        latency = self.latency
        return {
            "agent": self.agent,
            "trigger": self.trigger,
            "variant": self.variant,
            "total": self.total,
            **{outcome.value: self.counts.get(outcome, 0) for outcome in FollowUpOutcome},
            "suppressed_by": dict(self.suppressed_by),
            "reply_rate": self.replied and asdict(self.replied),
            "median_latency_seconds": None if latency is None else latency.total_seconds(),
        }


@dataclass(frozen=True, slots=True)
class Arm:
    """Threads with the same prompt, or those held out (`variant` None), of one agent and trigger.

    `wrote` is the share of moments after which the user wrote within the window; its cases are
    threads. `difference` is to those held out.
    """

    agent: str
    trigger: str | None
    variant: str | None
    wrote: Rate
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Searches:
    """Memory searches of follow-ups by the source of their text.

    `fallback_rate` is the share that had no text of the user: by the summary, or not at all.
    """

    by_source: Mapping[str, int]
    fallback_rate: Rate | None
    failed: int


@dataclass(frozen=True, slots=True)
class Stats:
    """The follow-ups from `since` on and before `until`."""

    since: datetime | None
    until: datetime
    window: timedelta
    outcomes: tuple[Outcomes, ...]
    # Of each agent and trigger that has threads held out.
    arms: tuple[Arm, ...]
    searches: Searches
    # Follow-ups whose stored trigger has lost its metadata.
    unmarked: int
    reminders: ReminderCount

    def as_json(self) -> dict[str, Any]:
        return {
            "since": self.since.isoformat() if self.since else None,
            "until": self.until.isoformat(),
            "window_seconds": self.window.total_seconds(),
            "outcomes": [row.as_json() for row in self.outcomes],
            "arms": [asdict(arm) for arm in self.arms],
            "memory": asdict(self.searches),
            "unmarked": self.unmarked,
            "reminders": asdict(self.reminders),
        }


def build_query(
    now: datetime,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    agent: str | None = None,
    trigger: str | None = None,
    window: timedelta = WINDOW,
) -> OutcomeQuery:
    """Which follow-ups to count; `UsageError` for a range or window that is empty."""
    since = as_utc(since) if since else _EARLIEST
    until = as_utc(until) if until else now + timedelta(microseconds=1)
    if until <= since:
        raise UsageError(f"until {until.isoformat()} is not after since {since.isoformat()}.")
    if window <= timedelta(0):
        raise UsageError(f"The window is {window}; expected a positive duration.")
    return OutcomeQuery(
        now=now,
        since=since,
        until=until,
        window=window,
        agent_id=agent,
        trigger_type=None if trigger is None else check_trigger_name(trigger),
    )


async def stats(journal: Journal, query: OutcomeQuery) -> Stats:
    """The outcomes of follow-ups, as known at `query.now`."""
    counts = journal.stats
    # One after the other: at once they would take connections that users wait for.
    return Stats(
        None if query.since == _EARLIEST else query.since,
        query.until,
        query.window,
        tuple(_outcomes(await counts.count_outcomes(query))),
        tuple(_arms(await counts.count_arms(query))),
        _searches(await counts.count_searches(query)),
        await counts.count_unmarked(query),
        await counts.count_reminders(query),
    )


def _outcomes(counts: Iterable[OutcomeCount]) -> Iterator[Outcomes]:
    # The journal's counts are sorted by agent, trigger and variant.
    for kind, group in groupby(counts, lambda row: (row.agent_id, row.trigger_type, row.variant)):
        rows = [*group]
        total: Counter[FollowUpOutcome] = Counter()
        over: Counter[FollowUpOutcome] = Counter()
        gates: Counter[str] = Counter()
        for row in rows:
            total[row.outcome] += row.count
            if row.is_over:
                over[row.outcome] += row.count
            if row.outcome is FollowUpOutcome.SUPPRESSED:
                gates[row.gate or NO_GATE] += row.count
        yield Outcomes(
            *kind,
            {outcome: total[outcome] for outcome in FollowUpOutcome if total[outcome]},
            dict(sorted(gates.items())),
            replied=Rate.of(over[FollowUpOutcome.REPLIED], over.total()),
            latency=next(
                (row.latency for row in rows if row.is_over and row.latency is not None), None
            ),
        )


def _arms(counts: Iterable[ArmCount]) -> Iterator[Arm]:
    for _, rows in groupby(counts, lambda row: (row.agent_id, row.trigger_type)):
        rates = {row: rate for row in rows if (rate := Rate.of(row.wrote, row.threads))}
        held_out = next((rate for row, rate in rates.items() if row.variant is None), None)
        if held_out is not None:
            for row, rate in rates.items():
                difference = compare(rate, held_out) if row.variant is not None else None
                yield Arm(row.agent_id, row.trigger_type, row.variant, rate, difference)


def _searches(counts: Iterable[SearchCount]) -> Searches:
    rows = {row.source: row for row in counts}
    total = sum(row.count for row in rows.values())
    fallbacks = sum(row.count for row in rows.values() if row.source in _FALLBACKS)
    return Searches(
        {source: row.count for source, row in rows.items()},
        Rate.of(fallbacks, total),
        sum(row.failed for row in rows.values()),
    )

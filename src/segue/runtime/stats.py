"""What follow-ups come to: counts of outcomes, rates, and which arm does better.

Made of the journal's counts and the statistics of `segue.core.outcomes`. Names and numbers only:
nothing of what anybody said, and no trigger's words.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final

from segue.core.errors import UsageError
from segue.core.outcomes import Arm, Comparison, FollowUpOutcome, Rate, compare
from segue.core.quiet import as_utc
from segue.core.triggers import parse_trigger
from segue.journal.outcomes import WINDOW, ArmTally, OutcomeCount, OutcomeQuery, SearchCount
from segue.journal.ports import Journal

# What the two arms are called that show whether following up helps.
FOLLOWED_UP: Final = "followed up"
HELD_OUT: Final = "held out"
# The gate's name where something was suppressed and no gate was asked.
NO_GATE: Final = "none"
# Where a memory query had no words that the user wrote.
_FALLBACKS: Final = frozenset({"conversation_summary", "none"})
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What happens now is before the end.
_MOMENT: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of the follow-ups of one agent, trigger and variant; without a variant, of those
    for which no words were chosen.
    """

    agent_id: str
    trigger_type: str | None
    variant: str | None
    counts: Mapping[FollowUpOutcome, int]
    suppressed_by: Mapping[str, int] = field(default_factory=dict)
    # Of those that were seen and whose window is over: how many were answered, and how soon half of
    # the answers came.
    replied: Rate | None = None
    latency: timedelta | None = None
    # Of those held out whose window is over, how many users wrote in it on their own.
    wrote_unasked: Rate | None = None

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        latency = self.latency
        return {
            "agent": self.agent_id,
            "trigger": self.trigger_type,
            "variant": self.variant,
            "total": self.total,
            **{outcome.value: self.counts.get(outcome, 0) for outcome in FollowUpOutcome},
            "suppressed_by": dict(self.suppressed_by),
            "reply_rate": _rate(self.replied),
            "median_latency_seconds": None if latency is None else latency.total_seconds(),
            "wrote_unasked": _rate(self.wrote_unasked),
        }


@dataclass(frozen=True, slots=True)
class Contest:
    """Two arms of one agent and trigger, and what can be said of the first against the second."""

    agent_id: str
    trigger_type: str | None
    arm: str
    other: str
    result: Comparison

    @property
    def sentence(self) -> str:
        return self.result.sentence(_named(self.arm), _named(self.other))

    def as_json(self) -> dict[str, Any]:
        result = self.result
        return {
            "agent": self.agent_id,
            "trigger": self.trigger_type,
            "arm": self.arm,
            "other": self.other,
            "threads": result.arm.threads,
            "other_threads": result.other.threads,
            "share": result.arm.mean,
            "other_share": result.other.mean,
            "difference": result.difference,
            "low": result.low,
            "high": result.high,
            "verdict": result.verdict.value,
            "needed": result.needed,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class Searches:
    """Whose words follow-ups searched memories with.

    `fallbacks` is the share without any words of the user's: by the summary, or not at all.
    """

    by_source: Mapping[str, int]
    fallbacks: Rate | None
    failed: int


@dataclass(frozen=True, slots=True)
class Stats:
    """The follow-ups from `since` on and before `until`."""

    since: datetime | None
    until: datetime
    window: timedelta
    outcomes: tuple[Outcomes, ...]
    contests: tuple[Contest, ...]
    searches: Searches
    # Follow-ups whose stored trigger has lost its mark.
    unmarked: int

    def as_json(self) -> dict[str, Any]:
        return {
            "since": self.since.isoformat() if self.since else None,
            "until": self.until.isoformat(),
            "window_seconds": self.window.total_seconds(),
            "outcomes": [row.as_json() for row in self.outcomes],
            "comparisons": [contest.as_json() for contest in self.contests],
            "memory": {
                "by_source": dict(self.searches.by_source),
                "fallback_rate": _rate(self.searches.fallbacks),
                "failed": self.searches.failed,
            },
            "unmarked": self.unmarked,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which follow-ups to look at. `UsageError` for what cannot be meant."""

    since: datetime | None = None
    until: datetime | None = None
    agent_id: str | None = None
    trigger_type: str | None = None
    window: timedelta = WINDOW

    def query(self, now: datetime) -> OutcomeQuery:
        since = as_utc(self.since) if self.since else _EARLIEST
        until = as_utc(self.until) if self.until else now + _MOMENT
        if until <= since:
            raise UsageError(f"until {until.isoformat()} is not after since {since.isoformat()}.")
        if self.window <= timedelta(0):
            raise UsageError(f"The window is {self.window}; expected more than no time.")
        trigger = None if self.trigger_type is None else parse_trigger(self.trigger_type).value
        return OutcomeQuery(
            now=now,
            since=since,
            until=until,
            window=self.window,
            agent_id=self.agent_id,
            trigger_type=trigger,
        )


async def stats(journal: Journal, wanted: Wanted, now: datetime) -> Stats:
    """What became of follow-ups, as far as one can tell now."""
    query = wanted.query(now)
    counted, tallies, searched, unmarked = await asyncio.gather(
        journal.count_outcomes(query),
        journal.tally_arms(query),
        journal.count_searches(query),
        journal.count_unmarked(query),
    )
    return Stats(
        wanted.since,
        query.until,
        query.window,
        tuple(_outcomes(counted)),
        tuple(_contests(tallies)),
        _searches(searched),
        unmarked,
    )


def _outcomes(counted: Iterable[OutcomeCount]) -> Iterator[Outcomes]:
    by_kind = sorted(counted, key=lambda c: _kind(c.agent_id, c.trigger_type, c.variant))
    for kind, group in groupby(by_kind, lambda c: (c.agent_id, c.trigger_type, c.variant)):
        rows = [*group]
        counts: Counter[FollowUpOutcome] = Counter()
        gates: Counter[str] = Counter()
        for row in rows:
            counts[row.outcome] += row.count
            if row.outcome is FollowUpOutcome.SUPPRESSED:
                gates[row.gate or NO_GATE] += row.count
        over = [row for row in rows if row.is_over]
        replied = sum(r.count for r in over if r.outcome is FollowUpOutcome.REPLIED)
        ignored = sum(r.count for r in over if r.outcome is FollowUpOutcome.IGNORED)
        wrote = sum(row.count for row in over if row.wrote)
        silent = sum(row.count for row in over if row.wrote is False)
        yield Outcomes(
            *kind,
            {outcome: counts[outcome] for outcome in FollowUpOutcome if counts[outcome]},
            dict(sorted(gates.items())),
            replied=Rate.of(replied, replied + ignored),
            latency=next((row.latency for row in over if row.latency is not None), None),
            wrote_unasked=Rate.of(wrote, wrote + silent),
        )


def _contests(tallies: Iterable[ArmTally]) -> Iterator[Contest]:
    """Following up against silence, and each variant against the largest of the others."""
    by_trigger = sorted(tallies, key=lambda t: _kind(t.agent_id, t.trigger_type, t.variant))
    for (agent, trigger), group in groupby(by_trigger, lambda t: (t.agent_id, t.trigger_type)):
        arms = {tally.variant: tally.arm for tally in group}
        silent = arms.pop(None, None)
        if silent is not None:
            sent = sum(arms.values(), Arm(0, 0.0, 0.0))
            yield Contest(agent, trigger, FOLLOWED_UP, HELD_OUT, compare(sent, silent))
        named = {name: arm for name, arm in arms.items() if name is not None}
        largest = max(named, key=lambda name: named[name].threads, default=None)
        for name, arm in named.items():
            if largest is not None and name != largest:
                yield Contest(agent, trigger, name, largest, compare(arm, named[largest]))


def _named(arm: str) -> str:
    return arm if arm in (FOLLOWED_UP, HELD_OUT) else f'with "{arm}"'


def _searches(counted: Iterable[SearchCount]) -> Searches:
    by_source: Counter[str] = Counter()
    failed = 0
    for row in counted:
        by_source[row.source] += row.count
        failed += row.failed
    fell_back = sum(count for source, count in by_source.items() if source in _FALLBACKS)
    return Searches(dict(sorted(by_source.items())), Rate.of(fell_back, by_source.total()), failed)


def _rate(rate: Rate | None) -> dict[str, Any] | None:
    return None if rate is None else asdict(rate)


def _kind(*names: str | None) -> tuple[str, ...]:
    return tuple(name or "" for name in names)

"""What happened in a simulation, in order, on the user's clock, with the reasons and the totals.

Values only: made by `segue.testing.simulation` of the journal's records, shown by the CLI. It
holds what people saw and which trigger spoke, never a trigger's words.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from segue.core.gates import Verdict
from segue.core.quiet import NIGHT

# Raised when the JSON changes so that a reader of it would break.
FORMAT: Final = 1

# Why a follow-up was not sent, where it was no gate.
CANCELLED: Final = "cancelled"
HELD_OUT: Final = "held_out"
FAILED: Final = "failed"


class Kind(StrEnum):
    """What an entry tells."""

    USER_MESSAGE = "user_message"
    REPLY = "reply"
    FOLLOW_UP = "follow_up"
    # The decider wants one, or not.
    PLANNED = "planned"
    NOT_PLANNED = "not_planned"
    # A gate lets it wait, or something ends it.
    POSTPONED = "postponed"
    NOT_SENT = "not_sent"
    # Still planned when the simulation ended.
    PENDING = "pending"
    # The user wished something, or typed.
    WISH = "wish"
    OUTAGE = "outage"
    # A message that got no answer.
    FAILED = "failed"


_SPOKEN: Final = frozenset({Kind.USER_MESSAGE, Kind.REPLY, Kind.FOLLOW_UP})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that happened. Times are on the user's clock."""

    at: datetime
    kind: Kind
    who: str
    what: str
    why: str = ""
    agent: str | None = None
    trigger: str | None = None
    # Of what was postponed or not sent: the gate, or `cancelled`, `held_out`, `failed`.
    gate: str | None = None
    # When a follow-up is due, or an outage over.
    until: datetime | None = None
    variant: str | None = None
    verdicts: tuple[Verdict, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(),
            "kind": self.kind.value,
            "who": self.who,
            "what": self.what,
            "why": self.why,
            "agent": self.agent,
            "trigger": self.trigger,
            "gate": self.gate,
            "until": self.until.isoformat() if self.until else None,
            "variant": self.variant,
            "verdicts": [
                {"gate": v.gate.value, "outcome": v.outcome.value, "reason": v.reason}
                for v in self.verdicts
            ],
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """What the agents' models were asked for; tokens are estimates."""

    model_calls: int = 0
    tokens_read: int = 0
    tokens_written: int = 0


@dataclass(frozen=True, slots=True)
class Silence:
    """A time in which nobody said anything."""

    since: datetime
    until: datetime

    @property
    def span(self) -> timedelta:
        # In UTC: two times of one zone are told apart by what the clock shows, also over a change.
        return self.until.astimezone(UTC) - self.since.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """Everything that happened, oldest first, and what it adds up to."""

    title: str
    seed: int
    user: str
    start: datetime
    end: datetime
    entries: tuple[Entry, ...]
    usage: Usage

    def of(self, *kinds: Kind) -> tuple[Entry, ...]:
        """The entries of some kinds."""
        return tuple(entry for entry in self.entries if entry.kind in kinds)

    @property
    def follow_ups(self) -> tuple[Entry, ...]:
        """What was sent without being asked for."""
        return self.of(Kind.FOLLOW_UP)

    @property
    def not_sent(self) -> tuple[Entry, ...]:
        """What was planned and will never be sent."""
        return self.of(Kind.NOT_SENT)

    @property
    def sent_by_trigger(self) -> dict[str, int]:
        return _counted(entry.trigger for entry in self.follow_ups)

    @property
    def sent_at_night(self) -> int:
        """How many were sent between 22:00 and 08:00 on the user's clock."""
        return sum(NIGHT.is_quiet(e.at, e.at.tzinfo or UTC) for e in self.follow_ups)

    @property
    def share_at_night(self) -> float:
        return self.sent_at_night / (len(self.follow_ups) or 1)

    @property
    def not_sent_by_gate(self) -> dict[str, int]:
        return _counted(entry.gate for entry in self.not_sent)

    @property
    def postponed_by_gate(self) -> dict[str, int]:
        """How often each gate let a follow-up wait; one that waits twice counts twice."""
        return _counted(entry.gate for entry in self.of(Kind.POSTPONED))

    @property
    def not_planned_by_reason(self) -> dict[str, int]:
        return _counted(entry.why for entry in self.of(Kind.NOT_PLANNED))

    @property
    def answered(self) -> int:
        """How many follow-ups were the last word before the user wrote to the agent again."""
        said = [e for e in self.entries if e.kind in (Kind.USER_MESSAGE, Kind.FOLLOW_UP)]
        count, waiting = 0, set[str | None]()
        for entry in said:
            if entry.kind is Kind.FOLLOW_UP:
                waiting.add(entry.agent)
            elif entry.agent in waiting:
                waiting.discard(entry.agent)
                count += 1
        return count

    @property
    def by_day(self) -> dict[str, dict[str, int]]:
        """What was said on each of the user's days on which anything was, by kind."""
        days: dict[str, dict[str, int]] = {}
        for entry in self.entries:
            if entry.kind in _SPOKEN:
                day = days.setdefault(entry.at.date().isoformat(), dict.fromkeys(_SAID, 0))
                day[entry.kind.value] += 1
        return days

    @property
    def longest_silence(self) -> Silence:
        """The longest time without a word of anyone, from the start until the end."""
        moments = [e.at for e in self.entries if e.kind in _SPOKEN]
        ends = [*moments, self.end]
        gaps = map(Silence, [self.start, *moments], ends)
        return max(gaps, key=lambda gap: gap.span)

    def as_json(self) -> dict[str, Any]:
        """The report for programs: plain values, always in the same order."""
        silence = self.longest_silence
        return {
            "format": FORMAT,
            "title": self.title,
            "seed": self.seed,
            "user": self.user,
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "entries": [entry.as_json() for entry in self.entries],
            "totals": {
                "user_messages": len(self.of(Kind.USER_MESSAGE)),
                "replies": len(self.of(Kind.REPLY)),
                "sent": len(self.follow_ups),
                "sent_by_trigger": self.sent_by_trigger,
                "sent_at_night": self.sent_at_night,
                "share_at_night": round(self.share_at_night, 4),
                "answered": self.answered,
                "postponed_by_gate": self.postponed_by_gate,
                "not_sent_by_gate": self.not_sent_by_gate,
                "not_planned_by_reason": self.not_planned_by_reason,
                "pending": len(self.of(Kind.PENDING)),
                "outages": len(self.of(Kind.OUTAGE)),
                "by_day": self.by_day,
                "longest_silence": {
                    "since": silence.since.isoformat(),
                    "until": silence.until.isoformat(),
                    "seconds": int(silence.span.total_seconds()),
                },
                "model_calls": self.usage.model_calls,
                "tokens_read": self.usage.tokens_read,
                "tokens_written": self.usage.tokens_written,
            },
        }


_SAID: Final = tuple(kind.value for kind in Kind if kind in _SPOKEN)


def _counted(names: Iterable[str | None]) -> dict[str, int]:
    """How often each name comes, by name, so that two reports can be compared."""
    return dict(sorted(Counter(name or "" for name in names).items()))

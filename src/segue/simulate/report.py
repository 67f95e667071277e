"""The report of a simulation: what happened, in order, on the user's clock, and the totals; and the
difference between two reports.

Values only: `segue.simulate.timeline` makes the entries, the CLI prints them. It has the visible
messages and the triggers, never a prompt.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from segue.core.autonomy.gates import GateVerdict
from segue.core.autonomy.local_time import NIGHT
from segue.core.durations import show_duration
from segue.core.text import exact_json

# Raised when the JSON changes in a way that breaks its readers.
FORMAT: Final = 1

# Why a follow-up was not sent, where no gate decided it.
CANCELLED: Final = "cancelled"
HELD_OUT: Final = "held_out"
FAILED: Final = "failed"


class EntryKind(StrEnum):
    """The kind of an entry."""

    USER_MESSAGE = "user_message"
    REPLY = "reply"
    FOLLOW_UP = "follow_up"
    PLANNED = "planned"
    NOT_PLANNED = "not_planned"
    POSTPONED = "postponed"
    NOT_SENT = "not_sent"
    # Still planned when the simulation ended.
    PENDING = "pending"
    # The user set a preference, or typed.
    WISH = "wish"
    OUTAGE = "outage"
    # A message that got no answer.
    FAILED = "failed"


_MESSAGES: Final = (EntryKind.USER_MESSAGE, EntryKind.REPLY, EntryKind.FOLLOW_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """An entry of the timeline. Times are on the user's clock."""

    at: datetime
    kind: EntryKind
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
    verdicts: tuple[GateVerdict, ...] = ()


@dataclass(slots=True)
class Usage:
    """Calls of the agents' models; tokens are estimates."""

    model_calls: int = 0
    tokens_read: int = 0
    tokens_written: int = 0


@dataclass(frozen=True, slots=True)
class SilentSpan:
    """A time without a message."""

    since: datetime
    until: datetime

    @property
    def span(self) -> timedelta:
        # In UTC: Python subtracts times of one zone by the wall clock, wrong over a clock change.
        return self.until.astimezone(UTC) - self.since.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """All entries, oldest first, and the totals."""

    title: str
    seed: int
    user: str
    start: datetime
    end: datetime
    entries: tuple[TimelineEntry, ...]
    usage: Usage

    def of(self, *kinds: EntryKind) -> tuple[TimelineEntry, ...]:
        return tuple(entry for entry in self.entries if entry.kind in kinds)

    @property
    def follow_ups(self) -> tuple[TimelineEntry, ...]:
        return self.of(EntryKind.FOLLOW_UP)

    @property
    def not_sent(self) -> tuple[TimelineEntry, ...]:
        """Planned follow-ups that will never be sent."""
        return self.of(EntryKind.NOT_SENT)

    @property
    def sent_by_trigger(self) -> dict[str, int]:
        return self._count(EntryKind.FOLLOW_UP, "trigger")

    @property
    def sent_at_night(self) -> int:
        """Follow-ups between 22:00 and 08:00 on the user's clock."""
        return sum(NIGHT.is_quiet(e.at, e.at.tzinfo or UTC) for e in self.follow_ups)

    @property
    def share_at_night(self) -> float:
        return self.sent_at_night / (len(self.follow_ups) or 1)

    @property
    def not_sent_by_gate(self) -> dict[str, int]:
        return self._count(EntryKind.NOT_SENT, "gate")

    @property
    def postponed_by_gate(self) -> dict[str, int]:
        """How often each gate postponed a follow-up; one that waits twice counts twice."""
        return self._count(EntryKind.POSTPONED, "gate")

    @property
    def not_planned_by_reason(self) -> dict[str, int]:
        return self._count(EntryKind.NOT_PLANNED, "why")

    @property
    def answered(self) -> int:
        """Follow-ups that were the last message before the user wrote to the agent again."""
        count, waiting = 0, set[str | None]()
        for entry in self.of(EntryKind.USER_MESSAGE, EntryKind.FOLLOW_UP):
            if entry.kind is EntryKind.FOLLOW_UP:
                waiting.add(entry.agent)
            elif entry.agent in waiting:
                waiting.discard(entry.agent)
                count += 1
        return count

    @property
    def by_day(self) -> dict[str, dict[str, int]]:
        """Messages by kind on each of the user's days that has one."""
        days: dict[str, dict[str, int]] = {}
        for entry in self.of(*_MESSAGES):
            none = {kind.value: 0 for kind in _MESSAGES}
            days.setdefault(entry.at.date().isoformat(), none)[entry.kind.value] += 1
        return days

    @property
    def longest_silence(self) -> SilentSpan:
        """The longest time without any message, from the start until the end."""
        moments = [entry.at for entry in self.of(*_MESSAGES)]
        gaps = map(SilentSpan, [self.start, *moments], [*moments, self.end])
        return max(gaps, key=lambda gap: gap.span)

    def _count(self, kind: EntryKind, field: str) -> dict[str, int]:
        """Entries by the value of a field, sorted, so that two reports can be compared."""
        return dict(sorted(Counter(getattr(e, field) or "" for e in self.of(kind)).items()))

    def as_json(self) -> dict[str, Any]:
        """The report for programs: plain values, always in the same order."""
        silence = self.longest_silence
        names = ("title", "seed", "user", "start", "end", "entries")
        report = {
            "format": FORMAT,
            **{name: getattr(self, name) for name in names},
            "totals": {
                "user_messages": len(self.of(EntryKind.USER_MESSAGE)),
                "replies": len(self.of(EntryKind.REPLY)),
                "sent": len(self.follow_ups),
                "sent_by_trigger": self.sent_by_trigger,
                "sent_at_night": self.sent_at_night,
                "share_at_night": round(self.share_at_night, 4),
                "answered": self.answered,
                "postponed_by_gate": self.postponed_by_gate,
                "not_sent_by_gate": self.not_sent_by_gate,
                "not_planned_by_reason": self.not_planned_by_reason,
                "pending": len(self.of(EntryKind.PENDING)),
                "outages": len(self.of(EntryKind.OUTAGE)),
                "by_day": self.by_day,
                "longest_silence": {
                    "since": silence.since,
                    "until": silence.until,
                    "seconds": int(silence.span.total_seconds()),
                },
                **asdict(self.usage),
            },
        }
        return dict(exact_json(report))


Totals = Mapping[str, Any]
_CAUSES: Final = {
    "daily_cap": "the daily cap",
    "consecutive_cap": "the cap in a row",
    "cooldown": "the cooldown",
    "cancelled": "a message of the user",
}
_LOST: Final = "a message that is not sent"


def describe_difference(a: Totals, b: Totals) -> list[str]:
    """The differences of policy B from policy A, by the totals of their reports."""
    return [*_differences(a, b)] or ["Both policies do the same."]


def _differences(a: Totals, b: Totals) -> Iterator[str]:
    more = b["sent"] - a["sent"]
    if more:
        word = "more" if more > 0 else "fewer"
        noun = "follow-up" if abs(more) == 1 else "follow-ups"
        yield f"B sends {abs(more)} {word} {noun}: {b['sent']} instead of {a['sent']}."
    elif a["sent_by_trigger"] != b["sent_by_trigger"] or a["by_day"] != b["by_day"]:
        yield f"Both send {a['sent']} follow-ups, B at other times or for other reasons."
    for name, (one, many, rest) in (
        ("sent_at_night", ("comes", "come", "at night, between 22:00 and 08:00")),
        ("answered", ("is", "are", "answered")),
        ("replies_lost", ("recorded answer follows", "recorded answers follow", _LOST)),
    ):
        was, now = a.get(name, 0), b.get(name, 0)
        if was != now:
            yield f"{now} {one if now == 1 else many} {rest}, instead of {was}."
    for name, words in (("postponed_by_gate", "has to wait"), ("not_sent_by_gate", "is not sent")):
        yield from _by_gate(a[name], b[name], words)
    seconds = [each["longest_silence"]["seconds"] for each in (a, b)]
    was, now = (show_duration(timedelta(seconds=each)) for each in seconds)
    if was != now:
        yield f"The longest silence is {now} instead of {was}."


def _by_gate(a: Mapping[str, int], b: Mapping[str, int], words: str) -> Iterator[str]:
    for gate in sorted({*a, *b}):
        was, now = a.get(gate, 0), b.get(gate, 0)
        if was != now:
            why = _CAUSES.get(gate, gate.replace("_", " "))
            yield f"A follow-up {words} because of {why} {_times(now)} instead of {_times(was)}."


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")

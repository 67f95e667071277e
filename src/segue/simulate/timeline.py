"""The timeline of a simulation: the user's actions, and the records of the journal.

Every entry has a number that rises with time, as the journal's ids do, so that entries of one
moment stay in the order in which they happened.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Self

from langchain_core.messages import AIMessage, BaseMessage

from segue.core.autonomy.gates import Gate, GateOutcome, GateVerdict
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import millis_of, next_snowflake, time_of
from segue.journal.journal import Journal
from segue.journal.records import Decision, Timer, TimerKind, TimerState, Turn, TurnState
from segue.simulate.report import CANCELLED, FAILED, HELD_OUT, EntryKind, TimelineEntry
from segue.simulate.scenario import Timetable

_PAGE: Final = 1_000
_ALL: Final = 10_000_000
_ALIVE: Final = frozenset({TimerState.PENDING, TimerState.POSTPONED, TimerState.CLAIMED})
# Decisions about sending. Others are about what the user asked, say, or how a reminder was worded.
_OF_GATES: Final = frozenset({"gates", "gates_before_showing"})

Numbered = tuple[int, TimelineEntry]


@dataclass
class Timeline:
    """Collects entries, and lists them in order."""

    timetable: Timetable
    user: str
    # Preferences and outages, which no record has.
    _events: list[Numbered] = field(default_factory=list)
    # Timers that a message of the user ended, with the message's position.
    ended_by: dict[int, int] = field(default_factory=dict)
    # Messages with which the user answered a follow-up, and when that was shown.
    answers: dict[int, datetime] = field(default_factory=dict)

    def add(self, number: int, kind: EntryKind, at: datetime, what: str, **more: Any) -> None:
        self._events.append((number, self.entry(kind, at, what, **{"who": self.user, **more})))

    def entry(self, kind: EntryKind, at: datetime, what: str, **more: Any) -> TimelineEntry:
        """An entry with its times on the user's clock."""
        local, until = self.timetable.local, more.pop("until", None)
        until = local(until) if until else None
        return TimelineEntry(at=local(at), kind=kind, what=what, until=until, **more)

    async def entries(self, journal: Journal, threads: list[str]) -> tuple[TimelineEntry, ...]:
        """All entries, oldest first. A thread has its agent's id."""
        numbered = list(self._events)
        for thread in threads:
            numbered += (await _Thread.read(self, journal, thread)).entries()
        # A stable order: entries with one number were found in the order in which they happened.
        return tuple(entry for _, entry in sorted(numbered, key=lambda pair: pair[0]))


@dataclass(frozen=True)
class _Thread:
    """All records of a thread, and the entries made of them."""

    timeline: Timeline
    agent: str
    messages: list[BaseMessage]
    turns: list[Turn]
    timers: dict[int | None, Timer]
    decisions: list[Decision]

    @classmethod
    async def read(cls, timeline: Timeline, journal: Journal, thread: str) -> Self:
        messages: list[BaseMessage] = []
        after: int | None = 0
        while after is not None:
            page = await journal.messages.history(thread, limit=_PAGE, after=after)
            messages += page.messages
            after = page.after
        return cls(
            timeline,
            thread,
            messages,
            await journal.turns.list_of(thread, limit=_ALL),
            {timer.id: timer for timer in await journal.timers.list_of(thread, limit=_ALL)},
            await journal.decisions.list_of(thread, limit=_ALL),
        )

    def entries(self) -> Iterator[Numbered]:
        yield from self._messages()
        for decision in self.decisions:
            yield from self._decision(decision)
        yield from self._timers()
        yield from self._failures()

    @cached_property
    def _last_positions(self) -> dict[int | None, int]:
        """The position of the last message of each turn."""
        of_batch = {m.batch: m.position or 0 for m in map(MessageMetadata.of, self.messages)}
        return {turn.id: of_batch.get(turn.batch, 0) for turn in self.turns}

    def _messages(self) -> Iterator[Numbered]:
        follow_ups = {t.batch: t for t in self.turns if t.kind.speaks_first}
        texts: dict[int, list[str]] = {}
        for message in self.messages:
            metadata = MessageMetadata.of(message)
            position, batch = metadata.position or 0, metadata.batch or 0
            if not isinstance(message, AIMessage):
                yield position, self._user_message(position, message.text)
            elif batch in follow_ups:
                texts.setdefault(batch, []).append(message.text)
            else:
                yield position, self._entry(EntryKind.REPLY, time_of(position), message.text)
        gates = {d.turn_id: d for d in self.decisions if d.kind == "gates"}
        for batch, parts in texts.items():
            turn = follow_ups[batch]
            yield turn.id, self._follow_up(turn, "\n".join(parts), gates[turn.id])

    def _user_message(self, position: int, text: str) -> TimelineEntry:
        timeline, shown_at = self.timeline, self.timeline.answers.get(position)
        why = f"answers the follow-up of {timeline.timetable.shown(shown_at)}" if shown_at else ""
        kind, at = EntryKind.USER_MESSAGE, time_of(position)
        return self._entry(kind, at, text, who=timeline.user, why=why)

    def _follow_up(self, turn: Turn, text: str, gates: Decision) -> TimelineEntry:
        timer = self.timers.get(gates.timer_id)
        return self._entry(
            EntryKind.FOLLOW_UP,
            turn.shown_at or time_of(turn.id),
            text,
            why=(timer.reason if timer else None) or "",
            trigger=gates.facts.get("trigger"),
            variant=gates.facts.get("variant"),
            verdicts=_verdicts(gates),
        )

    def _decision(self, decision: Decision) -> Iterator[Numbered]:
        if decision.kind == "plan":
            # Made just before its turn's end is stored, and listed after it.
            number = max(decision.id, self._last_positions.get(decision.turn_id, 0))
            yield number, self._plan(decision)
        elif decision.facts.get("held_out"):
            timer = self.timers.get(decision.timer_id)
            why, what = (timer.state_reason if timer else None) or "", "is held out"
            yield decision.id, self._refusal(decision, what, why, HELD_OUT)
        elif decision.kind in _OF_GATES and decision.outcome != GateOutcome.ALLOW:
            against = [v for v in _verdicts(decision) if v.outcome == decision.outcome]
            # All of them: one gate may postpone it to a time at which another is closed.
            why = " ".join(v.reason for v in against) or decision.reasons[0]
            waits = decision.outcome == GateOutcome.POSTPONE
            what = "has to wait" if waits else "is not sent"
            gate = against[0].gate.value if against else None
            yield decision.id, self._refusal(decision, what, why, gate)

    def _plan(self, decision: Decision) -> TimelineEntry:
        trigger = decision.facts.get("trigger")
        return self._entry(
            EntryKind.PLANNED if trigger else EntryKind.NOT_PLANNED,
            decision.decided_at,
            f"{trigger} is planned" if trigger else "no follow-up is planned",
            why=decision.reasons[0],
            trigger=trigger,
            until=_time(decision.facts.get("due_at")),
        )

    def _refusal(self, decision: Decision, what: str, why: str, gate: str | None) -> TimelineEntry:
        trigger, waits = decision.facts.get("trigger"), decision.outcome == GateOutcome.POSTPONE
        return self._entry(
            EntryKind.POSTPONED if waits else EntryKind.NOT_SENT,
            decision.decided_at,
            f"{trigger} {what}",
            why=why,
            trigger=trigger,
            gate=gate,
            until=_time(decision.facts.get("until")),
            verdicts=_verdicts(decision),
        )

    def _timers(self) -> Iterator[Numbered]:
        """Timers that ended without a decision of the gates, and those that have not ended."""
        end = self.timeline.timetable.end
        refused = {d.timer_id for d in self.decisions if d.outcome == GateOutcome.SUPPRESS}
        for timer in self.timers.values():
            if timer.kind is TimerKind.CONTINUATION:
                continue
            if timer.state is TimerState.CANCELLED and timer.id not in refused:
                at = timer.updated_at
                number = self.timeline.ended_by.get(timer.id) or _last_number(at)
                yield number, self._timer(timer, EntryKind.NOT_SENT, at, "is dropped")
            elif timer.state in _ALIVE:
                pending = self._timer(timer, EntryKind.PENDING, end, "is still planned")
                yield _last_number(end), pending

    def _timer(self, timer: Timer, kind: EntryKind, at: datetime, what: str) -> TimelineEntry:
        return self._entry(
            kind,
            at,
            f"{timer.trigger_type} {what}",
            why=timer.state_reason or timer.reason or "",
            trigger=timer.trigger_type,
            gate=CANCELLED if kind is EntryKind.NOT_SENT else None,
            until=timer.due_at,
        )

    def _failures(self) -> Iterator[Numbered]:
        """Turns that failed or were stopped, unless the gates did it before the first word."""
        withdrawn = {d.turn_id for d in self.decisions if d.kind == "gates_before_showing"}
        for turn in self.turns:
            if turn.state in (TurnState.FAILED, TurnState.VOID) and turn.id not in withdrawn:
                kind, what, gate = EntryKind.FAILED, "no answer", None
                if turn.kind.speaks_first:
                    kind, what, gate = (
                        EntryKind.NOT_SENT,
                        "the follow-up failed or was stopped",
                        FAILED,
                    )
                number, why = turn.end_position or turn.id, turn.error or ""
                yield number, self._entry(kind, time_of(number), what, why=why, gate=gate)

    def _entry(self, kind: EntryKind, at: datetime, what: str, **more: Any) -> TimelineEntry:
        return self.timeline.entry(kind, at, what, **{"who": self.agent, **more}, agent=self.agent)


def _verdicts(decision: Decision) -> tuple[GateVerdict, ...]:
    """The verdict of each gate. The record has the reasons in the order of the gates."""
    outcomes = decision.facts.get("verdicts", {})
    asked = [gate for gate in Gate if gate.value in outcomes]
    return tuple(
        GateVerdict(gate, GateOutcome(outcomes[gate.value]), reason)
        for gate, reason in zip(asked, decision.reasons[1:], strict=False)
    )


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def _last_number(moment: datetime) -> int:
    """Above all ids of its millisecond."""
    return next_snowflake(0, millis_of(moment) + 1, 0) - 1

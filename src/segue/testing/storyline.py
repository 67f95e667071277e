"""The storyline of a simulation: what its user did, and what the journal's records tell.

Everything has a number that rises with time, as the journal's ids do, so that what happened at
the same moment is told in the order in which it happened.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage

from segue.core.gates import Gate, Outcome, Verdict
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import millis_of, next_snowflake, time_of
from segue.journal.ports import Journal
from segue.journal.records import Decision, Timer, TimerState, Turn, TurnKind, TurnState
from segue.testing.scenario import Timetable
from segue.testing.simulation_report import CANCELLED, FAILED, HELD_OUT, Entry, Kind

_PAGE: Final = 1_000
_ALL: Final = 10_000_000
_ALIVE: Final = frozenset({TimerState.PENDING, TimerState.POSTPONED, TimerState.CLAIMED})

Numbered = tuple[int, Entry]


@dataclass
class Storyline:
    """Collects what happens, and tells it in order."""

    timetable: Timetable
    user: str
    # What no record tells: wishes and outages.
    noted: list[Numbered] = field(default_factory=list)
    # Which timers a message of the user ended, by the message's position.
    ended_by: dict[int, int] = field(default_factory=dict)
    # The messages with which the user answered a follow-up, and when that had come.
    answers: dict[int, datetime] = field(default_factory=dict)

    def note(self, number: int, kind: Kind, at: datetime, what: str, **more: Any) -> None:
        local = self.timetable.local
        if until := more.pop("until", None):
            more["until"] = local(until)
        entry = Entry(at=local(at), kind=kind, what=what, **({"who": self.user} | more))
        self.noted.append((number, entry))

    async def tell(self, journal: Journal, threads: list[str]) -> tuple[Entry, ...]:
        """All of it, oldest first. A thread has its agent's id."""
        numbered = list(self.noted)
        for thread in threads:
            numbered += _Records(self, thread, await _read(journal, thread)).entries()
        # A stable order: what has one number was found in the order in which it happened.
        return tuple(entry for _, entry in sorted(numbered, key=lambda pair: pair[0]))


@dataclass(frozen=True)
class _Thread:
    """All records of a thread."""

    messages: list[BaseMessage]
    turns: list[Turn]
    timers: dict[int, Timer]
    decisions: list[Decision]

    @cached_property
    def opened_gates(self) -> dict[int | None, Decision]:
        """What the gates said of each follow-up that became a turn."""
        return {d.turn_id: d for d in self.decisions if d.kind == "gates"}

    @cached_property
    def last_positions(self) -> dict[int | None, int]:
        """The place of the last message that each turn said."""
        of_batch = {m.batch: m.position or 0 for m in map(MessageMetadata.of, self.messages)}
        return {turn.id: of_batch.get(turn.batch, 0) for turn in self.turns}

    @cached_property
    def refused(self) -> set[int | None]:
        """The timers of which the gates said no."""
        return {d.timer_id for d in self.decisions if d.outcome == Outcome.SUPPRESS}

    @cached_property
    def withdrawn(self) -> set[int | None]:
        """The turns that the gates stopped before their first word."""
        return {d.turn_id for d in self.decisions if d.kind == "gates_before_showing"}


async def _read(journal: Journal, thread: str) -> _Thread:
    messages: list[BaseMessage] = []
    after: int | None = 0
    while after is not None:
        page = await journal.history(thread, limit=_PAGE, after=after)
        messages += page.messages
        after = page.after
    return _Thread(
        messages,
        await journal.list_turns(thread, limit=_ALL),
        {timer.id: timer for timer in await journal.list_timers(thread, limit=_ALL)},
        await journal.list_decisions(thread, limit=_ALL),
    )


@dataclass(frozen=True, slots=True)
class _Records:
    """The entries of one thread."""

    story: Storyline
    agent: str
    thread: _Thread

    def entries(self) -> Iterator[Numbered]:
        yield from self._messages()
        for decision in self.thread.decisions:
            yield from self._decision(decision)
        yield from self._timers()
        yield from self._failures()

    def _messages(self) -> Iterator[Numbered]:
        follow_ups = {t.batch: t for t in self.thread.turns if t.kind is TurnKind.FOLLOW_UP}
        spoken: dict[int, list[BaseMessage]] = {}
        for message in self.thread.messages:
            metadata = MessageMetadata.of(message)
            position, batch = metadata.position or 0, metadata.batch or 0
            if not isinstance(message, AIMessage):
                yield position, self._user_message(position, message)
            elif batch in follow_ups:
                spoken.setdefault(batch, []).append(message)
            else:
                yield position, self._entry(Kind.REPLY, time_of(position), message.text)
        gates = self.thread.opened_gates
        for batch, messages in spoken.items():
            turn = follow_ups[batch]
            yield self._follow_up(turn, messages, gates[turn.id])

    def _user_message(self, position: int, message: BaseMessage) -> Entry:
        asked_at = self.story.answers.get(position)
        shown = self.story.timetable.shown
        why = f"answers the follow-up of {shown(asked_at)}" if asked_at else ""
        said_at = self.story.timetable.local(time_of(position))
        return Entry(
            at=said_at,
            kind=Kind.USER_MESSAGE,
            who=self.story.user,
            what=message.text,
            why=why,
            agent=self.agent,
        )

    def _follow_up(self, turn: Turn, messages: list[BaseMessage], gates: Decision) -> Numbered:
        timer = self.thread.timers.get(gates.timer_id or 0)
        return turn.id, self._entry(
            Kind.FOLLOW_UP,
            turn.shown_at or time_of(turn.id),
            "\n".join(message.text for message in messages),
            why=(timer.reason if timer else None) or "",
            trigger=gates.facts.get("trigger"),
            variant=gates.facts.get("variant"),
            verdicts=_verdicts(gates),
        )

    def _decision(self, decision: Decision) -> Iterator[Numbered]:
        if decision.kind == "plan":
            yield self._plan(decision)
        elif decision.facts.get("held_out"):
            yield decision.id, self._held_out(decision)
        elif decision.kind == "memory_query":
            return
        elif decision.outcome != Outcome.ALLOW:  # what is allowed is told with its words
            yield decision.id, self._refusal(decision)

    def _held_out(self, decision: Decision) -> Entry:
        trigger = decision.facts.get("trigger")
        timer = self.thread.timers.get(decision.timer_id or 0)
        return self._entry(
            Kind.NOT_SENT,
            decision.decided_at,
            f"{trigger} is held out",
            why=(timer.state_reason if timer else None) or "",
            trigger=trigger,
            gate=HELD_OUT,
            verdicts=_verdicts(decision),
        )

    def _refusal(self, decision: Decision) -> Entry:
        trigger, verdicts = decision.facts.get("trigger"), _verdicts(decision)
        waits = decision.outcome == Outcome.POSTPONE
        against = [v for v in verdicts if v.outcome == decision.outcome]
        return self._entry(
            Kind.POSTPONED if waits else Kind.NOT_SENT,
            decision.decided_at,
            f"{trigger} has to wait" if waits else f"{trigger} is not sent",
            # All of them: one gate may let it wait until a time at which another is closed.
            why=" ".join(v.reason for v in against) or decision.reasons[0],
            trigger=trigger,
            gate=against[0].gate.value if against else None,
            until=_moment(decision.facts.get("until")),
            verdicts=verdicts,
        )

    def _plan(self, decision: Decision) -> Numbered:
        trigger = decision.facts.get("trigger")
        # Made just before the end of its turn is stored, and told after what it follows from.
        number = max(decision.id, self.thread.last_positions.get(decision.turn_id, 0))
        return number, self._entry(
            Kind.PLANNED if trigger else Kind.NOT_PLANNED,
            decision.decided_at,
            f"{trigger} is planned" if trigger else "no follow-up is planned",
            why=decision.reasons[0],
            trigger=trigger,
            until=_moment(decision.facts.get("due_at")),
        )

    def _timers(self) -> Iterator[Numbered]:
        """What ended without a word of the gates, and what has not ended."""
        end, refused = self.story.timetable.end, self.thread.refused
        for timer in self.thread.timers.values():
            if timer.kind is not TurnKind.FOLLOW_UP:
                continue
            if timer.state is TimerState.CANCELLED and timer.id not in refused:
                at = timer.updated_at
                number = self.story.ended_by.get(timer.id) or _last_number(at)
                yield number, self._timer(timer, Kind.NOT_SENT, at, "is dropped")
            elif timer.state in _ALIVE:
                yield _last_number(end), self._timer(timer, Kind.PENDING, end, "is still planned")

    def _timer(self, timer: Timer, kind: Kind, at: datetime, what: str) -> Entry:
        return self._entry(
            kind,
            at,
            f"{timer.trigger_type} {what}",
            why=timer.state_reason or timer.reason or "",
            trigger=timer.trigger_type,
            gate=CANCELLED if kind is Kind.NOT_SENT else None,
            until=timer.due_at,
        )

    def _failures(self) -> Iterator[Numbered]:
        for turn in self.thread.turns:
            is_over = turn.state in (TurnState.FAILED, TurnState.VOID)
            if is_over and turn.id not in self.thread.withdrawn:
                yield turn.end_position or turn.id, self._failure(turn)

    def _failure(self, turn: Turn) -> Entry:
        is_follow_up = turn.kind is TurnKind.FOLLOW_UP
        return self._entry(
            Kind.NOT_SENT if is_follow_up else Kind.FAILED,
            time_of(turn.end_position or turn.id),
            "the follow-up came to nothing" if is_follow_up else "no answer",
            why=turn.error or "",
            gate=FAILED if is_follow_up else None,
        )

    def _entry(self, kind: Kind, at: datetime, what: str, **more: Any) -> Entry:
        local = self.story.timetable.local
        until = more.pop("until", None)
        return Entry(
            at=local(at),
            kind=kind,
            who=self.agent,
            what=what,
            agent=self.agent,
            until=local(until) if until else None,
            **more,
        )


def _verdicts(decision: Decision) -> tuple[Verdict, ...]:
    """What each gate said. The record has them in the order in which gates are asked."""
    said = decision.facts.get("verdicts", {})
    return tuple(
        Verdict(gate, Outcome(said[gate.value]), reason)
        for gate, reason in zip(Gate, decision.reasons[1:], strict=False)
        if gate.value in said
    )


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def _last_number(moment: datetime) -> int:
    """Above all ids of its millisecond."""
    return next_snowflake(0, millis_of(moment) + 1, 0) - 1

"""Why the agent wrote, and why it did not: the records of a thread in one list.

Built from decisions, timers, turns and effects. It names triggers and reasons, never a prompt or
the text of a decider, so that everyone who may see the thread may see it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from segue.core.triggers import EVENT, REMINDER
from segue.journal.effects import Effect
from segue.journal.journal import Journal
from segue.journal.records import (
    Decision,
    EffectState,
    Timer,
    TimerKind,
    TimerState,
    Turn,
    TurnKind,
    TurnState,
)

_DECISIONS: Final = {
    "plan": "planning a follow-up",
    "gates": "the gates of a due follow-up",
    "gates_before_showing": "the gates before the first word",
    "memory_query": "the memories of a follow-up",
    "request": "the user's request about follow-ups",
    "guard": "the guard before the first word",
    "promise": "a promise to remind",
    "reminder": "a reminder",
    "event": "an event",
}
_DELIVERIES: Final = {"webhook": "the webhook", "push": "the notification"}
_OVER: Final = frozenset(
    {TimerState.CANCELLED, TimerState.SUPPRESSED, TimerState.EXPIRED, TimerState.MISSED}
)


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that happened, or did not, and why."""

    at: datetime
    what: str
    outcome: str
    why: str
    details: dict[str, Any] = field(default_factory=dict)
    # The id of the record: reasons of one moment are in this order.
    number: int = 0

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.what}: {self.outcome}. {self.why}".rstrip()


async def why(journal: Journal, thread_id: str, *, limit: int = 50) -> list[Reason]:
    """The decisions in a thread and their outcomes; oldest first."""
    decisions = await journal.decisions.list_of(thread_id, limit=limit)
    reasons = [
        *map(_of_decision, decisions),
        *_of_timers(await journal.timers.list_of(thread_id, limit=limit), decisions),
        *_of_turns(await journal.turns.list_of(thread_id, limit=limit)),
        *_of_effects(await journal.effects.list_of(thread_id, limit=limit)),
    ]
    return sorted(reasons, key=lambda reason: (reason.at, reason.number))[-limit:]


def _of_decision(decision: Decision) -> Reason:
    facts = {name: fact for name, fact in decision.facts.items() if name != "words"}
    return Reason(
        decision.decided_at,
        _name_of(decision),
        decision.outcome,
        decision.reasons[0] if decision.reasons else "",
        facts | {"reasons": list(decision.reasons[1:])},
        decision.id,
    )


def _name_of(decision: Decision) -> str:
    trigger = decision.facts.get("trigger")
    if decision.kind == "gates" and trigger in (REMINDER, EVENT):
        return f"the gates of a due {trigger}"
    return _DECISIONS.get(decision.kind, decision.kind)


def _of_timers(timers: list[Timer], decisions: list[Decision]) -> Iterator[Reason]:
    # A timer's end comes after the decision that ended it, the newest one.
    decided = {d.timer_id: d.id for d in reversed(decisions) if d.timer_id is not None}
    for timer in timers:
        if timer.kind is TimerKind.CONTINUATION:  # no decider planned it, so no decision says so
            due = f"{timer.due_at:%Y-%m-%d %H:%M:%S} UTC"
            wish = f"The agent itself wanted to continue at {due}."
            yield Reason(timer.created_at, "planning a continuation", "planned", wish, {}, timer.id)
        if timer.state in _OVER:
            kind = timer.kind.value.replace("_", "-")
            yield Reason(
                timer.updated_at,
                f"the {kind} planned for {timer.due_at:%Y-%m-%d %H:%M:%S} UTC",
                timer.state.value,
                timer.state_reason or "",
                {"trigger": timer.trigger_type},
                decided.get(timer.id, timer.id),
            )


def _of_turns(turns: list[Turn]) -> Iterator[Reason]:
    for turn in turns:
        what = f"a {turn.kind.value.replace('_', '-')}"
        is_follow_up = turn.kind.speaks_first
        is_void = is_follow_up and turn.state is TurnState.VOID
        if is_follow_up and turn.shown_at is not None:
            yield Reason(turn.shown_at, what, "sent", "All gates were open.", number=turn.id)
        elif is_void or turn.state is TurnState.FAILED:
            outcome = turn.state.value
            yield Reason(turn.queued_at, what, outcome, turn.error or "", number=turn.id)
        if turn.ending is not None and turn.ending.get("kind") == "cancelled":
            reason = str(turn.ending.get("reason") or "")
            number = turn.end_position or turn.id
            yield Reason(turn.queued_at, what, "cancelled", reason, number=number)


def _of_effects(effects: list[Effect]) -> Iterator[Reason]:
    outcomes = {
        EffectState.DONE: "delivered",
        EffectState.DEAD: "not delivered",
        EffectState.PENDING: "waiting",
        EffectState.CLAIMED: "under way",
    }
    for effect in effects:
        if effect.kind in _DELIVERIES:
            outcome = outcomes[effect.state]
            if effect.state is EffectState.DONE and not (effect.evidence or "").startswith("2"):
                outcome = "not sent" if effect.evidence else "sent, without evidence"
            event = str(effect.payload.get("event") or TurnKind.FOLLOW_UP)
            yield Reason(
                effect.created_at,
                f"{_DELIVERIES[effect.kind]} of a {event.replace('_', '-')}",
                outcome,
                _of_delivery(effect),
                {"attempts": effect.attempts},
                effect.id,
            )


def _of_delivery(effect: Effect) -> str:
    """The receiver's answer with its time, or the error and the time of the next attempt."""
    if effect.state is EffectState.DONE:
        return effect.evidence or ""
    error = f"{effect.error.rstrip('.')}. " if effect.error else ""
    if effect.state is EffectState.DEAD:
        return f"{error}Gave up after attempt {effect.attempts}."
    if effect.state is EffectState.PENDING and effect.attempts:
        return f"{error}Next attempt at {effect.due_at:%Y-%m-%d %H:%M:%S}."
    return effect.error or ""

"""The gatekeeper: collects fresh facts about a follow-up and checks the gates.

Used before any model call, and again before the user sees the first token. The result is a
decision, stored together with its consequence.
"""

import logging
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from segue.core.autonomy.gates import (
    FOR_CONTINUATIONS,
    FOR_EVENTS,
    FOR_FOLLOW_UPS,
    FOR_REMINDERS,
    Gate,
    GateDecision,
    GateOutcome,
    PolicyGates,
)
from segue.core.autonomy.local_time import day_began
from segue.core.autonomy.policy import Facts, Preferences
from segue.journal.follow_ups import FollowUpCounts
from segue.journal.journal import Journal
from segue.journal.records import Decision, Timer, TimerKind, Turn
from segue.runtime.deps import log_about, read_preferences
from segue.runtime.reminders import is_recurring
from segue.settings.agents import Autonomy
from segue.telemetry import count

logger = logging.getLogger(__name__)

_GATES_OF: Final = {
    TimerKind.FOLLOW_UP: FOR_FOLLOW_UPS,
    TimerKind.EVENT: FOR_EVENTS,
    TimerKind.REMINDER: FOR_REMINDERS,
    TimerKind.CONTINUATION: FOR_CONTINUATIONS,
}


@dataclass(frozen=True, slots=True)
class GateCheck:
    """The gates' decision with its facts and counts; `turn` is None until the timer has fired."""

    timer: Timer
    turn: Turn | None
    decision: GateDecision
    facts: Facts
    preferences: Preferences
    counts: FollowUpCounts

    @property
    def is_allowed(self) -> bool:
        return self.decision.outcome is GateOutcome.ALLOW

    def record(self, decision_id: int, **facts: Any) -> Decision:
        """The decision as it is stored, with additional facts."""
        timer, turn, verdicts = self.timer, self.turn, self.decision.verdicts
        decisive = self.decision.decisive
        return Decision(
            id=decision_id,
            thread_id=timer.thread_id,
            kind="gates_before_showing" if turn else "gates",
            outcome=self.decision.outcome.value,
            reasons=(self.decision.reason, *(v.reason for v in verdicts)),
            facts={
                "trigger": timer.trigger_type,
                "verdicts": {v.gate.value: v.outcome.value for v in verdicts},
                "until": _plain(self.decision.until),
                "gate": decisive.gate.value if decisive else None,
                **{name: _plain(value) for name, value in asdict(self.facts).items()},
                "quiet_hours": self.preferences.own_quiet_hours,
                **facts,
            },
            timer_id=None if turn else timer.id,
            turn_id=turn.id if turn else None,
            decided_at=self.facts.checked_at,
        )


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """`zone` is that of users who have not set theirs."""

    journal: Journal
    zone: str | None = None

    async def check(
        self, timer: Timer, autonomy: Autonomy, now: datetime, turn: Turn | None = None
    ) -> GateCheck:
        """Whether it may be sent now. A turn is not counted against itself."""
        checked = await self.foresee(timer, autonomy, now, turn)
        _log(checked)
        return checked

    async def foresee(
        self, timer: Timer, autonomy: Autonomy, now: datetime, turn: Turn | None = None
    ) -> GateCheck:
        """The gates' decision at a time, which may be in the future; nothing is logged."""
        thread = await self.journal.threads.get(timer.thread_id)
        preferences = await read_preferences(self.journal, thread, self.zone)
        counts = await self.journal.timers.count_follow_ups(
            thread.id,
            day_began=day_began(now, preferences.clock),
            leaving_out=turn.id if turn else None,
        )
        facts = Facts(
            checked_at=now,
            due_at=timer.due_at,
            armed_epoch=timer.epoch,
            thread_epoch=thread.epoch,
            expires_at=timer.expires_at,
            missed=timer.missed,
            consecutive=counts.consecutive,
            sent_today=counts.sent_today,
            last_follow_up_at=counts.last_at,
            typing_at=thread.typing_at,
            # Messages that the agent started since then do not count as conversation.
            talked_at=thread.updated_at if thread.epoch and not counts.consecutive else None,
            **preferences.as_facts(),
        )
        gates = _gates_of(timer, autonomy)
        decision = PolicyGates(preferences.apply_to(autonomy.policy), gates).check(facts)
        return GateCheck(timer, turn, decision, facts, preferences, counts)


def _gates_of(timer: Timer, autonomy: Autonomy) -> frozenset[Gate]:
    """Those of its kind; a recurring reminder may also wait for the end of quiet hours."""
    gates = _GATES_OF[timer.kind] - autonomy.left_out_gates(timer.trigger_type)
    waits = autonomy.reminders.quiet_hours and is_recurring(timer)
    return gates | {Gate.QUIET_HOURS} if waits else gates


def _log(checked: GateCheck) -> None:
    timer, turn, decision = checked.timer, checked.turn, checked.decision
    for verdict in decision.verdicts:
        count("gate_asked", gate=verdict.gate.value, outcome=verdict.outcome.value)
    log_about(
        logger,
        timer,
        "follow_up_gated",
        "A follow-up of thread {thread_id} ({trigger_type}): {outcome}. {reason}",
        turn_id=turn.id if turn else None,
        outcome=decision.outcome.value,
        reason=decision.reason,
    )


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value

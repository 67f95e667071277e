"""The gatekeeper: collects fresh facts about a follow-up and asks the gates.

Asked before any model call, and again before the user sees the first word. What the gates said is
a decision, stored together with what came of it.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self

from segue.core.gates import GateDecision, Outcome, PolicyGates, refuse_continuation
from segue.core.policy import Facts, Policy
from segue.core.preferences import Preferences
from segue.core.quiet import day_began, find_zone
from segue.core.snowflake import SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.records import Decision, FollowUpCounts, Timer, Turn
from segue.noting import count, note

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A follow-up that wants to be sent: by a timer that is due, or by a turn that is about to
    begin or to show it. A turn does not stand in its own way.
    """

    thread_id: str
    agent_id: str
    epoch: int
    trigger: str | None
    due_at: datetime | None = None
    expires_at: datetime | None = None
    missed: str = "run"
    timer_id: int | None = None
    turn_id: int | None = None

    @classmethod
    def of_timer(cls, timer: Timer) -> Self:
        return cls(
            thread_id=timer.thread_id,
            agent_id=timer.agent_id,
            epoch=timer.epoch,
            trigger=timer.trigger_type,
            due_at=timer.due_at,
            expires_at=timer.expires_at,
            missed=timer.missed,
            timer_id=timer.id,
        )

    @classmethod
    def of_turn(cls, turn: Turn, trigger: str | None, timer: Timer | None = None) -> Self:
        """`timer` is what the turn came of. How long it then took to think is not its lateness."""
        expires_at = timer.expires_at if timer else None
        return cls(
            turn.thread_id,
            turn.agent_id,
            turn.epoch,
            trigger,
            expires_at=expires_at,
            turn_id=turn.id,
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """What the gates say of a follow-up, on which facts, and what they counted."""

    proposal: Proposal
    decision: GateDecision
    facts: Facts
    wishes: Preferences
    counts: FollowUpCounts

    @property
    def is_allowed(self) -> bool:
        return self.decision.outcome is Outcome.ALLOW


class Gatekeeper:
    """Asks the gates on behalf of everybody who wants to speak first."""

    def __init__(self, journal: Journal, ids: SnowflakeSource) -> None:
        self._journal = journal
        self._ids = ids

    async def check(self, asked: Proposal, policy: Policy, now: datetime) -> Checked:
        """Whether the follow-up may be sent now."""
        thread = await self._journal.get_thread(asked.thread_id)
        user = await self._journal.get_user_settings(thread.user_id)
        wishes = Preferences.of(user, thread.settings)
        counts = await self._journal.count_follow_ups(
            thread.id,
            day_began=day_began(now, find_zone(wishes.time_zone) or UTC),
            leaving_out=asked.turn_id,
        )
        facts = Facts(
            checked_at=now,
            due_at=asked.due_at or now,
            armed_epoch=asked.epoch,
            thread_epoch=thread.epoch,
            expires_at=asked.expires_at,
            missed=asked.missed,
            consecutive=counts.consecutive,
            sent_today=counts.sent_today,
            last_follow_up_at=counts.last_at,
            typing_at=thread.typing_at,
            **wishes.as_facts(),
        )
        decision = PolicyGates(wishes.over(policy)).check(facts)
        self._log(asked, decision)
        return Checked(asked, decision, facts, wishes, counts)

    async def refuse_continuation(self, timer: Timer, now: datetime) -> str | None:
        """Why an agent may not go on with what it planned; None if it may."""
        thread = await self._journal.get_thread(timer.thread_id)
        user = await self._journal.get_user_settings(thread.user_id)
        facts = Facts(
            checked_at=now,
            due_at=timer.due_at,
            armed_epoch=timer.epoch,
            thread_epoch=thread.epoch,
            **Preferences.of(user, thread.settings).as_facts(),
        )
        return refuse_continuation(facts)

    def record(self, checked: Checked, **facts: Any) -> Decision:
        """The decision as it is stored, with further facts."""
        asked, verdicts = checked.proposal, checked.decision.verdicts
        decisive = checked.decision.decisive
        return Decision(
            id=self._ids.next(),
            thread_id=asked.thread_id,
            kind="gates" if asked.turn_id is None else "gates_before_showing",
            outcome=checked.decision.outcome.value,
            reasons=(checked.decision.reason, *(v.reason for v in verdicts)),
            facts={
                "trigger": asked.trigger,
                "verdicts": {v.gate.value: v.outcome.value for v in verdicts},
                "until": _plain(checked.decision.until),
                "gate": decisive.gate.value if decisive else None,
                **{name: _plain(value) for name, value in asdict(checked.facts).items()},
                "quiet_hours": checked.wishes.own_hours,
                **facts,
            },
            timer_id=asked.timer_id,
            turn_id=asked.turn_id,
            decided_at=checked.facts.checked_at,
        )

    def _log(self, asked: Proposal, decision: GateDecision) -> None:
        for verdict in decision.verdicts:
            count("gate_asked", gate=verdict.gate.value, outcome=verdict.outcome.value)
        note(
            logger,
            "follow_up_gated",
            "A follow-up of thread {thread_id} ({trigger_type}): {outcome}. {reason}",
            thread_id=asked.thread_id,
            agent_id=asked.agent_id,
            trigger_type=asked.trigger,
            timer_id=asked.timer_id,
            turn_id=asked.turn_id,
            outcome=decision.outcome.value,
            reason=decision.reason,
        )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else value

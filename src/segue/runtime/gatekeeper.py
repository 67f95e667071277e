"""The gatekeeper: collects fresh facts about a follow-up and checks the gates.

Used before any model call, and again before the user sees the first token. The result is a
decision, stored together with its consequence.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self

from segue.core.autonomy.gates import GateDecision, GateOutcome, PolicyGates, refuse_continuation
from segue.core.autonomy.local_time import day_began, find_zone
from segue.core.autonomy.policy import Facts, Policy, Preferences
from segue.core.snowflake import SnowflakeSource
from segue.journal.journal import Journal
from segue.journal.records import Decision, FollowUpCounts, Timer, Turn
from segue.telemetry import count, log_event

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A follow-up that is about to be sent, by a due timer or by its turn. A turn is not counted
    against itself.
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
        """`timer` queued the turn. The model's own time does not make a follow-up late."""
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
class GateCheck:
    """The gates' decision about a follow-up, with the facts and counts it is based on."""

    candidate: Candidate
    decision: GateDecision
    facts: Facts
    preferences: Preferences
    counts: FollowUpCounts

    @property
    def is_allowed(self) -> bool:
        return self.decision.outcome is GateOutcome.ALLOW


class Gatekeeper:
    """Checks the gates for timers and turns."""

    def __init__(self, journal: Journal, ids: SnowflakeSource) -> None:
        self._journal = journal
        self._ids = ids

    async def check(self, candidate: Candidate, policy: Policy, now: datetime) -> GateCheck:
        """Whether the follow-up may be sent now."""
        thread = await self._journal.threads.get(candidate.thread_id)
        user = await self._journal.users.get_settings(thread.user_id)
        preferences = Preferences.of(user, thread.settings)
        counts = await self._journal.timers.count_follow_ups(
            thread.id,
            day_began=day_began(now, find_zone(preferences.time_zone) or UTC),
            leaving_out=candidate.turn_id,
        )
        facts = Facts(
            checked_at=now,
            due_at=candidate.due_at or now,
            armed_epoch=candidate.epoch,
            thread_epoch=thread.epoch,
            expires_at=candidate.expires_at,
            missed=candidate.missed,
            consecutive=counts.consecutive,
            sent_today=counts.sent_today,
            last_follow_up_at=counts.last_at,
            typing_at=thread.typing_at,
            **preferences.as_facts(),
        )
        decision = PolicyGates(preferences.apply_to(policy)).check(facts)
        self._log(candidate, decision)
        return GateCheck(candidate, decision, facts, preferences, counts)

    async def refuse_continuation(self, timer: Timer, now: datetime) -> str | None:
        """Why a continuation may not start; None if it may."""
        thread = await self._journal.threads.get(timer.thread_id)
        user = await self._journal.users.get_settings(thread.user_id)
        facts = Facts(
            checked_at=now,
            due_at=timer.due_at,
            armed_epoch=timer.epoch,
            thread_epoch=thread.epoch,
            **Preferences.of(user, thread.settings).as_facts(),
        )
        return refuse_continuation(facts)

    def record(self, checked: GateCheck, **facts: Any) -> Decision:
        """The decision as it is stored, with additional facts."""
        candidate, verdicts = checked.candidate, checked.decision.verdicts
        decisive = checked.decision.decisive
        return Decision(
            id=self._ids.next(),
            thread_id=candidate.thread_id,
            kind="gates" if candidate.turn_id is None else "gates_before_showing",
            outcome=checked.decision.outcome.value,
            reasons=(checked.decision.reason, *(v.reason for v in verdicts)),
            facts={
                "trigger": candidate.trigger,
                "verdicts": {v.gate.value: v.outcome.value for v in verdicts},
                "until": _plain(checked.decision.until),
                "gate": decisive.gate.value if decisive else None,
                **{name: _plain(value) for name, value in asdict(checked.facts).items()},
                "quiet_hours": checked.preferences.own_quiet_hours,
                **facts,
            },
            timer_id=candidate.timer_id,
            turn_id=candidate.turn_id,
            decided_at=checked.facts.checked_at,
        )

    def _log(self, candidate: Candidate, decision: GateDecision) -> None:
        for verdict in decision.verdicts:
            count("gate_asked", gate=verdict.gate.value, outcome=verdict.outcome.value)
        log_event(
            logger,
            "follow_up_gated",
            "A follow-up of thread {thread_id} ({trigger_type}): {outcome}. {reason}",
            thread_id=candidate.thread_id,
            agent_id=candidate.agent_id,
            trigger_type=candidate.trigger,
            timer_id=candidate.timer_id,
            turn_id=candidate.turn_id,
            outcome=decision.outcome.value,
            reason=decision.reason,
        )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else value

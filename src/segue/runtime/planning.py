"""Follow-ups: planned after a reply, turned into a trigger message when their timer fires.

The plan of the rules is stored with the end of the turn. A model or custom decider runs later, as
an effect: off the user's path, and a crash does not lose it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

from langchain_core.messages import HumanMessage

from segue.core.autonomy.decide import Plan, judge
from segue.core.autonomy.local_time import after
from segue.core.autonomy.policy import next_delay
from segue.core.batch import Batch
from segue.core.messages import continuation_message, synthetic_message
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.triggers import choose_prompt
from segue.journal.records import Decision, NewEffect, NewTimer, Timer, Turn
from segue.runtime.deciders import DeciderResult
from segue.settings.agents import Autonomy
from segue.telemetry import log_event

logger = logging.getLogger(__name__)

DECIDE: Final = "decide"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a decider gets: a turn that ended, its batch and the batches before it."""

    turn: Turn
    batch: Batch
    earlier: Sequence[Batch]
    # The agent waits for an answer to its question.
    interrupted: bool
    # Follow-ups since the user last wrote, this one included.
    consecutive: int
    # None: just now.
    answered_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """What is stored of a plan: its timer, if there is one, and the decision."""

    timer: NewTimer | None
    decision: Decision

    @classmethod
    def of(
        cls,
        reply: Reply,
        result: DeciderResult,
        autonomy: Autonomy,
        ids: SnowflakeSource,
        now: datetime,
    ) -> Self:
        """The record of a decider's result. The delay counts from the reply, and doubles with each
        follow-up that was ignored.
        """
        turn = reply.turn
        timer = _timer_of(reply, result.plan, autonomy, now) if result.plan else None
        answered_at = reply.answered_at or now
        facts: dict[str, Any] = {
            "consecutive": reply.consecutive,
            "decider": _name(autonomy),
            "answered_at": answered_at.isoformat(),
        }
        if timer is not None and result.plan is not None:
            facts |= {
                "trigger": timer.trigger_type,
                "due_at": timer.due_at.isoformat(),
                "delay": (timer.due_at - answered_at).total_seconds(),
                # Before doubling and bounds: a replay under another policy starts from it.
                "chosen_delay": result.plan.delay.total_seconds(),
            }
        elif refusal(reply.consecutive, autonomy):
            facts["refused"] = True  # whatever the conversation
        if result.words is not None:
            facts["words"] = result.words
        decision = Decision(
            id=ids.next(),
            thread_id=turn.thread_id,
            kind="plan",
            outcome="follow_up" if timer else "nothing",
            reasons=(result.reason,),
            facts=facts,
            timer_id=None,
            turn_id=turn.id,
            decided_at=now,
        )
        log_event(
            logger,
            "follow_up_planned" if timer else "no_follow_up",
            "Thread {thread_id}, follow-up: {trigger_type}. {reason}",
            thread_id=turn.thread_id,
            agent_id=turn.agent_id,
            turn_id=turn.id,
            trigger_type=timer.trigger_type if timer else "none",
            due_at=timer.due_at.isoformat() if timer else None,
            reason=result.reason,
        )
        return cls(timer, decision)


def plan_by_rules(
    reply: Reply, autonomy: Autonomy, ids: SnowflakeSource, now: datetime
) -> PlanRecord:
    """The rules' plan after a reply."""
    if reason := refusal(reply.consecutive, autonomy):
        return PlanRecord.of(reply, DeciderResult(None, reason), autonomy, ids, now)
    sign = judge(reply.batch, reply.earlier, interrupted=reply.interrupted)
    result = DeciderResult(sign.plan(autonomy.delays), sign.reason)
    return PlanRecord.of(reply, result, autonomy, ids, now)


def refusal(consecutive: int, autonomy: Autonomy) -> str | None:
    """Why the policy allows no further follow-up, whatever the conversation; None if it does."""
    most = autonomy.policy.max_consecutive
    if not autonomy.enabled or not autonomy.policy.enabled:
        return "Follow-ups are disabled for this agent."
    if autonomy.decider == "none":
        return "Nothing decides about follow-ups of this agent."
    if consecutive >= most:
        return (
            f"{consecutive} of {most} follow-ups sent since the user last wrote; the user is next."
        )
    return None


def due_times(
    delay: timedelta, consecutive: int, autonomy: Autonomy, answered_at: datetime
) -> tuple[datetime, datetime | None]:
    """When a follow-up is due, and when it expires, if it does."""
    due_at = after(answered_at, next_delay(autonomy.policy, delay, consecutive))
    return due_at, after(due_at, autonomy.expires_after) if autonomy.expires_after else None


def decide_effect(turn: Turn, *, interrupted: bool) -> NewEffect:
    """Asks the agent's decider about a follow-up after this turn."""
    payload = {"turn": to_text(turn.id), "interrupted": interrupted}
    return NewEffect(DECIDE, payload, f"{DECIDE}:{to_text(turn.id)}")


@dataclass(frozen=True, slots=True)
class Trigger:
    """The message that asks the model to speak first, and which variant of the prompt it is."""

    message: HumanMessage
    variant: str | None


def build_trigger(timer: Timer, autonomy: Autonomy) -> Trigger | None:
    """The trigger of a due timer; None if the follow-up is held out.

    The choice follows from the thread's id: a thread stays in its arm while the weights stay, and
    a timer that is tried twice gets the same prompt.
    """
    trigger = timer.trigger_type or ""
    chosen = choose_prompt(autonomy.prompts, autonomy.holdout, trigger, timer.thread_id)
    if chosen is None:
        return None
    message = synthetic_message(trigger, timer.reason, chosen.text)
    return Trigger(_logged(timer, message), chosen.name)


def build_continuation(timer: Timer) -> HumanMessage:
    """The message that lets the agent continue its batch."""
    return _logged(timer, continuation_message(timer.reason))


def _logged(timer: Timer, message: HumanMessage) -> HumanMessage:
    """Log that a synthetic message was created: its metadata, not its text."""
    metadata = MessageMetadata.of(message)
    log_event(
        logger,
        "synthetic_message_created",
        "A synthetic message of thread {thread_id} was made ({trigger_type})",
        logging.DEBUG,
        thread_id=timer.thread_id,
        agent_id=timer.agent_id,
        timer_id=timer.id,
        synthetic=metadata.synthetic,
        trigger_type=metadata.trigger_type.value if metadata.trigger_type else timer.kind.value,
        trigger_reason=metadata.trigger_reason,
    )
    return message


def _timer_of(reply: Reply, plan: Plan, autonomy: Autonomy, now: datetime) -> NewTimer:
    answered_at = reply.answered_at or now
    due_at, expires_at = due_times(plan.delay, reply.consecutive, autonomy, answered_at)
    return NewTimer(
        thread_id=reply.turn.thread_id,
        due_at=due_at,
        trigger_type=plan.trigger.value,
        reason=plan.reason,
        expires_at=expires_at,
        missed=autonomy.missed,
        payload={"turn": to_text(reply.turn.id)},
    )


def _name(autonomy: Autonomy) -> str:
    """The decider's name, also of one given as a function or an object."""
    given = autonomy.decider
    if isinstance(given, str):
        return given
    made = given if hasattr(given, "__qualname__") else type(given)
    return f"{made.__module__}:{made.__qualname__}"

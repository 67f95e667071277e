"""Follow-ups: planned after a reply, turned into a message when their time has come.

The rules decide at once, and their plan is stored with the end of the turn. A model that decides
does so afterwards, off the user's path: as an effect, so that a crash does not lose the plan.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from langchain_core.messages import HumanMessage

from segue.agent.config import Autonomy
from segue.agent.decider import Verdict
from segue.core.batch import Batch
from segue.core.decide import Judgement, Plan, judge
from segue.core.messages import continuation_message, synthetic_message
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.policy import next_delay
from segue.core.prompts import choose_prompt
from segue.core.quiet import after
from segue.core.snowflake import SnowflakeSource, to_text
from segue.journal.records import Decision, NewEffect, NewTimer, Timer, Turn, TurnKind
from segue.noting import note

logger = logging.getLogger(__name__)

DECIDE: Final = "decide"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a decider goes by: a turn that ended, what was said in it and before it."""

    turn: Turn
    batch: Batch
    earlier: Sequence[Batch]
    # The agent waits for a person's answer.
    interrupted: bool
    # Follow-ups since the user last wrote, this one included.
    consecutive: int
    # When it was stored; None: just now.
    answered_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """What is stored of a plan: the timer, if there is one, and why."""

    timer: NewTimer | None
    decision: Decision

    @classmethod
    def of(
        cls,
        reply: Reply,
        verdict: Verdict,
        autonomy: Autonomy,
        ids: SnowflakeSource,
        now: datetime,
    ) -> Self:
        """The record of a decider's verdict. Silence is dated from the reply, and each follow-up
        that was ignored makes it longer.
        """
        turn = reply.turn
        timer = _timer_of(reply, verdict.plan, autonomy, now) if verdict.plan else None
        facts: dict[str, Any] = {
            "consecutive": reply.consecutive,
            "decider": _name(autonomy),
            "answered_at": (reply.answered_at or now).isoformat(),
        }
        if timer is not None and verdict.plan is not None:
            silence = timer.due_at - (reply.answered_at or now)
            facts |= {
                "trigger": timer.trigger_type,
                "due_at": timer.due_at.isoformat(),
                "delay": silence.total_seconds(),
                # Before it was doubled and bounded; a replay under another policy begins with it.
                "chosen_delay": verdict.plan.delay.total_seconds(),
            }
        elif refusal(reply.consecutive, autonomy):
            facts["refused"] = True  # without a look at what was said
        if verdict.words is not None:
            facts["words"] = verdict.words
        decision = Decision(
            id=ids.next(),
            thread_id=turn.thread_id,
            kind="plan",
            outcome="follow_up" if timer else "nothing",
            reasons=(verdict.reason,),
            facts=facts,
            timer_id=None,
            turn_id=turn.id,
            decided_at=now,
        )
        note(
            logger,
            "follow_up_planned" if timer else "no_follow_up",
            "Thread {thread_id}, follow-up: {trigger_type}. {reason}",
            thread_id=turn.thread_id,
            agent_id=turn.agent_id,
            turn_id=turn.id,
            trigger_type=timer.trigger_type if timer else "none",
            due_at=timer.due_at.isoformat() if timer else None,
            reason=verdict.reason,
        )
        return cls(timer, decision)


def plan_by_rules(reply: Reply, autonomy: Autonomy, ids: SnowflakeSource, now: datetime) -> Planned:
    """The follow-up that the rules want after a reply."""
    if reason := refusal(reply.consecutive, autonomy):
        return Planned.of(reply, Verdict(None, reason), autonomy, ids, now)
    judgement = judge(reply.batch, reply.earlier, interrupted=reply.interrupted)
    verdict = Verdict(_plan_of(judgement, autonomy), judgement.reason)
    return Planned.of(reply, verdict, autonomy, ids, now)


def refusal(consecutive: int, autonomy: Autonomy) -> str | None:
    """Why nothing is planned after so many follow-ups, whatever was said."""
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


def later_decision(turn: Turn, *, interrupted: bool) -> NewEffect:
    """The wish to have a model decide about a follow-up after this turn."""
    payload = {"turn": to_text(turn.id), "interrupted": interrupted}
    return NewEffect(DECIDE, payload, f"{DECIDE}:{to_text(turn.id)}")


def message_for(timer: Timer, autonomy: Autonomy) -> tuple[HumanMessage, str | None] | None:
    """What a due timer says to the model, and the variant's name; None for one held out.

    The choice follows from the thread, so that a thread stays in its arm while the weights stay,
    and a timer that is tried twice says the same.
    """
    if timer.kind is TurnKind.CONTINUATION:
        return _noted(timer, continuation_message(timer.reason)), None
    trigger = timer.trigger_type or ""
    chosen = choose_prompt(autonomy.prompts, autonomy.holdout, trigger, timer.thread_id)
    if chosen is None:
        return None
    message = _noted(timer, synthetic_message(trigger, timer.reason, chosen.text))
    return message, chosen.variant


def _noted(timer: Timer, message: HumanMessage) -> HumanMessage:
    """The message, once its making is logged: its metadata, and none of its words."""
    metadata = MessageMetadata.of(message)
    note(
        logger,
        "synthetic_message_created",
        "A synthetic message of thread {thread_id} was made ({trigger_type})",
        logging.DEBUG,
        thread_id=timer.thread_id,
        agent_id=timer.agent_id,
        timer_id=timer.id,
        synthetic=is_synthetic(message),
        trigger_type=metadata.trigger_type.value if metadata.trigger_type else timer.kind.value,
        trigger_reason=metadata.trigger_reason,
    )
    return message


def _timer_of(reply: Reply, plan: Plan, autonomy: Autonomy, now: datetime) -> NewTimer:
    silence = next_delay(autonomy.policy, plan.delay, reply.consecutive)
    due_at = after(reply.answered_at or now, silence)
    return NewTimer(
        thread_id=reply.turn.thread_id,
        due_at=due_at,
        trigger_type=plan.trigger.value,
        reason=plan.reason,
        expires_at=after(due_at, autonomy.expires_after) if autonomy.expires_after else None,
        missed=autonomy.missed,
        payload={"turn": to_text(reply.turn.id)},
    )


def _plan_of(judgement: Judgement, autonomy: Autonomy) -> Plan | None:
    if judgement.trigger is None:
        return None
    delay = autonomy.delays.of(judgement.trigger)
    return Plan(judgement.trigger, delay, judgement.reason)


def _name(autonomy: Autonomy) -> str:
    """The decider as a config names it, also where it was given as a function or an object."""
    given = autonomy.decider
    if isinstance(given, str):
        return given
    made = given if hasattr(given, "__qualname__") else type(given)
    return f"{made.__module__}:{made.__qualname__}"

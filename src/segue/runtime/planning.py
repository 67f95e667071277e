"""Plans for follow-ups after a reply: by the rules, by a model, or by a custom decider.

The plan of the rules is stored with the end of the turn. A model or custom decider runs later, as
an effect: off the user's path, and a crash does not lose it. A custom decider's errors and invalid
results become "no follow-up". Its texts are recorded for operators; users read Segue's own reasons.
"""

import asyncio
import inspect
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from segue.core.autonomy.decide import Plan, judge
from segue.core.autonomy.gates import Gate
from segue.core.autonomy.local_time import after
from segue.core.autonomy.policy import next_delay
from segue.core.batch import Batch
from segue.core.messages import check_request
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.text import storable
from segue.core.triggers import parse_trigger
from segue.errors import UsageError
from segue.journal.records import Decision, Ending, NewTimer, Turn
from segue.runtime.deps import log_about
from segue.runtime.model_failures import describe_fault
from segue.settings.agents import Autonomy

logger = logging.getLogger(__name__)

_MAX_WORDS: Final = 500
_TIME_LIMIT: Final = timedelta(seconds=20)


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
    # Silence counts from here.
    answered_at: datetime


@dataclass(frozen=True, slots=True)
class DeciderResult:
    """The plan, or None for no follow-up, and Segue's own reason.

    `words` is the decider's text: untrusted, shown to operators, never given to a model.
    """

    plan: Plan | None
    reason: str
    words: str | None = None


class Decider(Protocol):
    """Decides after a reply whether to plan a follow-up. Raises nothing."""

    async def decide(
        self,
        batch: Batch,
        earlier: Sequence[Batch] = (),
        *,
        interrupted: bool = False,
        consecutive: int = 0,
    ) -> DeciderResult: ...


class Refusal(NamedTuple):
    """A reason to refuse every plan in any conversation: a gate, or a missing decider."""

    gate: str
    reason: str


def refusal(consecutive: int, autonomy: Autonomy) -> Refusal | None:
    """Why the settings allow no further follow-up; None if they do."""
    most = autonomy.policy.max_consecutive
    if not autonomy.is_on:
        return Refusal(Gate.ENABLED, "Follow-ups are disabled for this agent.")
    if autonomy.decider == "none":
        return Refusal("decider", "This agent has no decider for follow-ups.")
    if consecutive >= most:
        count = f"{consecutive} of {most} follow-ups sent since the user last wrote"
        return Refusal(Gate.CONSECUTIVE_CAP, f"{count}; the user is next.")
    return None


def plan_by_rules(reply: Reply, autonomy: Autonomy) -> DeciderResult:
    if refused := refusal(reply.consecutive, autonomy):
        return DeciderResult(None, refused.reason)
    sign = judge(reply.batch, reply.earlier, interrupted=reply.interrupted)
    return DeciderResult(sign.plan(autonomy.delays), sign.reason)


def record_plan(
    reply: Reply, result: DeciderResult, autonomy: Autonomy, ids: SnowflakeSource, now: datetime
) -> Ending:
    """The timer of a plan, if there is one, and the decision."""
    turn, timers = reply.turn, list[NewTimer]()
    facts: dict[str, Any] = {
        "consecutive": reply.consecutive,
        "decider": _name(autonomy),
        "answered_at": reply.answered_at.isoformat(),
    }
    if result.plan is not None:
        timer = _timer_of(reply, result.plan, autonomy)
        timers.append(timer)
        facts |= {
            "trigger": timer.trigger_type,
            "due_at": timer.due_at.isoformat(),
            "delay": (timer.due_at - reply.answered_at).total_seconds(),
            # Before doubling and bounds: a replay under another policy starts from it.
            "chosen_delay": result.plan.delay.total_seconds(),
        }
    elif refusal(reply.consecutive, autonomy):
        facts["refused"] = True  # regardless of the conversation
    if result.words is not None:
        facts["words"] = result.words
    log_about(
        logger,
        turn,
        "follow_up_planned" if timers else "no_follow_up",
        "Thread {thread_id}, follow-up: {trigger_type}. {reason}",
        trigger_type=facts.get("trigger", "none"),
        due_at=facts.get("due_at"),
        reason=result.reason,
    )
    outcome = "follow_up" if timers else "nothing"
    decision = Decision(
        ids.next(), turn.thread_id, "plan", outcome, (result.reason,), facts, None, turn.id, now
    )
    return Ending(timers=timers, decisions=[decision])


def due_times(
    delay: timedelta, consecutive: int, autonomy: Autonomy, answered_at: datetime
) -> tuple[datetime, datetime | None]:
    """When a follow-up is due and when it expires, if it does; ignored ones double the delay."""
    due_at = after(answered_at, next_delay(autonomy.policy, delay, consecutive))
    return due_at, after(due_at, autonomy.expires_after) if autonomy.expires_after else None


def _timer_of(reply: Reply, plan: Plan, autonomy: Autonomy) -> NewTimer:
    due_at, expires_at = due_times(plan.delay, reply.consecutive, autonomy, reply.answered_at)
    own = {"prompt": plan.prompt, "data": plan.data}
    return NewTimer(
        thread_id=reply.turn.thread_id,
        due_at=due_at,
        trigger_type=str(plan.trigger),
        reason=plan.reason,
        expires_at=expires_at,
        missed=autonomy.missed,
        payload={
            "turn": to_text(reply.turn.id),
            **{name: value for name, value in own.items() if value is not None},
        },
    )


def _name(autonomy: Autonomy) -> str:
    """The decider's name, also of one given as a function or an object."""
    given = autonomy.decider
    if isinstance(given, str):
        return given
    made = given if hasattr(given, "__qualname__") else type(given)
    return f"{made.__module__}:{made.__qualname__}"


class CustomDecider:
    """Calls a function or an object with `decide`, async or not, with a time limit.

    It gets what `Decider.decide` gets, and returns a `DeciderResult`, a `Plan` or None.
    """

    def __init__(
        self,
        loaded: Any,
        whose: str,
        *,
        triggers: Collection[str] = (),
        time_limit: timedelta = _TIME_LIMIT,
    ) -> None:
        ask = getattr(loaded, "decide", loaded)
        if inspect.isclass(loaded) or not callable(ask):
            raise UsageError(
                f"{whose} is {loaded!r:.80}; expected a function, or an object with `decide`."
            )
        self._ask = ask
        # The owner's, besides the four.
        self._triggers = triggers
        self._time_limit = time_limit

    async def decide(
        self,
        batch: Batch,
        earlier: Sequence[Batch] = (),
        *,
        interrupted: bool = False,
        consecutive: int = 0,
    ) -> DeciderResult:
        facts = {"interrupted": interrupted, "consecutive": consecutive}
        try:
            async with asyncio.timeout(self._time_limit.total_seconds()):
                return self._checked(await self._answer(batch, earlier, facts))
        except Exception as error:  # any error means no follow-up, and says so
            # Not the error's text: it may quote the conversation.
            logger.warning(
                "No follow-up is planned after batch %s: the agent's own decider failed: %s",
                batch.id,
                describe_fault(error),
            )
            logger.debug("The decider's error after batch %s", batch.id, exc_info=error)
            reason = f"The agent's own decider failed: {type(error).__name__}."
            return DeciderResult(None, reason)

    async def _answer(self, batch: Batch, earlier: Sequence[Batch], facts: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._ask):
            return await self._ask(batch, earlier, **facts)
        # In a thread: it may block.
        answer = await asyncio.to_thread(self._ask, batch, earlier, **facts)
        return await answer if inspect.isawaitable(answer) else answer

    def _checked(self, answer: Any) -> DeciderResult:
        """The result with Segue's own reasons; `UsageError` for an invalid one."""
        result = DeciderResult(answer, answer.reason) if isinstance(answer, Plan) else answer
        if result is None:
            result = DeciderResult(None, "")
        if not isinstance(result, DeciderResult):
            raise UsageError(
                f"A decider returns a DeciderResult, a Plan or None, not {type(answer).__name__}."
            )
        words, plan = _words(result), result.plan
        if plan is None:
            return DeciderResult(None, "The agent's own decider wants no follow-up.", words)
        if plan.trigger not in self._triggers:
            parse_trigger(plan.trigger)
        if not isinstance(plan.delay, timedelta):
            raise UsageError(f"A plan's delay is a timedelta, not {type(plan.delay).__name__}.")
        check_request(plan.prompt, plan.data)
        reason = f"The agent's own decider chose {plan.trigger}."
        return DeciderResult(replace(plan, reason=reason), reason, words)


def _words(result: DeciderResult) -> str | None:
    """All texts of the decider, for the record."""
    plan = result.plan
    texts = dict.fromkeys([result.reason, plan.reason if plan else "", result.words])
    return storable(" ".join(str(text) for text in texts if text))[:_MAX_WORDS] or None

"""Who decides about follow-ups besides the rules: a model, or a decider of the owner's own.

The owner's is held to the terms of the model: whatever it raises or returns there is a verdict,
and its words are kept for operators, beside reasons of ours that anybody may read.
"""

import asyncio
import inspect
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from segue.agent.decider import Verdict
from segue.agent.faults import describe_fault
from segue.core.batch import Batch
from segue.core.decide import Plan
from segue.core.errors import UsageError
from segue.core.plain import storable
from segue.core.triggers import parse_trigger

logger = logging.getLogger(__name__)

_MAX_WORDS: Final = 500
_TIME_LIMIT: Final = timedelta(seconds=20)


class Decider(Protocol):
    """Says after a reply whether a follow-up is worth planning. Raises nothing."""

    async def decide(
        self,
        batch: Batch,
        earlier: Sequence[Batch] = (),
        *,
        interrupted: bool = False,
        consecutive: int = 0,
    ) -> Verdict: ...


class OwnDecider:
    """A decider that somebody wrote: a function or an object with `decide`, async or not.

    It gets what `Decider.decide` gets, and gives a `Verdict`, a `Plan`, or None for no follow-up.
    """

    def __init__(self, loaded: Any, whose: str, *, time_limit: timedelta = _TIME_LIMIT) -> None:
        ask = getattr(loaded, "decide", loaded)
        if inspect.isclass(loaded) or not callable(ask):
            raise UsageError(
                f"{whose} is {loaded!r:.80}; expected a function, or an object with `decide`."
            )
        self._ask = ask
        self._time_limit = time_limit

    async def decide(
        self,
        batch: Batch,
        earlier: Sequence[Batch] = (),
        *,
        interrupted: bool = False,
        consecutive: int = 0,
    ) -> Verdict:
        facts = {"interrupted": interrupted, "consecutive": consecutive}
        try:
            async with asyncio.timeout(self._time_limit.total_seconds()):
                return _verdict(await self._answer(batch, earlier, facts))
        except Exception as error:  # any error means no follow-up, and says so
            reason = f"The agent's own decider failed: {type(error).__name__}."
            # Not the error's text: it may quote the conversation.
            logger.warning(
                "No follow-up is planned after batch %s: the agent's own decider failed: %s",
                batch.id,
                describe_fault(error),
            )
            logger.debug("The decider's error after batch %s", batch.id, exc_info=error)
            return Verdict(None, reason)

    async def _answer(self, batch: Batch, earlier: Sequence[Batch], facts: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._ask):
            return await self._ask(batch, earlier, **facts)
        # It may wait for something, and everybody else would wait with it.
        said = await asyncio.to_thread(self._ask, batch, earlier, **facts)
        return await said if inspect.isawaitable(said) else said


def _verdict(said: Any) -> Verdict:
    """What was decided, in reasons of ours; `UsageError` for what is no decision."""
    verdict = Verdict(said, said.reason) if isinstance(said, Plan) else said
    if verdict is None:
        verdict = Verdict(None, "")
    if not isinstance(verdict, Verdict):
        raise UsageError(f"A decider gives a Verdict, a Plan or None, not {type(said).__name__}.")
    words = _words(verdict)
    if verdict.plan is None:
        return Verdict(None, "The agent's own decider wants no follow-up.", words)
    trigger, delay = parse_trigger(verdict.plan.trigger), verdict.plan.delay
    if not isinstance(delay, timedelta):
        raise UsageError(f"A plan's delay is a timedelta, not {type(delay).__name__}.")
    reason = f"The agent's own decider chose {trigger.value}."
    return Verdict(Plan(trigger, delay, reason), reason, words)


def _words(verdict: Verdict) -> str | None:
    """All that it said, for the record."""
    plan = verdict.plan
    said = dict.fromkeys([verdict.reason, plan.reason if plan else "", verdict.words])
    return storable(" ".join(str(words) for words in said if words))[:_MAX_WORDS] or None

"""Custom deciders about follow-ups, and what any decider returns.

A custom decider's errors and invalid results become "no follow-up". Its texts are recorded for
operators; users read Segue's own reasons.
"""

import asyncio
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from segue.core.autonomy.decide import Plan
from segue.core.batch import Batch
from segue.core.text import storable
from segue.core.triggers import parse_trigger
from segue.errors import UsageError
from segue.runtime.model_failures import describe_fault

logger = logging.getLogger(__name__)

_MAX_WORDS: Final = 500
_TIME_LIMIT: Final = timedelta(seconds=20)


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


class CustomDecider:
    """Calls a function or an object with `decide`, async or not, with a time limit.

    It gets what `Decider.decide` gets, and returns a `DeciderResult`, a `Plan` or None.
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
    ) -> DeciderResult:
        facts = {"interrupted": interrupted, "consecutive": consecutive}
        try:
            async with asyncio.timeout(self._time_limit.total_seconds()):
                return _checked(await self._answer(batch, earlier, facts))
        except Exception as error:  # any error means no follow-up, and says so
            reason = f"The agent's own decider failed: {type(error).__name__}."
            # Not the error's text: it may quote the conversation.
            logger.warning(
                "No follow-up is planned after batch %s: the agent's own decider failed: %s",
                batch.id,
                describe_fault(error),
            )
            logger.debug("The decider's error after batch %s", batch.id, exc_info=error)
            return DeciderResult(None, reason)

    async def _answer(self, batch: Batch, earlier: Sequence[Batch], facts: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._ask):
            return await self._ask(batch, earlier, **facts)
        # In a thread: it may block.
        answer = await asyncio.to_thread(self._ask, batch, earlier, **facts)
        return await answer if inspect.isawaitable(answer) else answer


def _checked(answer: Any) -> DeciderResult:
    """The result with Segue's own reasons; `UsageError` for an invalid one."""
    result = DeciderResult(answer, answer.reason) if isinstance(answer, Plan) else answer
    if result is None:
        result = DeciderResult(None, "")
    if not isinstance(result, DeciderResult):
        raise UsageError(
            f"A decider returns a DeciderResult, a Plan or None, not {type(answer).__name__}."
        )
    words = _words(result)
    if result.plan is None:
        return DeciderResult(None, "The agent's own decider wants no follow-up.", words)
    trigger, delay = parse_trigger(result.plan.trigger), result.plan.delay
    if not isinstance(delay, timedelta):
        raise UsageError(f"A plan's delay is a timedelta, not {type(delay).__name__}.")
    reason = f"The agent's own decider chose {trigger.value}."
    return DeciderResult(Plan(trigger, delay, reason), reason, words)


def _words(result: DeciderResult) -> str | None:
    """All texts of the decider, for the record."""
    plan = result.plan
    texts = dict.fromkeys([result.reason, plan.reason if plan else "", result.words])
    return storable(" ".join(str(text) for text in texts if text))[:_MAX_WORDS] or None

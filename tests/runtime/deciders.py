"""Deciders that an agent's config can name, in all the shapes that people may give them."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from segue.core.autonomy.decide import Plan
from segue.core.batch import Batch
from segue.core.triggers import TriggerType
from segue.runtime.planning import DeciderResult

DELAY = timedelta(minutes=15)
WORDS = "She sounded sad about the cat."
YES = Plan(TriggerType.TASK_INCOMPLETE, DELAY, WORDS)

asked: list[dict[str, Any]] = []


def plain(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> DeciderResult:
    asked.append({"batch": batch, "earlier": earlier, **facts})
    return DeciderResult(YES, WORDS)


async def waiting(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> DeciderResult:
    await asyncio.sleep(0)
    return plain(batch, earlier, **facts)


def plan_only(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> Plan:
    del batch, earlier, facts
    return YES


class Thoughtful:
    async def decide(self, batch: Batch, earlier: Sequence[Batch], **facts: Any) -> DeciderResult:
        return plain(batch, earlier, **facts)


thoughtful = Thoughtful()


class Callable:
    async def __call__(self, batch: Batch, earlier: Sequence[Batch], **facts: Any) -> DeciderResult:
        return plain(batch, earlier, **facts)


callable_object = Callable()


def nothing(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> None:
    del batch, earlier, facts


def verdict_against(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> DeciderResult:
    del batch, earlier, facts
    return DeciderResult(None, WORDS)


def raising(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> DeciderResult:
    del batch, earlier, facts
    raise ValueError(WORDS)


async def raising_later(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> DeciderResult:
    await asyncio.sleep(0)
    return raising(batch, earlier, **facts)


def nonsense(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> str:
    del batch, earlier, facts
    return WORDS


def odd_trigger(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> Plan:
    del batch, earlier, facts
    return Plan("hug", DELAY, WORDS)


def odd_delay(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> Plan:
    del batch, earlier, facts
    return Plan(TriggerType.CHECK_IN, 900, WORDS)  # type: ignore[arg-type]  # the same


def no_arguments() -> None:
    """Cannot be asked anything."""


async def for_ever(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> None:
    del batch, earlier, facts
    await asyncio.Event().wait()


NO_DECIDER = 5

"""Compression: which whole batches leave a window that has grown too long.

The unit is a complete batch, all of it or nothing. The current batch, the last few before it and
every unfinished one stay; an unfinished one never stands in the way of the others. What the words
of those that leave become is `segue.core.transcript`'s; archiving them is the journal's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from segue.core.batch import Batch
from segue.core.importance import importances


class Strategy(StrEnum):
    """Who leaves first, and whether their words go into the summary."""

    TRUNCATE = "truncate"
    SUMMARISE = "summarise"
    IMPORTANCE = "importance"
    TIME_DECAY = "time_decay"


@dataclass(frozen=True, slots=True)
class Aim:
    """How much may stay, how it is reached, and how many batches are safe in any case.

    With `time_decay`, a batch that is `half_life` old counts half as much as a new one.
    """

    strategy: Strategy
    max_tokens: int
    keep: int = 4
    half_life: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Choice:
    """The complete batches that leave and those that stay, oldest first, and what these cost."""

    leaving: list[Batch]
    staying: list[Batch]
    tokens: int


def choose_batches(
    batches: Iterable[Batch],
    aim: Aim,
    *,
    now: datetime,
    current: int | None = None,
) -> Choice:
    """Say which batches of a window leave, until the rest is within the aim or nothing may leave.

    Batches come in any order. With a current batch, it and all after it stay, and the last `keep`
    complete ones before it; without one, the last `keep` complete ones. The oldest leave first, or
    the least important; of equals, the oldest.
    """
    complete = sorted((b for b in batches if b.is_complete), key=lambda batch: batch.id)
    earlier = [b for b in complete if current is None or b.id < current]
    free = earlier[: max(len(earlier) - aim.keep, 0)]
    tokens = sum(batch.tokens for batch in complete)
    leaving: set[int] = set()
    for batch in _in_order_of_leaving(free, complete, aim, now):
        if tokens <= aim.max_tokens:
            break
        leaving.add(batch.id)
        tokens -= batch.tokens
    return Choice(
        leaving=[b for b in complete if b.id in leaving],
        staying=[b for b in complete if b.id not in leaving],
        tokens=tokens,
    )


def _in_order_of_leaving(
    free: Sequence[Batch], complete: Sequence[Batch], aim: Aim, now: datetime
) -> list[Batch]:
    if aim.strategy in (Strategy.TRUNCATE, Strategy.SUMMARISE):
        return list(free)
    # Of all: those that stay may cite the others.
    weights = importances(complete)
    if aim.strategy is Strategy.TIME_DECAY:
        weights = {b.id: weights[b.id] * _freshness(b, aim.half_life, now) for b in free}
    return sorted(free, key=lambda batch: weights[batch.id])


def _freshness(batch: Batch, half_life: timedelta, now: datetime) -> float:
    age = max(now - batch.last_activity_at, timedelta(0))
    return float(0.5 ** (age / half_life))

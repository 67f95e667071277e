"""Compression: which whole batches leave a window that has grown too long.

The unit is a complete batch. The current batch, the last `keep` before it and every unfinished one
stay; an unfinished one does not block the others. `segue.core.transcript` writes down what the
leaving batches said; the journal archives them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue.core.batch import Batch
from segue.core.memory import indexed_words
from segue.core.messages import spoken_text, visible_messages
from segue.core.metadata import is_synthetic
from segue.core.speech.acts import Act, acts_of
from segue.core.speech.sentences import is_question, sentences_of

# Points of a batch's importance; they add up to 10.
_USER_WROTE: Final = 3.0
_USER_ASKED: Final = 1.0
_DECIDED: Final = 2.0
_TOOL_ANSWERED: Final = 1.0
_LENGTH: Final = 1.0
_CITED: Final = 2.0

_LONG: Final = 1_200  # characters
_DECISIONS: Final = frozenset({Act.PROPOSES, Act.PROMISES, Act.REPORTS, Act.FAILS})


class Strategy(StrEnum):
    """Which batches leave first, and whether the summary covers them."""

    TRUNCATE = "truncate"
    SUMMARISE = "summarise"
    IMPORTANCE = "importance"
    TIME_DECAY = "time_decay"


@dataclass(frozen=True, slots=True)
class CompressionTarget:
    """How many tokens may stay, which batches leave, and how many of the last ones never do.

    With `time_decay`, a batch that is `half_life` old counts half as much as a new one.
    """

    strategy: Strategy
    max_tokens: int
    keep: int = 4
    half_life: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Choice:
    """The complete batches that leave and those that stay, oldest first; `tokens` stay."""

    leaving: list[Batch]
    staying: list[Batch]
    tokens: int


def choose_batches(
    batches: Iterable[Batch],
    target: CompressionTarget,
    *,
    now: datetime,
    current: int | None = None,
) -> Choice:
    """Choose batches to leave until the rest is within the target or no more may leave.

    Batches come in any order. With a current batch, it and all after it stay, and the last `keep`
    complete ones before it; without one, the last `keep` complete ones. The oldest leave first, or
    the least important; of equals, the oldest.
    """
    complete = sorted((b for b in batches if b.is_complete), key=lambda batch: batch.id)
    earlier = [b for b in complete if current is None or b.id < current]
    free = earlier[: max(len(earlier) - target.keep, 0)]
    tokens = sum(batch.tokens for batch in complete)
    leaving: set[int] = set()
    for batch in _in_order_of_leaving(free, complete, target, now):
        if tokens <= target.max_tokens:
            break
        leaving.add(batch.id)
        tokens -= batch.tokens
    return Choice(
        leaving=[b for b in complete if b.id in leaving],
        staying=[b for b in complete if b.id not in leaving],
        tokens=tokens,
    )


def _in_order_of_leaving(
    free: Sequence[Batch], complete: Sequence[Batch], target: CompressionTarget, now: datetime
) -> list[Batch]:
    if target.strategy in (Strategy.TRUNCATE, Strategy.SUMMARISE):
        return list(free)
    # All count: batches that stay may cite the others.
    weights = importances(complete)
    if target.strategy is Strategy.TIME_DECAY:
        weights = {b.id: weights[b.id] * _freshness(b, target.half_life, now) for b in free}
    return sorted(free, key=lambda batch: weights[batch.id])


def _freshness(batch: Batch, half_life: timedelta, now: datetime) -> float:
    age = max(now - batch.last_activity_at, timedelta(0))
    return float(0.5 ** (age / half_life))


def importances(batches: Sequence[Batch]) -> dict[int, float]:
    """The importance of each batch, from 0 to 10, by batch id."""
    ordered = sorted(batches, key=lambda batch: batch.id)
    shown = {batch.id: visible_messages(batch.messages) for batch in ordered}
    words = {batch: _words(messages) for batch, messages in shown.items()}
    counts = Counter(chain.from_iterable(words.values()))
    everywhere = {word for word, count in counts.items() if count > max(len(ordered) / 2, 2)}
    later: set[str] = set()
    weights = {}
    for batch in reversed(ordered):
        own = words[batch.id] - everywhere
        cited = len(own & later) / len(own) if own else 0.0
        weights[batch.id] = _own_points(batch, shown[batch.id]) + _CITED * cited
        later |= own
    return weights


def _words(messages: Sequence[BaseMessage]) -> set[str]:
    return {word for message in messages for word in indexed_words(spoken_text(message))}


def _own_points(batch: Batch, shown: Sequence[BaseMessage]) -> float:
    users = [m for m in shown if isinstance(m, HumanMessage)]
    asks = any(is_question(s) for m in users for s in sentences_of(spoken_text(m)))
    replies = [spoken_text(m) for m in shown if isinstance(m, AIMessage)]
    decides = any(acts & _DECISIONS for text in replies for acts in acts_of(text))
    results = [exchange.result for exchange in batch.pairing.exchanges]
    length = sum(len(spoken_text(message)) for message in shown)
    return (
        _USER_WROTE * bool(users)
        + _USER_ASKED * asks
        + _DECIDED * decides
        + _TOOL_ANSWERED * any(r is not None and not is_synthetic(r) for r in results)
        + _LENGTH * min(length / _LONG, 1.0)
    )

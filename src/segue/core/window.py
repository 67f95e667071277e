"""The window: batches as the model gets them, from the newest backwards until one does not fit.

A whole batch or none of it, but for the last exchange: the newest batches back to a person's
message and a reply. Without it a follow-up would refer to nothing, so what is too long in it is
cut. The context puts the batches in and sends what is here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from segue.core.batch import Batch
from segue.core.calls import has_content
from segue.core.messages import synthetic_message
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.request import tidied, with_calls_joined
from segue.core.settle import with_open_calls_answered
from segue.core.shorten import View, shorten
from segue.core.triggers import TriggerType

TokenCounter = Callable[[BaseMessage], int]

# The last exchange is looked for in this many complete batches.
_REACH: Final = 16


class DropReason(StrEnum):
    INCOMPLETE = "incomplete"
    OVER_BUDGET = "over_budget"
    LATER = "later"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A batch that the model does not get, and why."""

    batch: int
    reason: DropReason
    detail: str


@dataclass(frozen=True, slots=True)
class Shortened:
    """A batch that the model gets in part, why, and what was done to it."""

    batch: int
    detail: str


class Exchange:
    """The newest complete batches, back to a person's message and a reply."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._has_message = False
        self._has_reply = False

    @property
    def is_found(self) -> bool:
        return (self._has_message and self._has_reply) or len(self.batches) == _REACH

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        said = [message for message in batch.messages if not is_synthetic(message)]
        self._has_message |= any(isinstance(m, HumanMessage) for m in said)
        self._has_reply |= any(isinstance(m, AIMessage) and has_content(m) for m in said)


def has_exchange(newest_first: Iterable[Batch]) -> bool:
    """Whether batches reach back to the last exchange."""
    exchange = Exchange()
    for batch in newest_first:
        if batch.is_complete:
            exchange.add(batch)
        if exchange.is_found:
            return True
    return False


@dataclass(slots=True)
class Window:
    """The batches that are in, newest first, and what is said of the others."""

    count_tokens: TokenCounter
    room: int | None
    tokens: int
    is_full: bool = False
    batches: list[int] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    shortened: list[Shortened] = field(default_factory=list)
    _exchange: Exchange = field(default_factory=Exchange)
    _is_exchange_in: bool = False
    _is_follow_up: bool = False

    def take(self, batch: Batch, *, is_current: bool) -> None:
        """Put the next older batch in; one of the last exchange waits for the rest of it."""
        if is_current:
            self._is_follow_up = not any(map(_is_of_a_person, batch.messages))
            self._put(batch, _view(batch, is_current))
        elif not batch.is_complete:
            self.dropped.append(Dropped(batch.id, DropReason.INCOMPLETE, " ".join(batch.reasons)))
        elif not self._is_exchange_in:
            self._exchange.add(batch)
            if self._exchange.is_found:
                self.close_exchange()
        elif self._fits(cost := self._cost(view := _view(batch, is_current))):
            self._put(batch, view)
        else:
            self._drop(batch, cost)

    def close_exchange(self) -> None:
        """Put the last exchange in, as far back as there are batches: whole or cut."""
        if self._is_exchange_in:
            return
        self._is_exchange_in = True
        batches = self._exchange.batches
        views = [_view(batch, False) for batch in batches]
        costs = [*map(self._cost, views)]
        if self.room is None or self._fits(sum(costs)):
            for batch, view in zip(batches, views, strict=True):
                self._put(batch, view)
            return
        left = self.room - self.tokens
        told = shorten(views, left, self._cost)
        if told.tokens > left and not self._is_follow_up:
            told = shorten(views[: self._fitting(told.views)], left, self._cost)
        for batch, whole, view, cost in zip(batches, views, told.views, costs, strict=False):
            self._put(batch, view)
            if view != whole:
                detail = f"Needs about {cost} tokens, {max(left, 0)} were left. {told.how}"
                self.shortened.append(Shortened(batch.id, detail))
        self.is_full = True
        for batch, cost in [*zip(batches, costs, strict=True)][len(told.views) :]:
            self._drop(batch, cost)

    def _fitting(self, views: list[View]) -> int:
        """How many of the newest views fit together."""
        tokens = [sum(map(self._cost, views[: n + 1])) for n in range(len(views))]
        return sum(map(self._fits, tokens))

    def _cost(self, view: View) -> int:
        return sum(map(self.count_tokens, view))

    def _fits(self, cost: int) -> bool:
        return self.room is None or self.tokens + cost <= self.room

    def _put(self, batch: Batch, view: View) -> None:
        self.tokens += self._cost(view)
        self.views.append(view)
        self.batches.append(batch.id)

    def _drop(self, batch: Batch, cost: int) -> None:
        left = max((self.room or 0) - self.tokens, 0)
        detail = f"Needs about {cost} tokens, {left} are left."
        self.dropped.append(Dropped(batch.id, DropReason.OVER_BUDGET, detail))
        self.is_full = True


def _is_of_a_person(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and not is_synthetic(message)


def _view(batch: Batch, is_current: bool) -> list[BaseMessage]:
    """One batch as the model gets it, independent of the batches around it.

    A reply nobody asked for (the agent's greeting, a system-initiated batch) gets a trigger's
    words in front: a conversation starts with, and answers to, a human message everywhere.
    """
    source = with_open_calls_answered(batch) if is_current else batch
    tidy = [tidied(message, is_current=is_current) for message in source.arranged]
    # System messages move to the front of the request, so they separate nothing here.
    instructions = [m for m in tidy if isinstance(m, SystemMessage)]
    spoken = with_calls_joined(m for m in tidy if not isinstance(m, SystemMessage))
    if not spoken or isinstance(spoken[0], AIMessage):
        spoken = [_opener(batch), *spoken]
    return [*instructions, *spoken]


def _opener(batch: Batch) -> HumanMessage:
    metadata = MessageMetadata(
        synthetic=True,
        trigger_type=TriggerType.CHECK_IN,
        position=max(batch.id - 1, 1),
        batch=batch.id,
        sequence_num=0,
        batch_type=batch.type,
        parent_batch=batch.parent,
    )
    return metadata.onto(synthetic_message(TriggerType.CHECK_IN))

"""The window: batches in the form the model gets them, newest first, until one does not fit.

A whole batch or none of it, except for the last exchange: the newest batches back to a person's
message and a reply. Without it a follow-up would have nothing to refer to, so its long texts are
cut to fit. `segue.core.context` fills the window and sends what is in it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from segue.core.batch import Batch, with_open_calls_answered
from segue.core.calls import calls_of, has_content, is_of_type
from segue.core.media import name_of
from segue.core.messages import synthetic_message, visible_messages
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.request import clean_message, with_calls_joined
from segue.core.text import cut_text
from segue.core.tokens import BYTES_PER_TOKEN, estimate_block, estimate_tokens
from segue.core.triggers import TriggerType

View = list[BaseMessage]
TokenCounter = Callable[[BaseMessage], int]

# The last exchange is looked for in this many whole batches.
_EXCHANGE_REACH: Final = 16
# Lengths in characters: 1,572,864, 1,048,576 and so on down to 96 and 64. Fixed steps: while a turn
# goes on and its room shrinks a little, the same bytes are sent again, and prompt caches hit.
_LENGTHS: Final = tuple(n for k in range(20, 5, -1) for n in (3 << (k - 1), 1 << k))
# Below this length, tool calls are dropped before texts are cut further.
_LEAST_WITH_TOOLS: Final = 256
_TEXT_BLOCKS: Final = frozenset({"text", "text-plain"})


class DropReason(StrEnum):
    INCOMPLETE = "incomplete"
    OVER_BUDGET = "over_budget"
    LATER = "later"


@dataclass(frozen=True, slots=True)
class Dropped:
    batch: int
    reason: DropReason
    detail: str


@dataclass(frozen=True, slots=True)
class Shortened:
    """A batch whose texts were cut to fit, why and how."""

    batch: int
    detail: str


def has_exchange(newest_first: Iterable[Batch]) -> bool:
    """Whether the batches reach back to the last exchange."""
    whole: list[Batch] = []
    for batch in newest_first:
        if batch.is_whole:
            whole.append(batch)
            if _is_exchange(whole):
                return True
    return False


def _is_exchange(whole: Sequence[Batch]) -> bool:
    """Whether they hold a person's message and a reply, or are as many as are searched."""
    shown = [m for batch in whole for m in visible_messages(batch.messages)]
    has_message = any(isinstance(m, HumanMessage) for m in shown)
    has_reply = any(isinstance(m, AIMessage) for m in shown)
    return (has_message and has_reply) or len(whole) == _EXCHANGE_REACH


@dataclass(slots=True)
class ContextWindow:
    """The batches that are in, newest first, and a report on the others."""

    count_tokens: TokenCounter
    room: int | None
    tokens: int
    is_full: bool = False
    batches: list[int] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    shortened: list[Shortened] = field(default_factory=list)
    _exchange: list[Batch] = field(default_factory=list)
    _is_exchange_in: bool = False
    _is_follow_up: bool = False

    def take(self, batch: Batch, *, is_current: bool) -> None:
        """Add the next older batch; a batch of the last exchange waits for the others of it."""
        if is_current:
            self._is_follow_up = not any(
                isinstance(m, HumanMessage) and not is_synthetic(m) for m in batch.messages
            )
            view = _view(batch, is_current=True)
            self._put(batch, view, self._cost(view))
        elif not batch.is_whole:
            self.dropped.append(Dropped(batch.id, DropReason.INCOMPLETE, " ".join(batch.reasons)))
        elif not self._is_exchange_in:
            self._exchange.append(batch)
            if _is_exchange(self._exchange):
                self.close_exchange()
        elif self._fits(cost := self._cost_of(batch)):
            self._put(batch, _finished(batch).view, cost)
        else:
            self._drop(batch, cost)

    def close_exchange(self) -> None:
        """Add the last exchange, whole or cut."""
        if self._is_exchange_in:
            return
        self._is_exchange_in = True
        batches = self._exchange
        views = [_finished(batch).view for batch in batches]
        costs = [*map(self._cost_of, batches)]
        if self.room is None or self._fits(sum(costs)):
            for batch, view, cost in zip(batches, views, costs, strict=True):
                self._put(batch, view, cost)
            return
        left = self.room - self.tokens
        short = shorten(views, left, self._cost)
        # A reply may lose the older part of the exchange; a follow-up needs it.
        if short.tokens > left and not self._is_follow_up:
            short = shorten(views[: self._fitting(short.views)], left, self._cost)
        for batch, whole, view, cost in zip(batches, views, short.views, costs, strict=False):
            self._put(batch, view, self._cost(view))
            if view != whole:
                detail = f"Needs about {cost} tokens, {max(left, 0)} were left. {short.how}"
                self.shortened.append(Shortened(batch.id, detail))
        self.is_full = True
        for batch, cost in [*zip(batches, costs, strict=True)][len(short.views) :]:
            self._drop(batch, cost)

    def _fitting(self, views: list[View]) -> int:
        """How many of the newest views fit together."""
        tokens = [sum(map(self._cost, views[: n + 1])) for n in range(len(views))]
        return sum(map(self._fits, tokens))

    def _cost(self, view: View) -> int:
        return sum(map(self.count_tokens, view))

    def _cost_of(self, batch: Batch) -> int:
        finished = _finished(batch)
        is_estimate = self.count_tokens is estimate_tokens
        return finished.estimate if is_estimate else self._cost(finished.view)

    def _fits(self, cost: int) -> bool:
        return self.room is None or self.tokens + cost <= self.room

    def _put(self, batch: Batch, view: View, cost: int) -> None:
        self.tokens += cost
        self.views.append(view)
        self.batches.append(batch.id)

    def _drop(self, batch: Batch, cost: int) -> None:
        left = max((self.room or 0) - self.tokens, 0)
        detail = f"Needs about {cost} tokens, {left} are left."
        self.dropped.append(Dropped(batch.id, DropReason.OVER_BUDGET, detail))
        self.is_full = True


@dataclass(frozen=True, slots=True)
class _Finished:
    view: View
    estimate: int


def _finished(batch: Batch) -> _Finished:
    """The view of a finished batch, made once: the next turn gets the same batches."""
    if (known := batch.memo.get(_Finished)) is None:
        view = _view(batch, is_current=False)
        known = batch.memo[_Finished] = _Finished(view, sum(map(estimate_tokens, view)))
    return known


def _view(batch: Batch, *, is_current: bool) -> View:
    """One batch in the form the model gets it, independent of the batches around it.

    A batch that begins with a reply (the agent's greeting, say) gets a trigger's prompt in front:
    every provider wants a human message first.
    """
    source = with_open_calls_answered(batch) if is_current else batch
    clean = [clean_message(message, is_current=is_current) for message in source.arranged]
    # System messages move to the front of the request, so they separate nothing here.
    instructions = [m for m in clean if isinstance(m, SystemMessage)]
    messages = with_calls_joined(m for m in clean if not isinstance(m, SystemMessage))
    if not messages or isinstance(messages[0], AIMessage):
        messages = [_opener(batch), *messages]
    return [*instructions, *messages]


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


@dataclass(frozen=True, slots=True)
class ShortenedViews:
    """Views with their texts cut, what they cost, and how they were cut."""

    views: list[View]
    tokens: int
    how: str


def shorten(views: Sequence[View], room: int, cost: Callable[[View], int]) -> ShortenedViews:
    """The views with as much text as fits; in their shortest form if even that does not fit."""
    for tried, length in _steps(views, room):
        cut = [[_cut_message(message, length) for message in view] for view in tried]
        tokens = sum(map(cost, cut))
        if tokens <= room:
            break
    how = f"Texts are cut to {length:,} characters"
    how += "." if tried is views else ", and tool calls are left out with their results."
    return ShortenedViews(cut, tokens, how)


def _steps(views: Sequence[View], room: int) -> Iterator[tuple[Sequence[View], int]]:
    """What to try in turn: views, and the length to cut their texts to."""
    lengths = [n for n in _LENGTHS if n <= room * BYTES_PER_TOKEN] or _LENGTHS[-1:]
    without_tools = [[*_without_tools(view)] for view in views]
    if without_tools != views:
        yield from ((views, n) for n in lengths if n >= _LEAST_WITH_TOOLS)
        views = without_tools
    yield from ((views, n) for n in lengths)


def _without_tools(view: View) -> Iterator[BaseMessage]:
    for message in view:
        if isinstance(message, AIMessage) and calls_of(message):
            without = message.model_copy(update={"tool_calls": [], "invalid_tool_calls": []})
            if has_content(without):
                yield without
        elif not isinstance(message, ToolMessage):
            yield message


def _cut_message(message: BaseMessage, length: int) -> BaseMessage:
    update: dict[str, Any] = {}
    content = message.content
    if isinstance(content, str):
        content = cut_text(content, length)
    else:
        content = [_cut_block(block, length) for block in content]
    if content != message.content:
        update["content"] = content
    calls = calls_of(message)
    args = [_cut_value(call.args, length) for call in calls]
    if args != [call.args for call in calls]:
        update["invalid_tool_calls"] = []
        update["tool_calls"] = [
            ToolCall(name=call.name, args=cut, id=call.id, type="tool_call")
            for call, cut in zip(calls, args, strict=True)
        ]
    return message.model_copy(update=update) if update else message


def _cut_block(block: Any, length: int) -> Any:
    """A block with its text cut; the name of any other content that is too large."""
    if estimate_block(block) * BYTES_PER_TOKEN <= length:
        return block
    if is_of_type(block, _TEXT_BLOCKS):
        return {"type": "text", "text": cut_text(str(block.get("text") or ""), length)}
    return {"type": "text", "text": f"[{name_of(block)}, left out]"}


def _cut_value(value: Any, length: int, depth: int = 64) -> Any:
    """The arguments of a call with their texts cut; the tool needs their shape."""
    if isinstance(value, str):
        return cut_text(value, length)
    if not isinstance(value, dict | list):
        return value
    if not depth:
        return "…"
    if isinstance(value, dict):
        return {key: _cut_value(inner, length, depth - 1) for key, inner in value.items()}
    return [_cut_value(inner, length, depth - 1) for inner in value]

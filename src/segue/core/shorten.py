"""Shortening: batches that the model must know of but that do not fit, told in part.

In the request only; what is stored stays whole. Long texts lose their middle, with a mark that
says how much is missing, and large media become a few words. If that is not enough, tool calls
leave together with their results. What remains is as valid a request as before.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from segue.core.calls import calls_of, has_content, is_of_type
from segue.core.media import name_of
from segue.core.tokens import estimate_block

View = list[BaseMessage]

# Lengths in characters, longest first. Fixed steps: while a turn goes on and its room shrinks
# a little, the same bytes are sent again, and prompt caches hit.
_LENGTHS: Final = tuple(n for k in range(20, 5, -1) for n in (3 << (k - 1), 1 << k))
# Texts shorter than this tell less than the tool calls beside them cost.
_LEAST_WITH_TOOLS: Final = 256
_BYTES_PER_TOKEN: Final = 4
_TEXT_BLOCKS: Final = frozenset({"text", "text-plain"})


@dataclass(frozen=True, slots=True)
class Shorter:
    """Views in part, what they cost, and what was done to them."""

    views: list[View]
    tokens: int
    how: str


def shorten(views: Sequence[View], room: int, cost: Callable[[View], int]) -> Shorter:
    """Views with as much of them as fits; in their shortest form if nothing does."""
    for told, length in _steps(views, room):
        cut = [[_cut_message(message, length) for message in view] for view in told]
        tokens = sum(map(cost, cut))
        if tokens <= room:
            break
    how = f"Texts are cut to {length:,} characters"
    how += "." if told is views else ", and tool calls are left out with their results."
    return Shorter(cut, tokens, how)


def cut_text(text: str, length: int) -> str:
    """Its beginning and its end: what a message wants of its reader stands at one of them."""
    half = length // 2
    mark = f" [… {len(text) - 2 * half:,} characters left out …] "
    if len(text) <= 2 * half + len(mark):
        return text
    return text[:half] + mark + text[-half:]


def _steps(views: Sequence[View], room: int) -> Iterator[tuple[Sequence[View], int]]:
    """What to try in turn, each with the length that its texts are cut to."""
    lengths = [n for n in _LENGTHS if n <= room * _BYTES_PER_TOKEN] or _LENGTHS[-1:]
    spoken = [[*_without_tools(view)] for view in views]
    if spoken != views:
        yield from ((views, n) for n in lengths if n >= _LEAST_WITH_TOOLS)
        views = spoken
    yield from ((views, n) for n in lengths)


def _without_tools(view: View) -> Iterator[BaseMessage]:
    for message in view:
        if isinstance(message, AIMessage) and calls_of(message):
            words = message.model_copy(update={"tool_calls": [], "invalid_tool_calls": []})
            if has_content(words):
                yield words
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
    """A block with its text cut; other content that is too large gives way to its name."""
    if estimate_block(block) * _BYTES_PER_TOKEN <= length:
        return block
    if is_of_type(block, _TEXT_BLOCKS):
        return {"type": "text", "text": cut_text(str(block.get("text") or ""), length)}
    return {"type": "text", "text": f"[{name_of(block)}, left out]"}


def _cut_value(value: Any, length: int, depth: int = 64) -> Any:
    """The arguments of a call with their texts cut; their shape is the tool's."""
    if isinstance(value, str):
        return cut_text(value, length)
    if not isinstance(value, dict | list):
        return value
    if not depth:
        return "…"
    if isinstance(value, dict):
        return {key: _cut_value(inner, length, depth - 1) for key, inner in value.items()}
    return [_cut_value(inner, length, depth - 1) for inner in value]

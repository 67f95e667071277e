"""Tool calls and their results: finding them in a message, pairing them, making ids unique.

Call ids are the provider's and repeat, in one message and across a thread, so nothing here
takes an id for a key of the whole: a result belongs to the nearest call before it that still
waits for one.
"""

import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

# Blocks that ask *us* to run something. Server-side tools are absent on purpose: the provider
# runs them and writes their results into the same message.
_CALL_BLOCKS = frozenset(
    {"tool_use", "tool_call", "invalid_tool_call", "function_call", "custom_tool_call"}
)
# LangChain's own spelling of a call; `tool_calls` says the same, and clients stumble over it.
_GENERIC_CALL_BLOCKS = frozenset({"tool_call", "invalid_tool_call"})
# One provider's own; a message that is rewritten says it as a plain call.
_PRIVATE_CALL_BLOCKS = frozenset({"custom_tool_call"})
_TEXT_BLOCKS = frozenset({"text", "text-plain", "output_text"})
_REASONING_BLOCKS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
# What all providers take as a call's id and as a tool's name.
_MAX_ID = 40
_MAX_NAME = 64
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{_MAX_NAME}}}")
_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# Where Google's client keeps signatures by call id.
_SIGNATURES = "__gemini_function_call_thought_signatures__"


@dataclass(frozen=True, slots=True)
class Call:
    """One request to run a tool, whichever way the provider wrote it."""

    id: str
    name: str
    args: dict[str, Any]
    malformed: bool = False


@dataclass(slots=True)
class Exchange:
    """One call of one assistant message and, once there is one, its result."""

    message: AIMessage
    call: Call
    result: ToolMessage | None = None


@dataclass(frozen=True, slots=True)
class Pairing:
    """All calls of a batch with their results, and the results that found no call."""

    exchanges: list[Exchange] = field(default_factory=list)
    duplicates: list[ToolMessage] = field(default_factory=list)
    orphans: list[ToolMessage] = field(default_factory=list)

    @property
    def unanswered(self) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.result is None]


def calls_of(message: BaseMessage) -> list[Call]:
    """Every call of a message, from `tool_calls`, `invalid_tool_calls` and content blocks.

    The same call is often written twice, parsed and as a block: each id counts as often as the
    place that holds it most often.
    """
    if not isinstance(message, AIMessage):
        return []
    calls = [Call(c["id"] or "", c["name"], c["args"]) for c in message.tool_calls]
    calls += [
        Call(c["id"] or "", c["name"] or "", _arguments(c["args"]), malformed=True)
        for c in message.invalid_tool_calls
    ]
    if isinstance(message.content, list):
        known = Counter(call.id for call in calls)
        for call in map(_call_in_block, filter(is_call_block, message.content)):
            if known[call.id] > 0:
                known[call.id] -= 1
            else:
                calls.append(call)
    return calls


def is_call_block(block: Any) -> bool:
    return _is_of_type(block, _CALL_BLOCKS)


def has_content(message: BaseMessage) -> bool:
    """Whether a message says anything besides calling tools."""
    content = message.content
    if isinstance(content, str):
        return bool(content.strip())
    return any(_says_something(block) for block in content)


def without_blanks(message: BaseMessage) -> BaseMessage:
    """The message without text that says nothing: one provider refuses a blank text block."""
    content = message.content
    if isinstance(content, str):
        return message if not content or content.strip() else _with_content(message, "")
    kept = [block for block in content if not _is_blank(block)]
    return message if len(kept) == len(content) else _with_content(message, kept)


def pair(messages: Sequence[BaseMessage]) -> Pairing:
    """Give every call of one batch its result.

    A result goes to the nearest earlier message with an open call of that id, and there to the
    first one; a result stored before its call waits for it. The first result of a call counts,
    later ones are duplicates.
    """
    pairing = Pairing()
    groups: defaultdict[str, list[list[Exchange]]] = defaultdict(list)
    early: list[ToolMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            exchange = _open_exchange(reversed(groups[message.tool_call_id]))
            if exchange is None:
                early.append(message)
            else:
                exchange.result = message
        elif isinstance(message, AIMessage):
            own: defaultdict[str, list[Exchange]] = defaultdict(list)
            for call in calls_of(message):
                exchange = Exchange(message, call)
                own[call.id].append(exchange)
                pairing.exchanges.append(exchange)
            for call_id, exchanges in own.items():
                groups[call_id].append(exchanges)
    for message in early:
        exchange = _open_exchange(groups[message.tool_call_id])
        if exchange is not None:
            exchange.result = message
        elif groups[message.tool_call_id]:
            pairing.duplicates.append(message)
        else:
            pairing.orphans.append(message)
    return pairing


def with_unique_calls(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages with every call well formed and no call id used twice.

    Expects each assistant message to be followed by its results in the order of its calls.
    One provider rejects a repeated id, another pairs by it over the whole request, a malformed
    call is sent by some and left out by others, and a name that a model made up may hold
    letters that no provider takes. A new id is made of the message's position, so it does not
    change when the window moves; what is fine stays the same object.
    """
    seen: set[str] = set()
    renamed: deque[str] = deque()
    result: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage) and renamed:
            result.append(_answering(message, renamed.popleft()))
        elif isinstance(message, AIMessage) and (calls := calls_of(message)):
            ids = _unique_ids(message, calls, seen)
            renamed = deque(ids)
            result.append(_with_calls(message, calls, ids))
        else:
            result.append(message)
    return result


def _open_exchange(groups: Iterable[list[Exchange]]) -> Exchange | None:
    return next((e for group in groups for e in group if e.result is None), None)


def _answering(result: ToolMessage, call_id: str) -> ToolMessage:
    old = result.tool_call_id
    if call_id == old:
        return result
    content = result.content
    if isinstance(content, list):
        content = [
            {**block, "tool_use_id": call_id}
            if isinstance(block, dict) and block.get("tool_use_id") == old
            else block
            for block in content
        ]
    return result.model_copy(update={"tool_call_id": call_id, "content": content})


def _unique_ids(message: AIMessage, calls: list[Call], seen: set[str]) -> list[str]:
    ids = []
    for index, call in enumerate(calls):
        call_id = call.id
        if not call_id or len(call_id) > _MAX_ID or call_id in seen:
            call_id = f"call_{message.additional_kwargs.get('position', 0)}_{index}"
        seen.add(call_id)
        ids.append(call_id)
    return ids


def _with_calls(message: AIMessage, calls: list[Call], ids: list[str]) -> AIMessage:
    blocks = message.content if isinstance(message.content, list) else []
    if (
        len(calls) == len(message.tool_calls)
        and ids == [call.id for call in calls]
        and all(_NAME.fullmatch(call.name) for call in calls)
        and not any(_is_of_type(block, _GENERIC_CALL_BLOCKS) for block in blocks)
    ):
        return message
    by_old_id: defaultdict[str, deque[str]] = defaultdict(deque)
    tool_calls = []
    for call, new_id in zip(calls, ids, strict=True):
        by_old_id[call.id].append(new_id)
        name = _NOT_IN_NAME.sub("_", call.name)[:_MAX_NAME] or "unknown"
        tool_calls.append(ToolCall(name=name, args=call.args, id=new_id, type="tool_call"))
    update: dict[str, Any] = {"tool_calls": tool_calls, "invalid_tool_calls": []}
    update["additional_kwargs"] = _renamed_kwargs(message.additional_kwargs, by_old_id)
    if blocks:
        update["content"] = [
            _renamed_block(block, by_old_id)
            for block in blocks
            if not _is_of_type(block, _GENERIC_CALL_BLOCKS | _PRIVATE_CALL_BLOCKS)
        ]
    return message.model_copy(update=update)


def _is_of_type(block: Any, types: frozenset[str]) -> bool:
    return isinstance(block, dict) and block.get("type") in types


def _renamed_kwargs(kwargs: dict[str, Any], ids: dict[str, deque[str]]) -> dict[str, Any]:
    # The raw calls would contradict the parsed ones where a client sends both.
    kept = {key: value for key, value in kwargs.items() if key != "tool_calls"}
    if isinstance(signatures := kept.get(_SIGNATURES), dict):
        kept[_SIGNATURES] = {ids[k][0] if ids.get(k) else k: v for k, v in signatures.items()}
    return kept


def _renamed_block(block: Any, ids: dict[str, deque[str]]) -> Any:
    if not is_call_block(block):
        return block
    key = "call_id" if "call_id" in block else "id"
    left = ids.get(block.get(key) or "")
    return {**block, key: left.popleft()} if left else block


def _call_in_block(block: Any) -> Call:
    raw = block.get("args", block.get("input", block.get("arguments")))
    return Call(
        id=block.get("call_id") or block.get("id") or "",
        name=block.get("name") or "",
        args=_arguments(raw),
        malformed=block["type"] == "invalid_tool_call",
    )


def _arguments(raw: Any) -> dict[str, Any]:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            return {}
    return raw if isinstance(raw, dict) else {}


def _says_something(block: Any) -> bool:
    return not (_is_blank(block) or _is_of_type(block, _CALL_BLOCKS | _REASONING_BLOCKS))


def _is_blank(block: Any) -> bool:
    if _is_of_type(block, _TEXT_BLOCKS):
        block = block.get("text") or ""
    return isinstance(block, str) and not block.strip()


def _with_content(message: BaseMessage, content: str | list[Any]) -> BaseMessage:
    return message.model_copy(update={"content": content})

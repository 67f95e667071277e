"""Making messages acceptable to every provider, in the request only.

What is stored stays as it came. Each rule here answers a request that a provider refused or
misread; a message that breaks none is passed on as the same object.
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable
from math import isfinite
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from segue.core.calls import Call, calls_of, is_blank, is_call_block, is_of_type

# What all providers take as a call's id and as a tool's name.
MAX_CALL_ID: Final = 40
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# Calls that `tool_calls` says as well: LangChain's own spelling, which clients stumble over, and
# one provider's free-text calls, which no other provider knows.
_REDUNDANT_CALL_BLOCKS = frozenset({"tool_call", "invalid_tool_call", "custom_tool_call"})
# Where the words of one provider's blocks stand.
_WORDS = {"output_text": "text", "refusal": "refusal", "custom_tool_call_output": "output"}
# Where Google's client keeps signatures by call id.
_SIGNATURES = "__gemini_function_call_thought_signatures__"


def storable(text: str) -> str:
    """Text that can be sent and stored everywhere: half an emoji and a NUL cannot."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\x00", "\ufffd")


def plain_json(value: Any) -> Any:
    """The value in what every JSON writer takes."""
    if isinstance(value, dict):
        return {storable(str(key)): plain_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(inner) for inner in value]
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else storable(str(value))


def tidied(message: BaseMessage) -> BaseMessage:
    """The message with plain text blocks only: none bare, blank, unsendable or of one provider."""
    content = message.content
    if isinstance(content, str):
        tidy: str | list[Any] = storable(content) if content.strip() else ""
    else:
        tidy = [block for block in map(_plain_block, content) if not is_blank(block)]
    return message if tidy == content else message.model_copy(update={"content": tidy})


def with_calls_joined(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """A calling message taken together with the assistant's words right before it.

    Graphs with several agents write them as two messages; Google refuses a call that does not
    come right after a human message or a result.
    """
    joined: list[BaseMessage] = []
    for message in messages:
        before = joined[-1] if joined else None
        if isinstance(before, AIMessage) and isinstance(message, AIMessage) and calls_of(message):
            content = [*_blocks(before), *_blocks(message)]
            joined[-1] = message.model_copy(update={"content": content})
        else:
            joined.append(message)
    return joined


def with_unique_calls(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages with every call well formed and no call id used twice.

    Expects each assistant message to be followed by its results in the order of its calls.
    One provider rejects a repeated id, another pairs by it over the whole request, a malformed
    call is sent by some and left out by others, and a name that a model made up may hold
    letters that no provider takes. A new id is made of the message's position, so a growing
    conversation keeps it.
    """
    seen: set[str] = set()
    open_calls: deque[ToolCall] = deque()
    result: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage) and open_calls:
            result.append(_answering(message, open_calls.popleft()))
        elif isinstance(message, AIMessage) and (calls := calls_of(message)):
            sendable = _sendable_calls(message, calls, seen)
            open_calls = deque(sendable)
            result.append(_with_calls(message, calls, sendable))
        else:
            result.append(message)
    return result


def _plain_block(block: Any) -> Any:
    if isinstance(block, str):
        return {"type": "text", "text": storable(block)}
    if not isinstance(block, dict):
        return block
    if (key := _WORDS.get(block.get("type", ""))) is not None:
        return {"type": "text", "text": storable(str(block.get(key) or ""))}
    text = block.get("text")
    if isinstance(text, str) and (plain := storable(text)) != text:
        return {**block, "text": plain}
    return block


def _blocks(message: BaseMessage) -> list[str | dict[str, Any]]:
    if isinstance(message.content, list):
        return message.content
    return [{"type": "text", "text": message.content}] if message.content else []


def _sendable_calls(message: AIMessage, calls: list[Call], seen: set[str]) -> list[ToolCall]:
    sendable = []
    for index, call in enumerate(calls):
        call_id = call.id
        if not call_id or len(call_id) > MAX_CALL_ID or call_id in seen:
            call_id = f"call_{message.additional_kwargs.get('position', 0)}_{index}"
        seen.add(call_id)
        name = call.name
        if not TOOL_NAME.fullmatch(name):
            name = _NOT_IN_NAME.sub("_", name)[:64] or "unknown"
        args = call.args if _is_json(call.args) else plain_json(call.args)
        sendable.append(ToolCall(name=name, args=args, id=call_id, type="tool_call"))
    return sendable


def _with_calls(message: AIMessage, calls: list[Call], sendable: list[ToolCall]) -> AIMessage:
    blocks = message.content if isinstance(message.content, list) else []
    redundant = any(is_of_type(block, _REDUNDANT_CALL_BLOCKS) for block in blocks)
    if sendable == message.tool_calls and not message.invalid_tool_calls and not redundant:
        return message
    new_ids: defaultdict[str, deque[str]] = defaultdict(deque)
    for call, sent in zip(calls, sendable, strict=True):
        new_ids[call.id].append(sent["id"] or "")
    update: dict[str, Any] = {"tool_calls": sendable, "invalid_tool_calls": []}
    update["additional_kwargs"] = _renamed_kwargs(message.additional_kwargs, new_ids)
    if blocks:
        update["content"] = [
            _renamed_block(block, new_ids)
            for block in blocks
            if not is_of_type(block, _REDUNDANT_CALL_BLOCKS)
        ]
    return message.model_copy(update=update)


def _renamed_kwargs(kwargs: dict[str, Any], new_ids: dict[str, deque[str]]) -> dict[str, Any]:
    # The raw calls would contradict the parsed ones where a client sends both.
    kept = {key: value for key, value in kwargs.items() if key != "tool_calls"}
    if isinstance(signatures := kept.get(_SIGNATURES), dict):
        kept[_SIGNATURES] = {
            new_ids[old][0] if new_ids.get(old) else old: signature
            for old, signature in signatures.items()
        }
    return kept


def _renamed_block(block: Any, new_ids: dict[str, deque[str]]) -> Any:
    if not is_call_block(block):
        return block
    key = "call_id" if "call_id" in block else "id"
    left = new_ids.get(block.get(key) or "")
    return {**block, key: left.popleft()} if left else block


def _answering(result: ToolMessage, call: ToolCall) -> ToolMessage:
    old, new = result.tool_call_id, call["id"]
    # Google's client sends the result's own name where it has one.
    name = call["name"] if result.name else None
    if old == new and result.name == name:
        return result
    content = result.content
    if isinstance(content, list):
        content = [
            {**block, "tool_use_id": new}
            if isinstance(block, dict) and block.get("tool_use_id") == old
            else block
            for block in content
        ]
    return result.model_copy(update={"tool_call_id": new, "name": name, "content": content})


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError):
        return False
    return True

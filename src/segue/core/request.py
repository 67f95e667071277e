"""Making messages acceptable to every provider, in the request only; stored ones stay as they are.

Each rule answers a request that a provider refused or misread. A message that breaks no rule is
passed on as the same object.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from segue.core.calls import (
    CALL_BLOCKS,
    FOREIGN_TEXT,
    TEXT_KEYS,
    Call,
    blocks_of,
    calls_of,
    is_blank,
    is_call_block,
    is_of_type,
    words_beside,
)
from segue.core.media import is_convertible, name_of
from segue.core.text import sendable_args, storable

# Call ids and tool names that all providers take.
MAX_CALL_ID: Final = 40
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# Blocks that `tool_calls` repeats: LangChain's own form, which clients cannot convert, and OpenAI's
# free-text calls, which no other provider knows.
_REDUNDANT_CALL_BLOCKS = frozenset({"tool_call", "invalid_tool_call", "custom_tool_call"})
_FOREIGN_TEXT = FOREIGN_TEXT | {"custom_tool_call_output"}
_TEXT = frozenset({"text"})
# Blocks that belong into an assistant message or a result message, and nowhere else.
_MISPLACED = CALL_BLOCKS | {"tool_result"}
# Keys of `additional_kwargs` that some clients send: raw calls, and a refusal that is moved into
# the content.
_BESIDE = frozenset({"tool_calls", "function_call", "refusal"})
# The key under which Google's client keeps signatures by call id.
_SIGNATURES = "__gemini_function_call_thought_signatures__"


def clean_message(message: BaseMessage, *, is_current: bool = True) -> BaseMessage:
    """The message with only the content that every provider takes.

    Blank, bare, broken and misplaced blocks are dropped. In the current batch a provider wants its
    own blocks back (reasoning, server-side tools). In a finished one it does not need them and
    other providers refuse them, so an assistant message is reduced to its text and its calls.
    """
    update: dict[str, Any] = {}
    content = _clean_content(message, is_current)
    if content != message.content:
        update["content"] = content
        if isinstance(message, AIMessage) and not is_current:
            update["tool_calls"] = [
                ToolCall(name=call.name, args=call.args, id=call.id, type="tool_call")
                for call in calls_of(message)
            ]
            update["invalid_tool_calls"] = []
    if message.name and not isinstance(message, ToolMessage):
        name = _NOT_IN_NAME.sub("_", message.name)[:64]
        if name != message.name:
            update["name"] = name
    if isinstance(message, AIMessage) and _BESIDE & message.additional_kwargs.keys():
        update["additional_kwargs"] = {
            key: value for key, value in message.additional_kwargs.items() if key not in _BESIDE
        }
    return message.model_copy(update=update) if update else message


def _clean_content(message: BaseMessage, is_current: bool) -> str | list[Any]:
    content = message.content
    if isinstance(content, str):
        return storable(content) if content.strip() else storable(words_beside(message))
    blocks = [plain for block in content if not is_blank(plain := _plain_block(block))]
    if isinstance(message, AIMessage) and not is_current:
        return "".join(b["text"] for b in blocks if is_of_type(b, _TEXT)) or words_beside(message)
    if not isinstance(message, AIMessage):
        blocks = [block for block in blocks if not is_of_type(block, _MISPLACED)]
    return blocks or storable(words_beside(message))


def with_calls_joined(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages, with each calling one merged with the assistant messages right before it.

    Graphs with several agents write several in a row; Google refuses a call that does not come
    right after a human message or a result.
    """
    joined: list[BaseMessage] = []
    for message in messages:
        before: list[BaseMessage] = []
        while joined and isinstance(message, AIMessage) and calls_of(message):
            if not isinstance(joined[-1], AIMessage):
                break
            before.append(joined.pop())
        if before:
            content = _joined_content([*reversed(before), message])
            joined.append(message.model_copy(update={"content": content}))
        else:
            joined.append(message)
    return joined


def with_unique_calls(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages with every call well formed and no call id used twice.

    Expects each assistant message to be followed by its results in the order of its calls.
    Anthropic rejects a repeated id, Google pairs by it over the whole request, clients differ on
    malformed calls, and a model may invent a name with letters that no provider takes. A new id
    contains the message's position, so it stays the same as the conversation grows.
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
    if not isinstance(block, dict) or not isinstance(kind := block.get("type"), str):
        return ""  # unknown content
    if kind in _FOREIGN_TEXT or (kind == "text" and not isinstance(block.get("text"), str)):
        return {"type": "text", "text": storable(str(block.get(TEXT_KEYS[kind]) or ""))}
    if not is_convertible(block):
        return {"type": "text", "text": f"[{name_of(block)} that cannot be read]"}
    if "cache_control" in block:
        # Providers limit these marks per request, and a tool that sets one knows only its own.
        block = {key: value for key, value in block.items() if key != "cache_control"}
    text = block.get("text")
    if isinstance(text, str) and (plain := storable(text)) != text:
        return {**block, "text": plain}
    return block


def _joined_content(messages: list[BaseMessage]) -> str | list[Any]:
    contents = [message.content for message in messages]
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(text for text in texts if text)
    return [_plain_block(block) for message in messages for block in blocks_of(message) if block]


def _sendable_calls(message: AIMessage, calls: list[Call], seen: set[str]) -> list[ToolCall]:
    sendable = []
    for index, call in enumerate(calls):
        call_id = call.id
        if not call_id or len(call_id) > MAX_CALL_ID or call_id in seen:
            call_id = f"call_{message.additional_kwargs.get('position', 0)}_{index}"
            while call_id in seen:  # a provider's own id may look like one of ours
                call_id += "_"
        seen.add(call_id)
        name = _NOT_IN_NAME.sub("_", call.name)[:64] or "unknown"
        args = sendable_args(call.args)
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
    kept = dict(kwargs)
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
    # Google's client sends the result's own name if it has one.
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

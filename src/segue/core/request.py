"""Making messages acceptable to every provider, in the request only.

What is stored stays as it came. Each rule here answers a request that a provider refused or
misread; a message that breaks none is passed on as the same object.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from segue.core.calls import (
    TEXT_KEYS,
    Call,
    calls_of,
    is_blank,
    is_call_block,
    is_of_type,
    words_beside,
)
from segue.core.media import is_convertible, stand_in
from segue.core.plain import sendable_args, storable

# What all providers take as a call's id and as a tool's name.
MAX_CALL_ID: Final = 40
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# Calls that `tool_calls` says as well: LangChain's own spelling, which clients stumble over, and
# one provider's free-text calls, which no other provider knows.
_REDUNDANT_CALL_BLOCKS = frozenset({"tool_call", "invalid_tool_call", "custom_tool_call"})
# Text that only one provider spells so.
_FOREIGN_TEXT = frozenset({"output_text", "refusal", "custom_tool_call_output"})
_TEXT = frozenset({"text"})
_RESULT_BLOCKS = frozenset({"tool_result"})
# What clients keep beside the message and some send on: raw calls, answered or not, and a refusal
# that is in the content by then.
_BESIDE = frozenset({"tool_calls", "function_call", "refusal"})
# Where Google's client keeps signatures by call id.
_SIGNATURES = "__gemini_function_call_thought_signatures__"


def tidied(message: BaseMessage, *, is_current: bool = True) -> BaseMessage:
    """The message with what every provider takes of its content.

    Blank, bare, broken and misplaced blocks go. In the current batch a provider wants its own
    blocks back (reasoning, server-side tools); in a finished one no provider needs them and
    every other one refuses them, so there an assistant message is its words and its calls.
    """
    update: dict[str, Any] = {}
    content = _tidied_content(message, is_current)
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


def _tidied_content(message: BaseMessage, is_current: bool) -> str | list[Any]:
    content = message.content
    if isinstance(content, str):
        return storable(content) if content.strip() else storable(words_beside(message))
    blocks = [plain for block in content if not is_blank(plain := _plain_block(block))]
    if isinstance(message, AIMessage) and not is_current:
        return "".join(b["text"] for b in blocks if is_of_type(b, _TEXT)) or words_beside(message)
    if not isinstance(message, AIMessage):
        blocks = [block for block in blocks if not _is_misplaced(block)]
    return blocks or storable(words_beside(message))


def with_calls_joined(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """A calling message taken together with the assistant's words right before it.

    Graphs with several agents write them as several messages; Google refuses a call that does
    not come right after a human message or a result.
    """
    joined: list[BaseMessage] = []
    for message in messages:
        words: list[BaseMessage] = []
        while joined and isinstance(message, AIMessage) and calls_of(message):
            if not isinstance(joined[-1], AIMessage):
                break
            words.append(joined.pop())
        if words:
            content = _joined_content([*reversed(words), message])
            joined.append(message.model_copy(update={"content": content}))
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
    if not isinstance(block, dict) or not isinstance(kind := block.get("type"), str):
        return ""  # nobody could tell what it is
    if kind in _FOREIGN_TEXT or (kind == "text" and not isinstance(block.get("text"), str)):
        return {"type": "text", "text": storable(str(block.get(TEXT_KEYS[kind]) or ""))}
    if not is_convertible(block):
        return stand_in(block)
    if "cache_control" in block:
        # A provider counts these marks in a whole request; a tool that sets one knows only itself.
        block = {key: value for key, value in block.items() if key != "cache_control"}
    text = block.get("text")
    if isinstance(text, str) and (plain := storable(text)) != text:
        return {**block, "text": plain}
    return block


def _is_misplaced(block: Any) -> bool:
    """A call in a human message, or a result that stands in no result message."""
    return is_call_block(block) or is_of_type(block, _RESULT_BLOCKS)


def _joined_content(messages: list[BaseMessage]) -> str | list[Any]:
    contents = [message.content for message in messages]
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(text for text in texts if text)
    return [block for message in messages for block in _blocks(message)]


def _blocks(message: BaseMessage) -> list[str | dict[str, Any]]:
    if isinstance(message.content, list):
        return message.content
    return [{"type": "text", "text": message.content}] if message.content else []


def _sendable_calls(message: AIMessage, calls: list[Call], seen: set[str]) -> list[ToolCall]:
    sendable = []
    for index, call in enumerate(calls):
        call_id = call.id
        if not call_id or len(call_id) > MAX_CALL_ID or call_id in seen:
            call_id = _unused_id(
                f"call_{message.additional_kwargs.get('position', 0)}_{index}", seen
            )
        seen.add(call_id)
        name = call.name
        if not TOOL_NAME.fullmatch(name):
            name = _NOT_IN_NAME.sub("_", name)[:64] or "unknown"
        args = sendable_args(call.args)
        sendable.append(ToolCall(name=name, args=args, id=call_id, type="tool_call"))
    return sendable


def _unused_id(wanted: str, seen: set[str]) -> str:
    # A provider's own id may look like one of ours.
    return wanted if wanted not in seen else _unused_id(f"{wanted}_", seen)


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

"""What each provider would refuse in a request body, as its API states the rules.

Strict on purpose and independent of our code: it reads the JSON that left a client, knows no
LangChain message and no batch. Each function gives one sentence per problem; empty means valid.
Where a provider is lenient in practice but its documentation is not, the documentation wins.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

_OPENAI_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ANTHROPIC_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_CHAT_ID_LENGTH: Final = 40
_RESPONSES_ID_LENGTH: Final = 64
_OPENAI_USER_PARTS: Final = frozenset({"text", "image_url", "input_audio", "file"})
_OPENAI_ASSISTANT_PARTS: Final = frozenset({"text", "refusal"})
_RESPONSES_PARTS: Final = frozenset(
    {"input_text", "input_image", "input_file", "output_text", "refusal"}
)
# The kind of item that answers each kind of call, and the start of an id the API itself gave.
_RESPONSES_ANSWERS: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
_RESPONSES_ID_STARTS: Final = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
_ANTHROPIC_BLOCKS: Final = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result"}),
    "assistant": frozenset({"text", "tool_use", "thinking", "redacted_thinking"}),
}
_GOOGLE_DATA: Final = ("text", "inlineData", "fileData", "functionCall", "functionResponse")


def openai_problems(body: dict[str, Any]) -> list[str]:
    """Rules of `/chat/completions`."""
    messages = body.get("messages") or []
    problems = [] if messages else ["There are no messages."]
    index = 0
    while index < len(messages):
        message = messages[index]
        where = f"Message {index}"
        if message.get("role") == "tool":
            problems.append(f"{where} is a result without a call right before it.")
            index += 1
            continue
        problems += _openai_content(message, where)
        calls = message.get("tool_calls")
        results = []
        if calls is not None:
            results = _while_role(messages[index + 1 :], "tool")
            problems += _openai_calls(calls, results, where)
        index += 1 + len(results)
    return problems


def responses_problems(body: dict[str, Any]) -> list[str]:
    """Rules of `/responses`, for a request that brings its whole history along."""
    items = body.get("input") or []
    problems = [] if items else ["There is no input."]
    waiting: dict[str, str] = {}
    called: set[str] = set()
    for index, item in enumerate(items):
        where, kind = f"Item {index}", item.get("type", "message")
        call_id = item.get("call_id")
        if kind in _RESPONSES_ANSWERS:
            problems += _responses_call(item, where, called)
            waiting[call_id] = _RESPONSES_ANSWERS[kind]
            called.add(call_id)
        elif kind in _RESPONSES_ANSWERS.values():
            if waiting.pop(call_id, None) != kind:
                problems.append(f"{where} ({kind}) answers no open call {call_id!r}.")
        else:
            problems += [f"Call {i!r} has no result before {where}." for i in waiting]
            waiting.clear()
            problems += _responses_message(item, where)
    problems += [f"Call {call_id!r} has no result." for call_id in waiting]
    return problems + _responses_item_ids(items)


def anthropic_problems(body: dict[str, Any]) -> list[str]:
    """Rules of `/v1/messages`."""
    messages = body.get("messages") or []
    problems = [] if messages else ["There are no messages."]
    if messages and messages[0].get("role") != "user":
        problems.append("The first message is not the user's.")
    if "system" in body:
        problems += _anthropic_content(body["system"], frozenset({"text"}), "The system prompt")
    for index, message in enumerate(messages):
        where = f"Message {index}"
        allowed = _ANTHROPIC_BLOCKS.get(message.get("role"))
        if allowed is None:
            problems.append(f"{where} has the role {message.get('role')!r}.")
        else:
            problems += _anthropic_content(message.get("content"), allowed, where)
    problems += _anthropic_ids(messages)
    for index in range(len(messages)):
        problems += _anthropic_results(messages, index)
    return problems + _anthropic_ending(messages)


def google_problems(body: dict[str, Any]) -> list[str]:
    """Rules of `:generateContent`."""
    contents = body.get("contents") or []
    problems = [] if contents else ["There are no contents."]
    if contents and contents[0].get("role") != "user":
        problems.append("The first content is not the user's.")
    if "systemInstruction" in body:
        problems += _google_parts(body["systemInstruction"], "The system instruction")
    for index, content in enumerate(contents):
        where = f"Content {index}"
        if content.get("role") not in ("user", "model"):
            problems.append(f"{where} has the role {content.get('role')!r}.")
        problems += _google_parts(content, where)
        problems += _google_turn(contents, index)
    return problems


def _while_role(messages: Sequence[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    end = next((i for i, m in enumerate(messages) if m.get("role") != role), len(messages))
    return list(messages[:end])


def _says_nothing(content: Any) -> bool:
    """OpenAI takes an empty text part, but not a message made of nothing else."""
    if isinstance(content, list):
        return all(isinstance(part, dict) and part.get("text") == "" for part in content)
    return not content


def _openai_content(message: dict[str, Any], where: str) -> list[str]:
    role, content = message.get("role"), message.get("content") or ""
    if role not in ("system", "developer", "user", "assistant"):
        return [f"{where} has the role {role!r}."]
    if role == "assistant" and message.get("tool_calls") and not content:
        return []
    if _says_nothing(content):
        return [f"{where} ({role}) is empty."]
    if isinstance(content, str):
        return []
    allowed = {"user": _OPENAI_USER_PARTS, "assistant": _OPENAI_ASSISTANT_PARTS}.get(
        role, frozenset({"text"})
    )
    return _foreign_parts(content, allowed, where)


def _foreign_parts(parts: Sequence[Any], allowed: frozenset[str], where: str) -> list[str]:
    kinds = [p.get("type") if isinstance(p, dict) else type(p).__name__ for p in parts]
    return [f"{where} holds a part of type {kind!r}." for kind in kinds if kind not in allowed]


def _openai_calls(
    calls: list[dict[str, Any]], results: list[dict[str, Any]], where: str
) -> list[str]:
    problems = [] if calls else [f"{where} has an empty list of calls."]
    for call in calls:
        function = call.get("function") or {}
        if call.get("type") != "function":
            problems.append(f"{where} has a call of type {call.get('type')!r}.")
        problems += _openai_id(call.get("id"), _CHAT_ID_LENGTH, where)
        problems += _function(function.get("name"), function.get("arguments"), where)
    asked = Counter(call.get("id") for call in calls)
    answered = Counter(result.get("tool_call_id") for result in results)
    problems += [f"{where} has {n} calls with id {i!r}." for i, n in asked.items() if n > 1]
    problems += [f"Call {i!r} of {where} has no result." for i in asked if not answered[i]]
    for call_id, count in answered.items():
        if call_id not in asked:
            problems.append(f"A result after {where} answers no call: {call_id!r}.")
        elif count > 1:
            problems.append(f"Call {call_id!r} of {where} has {count} results.")
    if any(not isinstance(result.get("content"), str | list) for result in results):
        problems.append(f"A result after {where} has no content.")
    return problems


def _openai_id(call_id: object, length: int, where: str) -> list[str]:
    if not isinstance(call_id, str) or not call_id:
        return [f"{where} has a call without an id."]
    if len(call_id) > length:
        return [f"{where} has a call id of {len(call_id)} characters, more than {length}."]
    return []


def _function(name: object, arguments: object, where: str) -> list[str]:
    problems = []
    if not isinstance(name, str) or not _OPENAI_NAME.fullmatch(name):
        problems.append(f"{where} calls a function named {name!r}.")
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else None
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        problems.append(f"{where} has arguments that are no JSON text of an object.")
    return problems


def _responses_call(item: dict[str, Any], where: str, called: set[str]) -> list[str]:
    problems = _openai_id(item.get("call_id"), _RESPONSES_ID_LENGTH, where)
    if item.get("call_id") in called:
        problems.append(f"{where} repeats the call id {item['call_id']!r}.")
    if item["type"] == "function_call":
        problems += _function(item.get("name"), item.get("arguments"), where)
    elif not isinstance(item.get("input"), str):
        problems.append(f"{where} has an input that is not text.")
    return problems


def _responses_message(item: dict[str, Any], where: str) -> list[str]:
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "reasoning":
        return []
    if kind != "message" or role not in ("system", "developer", "user", "assistant"):
        return [f"{where} has the type {kind!r} and the role {role!r}."]
    content = item.get("content") or ""
    if _says_nothing(content):
        return [f"{where} ({role}) is empty."]
    return [] if isinstance(content, str) else _foreign_parts(content, _RESPONSES_PARTS, where)


def _responses_item_ids(items: Sequence[dict[str, Any]]) -> list[str]:
    problems = []
    ids = Counter(item["id"] for item in items if "id" in item)
    problems += [f"{n} items have the id {i!r}." for i, n in ids.items() if n > 1]
    for index, item in enumerate(items):
        start = _RESPONSES_ID_STARTS.get(item.get("type", ""), "")
        if "id" in item and not str(item["id"]).startswith(start):
            problems.append(f"Item {index} has an id that does not begin with {start!r}.")
    return problems


def _anthropic_content(content: Any, allowed: frozenset[str], where: str) -> list[str]:
    if not content or (isinstance(content, str) and not content.strip()):
        return [f"{where} is empty."]
    if isinstance(content, str):
        return []
    problems = _foreign_parts(content, allowed, where)
    for block in _blocks({"content": content}):
        kind, inner = block.get("type"), block.get("content")
        # A result may be empty, a block inside it may not.
        if kind == "tool_result" and inner and isinstance(inner, list):
            within = _ANTHROPIC_BLOCKS["user"] - {"tool_result"}
            problems += _anthropic_content(inner, within, f"A result in {where}")
        elif kind == "tool_use":
            problems += _anthropic_call(block, where)
        elif kind == "text" and not str(block.get("text") or "").strip():
            problems.append(f"{where} holds a blank text block.")
    return problems


def _anthropic_call(block: dict[str, Any], where: str) -> list[str]:
    problems = []
    if not _ANTHROPIC_NAME.fullmatch(str(block.get("name") or "")):
        problems.append(f"{where} calls a tool named {block.get('name')!r}.")
    if not isinstance(block.get("input"), dict):
        problems.append(f"{where} has a call whose input is not an object.")
    return problems


def _blocks(message: dict[str, Any], kind: str | None = None) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and kind in (None, block.get("type")):
            yield block


def _anthropic_ids(messages: Sequence[dict[str, Any]]) -> list[str]:
    ids = Counter(
        str(block.get("id") or "") for message in messages for block in _blocks(message, "tool_use")
    )
    problems = [f"{n} calls have the id {i!r}." for i, n in ids.items() if n > 1]
    return problems + [f"The call id {i!r} is malformed." for i in ids if not _is_anthropic_id(i)]


def _is_anthropic_id(call_id: str) -> bool:
    return _ANTHROPIC_ID.fullmatch(call_id) is not None


def _anthropic_results(messages: Sequence[dict[str, Any]], index: int) -> list[str]:
    """The results of one user message against the calls of the message right before it."""
    message, where = messages[index], f"Message {index}"
    before = messages[index - 1] if index else {}
    asked = {block.get("id") for block in _blocks(before, "tool_use")}
    answered = Counter(block.get("tool_use_id") for block in _blocks(message, "tool_result"))
    problems = []
    if index == len(messages) - 1 and any(_blocks(message, "tool_use")):
        problems.append(f"{where} calls tools and nothing follows.")
    if asked and message.get("role") != "user":
        problems.append(f"{where} follows calls but is not the user's.")
    problems += [f"Call {i!r} has no result in {where}." for i in asked - answered.keys()]
    problems += [f"A result in {where} answers no call: {i!r}." for i in answered.keys() - asked]
    problems += [f"Call {i!r} has {n} results in {where}." for i, n in answered.items() if n > 1]
    kinds = [block.get("type") == "tool_result" for block in _blocks(message)]
    if kinds != sorted(kinds, reverse=True):
        problems.append(f"{where} has a result after something else.")
    return problems


def _anthropic_ending(messages: Sequence[dict[str, Any]]) -> list[str]:
    if not messages or messages[-1].get("role") != "assistant":
        return []
    content = messages[-1].get("content")
    if isinstance(content, list):
        content = content[-1].get("text") if content else ""
    text = content if isinstance(content, str) else ""
    return ["The last message ends with whitespace."] if text != text.rstrip() else []


def _google_parts(content: dict[str, Any], where: str) -> list[str]:
    parts = content.get("parts")
    if not parts:
        return [f"{where} has no parts."]
    problems = []
    for part in parts:
        data = [name for name in _GOOGLE_DATA if name in part]
        if len(data) != 1:
            problems.append(f"{where} has a part that holds {data or 'nothing'}.")
        elif data == ["text"] and not part["text"]:
            problems.append(f"{where} has an empty text part.")
        elif data[0].startswith("function"):
            problems += _google_function(part[data[0]], where)
    return problems


def _google_function(function: dict[str, Any], where: str) -> list[str]:
    problems = [] if function.get("name") else [f"{where} has a function without a name."]
    value = function.get("args", function.get("response", {}))
    if not isinstance(value, dict):
        problems.append(f"{where} has a function whose value is not an object.")
    return problems


def _google_turn(contents: Sequence[dict[str, Any]], index: int) -> list[str]:
    """One content's calls and responses against the contents around it."""
    content, where = contents[index], f"Content {index}"
    before = contents[index - 1] if index else {}
    asked, answered = _names(before, "functionCall"), _names(content, "functionResponse")
    problems = []
    if _names(content, "functionCall"):
        if content.get("role") != "model" or before.get("role") != "user":
            problems.append(f"{where} calls, but not as the model right after a user's turn.")
        if index == len(contents) - 1:
            problems.append(f"{where} calls and nothing follows.")
    if answered and content.get("role") != "user":
        problems.append(f"{where} responds to a function, but not as the user.")
    if asked != answered:
        problems.append(f"{where} responds to {answered}, but {asked} were called right before.")
    return problems


def _names(content: dict[str, Any], kind: str) -> list[str]:
    return sorted(str(p[kind].get("name")) for p in content.get("parts") or [] if kind in p)

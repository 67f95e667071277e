"""Tool calls and their results: finding them in a message and pairing them.

Call ids come from the provider and repeat, in one message and across a thread, so ids are not
unique keys: a result belongs to the nearest earlier call that is still open.
"""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from segue.core.metadata import is_settled

# Blocks that ask us to run a tool. The provider runs server-side tools itself and writes their
# results into the same message.
CALL_BLOCKS: Final = frozenset(
    {"tool_use", "tool_call", "invalid_tool_call", "function_call", "custom_tool_call"}
)
# Text blocks that only one provider uses.
FOREIGN_TEXT: Final = frozenset({"output_text", "refusal"})
# The key that holds the text of a block, by the type of the block.
TEXT_KEYS: Final = {
    "text": "text",
    "text-plain": "text",
    "output_text": "text",
    "refusal": "refusal",
    "custom_tool_call_output": "output",
}
# Calls and reasoning.
_NOT_CONTENT: Final = CALL_BLOCKS | {
    *("thinking", "redacted_thinking", "reasoning", "reasoning_content")
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request to run a tool, in whichever form the provider wrote it."""

    id: str
    name: str
    args: dict[str, Any]
    malformed: bool = False


@dataclass(slots=True)
class ToolExchange:
    """One call of one assistant message, and its result once there is one."""

    message: AIMessage
    call: Call
    result: ToolMessage | None = None


@dataclass(frozen=True, slots=True)
class Pairing:
    """All calls of a batch with their results, and the results without an open call."""

    exchanges: list[ToolExchange] = field(default_factory=list)
    duplicates: list[ToolMessage] = field(default_factory=list)
    orphans: list[ToolMessage] = field(default_factory=list)

    @property
    def unanswered(self) -> list[ToolExchange]:
        return [exchange for exchange in self.exchanges if exchange.result is None]


def calls_of(message: BaseMessage) -> list[Call]:
    """Every call of a message, from `tool_calls`, `invalid_tool_calls` and content blocks.

    The same call often occurs twice, parsed and as a block: an id counts as often as it occurs in
    the place that has it most often.
    """
    if not isinstance(message, AIMessage):
        return []
    if isinstance(message.content, str) and not (message.tool_calls or message.invalid_tool_calls):
        return []  # most messages, and this runs for each message of a window
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


def is_of_type(block: Any, types: Container[str]) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    return isinstance(kind, str) and kind in types


def is_call_block(block: Any) -> bool:
    return is_of_type(block, CALL_BLOCKS)


def blocks_of(message: BaseMessage) -> list[str | dict[str, Any]]:
    """The content as a list of blocks; a text is one block."""
    return [message.content] if isinstance(message.content, str) else message.content


def has_content(message: BaseMessage) -> bool:
    """Whether a message has content besides tool calls and reasoning."""
    content = message.content
    if isinstance(content, str):  # most messages, and this runs for each message of a history
        return bool(content.strip() or words_beside(message))
    shown = (block for block in content if not is_of_type(block, _NOT_CONTENT))
    return not all(map(is_blank, shown)) or bool(words_beside(message))


def words_beside(message: BaseMessage) -> str:
    """Text that is not in text blocks: in blocks of one provider, or beside the content, where
    OpenAI's client keeps a refusal or the transcript of audio.
    """
    if not isinstance(message, AIMessage):
        return ""
    foreign = [
        str(block.get(TEXT_KEYS[block["type"]]) or "")
        for block in blocks_of(message)
        if isinstance(block, dict) and is_of_type(block, FOREIGN_TEXT)
    ]
    if foreign:
        return "".join(foreign).strip()
    audio = message.additional_kwargs.get("audio")
    transcript = audio.get("transcript") if isinstance(audio, dict) else None
    text = message.additional_kwargs.get("refusal") or transcript
    return text.strip() if isinstance(text, str) else ""


def pair(messages: Sequence[BaseMessage]) -> Pairing:
    """Give every call of one batch its result.

    A result goes to the first open call of its id in the nearest earlier message; a result stored
    before its call waits for it. The first result of a call counts, later ones are duplicates. A
    result that settling added counts only if there is no other.
    """
    pairing = Pairing()
    # Per id, the open calls of each message, nearest message last.
    waiting: dict[str, list[deque[ToolExchange]]] = {}
    early: list[ToolMessage] = []
    stand_ins: list[ToolMessage] = []
    for message in messages:
        if isinstance(message, AIMessage):
            pairing.exchanges.extend(_exchanges(message, waiting))
        elif isinstance(message, ToolMessage):
            if is_settled(message):
                stand_ins.append(message)
            elif not _answer(waiting.get(message.tool_call_id), message, -1):
                is_known = message.tool_call_id in waiting
                (pairing.duplicates if is_known else early).append(message)
    for message in [*early, *stand_ins]:
        if not _answer(waiting.get(message.tool_call_id), message, 0):
            is_known = message.tool_call_id in waiting
            (pairing.duplicates if is_known else pairing.orphans).append(message)
    return pairing


def _exchanges(
    message: AIMessage, waiting: dict[str, list[deque[ToolExchange]]]
) -> list[ToolExchange]:
    exchanges = [ToolExchange(message, call) for call in calls_of(message)]
    own: defaultdict[str, deque[ToolExchange]] = defaultdict(deque)
    for exchange in exchanges:
        own[exchange.call.id].append(exchange)
    for call_id, unanswered in own.items():
        waiting.setdefault(call_id, []).append(unanswered)
    return exchanges


def _answer(waiting: list[deque[ToolExchange]] | None, result: ToolMessage, which: int) -> bool:
    """Give the result to the first open call of the nearest (-1) or oldest (0) message."""
    if not waiting:
        return False
    waiting[which].popleft().result = result
    if not waiting[which]:
        waiting.pop(which)
    return True


def _call_in_block(block: Any) -> Call:
    raw = block.get("args", block.get("input", block.get("arguments")))
    if block["type"] == "custom_tool_call":
        raw = {"__arg1": raw}  # as LangChain's OpenAI client passes free text
    return Call(
        id=str(block.get("call_id") or block.get("id") or ""),
        name=str(block.get("name") or ""),
        args=_arguments(raw),
        malformed=block["type"] == "invalid_tool_call",
    )


def _arguments(raw: Any) -> dict[str, Any]:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):  # models do loop on an opening bracket
            return {}
    return raw if isinstance(raw, dict) else {}


def is_blank(block: Any) -> bool:
    if isinstance(block, dict) and isinstance(kind := block.get("type"), str):
        block = str(block.get(TEXT_KEYS[kind]) or "") if kind in TEXT_KEYS else block
    return isinstance(block, str) and not block.strip()

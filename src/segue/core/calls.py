"""Tool calls and their results: finding them in a message and pairing them.

Call ids are the provider's and repeat, in one message and across a thread, so nothing here
takes an id for a key of the whole: a result belongs to the nearest call before it that still
waits for one.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

# Blocks that ask *us* to run something. Server-side tools are absent on purpose: the provider
# runs them and writes their results into the same message.
_CALL_BLOCKS = frozenset(
    {"tool_use", "tool_call", "invalid_tool_call", "function_call", "custom_tool_call"}
)
_TEXT_BLOCKS = frozenset({"text", "text-plain", "output_text"})
_REASONING_BLOCKS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})


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


def is_of_type(block: Any, types: frozenset[str]) -> bool:
    return isinstance(block, dict) and block.get("type") in types


def is_call_block(block: Any) -> bool:
    return is_of_type(block, _CALL_BLOCKS)


def has_content(message: BaseMessage) -> bool:
    """Whether a message says anything besides calling tools."""
    content = message.content
    if isinstance(content, str):
        return bool(content.strip())
    return any(_says_something(block) for block in content)


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
            before = groups[message.tool_call_id]
            if exchange := _open_exchange(reversed(before)):
                exchange.result = message
            else:
                (pairing.duplicates if before else early).append(message)
        elif isinstance(message, AIMessage):
            own: defaultdict[str, list[Exchange]] = defaultdict(list)
            for call in calls_of(message):
                exchange = Exchange(message, call)
                own[call.id].append(exchange)
                pairing.exchanges.append(exchange)
            for call_id, exchanges in own.items():
                groups[call_id].append(exchanges)
    for message in early:
        after = groups[message.tool_call_id]
        if exchange := _open_exchange(after):
            exchange.result = message
        else:
            (pairing.duplicates if after else pairing.orphans).append(message)
    return pairing


def _open_exchange(groups: Iterable[list[Exchange]]) -> Exchange | None:
    return next((e for group in groups for e in group if e.result is None), None)


def _call_in_block(block: Any) -> Call:
    raw = block.get("args", block.get("input", block.get("arguments")))
    if block["type"] == "custom_tool_call":
        raw = {"__arg1": raw}  # as its own client writes free text into arguments
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
    return not (is_blank(block) or is_of_type(block, _CALL_BLOCKS | _REASONING_BLOCKS))


def is_blank(block: Any) -> bool:
    if is_of_type(block, _TEXT_BLOCKS):
        block = block.get("text") or ""
    return isinstance(block, str) and not block.strip()

"""Checks that a list of messages is a request that every provider accepts.

For each point the strictest rule of OpenAI, Anthropic and Google, as their errors state it. It
reads LangChain messages, before any client converts them, and knows nothing of batches.
"""

from collections import Counter
from collections.abc import Sequence

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from segue.core.calls import Call, calls_of, has_content
from segue.core.request import MAX_CALL_ID, TOOL_NAME


def request_problems(messages: Sequence[BaseMessage]) -> list[str]:
    """What a provider would refuse, one sentence each; empty means valid."""
    spoken = [m for m in messages if not isinstance(m, SystemMessage)]
    problems = []
    if any(isinstance(m, SystemMessage) for m in messages[1:]):
        problems.append("A system message stands after the first place.")
    if spoken and not isinstance(spoken[0], HumanMessage):
        problems.append(f"The first message is {spoken[0].type}, not human.")
    problems += [
        f"Not every provider knows a {type(m).__name__}."
        for m in spoken
        if not isinstance(m, HumanMessage | AIMessage | ToolMessage)
    ]
    return problems + _empty(spoken) + _calls(spoken) + _repeated_ids(spoken)


def _empty(messages: Sequence[BaseMessage]) -> list[str]:
    return [
        f"Message {index} ({m.type}) says nothing."
        for index, m in enumerate(messages)
        if not isinstance(m, ToolMessage) and not calls_of(m) and not has_content(m)
    ]


def _calls(messages: Sequence[BaseMessage]) -> list[str]:
    problems = []
    index = 0
    while index < len(messages):
        message = messages[index]
        if isinstance(message, ToolMessage):
            problems.append(f"Message {index} is a result without a call right before it.")
        calls = calls_of(message)
        if calls and index and isinstance(messages[index - 1], AIMessage):
            problems.append(f"Message {index} calls right after another assistant message.")
        if not all(_is_well_formed(call) for call in calls):
            problems.append(f"Message {index} holds a malformed call.")
        results = messages[index + 1 : index + 1 + len(calls)]
        answered = [m.tool_call_id for m in results if isinstance(m, ToolMessage)]
        if sorted(answered) != sorted(call.id for call in calls):
            problems.append(f"Message {index} is not followed by exactly its results.")
        index += 1 + len(answered)
    return problems


def _is_well_formed(call: Call) -> bool:
    known = 0 < len(call.id) <= MAX_CALL_ID and TOOL_NAME.fullmatch(call.name)
    return bool(known) and not call.malformed


def _repeated_ids(messages: Sequence[BaseMessage]) -> list[str]:
    ids = Counter(call.id for message in messages for call in calls_of(message))
    return [f"Call id {i!r} stands for more than one call." for i, n in ids.items() if n > 1]

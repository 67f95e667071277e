"""Messages as LangGraph's clients write and read them.

From a client only the content of a person's messages is taken. To a client goes what a person sees;
an id that the client gave to its message is the message's id here, because clients match their own
copy by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.messages import origin_of, shown_content
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import to_text
from segue.errors import UsageError

# Some user interfaces add tool results of their own for calls without one.
_NOT_A_MESSAGE: Final = "do-not-render-"
_HUMAN: Final = frozenset({"human", "user", "HumanMessage", "HumanMessageChunk"})

Json = dict[str, Any]


def message_id(message: BaseMessage) -> str:
    metadata = MessageMetadata.of(message)
    return metadata.client_message_id or message.id or to_text(metadata.position or 0)


def message_json(message: BaseMessage) -> Json:
    """A visible message."""
    fields = _fields(shown_content(message), message_id(message), origin_of(message))
    if isinstance(message, HumanMessage):
        return {**fields, "type": "human"}
    calls: Json = {"tool_calls": [], "invalid_tool_calls": [], "usage_metadata": None}
    return {**fields, "type": "ai", **calls}


def chunk_json(id: str, text: str, origin: str | None) -> Json:
    """A part of an agent's message; clients add up all fields, so only the first has an origin."""
    calls: Json = {"tool_calls": [], "invalid_tool_calls": [], "tool_call_chunks": []}
    calls |= {"usage_metadata": None, "chunk_position": None}
    return {**_fields(text, id, origin), "type": "AIMessageChunk", **calls}


def _fields(content: str | list[Any], id: str, origin: str | None) -> Json:
    return {
        "content": content,
        # Where the adapters of user interfaces look for metadata.
        "additional_kwargs": {"metadata": {"origin": origin}} if origin else {},
        "response_metadata": {},
        "name": None,
        "id": id,
    }


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A person's message, and the id that its client gave to it."""

    content: str | list[Any]
    id: str | None


def sent_messages(given: Any) -> list[SentMessage]:
    """The person's messages at the end of an input; those before them are in the thread already.

    `UsageError` if there is none, or the input has anything that a thread does not take.
    """
    if not isinstance(given, Mapping):
        raise UsageError("input: expected an object with messages.")
    if others := sorted(name for name, value in given.items() if value and name != "messages"):
        raise UsageError(
            f"input: {others[0]!r:.60} is not taken from clients; a thread takes messages only."
        )
    messages = given.get("messages")
    found = messages if isinstance(messages, list) else [messages]
    sent: list[SentMessage] = []
    for message in filter(_is_message, reversed(found)):
        if (read := _human(message)) is None:
            break
        sent.insert(0, read)
    if not sent:
        raise UsageError("input.messages: expected a human message at the end.")
    if any(each.id is None for each in sent[:-1]):
        raise UsageError(
            "input.messages: with several human messages at the end, each needs an id, so that "
            "none is stored twice."
        )
    return sent


def has_replies(given: Any) -> bool:
    """Whether an input brings messages of an agent along."""
    messages = given.get("messages") if isinstance(given, Mapping) else None
    listed = messages if isinstance(messages, list) else []
    return any(_human(each) is None for each in filter(_is_message, listed))


def _is_message(given: Any) -> bool:
    name = given.get("id") if isinstance(given, Mapping) else None
    return not (isinstance(name, str) and name.startswith(_NOT_A_MESSAGE))


def _human(given: Any) -> SentMessage | None:
    """A person's message in one of the forms that LangChain takes; None if it is not a person's."""
    if isinstance(given, str):
        return SentMessage(given, None)
    if isinstance(given, list) and len(given) == 2:  # a role and a content
        given = {"role": given[0], "content": given[1]}
    if not isinstance(given, Mapping):
        raise UsageError(f"input.messages: {type(given).__name__} is not a message.")
    kind = given.get("role") or given.get("type")
    if kind == "constructor" and isinstance(given.get("kwargs"), Mapping):  # a serialised object
        path = given.get("id")
        kind = path[-1] if isinstance(path, list) and path else None
        given = given["kwargs"]
    if not isinstance(kind, str) or kind not in _HUMAN:
        return None
    content, name = given.get("content"), given.get("id")
    if not isinstance(content, str | list):
        raise UsageError("input.messages: content: expected a text or a list of blocks.")
    return SentMessage(content, name if isinstance(name, str) and name else None)

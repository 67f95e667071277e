"""Messages as LangGraph's clients write and read them, and the window of them that is a state.

From a client, only the content of the user's messages is read. A client gets the visible messages;
a message has the id that the client gave it, because clients match their own copy by it. All
streams of a thread share one window, so that a message is read and encoded once for all of them.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage, HumanMessage
from starlette.requests import HTTPConnection

from segue.core.messages import origin_of, shown_content
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import to_text
from segue.errors import UsageError
from segue.facade import Segue
from segue.journal.records import Thread
from segue.server.responses import encode, size_of

# Some user interfaces add tool results of their own for calls without one.
_NOT_A_MESSAGE: Final = "do-not-render-"
_HUMAN: Final = frozenset({"human", "user", "HumanMessage", "HumanMessageChunk"})
# A window has at least this many messages, and less than twice as many.
_STEP: Final = 50
_MOST_CHARACTERS: Final = 2_000_000

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


def removal_json(id: str) -> Json:
    """Takes back a message that was sent in part; LangChain's clients know it by its type."""
    return {**_fields("", id, None), "type": "remove"}


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
    """Whether an input contains messages of an agent."""
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


class Window:
    """The newest messages of a thread, in whole batches.

    It begins at a multiple of `_STEP`, so it stays the same from turn to turn but for what is new.
    """

    def __init__(self, count: int = 0) -> None:
        # Of all messages of the thread.
        self.count = count
        self._messages: list[tuple[BaseMessage, Json, int]] = []
        self._encoded: bytes | None = None

    @classmethod
    async def load(cls, segue: Segue, thread: Thread) -> "Window":
        window = cls(thread.message_count)
        page = await segue.history(thread, limit=window._size() + 1)
        if page.before is None:  # messages may have been stored since the thread was read
            window.count = len(page.messages)
        for message in page.messages:
            window._append(message)
        window._trim(least=0 if page.before is None else 1)
        return window

    def add(self, message: BaseMessage) -> None:
        """A message that was stored since; one that is there already changes nothing."""
        if _position(message) > self.position:
            self.count += 1
            self._append(message)
            self._trim()

    def values(self) -> Json:
        return {"messages": [json for _, json, _ in self._messages]}

    async def encode(self) -> bytes:
        """Its values as JSON."""
        if self._encoded is None:
            self._encoded = await encode(self.values())
        return self._encoded

    @property
    def position(self) -> int:
        """Of its last message."""
        return _position(self._messages[-1][0]) if self._messages else 0

    def _append(self, message: BaseMessage) -> None:
        json = message_json(message)
        self._encoded = None
        self._messages.append((message, json, size_of(json)))

    def _size(self) -> int:
        return self.count if self.count < 2 * _STEP else _STEP + self.count % _STEP

    def _trim(self, least: int = 0) -> None:
        """Drop what is too much, up to the end of its batch; but not the last message."""
        cut = max(len(self._messages) - self._size(), least)
        characters = sum(size for _, _, size in self._messages[cut:])
        while characters > _MOST_CHARACTERS:
            characters -= self._messages[cut][2]
            cut += 1
        cut = min(cut, len(self._messages) - 1)
        if cut <= 0:
            return
        batches = [MessageMetadata.of(message).batch for message, _, _ in self._messages]
        rest = next((i for i in range(cut, len(batches)) if batches[i] != batches[cut - 1]), None)
        # A last batch that is too large is shown from its middle.
        del self._messages[: cut if rest is None else rest]


def _position(message: BaseMessage) -> int:
    return MessageMetadata.of(message).position or 0


class SharedWindow:
    """The window of all streams of a thread; every stream notes what it hears."""

    def __init__(self) -> None:
        self._window: Window | None = None
        # A task, not a lock: a thousand streams that wait for it go on together.
        self._loading: asyncio.Task[Window] | None = None
        self._heard: list[BaseMessage] = []

    def expect(self, thread: Thread) -> None:
        """A stream begins at a thread as it is now: a window that missed something is not used."""
        if self._window is not None and self._window.count < thread.message_count:
            self._window = None

    def note(self, message: BaseMessage) -> None:
        if self._window is not None:
            self._window.add(message)
        elif self._loading is not None:
            self._heard.append(message)

    async def read(self, segue: Segue, thread_id: str) -> Window:
        if self._window is not None:
            return self._window
        if self._loading is None:
            self._heard.clear()
            self._loading = asyncio.create_task(self._load(segue, thread_id))
        return await asyncio.shield(self._loading)

    async def _load(self, segue: Segue, thread_id: str) -> Window:
        try:
            window = await Window.load(segue, await segue.get_thread(thread_id))
            for message in self._heard:
                window.add(message)
            self._window = window
            return window
        finally:
            self._loading = None


def shared_window(connection: HTTPConnection, thread: Thread) -> SharedWindow:
    windows: WeakValueDictionary[str, SharedWindow] = connection.app.state.windows
    shared = windows.get(thread.id) or SharedWindow()
    windows[thread.id] = shared
    shared.expect(thread)
    return shared

"""The state of a thread as LangGraph's clients get it: a window of its newest messages.

All streams of a thread share one window, so that a message is read and encoded once for all of
them. It is loaded when a stream needs it first, and dropped with the last stream.
"""

import asyncio
from typing import Final
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage
from starlette.requests import HTTPConnection

from segue.core.metadata import MessageMetadata
from segue.facade import Segue
from segue.journal.records import Thread
from segue.server.langgraph.messages import Json, message_json
from segue.server.responses import encode, size_of

# A window has at least this many messages, and less than twice as many.
_STEP: Final = 50
_MOST_CHARACTERS: Final = 2_000_000


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
        self._loading = asyncio.Lock()
        self._heard: list[BaseMessage] = []

    def expect(self, thread: Thread) -> None:
        """A stream begins at a thread as it is now: a window that missed something is not used."""
        if self._window is not None and self._window.count < thread.message_count:
            self._window = None

    def note(self, message: BaseMessage) -> None:
        if self._window is not None:
            self._window.add(message)
        elif self._loading.locked():
            self._heard.append(message)

    async def read(self, segue: Segue, thread_id: str) -> Window:
        if self._window is not None:
            return self._window
        async with self._loading:
            if self._window is None:
                self._heard.clear()
                window = await Window.load(segue, await segue.get_thread(thread_id))
                for message in self._heard:
                    window.add(message)
                self._window = window
            return self._window


def shared_window(connection: HTTPConnection, thread: Thread) -> SharedWindow:
    windows: WeakValueDictionary[str, SharedWindow] = connection.app.state.windows
    shared = windows.get(thread.id) or SharedWindow()
    windows[thread.id] = shared
    shared.expect(thread)
    return shared

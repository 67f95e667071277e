"""A thread as the chat uses it, and the one whose agent runs in this process; see also `remote`.

Events are the runtime's, except for whole messages, of which a server sends less.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.messages import spoken_text
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import to_text
from segue.events import (
    MessageDelta,
    MessageRetracted,
    MessageStored,
    QuestionAsked,
    TurnCancelled,
    TurnFailed,
    parse_cursor,
)
from segue.facade import Segue
from segue.insight.views import with_media
from segue.journal.records import Thread, Turn


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A whole message, with the cursor after it."""

    message_id: str
    is_user: bool
    text: str
    cursor: str


@dataclass(frozen=True, slots=True)
class Connection:
    """The connection to the server is lost, or restored."""

    is_up: bool


ChatEvent = (
    ChatMessage
    | MessageDelta
    | MessageRetracted
    | TurnFailed
    | TurnCancelled
    | QuestionAsked
    | Connection
)


class ChatThread(Protocol):
    """One thread. `ask` and `answer` return when the turn ended and `listen` yielded all of it;
    `SegueError` if they failed.
    """

    thread_id: str
    user: str
    agent: str  # its display name

    async def earlier(self, limit: int) -> list[ChatMessage]:
        """The last messages, oldest first; `listen` continues after them."""
        ...

    def listen(self) -> AsyncIterator[ChatEvent]: ...

    async def ask(self, text: str) -> None: ...

    async def answer(self, turn_id: int, answers: Mapping[str, Any]) -> None: ...

    async def cancel(self) -> None: ...

    async def typing(self) -> None:
        """The user is typing; follow-ups wait."""
        ...


class Cursor:
    """How far `listen` has come; others can wait until it reaches a position."""

    def __init__(self) -> None:
        self.value = "0"
        self._moved = asyncio.Condition()

    @property
    def position(self) -> int:
        """Of the last stored message that was yielded."""
        return parse_cursor(self.value)[0]

    async def move(self, value: str) -> None:
        self.value = value
        async with self._moved:
            self._moved.notify_all()

    async def wait_for(self, position: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.position >= position)


class LocalThread:
    """A thread of a `Segue` in this process."""

    def __init__(self, segue: Segue, thread: Thread) -> None:
        self._segue = segue
        self._thread = thread
        self._cursor = Cursor()
        self.thread_id = thread.id
        self.user = thread.user_id
        self.agent = segue.get_agent(thread.agent_id).name or thread.agent_id

    async def earlier(self, limit: int) -> list[ChatMessage]:
        page = await self._segue.history(self._thread, limit=limit)
        messages = [_chat_message(message) for message in page.messages]
        if messages:
            await self._cursor.move(messages[-1].cursor)
        return messages

    async def listen(self) -> AsyncIterator[ChatEvent]:
        async with aclosing(self._segue.listen(self._thread, self._cursor.value)) as events:
            async for heard in events:
                event = heard.payload
                if isinstance(event, MessageStored):
                    yield _chat_message(event.message)
                elif isinstance(
                    event,
                    MessageDelta | MessageRetracted | TurnFailed | TurnCancelled | QuestionAsked,
                ):
                    yield event
                await self._cursor.move(heard.cursor)

    async def ask(self, text: str) -> None:
        await self._wait_for_end((await self._segue.send(self._thread, text)).turn)

    async def answer(self, turn_id: int, answers: Mapping[str, Any]) -> None:
        await self._wait_for_end(await self._segue.answer(turn_id, dict(answers)))

    async def cancel(self) -> None:
        await self._segue.cancel(self._thread)

    async def typing(self) -> None:
        await self._segue.report_typing(self._thread)

    async def _wait_for_end(self, turn: Turn) -> None:
        ended = await self._segue.wait_turn(turn)
        await self._cursor.wait_for(await self._segue.last_position(ended))


def _chat_message(message: BaseMessage) -> ChatMessage:
    position = MessageMetadata.of(message).position
    cursor = to_text(position) if position else "0"
    is_user = isinstance(message, HumanMessage)
    text = with_media(spoken_text(message), message.content)
    return ChatMessage(message.id or cursor, is_user, text, cursor)

"""A conversation as the chat sees it, and one whose agent runs in this process.

`remote` has the other one, of a server. Events are the runtime's own; only whole messages
are told in fewer words, since a server tells no more of them.
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
from segue.facade import Segue
from segue.journal.records import Thread, Turn
from segue.runtime.events import (
    Asked,
    Cancelled,
    Failed,
    Retracted,
    Said,
    Writing,
    place_of,
)
from segue.runtime.wording import with_media


@dataclass(frozen=True, slots=True)
class Spoken:
    """A whole message, with the cursor after it."""

    message_id: str
    is_user: bool
    text: str
    cursor: str


@dataclass(frozen=True, slots=True)
class Connection:
    """The server went away, or is back."""

    is_up: bool


TalkEvent = Spoken | Writing | Retracted | Failed | Cancelled | Asked | Connection


class Talk(Protocol):
    """One thread. `ask` and `answer` return when the turn is over and `listen` has told all of it;
    `SegueError` if nothing came of them.
    """

    thread_id: str
    user: str
    agent: str  # its name, for people

    async def earlier(self, limit: int) -> list[Spoken]:
        """What was said last; `listen` goes on from there."""
        ...

    def listen(self) -> AsyncIterator[TalkEvent]: ...

    async def ask(self, text: str) -> None: ...

    async def answer(self, turn_id: int, answers: Mapping[str, Any]) -> None: ...

    async def cancel(self) -> None: ...

    async def typing(self) -> None:
        """The user is typing; no follow-up comes in between."""
        ...


class Progress:
    """How far a listener has told: those who wait for something know when it was told."""

    def __init__(self) -> None:
        self.cursor = "0"
        self._moved = asyncio.Condition()

    @property
    def position(self) -> int:
        """Of the last stored thing that was told."""
        return place_of(self.cursor)[0]

    async def moved(self, cursor: str) -> None:
        self.cursor = cursor
        async with self._moved:
            self._moved.notify_all()

    async def reaches(self, position: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.position >= position)


class OwnTalk:
    """A thread of a `Segue` in this process."""

    def __init__(self, segue: Segue, thread: Thread) -> None:
        self._segue = segue
        self._thread = thread
        self._progress = Progress()
        self.thread_id = thread.id
        self.user = thread.user_id
        self.agent = segue.agent(thread.agent_id).name or thread.agent_id

    async def earlier(self, limit: int) -> list[Spoken]:
        page = await self._segue.history(self._thread, limit=limit)
        said = [_spoken(message) for message in page.messages]
        if said:
            await self._progress.moved(said[-1].cursor)
        return said

    async def listen(self) -> AsyncIterator[TalkEvent]:
        async with aclosing(self._segue.listen(self._thread, self._progress.cursor)) as events:
            async for heard in events:
                event = heard.event
                if isinstance(event, Said):
                    yield _spoken(event.message)
                elif isinstance(event, Writing | Retracted | Failed | Cancelled | Asked):
                    yield event
                await self._progress.moved(heard.cursor)

    async def ask(self, text: str) -> None:
        await self._end_of((await self._segue.send(self._thread, text)).turn)

    async def answer(self, turn_id: int, answers: Mapping[str, Any]) -> None:
        await self._end_of(await self._segue.answer(turn_id, dict(answers)))

    async def cancel(self) -> None:
        await self._segue.cancel(self._thread)

    async def typing(self) -> None:
        await self._segue.typing(self._thread)

    async def _end_of(self, turn: Turn) -> None:
        ended = await self._segue.finished(turn)
        await self._progress.reaches(await self._segue.end_of(ended))


def _spoken(message: BaseMessage) -> Spoken:
    position = MessageMetadata.of(message).position
    cursor = to_text(position) if position else "0"
    is_user = isinstance(message, HumanMessage)
    text = with_media(spoken_text(message), message.content)
    return Spoken(message.id or cursor, is_user, text, cursor)

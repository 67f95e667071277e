"""A thread as the chat uses it: of a `Segue` in this process, or of a server.

`ask` and `answer` return when the turn ended and `listen` yielded all of it. Events are the
runtime's, except for whole messages: a server sends only their visible part.

To a server, messages are sent by POST; everything else comes by its event stream. A lost
connection loses nothing: the stream continues from its cursor, and a message is sent again with
the same client id, so it is stored once.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

import httpx
from langchain_core.messages import BaseMessage, HumanMessage

from segue.cli.client import TIMEOUT, USER_HEADER, ServerUnavailable, call, check, unavailable
from segue.cli.target import suggest_user
from segue.core.messages import spoken_text
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import parse
from segue.errors import BackendError, UsageError
from segue.events import (
    MessageDelta,
    MessageRetracted,
    MessageStored,
    QuestionAsked,
    TurnCancelled,
    TurnFailed,
    cursor_at,
    parse_cursor,
)
from segue.facade import Segue
from segue.insight.views import with_media
from segue.journal.records import Thread, Turn

_PAUSE_SECONDS: Final = 1.0
# Number of attempts to send a message while the server is unavailable.
_ATTEMPTS: Final = 60


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


_SHOWN = MessageDelta | MessageRetracted | TurnFailed | TurnCancelled | QuestionAsked
ChatEvent = ChatMessage | Connection | _SHOWN


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
        await self.wait_until(lambda: self.position >= position)

    async def wait_until(self, is_there: Callable[[], bool]) -> None:
        """Wait for what is checked after each move."""
        async with self._moved:
            await self._moved.wait_for(is_there)


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
        messages = [_stored_message(message) for message in page.messages]
        if messages:
            await self._cursor.move(messages[-1].cursor)
        return messages

    async def listen(self) -> AsyncGenerator[ChatEvent]:
        async with aclosing(self._segue.listen(self._thread, self._cursor.value)) as events:
            async for heard in events:
                event = heard.payload
                if isinstance(event, MessageStored):
                    yield _stored_message(event.message)
                elif isinstance(event, _SHOWN):
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

    async def preferences(self) -> Mapping[str, Any]:
        return await self._segue.get_user_preferences(self.user)

    async def _wait_for_end(self, turn: Turn) -> None:
        ended = await self._segue.wait_turn(turn)
        await self._cursor.wait_for(await self._segue.last_position(ended))


def _stored_message(message: BaseMessage) -> ChatMessage:
    cursor = cursor_at(MessageMetadata.of(message).position or 0)
    is_user = isinstance(message, HumanMessage)
    text = with_media(spoken_text(message), message.content)
    return ChatMessage(message.id or cursor, is_user, text, cursor)


class RemoteThread:
    """A thread of a server."""

    def __init__(
        self, client: httpx.AsyncClient, thread: Mapping[str, Any], agent: str, user: str
    ) -> None:
        self._client = client
        self.thread_id: str = thread["id"]
        self.user = user
        self.agent = agent
        self._path = f"/api/threads/{quote(self.thread_id, safe='')}"
        self._cursor = Cursor()
        # The turn whose end `listen` has yielded last; a thread's turns end in their order.
        self._last_ended = 0

    @classmethod
    async def open(
        cls, client: httpx.AsyncClient, agent_id: str | None, thread_id: str | None
    ) -> Self:
        """Continue or create a thread; `UsageError` if the key is not the named user's."""
        user = (await call(client, "GET", "/api/me"))["user_id"]
        if (named := client.headers.get(USER_HEADER, user)) != user:
            raise UsageError(f"The key is of user {user!r}, and --user is {named!r}.")
        if thread_id is None:
            thread = await call(client, "POST", "/api/threads", {"agent_id": agent_id})
        else:
            with suggest_user(if_missing=USER_HEADER not in client.headers):
                thread = await call(client, "GET", f"/api/threads/{quote(thread_id, safe='')}")
        agents = await call(client, "GET", "/api/agents")
        names = {agent["id"]: agent["name"] for agent in agents["items"]}
        return cls(client, thread, names.get(thread["agent_id"], thread["agent_id"]), user)

    async def earlier(self, limit: int) -> list[ChatMessage]:
        page = await call(self._client, "GET", f"{self._path}/history?limit={limit}")
        messages = [_received_message(message) for message in page["items"]]
        if messages:
            await self._cursor.move(messages[-1].cursor)
        return messages

    async def listen(self) -> AsyncGenerator[ChatEvent]:
        is_lost = False
        while True:
            try:
                async with self._stream("GET", f"{self._path}/events") as frames:
                    if is_lost:
                        yield Connection(is_up=True)
                    is_lost = False
                    async for frame in frames:
                        if read := _EVENTS.get(frame["type"]):
                            yield read(frame)
                        if frame["type"] == "done":
                            self._last_ended = parse(frame["turn_id"])
                        await self._cursor.move(frame["cursor"])
            except ServerUnavailable:
                pass
            if not is_lost:
                yield Connection(is_up=False)
            is_lost = True
            await asyncio.sleep(_PAUSE_SECONDS)

    async def ask(self, text: str) -> None:
        body = {"content": text, "client_message_id": secrets.token_hex(8)}
        for _ in range(_ATTEMPTS):
            try:
                target = await self._send(body)
            except ServerUnavailable:
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                return await self._cursor.wait_for(target)
        raise BackendError(
            "The server did not come back; whether the message was answered is not known."
        )

    async def answer(self, turn_id: int, answers: Mapping[str, Any]) -> None:
        body = {"turn_id": str(turn_id), "answer": dict(answers)}
        [turn] = (await call(self._client, "POST", f"{self._path}/answer", body))["turn_ids"]
        await self._cursor.wait_until(lambda: self._last_ended >= parse(turn))

    async def cancel(self) -> None:
        await call(self._client, "POST", f"{self._path}/cancel")

    async def typing(self) -> None:
        await call(self._client, "POST", f"{self._path}/typing")

    async def preferences(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = (await call(self._client, "GET", "/api/me"))["preferences"]
        return found

    async def _send(self, body: Mapping[str, Any]) -> int:
        """Send a message and wait for the end of its turn; returns the turn's last position."""
        target = 0
        async with self._stream("POST", f"{self._path}/messages", body) as frames:
            async for frame in frames:
                if frame["type"] == "done":
                    return target
                target = max(target, parse_cursor(frame["cursor"])[0])
        raise ServerUnavailable("The stream ended early.")

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        headers = {"Accept": "text/event-stream"}
        params = {"since": self._cursor.value} if method == "GET" else None
        try:
            async with self._client.stream(
                method, path, json=body, headers=headers, params=params, timeout=TIMEOUT
            ) as response:
                await check(response)
                yield _frames(response)
        except httpx.TransportError as error:
            raise unavailable(self._client, error) from None


def _received_message(message: Mapping[str, Any]) -> ChatMessage:
    is_user = message["role"] == "user"
    text = with_media(message["text"], message["content"])
    return ChatMessage(message["id"], is_user, text, message["position"])


# Frames of other types are not shown in a terminal.
_EVENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], ChatEvent]]] = {
    "message": lambda frame: _received_message(frame["message"]),
    "token": lambda frame: MessageDelta(frame["message_id"], frame["offset"], frame["text"]),
    "retracted": lambda frame: MessageRetracted(frame["message_id"]),
    "error": lambda frame: TurnFailed(frame["code"], frame["reason"]),
    "cancelled": lambda frame: TurnCancelled(parse(frame["turn_id"])),
    "question": lambda frame: QuestionAsked(parse(frame["turn_id"]), frame["questions"]),
}


async def _frames(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The data of each server-sent event; Segue sends it on one line."""
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


ChatThread = LocalThread | RemoteThread

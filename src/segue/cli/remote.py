"""A conversation with a server: messages by POST, everything else by its stream of events.

A server that goes away and comes back costs nothing: the stream goes on from its cursor, and a
message is sent again under the same client id, so it is stored once.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from segue.cli.http import TIMEOUT, USER_HEADER, Away, away, call, check
from segue.cli.talks import Connection, Progress, Spoken, TalkEvent
from segue.core.errors import BackendError, UsageError
from segue.core.snowflake import parse
from segue.runtime.events import Asked, Cancelled, Failed, Retracted, Writing, place_of
from segue.runtime.wording import with_media

_PAUSE_SECONDS: Final = 1.0
# For so many pauses a message waits for a server that is away.
_TRIES: Final = 60


class RemoteTalk:
    """A thread of a server."""

    def __init__(
        self, client: httpx.AsyncClient, thread: Mapping[str, Any], agent: str, user: str
    ) -> None:
        self._client = client
        self.thread_id: str = thread["id"]
        self.user = user
        self.agent = agent
        self._path = f"/api/threads/{quote(self.thread_id, safe='')}"
        self._progress = Progress()

    @classmethod
    async def begin(
        cls, client: httpx.AsyncClient, agent_id: str | None, thread_id: str | None
    ) -> Self:
        """Go on with a thread, or begin one; `UsageError` if the key is not the named user's."""
        user = (await call(client, "GET", "/api/me"))["user_id"]
        if (named := client.headers.get(USER_HEADER, user)) != user:
            raise UsageError(f"The key is of user {user!r}, and --user says {named!r}.")
        if thread_id is None:
            thread = await call(client, "POST", "/api/threads", {"agent_id": agent_id})
        else:
            thread = await call(client, "GET", f"/api/threads/{quote(thread_id, safe='')}")
        agents = await call(client, "GET", "/api/agents")
        names = {agent["id"]: agent["name"] for agent in agents}
        return cls(client, thread, names.get(thread["agent_id"], thread["agent_id"]), user)

    async def earlier(self, limit: int) -> list[Spoken]:
        page = await call(self._client, "GET", f"{self._path}/history?limit={limit}")
        said = [_spoken(message) for message in page["messages"]]
        if said:
            await self._progress.moved(said[-1].cursor)
        return said

    async def listen(self) -> AsyncIterator[TalkEvent]:
        is_lost = False
        while True:
            try:
                async with self._stream("GET", f"{self._path}/events") as frames:
                    if is_lost:
                        yield Connection(is_up=True)
                    is_lost = False
                    async for frame in frames:
                        if event := _event(frame):
                            yield event
                        await self._progress.moved(frame["cursor"])
            except Away:
                pass
            if not is_lost:
                yield Connection(is_up=False)
            is_lost = True
            await asyncio.sleep(_PAUSE_SECONDS)

    async def ask(self, text: str) -> None:
        body = {"content": text, "client_message_id": secrets.token_hex(8)}
        for _ in range(_TRIES):
            try:
                target = await self._send(body)
            except Away:
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                return await self._progress.reaches(target)
        raise BackendError("The server does not come back; what became of this is not known.")

    async def answer(self, turn_id: int, answers: Mapping[str, Any]) -> None:
        body = {"turn_id": str(turn_id), "answer": dict(answers)}
        before = self._progress.position
        await call(self._client, "POST", f"{self._path}/answer", body)
        # A server tells no more of it; the next thing that is stored is what the agent says.
        await self._progress.reaches(before + 1)

    async def cancel(self) -> None:
        await call(self._client, "POST", f"{self._path}/cancel")

    async def typing(self) -> None:
        await call(self._client, "POST", f"{self._path}/typing")

    async def _send(self, body: Mapping[str, Any]) -> int:
        """Send a message, and wait for the end of its turn; the last position that it has."""
        target = 0
        async with self._stream("POST", f"{self._path}/messages", body) as frames:
            async for frame in frames:
                if frame["type"] == "done":
                    return target
                target = max(target, place_of(frame["cursor"])[0])
        raise Away("The stream ended early.")

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        headers = {"Accept": "text/event-stream"}
        params = {"since": self._progress.cursor} if method == "GET" else None
        try:
            async with self._client.stream(
                method, path, json=body, headers=headers, params=params, timeout=TIMEOUT
            ) as response:
                await check(response)
                yield _frames(response)
        except httpx.TransportError as error:
            raise away(self._client, error) from None


def _spoken(message: Mapping[str, Any]) -> Spoken:
    is_user = message["role"] == "user"
    text = with_media(message["text"], message["content"])
    return Spoken(message["id"], is_user, text, message["position"])


# Other kinds of frames are for screens with more room.
_EVENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], TalkEvent]]] = {
    "message": lambda frame: _spoken(frame["message"]),
    "token": lambda frame: Writing(frame["message_id"], frame["offset"], frame["text"]),
    "retracted": lambda frame: Retracted(frame["message_id"]),
    "error": lambda frame: Failed(frame["code"], frame["reason"]),
    "cancelled": lambda frame: Cancelled(parse(frame["turn_id"])),
    "question": lambda frame: Asked(parse(frame["turn_id"]), frame["questions"]),
}


async def _frames(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The data of each server-sent event; ours have it on one line."""
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def _event(frame: Mapping[str, Any]) -> TalkEvent | None:
    read = _EVENTS.get(frame["type"])
    return None if read is None else read(frame)

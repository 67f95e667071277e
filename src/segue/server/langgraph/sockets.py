"""The event protocol over a WebSocket: each frame of a client is a command, and each subscription
of a socket sends its own events.
"""

import asyncio
from contextlib import aclosing

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import TypeAdapter, ValidationError

from segue.errors import NotFoundError, SegueError, UsageError
from segue.journal.records import Thread
from segue.server.access import admit, get_own_thread, segue_of
from segue.server.auth import RateLimit
from segue.server.connections import LiveConnection, live_connection
from segue.server.langgraph.commands import Command, error_json, open_feed, run_command
from segue.server.langgraph.events import EventFeed, Subscription
from segue.server.langgraph.messages import Json
from segue.server.middleware import BodyTooLarge, check_parts
from segue.server.problems import ApiError
from segue.server.responses import encode
from segue.server.socket import RESTARTING, accepted, close

router = APIRouter()
_COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)
_MOST_SUBSCRIPTIONS = 16


@router.websocket("/threads/{thread_id}/stream/events")
async def connect(websocket: WebSocket, thread_id: str) -> None:
    async with accepted(websocket):
        caller = await admit(websocket)
        with live_connection(websocket, caller, "socket") as live:
            await _Socket(websocket, live, thread_id).run()


class _Socket:
    """One socket; its thread may be created by its first run."""

    def __init__(self, websocket: WebSocket, live: LiveConnection, thread_id: str) -> None:
        self._websocket = websocket
        self._live = live
        self._thread_id = thread_id
        self._segue = segue_of(websocket)
        self._rate: RateLimit = websocket.app.state.rate
        self._sending = asyncio.Lock()
        self._feeds: dict[str, asyncio.Task[None]] = {}
        self._count = 0

    async def run(self) -> None:
        """Until the client leaves, the server stops, or a subscription fails."""
        receiving = asyncio.create_task(self._receive())
        over = asyncio.create_task(self._live.wait_until_over())
        try:
            while not (receiving.done() or over.done()):
                tasks = {receiving, over, *self._feeds.values()}
                # A subscription may begin meanwhile, so look again.
                done, _ = await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_COMPLETED)
                for name, task in [*self._feeds.items()]:
                    if task in done:
                        del self._feeds[name]
                        task.result()
            for task in (receiving, over):
                if task.done():
                    task.result()
            await close(self._websocket, RESTARTING, "The server stops; subscribe again.")
        finally:
            tasks = {receiving, over, *self._feeds.values()}
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1000))
            try:
                await self._live.check()
                self._rate.take(self._live.caller)
                command = _parse(message.get("text") or "")
            except (ApiError, SegueError) as error:
                if isinstance(error, ApiError) and error.status == 401:
                    raise
                await self._send({"type": "error", "id": None, **error_json(error)})
                continue
            async with command.slot(self._websocket, self._live.caller):
                await self._send(await self._handle(command))

    async def _handle(self, command: Command) -> Json:
        if not command.method.startswith("subscription."):
            return await run_command(self._websocket, self._live.caller, self._thread_id, command)
        try:
            result = await self._subscribe(command)
        except (ApiError, SegueError, ValidationError) as error:
            return {"type": "error", "id": command.id, **error_json(error)}
        return {"type": "success", "id": command.id, "result": result}

    async def _subscribe(self, command: Command) -> Json:
        if command.method == "subscription.unsubscribe":
            name = str(command.params.get("subscription_id"))
            if (task := self._feeds.pop(name, None)) is None:
                raise NotFoundError(f"There is no subscription {name!r:.60}.")
            task.cancel()
            return {}
        if command.method != "subscription.subscribe":
            raise UsageError(f"{command.method!r:.60} is not supported; subscribe again.")
        if len(self._feeds) >= _MOST_SUBSCRIPTIONS:
            raise UsageError(f"A socket has at most {_MOST_SUBSCRIPTIONS} subscriptions.")
        wanted = Subscription.model_validate(command.params)
        wanted.check()
        thread = await self._thread()
        feed = await open_feed(self._segue, self._live, thread, wanted)
        self._count += 1
        name = f"subscription-{self._count}"
        self._feeds[name] = asyncio.create_task(self._forward(feed))
        return {"subscription_id": name}

    async def _thread(self) -> Thread:
        return await get_own_thread(self._segue, self._live.caller, self._thread_id)

    async def _forward(self, feed: EventFeed) -> None:
        async with aclosing(feed.events()) as events:
            async for event in events:
                if event is not None:
                    await self._send_text(event.json.decode())

    async def _send(self, body: Json) -> None:
        await self._send_text((await encode(body)).decode())

    async def _send_text(self, text: str) -> None:
        async with self._sending:
            await self._websocket.send_text(text)


def _parse(text: str) -> Command:
    """`UsageError` if it is not a command."""
    try:
        check_parts(text.encode(errors="replace"))
        return _COMMANDS.validate_json(text)
    except BodyTooLarge as error:
        raise UsageError(error.detail) from None
    except ValidationError as error:
        raise UsageError(str(error_json(error)["message"])) from None

"""A thread over WebSocket: each connection receives all events, and may send.

An invalid frame gets an error frame and the socket stays open; other failures close it with a code.
The bus bounds a client that does not read: it receives `lagged`, and then what was stored.
"""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from typing import Any, Final

from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect
from pydantic import TypeAdapter, ValidationError
from starlette.websockets import WebSocketDisconnected

from segue.core.snowflake import to_text
from segue.errors import SegueError, UsageError
from segue.events import cursor_at, parse_cursor
from segue.journal.records import Thread
from segue.server.access import admit, get_own_thread, get_own_turn, segue_of, slot_of
from segue.server.auth import RateLimit
from segue.server.connections import LiveConnection, live_connection, with_heartbeats
from segue.server.middleware import BodyTooLarge, check_parts
from segue.server.problems import ApiError, describe_errors, field_errors, problem_of
from segue.server.requests import AnswerFrame, ClientFrame, MessageFrame, SignalFrame
from segue.server.responses import LARGE, encode, error_frame, frame, size_of
from segue.server.routes.messages import accept_message
from segue.telemetry import span

logger = logging.getLogger(__name__)
router = APIRouter()

PROTOCOL: Final = "segue"
RESTARTING: Final = 1012
# HTTP statuses, in the range for applications.
_CLOSE_CODES: Final = {400: 4400, 401: 4401, 403: 4403, 404: 4404, 422: 4400, 429: 4429, 503: 1013}
_FRAMES: TypeAdapter[ClientFrame] = TypeAdapter(ClientFrame)


def parse_frame(text: str) -> ClientFrame:
    """A client's frame; `UsageError` if it is invalid."""
    try:
        check_parts(text.encode(errors="replace"))
        return _FRAMES.validate_json(text)
    except BodyTooLarge as error:
        raise UsageError(error.detail) from None
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)[:5]
        for each in errors:
            each["loc"] = each["loc"][1:]  # without the frame's type
        raise UsageError(f"{describe_errors(field_errors(errors), 'This frame')}.") from None


@router.websocket("/api/threads/{thread_id}/ws")
async def connect(websocket: WebSocket, thread_id: str, since: str | None = Query(None)) -> None:
    """Listen to a thread and send to it; docs/server.md lists the frames."""
    protocols = websocket.scope.get("subprotocols", [])
    await websocket.accept(PROTOCOL if PROTOCOL in protocols else None)
    try:
        caller = await admit(websocket)
        thread = await get_own_thread(segue_of(websocket), caller, thread_id)
        # Set the cursor now: a frame may be handled before listening begins.
        since = cursor_at(thread.last_position) if since is None else since
        parse_cursor(since)
        with live_connection(websocket, caller, "socket") as live:
            await _Socket(websocket, live, thread).run(since)
    except (WebSocketDisconnect, WebSocketDisconnected):  # while reading, or while writing
        pass
    except (ApiError, SegueError) as error:
        problem = problem_of(error)
        await _close(websocket, _CLOSE_CODES.get(problem.status, 1011), problem.detail)
    except Exception:
        logger.exception("A socket of thread %s failed", thread_id)
        await _close(websocket, 1011, "The server failed.")


class _Socket:
    """One socket of one caller."""

    def __init__(self, websocket: WebSocket, live: LiveConnection, thread: Thread) -> None:
        self._websocket = websocket
        self._live = live
        self._thread = thread
        self._segue = segue_of(websocket)
        self._rate: RateLimit = websocket.app.state.rate
        # Two tasks send frames.
        self._sending = asyncio.Lock()

    async def run(self, since: str) -> None:
        """Send and receive until the client disconnects or the server stops."""
        tasks = [
            asyncio.create_task(self._send_events(since)),
            asyncio.create_task(self._receive_frames()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_events(self, since: str) -> None:
        heard = self._segue.listen(self._thread, since)
        async with aclosing(with_heartbeats(heard, self._live)) as events:
            async for event in events:
                if event is not None:
                    await self._send(frame(event))
        await _close(self._websocket, RESTARTING, "The server stops; reconnect with your cursor.")

    async def _receive_frames(self) -> None:
        while True:
            text = await self._receive()
            try:
                await self._live.check()
                self._rate.take(self._live.caller)
                await self._handle(parse_frame(text))
            except (ApiError, SegueError) as error:
                problem = problem_of(error)
                if problem.status == 401:
                    raise
                await self._send(error_frame(problem))

    async def _receive(self) -> str:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        return message.get("text") or ""  # a binary frame is invalid, like an empty one

    async def _handle(self, given: ClientFrame) -> None:
        match given:
            case MessageFrame():
                with span("frame", thread_id=self._thread.id, frame_type=given.type):
                    accepted = await accept_message(self._websocket, self._thread, given)
                await self._send(
                    {
                        "type": "accepted",
                        "client_message_id": given.client_message_id,
                        "message_id": accepted.message.id,
                        "turn_id": to_text(accepted.turn.id),
                        "is_new": accepted.is_new,
                    }
                )
            case AnswerFrame():
                turn = await get_own_turn(self._segue, self._thread, given.turn_id)
                await self._segue.answer(turn, given.answer)
            case SignalFrame(type="cancel"):
                await self._segue.cancel(self._thread)
            case SignalFrame(type="typing"):
                await self._segue.report_typing(self._thread)
            case SignalFrame(type="ping"):
                await self._send({"type": "pong"})

    async def _send(self, body: dict[str, Any]) -> None:
        # With many sockets, each would hold its copy of a large frame while clients read.
        slot: AbstractAsyncContextManager[None] = nullcontext()
        if size_of(body) > LARGE:
            slot = slot_of(self._websocket, self._live.caller, "frames", 4)
        async with slot:
            text = (await encode(body)).decode()
            async with self._sending:
                await self._websocket.send_text(text)


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    with suppress(RuntimeError):  # already closed
        await websocket.close(code, reason[:120])

"""A thread, or all threads of a user, over WebSocket: each connection receives all events, and may
send.

An invalid frame gets an error frame and the socket stays open; other failures close it with a code.
The bus bounds a client that does not read: it receives `lagged`, and then what was stored.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from segue.core.snowflake import to_text
from segue.errors import SegueError, UsageError
from segue.events import Event, cursor_at, parse_cursor
from segue.journal.records import Thread
from segue.server.access import admit, get_own_thread, get_own_turn, segue_of, slot_of
from segue.server.auth import RateLimit
from segue.server.connections import LiveConnection, live_connection
from segue.server.frames import error_frame, frame
from segue.server.middleware import BodyTooLarge, parse_json
from segue.server.problems import ApiError, describe_invalid, logged_problem
from segue.server.requests import AnswerFrame, ClientFrame, MessageFrame, SignalFrame, ThreadFrame
from segue.server.responses import LARGE, encode, size_of
from segue.server.routes.messages import accept_message
from segue.telemetry import span

logger = logging.getLogger(__name__)
T = TypeVar("T")
router = APIRouter()

PROTOCOL: Final = "segue"
RESTARTING: Final = 1012
# HTTP statuses, in the range for applications.
_CLOSE_CODES: Final = {400: 4400, 401: 4401, 403: 4403, 404: 4404, 422: 4400, 429: 4429, 503: 1013}
# A control frame has 125 bytes, of which the code takes two.
_MOST_REASON_BYTES: Final = 123
_FRAMES: TypeAdapter[ClientFrame] = TypeAdapter(ClientFrame)


def parse_frame(text: str) -> ClientFrame:
    """A client's frame; `UsageError` if it is invalid."""
    return parse_as(_FRAMES, text, "This frame", skip=1)  # without the frame's type


def parse_as(kind: TypeAdapter[T], text: str, whole: str, skip: int = 0) -> T:
    """The JSON of a frame; `UsageError` if it is not of this kind."""
    try:
        return kind.validate_python(
            parse_json(text.encode(errors="replace")), from_attributes=False
        )
    except BodyTooLarge as error:
        raise UsageError(error.detail) from None
    except ValidationError as error:
        raise UsageError(describe_invalid(error, whole, skip)) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{whole} is not valid JSON: {error}.") from None


@router.websocket("/api/threads/{thread_id}/ws")
async def connect(websocket: WebSocket, thread_id: str, since: str | None = Query(None)) -> None:
    """Listen to a thread and send to it; docs/server.md lists the frames."""
    async with accepted(websocket):
        caller = await admit(websocket)
        thread = await get_own_thread(segue_of(websocket), caller, thread_id)
        # Set the cursor now: a frame may be handled before listening begins.
        since = cursor_at(thread.last_position) if since is None else since
        parse_cursor(since)
        with live_connection(websocket, caller, "socket") as live:
            heard = segue_of(websocket).listen(thread, since)
            await _Socket(websocket, live, thread).run(heard)


@router.websocket("/api/ws")
async def connect_user(websocket: WebSocket, since: str | None = Query(None)) -> None:
    """Listen to all threads of the caller and send to them; the client's frames name theirs."""
    async with accepted(websocket):
        caller = await admit(websocket)
        segue = segue_of(websocket)
        since = await segue.user_cursor(caller.user_id) if since is None else since
        parse_cursor(since)
        with live_connection(websocket, caller, "socket") as live:
            await _Socket(websocket, live).run(segue.listen_user(caller.user_id, since))


@asynccontextmanager
async def accepted(websocket: WebSocket) -> AsyncIterator[None]:
    """A socket whose caller the block admits; what the block raises closes it with a code."""
    protocols = websocket.scope.get("subprotocols", [])
    await websocket.accept(PROTOCOL if PROTOCOL in protocols else None)
    try:
        yield
    except WebSocketDisconnect:  # while reading, or while writing
        pass
    except (ApiError, SegueError) as error:
        problem = logged_problem(error, f"A socket at {websocket.url.path}")
        await close(websocket, _CLOSE_CODES.get(problem.status, 1011), problem.detail)
    except Exception:
        logger.exception("A socket at %s failed", websocket.url.path)
        await close(websocket, 1011, "The server failed.")


class _Socket:
    """One socket of one caller; without a thread, for all threads of the caller."""

    def __init__(
        self, websocket: WebSocket, live: LiveConnection, thread: Thread | None = None
    ) -> None:
        self._websocket = websocket
        self._live = live
        self._thread = thread
        self._segue = segue_of(websocket)
        # Two tasks send frames.
        self._sending = asyncio.Lock()

    async def run(self, heard: AsyncGenerator[Event]) -> None:
        """Send and receive until the client disconnects or the server stops."""
        sending = self._send_events(heard)
        receiving = obey(self._websocket, self._live, self._obey, self._refuse)
        await first_of(sending, receiving, self._live.wait_until_over())
        await close(self._websocket, RESTARTING, "The server stops; reconnect with your cursor.")

    async def _send_events(self, heard: AsyncGenerator[Event]) -> None:
        async with aclosing(heard):
            async for event in heard:
                await self._send(frame(event))

    async def _obey(self, text: str) -> None:
        await self._handle(parse_frame(text))

    async def _refuse(self, error: Exception) -> None:
        await self._send(error_frame(logged_problem(error, "A frame")))

    async def _thread_of(self, given: ThreadFrame) -> Thread:
        """The caller's thread that a frame is for."""
        if self._thread is None:
            if given.thread_id is None:
                raise UsageError("This socket is for all threads; a frame names its thread_id.")
            return await get_own_thread(self._segue, self._live.caller, given.thread_id)
        if given.thread_id not in {None, self._thread.id}:
            raise UsageError("This socket is for another thread; leave out thread_id.")
        return self._thread

    async def _handle(self, given: ClientFrame) -> None:
        match given:
            case SignalFrame(type="ping"):
                await self._send({"type": "pong"})
                return
        thread = await self._thread_of(given)
        match given:
            case MessageFrame():
                with span("frame", thread_id=thread.id, frame_type=given.type):
                    accepted = await accept_message(self._websocket, thread, given)
                await self._send(
                    {
                        "type": "accepted",
                        "thread_id": thread.id,
                        "client_message_id": given.client_message_id,
                        "message_id": accepted.message.id,
                        "turn_id": to_text(accepted.turn.id),
                        "is_new": accepted.is_new,
                    }
                )
            case AnswerFrame():
                turn = await get_own_turn(self._segue, thread, given.turn_id)
                await self._segue.answer(turn, given.answer)
            case SignalFrame(type="cancel"):
                await self._segue.cancel(thread)
            case SignalFrame(type="typing"):
                await self._segue.report_typing(thread)

    async def _send(self, body: dict[str, Any]) -> None:
        if size_of(body) <= LARGE:
            await self._send_text(to_json(body))
            return
        # With many sockets, each would hold its copy of a large frame while clients read.
        async with slot_of(self._websocket, self._live.caller, "frames", 4):
            await self._send_text(await encode(body))

    async def _send_text(self, text: bytes) -> None:
        async with self._sending:
            await send_text(self._websocket, text.decode())


async def first_of(*work: Awaitable[None]) -> None:
    """Work until one of several ends or fails; the others are cancelled."""
    tasks = [*map(asyncio.ensure_future, work)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def obey(
    websocket: WebSocket,
    live: LiveConnection,
    handle: Callable[[str], Awaitable[None]],
    refuse: Callable[[Exception], Awaitable[None]],
) -> None:
    """Handle the frames of a client until it leaves, within its rate and while its credentials are
    valid; what is wrong with a frame is for `refuse`.
    """
    rate: RateLimit = websocket.app.state.rate
    while True:
        text = await _receive_text(websocket)
        try:
            await live.check()
            rate.take(live.caller)
            await handle(text)
        except (ApiError, SegueError) as error:
            if isinstance(error, ApiError) and error.status == 401:
                raise
            await refuse(error)


async def _receive_text(websocket: WebSocket) -> str:
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    return message.get("text") or ""  # a binary frame is invalid, like an empty one


async def send_text(websocket: WebSocket, text: str) -> None:
    try:
        await websocket.send_text(text)
    except RuntimeError:  # uvicorn has answered the client's close, which was not received here yet
        raise WebSocketDisconnect from None


async def close(websocket: WebSocket, code: int, reason: str) -> None:
    short = reason.encode()[:_MOST_REASON_BYTES].decode(errors="ignore")
    with suppress(RuntimeError, WebSocketDisconnect):  # already closed
        await websocket.close(code, short)

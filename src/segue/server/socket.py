"""A thread over WebSocket: every tab hears everything, and may speak.

A bad frame is answered with an error frame and the socket stays open; only what cannot go on closes
it, with a code that says why. A client that does not read is bounded by the bus: it hears `lagged`
and then what was stored.
"""

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import Any, Final, assert_never

from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect

from segue.core.errors import SegueError
from segue.core.snowflake import to_text
from segue.facade import Segue
from segue.journal.records import Thread
from segue.noting import watched
from segue.runtime.events import cursor_at, place_of
from segue.server.access import (
    journal_of,
    let_in,
    own_thread,
    own_turn,
    segue_of,
    settings_of,
)
from segue.server.auth import RateLimit, bearer
from segue.server.frames import (
    AnswerFrame,
    CancelFrame,
    ClientFrame,
    MessageFrame,
    PingFrame,
    TypingFrame,
    read_frame,
)
from segue.server.problems import Refusal, problem_of
from segue.server.streams import paced
from segue.server.talk import take
from segue.server.visits import Visit, counted
from segue.server.wire import frame

logger = logging.getLogger(__name__)
router = APIRouter()

# What a browser's socket can send of headers is only its protocols: `segue` and `bearer.<key>`.
PROTOCOL: Final = "segue"
_BEARER: Final = "bearer."
RESTARTING: Final = 1012
# As HTTP has them, in the range that is free for applications.
_CLOSE_CODES: Final = {400: 4400, 401: 4401, 403: 4403, 404: 4404, 422: 4400, 429: 4429, 503: 1013}


@router.websocket("/api/threads/{thread_id}/ws")
async def talk(websocket: WebSocket, thread_id: str, since: str | None = Query(None)) -> None:
    """Listen to a thread and speak in it; see docs/server.md for the frames."""
    protocols = websocket.scope.get("subprotocols", [])
    await websocket.accept(PROTOCOL if PROTOCOL in protocols else None)
    try:
        words = _words(websocket, protocols)
        caller = await let_in(websocket, words)
        thread = await own_thread(journal_of(websocket), caller, thread_id)
        # Without a cursor from here on: a frame may be obeyed before listening has begun.
        since = cursor_at(thread.last_position) if since is None else since
        place_of(since)
        with counted(websocket, caller, "socket"):
            await _Conversation(websocket, Visit(websocket, caller, words), thread).run(since)
    except WebSocketDisconnect:
        pass
    except (Refusal, SegueError) as error:
        problem = problem_of(error)
        await _close(websocket, _CLOSE_CODES.get(problem.status, 1011), problem.detail)
    except Exception:
        logger.exception("A socket of thread %s failed", thread_id)
        await _close(websocket, 1011, "The server failed.")


class _Conversation:
    """One socket of one caller."""

    def __init__(self, websocket: WebSocket, visit: Visit, thread: Thread) -> None:
        self._websocket = websocket
        self._visit = visit
        self._thread = thread
        self._segue: Segue = segue_of(websocket)
        self._rate: RateLimit = websocket.app.state.rate
        # Two tasks write; a frame is sent whole.
        self._sending = asyncio.Lock()

    async def run(self, since: str) -> None:
        """Hear and speak at once, until the client goes or the server stops."""
        tasks = [
            asyncio.create_task(self._tell(since)),
            asyncio.create_task(self._hear()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, since: str) -> None:
        every = settings_of(self._websocket).ping_every
        heard = self._segue.listen(self._thread, since)
        async with aclosing(paced(heard, every, self._visit.over())) as events:
            async for event in events:
                if event is not None:
                    await self._send(frame(event))
        await _close(self._websocket, RESTARTING, "The server stops; come back with your cursor.")

    async def _hear(self) -> None:
        while True:
            text = await self._receive()
            try:
                await self._visit.check()
                self._rate.take(self._visit.caller)
                await self._obey(read_frame(text))
            except (Refusal, SegueError) as error:
                problem = problem_of(error)
                if problem.status == 401:
                    raise
                await self._send({"type": "error", "code": problem.code, "reason": problem.detail})

    async def _receive(self) -> str:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        text: str | None = message.get("text")
        return "" if text is None else text  # bytes are no frame of ours

    async def _obey(self, given: ClientFrame) -> None:
        match given:
            case MessageFrame():
                with watched("frame", thread_id=self._thread.id, frame_type=given.type):
                    accepted = await take(self._websocket, self._thread, given)
                await self._send(
                    {
                        "type": "accepted",
                        "client_message_id": given.client_message_id,
                        "message_id": accepted.message.id,
                        "turn_id": to_text(accepted.turn.id),
                        "is_new": accepted.is_new,
                    }
                )
            case CancelFrame():
                await self._segue.cancel(self._thread)
            case TypingFrame():
                await self._segue.typing(self._thread)
            case AnswerFrame():
                journal = journal_of(self._websocket)
                turn = await own_turn(journal, self._thread, given.turn_id)
                await self._segue.answer(turn, given.answer)
            case PingFrame():
                await self._send({"type": "pong"})
            case _:
                assert_never(given)

    async def _send(self, body: dict[str, Any]) -> None:
        async with self._sending:
            await self._websocket.send_json(body)


def _words(websocket: WebSocket, protocols: list[str]) -> str | None:
    offered = [p.removeprefix(_BEARER) for p in protocols if p.startswith(_BEARER)]
    return offered[0] if offered else bearer(websocket.headers.get("Authorization"))


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    with suppress(RuntimeError):  # it is closed already
        await websocket.close(code, reason[:120])

"""Server-sent events: the events of a thread, with heartbeats, until the server stops."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from fastapi.responses import StreamingResponse
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from segue.core.snowflake import to_text
from segue.errors import SegueError
from segue.events import Event, parse_cursor
from segue.facade import Segue
from segue.journal.records import Turn
from segue.server.connections import EVENT_STREAM, LiveConnection
from segue.server.problems import ApiError, problem_of
from segue.server.responses import frame

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def with_heartbeats(
    events: AsyncGenerator[Event], every: timedelta, until: Coroutine[Any, Any, None]
) -> AsyncGenerator[Event | None]:
    """Events until they end or `until` does, which may raise; None after each idle interval."""
    stop = asyncio.create_task(until)
    next_event: asyncio.Task[Event | None] | None = None
    try:
        while not stop.done():
            if next_event is None:
                next_event = asyncio.create_task(_next(events))
            await asyncio.wait(
                {next_event, stop},
                timeout=every.total_seconds(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if next_event.done():
                event, next_event = next_event.result(), None
                if event is None:  # the process stops
                    return
                yield event
            elif not stop.done():
                yield None
        stop.result()
    finally:
        tasks: list[asyncio.Task[Any]] = [stop] if next_event is None else [stop, next_event]
        for task in tasks:
            task.cancel()
        # Shield: the stream of a disconnected client is cancelled in every tick, but a read from
        # the database must be cancelled once.
        await asyncio.shield(_close(tasks, events))


async def _next(events: AsyncGenerator[Event]) -> Event | None:
    return await anext(events, None)


async def _close(tasks: Iterable[asyncio.Task[Any]], events: AsyncGenerator[Event]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
    await events.aclose()


class EventStream(StreamingResponse):
    """Closes its generator when it ends. The garbage collector would close the nested generators at
    the same time, which raises.
    """

    def __init__(self, lines: AsyncGenerator[bytes]) -> None:
        self._lines = _report_errors(lines)
        super().__init__(self._lines, media_type=EVENT_STREAM, headers=_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._lines.aclose()


async def _report_errors(lines: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """A stream that has begun has sent its status; an error becomes its last event."""
    try:
        async with aclosing(lines):
            async for line in lines:
                yield line
    except (ApiError, SegueError) as error:
        problem = problem_of(error)
        yield format_event({"type": "error", "code": problem.code, "reason": problem.detail})


async def stream_events(
    events: AsyncGenerator[Event], every: timedelta, connection: LiveConnection
) -> AsyncGenerator[bytes]:
    """All events of a thread; the id of each is the cursor to continue from."""
    paced = with_heartbeats(events, every, connection.wait_until_over())
    async with aclosing(paced) as heard:
        yield b": listening\n\n"
        async for event in heard:
            yield b": still here\n\n" if event is None else format_event(frame(event), event.cursor)


async def stream_reply(
    segue: Segue, turn: Turn, events: AsyncGenerator[Event], connection: LiveConnection
) -> AsyncGenerator[bytes]:
    """The events of a thread until a turn is over, and then its state."""
    ended = asyncio.ensure_future(segue.wait_turn(turn))
    target: int | None = None
    paced = with_heartbeats(events, timedelta(seconds=0.05), connection.wait_until_over())
    try:
        async with aclosing(paced) as heard:
            async for event in heard:
                if event is not None:
                    yield format_event(frame(event), event.cursor)
                if ended.done() and target is None:
                    turn = ended.result()
                    target = await segue.last_position(turn)
                if target is not None and (
                    event is None or parse_cursor(event.cursor)[0] >= target
                ):
                    state = "waiting" if turn.is_waiting else turn.state
                    done = {"type": "done", "turn_id": to_text(turn.id), "state": state}
                    yield format_event(done)
                    return
    finally:
        ended.cancel()


def format_event(data: dict[str, Any], cursor: str | None = None) -> bytes:
    head = "" if cursor is None else f"id: {cursor}\n"
    head += f"event: {data['type']}\ndata: "
    return b"".join((head.encode(), to_json(data), b"\n\n"))

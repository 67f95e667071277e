"""Listening over HTTP: events as they come, a sign of life in between, and an end at shutdown."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from fastapi.responses import StreamingResponse

from segue.core.errors import SegueError
from segue.core.snowflake import to_text
from segue.facade import Segue
from segue.journal.records import Turn
from segue.runtime.events import Heard, place_of
from segue.server.problems import Refusal, problem_of
from segue.server.visits import EVENT_STREAM, Visit
from segue.server.wire import frame

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

# Ends when listening has to end; it may raise why.
Over = Coroutine[Any, Any, None]


async def paced(
    heard: AsyncGenerator[Heard], every: timedelta, over: Over
) -> AsyncGenerator[Heard | None]:
    """Events until they end or it is over, and None whenever nothing came for a while."""
    stop = asyncio.create_task(over)
    next_one: asyncio.Task[Heard | None] | None = None
    try:
        while not stop.done():
            if next_one is None:
                next_one = asyncio.ensure_future(_next(heard))
            await asyncio.wait(
                {next_one, stop}, timeout=every.total_seconds(), return_when=asyncio.FIRST_COMPLETED
            )
            if next_one.done():
                event, next_one = next_one.result(), None
                if event is None:  # the process stops
                    return
                yield event
            elif not stop.done():
                yield None
        stop.result()
    finally:
        tasks: list[asyncio.Task[Any]] = [stop] if next_one is None else [stop, next_one]
        for task in tasks:
            task.cancel()
        # In a task of its own: the stream of a client that has gone is cancelled in every tick,
        # and what it reads from the database has to be cancelled once.
        await asyncio.shield(_end(tasks, heard))


def event_stream(lines: AsyncGenerator[str]) -> StreamingResponse:
    return StreamingResponse(_whole(lines), media_type=EVENT_STREAM, headers=_HEADERS)


async def _whole(lines: AsyncGenerator[str]) -> AsyncGenerator[str]:
    """A stream that has begun cannot be refused any more; it ends with what went wrong."""
    try:
        async with aclosing(lines):
            async for line in lines:
                yield line
    except (Refusal, SegueError) as error:
        problem = problem_of(error)
        yield sse({"type": "error", "code": problem.code, "reason": problem.detail})


async def listening(
    heard: AsyncGenerator[Heard], every: timedelta, visit: Visit
) -> AsyncGenerator[str]:
    """All events of a thread as server-sent events; the id is the cursor to come back with."""
    async with aclosing(paced(heard, every, visit.over())) as events:
        yield ": listening\n\n"
        async for event in events:
            yield ": still here\n\n" if event is None else sse(frame(event), event.cursor)


async def answering(
    segue: Segue, turn: Turn, heard: AsyncGenerator[Heard], visit: Visit
) -> AsyncGenerator[str]:
    """The events of a thread until a turn is over, and then how it ended."""
    ended = asyncio.ensure_future(segue.finished(turn))
    target: int | None = None
    try:
        async with aclosing(paced(heard, timedelta(seconds=0.05), visit.over())) as events:
            async for event in events:
                if event is not None:
                    yield sse(frame(event), event.cursor)
                if ended.done() and target is None:
                    turn = ended.result()
                    target = await segue.end_of(turn)
                if target is not None and (event is None or place_of(event.cursor)[0] >= target):
                    state = "waiting" if turn.is_waiting else turn.state
                    yield sse({"type": "done", "turn_id": to_text(turn.id), "state": state})
                    return
    finally:
        ended.cancel()


async def _next(heard: AsyncGenerator[Heard]) -> Heard | None:
    return await anext(heard, None)


async def _end(tasks: Iterable[asyncio.Task[Any]], heard: AsyncGenerator[Heard]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
    await heard.aclose()


def sse(data: dict[str, Any], cursor: str | None = None) -> str:
    """One server-sent event."""
    lines = [] if cursor is None else [f"id: {cursor}"]
    lines += [f"event: {data['type']}", f"data: {json.dumps(data, ensure_ascii=False)}"]
    return "\n".join(lines) + "\n\n"

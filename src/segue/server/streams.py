"""Listening over HTTP: events as they come, a sign of life in between, and an end at shutdown."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from fastapi.responses import StreamingResponse

from segue.core.errors import SegueError
from segue.core.snowflake import to_text
from segue.facade import Segue
from segue.journal.records import Turn
from segue.runtime.events import Heard, place_of
from segue.server.problems import problem_of
from segue.server.wire import frame

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def paced(
    heard: AsyncGenerator[Heard], every: timedelta, stopping: asyncio.Event
) -> AsyncGenerator[Heard | None]:
    """Events until the server stops, and None whenever nothing came for a while."""
    stop = asyncio.ensure_future(stopping.wait())
    next_one: asyncio.Task[Heard] | None = None
    try:
        while not stopping.is_set():
            if next_one is None:
                next_one = asyncio.ensure_future(_next(heard))
            await asyncio.wait(
                {next_one, stop}, timeout=every.total_seconds(), return_when=asyncio.FIRST_COMPLETED
            )
            if next_one.done():
                event, next_one = next_one.result(), None
                yield event
            elif not stopping.is_set():
                yield None
    finally:
        stop.cancel()
        if next_one is not None:
            next_one.cancel()
            await asyncio.gather(next_one, return_exceptions=True)
        await heard.aclose()


def event_stream(lines: AsyncGenerator[str]) -> StreamingResponse:
    return StreamingResponse(_whole(lines), media_type="text/event-stream", headers=_HEADERS)


async def _whole(lines: AsyncGenerator[str]) -> AsyncGenerator[str]:
    """A stream that has begun cannot be refused any more; it ends with what went wrong."""
    try:
        async with aclosing(lines):
            async for line in lines:
                yield line
    except SegueError as error:
        problem = problem_of(error)
        yield sse({"type": "error", "code": problem.code, "reason": problem.detail})


async def listening(
    heard: AsyncGenerator[Heard], every: timedelta, stopping: asyncio.Event
) -> AsyncGenerator[str]:
    """All events of a thread as server-sent events; the id is the cursor to come back with."""
    async with aclosing(paced(heard, every, stopping)) as events:
        yield ": listening\n\n"
        async for event in events:
            yield ": still here\n\n" if event is None else sse(frame(event), event.cursor)


async def answering(
    segue: Segue, turn: Turn, heard: AsyncGenerator[Heard], stopping: asyncio.Event
) -> AsyncGenerator[str]:
    """The events of a thread until a turn is over, and then how it ended."""
    ended = asyncio.ensure_future(segue.finished(turn))
    target: int | None = None
    try:
        async with aclosing(paced(heard, timedelta(seconds=0.05), stopping)) as events:
            async for event in events:
                if event is not None:
                    yield sse(frame(event), event.cursor)
                if ended.done() and target is None:
                    turn = ended.result()
                    target = await segue.end_of(turn)
                if target is not None and (event is None or place_of(event.cursor)[0] >= target):
                    yield sse({"type": "done", "turn_id": to_text(turn.id), "state": turn.state})
                    return
    finally:
        ended.cancel()


async def _next(heard: AsyncGenerator[Heard]) -> Heard:
    return await anext(heard)


def sse(data: dict[str, Any], cursor: str | None = None) -> str:
    """One server-sent event."""
    lines = [] if cursor is None else [f"id: {cursor}"]
    lines += [f"event: {data['type']}", f"data: {json.dumps(data, ensure_ascii=False)}"]
    return "\n".join(lines) + "\n\n"

"""Runs: a person's message or answer and the agent's turn for it, on a thread or without one."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import HTTPConnection

from segue.core.snowflake import to_text
from segue.errors import NotFoundError, SegueError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread, Turn, TurnState
from segue.server.access import (
    PAGES,
    CallerDep,
    SegueDep,
    ThreadDep,
    get_own_turn,
    segue_of,
    slot_of,
)
from segue.server.auth import Caller
from segue.server.connections import EventStream, LiveConnection, StreamDep
from segue.server.langgraph.bodies import RunIn, parse_modes
from segue.server.langgraph.dispatch import run_on
from segue.server.langgraph.messages import Json
from segue.server.langgraph.narrator import Place
from segue.server.langgraph.records import (
    interrupts_of,
    is_seen,
    run_json,
    run_status,
    seen_turns,
)
from segue.server.langgraph.streams import RunStream, error_part, run_beginning
from segue.server.langgraph.windows import Window
from segue.server.middleware import authenticated_router
from segue.server.problems import ApiError
from segue.server.responses import encode

router = authenticated_router("", "langgraph", in_schema=False)
_MOST = 1_000


async def _start(
    request: Request, caller: Caller, thread_id: str, new: RunIn
) -> tuple[Thread, Turn]:
    return await run_on(request, caller, thread_id, new, may_create=new.if_not_exists == "create")


@router.post("/threads/{thread_id}/runs")
async def create_run(request: Request, caller: CallerDep, thread_id: str, new: RunIn) -> Response:
    _, turn = await _start(request, caller, thread_id, new)
    return Response(
        await encode(run_json(turn)), headers=locations(turn), media_type="application/json"
    )


@router.post("/threads/{thread_id}/runs/stream")
async def stream_run(
    request: Request, caller: CallerDep, stream: StreamDep, thread_id: str, new: RunIn
) -> Response:
    thread, turn = await _start(request, caller, thread_id, new)
    run = RunStream(stream, thread, turn, new.modes, Place(run_beginning(turn)))
    lines = run.lines()
    if new.on_disconnect == "cancel":
        lines = cancelling(lines, stream, thread, turn)
    return EventStream(lines, locations(turn, "stream"))


@router.post("/threads/{thread_id}/runs/wait")
async def wait_for_run(
    request: Request, caller: CallerDep, stream: StreamDep, thread_id: str, new: RunIn
) -> Response:
    thread, turn = await _start(request, caller, thread_id, new)
    lines = result(stream, thread, turn)
    if new.on_disconnect == "cancel":
        lines = cancelling(lines, stream, thread, turn)
    return JsonStream(lines, locations(turn, "join"))


@router.get("/threads/{thread_id}/runs")
async def list_runs(
    segue: SegueDep,
    thread: ThreadDep,
    limit: Annotated[int, Query(ge=1, le=_MOST)] = 10,
    offset: Annotated[int, Query(ge=0, le=100_000)] = 0,
    status: str | None = None,
) -> list[Json]:
    # Those that are left out may be anywhere among them.
    most = offset + limit if status is None else 10 * _MOST
    turns = await seen_turns(segue, thread, limit=min(2 * most, 10 * _MOST))
    found = [turn for turn in turns if status in {None, run_status(turn)}]
    return [run_json(turn) for turn in found[offset : offset + limit]]


async def _own_run(segue: Segue, thread: Thread, run_id: str) -> Turn:
    missing = NotFoundError(f"There is no run {run_id!r:.60} in this thread.")
    try:
        turn = await get_own_turn(segue, thread, run_id)
    except SegueError:  # not there, or not an id
        raise missing from None
    if not is_seen(turn):
        raise missing
    return turn


@router.get("/threads/{thread_id}/runs/{run_id}")
async def get_run(segue: SegueDep, thread: ThreadDep, run_id: str) -> Json:
    return run_json(await _own_run(segue, thread, run_id))


@router.get("/threads/{thread_id}/runs/{run_id}/join")
async def join_run(segue: SegueDep, thread: ThreadDep, stream: StreamDep, run_id: str) -> Response:
    turn = await _own_run(segue, thread, run_id)
    return JsonStream(result(stream, thread, turn), {})


@router.get("/threads/{thread_id}/runs/{run_id}/stream")
async def join_run_stream(
    segue: SegueDep,
    thread: ThreadDep,
    stream: StreamDep,
    run_id: str,
    *,
    stream_mode: Annotated[list[str] | None, Query()] = None,
    cancel_on_disconnect: bool = False,
    last_event_id: Annotated[str | None, Header(max_length=400)] = None,
) -> Response:
    turn = await _own_run(segue, thread, run_id)
    beginning = run_beginning(turn)
    place = Place.parse(last_event_id, beginning, beginning)
    named = [mode for mode in stream_mode or () if mode]  # some clients send an empty one
    modes = parse_modes(named or ["values", "messages-tuple", "custom"])
    lines = RunStream(stream, thread, turn, modes, place).lines()
    if cancel_on_disconnect:
        lines = cancelling(lines, stream, thread, turn)
    return EventStream(lines, locations(turn, "stream"))


@router.post("/threads/{thread_id}/runs/{run_id}/cancel")
async def cancel_run(
    segue: SegueDep,
    thread: ThreadDep,
    run_id: str,
    *,
    wait: bool = False,
    action: str = "interrupt",
) -> Response:
    turn = await _own_run(segue, thread, run_id)
    await cancel_turns(segue, thread, [turn], action)
    if wait:
        await segue.wait_turn(turn)
    return Response(b"{}", 200 if wait else 202, media_type="application/json")


async def cancel_turns(segue: Segue, thread: Thread, turns: list[Turn], action: str) -> None:
    if action != "interrupt":
        raise UsageError(
            f"action: {action!r:.60} is not supported: a stored message is never taken back; use "
            "'interrupt'."
        )
    for turn in turns:
        if turn.is_live:
            await segue.cancel(thread, only=turn)


def locations(turn: Turn, then: str | None = None) -> dict[str, str]:
    """Where a run is, and where to go on after a lost connection; relative to the base address."""
    place = f"/threads/{turn.thread_id}/runs/{to_text(turn.id)}"
    return {"Content-Location": place} | ({} if then is None else {"Location": f"{place}/{then}"})


class JsonStream(StreamingResponse):
    """A body that is sent when it is known; spaces before it show that the server is there."""

    def __init__(self, pieces: AsyncGenerator[bytes], headers: dict[str, str]) -> None:
        super().__init__(pieces, media_type="application/json", headers=headers)


async def result(live: LiveConnection, thread: Thread, turn: Turn) -> AsyncGenerator[bytes]:
    """The state of a thread after a run."""
    segue = segue_of(live.connection)
    ended = asyncio.ensure_future(segue.wait_turn(turn))
    stop = asyncio.ensure_future(live.wait_until_over())
    try:
        while not (ended.done() or stop.done()):
            yield b" "
            await asyncio.wait({ended, stop}, timeout=15, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            stop.result()
            raise ApiError(503, "stopping", "The server stops; join the run again.")
        async with slot_of(live.connection, live.caller, *PAGES):
            yield await encode(await _values_after(segue, thread, ended.result()))
    except (ApiError, SegueError) as error:
        yield await encode({"__error__": error_part(error).data})
    finally:
        ended.cancel()
        stop.cancel()


async def _values_after(segue: Segue, thread: Thread, turn: Turn) -> Json:
    if turn.state is TurnState.FAILED:
        ending = turn.ending or {}
        message = str(ending.get("reason") or "The run failed.")
        return {"__error__": {"error": str(ending.get("code", "error")), "message": message}}
    window = await Window.load(segue, await segue.get_thread(thread.id))
    asked = interrupts_of(turn)
    return window.values() | ({"__interrupt__": asked} if asked else {})


async def cancelling(
    lines: AsyncGenerator[bytes], live: LiveConnection, thread: Thread, turn: Turn
) -> AsyncGenerator[bytes]:
    """Cancels the run if the client leaves before its end."""
    is_over = False
    try:
        async with aclosing(lines):
            async for line in lines:
                yield line
        is_over = True
    finally:
        if not is_over:
            segue = segue_of(live.connection)
            in_background(live.connection, segue.cancel(thread, only=turn))


def in_background(connection: HTTPConnection, work: Coroutine[Any, Any, Any]) -> None:
    """Finish something for a client that may have left."""
    tasks: set[asyncio.Task[Any]] = connection.app.state.background
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)

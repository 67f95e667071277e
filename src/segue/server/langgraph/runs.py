"""Runs: a person's message or answer and the agent's turn for it.

A run without a thread gets a temporary one, which is deleted when the run is over.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote, urlencode

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field
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
    get_own_thread,
    get_own_turn,
    lifespan_of,
    segue_of,
    slot_of,
)
from segue.server.auth import Caller
from segue.server.connections import EventStream, LiveConnection, StreamDep
from segue.server.langgraph.dispatch import RunIn, parse_modes, run_alone, run_on
from segue.server.langgraph.messages import Json, Window
from segue.server.langgraph.narrator import Place
from segue.server.langgraph.records import (
    interrupts_of,
    is_seen,
    run_json,
    run_status,
    seen_turns,
)
from segue.server.langgraph.streams import RunStream, error_part, run_beginning
from segue.server.middleware import authenticated_router
from segue.server.problems import ApiError, ResponseCut
from segue.server.requests import StrictModel
from segue.server.responses import encode, respond

router = authenticated_router("", "langgraph", in_schema=False)
_MOST: Final = 1_000
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class _Run:
    """A run, and what to do if its client disconnects, and at its end."""

    thread: Thread
    turn: Turn
    is_cancelled_by_leaving: bool = False
    is_temporary: bool = False

    def locations(self, then: str | None = None, modes: Iterable[str] = ()) -> dict[str, str]:
        """The URLs of the run, and to continue in the same modes after a lost connection; relative
        to the base address.
        """
        place = f"/threads/{quote(self.thread.id, safe='')}/runs/{to_text(self.turn.id)}"
        own = {"Content-Location": place}
        if then is None:
            return own
        query = urlencode([("stream_mode", mode) for mode in sorted(modes)])
        return {**own, "Location": f"{place}/{then}" + (f"?{query}" if query else "")}


async def _start(request: Request, caller: Caller, new: RunIn) -> _Run:
    thread_id = request.path_params.get("thread_id")
    if thread_id is None:
        started = await run_alone(request, caller, new)
    else:
        may_create = new.if_not_exists == "create"
        started = await run_on(request, caller, thread_id, new, may_create=may_create)
    is_temporary = thread_id is None and new.is_temporary
    return _Run(*started, new.on_disconnect == "cancel", is_temporary)


@router.post("/runs")
@router.post("/threads/{thread_id}/runs")
async def create_run(request: Request, caller: CallerDep, new: RunIn) -> Response:
    run = await _start(request, caller, new)
    if run.is_temporary:
        _in_background(request, _clean_up(segue_of(request), run, is_left=False))
    return await respond(run_json(run.turn), headers=run.locations())


@router.post("/runs/stream")
@router.post("/threads/{thread_id}/runs/stream")
async def stream_run(
    request: Request, caller: CallerDep, stream: StreamDep, new: RunIn
) -> Response:
    run = await _start(request, caller, new)
    place = Place(run_beginning(run.turn))
    lines = RunStream(stream, run.thread, run.turn, new.modes, place).lines()
    return EventStream(_attended(lines, stream, run), run.locations("stream", new.modes))


@router.post("/runs/wait")
@router.post("/threads/{thread_id}/runs/wait")
async def wait_for_run(
    request: Request, caller: CallerDep, stream: StreamDep, new: RunIn
) -> Response:
    run = await _start(request, caller, new)
    body = _attended(_result(stream, run), stream, run)
    return StreamingResponse(body, headers=run.locations("join"), media_type=_JSON)


class CancelIn(StrictModel):
    thread_id: str | None = Field(default=None, max_length=200)
    run_ids: list[str] | None = Field(default=None, max_length=1_000)
    status: Literal["pending", "running", "all"] | None = None


@router.post("/runs/cancel", status_code=204)
async def cancel_runs(
    segue: SegueDep,
    caller: CallerDep,
    wanted: CancelIn,
    action: Annotated[str, Query(max_length=60)] = "interrupt",
) -> Response:
    """Those of one thread, by their ids or by their status."""
    if wanted.thread_id is None or (wanted.run_ids is None) == (wanted.status is None):
        raise UsageError("Name a thread_id, and either run_ids or a status.")
    _check_action(action)
    thread = await get_own_thread(segue, caller, wanted.thread_id)
    for turn in await seen_turns(segue, thread, limit=_MOST):
        is_named = to_text(turn.id) in (wanted.run_ids or ())
        if turn.is_live and (is_named or wanted.status in {"all", run_status(turn)}):
            await segue.cancel(thread, only=turn)
    return Response(status_code=204)


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
async def join_run(
    segue: SegueDep,
    thread: ThreadDep,
    stream: StreamDep,
    run_id: str,
    *,
    cancel_on_disconnect: bool = False,
) -> Response:
    run = _Run(thread, await _own_run(segue, thread, run_id), cancel_on_disconnect)
    return StreamingResponse(_attended(_result(stream, run), stream, run), media_type=_JSON)


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
    run = _Run(thread, await _own_run(segue, thread, run_id), cancel_on_disconnect)
    beginning = run_beginning(run.turn)
    place = Place.parse(last_event_id, beginning, beginning)
    named = [mode for mode in stream_mode or () if mode]  # some clients send an empty one
    modes = parse_modes(named or ["values", "messages-tuple", "custom"])
    lines = RunStream(stream, thread, run.turn, modes, place).lines()
    return EventStream(_attended(lines, stream, run), run.locations("stream", modes))


@router.post("/threads/{thread_id}/runs/{run_id}/cancel")
async def cancel_run(
    segue: SegueDep,
    thread: ThreadDep,
    run_id: str,
    *,
    wait: bool = False,
    action: str = "interrupt",
) -> Response:
    _check_action(action)
    turn = await _own_run(segue, thread, run_id)
    if turn.is_live:
        await segue.cancel(thread, only=turn)
    if wait:
        await segue.wait_turn(turn)
    return await respond({}, 200 if wait else 202)


def _check_action(action: str) -> None:
    if action != "interrupt":
        raise UsageError(
            f"action: {action!r:.60} is not supported: a stored message is never taken back; use "
            "'interrupt'."
        )


async def _result(live: LiveConnection, run: _Run) -> AsyncGenerator[bytes]:
    """The state of a thread after a run; spaces before it show that the server is there."""
    segue = segue_of(live.connection)
    ended = asyncio.ensure_future(segue.wait_turn(run.turn))
    stop = asyncio.ensure_future(live.wait_until_over())
    try:
        while not (ended.done() or stop.done()):
            yield b" "
            await asyncio.wait({ended, stop}, timeout=15, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            stop.result()
            raise ResponseCut
        async with slot_of(live.connection, live.caller, *PAGES):
            yield await encode(await _values_after(segue, run.thread, ended.result()))
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


async def _attended(
    lines: AsyncGenerator[bytes], live: LiveConnection, run: _Run
) -> AsyncGenerator[bytes]:
    """The lines; the run is cleaned up after them, or when the client leaves. If the server stops,
    neither is so: the client may resume the run.
    """
    is_left = True
    try:
        async with aclosing(lines):
            async for line in lines:
                yield line
        is_left = False
    finally:
        is_cut = lifespan_of(live.connection).stopping.is_set()
        if not is_cut and (run.is_temporary or (run.is_cancelled_by_leaving and is_left)):
            segue = segue_of(live.connection)
            _in_background(live.connection, _clean_up(segue, run, is_left=is_left))


async def _clean_up(segue: Segue, run: _Run, *, is_left: bool) -> None:
    with suppress(
        SegueError
    ):  # deleted in the meantime; or the server stops, and the next deletes it
        if run.is_cancelled_by_leaving and is_left:
            await segue.cancel(run.thread, only=run.turn)
        if run.is_temporary:
            await segue.wait_turn(run.turn)
            await segue.delete_thread(run.thread)


def _in_background(connection: HTTPConnection, work: Coroutine[Any, Any, Any]) -> None:
    """Finish something for a client that may have left."""
    tasks: set[asyncio.Task[Any]] = connection.app.state.background
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)

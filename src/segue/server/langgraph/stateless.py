"""Runs without a thread of the client: each has a thread of its own, deleted when it ends."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response
from pydantic import Field

from segue.errors import NotFoundError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread, Turn
from segue.server.access import CallerDep, SegueDep, get_own_thread
from segue.server.auth import Caller
from segue.server.connections import EventStream, LiveConnection, StreamDep
from segue.server.langgraph.bodies import NO_FORK, RunIn
from segue.server.langgraph.dispatch import check_run, start_run
from segue.server.langgraph.messages import has_replies
from segue.server.langgraph.narrator import Place
from segue.server.langgraph.records import run_json, run_status, seen_turns
from segue.server.langgraph.runs import (
    JsonStream,
    cancel_turns,
    cancelling,
    in_background,
    locations,
    result,
)
from segue.server.langgraph.streams import RunStream, run_beginning
from segue.server.middleware import authenticated_router
from segue.server.requests import StrictModel
from segue.server.responses import encode

router = authenticated_router("/runs", "langgraph", in_schema=False)


async def _start(request: Request, segue: Segue, caller: Caller, new: RunIn) -> tuple[Thread, Turn]:
    """`UsageError` before anything is stored."""
    if has_replies(new.input):
        raise UsageError(
            "input.messages: a run without a thread knows only its own message; for a "
            "conversation create a thread."
        )
    if new.command:
        raise UsageError("command: a run without a thread has no question to answer.")
    if new.named_checkpoint is not None:
        raise UsageError(f"checkpoint: {NO_FORK}.")
    task, agent = check_run(request, new), segue.get_agent(new.assistant_id).id
    # Muted: if the server stops before the thread is deleted, nobody follows up in it.
    settings = None if new.on_completion == "keep" else {"muted": True}
    thread = await segue.create_thread(caller.user_id, agent, settings=settings)
    return thread, await start_run(segue, thread, task, new.strategy)


async def _discard(segue: Segue, thread: Thread, turn: Turn) -> None:
    """Delete a thread once its run is over."""
    with suppress(NotFoundError):  # deleted meanwhile
        await segue.wait_turn(turn)
        await segue.delete_thread(thread)


async def _discarding(
    lines: AsyncGenerator[bytes], live: LiveConnection, segue: Segue, thread: Thread, turn: Turn
) -> AsyncGenerator[bytes]:
    """Deletes the thread after its run, also if the client leaves before."""
    try:
        async with aclosing(lines):
            async for line in lines:
                yield line
    finally:
        in_background(live.connection, _discard(segue, thread, turn))


@router.post("")
async def create_run(request: Request, segue: SegueDep, caller: CallerDep, new: RunIn) -> Response:
    thread, turn = await _start(request, segue, caller, new)
    if new.on_completion != "keep":
        in_background(request, _discard(segue, thread, turn))
    body = await encode(run_json(turn))
    return Response(body, headers=locations(turn), media_type="application/json")


@router.post("/stream")
async def stream_run(
    request: Request, segue: SegueDep, caller: CallerDep, stream: StreamDep, new: RunIn
) -> Response:
    thread, turn = await _start(request, segue, caller, new)
    run = RunStream(stream, thread, turn, new.modes, Place(run_beginning(turn)))
    lines = _wrapped(run.lines(), stream, segue, new, thread, turn)
    return EventStream(lines, locations(turn, "stream"))


@router.post("/wait")
async def wait_for_run(
    request: Request, segue: SegueDep, caller: CallerDep, stream: StreamDep, new: RunIn
) -> Response:
    thread, turn = await _start(request, segue, caller, new)
    lines = _wrapped(result(stream, thread, turn), stream, segue, new, thread, turn)
    return JsonStream(lines, locations(turn, "join"))


def _wrapped(
    lines: AsyncGenerator[bytes],
    stream: LiveConnection,
    segue: Segue,
    new: RunIn,
    thread: Thread,
    turn: Turn,
) -> AsyncGenerator[bytes]:
    if new.on_disconnect == "cancel":
        lines = cancelling(lines, stream, thread, turn)
    if new.on_completion != "keep":
        lines = _discarding(lines, stream, segue, thread, turn)
    return lines


class CancelIn(StrictModel):
    thread_id: str | None = Field(default=None, max_length=200)
    run_ids: list[str] | None = Field(default=None, max_length=1_000)
    status: Literal["pending", "running", "all"] | None = None


@router.post("/cancel", status_code=204)
async def cancel_runs(
    segue: SegueDep,
    caller: CallerDep,
    wanted: CancelIn,
    action: Annotated[str, Query(max_length=60)] = "interrupt",
) -> Response:
    """Those of one thread, by their ids or by their status."""
    if wanted.thread_id is None or (wanted.run_ids is None) == (wanted.status is None):
        raise UsageError("Name a thread_id, and either run_ids or a status.")
    thread = await get_own_thread(segue, caller, wanted.thread_id)
    turns = [turn for turn in await seen_turns(segue, thread, limit=1_000) if turn.is_live]
    chosen = [each for each in turns if _is_chosen(each, wanted)]
    await cancel_turns(segue, thread, chosen, action)
    return Response(status_code=204)


def _is_chosen(turn: Turn, wanted: CancelIn) -> bool:
    run: dict[str, Any] = run_json(turn)
    if wanted.run_ids is not None:
        return run["run_id"] in wanted.run_ids
    return wanted.status in {"all", run_status(turn)}

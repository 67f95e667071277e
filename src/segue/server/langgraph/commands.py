"""Commands of the event protocol, and the streams and sockets that carry its events."""

import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, Final

from fastapi import Request, Response, WebSocket
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from segue.core.snowflake import to_text
from segue.errors import ConflictError, NotFoundError, SegueError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread
from segue.server.access import (
    PAGES,
    CallerDep,
    SegueDep,
    ThreadDep,
    get_own_thread,
    segue_of,
    slot_of,
)
from segue.server.auth import Caller
from segue.server.connections import EventStream, LiveConnection, StreamDep
from segue.server.langgraph.bodies import RunIn
from segue.server.langgraph.dispatch import check_answer, run_on
from segue.server.langgraph.events import EventFeed, Subscription
from segue.server.langgraph.messages import Json
from segue.server.langgraph.records import seen_turns
from segue.server.langgraph.runs import JsonStream
from segue.server.langgraph.streams import HEARTBEAT
from segue.server.langgraph.windows import Window
from segue.server.middleware import authenticated_router
from segue.server.problems import ApiError, describe_errors, field_errors, problem_of
from segue.server.requests import StrictModel
from segue.server.responses import encode

logger = logging.getLogger(__name__)
router = authenticated_router("", "langgraph", in_schema=False)
_CODES: Final = {404: "no_such_run", 403: "permission_denied", 401: "permission_denied"}
_NOT_SUPPORTED: Final = {
    "state.fork": "a thread keeps no checkpoints to fork from",
    "state.listCheckpoints": "a thread keeps no checkpoints",
    "input.inject": "a message starts a run of its own; use run.start",
    "subscription.reconnect": "subscribe again; the last run is replayed",
}


class Command(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: int = Field(ge=0)
    method: str = Field(max_length=100)
    params: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_large(self) -> bool:
        """Whether its response may be large."""
        return self.method == "state.get"

    def slot(
        self, connection: Request | WebSocket, caller: Caller
    ) -> AbstractAsyncContextManager[None]:
        """Held until the response is sent."""
        return slot_of(connection, caller, *PAGES) if self.is_large else nullcontext()


class Reply(StrictModel):
    namespace: list[str] = Field(default_factory=list)
    interrupt_id: str | None = None
    response: Any = None


class InputRespond(Reply):
    responses: list[Reply] | None = None
    update: Any = None
    goto: Any = None
    config: Any = None
    metadata: Any = None


async def run_command(
    connection: Request | WebSocket, caller: Caller, thread_id: str, command: Command
) -> Json:
    """The response to a command; an error is one, too."""
    try:
        result = await _run(connection, caller, thread_id, command)
    except (ApiError, SegueError, ValidationError) as error:
        return {"type": "error", "id": command.id, **error_json(error)}
    return {"type": "success", "id": command.id, "result": result}


def error_json(error: Exception) -> Json:
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_input=False)[:5]
        detail = f"{describe_errors(field_errors(found), 'params')}."
        return {"error": "invalid_argument", "message": detail}
    for kind, name in ((_NotSupported, "not_supported"), (_UnknownCommand, "unknown_command")):
        if isinstance(error, kind):
            return {"error": name, "message": str(error)}
    problem = problem_of(error)
    code = _CODES.get(
        problem.status, "invalid_argument" if problem.status < 500 else "unknown_error"
    )
    return {"error": code, "message": problem.detail}


class _NotSupported(UsageError):
    """A command of the protocol that Segue cannot honour."""


class _UnknownCommand(UsageError):
    """Not a command of the protocol."""


async def _run(
    connection: Request | WebSocket, caller: Caller, thread_id: str, command: Command
) -> Json:
    segue = segue_of(connection)
    match command.method:
        case "run.start":
            new = RunIn.model_validate(command.params)
            _, turn = await run_on(connection, caller, thread_id, new, may_create=True)
            return {"run_id": to_text(turn.id)}
        case "input.respond":
            thread = await get_own_thread(segue, caller, thread_id)
            return await _respond(segue, thread, InputRespond.model_validate(command.params))
        case "state.get":
            thread = await get_own_thread(segue, caller, thread_id)
            return {"values": (await Window.load(segue, thread)).values()}
        case "agent.getTree":
            thread = await get_own_thread(segue, caller, thread_id)
            newest = await seen_turns(segue, thread, limit=10)
            is_busy = bool(newest) and newest[0].is_live
            status = "running" if is_busy else "completed"
            return {"tree": {"namespace": [], "status": status, "graph_name": thread.agent_id}}
        case method if reason := _NOT_SUPPORTED.get(method):
            raise _NotSupported(f"{method} is not supported: {reason}.")
    raise _UnknownCommand(f"There is no command {command.method!r:.60}.")


async def _respond(segue: Segue, thread: Thread, given: InputRespond) -> Json:
    if given.update or given.goto:
        raise _NotSupported("update and goto are not supported: the state is the graph's own.")
    waiting = await segue.list_turns(thread, limit=1, only_waiting=True)
    if not waiting:
        raise ConflictError("No question waits for an answer in this thread.")
    asked = (waiting[0].ending or {}).get("questions", {})
    given_by_id = {each.interrupt_id: each.response for each in given.responses or [given]}
    if unknown := sorted(str(n) for n in given_by_id if n is not None and n not in asked):
        raise NotFoundError(f"No question {unknown[0]!r:.60} waits in this thread.")
    answer = given_by_id.get(None, given_by_id)
    turn = await segue.answer(waiting[0], check_answer(answer, "response"))
    return {"run_id": to_text(turn.id)}


@router.post("/threads/{thread_id}/commands")
async def send_command(
    request: Request, caller: CallerDep, thread_id: str, command: Command
) -> Response:
    async def reply() -> AsyncGenerator[bytes]:
        async with command.slot(request, caller):  # until it is sent
            yield await encode(await run_command(request, caller, thread_id, command))

    if command.is_large:
        return JsonStream(reply(), {})
    body = await encode(await run_command(request, caller, thread_id, command))
    return Response(body, media_type="application/json")


@router.post("/threads/{thread_id}/stream/events")
async def stream_events(
    segue: SegueDep, thread: ThreadDep, stream: StreamDep, wanted: Subscription
) -> Response:
    wanted.check()
    feed = await open_feed(segue, stream, thread, wanted)
    return EventStream(_lines(feed))


async def open_feed(
    segue: Segue, live: LiveConnection, thread: Thread, wanted: Subscription
) -> EventFeed:
    newest = await seen_turns(segue, thread, limit=10)
    return EventFeed(live, thread, next(iter(newest), None), wanted)


async def _lines(feed: EventFeed) -> AsyncGenerator[bytes]:
    yield b": listening\n\n"
    try:
        async with aclosing(feed.events()) as events:
            async for event in events:
                if event is None:
                    yield HEARTBEAT
                else:
                    head = f"event: {event.method}\nid: {event.number}\ndata: ".encode()
                    yield b"".join((head, event.json, b"\n\n"))
    except (ApiError, SegueError) as error:
        failure = {"type": "error", "id": None, **error_json(error)}
        yield b"".join((b"event: error\ndata: ", await encode(failure), b"\n\n"))

"""The event protocol: commands, and the events of a thread as a stream or over a WebSocket.

Each frame of a client is a command, and each subscription of a socket sends its own events.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request, Response, WebSocket
from pydantic import Field, TypeAdapter, ValidationError

from segue.conversations import check_lasting
from segue.core.snowflake import to_text
from segue.errors import NotFoundError, SegueError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread
from segue.server.access import (
    PAGE_SLOT,
    PAGES,
    CallerDep,
    SegueDep,
    ThreadDep,
    admit,
    get_own_thread,
    segue_of,
    slot_of,
)
from segue.server.auth import Caller
from segue.server.connections import (
    EventStream,
    LiveConnection,
    StreamDep,
    event_lines,
    live_connection,
)
from segue.server.langgraph.dispatch import RunIn, check_answer, get_question, run_on
from segue.server.langgraph.events import EventFeed, Subscription
from segue.server.langgraph.messages import Json, Window
from segue.server.langgraph.records import seen_turns
from segue.server.langgraph.streams import HEARTBEAT
from segue.server.middleware import authenticated_router
from segue.server.problems import ApiError, describe_invalid, logged_problem
from segue.server.requests import StrictModel
from segue.server.responses import encode, respond
from segue.server.socket import (
    RESTARTING,
    accepted,
    close,
    first_of,
    obey,
    parse_as,
    send_text,
)

router = authenticated_router("", "langgraph", in_schema=False)
sockets = APIRouter()
_MOST_SUBSCRIPTIONS: Final = 16
_CODES: Final = {404: "no_such_run", 403: "permission_denied", 401: "permission_denied"}
_NOT_SUPPORTED: Final = {
    "state.fork": "a thread keeps no checkpoints to fork from",
    "state.listCheckpoints": "a thread keeps no checkpoints",
    "input.inject": "a message starts a run of its own; use run.start",
    "subscription.reconnect": "subscribe again; the last run is replayed",
}


class Command(StrictModel):
    id: int = Field(ge=0)
    method: str = Field(max_length=100)
    params: dict[str, Any] = Field(default_factory=dict)


_COMMANDS: Final = TypeAdapter(Command)


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


async def _answer(command: Command, work: Awaitable[Json]) -> Json:
    """The response to a command; an error is one, too."""
    try:
        result = await work
    except (ApiError, SegueError, ValidationError) as error:
        return _failure(command.id, error)
    return {"type": "success", "id": command.id, "result": result}


def _failure(number: int | None, error: Exception) -> Json:
    if isinstance(error, ValidationError):
        code, text = "invalid_argument", describe_invalid(error, "params")
    elif isinstance(error, _CommandRefused):
        code, text = error.name, str(error)
    else:
        problem = logged_problem(error, "A command or its stream")
        fallback = "invalid_argument" if problem.status < 500 else "unknown_error"
        code, text = _CODES.get(problem.status, fallback), problem.detail
    return {"type": "error", "id": number, "error": code, "message": text}


class _CommandRefused(UsageError):
    """A command that Segue does not have; `name` is the protocol's word for the error."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


async def _run_command(
    connection: Request | WebSocket, caller: Caller, thread_id: str, command: Command
) -> Json:
    """`SegueError`, `ApiError` or `ValidationError` if it is refused."""
    segue, method = segue_of(connection), command.method
    if method == "run.start":  # may create the thread
        new = RunIn.model_validate(command.params)
        _, turn = await run_on(connection, caller, thread_id, new, may_create=True)
        return {"run_id": to_text(turn.id)}
    if reason := _NOT_SUPPORTED.get(method):
        raise _CommandRefused("not_supported", f"{method} is not supported: {reason}.")
    thread = await get_own_thread(segue, caller, thread_id)
    match method:
        case "input.respond":
            return await _respond(segue, thread, InputRespond.model_validate(command.params))
        case "state.get":
            return {"values": (await Window.load(segue, thread)).values()}
        case "agent.getTree":
            newest = await seen_turns(segue, thread, limit=10)
            is_busy = bool(newest) and newest[0].is_live
            status = "running" if is_busy else "completed"
            return {"tree": {"namespace": [], "status": status, "graph_name": thread.agent_id}}
    raise _CommandRefused("unknown_command", f"There is no command {method!r:.60}.")


async def _respond(segue: Segue, thread: Thread, given: InputRespond) -> Json:
    if given.update or given.goto:
        text = "update and goto are not supported: the state is the graph's own."
        raise _CommandRefused("not_supported", text)
    check_lasting(thread)
    waiting = await get_question(segue, thread)
    asked = (waiting.ending or {}).get("questions", {})
    given_by_id = {each.interrupt_id: each.response for each in given.responses or [given]}
    if unknown := sorted(str(n) for n in given_by_id if n is not None and n not in asked):
        raise NotFoundError(f"This thread has no open question {unknown[0]!r:.60}.")
    answer = given_by_id.get(None, given_by_id)
    turn = await segue.answer(waiting, check_answer(answer, "response"))
    return {"run_id": to_text(turn.id)}


@router.post("/threads/{thread_id}/commands", dependencies=[PAGE_SLOT])
async def send_command(
    request: Request, caller: CallerDep, thread_id: str, command: Command
) -> Response:
    return await respond(await _answer(command, _run_command(request, caller, thread_id, command)))


@router.post("/threads/{thread_id}/stream/events")
async def stream_events(
    segue: SegueDep, thread: ThreadDep, stream: StreamDep, wanted: Subscription
) -> Response:
    wanted.check()
    return EventStream(_lines(await _open_feed(segue, stream, thread, wanted)))


async def _open_feed(
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
                    yield event_lines(event.json, event.method, str(event.number))
    except (ApiError, SegueError) as error:
        yield event_lines(await encode(_failure(None, error)), "error")


@sockets.websocket("/threads/{thread_id}/stream/events")
async def connect(websocket: WebSocket, thread_id: str) -> None:
    async with accepted(websocket):
        caller = await admit(websocket)
        with live_connection(websocket, caller, "socket") as live:
            await _Socket(websocket, live, thread_id).run()


class _Socket:
    """One socket; its thread may be created by its first run."""

    def __init__(self, websocket: WebSocket, live: LiveConnection, thread_id: str) -> None:
        self._websocket = websocket
        self._live = live
        self._thread_id = thread_id
        self._segue = segue_of(websocket)
        self._sending = asyncio.Lock()
        self._feeds: dict[str, asyncio.Task[None]] = {}
        # Of the first subscription that fails.
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count = 0

    async def run(self) -> None:
        """Until the client leaves, the server stops, or a subscription fails."""
        try:
            receiving = obey(self._websocket, self._live, self._obey, self._refuse)
            await first_of(receiving, self._live.wait_until_over(), self._failure)
            await close(self._websocket, RESTARTING, "The server stops; subscribe again.")
        finally:
            feeds = [*self._feeds.values()]
            for each in feeds:
                each.cancel()
            await asyncio.gather(*feeds, return_exceptions=True)

    async def _obey(self, text: str) -> None:
        command = parse_as(_COMMANDS, text, "params")
        async with slot_of(self._websocket, self._live.caller, *PAGES):  # until it is sent
            await self._send(await _answer(command, self._run(command)))

    async def _refuse(self, error: Exception) -> None:
        await self._send(_failure(None, error))

    async def _run(self, command: Command) -> Json:
        if command.method.startswith("subscription."):
            return await self._subscribe(command)
        return await _run_command(self._websocket, self._live.caller, self._thread_id, command)

    async def _subscribe(self, command: Command) -> Json:
        if command.method == "subscription.unsubscribe":
            name = str(command.params.get("subscription_id"))
            if (task := self._feeds.pop(name, None)) is None:
                raise NotFoundError(f"There is no subscription {name!r:.60}.")
            task.cancel()
            return {}
        if command.method != "subscription.subscribe":
            raise UsageError(f"{command.method!r:.60} is not supported; subscribe again.")
        if len(self._feeds) >= _MOST_SUBSCRIPTIONS:
            raise UsageError(f"A socket has at most {_MOST_SUBSCRIPTIONS} subscriptions.")
        wanted = Subscription.model_validate(command.params)
        wanted.check()
        thread = await get_own_thread(self._segue, self._live.caller, self._thread_id)
        feed = await _open_feed(self._segue, self._live, thread, wanted)
        self._count += 1
        name = f"subscription-{self._count}"
        self._feeds[name] = task = asyncio.create_task(self._forward(feed))
        task.add_done_callback(partial(self._end_feed, name))
        return {"subscription_id": name}

    def _end_feed(self, name: str, task: asyncio.Task[None]) -> None:
        self._feeds.pop(name, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def _forward(self, feed: EventFeed) -> None:
        async with aclosing(feed.events()) as events:
            async for event in events:
                if event is not None:
                    await self._send_text(event.json.decode())

    async def _send(self, body: Json) -> None:
        await self._send_text((await encode(body)).decode())

    async def _send_text(self, text: str) -> None:
        async with self._sending:
            await send_text(self._websocket, text)

"""Long-lived connections: sockets and event streams (server-sent events).

They are counted per user, and end when the server stops or their key or token is no longer valid.
Re-checking costs per key or token, not per connection.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext, suppress
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Request
from fastapi.responses import StreamingResponse
from pydantic_core import to_json
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from segue.errors import BackendError, SegueError
from segue.events import Event, Payload, TurnEnded, cursor_at, parse_cursor
from segue.facade import Segue
from segue.journal.records import Turn
from segue.runtime.listeners import end_state
from segue.server.access import CallerDep, credentials_of, identify, lifespan_of, settings_of
from segue.server.auth import Caller
from segue.server.frames import error_frame, frame
from segue.server.problems import ApiError, Problem, logged_problem
from segue.server.responses import encode

EVENT_STREAM: Final = "text/event-stream"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
# A comment, which clients skip; proxies close a stream that is silent for long.
STILL_HERE: Final = b": still here\n\n"
_CHECK_SECONDS: Final = 5.0
# Interval at which a reply's stream checks whether its turn has ended.
_TURN_CHECKED_EVERY: Final = timedelta(seconds=0.05)


@dataclass(frozen=True, slots=True)
class LiveConnection:
    """A caller's socket or event stream."""

    connection: HTTPConnection
    caller: Caller

    async def check(self) -> None:
        """`ApiError` if the credentials are no longer valid."""
        caller = await identify(self.connection)
        if caller.user_id != self.caller.user_id:
            detail = "This key now belongs to another user; reconnect."
            raise ApiError(401, "unauthorized", detail)

    async def wait_until_over(self) -> None:
        """Wait until the server stops; `ApiError` if the credentials become invalid."""
        checks: dict[str | None, _SharedCheck] = self.connection.app.state.credential_checks
        credentials = credentials_of(self.connection)
        if self.connection.app.state.authenticate is not None:
            # The app's credentials are not known, so each connection is checked by itself.
            credentials = f"connection {id(self.connection)}"
        shared = checks.get(credentials)
        if shared is None or shared.task.done():
            # In an empty context, because it also serves other connections.
            task = asyncio.create_task(self._check_repeatedly(), context=Context())
            shared = checks[credentials] = _SharedCheck(task)
        shared.users += 1
        try:
            await asyncio.shield(shared.task)
        finally:
            shared.users -= 1
            if not shared.users:
                shared.task.cancel()
                if checks.get(credentials) is shared:
                    del checks[credentials]

    async def _check_repeatedly(self) -> None:
        stopping = lifespan_of(self.connection).stopping
        while True:
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    await stopping.wait()
            except TimeoutError:
                with suppress(BackendError):  # check again next time
                    await self.check()
            else:
                return


@dataclass(slots=True)
class _SharedCheck:
    """One check for all connections with the same credentials.

    Only the validity of the credentials can change. The named user and the origin were checked
    when the connection was opened.
    """

    task: asyncio.Task[None]
    users: int = 0


@contextmanager
def live_connection(
    connection: HTTPConnection, caller: Caller, kind: str
) -> Iterator[LiveConnection]:
    """Count a connection; `ApiError` if its user has too many, of all kinds together."""
    counts: dict[str, Counter[str]] = connection.app.state.connections
    most, user = settings_of(connection).max_sockets_per_user, caller.user_id
    if sum(count[user] for count in counts.values()) >= most:
        detail = f"A user may have at most {most} sockets and event streams."
        raise ApiError(429, "sockets", detail)
    count = counts[kind]
    count[user] += 1
    try:
        yield LiveConnection(connection, caller)
    finally:
        count[user] -= 1
        if not count[user]:
            del count[user]


async def _bodiless(request: Request) -> HTTPConnection:
    # A request keeps its body, which may have more than 10 MB, and a stream may last for days.
    return HTTPConnection(request.scope)


_BodilessDep = Annotated[HTTPConnection, Depends(_bodiless)]


async def _stream(connection: _BodilessDep, caller: CallerDep) -> AsyncIterator[LiveConnection]:
    with live_connection(connection, caller, "stream") as live:
        yield live


async def _stream_if_accepted(
    connection: _BodilessDep, caller: CallerDep, accept: Annotated[str, Header()] = "*/*"
) -> AsyncIterator[LiveConnection | None]:
    is_stream = EVENT_STREAM in accept
    with live_connection(connection, caller, "stream") if is_stream else nullcontext() as live:
        yield live


# The scope keeps the connection counted until the stream ends.
StreamDep = Annotated[LiveConnection, Depends(_stream, scope="request")]
OptionalStreamDep = Annotated[LiveConnection | None, Depends(_stream_if_accepted, scope="request")]


async def with_heartbeats(
    events: AsyncGenerator[Event], live: LiveConnection, every: timedelta | None = None
) -> AsyncGenerator[Event | None]:
    """Events until they end or the connection is over, which may raise; None after each idle
    interval, by default of the settings.
    """
    seconds = (every or settings_of(live.connection).ping_every).total_seconds()
    stop = asyncio.create_task(live.wait_until_over())
    next_event: asyncio.Task[Event | None] | None = None
    try:
        while not stop.done():
            if next_event is None:
                next_event = asyncio.create_task(_next(events))
            await asyncio.wait(
                {next_event, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
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
        # Shield: the stream of a disconnected client is cancelled in every tick, but a read from
        # the database must be cancelled once.
        await asyncio.shield(_close(events, stop, next_event))


async def _next(events: AsyncGenerator[Event]) -> Event | None:
    return await anext(events, None)


async def _close(events: AsyncGenerator[Event], *tasks: asyncio.Task[Any] | None) -> None:
    left = [task for task in tasks if task is not None]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await events.aclose()


class EventStream(StreamingResponse):
    """Closes its generator when it ends. The garbage collector would close the nested generators at
    the same time, which raises.
    """

    def __init__(
        self,
        lines: AsyncGenerator[bytes],
        headers: Mapping[str, str] | None = None,
        describe: Callable[[Problem], bytes] | None = None,
    ) -> None:
        """`describe` writes the error that ends the stream; by default, as a frame."""
        self._lines = _report_errors(lines, describe or _error_line)
        headers = {**_HEADERS, **(headers or {})}
        super().__init__(self._lines, media_type=EVENT_STREAM, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._lines.aclose()


async def _report_errors(
    lines: AsyncGenerator[bytes], describe: Callable[[Problem], bytes]
) -> AsyncGenerator[bytes]:
    """A started stream has already sent its status, so an error becomes its last event."""
    try:
        async with aclosing(lines):
            async for line in lines:
                yield line
    except (ApiError, SegueError) as error:
        yield describe(logged_problem(error, "A stream"))


def _error_line(problem: Problem) -> bytes:
    return event_lines(to_json(error_frame(problem)), "error")


def event_lines(data: bytes, name: str = "", place: str = "") -> bytes:
    """A server-sent event; `place` is the id to continue from."""
    head = (f"id: {place}\n" if place else "") + (f"event: {name}\n" if name else "")
    return b"".join((head.encode(), b"data: ", data, b"\n\n"))


def data_line(data: dict[str, Any]) -> bytes:
    return event_lines(to_json(data))


async def stream_events(
    events: AsyncGenerator[Event], live: LiveConnection
) -> AsyncGenerator[bytes]:
    """All events of a thread; the id of each is the cursor to continue from."""
    async with aclosing(with_heartbeats(events, live)) as heard:
        yield b": listening\n\n"
        async for event in heard:
            yield STILL_HERE if event is None else await _event_line(event)


async def stream_reply(
    segue: Segue, turn: Turn, since: str, live: LiveConnection
) -> AsyncGenerator[bytes]:
    """The events of a thread from a cursor on until a turn is over, and then its state."""
    async with aclosing(reply_events(segue, turn, since, live)) as heard:
        async for event in heard:
            if event is not None:
                yield await _event_line(event)


async def reply_events(
    segue: Segue, turn: Turn, since: str, live: LiveConnection
) -> AsyncGenerator[Event | None]:
    """The events of a thread from a cursor up to the end of a turn; None after each idle moment."""
    events = segue.listen(turn.thread_id, since)
    ended = asyncio.ensure_future(segue.wait_turn(turn))
    target: int | None = None
    try:
        async with aclosing(with_heartbeats(events, live, _TURN_CHECKED_EVERY)) as heard:
            async for event in heard:
                yield event
                ending = None if event is None else event.payload
                if isinstance(ending, TurnEnded) and ending.turn_id == turn.id:
                    return
                if ended.done() and target is None:
                    turn = ended.result()
                    target = await segue.last_position(turn)
                # Its last event may take long to read; without one, it ended before the cursor.
                cursor = since if event is None else event.cursor
                if target is not None and parse_cursor(cursor)[0] >= target:
                    over = TurnEnded(turn.id, end_state(turn))
                    yield Event(cursor_at(target), over, turn.thread_id)
                    return
    finally:
        ended.cancel()


async def own_events(
    segue: Segue, turn: Turn, since: str, live: LiveConnection, is_own: Callable[[Payload], bool]
) -> AsyncGenerator[Event | None]:
    """Of `reply_events` those that are the caller's; None after each interval without one, in which
    a proxy might give up.
    """
    pause, quiet_since = settings_of(live.connection).ping_every.total_seconds(), time.monotonic()
    async with aclosing(reply_events(segue, turn, since, live)) as heard:
        async for event in heard:
            if event is not None and is_own(event.payload):
                quiet_since = time.monotonic()
                yield event
            elif time.monotonic() - quiet_since >= pause:
                quiet_since = time.monotonic()
                yield None


async def _event_line(event: Event) -> bytes:
    data = frame(event)
    return event_lines(await encode(data), data["type"], event.cursor)

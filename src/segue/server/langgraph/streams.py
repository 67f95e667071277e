"""Streams of a run and of a thread, as server-sent events.

A run's stream ends with the run. A thread's stream stays open, and runs that nobody asked for
appear on it as all others do. The id of an event is the place to resume from.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final

from segue.core.metadata import MessageMetadata
from segue.core.snowflake import to_text
from segue.errors import SegueError, UsageError
from segue.events import (
    Event,
    MessageStored,
    Payload,
    ProgressReported,
    TurnEnded,
    TurnStarted,
    cursor_at,
    parse_cursor,
)
from segue.journal.records import Thread, Turn, TurnKind
from segue.server.access import segue_of, settings_of
from segue.server.connections import LiveConnection, reply_events, with_heartbeats
from segue.server.langgraph.narrator import Narrator, Part, Place
from segue.server.problems import ApiError, problem_of
from segue.server.responses import encode

HEARTBEAT: Final = b": heartbeat\n\n"
_ALL_MODES: Final = frozenset({"values", "messages-tuple", "custom"})
_MODES_OF_THREADS: Final = {
    "run_modes": _ALL_MODES,
    "lifecycle": frozenset[str](),
    "state_update": frozenset({"values"}),
}


def run_beginning(turn: Turn) -> str:
    """The cursor before everything of a run: its message, or what follows an answer."""
    goes_on = "answer" in turn.payload or turn.kind is TurnKind.CONTINUATION
    return cursor_at((turn.id if goes_on else turn.batch) - 1)


class RunStream:
    """The stream of one run of a thread: from a place to the end of the run."""

    def __init__(
        self, live: LiveConnection, thread: Thread, turn: Turn, modes: frozenset[str], place: Place
    ) -> None:
        self._live = live
        self._segue = segue_of(live.connection)
        self._thread = thread
        self._turn = turn
        self._place = place
        self._narrator = Narrator(live, thread, modes, place)
        self._is_running = False

    async def lines(self) -> AsyncGenerator[bytes]:
        run_id, told_values = to_text(self._turn.id), False
        about = Part("metadata", {"run_id": run_id, "attempt": 1, "thread_id": self._thread.id})
        yield await _lines([about], self._place)
        try:
            async with aclosing(self._events()) as events:
                async for event in events:
                    if event is None:
                        yield HEARTBEAT
                        continue
                    parts = await self._narrator.tell(event.payload, run_id)
                    told_values |= any(part.event == "values" for part in parts)
                    yield await _lines(parts, self._narrator.place(event.cursor))
            if not told_values:
                yield await _lines(await self._narrator.values())
        except (ApiError, SegueError) as error:
            yield await _lines([error_part(error)])
        yield await _lines([Part("end", None)])

    async def _events(self) -> AsyncGenerator[Event | None]:
        """What belongs to the run, and None when a heartbeat is due."""
        since, beats = self._place.cursor, _Heartbeats(self._live)
        async with aclosing(reply_events(self._segue, self._turn, since, self._live)) as events:
            async for event in events:
                if event is None:
                    if beats.is_due():
                        yield None
                    continue
                self._narrator.note(event.payload)
                if self._is_own(event.payload):
                    beats.postpone()
                    yield event

    def _is_own(self, payload: Payload) -> bool:
        match payload:
            case MessageStored(message):
                return MessageMetadata.of(message).batch == self._turn.batch
            case TurnStarted(turn_id):
                self._is_running = turn_id == self._turn.id
            case TurnEnded(turn_id) if turn_id == self._turn.id:
                self._is_running = False
        return getattr(payload, "turn_id", self._turn.id) == self._turn.id and (
            self._is_running or not isinstance(payload, ProgressReported)
        )


class ThreadStream:
    """The stream of all runs of a thread, from a place on and without an end; `newest` is the last
    run that has begun.
    """

    def __init__(
        self,
        live: LiveConnection,
        thread: Thread,
        modes: frozenset[str],
        place: Place,
        newest: Turn | None = None,
    ) -> None:
        self._live = live
        self._newest = None if newest is None else newest.id
        self._segue = segue_of(live.connection)
        self._thread = thread
        self._place = place
        told = _MODES_OF_THREADS[next(iter(modes))] if len(modes) == 1 else _ALL_MODES
        self._narrator = Narrator(live, thread, told - {"values"}, place)
        self._states = Narrator(live, thread, told & {"values"}, place)
        self._run_id: str | None = None

    async def lines(self) -> AsyncGenerator[bytes]:
        yield b": listening\n\n"
        heard = self._segue.listen(self._thread, self._place.cursor)
        try:
            async with aclosing(with_heartbeats(heard, self._live)) as events:
                async for event in events:
                    if event is None:
                        yield HEARTBEAT
                    elif parts := await self._parts(event):
                        yield await _lines(parts, self._narrator.place(event.cursor))
        except (ApiError, SegueError) as error:
            yield await _lines([error_part(error)])

    async def _parts(self, event: Event) -> list[Part]:
        payload = event.payload
        self._narrator.note(payload)
        match payload:
            case TurnStarted(turn_id, origin):
                return [*self._begin(to_text(turn_id), origin), *await self._values(event)]
            case TurnEnded(turn_id):
                run_id = to_text(turn_id)
                begun = [] if run_id == self._run_id else self._begin(run_id)
                self._run_id = None
                over = Part("metadata", {"status": "run_done", "run_id": run_id})
                return [*begun, *await self._values(event), over]
        return await self._narrator.tell(payload, self._run_id or "")

    def _begin(self, run_id: str, origin: str | None = None) -> list[Part]:
        self._run_id = run_id
        told = {} if origin is None else {"origin": origin}
        return [Part("metadata", {"run_id": run_id, "attempt": 1, **told})]

    async def _values(self, event: Event) -> list[Part]:
        """The state, but not that of each earlier run to a client that was away for long."""
        is_new = parse_cursor(event.cursor)[0] >= self._thread.last_position
        is_last = getattr(event.payload, "turn_id", None) == self._newest
        return await self._states.values() if is_new or is_last else []


def parse_thread_modes(given: list[str]) -> frozenset[str]:
    if unknown := sorted({*given} - _MODES_OF_THREADS.keys()):
        valid = ", ".join(_MODES_OF_THREADS)
        raise UsageError(f"stream_mode: {unknown[0]!r:.60}; expected one of: {valid}.")
    return frozenset(given or ["run_modes"])


def error_part(error: Exception) -> Part:
    problem = problem_of(error)
    return Part("error", {"error": problem.code, "message": problem.detail})


class _Heartbeats:
    """Tells when a stream was silent for long."""

    def __init__(self, live: LiveConnection) -> None:
        self._every = settings_of(live.connection).ping_every.total_seconds()
        self._clock = asyncio.get_running_loop().time
        self.postpone()

    def postpone(self) -> None:
        self._at = self._clock() + self._every

    def is_due(self) -> bool:
        if self._clock() < self._at:
            return False
        self.postpone()
        return True


async def _lines(parts: Iterable[Part], place: Place | None = None) -> bytes:
    """Server-sent events; only the last has the id, so that all are sent again if one is lost."""
    found = [*parts]
    lines = []
    for number, (event, data) in enumerate(found, 1):
        body = data if isinstance(data, bytes) else await encode(data)
        name = f"id: {place}\n" if place is not None and number == len(found) else ""
        lines.append(b"".join((f"event: {event}\n{name}data: ".encode(), body, b"\n\n")))
    return b"".join(lines)

"""Streams of a run and of a thread, as server-sent events.

A run's stream ends with the run. A thread's stream stays open and has all runs, also those that the
agent began. The id of an event is the place to resume from.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.metadata import MessageMetadata
from segue.core.snowflake import to_text
from segue.errors import SegueError, UsageError
from segue.events import (
    Event,
    MessageRetracted,
    MessageStored,
    Payload,
    ProgressReported,
    QuestionAsked,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    cursor_at,
    parse_cursor,
)
from segue.journal.records import Page, Thread, Turn, TurnKind
from segue.server.access import segue_of
from segue.server.connections import LiveConnection, event_lines, own_events, with_heartbeats
from segue.server.langgraph.narrator import Narrator, Part, Place
from segue.server.langgraph.records import interrupts_json
from segue.server.problems import ApiError, ResponseCut, logged_problem
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
        run_id, has_values, is_over = to_text(self._turn.id), False, False
        about = Part("metadata", {"run_id": run_id, "attempt": 1, "thread_id": self._thread.id})
        yield await _lines([about], self._place)
        try:
            heard = own_events(
                self._segue, self._turn, self._place.cursor, self._live, self._is_own
            )
            async with aclosing(heard) as events:
                async for event in events:
                    if event is None:
                        yield HEARTBEAT
                        continue
                    values = await self._values(event.payload)
                    has_values |= bool(values)
                    is_over |= isinstance(event.payload, TurnEnded)
                    parts = self._narrator.tell(event.payload, run_id) + values
                    yield await _lines(parts, self._narrator.place(event.cursor))
            if not is_over:
                raise ResponseCut
            if not has_values:
                yield await _lines(await self._narrator.values())
        except (ApiError, SegueError) as error:
            yield await _lines([error_part(error)])
        yield await _lines([Part("end", None)])

    async def _values(self, payload: Payload) -> list[Part]:
        match payload:
            case MessageStored() | MessageRetracted():
                return await self._narrator.values()
            case QuestionAsked(_, questions):
                return await self._narrator.values({"__interrupt__": interrupts_json(questions)})
        return []

    def _is_own(self, payload: Payload) -> bool:
        self._narrator.note(payload)
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
        chosen = _MODES_OF_THREADS[next(iter(modes))] if len(modes) == 1 else _ALL_MODES
        self._narrator = Narrator(live, thread, chosen, place)
        self._run_id = ""

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
        parts = await self._begin(payload)
        parts += self._narrator.tell(payload, self._run_id)
        if isinstance(payload, TurnStarted | TurnEnded):
            parts += await self._values(event)
        if isinstance(payload, TurnEnded):
            parts.append(Part("metadata", {"status": "run_done", "run_id": self._run_id}))
            self._run_id = ""
        return parts

    async def _begin(self, payload: Payload) -> list[Part]:
        """The begin of a run. It is not stored: that of a run in the past comes with its first
        message or with its end.
        """
        run = await self._run_of(payload)
        if run is None or run[0] == self._run_id:
            return []
        self._run_id, origin = run
        if not self._thread.last_position:  # the first run chose the agent
            thread = await self._segue.get_thread(self._thread.id)
            self._narrator.agent_id = thread.agent_id
        return [Part("metadata", {"run_id": self._run_id, "attempt": 1, "origin": origin})]

    async def _run_of(self, payload: Payload) -> tuple[str, str] | None:
        """The id and the origin of a run that an event begins or belongs to, if that is new."""
        turn: Turn | None = None
        match payload:
            case TurnStarted(turn_id, origin):
                return to_text(turn_id), origin
            case MessageStored(message) if not (self._run_id or isinstance(message, HumanMessage)):
                turn = await self._writer_of(message)
            case TurnEnded(turn_id) | TurnFailed(_, _, int(turn_id)):
                if to_text(turn_id) != self._run_id:
                    turn = await self._segue.get_turn(turn_id)
        return None if turn is None else (to_text(turn.id), turn.kind.value)

    async def _writer_of(self, message: BaseMessage) -> Turn | None:
        """The turn that wrote a message; an imported one has none."""
        page = Page([message], None, None)
        turns = await self._segue.list_turns(self._thread, page, limit=50)
        # Positions before the id of a turn belong to earlier turns of its batch.
        position = MessageMetadata.of(message).position or 0
        return next((turn for turn in turns if turn.id <= position), None)

    async def _values(self, event: Event) -> list[Part]:
        """The state, but not that of each earlier run to a client that was away for long."""
        is_new = parse_cursor(event.cursor)[0] >= self._thread.last_position
        is_last = getattr(event.payload, "turn_id", None) == self._newest
        return await self._narrator.values() if is_new or is_last else []


def parse_thread_modes(given: list[str]) -> frozenset[str]:
    if unknown := sorted({*given} - _MODES_OF_THREADS.keys()):
        valid = ", ".join(_MODES_OF_THREADS)
        raise UsageError(f"stream_mode: {unknown[0]!r:.60}; expected one of: {valid}.")
    return frozenset(given or ["run_modes"])


def error_part(error: Exception) -> Part:
    problem = logged_problem(error, "A stream")
    return Part("error", {"error": problem.code, "message": problem.detail})


async def _lines(parts: Iterable[Part], place: Place | None = None) -> bytes:
    """Server-sent events; only the last has the id, so that all are sent again if one is lost."""
    left, lines = [*parts], []
    while left:
        event, data = left.pop(0)
        body = data if isinstance(data, bytes) else await encode(data)
        lines.append(event_lines(body, event, "" if left or place is None else str(place)))
    return b"".join(lines)

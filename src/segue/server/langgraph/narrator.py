"""The events of a thread in the stream modes of LangGraph's clients.

`Place` is where a stream can be resumed: a cursor, and how much of an unfinished message was sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.messages import origin_of, spoken_text
from segue.core.text import exact_json
from segue.errors import UsageError
from segue.events import (
    MessageDelta,
    MessageRetracted,
    MessageStored,
    Payload,
    ProgressReported,
    QuestionAsked,
    TurnEnded,
    TurnFailed,
    parse_cursor,
)
from segue.journal.records import Thread
from segue.server.access import segue_of
from segue.server.connections import LiveConnection
from segue.server.langgraph.messages import (
    Json,
    chunk_json,
    message_id,
    message_json,
    removal_json,
    shared_window,
)
from segue.server.langgraph.records import NODE, interrupts_json

# How a client asks for a stream from its beginning.
_BEGINNING: Final = frozenset({"-1", "0", "0-0"})
_MARK: Final = "~"


class Part(NamedTuple):
    """The name and the data of a server-sent event."""

    event: str
    data: Any


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stream is resumed: after a cursor, and after `length` characters of a message that
    is not finished.
    """

    cursor: str
    message_id: str = ""
    length: int = 0

    def __str__(self) -> str:
        unfinished = (str(self.length), self.message_id) if self.message_id else ()
        return _MARK.join((self.cursor, *unfinished))

    @classmethod
    def parse(cls, given: str | None, beginning: str, default: str) -> "Place":
        """`UsageError` if it is not the id of an event."""
        if given is None or given in _BEGINNING:
            return cls(default if given is None else beginning)
        cursor, _, rest = given.partition(_MARK)
        length, _, unfinished = rest.partition(_MARK)
        parse_cursor(cursor)
        if rest and not (length.isdecimal() and len(length) < 10 and unfinished):
            raise UsageError(f"Last-Event-ID {given!r:.60} is not the id of an event.")
        return cls(cursor, unfinished, int(length or 0))


class Narrator:
    """Translates the events of a thread for one stream; knows which part of a message it sent."""

    def __init__(
        self, live: LiveConnection, thread: Thread, modes: frozenset[str], place: Place
    ) -> None:
        self._segue = segue_of(live.connection)
        self._thread_id = thread.id
        self.agent_id = thread.agent_id
        self._modes = modes
        self._window = shared_window(live.connection, thread)
        # The characters that were sent of messages that are being written.
        self._sent = {place.message_id: place.length} if place.message_id else {}
        # The message that was cut off by a lost connection, until more of it is heard.
        self._cut_off = place.message_id
        # The texts so far, for the mode that repeats them.
        self._texts: dict[str, str] = {}

    def place(self, cursor: str) -> Place:
        unfinished = next(reversed(self._sent), "")
        return Place(cursor, unfinished, self._sent.get(unfinished, 0))

    def note(self, payload: Payload) -> None:
        """What happens in another run changes the state, too."""
        if isinstance(payload, MessageStored):
            self._window.note(payload.message)

    async def values(self, more: Json | None = None) -> list[Part]:
        """The state as it is now."""
        if "values" not in self._modes:
            return []
        window = await self._window.read(self._segue, self._thread_id)
        if more:
            return [Part("values", {**window.values(), **more})]
        return [Part("values", await window.encode())]

    def tell(self, payload: Payload, run_id: str) -> list[Part]:
        """What a payload means in the chosen modes, but for the state.

        Those of `events` come first: a client of several modes takes the text from them, but would
        take a piece that came before them from another mode, too.
        """
        parts = [part for part in self._tell(payload, run_id) if self._has(part)]
        return sorted(parts, key=lambda part: part.event != "events")

    def _has(self, part: Part) -> bool:
        if part.event == "error":
            return True
        mode = "messages-tuple" if part.event == "messages" else part.event.partition("/")[0]
        return mode in self._modes

    def _tell(self, payload: Payload, run_id: str) -> Iterator[Part]:
        match payload:
            case MessageStored(message) if not isinstance(message, HumanMessage):
                yield from self._cut(message_id(message), run_id)
                yield from self._whole(message, run_id)
            case MessageDelta(message_id=name):
                yield from self._cut(name, run_id)
                yield from self._delta(payload, run_id)
            case MessageRetracted(gone):
                yield from self._remove(gone, run_id)
            case TurnEnded():
                for name in [*self._sent]:
                    yield from self._remove(name, run_id)
            case QuestionAsked(_, questions):
                yield Part("updates", {"__interrupt__": interrupts_json(questions)})
            case TurnFailed(code, reason):
                yield Part("error", {"error": code, "message": reason})
            case ProgressReported(value):
                data = exact_json(value)
                yield Part("custom", data)
                yield self._event("on_custom_event", run_id, data)

    def _cut(self, name: str, run_id: str) -> Iterator[Part]:
        """Remove a message that was cut off if another one comes in its place: after a crash the
        run writes it again.
        """
        gone, self._cut_off = self._cut_off, ""
        if gone != name:
            yield from self._remove(gone, run_id)

    def _remove(self, name: str, run_id: str) -> Iterator[Part]:
        if self._sent.pop(name, None) is not None:
            yield Part("messages", [removal_json(name), self._about(run_id)])

    def _whole(self, message: BaseMessage, run_id: str) -> list[Part]:
        """What was not sent of a message yet, and that it is whole."""
        name, whole = message_id(message), message_json(message)
        sent = self._sent.pop(name, 0)
        rest = spoken_text(message)[sent:]
        parts: list[Part] = []
        if not sent:
            parts = self._piece(chunk_json(name, rest, origin_of(message)), run_id, whole)
        elif rest:
            parts = self._piece(chunk_json(name, rest, None), run_id)
        return [
            *parts,
            Part("messages/complete", [whole]),
            self._event("on_chat_model_end", run_id, {"output": whole}),
            Part("updates", {NODE: {"messages": [whole]}}),
        ]

    def _delta(self, delta: MessageDelta, run_id: str) -> list[Part]:
        name, sent = delta.message_id, self._sent.get(delta.message_id, 0)
        text = delta.text[max(sent - delta.offset, 0) :]
        if not text:
            return []
        self._sent[name] = delta.offset + len(delta.text)
        origin = None if sent else ("reply" if delta.origin == "reply" else "follow_up")
        chunk = chunk_json(name, text, origin)
        parts = self._piece(chunk, run_id, None if sent else chunk)
        if "messages" in self._modes:
            parts.append(Part("messages/partial", [self._partial(delta)]))
        return parts

    def _piece(self, chunk: Json, run_id: str, first: Json | None = None) -> list[Part]:
        """A part of a message; `first` is what the client gets of a new one."""
        about = self._about(run_id)
        parts = [
            Part("messages", [first or chunk, about]),
            self._event("on_chat_model_stream", run_id, {"chunk": chunk}),
        ]
        if first is not None:
            parts.insert(0, Part("messages/metadata", {chunk["id"]: {"metadata": about}}))
        return parts

    def _partial(self, delta: MessageDelta) -> Json:
        """The message so far."""
        before = self._texts.get(delta.message_id, "") if delta.offset else ""
        self._texts = {delta.message_id: before + delta.text}
        return chunk_json(delta.message_id, before + delta.text, None)

    def _event(self, name: str, run_id: str, data: Any) -> Part:
        """As LangChain's `astream_events` gives it."""
        about = self._about(run_id)
        body = {"event": name, "name": NODE, "run_id": run_id, "tags": [], "metadata": about}
        return Part("events", {**body, "data": data, "parent_ids": []})

    def _about(self, run_id: str) -> Json:
        return {
            "run_id": run_id,
            "thread_id": self._thread_id,
            "assistant_id": self.agent_id,
            "graph_id": self.agent_id,
            "langgraph_node": NODE,
            "langgraph_step": 1,
        }

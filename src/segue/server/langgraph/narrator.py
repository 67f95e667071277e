"""Tells what happens in a thread in the stream modes of LangGraph's clients.

`Place` is where a stream can be resumed: a cursor, and how much of an unfinished message was told.
"""

from collections.abc import Iterable
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
    TurnFailed,
    parse_cursor,
)
from segue.journal.records import Thread
from segue.server.access import segue_of
from segue.server.connections import LiveConnection
from segue.server.langgraph.messages import Json, chunk_json, message_id, message_json
from segue.server.langgraph.records import NODE, interrupt_json
from segue.server.langgraph.windows import shared_window

# How a client asks for a stream from its beginning.
_BEGINNING: Final = frozenset({"-1", "0", "0-0"})
_MARK: Final = "~"


class Part(NamedTuple):
    """The name and the data of a server-sent event."""

    event: str
    data: Any


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stream is resumed: after a cursor, and after so much of an unfinished message."""

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
    """Tells what happens in a thread in some modes; knows what of a message was told."""

    def __init__(
        self, live: LiveConnection, thread: Thread, modes: frozenset[str], place: Place
    ) -> None:
        self._segue = segue_of(live.connection)
        self._thread = thread
        self._modes = modes
        self._window = shared_window(live.connection, thread)
        # The characters that were told of messages that are being written.
        self._told = {place.message_id: place.length} if place.message_id else {}
        # Their texts, for the mode that repeats them.
        self._texts: dict[str, str] = {}

    def place(self, cursor: str) -> Place:
        unfinished = next(reversed(self._told), "")
        return Place(cursor, unfinished, self._told.get(unfinished, 0))

    async def tell(self, payload: Payload, run_id: str) -> list[Part]:
        match payload:
            case MessageStored(message):
                return await self._message(message, run_id)
            case MessageDelta():
                return self._delta(payload, run_id)
            case MessageRetracted(gone):
                self._told.pop(gone, None)
                return await self.values()
            case QuestionAsked(_, questions):
                return await self._questions(questions)
            case TurnFailed(code, reason):
                return [Part("error", {"error": code, "message": reason})]
        return self._progress(payload, run_id)

    def _progress(self, payload: Payload, run_id: str) -> list[Part]:
        if not isinstance(payload, ProgressReported):
            return []
        told = exact_json(payload.value)
        return self._only([Part("custom", told), self._event("on_custom_event", run_id, told)])

    async def _questions(self, questions: Json) -> list[Part]:
        asked = [interrupt_json(name, value) for name, value in questions.items()]
        parts = self._only([Part("updates", {"__interrupt__": asked})])
        return parts + await self.values({"__interrupt__": asked})

    async def values(self, more: Json | None = None) -> list[Part]:
        """The state as it is now."""
        if "values" not in self._modes:
            return []
        window = await self._window.read(self._segue, self._thread.id)
        if more:
            return [Part("values", {**window.values(), **more})]
        return [Part("values", await window.encode())]

    def note(self, payload: Payload) -> None:
        """What happens in another run changes the state, too."""
        if isinstance(payload, MessageStored):
            self._window.note(payload.message)

    async def _message(self, message: BaseMessage, run_id: str) -> list[Part]:
        parts: list[Part] = []
        if not isinstance(message, HumanMessage):
            parts = self._only(self._whole(message, run_id))
        return parts + await self.values()

    def _whole(self, message: BaseMessage, run_id: str) -> list[Part]:
        """What was not told of a message yet, and that it is whole."""
        name, whole = message_id(message), message_json(message)
        told = self._told.pop(name, 0)
        rest = spoken_text(message)[told:]
        part = chunk_json(name, rest, None) if told else whole
        parts = [] if told and not rest else [Part("messages", [part, self._about(run_id)])]
        if not told:
            parts.append(Part("messages/metadata", {name: {"metadata": self._about(run_id)}}))
        if rest or not told:
            chunk = chunk_json(name, rest, None if told else origin_of(message))
            parts.append(self._event("on_chat_model_stream", run_id, {"chunk": chunk}))
        return [
            *parts,
            Part("messages/complete", [whole]),
            self._event("on_chat_model_end", run_id, {"output": whole}),
            Part("updates", {NODE: {"messages": [whole]}}),
        ]

    def _delta(self, delta: MessageDelta, run_id: str) -> list[Part]:
        name, told = delta.message_id, self._told.get(delta.message_id, 0)
        text = delta.text[max(told - delta.offset, 0) :]
        if not text:
            return []
        self._told[name] = delta.offset + len(delta.text)
        origin = None if told else ("reply" if delta.origin == "reply" else "follow_up")
        chunk = chunk_json(name, text, origin)
        parts = [
            Part("messages", [chunk, self._about(run_id)]),
            self._event("on_chat_model_stream", run_id, {"chunk": chunk}),
        ]
        if not told:
            about = {name: {"metadata": self._about(run_id)}}
            parts.insert(0, Part("messages/metadata", about))
        if "messages" in self._modes:
            parts.append(Part("messages/partial", [self._partial(delta)]))
        return self._only(parts)

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
        agent = self._thread.agent_id
        return {
            "run_id": run_id,
            "thread_id": self._thread.id,
            "assistant_id": agent,
            "graph_id": agent,
            "langgraph_node": NODE,
            "langgraph_step": 1,
        }

    def _only(self, parts: Iterable[Part]) -> list[Part]:
        """The parts of the chosen modes, those of `events` first: a client of several modes takes
        the text from them, but would take a piece that came before them from another mode, too.
        """
        chosen = [part for part in parts if _mode_of(part.event) in self._modes]
        return sorted(chosen, key=lambda part: part.event != "events")


def _mode_of(event: str) -> str:
    return "messages-tuple" if event == "messages" else event.partition("/")[0]

"""Protocol events: the events of a thread, for clients that subscribe to channels of it.

Each event has a number that rises, and an id by which a client drops what it has already: a stored
event has the same id on every connection. A subscription without a number to resume from gets the
last run again, because clients subscribe after they have started one, and wait for its end.
"""

import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage, HumanMessage
from pydantic import Field
from pydantic_core import to_json

from segue.core.messages import spoken_text
from segue.core.snowflake import MAX_ID, NODE_BITS, SEQUENCE_BITS, to_text
from segue.core.text import exact_json
from segue.errors import UsageError
from segue.events import (
    Event,
    MessageDelta,
    MessageRetracted,
    MessageStored,
    Payload,
    ProgressReported,
    QuestionAsked,
    ToolActivity,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    cursor_at,
    parse_cursor,
)
from segue.journal.records import Thread, Turn
from segue.server.access import segue_of
from segue.server.connections import LiveConnection, with_heartbeats
from segue.server.langgraph.messages import Json, message_id, shared_window
from segue.server.langgraph.records import NODE
from segue.server.langgraph.streams import run_beginning
from segue.server.requests import StrictModel

CHANNELS: Final = frozenset(
    {"values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks"}
    | {"custom"}
)
_ENDS: Final = {"done": "completed", "waiting": "interrupted", "failed": "failed"}
_SEQUENCES: Final = (1 << SEQUENCE_BITS) - 1
_LARGEST: Final = 1 << 53


class Subscription(StrictModel):
    """The channels that a client wants, and the number of the last event that it has."""

    channels: list[str] = Field(max_length=100)
    namespaces: list[list[str]] | None = None
    depth: int | None = None
    since: int | None = Field(default=None, ge=0, lt=_LARGEST)

    def check(self) -> None:
        unknown = [c for c in self.channels if c not in CHANNELS and not c.startswith("custom:")]
        if unknown:
            valid = ", ".join(sorted(CHANNELS))
            raise UsageError(f"channels: {unknown[0]!r:.60}; expected some of: {valid}.")

    def has(self, method: str) -> bool:
        """Whether events of a method are wanted; all of ours are in the root namespace."""
        is_root = self.namespaces is None or [] in self.namespaces
        channel = "input" if method == "input.requested" else method
        return is_root and channel in self.channels


def number_of(cursor: str) -> int:
    """A cursor as a number that JavaScript can hold: a position without the bits of its node."""
    position, count = parse_cursor(cursor)
    millis = position >> (NODE_BITS + SEQUENCE_BITS)
    return (millis << SEQUENCE_BITS | position & _SEQUENCES) + count


def cursor_before(number: int) -> str:
    """A cursor at or before the event with this number; a client drops what it gets again."""
    first = (number >> SEQUENCE_BITS) << (NODE_BITS + SEQUENCE_BITS)
    return cursor_at(min(max(first - 1, 0), MAX_ID))


class ProtocolEvent(NamedTuple):
    """An event before it has its number; `id` is how clients know it again."""

    method: str
    data: Any
    id: str

    def encode(self, number: int, timestamp: int) -> "EncodedEvent":
        """Data that is JSON already is put into it as it is."""
        data = self.data if isinstance(self.data, bytes) else to_json(self.data)
        about = {"type": "event", "event_id": self.id, "seq": number, "method": self.method}
        params = {"namespace": [], "timestamp": timestamp}
        json = b"".join(
            (to_json(about)[:-1], b',"params":', to_json(params)[:-1], b',"data":', data, b"}}")
        )
        return EncodedEvent(self.method, number, json)


class EncodedEvent(NamedTuple):
    method: str
    number: int
    json: bytes


class EventFeed:
    """The events of a thread for one subscription."""

    def __init__(
        self, live: LiveConnection, thread: Thread, newest: Turn | None, wanted: Subscription
    ) -> None:
        self._live = live
        self._segue = segue_of(live.connection)
        self._thread = thread
        self._agent_id = thread.agent_id
        self._wanted = wanted
        self._window = shared_window(live.connection, thread)
        # The characters that were sent of messages that are being written.
        self._sent: dict[str, int] = {}
        self._reasons: dict[int, str] = {}
        self._name = secrets.token_hex(4)
        # The number of messages in the state that was sent last.
        self._count: int | None = None
        # A turn that runs already: the first delta of its message has all of the text so far.
        self._met = newest.id if newest is not None and newest.is_live else None
        # The start of a run is not stored; that of a finished one is sent before its messages.
        self._over = newest if newest is not None and not newest.is_live else None
        self._since = cursor_at(thread.last_position)
        if wanted.since is not None:
            self._since = cursor_before(wanted.since)
        elif newest is not None:
            self._since = run_beginning(newest)

    async def events(self) -> AsyncGenerator[EncodedEvent | None]:
        """None after each idle interval."""
        heard = self._segue.listen(self._thread, self._since)
        if self._over is not None and self._wanted.since is None and self._wanted.has("lifecycle"):
            data = {"event": "running", "origin": self._over.kind.value}
            start = self._lifecycle(self._over.id, data)
            yield start.encode(number_of(self._since), _milliseconds(self._over.queued_at))
        async with aclosing(with_heartbeats(heard, self._live)) as events:
            async for event in events:
                if event is None:
                    yield None
                    continue
                number = number_of(event.cursor)
                now = _milliseconds(self._segue.system.deps.clock.now())
                for each in await self._translate(event):
                    if self._wanted.has(each.method):
                        yield each.encode(number, now)

    async def _translate(self, event: Event) -> list[ProtocolEvent]:
        payload = event.payload
        if isinstance(payload, MessageStored):
            self._window.note(payload.message)
        if isinstance(payload, TurnStarted) and not self._thread.last_position:
            # The first run chose the agent.
            self._agent_id = (await self._segue.get_thread(self._thread.id)).agent_id
        found = [*self._of(payload)]
        if not isinstance(payload, MessageStored | TurnStarted | TurnEnded | MessageRetracted):
            return found
        values = await self._values(event)
        # The end of a run comes last: clients stop listening for its state then.
        return values + found if isinstance(payload, TurnEnded) else found + values

    async def _values(self, event: Event) -> list[ProtocolEvent]:
        """The state, but not that after each message of the past."""
        is_past = parse_cursor(event.cursor)[0] < self._thread.last_position
        if not self._wanted.has("values") or (is_past and not self._ends_last(event.payload)):
            return []
        window = await self._window.read(self._segue, self._thread.id)
        if window.count == self._count:
            return []
        self._count = window.count
        name = f"{event.cursor}:values:{window.count}"
        return [ProtocolEvent("values", await window.encode(), name)]

    def _ends_last(self, payload: Payload) -> bool:
        over = self._over
        return over is not None and isinstance(payload, TurnEnded) and payload.turn_id == over.id

    def _of(self, payload: Payload) -> Iterator[ProtocolEvent]:
        match payload:
            case MessageDelta():
                yield from self._delta(payload)
            case MessageStored(message) if not isinstance(message, HumanMessage):
                yield from self._stored(message)
            case MessageRetracted(gone) if self._sent.pop(gone, None) is not None:
                data = {"event": "error", "id": gone, "message": "This message was taken back."}
                yield ProtocolEvent("messages", data, f"{gone}:retracted")
            case ToolActivity():
                yield _tool(payload)
            case ProgressReported(value):
                data = {"payload": exact_json(value)}
                yield ProtocolEvent("custom", data, f"custom:{secrets.token_hex(8)}")
            case _:
                yield from self._of_run(payload)

    def _of_run(self, payload: Payload) -> Iterator[ProtocolEvent]:
        match payload:
            case TurnStarted(turn_id, origin):
                yield self._lifecycle(turn_id, {"event": "running", "origin": origin})
            case QuestionAsked(turn_id, questions):
                for name, value in questions.items():
                    asked = exact_json(value)
                    data = {"interrupt_id": name, "payload": asked, "value": asked}
                    yield ProtocolEvent("input.requested", data, f"{to_text(turn_id)}:{name}")
            case TurnFailed(_, reason, turn_id) if turn_id is not None:
                self._reasons[turn_id] = reason
            case TurnEnded(turn_id, state):
                error = self._reasons.pop(turn_id, "")
                failed = {"error": error} if error else {}
                yield self._lifecycle(turn_id, {"event": _ENDS.get(state, "completed"), **failed})

    def _lifecycle(self, turn_id: int, data: Json) -> ProtocolEvent:
        run_id = to_text(turn_id)
        about = {"graph_name": self._agent_id, "run_id": run_id}
        return ProtocolEvent("lifecycle", {**data, **about}, f"{run_id}:{data['event']}")

    def _delta(self, delta: MessageDelta) -> Iterator[ProtocolEvent]:
        name = delta.message_id
        # What a client that changed connections has of it already is replaced, not added to.
        is_met = delta.turn_id == self._met and name not in self._sent
        own = f":{self._name}" if is_met else ""
        if name not in self._sent:
            run_id = None if delta.turn_id is None else to_text(delta.turn_id)
            yield from self._begin(name, run_id, own)
        text = delta.text[max(self._sent[name] - delta.offset, 0) :]
        self._sent[name] = delta.offset + len(delta.text)
        if text:
            yield _block(
                name, {"delta": {"type": "text-delta", "text": text}}, self._sent[name], own
            )

    def _begin(self, name: str, run_id: str | None, own: str) -> Iterator[ProtocolEvent]:
        self._sent[name] = 0
        about = {"run_id": run_id, "thread_id": self._thread.id, "langgraph_node": NODE}
        data = {"event": "message-start", "role": "ai", "id": name, "metadata": about}
        yield ProtocolEvent("messages", data, f"{name}:start")
        content = {"type": "text", "text": ""}
        block: Json = {"event": "content-block-start", "id": name, "index": 0, "content": content}
        yield ProtocolEvent("messages", block, f"{name}:block{own}")

    def _stored(self, message: BaseMessage) -> Iterator[ProtocolEvent]:
        name, text = message_id(message), spoken_text(message)
        if name not in self._sent:
            yield from self._begin(name, None, "")
        if rest := text[self._sent.pop(name) :]:
            yield _block(name, {"delta": {"type": "text-delta", "text": rest}}, len(text))
        content = {"type": "text", "text": text}
        data = {"event": "content-block-finish", "id": name, "index": 0, "content": content}
        yield ProtocolEvent("messages", data, f"{name}:end")
        yield ProtocolEvent("messages", {"event": "message-finish", "id": name}, f"{name}:finish")
        update = {
            "node": NODE,
            "values": {"messages": [{"id": name, "type": "ai", "content": text}]},
        }
        yield ProtocolEvent("updates", update, f"{name}:update")


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000)


def _block(id: str, data: Json, end: int, own: str = "") -> ProtocolEvent:
    body = {"event": "content-block-delta", "id": id, "index": 0, **data}
    return ProtocolEvent("messages", body, f"{id}:{end}{own}")


def _tool(tool: ToolActivity) -> ProtocolEvent:
    """Without arguments and results, which are not for listeners."""
    data: Json = {"tool_call_id": tool.call_id, "tool_name": tool.name}
    if tool.state == "running":
        data |= {"event": "tool-started"}
    elif tool.state == "done":
        data |= {"event": "tool-finished", "output": None}
    else:
        data |= {"event": "tool-error", "message": "The tool failed."}
    return ProtocolEvent("tools", data, f"{tool.call_id}:{tool.state}:{tool.turn_id}")

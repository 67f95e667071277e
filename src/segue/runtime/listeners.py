"""One listener's queue and position, and what goes through them; the bus fills the queues."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import merge
from typing import Any, Final

from segue.errors import NotFoundError
from segue.events import (
    Event,
    MessageDelta,
    MessageRetracted,
    MessageStored,
    Payload,
    QuestionAsked,
    ThreadChanged,
    ThreadDeleted,
    TurnCancelled,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    cursor_at,
)
from segue.journal.feed import FeedPage, Partial, RunningTurn, StoredEvent
from segue.journal.records import PAGE_BYTES, Turn, TurnKind

# The events, or their bytes, that may wait for a listener before it has to read them again.
_MAX_BEHIND: Final = 1_000
_MAX_BYTES_BEHIND: Final = PAGE_BYTES
# A listener knows the ids of this many of its last stored messages.
_KNOWN: Final = 64


@dataclass(slots=True, eq=False)
class ActiveRun:
    """A running turn, in this process or another one."""

    turn_id: int
    token: int
    kind: TurnKind
    user_id: str = ""
    # A user's message, or another process, may end it.
    may_vanish: bool = True
    # Listeners get nothing more of it, not even what is queued already.
    is_over: bool = False
    # The texts so far that it writes in this process, by message.
    texts: dict[str, str] = field(default_factory=dict)

    def is_of(self, turn_id: int, token: int) -> bool:
        return (self.turn_id, self.token) == (turn_id, token)

    def start(self) -> "RunItem":
        return RunItem(self, TurnStarted(self.turn_id, self.kind.value))

    def text(self, message_id: str, offset: int, text: str) -> "RunItem":
        payload = MessageDelta(message_id, offset, text, self.turn_id, self.kind.value)
        return RunItem(self, payload)


@dataclass(frozen=True, slots=True)
class RunItem:
    """A payload of a run; dropped once the run is over."""

    run: ActiveRun
    payload: Payload


@dataclass(frozen=True, slots=True)
class StoredItem:
    """A stored event; its position tells whether a listener has it already.

    The last item of a position moves the listener there, also without a payload.
    """

    position: int
    payload: Payload | None
    size: int = 0
    is_last: bool = True

    @classmethod
    def of(cls, event: StoredEvent) -> "list[StoredItem]":
        if event.message is not None:
            return [cls(event.position, MessageStored(event.message), event.size)]
        assert event.turn is not None  # noqa: S101 - an event is one or the other
        turn, payloads = event.turn, list[Payload]()
        if turn.ending is not None:
            payload = ending_payload(turn.id, turn.ending)
            if turn.is_waiting or not isinstance(payload, QuestionAsked):  # not answered since
                payloads.append(payload)
        ended = cls(event.position, TurnEnded(turn.id, end_state(turn)))
        return [*(cls(event.position, each, is_last=False) for each in payloads), ended]


Item = StoredItem | RunItem | Payload


class BusClosed(Exception):
    """The process stops; listeners end."""


class ListenerQueue:
    """The items that one listener has not received yet."""

    def __init__(self, end: BusClosed | None = None) -> None:
        self._items: deque[Heard] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        # The queue overflowed and was cleared.
        self.is_behind = False
        # Raised by `wait` once the queue is empty.
        self.end: NotFoundError | BusClosed | None = end

    def put(self, thread_id: str | None, item: Item) -> None:
        if self.is_behind:
            return
        if len(self._items) >= _MAX_BEHIND or self._bytes >= _MAX_BYTES_BEHIND:
            self._items.clear()
            self._bytes = 0
            self.is_behind = True
        else:
            self._items.append((thread_id, item))
            self._bytes += _size_of(item)
        self._wake.set()

    def stop(self, end: NotFoundError | BusClosed) -> None:
        self.end = end
        self._wake.set()

    async def wait(self) -> None:
        while not self._items and not self.is_behind:
            if self.end is not None:
                raise self.end
            self._wake.clear()
            await self._wake.wait()

    def take(self) -> "Heard | None":
        if not self._items:
            return None
        heard = self._items.popleft()
        self._bytes -= _size_of(heard[1])
        return heard


@dataclass(frozen=True, slots=True)
class ForeignDraft:
    """The text so far of a message that another process writes."""

    partial: Partial
    run: ActiveRun

    @property
    def message_id(self) -> str:
        return self.partial.message_id

    def item(self) -> RunItem:
        return self.run.text(self.message_id, 0, self.partial.text)


class Channel:
    """All listeners of one thread, or of all threads of one user, in this process."""

    def __init__(
        self,
        read: Callable[..., Awaitable[FeedPage]],
        position: int,
        replays: asyncio.Semaphore,
        thread_id: str | None = None,
    ) -> None:
        self.read = read
        self.thread_id = thread_id
        # The last that all of them were sent.
        self.position = position
        # Held while a listener reads what it missed; shared by all channels of a user.
        self.replays = replays
        # How often the journal was read for all of them.
        self.reads = 0
        self.queues: set[ListenerQueue] = set()
        self.reading = asyncio.Lock()
        # What other processes are writing, by thread, as last read.
        self.foreign: dict[str, ForeignDraft] = {}

    def put(self, thread_id: str | None, item: Item) -> None:
        for queue in self.queues:
            queue.put(thread_id, item)

    def stop(self, end: NotFoundError | BusClosed) -> None:
        for queue in self.queues:
            queue.stop(end)

    def run_of(self, thread_id: str, turn: RunningTurn) -> ActiveRun:
        """The run of a turn of another process; all its items share one object."""
        known = self.foreign.get(thread_id)
        if known is not None and known.run.is_of(turn.id, turn.token):
            return known.run
        return ActiveRun(turn.id, turn.token, turn.kind)


class ListenerPosition:
    """How far one listener is: its stored position, and its part of unfinished messages."""

    def __init__(self, position: int, number: int = 0) -> None:
        self.position = position
        # Counts the events since the stored position.
        self._number = number
        # The characters that it has of messages that are being written.
        self._lengths: dict[MessageKey, int] = {}
        self._whole: deque[MessageKey] = deque(maxlen=_KNOWN)
        # The running turn of each thread that it knows of.
        self._running: dict[str | None, int] = {}

    @property
    def unfinished(self) -> set["MessageKey"]:
        return {*self._lengths}

    def advance(self, thread_id: str | None, item: Item) -> Event | None:
        """The event for the listener; None if it has it already, or must not get it any more."""
        payload = self._new_part(thread_id, item)
        return None if payload is None else self.event(thread_id, payload)

    def event(self, thread_id: str | None, payload: Payload) -> Event:
        cursor = cursor_at(self.position)
        if not isinstance(payload, MessageStored | TurnEnded):
            self._number += 1
            cursor = f"{cursor}.{self._number}"
        return Event(cursor, payload, thread_id)

    def _new_part(self, thread_id: str | None, item: Item) -> Payload | None:
        match item:
            case RunItem():
                return None if item.run.is_over else self._new_part(thread_id, item.payload)
            case StoredItem():
                return self._stored(thread_id, item)
            case MessageDelta():
                return self._delta((thread_id, item.message_id), item)
            case MessageRetracted(message_id):
                is_known = self._lengths.pop((thread_id, message_id), None) is not None
                return item if is_known else None
            case TurnStarted(turn_id):
                is_known = self._running.get(thread_id) == turn_id
                self._running[thread_id] = turn_id
                return None if is_known else item
        return item

    def _stored(self, thread_id: str | None, item: StoredItem) -> Payload | None:
        if item.position <= self.position:
            return None
        if item.is_last:
            self.position, self._number = item.position, 0
        if isinstance(item.payload, MessageStored):
            key = thread_id, item.payload.message.id or ""
            self._whole.append(key)
            self._lengths.pop(key, None)
        if isinstance(item.payload, TurnEnded):
            self._running.pop(thread_id, None)
        return item.payload

    def _delta(self, key: "MessageKey", delta: MessageDelta) -> MessageDelta | None:
        """The new part; None if there is none, text is missing, or the message is stored."""
        known = self._lengths.get(key, 0)
        end = delta.offset + len(delta.text)
        if end <= known or delta.offset > known or key in self._whole:
            return None
        self._lengths[key] = end
        return replace(delta, offset=known, text=delta.text[known - delta.offset :])


# A thread, and what happened there; None if it is of no thread.
Heard = tuple[str | None, Item]
# A thread and the id of a message in it.
MessageKey = tuple[str | None, str]


def items_of(page: FeedPage) -> Iterator[Heard]:
    """What a page has for listeners, in order."""
    changes = [
        (thread.id, StoredItem(thread.changed_position, ThreadChanged(thread), is_last=False))
        for thread in page.threads
    ]
    events = [(event.thread_id, item) for event in page.events for item in StoredItem.of(event)]
    # At one position the change comes first: it would be lost after the cursor of the event.
    yield from merge(changes, events, key=lambda heard: heard[1].position)
    if page.has_deletions:
        yield None, ThreadDeleted(None)
    yield None, StoredItem(page.position, None)


def end_state(turn: Turn) -> str:
    """How a turn ended, for listeners."""
    if (turn.ending or {}).get("kind") == "cancelled":
        return "cancelled"
    return "waiting" if turn.is_waiting else turn.state.value


def ending_payload(turn_id: int, says: Any) -> Payload:
    """The payload for the `says` of a turn's ending."""
    kind = says.get("kind")
    if kind == "question":
        return QuestionAsked(turn_id, dict(says.get("questions", {})))
    if kind == "cancelled":
        return TurnCancelled(turn_id)
    return TurnFailed(str(says.get("code", "error")), str(says.get("reason", "")), turn_id)


def _size_of(item: Item) -> int:
    if isinstance(item, RunItem):
        return _size_of(item.payload)
    if isinstance(item, MessageDelta):
        return len(item.text)
    return item.size if isinstance(item, StoredItem) else 0

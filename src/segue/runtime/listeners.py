"""One listener's queue and position, and what goes through them; the bus fills the queues."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from segue.errors import NotFoundError
from segue.events import (
    Event,
    MessageDelta,
    MessageRetracted,
    MessageStored,
    Payload,
    QuestionAsked,
    TurnCancelled,
    TurnFailed,
    cursor_at,
)
from segue.journal.records import PAGE_BYTES, StoredEvent

# The events, or their bytes, that may wait for a listener before it has to read them again.
_MAX_BEHIND: Final = 1_000
_MAX_BYTES_BEHIND: Final = PAGE_BYTES
# A listener knows the ids of this many of its last stored messages.
_KNOWN: Final = 16


@dataclass(slots=True)
class ActiveRun:
    """A running turn, in this process or another one."""

    turn_id: int
    token: int
    # A user's message, or another process, may end it.
    may_vanish: bool = field(default=True, compare=False)
    # Listeners get nothing more of it, not even what is queued already.
    is_over: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class RunItem:
    """A payload of a run; dropped once the run is over."""

    run: ActiveRun
    payload: Payload


@dataclass(frozen=True, slots=True)
class StoredItem:
    """A stored event; its position tells whether a listener has it already.

    Without a payload it only moves the position: a question that was answered since.
    """

    position: int
    payload: Payload | None
    size: int = 0

    @classmethod
    def of(cls, event: StoredEvent) -> "StoredItem":
        if event.message is not None:
            return cls(event.position, MessageStored(event.message), event.size)
        assert event.turn is not None  # noqa: S101 - an event is one or the other
        payload = ending_payload(event.turn.id, event.turn.ending or {})
        is_answered = isinstance(payload, QuestionAsked) and not event.turn.is_waiting
        return cls(event.position, None if is_answered else payload)


Item = StoredItem | RunItem | Payload


class BusClosed(Exception):
    """The process stops; listeners end."""


class ListenerQueue:
    """What one listener has still to get."""

    def __init__(self, end: BusClosed | None = None) -> None:
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        # The queue overflowed and was cleared.
        self.is_behind = False
        # Raised by `wait` once the queue is empty.
        self.end: NotFoundError | BusClosed | None = end

    def put(self, item: Item) -> None:
        if self.is_behind:
            return
        if len(self._items) >= _MAX_BEHIND or self._bytes >= _MAX_BYTES_BEHIND:
            self._items.clear()
            self._bytes = 0
            self.is_behind = True
        else:
            self._items.append(item)
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

    def take(self) -> Item | None:
        if not self._items:
            return None
        item = self._items.popleft()
        self._bytes -= _size_of(item)
        return item


@dataclass
class ThreadListeners:
    """All listeners of one thread in this process; `position` is the last they were sent."""

    position: int
    # Held while a listener reads what it missed; shared by all threads of a user.
    replays: asyncio.Semaphore
    # How often the journal was read for all of them.
    reads: int = 0
    queues: set[ListenerQueue] = field(default_factory=set)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def put(self, item: Item) -> None:
        for queue in self.queues:
            queue.put(item)

    def stop(self, end: NotFoundError | BusClosed) -> None:
        for queue in self.queues:
            queue.stop(end)


class ListenerPosition:
    """How far one listener is: its stored position, and its part of unfinished messages."""

    def __init__(self, position: int, number: int = 0) -> None:
        self.position = position
        # Counts the events since the stored position.
        self._number = number
        # The characters that it has of messages that are being written.
        self._lengths: dict[str, int] = {}
        self._whole: deque[str | None] = deque(maxlen=_KNOWN)

    @property
    def unfinished(self) -> set[str]:
        return {*self._lengths}

    def advance(self, item: Item) -> Event | None:
        """The event for the listener; None if it has it already, or must not get it any more."""
        payload = self._new_part(item)
        return None if payload is None else self.event(payload)

    def event(self, payload: Payload) -> Event:
        cursor = cursor_at(self.position)
        if isinstance(payload, MessageStored | TurnFailed | TurnCancelled | QuestionAsked):
            return Event(cursor, payload)
        self._number += 1
        return Event(f"{cursor}.{self._number}", payload)

    def _new_part(self, item: Item) -> Payload | None:
        if isinstance(item, RunItem):
            return None if item.run.is_over else self._new_part(item.payload)
        if isinstance(item, StoredItem):
            return self._stored(item)
        if isinstance(item, MessageDelta):
            return self._delta(item)
        if isinstance(item, MessageRetracted):
            return item if self._lengths.pop(item.message_id, None) is not None else None
        return item

    def _stored(self, item: StoredItem) -> Payload | None:
        if item.position <= self.position:
            return None
        self.position, self._number = item.position, 0
        if isinstance(item.payload, MessageStored):
            message_id = item.payload.message.id
            self._whole.append(message_id)
            self._lengths.pop(message_id or "", None)
        return item.payload

    def _delta(self, delta: MessageDelta) -> MessageDelta | None:
        """The new part of a delta; None if there is none, text before it is missing, or the
        message is stored.
        """
        known = self._lengths.get(delta.message_id, 0)
        end = delta.offset + len(delta.text)
        if end <= known or delta.offset > known or delta.message_id in self._whole:
            return None
        self._lengths[delta.message_id] = end
        return MessageDelta(delta.message_id, known, delta.text[known - delta.offset :])


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

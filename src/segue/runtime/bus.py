"""The bus: everything that happens in a thread, to everyone who listens to it.

What is stored is always read from the journal, so all listeners of all processes hear the same
things in the same order, and a listener that comes back misses none. Pieces of a message that is
being written come straight from the turn, or, if another process runs it, from the text so far
that it keeps in the journal.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from segue.core.snowflake import to_text
from segue.journal.ports import Journal
from segue.journal.records import Event, Events, Partial
from segue.runtime.events import (
    Asked,
    Cancelled,
    Failed,
    Heard,
    Lagged,
    Retracted,
    Said,
    ThreadEvent,
    Writing,
    position_of,
)

_PAGE: Final = 200
# How many events a listener may be behind before it has to read them again.
MAX_BEHIND: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored event; one that a listener has read already is known by its position."""

    position: int
    event: ThreadEvent


class _Listener:
    """What one listener has still to hear."""

    def __init__(self, max_behind: int) -> None:
        self._queue: deque[_Stored | ThreadEvent] = deque()
        self._max_behind = max_behind
        self._wake = asyncio.Event()
        self.is_behind = False

    def put(self, item: _Stored | ThreadEvent) -> None:
        if self.is_behind:
            return
        if len(self._queue) >= self._max_behind:
            self._queue.clear()
            self.is_behind = True
        else:
            self._queue.append(item)
        self._wake.set()

    async def wait(self) -> None:
        while not self._queue and not self.is_behind:
            self._wake.clear()
            await self._wake.wait()

    def take(self) -> _Stored | ThreadEvent | None:
        return self._queue.popleft() if self._queue else None


@dataclass
class _Hub:
    """All listeners of one thread, and how far they were told."""

    position: int
    listeners: set[_Listener] = field(default_factory=set)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def tell(self, item: _Stored | ThreadEvent) -> None:
        for listener in self.listeners:
            listener.put(item)


class Bus:
    """The listeners of one process."""

    def __init__(self, journal: Journal, *, max_behind: int = MAX_BEHIND) -> None:
        self._journal = journal
        self._max_behind = max_behind
        self._hubs: dict[str, _Hub] = {}
        # What is being written right now, by thread.
        self._drafts: dict[str, Partial] = {}
        # Threads whose turn this process runs: what others keep of it is older.
        self._own: set[str] = set()

    @contextmanager
    def running(self, thread_id: str) -> Iterator[None]:
        """Around a turn that this process runs."""
        self._own.add(thread_id)
        try:
            yield
        finally:
            self._own.discard(thread_id)
            self._drafts.pop(thread_id, None)

    def write(self, thread_id: str, turn_id: int, message_id: str, text: str) -> Partial:
        """A turn of this process writes a piece of a message; returns all of it so far."""
        draft = self._drafts.get(thread_id)
        if draft is None or draft.message_id != message_id:
            draft = Partial(turn_id, message_id, "")
        grown = Partial(turn_id, message_id, draft.text + text)
        self._drafts[thread_id] = grown
        self.tell(thread_id, Writing(message_id, len(draft.text), text))
        return grown

    def retract(self, thread_id: str) -> Partial | None:
        """What was being written will not be finished."""
        draft = self._drafts.pop(thread_id, None)
        if draft is not None:
            self.tell(thread_id, Retracted(draft.message_id))
        return draft

    def finish(self, thread_id: str) -> None:
        """What was being written is stored now, whole."""
        self._drafts.pop(thread_id, None)

    def tell(self, thread_id: str, event: ThreadEvent) -> None:
        """Something that is heard now or never."""
        if hub := self._hubs.get(thread_id):
            hub.tell(event)

    async def stored(self, thread_id: str) -> None:
        """Something was stored: read it, and tell it to all who listen here."""
        hubs = self._hubs if not thread_id else {thread_id: self._hubs.get(thread_id)}
        for name, hub in list(hubs.items()):
            if hub is not None:
                await self._catch_up(name, hub)

    async def listen(self, thread_id: str, since: str | None = None) -> AsyncGenerator[Heard]:
        """Everything from a cursor on, or from now on; never ends by itself."""
        thread = await self._journal.get_thread(thread_id)
        place = _Place(thread.last_position if since is None else position_of(since))
        listener = _Listener(self._max_behind)
        hub = self._hubs.setdefault(thread_id, _Hub(thread.last_position))
        hub.listeners.add(listener)
        try:
            async for heard in self._missed(thread_id, place):
                yield heard
            while True:
                await listener.wait()
                if listener.is_behind:
                    listener.is_behind = False
                    yield place.hear(Lagged())
                    async for heard in self._missed(thread_id, place):
                        yield heard
                while (item := listener.take()) is not None:
                    if event := place.news(item):
                        yield place.hear(event)
        finally:
            hub.listeners.discard(listener)
            if not hub.listeners and self._hubs.get(thread_id) is hub:
                del self._hubs[thread_id]
                if thread_id not in self._own:  # nobody follows it any more
                    self._drafts.pop(thread_id, None)

    async def _missed(self, thread_id: str, place: "_Place") -> AsyncGenerator[Heard]:
        """What is stored above the listener's place, and the message being written."""
        while True:
            page = await self._journal.events(thread_id, after=place.position, limit=_PAGE)
            for stored in page.events:
                if event := place.news(_to_stored(stored)):
                    yield place.hear(event)
            if len(page.events) < _PAGE:
                break
        draft = self._drafts.get(thread_id)
        if draft is None and thread_id not in self._own:
            draft = page.partial
            if draft is not None:
                self._drafts[thread_id] = draft
        if draft is not None and (event := place.news(Writing(draft.message_id, 0, draft.text))):
            yield place.hear(event)

    async def _catch_up(self, thread_id: str, hub: _Hub) -> None:
        async with hub.reading:  # two at once would tell the same twice
            while True:
                page = await self._journal.events(thread_id, after=hub.position, limit=_PAGE)
                for stored in page.events:
                    hub.position = stored.position
                    hub.tell(_to_stored(stored))
                if len(page.events) < _PAGE:
                    break
            if thread_id not in self._own:
                self._follow(thread_id, hub, page)

    def _follow(self, thread_id: str, hub: _Hub, page: Events) -> None:
        """Tell what another process has written since we last looked."""
        known, partial = self._drafts.pop(thread_id, None), page.partial
        is_same = known and partial and known.message_id == partial.message_id
        if known and not is_same and not _is_finished(known, page.events):
            hub.tell(Retracted(known.message_id))
        if partial is None:
            return
        self._drafts[thread_id] = partial
        length = len(known.text) if known and is_same else 0
        if new := partial.text[length:]:
            hub.tell(Writing(partial.message_id, length, new))


class _Place:
    """How far one listener has heard."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._number = 0
        self._message_id: str | None = None
        self._length = 0

    def news(self, item: _Stored | ThreadEvent) -> ThreadEvent | None:
        """What of it the listener has not heard yet."""
        if isinstance(item, _Stored):
            if item.position <= self.position:
                return None
            self.position, self._number = item.position, 0
            return item.event
        if isinstance(item, Writing):
            return self._piece(item)
        return item

    def hear(self, event: ThreadEvent) -> Heard:
        cursor = to_text(self.position) if self.position else "0"
        if isinstance(event, Said | Failed | Cancelled | Asked):
            return Heard(cursor, event)
        self._number += 1
        return Heard(f"{cursor}.{self._number}", event)

    def _piece(self, piece: Writing) -> Writing | None:
        known = self._length if piece.message_id == self._message_id else 0
        end = piece.offset + len(piece.text)
        if piece.message_id == self._message_id and end <= known:
            return None
        self._message_id, self._length = piece.message_id, end
        start = max(known - piece.offset, 0)
        return Writing(piece.message_id, piece.offset + start, piece.text[start:])


def _is_finished(draft: Partial, events: list[Event]) -> bool:
    return any(
        event.message is not None and event.message.id == draft.message_id for event in events
    )


def _to_stored(event: Event) -> _Stored:
    if event.message is not None:
        return _Stored(event.position, Said(event.message))
    assert event.turn is not None  # noqa: S101 - an event is one or the other
    return _Stored(event.position, ending_event(event.turn.id, event.turn.ending or {}))


def ending_event(turn_id: int, says: Any) -> ThreadEvent:
    """The event of what a turn's end says."""
    kind = says.get("kind")
    if kind == "question":
        return Asked(turn_id, dict(says.get("questions", {})))
    if kind == "cancelled":
        return Cancelled(turn_id)
    return Failed(str(says.get("code", "error")), str(says.get("reason", "")), turn_id)

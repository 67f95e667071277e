"""The bus: everything that happens in a thread, to everyone who listens to it.

What is stored is always read from the journal, so all listeners of all processes hear the same
things in the same order, and a listener that comes back misses none. Pieces of a message that is
being written come straight from the turn, or, if another process runs it, from the text so far
that it keeps in the journal.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.agent.run import Progress, Recalled
from segue.core.errors import BackendError, NotFoundError
from segue.journal.ports import Journal
from segue.journal.records import Event, Events, Partial, TurnKind, TurnLease
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
    cursor_at,
    place_of,
)
from segue.runtime.loops import Agenda

logger = logging.getLogger(__name__)

_PAGE: Final = 200
# How many events a listener may be behind before it has to read them again.
MAX_BEHIND: Final = 1_000
# How many of the messages that a listener heard last it knows by id.
_KNOWN: Final = 16


@dataclass(slots=True)
class _Run:
    """A turn at work, in this process or in another one."""

    turn_id: int
    token: int
    # Whether the user's words, or those of another process, may end it.
    may_vanish: bool = field(default=True, compare=False)
    # Nothing more of it is told, not even what is on its way to listeners.
    is_over: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class _Draft:
    """The text so far of a message; by a run of this process, or of another one."""

    partial: Partial
    run: _Run
    is_own: bool = True


@dataclass(frozen=True, slots=True)
class _OfRun:
    """What a run tells, for as long as it is not over."""

    run: _Run
    event: ThreadEvent


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored event; one that a listener has read already is known by its position.

    None is there for its position alone: a question that nobody has to answer any more.
    """

    position: int
    event: ThreadEvent | None


_Item = _Stored | _OfRun | ThreadEvent


class _Closed(Exception):
    """The process stops; nothing more is heard here."""


class _Listener:
    """What one listener has still to hear."""

    def __init__(self, max_behind: int, end: _Closed | None = None) -> None:
        self._queue: deque[_Item] = deque()
        self._max_behind = max_behind
        self._wake = asyncio.Event()
        self.is_behind = False
        # Why there is no more to hear.
        self.end: NotFoundError | _Closed | None = end

    def put(self, item: _Item) -> None:
        if self.is_behind:
            return
        if len(self._queue) >= self._max_behind:
            self._queue.clear()
            self.is_behind = True
        else:
            self._queue.append(item)
        self._wake.set()

    def stop(self, end: NotFoundError | _Closed) -> None:
        self.end = end
        self._wake.set()

    async def wait(self) -> None:
        while not self._queue and not self.is_behind:
            if self.end is not None:
                raise self.end
            self._wake.clear()
            await self._wake.wait()

    def take(self) -> _Item | None:
        return self._queue.popleft() if self._queue else None


@dataclass
class _Hub:
    """All listeners of one thread, and how far they were told."""

    position: int
    # How often the journal was read for all of them.
    looks: int = 0
    listeners: set[_Listener] = field(default_factory=set)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def tell(self, item: _Item) -> None:
        for listener in self.listeners:
            listener.put(item)

    def stop(self, end: NotFoundError | _Closed) -> None:
        for listener in self.listeners:
            listener.stop(end)


class Bus:
    """The listeners of one process."""

    def __init__(self, journal: Journal, *, max_behind: int = MAX_BEHIND) -> None:
        self._journal = journal
        self._max_behind = max_behind
        self._hubs: dict[str, _Hub] = {}
        # What is being written right now, by thread and message.
        self._drafts: dict[str, dict[str, _Draft]] = {}
        # The turns that this process runs, by thread: what others keep of them is older. A turn
        # that was lost or is void ends while the next one has begun.
        self._own: dict[str, list[_Run]] = {}
        # Threads of which something is stored that could not be read.
        self._unread: set[str] = set()
        self._is_closed = False
        self.agenda = Agenda()

    def close(self) -> None:
        """Let all listeners come to their end."""
        self._is_closed = True
        for hub in self._hubs.values():
            hub.stop(_Closed())

    @contextmanager
    def running(self, lease: TurnLease) -> Iterator[None]:
        """Around a turn that this process runs; a piece that is not finished is taken back."""
        thread_id, run = lease.turn.thread_id, _run_of(lease)
        # What the process left that had the turn before.
        self._retract(thread_id, lambda draft: not draft.is_own)
        self._own.setdefault(thread_id, []).append(run)
        try:
            yield
        finally:
            self.retract(lease)
            self._own[thread_id].remove(run)
            if not self._own[thread_id]:
                del self._own[thread_id]

    def write(self, lease: TurnLease, message_id: str, text: str) -> Partial:
        """A turn of this process writes a piece of a message; returns all of it so far."""
        turn, run = lease.turn, self._find_run(lease)
        drafts = self._drafts.get(turn.thread_id, {})
        before = drafts[message_id].partial.text if message_id in drafts else ""
        grown = Partial(turn.id, message_id, before + text)
        if not run.is_over:
            self._drafts.setdefault(turn.thread_id, {})[message_id] = _Draft(grown, run)
            self._put(turn.thread_id, _OfRun(run, Writing(message_id, len(before), text)))
        return grown

    def report(self, lease: TurnLease, event: Recalled | Progress) -> None:
        """What an agent reports of its work."""
        self._put(lease.turn.thread_id, _OfRun(self._find_run(lease), event))

    def retract(self, lease: TurnLease) -> list[Partial]:
        """What a turn was writing will not be finished; what it was."""
        run = _run_of(lease)
        return self._retract(lease.turn.thread_id, lambda draft: draft.is_own and draft.run == run)

    def drafts_of(self, lease: TurnLease) -> list[Partial]:
        """What a turn is writing, as far as it got."""
        drafts = self._drafts.get(lease.turn.thread_id, {}).values()
        return [d.partial for d in drafts if d.is_own and d.run == _run_of(lease)]

    def finish(self, lease: TurnLease, messages: Iterable[BaseMessage]) -> None:
        """What a turn was writing is stored now, whole."""
        drafts = self._drafts.get(lease.turn.thread_id, {})
        for message in messages:
            drafts.pop(message.id or "", None)
        if not drafts:
            self._drafts.pop(lease.turn.thread_id, None)

    def tell(self, thread_id: str, event: ThreadEvent) -> None:
        """Something that is heard now or never."""
        self._put(thread_id, event)

    def _put(self, thread_id: str, item: _Item) -> None:
        if hub := self._hubs.get(thread_id):
            hub.tell(item)

    async def stored(self, thread_id: str) -> None:
        """Something was stored: read it, and tell it to all who listen here.

        If it cannot be read now, `step` does so later: it is stored all the same.
        """
        for name in [thread_id] if thread_id else [*self._hubs]:
            try:
                await self._look(name)
            except BackendError as error:
                logger.warning("Who listens to thread %s is told later: %s", name, error)
                self._unread.add(name)
                self.agenda.at_once()

    async def step(self) -> datetime | None:
        """Read what could not be read when it was stored."""
        for name in [*self._unread]:
            await self._look(name)
            self._unread.discard(name)
        return None

    async def listen(self, thread_id: str, since: str | None = None) -> AsyncGenerator[Heard]:
        """Everything from a cursor on, or from now on; ends when the process stops."""
        thread = await self._journal.get_thread(thread_id)
        place = _Place(*((thread.last_position, 0) if since is None else place_of(since)))
        listener = _Listener(self._max_behind, _Closed() if self._is_closed else None)
        hub = self._hubs.setdefault(thread_id, _Hub(thread.last_position))
        hub.listeners.add(listener)
        try:
            async for heard in self._until_now(thread_id, hub, place):
                yield heard
            while True:
                await listener.wait()
                if listener.is_behind:
                    listener.is_behind = False
                    yield place.hear(Lagged())
                    async for heard in self._missed(thread_id, hub, place):
                        yield heard
                while (item := listener.take()) is not None:
                    if event := place.news(item):
                        yield place.hear(event)
        except _Closed:
            return
        finally:
            hub.listeners.discard(listener)
            if not hub.listeners and self._hubs.get(thread_id) is hub:
                del self._hubs[thread_id]
                if not self._is_own(thread_id):  # nobody follows it any more
                    self._drafts.pop(thread_id, None)

    async def _until_now(self, thread_id: str, hub: _Hub, place: "_Place") -> AsyncGenerator[Heard]:
        """What was missed; before it, questions of earlier that still wait: who comes back, after a
        follow-up say, can answer them.
        """
        for turn in reversed(await self._journal.list_turns(thread_id, only_waiting=True)):
            if (turn.end_position or 0) <= place.position:
                yield place.hear(ending_event(turn.id, turn.ending or {}))
        async for heard in self._missed(thread_id, hub, place):
            yield heard

    async def _missed(self, thread_id: str, hub: _Hub, place: "_Place") -> AsyncGenerator[Heard]:
        """What is stored above the listener's place, and the message being written."""
        while True:
            looks = hub.looks
            page = await self._read(thread_id, place.position)
            # What the hub read meanwhile is newer, and told already.
            drafts = self._drafts_now(thread_id, page if looks == hub.looks else None)
            for stored in page.events:
                if event := place.news(_to_stored(stored)):
                    yield place.hear(event)
            if not page.events:  # a page with a damaged row is not full, and not the last
                break
        for message_id in place.unfinished - {draft.partial.message_id for draft in drafts}:
            if event := place.news(Retracted(message_id)):
                yield place.hear(event)
        for draft in drafts:
            whole = Writing(draft.partial.message_id, 0, draft.partial.text)
            if event := place.news(_OfRun(draft.run, whole)):
                yield place.hear(event)

    async def _read(self, thread_id: str, after: int) -> Events:
        """What is stored above a position. What runs no longer with it has nothing more to say."""
        runs = list(self._own.get(thread_id, ()))
        runs += [draft.run for draft in self._drafts.get(thread_id, {}).values()]
        page = await self._journal.events(thread_id, after=after, limit=_PAGE)
        for run in runs:
            if run.may_vanish and (run.turn_id, run.token) != page.running:
                run.is_over = True
        return page

    def _drafts_now(self, thread_id: str, page: Events | None) -> list[_Draft]:
        """What is being written, here or elsewhere; without a page, as far as it is known."""
        if page is not None and not self._is_own(thread_id):
            if page.partial is None:
                return []
            found = self._draft_elsewhere(thread_id, page.partial, page.running)
            self._drafts.setdefault(thread_id, {page.partial.message_id: found})
            return [found]
        return [d for d in self._drafts.get(thread_id, {}).values() if not d.run.is_over]

    def _draft_elsewhere(
        self, thread_id: str, partial: Partial, running: tuple[int, int] | None
    ) -> _Draft:
        run = _Run(*(running or (partial.turn_id, 0)))
        for known in self._drafts.get(thread_id, {}).values():
            if known.run == run:  # one object for all of its pieces
                run = known.run
        return _Draft(partial, run, is_own=False)

    def _is_own(self, thread_id: str) -> bool:
        """Whether a turn of the thread is at work here."""
        return any(not run.is_over for run in self._own.get(thread_id, ()))

    def _find_run(self, lease: TurnLease) -> _Run:
        run = _run_of(lease)
        return next((own for own in self._own.get(lease.turn.thread_id, ()) if own == run), run)

    def _retract(self, thread_id: str, which: Callable[[_Draft], bool]) -> list[Partial]:
        drafts = self._drafts.get(thread_id, {})
        left = [draft.partial for draft in drafts.values() if which(draft)]
        for partial in left:
            del drafts[partial.message_id]
            self.tell(thread_id, Retracted(partial.message_id))
        if not drafts:
            self._drafts.pop(thread_id, None)
        return left

    async def _look(self, thread_id: str) -> None:
        hub = self._hubs.get(thread_id)
        if hub is None:
            return
        try:
            await self._catch_up(thread_id, hub)
        except NotFoundError as error:  # it was deleted
            hub.stop(error)

    async def _catch_up(self, thread_id: str, hub: _Hub) -> None:
        async with hub.reading:  # two at once would tell the same twice
            while True:
                page = await self._read(thread_id, hub.position)
                for stored in page.events:
                    hub.position = stored.position
                    hub.tell(_to_stored(stored))
                hub.looks += 1
                self._retract(thread_id, lambda draft: draft.is_own and draft.run.is_over)
                if len(page.events) < _PAGE:
                    break
            if not self._is_own(thread_id) and self._hubs.get(thread_id) is hub:
                self._follow(thread_id, hub, page)

    def _follow(self, thread_id: str, hub: _Hub, page: Events) -> None:
        """Tell what another process has written since we last looked."""
        partial = page.partial
        draft = self._draft_elsewhere(thread_id, partial, page.running) if partial else None
        for message_id in self._drafts.pop(thread_id, {}):
            # Of one that is stored nobody has a piece any more.
            if partial is None or message_id != partial.message_id:
                hub.tell(Retracted(message_id))
        if draft is not None and partial is not None:
            self._drafts[thread_id] = {partial.message_id: draft}
            hub.tell(_OfRun(draft.run, Writing(partial.message_id, 0, partial.text)))


class _Place:
    """How far one listener has heard."""

    def __init__(self, position: int, number: int = 0) -> None:
        self.position = position
        self._number = number
        # How much it has of messages that are being written.
        self._lengths: dict[str, int] = {}
        self._whole: deque[str | None] = deque(maxlen=_KNOWN)

    @property
    def unfinished(self) -> set[str]:
        """The messages of which it has a piece."""
        return {*self._lengths}

    def news(self, item: _Item) -> ThreadEvent | None:
        """What of it the listener has not heard yet, and is still to hear."""
        if isinstance(item, _OfRun):
            return None if item.run.is_over else self.news(item.event)
        if isinstance(item, _Stored):
            return self._thing(item)
        if isinstance(item, Writing):
            return self._piece(item)
        if isinstance(item, Retracted):
            return item if self._lengths.pop(item.message_id, None) is not None else None
        return item

    def hear(self, event: ThreadEvent) -> Heard:
        cursor = cursor_at(self.position)
        if isinstance(event, Said | Failed | Cancelled | Asked):
            return Heard(cursor, event)
        self._number += 1
        return Heard(f"{cursor}.{self._number}", event)

    def _thing(self, item: _Stored) -> ThreadEvent | None:
        if item.position <= self.position:
            return None
        self.position, self._number = item.position, 0
        if isinstance(item.event, Said):
            self._whole.append(item.event.message.id)
            self._lengths.pop(item.event.message.id or "", None)
        return item.event

    def _piece(self, piece: Writing) -> Writing | None:
        """What is new of a piece; of no use without what came before, or after the whole."""
        known = self._lengths.get(piece.message_id, 0)
        end = piece.offset + len(piece.text)
        if end <= known or piece.offset > known or piece.message_id in self._whole:
            return None
        self._lengths[piece.message_id] = end
        start = known - piece.offset
        return Writing(piece.message_id, known, piece.text[start:])


def _run_of(lease: TurnLease) -> _Run:
    return _Run(lease.turn.id, lease.token, lease.turn.kind is TurnKind.FOLLOW_UP)


def _to_stored(event: Event) -> _Stored:
    if event.message is not None:
        return _Stored(event.position, Said(event.message))
    assert event.turn is not None  # noqa: S101 - an event is one or the other
    told = ending_event(event.turn.id, event.turn.ending or {})
    is_over = isinstance(told, Asked) and not event.turn.is_waiting
    return _Stored(event.position, None if is_over else told)


def ending_event(turn_id: int, says: Any) -> ThreadEvent:
    """The event of what a turn's end says."""
    kind = says.get("kind")
    if kind == "question":
        return Asked(turn_id, dict(says.get("questions", {})))
    if kind == "cancelled":
        return Cancelled(turn_id)
    return Failed(str(says.get("code", "error")), str(says.get("reason", "")), turn_id)

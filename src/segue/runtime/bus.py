"""The bus: sends everything that happens in a thread to its listeners.

Stored events are always read from the journal, so the listeners of all processes get the same
events in the same order, and one that resumes misses none. Text that is being written comes
straight from the turn or, if another process runs it, from the draft in the journal.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage

from segue.errors import BackendError, NotFoundError
from segue.events import (
    Event,
    ListenerLagged,
    MemoriesRecalled,
    MessageDelta,
    MessageRetracted,
    ProgressReported,
    parse_cursor,
)
from segue.journal.journal import Journal
from segue.journal.records import FeedPage, Partial, TurnLease
from segue.runtime.clock import Wakeup
from segue.runtime.listeners import (
    ActiveRun,
    BusClosed,
    Item,
    ListenerPosition,
    ListenerQueue,
    RunItem,
    StoredItem,
    ThreadListeners,
    ending_payload,
)

logger = logging.getLogger(__name__)

_PAGE: Final = 200
# Listeners of a user that replay at once. Each holds a page of messages, which may have more than
# 10 MB, until its client has read it.
_REPLAYS: Final = 4
# A listener that waits longer for its replay ends: those before it do not read.
REPLAY_WAIT_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class _Draft:
    """The text so far of a message, by a run of this process or of another one."""

    partial: Partial
    run: ActiveRun
    is_own: bool = True


class Bus:
    """The listeners of one process."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._threads: dict[str, ThreadListeners] = {}
        self._replays: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        # What is being written right now, by thread and message.
        self._drafts: dict[str, dict[str, _Draft]] = {}
        # The turns that this process runs, by thread; their drafts in the journal are older. There
        # may be two: a turn that was lost or is void may end after the next one has begun.
        self._own: dict[str, list[ActiveRun]] = {}
        # Threads with stored events that could not be read.
        self._unread: set[str] = set()
        self._is_closed = False
        self.wakeup = Wakeup()

    def close(self) -> None:
        self._is_closed = True
        for listeners in self._threads.values():
            listeners.stop(BusClosed())

    @contextmanager
    def running(self, lease: TurnLease) -> Iterator[None]:
        """Around a turn that this process runs; an unfinished draft is retracted at the end."""
        thread_id, run = lease.turn.thread_id, _run_of(lease)
        # The draft of the process that had the turn before.
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
        """Add text to a message that a turn of this process writes; returns all of it so far."""
        turn, run = lease.turn, self._find_run(lease)
        drafts = self._drafts.get(turn.thread_id, {})
        before = drafts[message_id].partial.text if message_id in drafts else ""
        grown = Partial(turn.id, message_id, before + text)
        if not run.is_over:
            self._drafts.setdefault(turn.thread_id, {})[message_id] = _Draft(grown, run)
            self.tell(turn.thread_id, RunItem(run, MessageDelta(message_id, len(before), text)))
        return grown

    def report(self, lease: TurnLease, payload: MemoriesRecalled | ProgressReported) -> None:
        self.tell(lease.turn.thread_id, RunItem(self._find_run(lease), payload))

    def retract(self, lease: TurnLease) -> None:
        """A turn will not finish what it is writing."""
        run = _run_of(lease)
        self._retract(lease.turn.thread_id, lambda draft: draft.is_own and draft.run == run)

    def drafts_of(self, lease: TurnLease) -> list[Partial]:
        drafts = self._drafts.get(lease.turn.thread_id, {}).values()
        return [d.partial for d in drafts if d.is_own and d.run == _run_of(lease)]

    def finish(self, lease: TurnLease, messages: Iterable[BaseMessage]) -> None:
        """Messages are stored: forget their drafts."""
        drafts = self._drafts.get(lease.turn.thread_id, {})
        for message in messages:
            drafts.pop(message.id or "", None)
        if not drafts:
            self._drafts.pop(lease.turn.thread_id, None)

    def tell(self, thread_id: str, item: Item) -> None:
        if listeners := self._threads.get(thread_id):
            listeners.put(item)

    async def stored(self, thread_id: str) -> None:
        """Something was stored in a thread, or in any (""): send it to the listeners here.

        If it cannot be read now, `step` reads it later.
        """
        for name in [thread_id] if thread_id else [*self._threads]:
            try:
                await self._read_new(name)
            except BackendError as error:
                logger.warning("Listeners of thread %s are updated later: %s", name, error)
                self._unread.add(name)
                self.wakeup.now()

    async def step(self) -> datetime | None:
        """Read what could not be read when it was stored."""
        for name in [*self._unread]:
            await self._read_new(name)
            self._unread.discard(name)
        return None

    async def listen(self, thread_id: str, since: str | None = None) -> AsyncGenerator[Event]:
        """The events from a cursor on, or from now on; ends when the process stops. `BackendError`
        if other listeners of the user do not let it replay; nothing is missed by trying again.
        """
        thread = await self._journal.threads.get(thread_id)
        start = (thread.last_position, 0) if since is None else parse_cursor(since)
        queue = ListenerQueue(BusClosed() if self._is_closed else None)
        replays = self._replays.setdefault(thread.user_id, asyncio.Semaphore(_REPLAYS))
        listeners = ThreadListeners(thread.last_position, replays)
        listeners = self._threads.setdefault(thread_id, listeners)
        listeners.queues.add(queue)
        try:
            events = self._events(thread_id, listeners, queue, ListenerPosition(*start))
            async with aclosing(events):
                async for event in events:
                    yield event
        except BusClosed:
            return
        finally:
            listeners.queues.discard(queue)
            if not listeners.queues and self._threads.get(thread_id) is listeners:
                del self._threads[thread_id]
                if not self._is_own(thread_id):  # without listeners, its draft is not followed
                    self._drafts.pop(thread_id, None)

    async def _events(
        self,
        thread_id: str,
        listeners: ThreadListeners,
        queue: ListenerQueue,
        position: ListenerPosition,
    ) -> AsyncGenerator[Event]:
        # Questions before the cursor that still wait: after a follow-up, for example.
        for turn in reversed(await self._journal.turns.list_of(thread_id, only_waiting=True)):
            if (turn.end_position or 0) <= position.position:
                yield position.event(ending_payload(turn.id, turn.ending or {}))
        while True:
            async with aclosing(self._missed(thread_id, listeners, position)) as missed:
                async for event in missed:
                    yield event
            while not queue.is_behind:
                while (item := queue.take()) is not None:
                    if found := position.advance(item):
                        yield found
                await queue.wait()
            queue.is_behind = False
            yield position.event(ListenerLagged())

    async def _missed(
        self, thread_id: str, listeners: ThreadListeners, position: ListenerPosition
    ) -> AsyncGenerator[Event]:
        """What is stored above the listener's position, and the message being written."""
        page: FeedPage | None = None
        # A page with a damaged row is not full, and not the last.
        while page is None or page.events:
            is_behind = position.position < listeners.position
            async with _slot(listeners.replays) if is_behind else nullcontext():
                reads = listeners.reads
                page = await self._read(thread_id, position.position)
                # A read for all listeners in the meantime is newer than this page.
                drafts = self._current_drafts(thread_id, page if reads == listeners.reads else None)
                for stored in page.events:
                    if event := position.advance(StoredItem.of(stored)):
                        yield event
        for message_id in position.unfinished - {draft.partial.message_id for draft in drafts}:
            if event := position.advance(MessageRetracted(message_id)):
                yield event
        for draft in drafts:
            whole = MessageDelta(draft.partial.message_id, 0, draft.partial.text)
            if event := position.advance(RunItem(draft.run, whole)):
                yield event

    async def _read(self, thread_id: str, after: int) -> FeedPage:
        """What is stored above a position; ends the runs that the page shows to be over."""
        runs = list(self._own.get(thread_id, ()))
        runs += [draft.run for draft in self._drafts.get(thread_id, {}).values()]
        page = await self._journal.feed.read(thread_id, after=after, limit=_PAGE)
        for run in runs:
            if run.may_vanish and (run.turn_id, run.token) != page.running:
                run.is_over = True
        return page

    def _current_drafts(self, thread_id: str, page: FeedPage | None) -> list[_Draft]:
        """What is being written, here or in another process; without a page, as last read."""
        if page is not None and not self._is_own(thread_id):
            if page.partial is None:
                return []
            found = self._foreign_draft(thread_id, page.partial, page.running)
            self._drafts.setdefault(thread_id, {page.partial.message_id: found})
            return [found]
        return [d for d in self._drafts.get(thread_id, {}).values() if not d.run.is_over]

    def _foreign_draft(
        self, thread_id: str, partial: Partial, running: tuple[int, int] | None
    ) -> _Draft:
        run = ActiveRun(*(running or (partial.turn_id, 0)))
        for known in self._drafts.get(thread_id, {}).values():
            if known.run == run:  # all items of a run share one object
                run = known.run
        return _Draft(partial, run, is_own=False)

    def _is_own(self, thread_id: str) -> bool:
        """Whether this process runs a turn of the thread."""
        return any(not run.is_over for run in self._own.get(thread_id, ()))

    def _find_run(self, lease: TurnLease) -> ActiveRun:
        run = _run_of(lease)
        return next((own for own in self._own.get(lease.turn.thread_id, ()) if own == run), run)

    def _retract(self, thread_id: str, which: Callable[[_Draft], bool]) -> None:
        drafts = self._drafts.get(thread_id, {})
        for message_id in [m for m, draft in drafts.items() if which(draft)]:
            del drafts[message_id]
            self.tell(thread_id, MessageRetracted(message_id))
        if not drafts:
            self._drafts.pop(thread_id, None)

    async def _read_new(self, thread_id: str) -> None:
        if listeners := self._threads.get(thread_id):
            try:
                await self._send_new(thread_id, listeners)
            except NotFoundError as error:  # it was deleted
                listeners.stop(error)

    async def _send_new(self, thread_id: str, listeners: ThreadListeners) -> None:
        async with listeners.reading:  # two readers would send the same event twice
            while True:
                page = await self._read(thread_id, listeners.position)
                for stored in page.events:
                    listeners.position = stored.position
                    listeners.put(StoredItem.of(stored))
                listeners.reads += 1
                self._retract(thread_id, lambda draft: draft.is_own and draft.run.is_over)
                if not page.is_cut:
                    break
            if not self._is_own(thread_id) and self._threads.get(thread_id) is listeners:
                self._follow(thread_id, listeners, page)

    def _follow(self, thread_id: str, listeners: ThreadListeners, page: FeedPage) -> None:
        """Send what another process has written since the last read."""
        partial = page.partial
        draft = self._foreign_draft(thread_id, partial, page.running) if partial else None
        for message_id in self._drafts.pop(thread_id, {}):
            # A stored message has no draft; its listeners ignore the retraction.
            if partial is None or message_id != partial.message_id:
                listeners.put(MessageRetracted(message_id))
        if draft is not None and partial is not None:
            self._drafts[thread_id] = {partial.message_id: draft}
            listeners.put(RunItem(draft.run, MessageDelta(partial.message_id, 0, partial.text)))


@asynccontextmanager
async def _slot(replays: asyncio.Semaphore) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(REPLAY_WAIT_SECONDS):
            await replays.acquire()
    except TimeoutError:
        raise BackendError(
            f"{_REPLAYS} other listeners of this user are reading what they missed, and slowly; "
            "close some of them, then listen again from the same cursor."
        ) from None
    try:
        yield
    finally:
        replays.release()


def _run_of(lease: TurnLease) -> ActiveRun:
    return ActiveRun(lease.turn.id, lease.token, lease.turn.kind.speaks_first)

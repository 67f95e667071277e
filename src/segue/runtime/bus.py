"""The bus: sends everything that happens in a thread to its listeners, and to those of its user.

Stored events are always read from the journal, so the listeners of all processes get the same
events in the same order, and one that resumes misses none. Text in progress comes directly from the
turn or, if another process runs it, from the draft in the journal.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext
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
    ThreadDeleted,
    ToolActivity,
    parse_cursor,
)
from segue.journal.feed import FeedPage, Partial
from segue.journal.journal import Journal
from segue.journal.records import NESTING, Turn, TurnLease
from segue.runtime.clock import Wakeup
from segue.runtime.listeners import (
    ActiveRun,
    BusClosed,
    Channel,
    ForeignDraft,
    Item,
    ListenerPosition,
    ListenerQueue,
    RunItem,
    ending_payload,
    items_of,
)

logger = logging.getLogger(__name__)

_PAGE: Final = 200
# Listeners of a user that replay at once. Each holds a page of messages, which may have more than
# 10 MB, until its client has read it.
_REPLAYS: Final = 4
# A listener that waits longer for its replay ends: those before it do not read.
REPLAY_WAIT_SECONDS: Final = 20.0
Report = MemoriesRecalled | ProgressReported | ToolActivity


class Bus:
    """The listeners of one process."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._threads: dict[str, Channel] = {}
        self._users: dict[str, Channel] = {}
        self._replays: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        # The turns that this process runs, by thread; their drafts in the journal are older. There
        # may be two: a turn that was lost or is void may end after the next one has begun.
        self._own: dict[str, list[ActiveRun]] = {}
        # Channels with stored events that could not be read.
        self._unread: set[Channel] = set()
        self._is_closed = False
        self.wakeup = Wakeup()

    def close(self) -> None:
        self._is_closed = True
        for channel in (*self._threads.values(), *self._users.values()):
            channel.stop(BusClosed())

    @contextmanager
    def running(self, lease: TurnLease) -> Iterator[None]:
        """Around a turn that this process runs; an unfinished draft is retracted at the end."""
        turn, run = lease.turn, _run_of(lease)
        for channel in self._channels(turn.thread_id, turn.user_id):
            # The draft of the process that had the turn before.
            if left := channel.foreign.pop(turn.thread_id, None):
                channel.put(turn.thread_id, MessageRetracted(left.message_id))
        self._own.setdefault(turn.thread_id, []).append(run)
        try:
            yield
        finally:
            self.retract(lease)
            self._own[turn.thread_id].remove(run)
            if not self._own[turn.thread_id]:
                del self._own[turn.thread_id]

    async def begin(self, lease: TurnLease) -> None:
        """Listeners get the messages that a turn answers, and then its start."""
        await self.notify_stored(lease.turn.thread_id, lease.turn.user_id)
        if not lease.turn.kind.speaks_first or lease.turn.shown_at is not None:
            self.announce_turn(lease)

    def announce_turn(self, lease: TurnLease) -> None:
        """Tell listeners that a turn runs; of a follow-up, once it is shown."""
        self._tell(lease, self._find_run(lease).start())

    def write(self, lease: TurnLease, message_id: str, text: str) -> Partial:
        """Add text to a message that a turn of this process writes; returns all of it so far."""
        run = self._find_run(lease)
        before = run.texts.get(message_id, "")
        grown = before + text
        if not run.is_over:
            run.texts[message_id] = grown
            self._tell(lease, run.text(message_id, len(before), text))
        return Partial(run.turn_id, message_id, grown)

    def report(self, lease: TurnLease, payload: Report) -> None:
        self._tell(lease, RunItem(self._find_run(lease), payload))

    def retract(self, lease: TurnLease) -> None:
        """Retract a turn's unfinished messages."""
        texts = self._find_run(lease).texts
        for message_id in texts:
            self._tell(lease, MessageRetracted(message_id))
        texts.clear()

    def drafts_of(self, lease: TurnLease) -> list[Partial]:
        run = self._find_run(lease)
        return [Partial(run.turn_id, name, text) for name, text in run.texts.items()]

    def forget_drafts(self, lease: TurnLease, messages: Iterable[BaseMessage]) -> None:
        """Forget the drafts of messages that are stored."""
        texts = self._find_run(lease).texts
        for message in messages:
            texts.pop(message.id or "", None)

    def _tell(self, lease: TurnLease, item: Item) -> None:
        self.tell(lease.turn.thread_id, item, lease.turn.user_id)

    def tell(self, thread_id: str, item: Item, user_id: str = "") -> None:
        for channel in self._channels(thread_id, user_id):
            channel.put(thread_id, item)

    def deleted(self, thread_id: str, user_id: str) -> None:
        """Tell its user which thread was deleted; other processes only know that one was."""
        if channel := self._users.get(user_id):
            channel.put(thread_id, ThreadDeleted(thread_id))

    def _channels(self, thread_id: str, user_id: str) -> Iterator[Channel]:
        """Those of a thread and of its user; a thread between agents is not shown to its user."""
        if channel := self._threads.get(thread_id):
            yield channel
        if NESTING not in thread_id and (channel := self._users.get(user_id)):
            yield channel

    async def notify_stored(self, thread_id: str, user_id: str = "") -> None:
        """Something was stored in a thread, or in any (""): send it to this process's listeners.

        If it cannot be read now, `step` reads it later.
        """
        channels = self._channels(thread_id, user_id)
        if not thread_id:
            channels = iter([*self._threads.values(), *self._users.values()])
        for channel in [*channels]:
            try:
                await self._send_new(channel)
            except BackendError as error:
                logger.warning("Listeners are updated later: %s", error)
                self._unread.add(channel)
                self.wakeup.now()

    async def step(self) -> datetime | None:
        """Read what could not be read when it was stored."""
        for channel in [*self._unread]:
            await self._send_new(channel)
            self._unread.discard(channel)
        return None

    def listen(self, thread_id: str, since: str | None = None) -> AsyncGenerator[Event]:
        """The events from a cursor on, or from now on; ends when the process stops. `BackendError`
        if it cannot replay because of the user's other listeners; a retry misses nothing.
        """
        return self._listen(self._threads, thread_id, self._open_thread, since)

    def listen_user(self, user_id: str, since: str | None = None) -> AsyncGenerator[Event]:
        """The same for all threads of a user, new ones included."""
        return self._listen(self._users, user_id, self._open_user, since)

    async def _open_thread(self, thread_id: str) -> tuple[Channel, list[Turn]]:
        """A channel of a thread, and its turns that wait for an answer."""
        thread = await self._journal.threads.get(thread_id)
        waiting = await self._journal.turns.list_of(thread_id, only_waiting=True)
        return Channel(
            lambda **page: self._journal.feed.read(thread_id, **page),
            thread.last_position,
            self._replays_of(thread.user_id),
            thread_id,
        ), waiting

    async def _open_user(self, user_id: str) -> tuple[Channel, list[Turn]]:
        last = await self._journal.feed.last_position(user_id)
        waiting = await self._journal.turns.list_waiting(user_id)
        return Channel(
            lambda **page: self._journal.feed.read_user(user_id, **page),
            last,
            self._replays_of(user_id),
        ), waiting

    def _replays_of(self, user_id: str) -> asyncio.Semaphore:
        return self._replays.setdefault(user_id, asyncio.Semaphore(_REPLAYS))

    async def _listen(
        self,
        channels: dict[str, Channel],
        name: str,
        open_channel: Callable[[str], Awaitable[tuple[Channel, list[Turn]]]],
        since: str | None,
    ) -> AsyncGenerator[Event]:
        new, waiting = await open_channel(name)
        start = (new.position, 0) if since is None else parse_cursor(since)
        queue = ListenerQueue(BusClosed() if self._is_closed else None)
        channel, position = channels.setdefault(name, new), ListenerPosition(*start)
        channel.queues.add(queue)
        try:
            # Questions before the cursor that still wait: after a follow-up, for example.
            for turn in reversed(waiting):
                if (turn.end_position or 0) <= position.position:
                    asked = ending_payload(turn.id, turn.ending or {})
                    yield position.event(turn.thread_id, asked)
            async with aclosing(self._events(channel, queue, position)) as events:
                async for event in events:
                    yield event
        except BusClosed:
            return
        finally:
            channel.queues.discard(queue)
            if not channel.queues and channels.get(name) is channel:
                del channels[name]
                self._unread.discard(channel)

    async def _events(
        self, channel: Channel, queue: ListenerQueue, position: ListenerPosition
    ) -> AsyncGenerator[Event]:
        while True:
            async with aclosing(self._missed(channel, position)) as missed:
                async for event in missed:
                    yield event
            while not queue.is_behind:
                while (heard := queue.take()) is not None:
                    if found := position.advance(*heard):
                        yield found
                await queue.wait()
            queue.is_behind = False
            yield position.event(None, ListenerLagged())

    async def _missed(self, channel: Channel, position: ListenerPosition) -> AsyncGenerator[Event]:
        """What is stored above the listener's position, and what is being written."""
        page: FeedPage | None = None
        # A page with a damaged row is not full, and not the last.
        while page is None or page.events or page.threads:
            is_behind = position.position < channel.position
            async with _slot(channel.replays) if is_behind else nullcontext():
                reads = channel.reads
                page = await self._read(channel, position.position)
                # A read for all listeners in the meantime is newer than this page.
                current = self._current(channel, page, is_newest=reads == channel.reads)
                for heard in items_of(page):
                    if event := position.advance(*heard):
                        yield event
        written = {
            (name, item.payload.message_id)
            for name, item in current
            if isinstance(item.payload, MessageDelta)
        }
        for name, message_id in position.unfinished - written:
            if event := position.advance(name, MessageRetracted(message_id)):
                yield event
        for name, item in current:
            if event := position.advance(name, item):
                yield event

    async def _read(self, channel: Channel, after: int) -> FeedPage:
        """The events stored above a position; ends the runs that are over according to the page."""
        runs = self._runs_for(channel)
        runs += [(name, draft.run) for name, draft in channel.foreign.items()]
        page = await channel.read(after=after, limit=_PAGE)
        for name, run in runs:
            turn = page.running.get(name)
            if run.may_vanish and not (turn and run.is_of(turn.id, turn.token)):
                run.is_over = True
        return page

    def _current(
        self, channel: Channel, page: FeedPage, *, is_newest: bool
    ) -> list[tuple[str, RunItem]]:
        """The turns at work and what they are writing, here or in another process; what others
        write as last read for all, if the page is older.
        """
        found = []
        for name, turn in page.running.items():
            if not turn.is_shown:
                continue
            if own := self._live_runs(name):
                found.append((name, own[0].start()))
                for run in own:
                    found += [(name, run.text(each, 0, text)) for each, text in run.texts.items()]
                continue
            run = channel.run_of(name, turn)
            found.append((name, run.start()))
            if is_newest and (text := page.drafts.get(name)):
                channel.foreign.setdefault(name, ForeignDraft(text, run))
            if draft := channel.foreign.get(name):
                found.append((name, draft.item()))
        return found

    def _runs_for(self, channel: Channel) -> list[tuple[str, ActiveRun]]:
        """The turns of this process that the channel's listeners hear of, with their threads."""
        names = self._own if channel.thread_id is None else [channel.thread_id]
        return [
            (name, run)
            for name in names
            for run in self._own.get(name, ())
            if channel in self._channels(name, run.user_id)
        ]

    def _live_runs(self, thread_id: str) -> list[ActiveRun]:
        """The turns of the thread that this process runs."""
        return [run for run in self._own.get(thread_id, ()) if not run.is_over]

    def _find_run(self, lease: TurnLease) -> ActiveRun:
        for run in self._own.get(lease.turn.thread_id, ()):
            if run.is_of(lease.turn.id, lease.token):
                return run
        return _run_of(lease)

    async def _send_new(self, channel: Channel) -> None:
        try:
            async with channel.reading:  # two readers would send the same event twice
                while True:
                    page = await self._read(channel, channel.position)
                    for heard in items_of(page):
                        channel.put(*heard)
                    channel.position = page.position
                    channel.reads += 1
                    self._retract_lost(channel)
                    if not page.is_cut:
                        break
                self._follow(channel, page)
        except NotFoundError as error:  # the thread was deleted
            channel.stop(error)

    def _retract_lost(self, channel: Channel) -> None:
        """Retract the drafts of this process's runs that have ended according to the journal."""
        for name, run in self._runs_for(channel):
            if run.is_over:
                for message_id in run.texts:
                    channel.put(name, MessageRetracted(message_id))

    def _follow(self, channel: Channel, page: FeedPage) -> None:
        """Send what other processes have started and written since the last read."""
        now: dict[str, ForeignDraft] = {}
        for name, turn in page.running.items():
            if turn.is_shown and not self._live_runs(name):
                run = channel.run_of(name, turn)
                channel.put(name, run.start())
                if text := page.drafts.get(name):
                    now[name] = ForeignDraft(text, run)
        for name, draft in channel.foreign.items():
            # A stored message has no draft; its listeners ignore the retraction.
            if name not in now or now[name].message_id != draft.message_id:
                channel.put(name, MessageRetracted(draft.message_id))
        for name, draft in now.items():
            channel.put(name, draft.item())
        channel.foreign = now


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
    turn = lease.turn
    return ActiveRun(turn.id, lease.token, turn.kind, turn.user_id, turn.kind.speaks_first)

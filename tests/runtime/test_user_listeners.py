"""What listeners hear of turns and threads: in order, once, and after any cursor."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from segue.events import Event, MessageStored, ThreadChanged, TurnStarted
from segue.journal.feed import FeedPage
from segue.journal.records import Thread, TurnState
from segue.simulate.world import Stage
from tests.runtime.scenes import PATIENCE, Held, always, lines, new_thread, pages

pytestmark = pytest.mark.anyio


async def test_a_turn_begins_after_the_message_that_it_answers(stage: Stage) -> None:
    """Also if its worker is faster than the reading for its listeners."""
    held = Held()
    async with stage.world(models={"guide": lines(held)}) as world:
        thread = await new_thread(world.segue)
        async with aclosing(pages(world.segue, thread)) as events, asyncio.timeout(PATIENCE):
            first = asyncio.ensure_future(anext(events))
            while thread not in world.segue._deps.bus._threads:  # noqa: ASYNC110 - tells nobody
                await asyncio.sleep(0.001)
            async with world.segue._deps.bus._threads[thread].reading:
                sending = asyncio.create_task(world.segue.send(thread, "Hi"))
                while not await _is_running(world.journal, thread):  # noqa: ASYNC110 - tells nobody
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.05)
            await sending
            heard = [(await first).payload, (await anext(events)).payload]
            held.go.set()
    assert [type(each) for each in heard] == [MessageStored, TurnStarted]


async def _is_running(journal: Any, thread: str) -> bool:
    return any(t.state is TurnState.RUNNING for t in await journal.turns.list_of(thread))


async def test_a_change_during_a_replay_is_heard_once(stage: Stage) -> None:
    """Though the listener reads it, and is sent it."""
    async with stage.world() as world:
        read, is_asked, go = world.journal.feed.read_user, asyncio.Event(), asyncio.Event()

        async def read_late(*args: Any, **kwargs: Any) -> FeedPage:
            if not is_asked.is_set():
                is_asked.set()
                await go.wait()
            return await read(*args, **kwargs)

        world.journal.feed.read_user = read_late  # type: ignore[method-assign]
        async with aclosing(world.segue.listen_user("ann", "0")) as events:
            async with asyncio.timeout(PATIENCE):
                first = asyncio.ensure_future(anext(events))
                await is_asked.wait()
                thread = await new_thread(world.segue)
                go.set()
                heard = [await first]
                second = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0.05)  # enough to hear it again
                await world.segue.rename_thread(thread, "Oslo")
                heard.append(await second)
    assert [each.title for each in _changes(heard)] == [None, "Oslo"]


async def test_the_newest_entry_of_each_thread_is_known_after_any_cursor(stage: Stage) -> None:
    """From what was heard up to it, and what comes after it."""
    async with stage.world(models={"guide": always("Fine.")}) as world:
        threads = [await new_thread(world.segue) for _ in range(2)]
        for thread in threads:
            await world.say(thread, "Hello")
        newest = {thread: await world.segue.get_thread(thread) for thread in threads}
        everything = await _until_known(world.segue, "0", {}, newest)
        assert len(everything) > len(threads)
        for number, event in enumerate(everything):
            known = _entries(everything[: number + 1])
            await _until_known(world.segue, event.cursor, known, newest)


async def _until_known(
    segue: Any, since: str, known: dict[str, Thread], newest: dict[str, Thread]
) -> list[Event]:
    """Listen until the newest entries are known; what was heard."""
    heard: list[Event] = []
    async with aclosing(segue.listen_user("ann", since)) as events, asyncio.timeout(PATIENCE):
        while {**known, **_entries(heard)} != newest:
            heard.append(await anext(events))
    return heard


def _entries(heard: list[Event]) -> dict[str, Thread]:
    return {thread.id: thread for thread in _changes(heard)}


def _changes(heard: list[Event]) -> list[Thread]:
    return [e.payload.thread for e in heard if isinstance(e.payload, ThreadChanged)]

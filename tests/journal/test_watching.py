"""Watching a store until it is closed, on both databases."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from segue.journal.journal import Journal
from segue.journal.records import Hint
from segue.journal.sqlite.database import Database
from segue.testing.journal_contract.chat import Chat
from segue.testing.journal_contract.fixtures import START, anyio_backend, ticking_ids
from segue.testing.journal_contract.watchers import watching
from tests.journal.stores import journal_at

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

# Seconds, to end a wait that hangs.
PATIENCE = 60.0
PAUSES = (0, 0, 0.001, 0.003, 0.01, 0.02, 0.05)


async def opened(address: str) -> Journal:
    journal = journal_at(address)
    await journal.open()
    return journal


async def read_to_the_end(journal: Journal) -> None:
    async for _ in journal.watch():
        pass


async def test_closing_the_journal_ends_a_watch(address: str) -> None:
    """Whoever waits for the next hint is told that none will come."""
    journal = await opened(address)
    async with watching(journal) as hints, asyncio.timeout(PATIENCE):
        await hints.catch_up(await Chat(journal, ticking_ids(), START).begin())
        ending = asyncio.create_task(read_to_the_end(journal))
        await asyncio.sleep(0)
        assert not ending.done()
        await journal.close()
        done, _ = await asyncio.wait([ending])
        assert [task.exception() for task in done] == [None]


async def test_a_watch_that_nobody_reads_does_not_keep_the_journal_open(address: str) -> None:
    """The journal closes at once, and the watch is over when it is asked again."""
    journal, other = await opened(address), await opened(address)
    async with aclosing(journal.watch()) as hints:
        async with asyncio.timeout(PATIENCE):
            first = asyncio.create_task(anext(hints))
            chat = await Chat(other, ticking_ids(), START).begin()
            while not first.done():
                await chat.say()
                await asyncio.sleep(0.05)
            await journal.close()
            assert [hint async for hint in hints if hint != Hint()] == []
    await other.close()


async def test_a_watch_may_be_left_at_any_moment(address: str) -> None:
    """Cancelled before its first hint, it leaves neither a task nor a warning."""
    journal = await opened(address)
    before = len(asyncio.all_tasks())
    for pause in PAUSES:
        task = asyncio.create_task(read_to_the_end(journal))
        await asyncio.sleep(pause)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    # A store's own few tasks come and go.
    assert len(asyncio.all_tasks()) < before + len(PAUSES)
    await journal.close()


async def test_what_a_journal_writes_itself_is_no_word_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process on a SQLite file does not look after its turns because of what it wrote itself."""
    looked: asyncio.Queue[None] = asyncio.Queue()
    go_on: asyncio.Queue[None] = asyncio.Queue()

    async def closes_within(_: Database, __: float) -> bool:
        looked.put_nowait(None)
        await go_on.get()
        return False

    address = str(tmp_path / "journal.db")
    journal, other = await opened(address), await opened(address)
    chat = await Chat(journal, ticking_ids(), START).begin()
    monkeypatch.setattr(Database, "closes_within", closes_within)
    async with asyncio.timeout(PATIENCE), aclosing(journal.watch(of_others=True)) as hints:
        assert await anext(hints) == Hint()  # what was written before
        await chat.say()
        word = asyncio.create_task(anext(hints))
        for _ in range(2):
            await looked.get()
            assert not word.done()
            go_on.put_nowait(None)
        await looked.get()
        await other.threads.note_typing("chat", now=START)
        go_on.put_nowait(None)
        assert await word == Hint()
    await journal.close()
    await other.close()

"""The fixtures of the contract. `open_journal` is the one that a store's own tests must define."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from itertools import count

import pytest

from segue.journal.journal import Journal
from segue.runtime.ids import SnowflakeGenerator
from segue.testing.journal_contract.chat import NOW, Chat

OpenJournal = Callable[[], Awaitable[Journal]]
Rounds = AsyncIterator[tuple[Chat, Chat]]

START = NOW


def ticking_ids(node: int = 1, start: datetime = START) -> SnowflakeGenerator:
    """A generator whose clock moves one millisecond per id, so that tests repeat exactly."""
    ticks = count(int(start.timestamp() * 1000))
    return SnowflakeGenerator(node=node, clock=lambda: next(ticks))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One asyncio loop for a whole module, so that a store may keep its connections open."""
    return "asyncio"


@pytest.fixture
def now() -> datetime:
    return START


@pytest.fixture
def ids() -> SnowflakeGenerator:
    return ticking_ids()


@pytest.fixture
async def journal(open_journal: OpenJournal) -> Journal:
    return await open_journal()


@pytest.fixture
async def chat(journal: Journal, ids: SnowflakeGenerator, now: datetime) -> Chat:
    return await Chat(journal, ids, now).begin()


@pytest.fixture
async def crowd(open_journal: OpenJournal, chat: Chat) -> list[Chat]:
    """The thread as eight processes see it, over two handles."""
    handles = [chat.journal, await open_journal()]
    return [Chat(handles[n % 2], ticking_ids(node=n), chat.now) for n in range(8)]


@pytest.fixture
async def rounds(open_journal: OpenJournal, chat: Chat) -> Rounds:
    """For each round a thread as two processes see it."""
    other = await open_journal()

    async def pairs() -> Rounds:
        for n in range(6):
            mine = await chat.another(f"round-{n}")
            yield mine, Chat(other, ticking_ids(node=100 + n), chat.now, mine.thread_id)

    return pairs()

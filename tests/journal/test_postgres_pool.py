"""The pool of PostgreSQL connections: a cancelled task ends, and gives its connection back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from psycopg.errors import SerializationFailure

from segue.agent.checkpoints.postgres import PostgresCheckpoints
from segue.journal.postgres import PostgresJournal
from segue.journal.postgres.database import Pool
from segue.journal.tx import Tx
from segue.testing.journal_contract.fixtures import anyio_backend
from segue.testing.postgres import PostgresServer

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

# More loop iterations than a connection needs from one task to the next.
TICKS = 30


@dataclass(frozen=True)
class Store:
    """A store with a single connection, and a question to its database."""

    pool: Pool[Any]
    ask: Callable[[], Awaitable[object]]

    async def queue(self) -> "asyncio.Task[object]":
        """A task that waits for the connection, which is in use."""
        task = asyncio.ensure_future(self.ask())
        while not self.pool.get_stats()["requests_waiting"]:  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0)
        return task


@pytest.fixture
async def journal(server: PostgresServer) -> AsyncIterator[PostgresJournal]:
    journal = PostgresJournal(server.create_database(), pool_size=1)
    await journal.open()
    yield journal
    await journal.close()


@pytest.fixture
async def checkpoints(server: PostgresServer) -> AsyncIterator[PostgresCheckpoints]:
    checkpoints = PostgresCheckpoints(server.create_database(), pool_size=1)
    await checkpoints.open()
    yield checkpoints
    await checkpoints.close()


@pytest.fixture(params=["journal", "checkpoints"])
def store(
    request: pytest.FixtureRequest, journal: PostgresJournal, checkpoints: PostgresCheckpoints
) -> Store:
    if request.param == "journal":
        return Store(journal.db._pool, journal.keys.list_all)
    return Store(checkpoints._pool, checkpoints.attempts)


async def test_a_cancellation_counts_while_a_connection_is_handed_over(store: Store) -> None:
    """Also in the tick in which the connection arrives; the next task gets the connection."""
    for ticks in range(TICKS):
        async with store.pool.connection():
            task = await store.queue()
        for _ in range(ticks):
            await asyncio.sleep(0)
        had_ended = task.done()
        task.cancel()
        await asyncio.wait([task])
        assert had_ended or task.cancelled(), f"lost after {ticks} ticks"
        await store.ask()


async def test_cleanup_after_a_cancellation_still_gets_a_connection(store: Store) -> None:
    """Only a cancellation that comes while it works stops it."""
    cleaned: list[object] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(await store.ask())

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert len(cleaned) == 1


async def test_an_error_during_a_cancellation_does_not_replace_it(journal: PostgresJournal) -> None:
    """A query that fails while it is cancelled is neither repeated nor reported."""
    begun: list[Tx] = []

    async def fail_when_cancelled(tx: Tx) -> None:
        begun.append(tx)
        if len(begun) > 1:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise SerializationFailure from None

    task = asyncio.create_task(journal.db.transact(fail_when_cancelled))
    while not begun:  # noqa: ASYNC110 - the step tells nobody
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert len(begun) == 1


async def test_a_cancelled_return_does_not_lose_the_connection(store: Store) -> None:
    """The pool gets it back, however busy it is while its user is cancelled."""
    taken, leave = asyncio.Event(), asyncio.Event()

    async def take() -> None:
        async with store.pool.connection():
            taken.set()
            await leave.wait()

    task = asyncio.create_task(take())
    await taken.wait()
    async with store.pool._lock:
        leave.set()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
    await store.ask()

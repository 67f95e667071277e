"""Checkpoints in PostgreSQL: LangGraph's saver over one pool. Needs the extra `postgres`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

import psycopg
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from segue.agent.checkpoints.savers import stored_turns
from segue.agent.checkpoints.store import Checkpoints, Saver, StrictSerializer
from segue.errors import BackendError
from segue.journal.postgres.database import Pool, check_address

# Required by the saver for connections that it did not open itself.
_SETTINGS: Final[dict[str, Any]] = {
    "autocommit": True,
    "prepare_threshold": 0,
    "row_factory": dict_row,
}
_LOCK: Final = 0x5E6F
_ATTEMPTS: Final = """
    SELECT thread_id, checkpoint_ns FROM checkpoints
    UNION SELECT thread_id, checkpoint_ns FROM checkpoint_writes
"""


class PostgresCheckpoints(Checkpoints):
    """Checkpoints in a PostgreSQL database, which may be the journal's."""

    def __init__(self, dsn: str, pool_size: int = 8) -> None:
        self._dsn = dsn
        self._pool: Pool[AsyncConnection[dict[str, Any]]] = Pool(
            dsn,
            connection_class=AsyncConnection[dict[str, Any]],
            kwargs=_SETTINGS,
            min_size=1,
            max_size=pool_size,
            open=False,
            name="segue-checkpoints",
            check=Pool.check_connection,
        )

    def saver(self) -> Saver:
        """A new one for each run: a saver runs one statement at a time."""
        return AsyncPostgresSaver(self._pool, serde=StrictSerializer())

    async def attempts(self) -> set[tuple[str, int]]:
        with _backend_errors():
            async with self._pool.connection() as connection:
                cursor = await connection.execute(_ATTEMPTS)
                rows = await cursor.fetchall()
        return stored_turns((row["thread_id"], row["checkpoint_ns"]) for row in rows)

    async def drop(self, batch: str) -> None:
        with _backend_errors():
            await super().drop(batch)

    async def open(self) -> Self:
        check_address(self._dsn)
        with _backend_errors():
            # Not from the pool, which hides the reason of a failure.
            connection = await AsyncConnection.connect(self._dsn, **_SETTINGS)
            async with connection:
                await _lock(connection)
                await AsyncPostgresSaver(connection).setup()
            await self._pool.open()
        return self

    async def close(self) -> None:
        await self._pool.close()


@contextmanager
def _backend_errors() -> Iterator[None]:
    """Report an outage as `BackendError`: the sweeper tries again and logs no traceback."""
    try:
        yield
    except psycopg.Error as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise BackendError(f"Checkpoints in PostgreSQL: {reason.rstrip('.')}.") from error


async def _lock(connection: AsyncConnection[Any]) -> None:
    """Let one process at a time set up the tables, until the connection ends.

    Polls, because the setup builds an index, which waits for every running statement, even for one
    that waits for this lock.
    """
    while True:
        cursor = await connection.execute("SELECT pg_try_advisory_lock(%s) AS is_ours", (_LOCK,))
        row = await cursor.fetchone()
        if row and row["is_ours"]:
            return
        await asyncio.sleep(0.05)

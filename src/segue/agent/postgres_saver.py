"""LangGraph's PostgreSQL saver over one pool. Needs the extra `postgres`."""

import asyncio
from typing import Any, Final, LiteralString

import psycopg
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from segue.agent.checkpoint_types import StrictSerializer
from segue.core.errors import BackendError
from segue.journal.postgres.database import check_address
from segue.journal.postgres.pool import Pool

# As the saver demands of connections that it did not make itself.
_SETTINGS: Final[dict[str, Any]] = {
    "autocommit": True,
    "prepare_threshold": 0,
    "row_factory": dict_row,
}


_LOCK: Final = 0x5E6F


class PostgresSavers:
    def __init__(self, dsn: str, pool_size: int) -> None:
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

    def new(self) -> AsyncPostgresSaver:
        """A saver does one thing at a time, whatever the size of its pool: one for each run."""
        return AsyncPostgresSaver(self._pool, serde=StrictSerializer())

    async def places(self, query: LiteralString) -> list[tuple[str, str]]:
        """The threads and namespaces that a query finds."""
        async with self._pool.connection() as connection:
            rows = await (await connection.execute(query)).fetchall()
        return [(row["thread_id"], row["checkpoint_ns"]) for row in rows]

    async def open(self) -> None:
        check_address(self._dsn)
        try:
            # Not from the pool, which keeps the reason of a failure to itself.
            connection = await AsyncConnection.connect(self._dsn, **_SETTINGS)
            async with connection:
                await _lock(connection)
                await AsyncPostgresSaver(connection).setup()
            await self._pool.open()
        except psycopg.Error as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise BackendError(f"Checkpoints in PostgreSQL: {reason.rstrip('.')}.") from error

    async def close(self) -> None:
        await self._pool.close()


async def _lock(connection: AsyncConnection[Any]) -> None:
    """Let one process at a time set up the tables, until the connection ends.

    By asking again: the setup builds an index that waits for every running statement, also for
    one that waits for this lock.
    """
    while True:
        cursor = await connection.execute("SELECT pg_try_advisory_lock(%s) AS is_ours", (_LOCK,))
        row = await cursor.fetchone()
        if row and row["is_ours"]:
            return
        await asyncio.sleep(0.05)

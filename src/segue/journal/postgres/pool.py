"""A pool of PostgreSQL connections that loses neither cancellations nor connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

ConnectionT = TypeVar("ConnectionT", bound=AsyncConnection[Any])


class Pool(AsyncConnectionPool[ConnectionT]):
    """Raises `CancelledError` where the pool or the driver would go on, or raise another error.

    The pool waits with `asyncio.wait_for`, which before Python 3.12 returns normally if the
    connection arrives in the same tick as the cancellation. And a query that fails while it is
    being cancelled raises its own error.
    """

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[ConnectionT]:  # noqa: ASYNC109 - as the pool declares it
        # Only cancellations from here on count: cleanup after an earlier one needs a connection.
        before = _cancellations()
        try:
            async with super().connection(timeout) as connection:
                _raise_if_cancelled(before)
                yield connection
        except Exception as error:
            _raise_if_cancelled(before, error)
            raise

    async def _putconn(self, conn: ConnectionT, from_getconn: bool) -> None:
        # In a task of its own: the pool never gets back a connection whose return is cancelled.
        await asyncio.shield(super()._putconn(conn, from_getconn))


def _raise_if_cancelled(before: int, error: Exception | None = None) -> None:
    if _cancellations() > before:
        raise asyncio.CancelledError from error


def _cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()

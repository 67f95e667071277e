"""The journal on a PostgreSQL database, shared by any number of processes.

Each watcher has its own connection, outside the pool, that listens to the notifications of other
processes. Writers notify with `NOTIFY` in their SQL, see `segue.journal.tx`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Final

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from segue.errors import BackendError
from segue.journal.journal import Journal
from segue.journal.postgres.database import Database
from segue.journal.postgres.hot import PostgresMessages, PostgresTurns
from segue.journal.records import Hint
from segue.journal.tx import WAKE_CHANNEL

logger = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 10.0
# A connection that only listens does not notice by itself that the server is gone.
_KEEPALIVES: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class PostgresJournal(Journal):
    def __init__(self, dsn: str, *, pool_size: int = 10) -> None:
        self.db = Database(dsn, pool_size)
        super().__init__(self.db)
        self.messages = PostgresMessages(self.db)
        self.turns = PostgresTurns(self.db)
        self._listeners = Listeners(dsn)

    async def open(self) -> None:
        await self.db.open()
        self._listeners.open()

    async def close(self) -> None:
        await self._listeners.close()
        await self.db.close()

    def watch(self, *, of_others: bool = False) -> AsyncGenerator[Hint]:
        return self._listeners.watch(self.db.is_own if of_others else None)


class Listeners:
    """The listening connections of one journal, until it is closed."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._is_open = False
        self._closed = asyncio.Event()
        self._connections: set[AsyncConnection] = set()

    def open(self) -> None:
        self._is_open = True

    async def watch(self, is_own: Callable[[int], bool] | None = None) -> AsyncGenerator[Hint]:
        """Yield hints, and an empty one whenever a notification may have been missed.

        Notifications of server processes for which `is_own` is true are skipped.
        """
        if not self._is_open:
            raise BackendError("PostgreSQL: the journal is not open; call open() first.")
        pause = _FIRST_PAUSE
        while not self._closed.is_set():
            try:
                async with aclosing(self._hear(is_own or (lambda _: False))) as heard:
                    async for hint in heard:
                        if self._closed.is_set():
                            return
                        pause = _FIRST_PAUSE
                        yield hint
            except psycopg.Error as error:
                if self._closed.is_set():
                    return
                reason = next(iter(str(error).splitlines()), type(error).__name__)
                logger.warning("PostgreSQL: listening again in %g s after: %s", pause, reason)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._closed.wait()
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def close(self) -> None:
        """End all watchers and close their connections, also of iterators left unfinished."""
        self._closed.set()
        for connection in [*self._connections]:
            async with connection.lock:  # its reader has stopped by now
                await connection.close()

    async def _hear(self, is_own: Callable[[int], bool]) -> AsyncGenerator[Hint]:
        missing = {k: v for k, v in _KEEPALIVES.items() if k not in conninfo_to_dict(self._dsn)}
        address = make_conninfo(self._dsn, **missing)
        connection = await AsyncConnection.connect(address, autocommit=True)
        self._connections.add(connection)
        try:
            await connection.execute(f"LISTEN {WAKE_CHANNEL}")
            yield Hint()
            while not self._closed.is_set():
                for payload in await self._next_payloads(connection, is_own):
                    yield _parse_hint(payload)
        finally:
            self._connections.discard(connection)
            await connection.close()

    async def _next_payloads(
        self, connection: AsyncConnection, is_own: Callable[[int], bool]
    ) -> list[str]:
        """The next notifications, each once; none if the journal is closed before."""
        arrived = asyncio.create_task(_heard(connection, is_own))
        closed = asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait((arrived, closed), return_when=asyncio.FIRST_COMPLETED)
            return arrived.result() if arrived.done() else []
        finally:
            arrived.cancel()
            closed.cancel()
            await asyncio.gather(arrived, closed, return_exceptions=True)


async def _heard(connection: AsyncConnection, is_own: Callable[[int], bool]) -> list[str]:
    notifies = connection.notifies(stop_after=1)
    return list(dict.fromkeys([n.payload async for n in notifies if not is_own(n.pid)]))


def _parse_hint(payload: str) -> Hint:
    """A thread and its user in two lines, or a thread alone; an old name may hold a line break."""
    names = payload.split("\n")
    return Hint(*names) if len(names) <= 2 else Hint()

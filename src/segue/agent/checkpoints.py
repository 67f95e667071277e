"""Where LangGraph keeps its running turns: the official savers, opened the way we need them.

A checkpoint lives as long as its batch is being processed; the journal holds what must last. So
on SQLite they have a file of their own, and never wait for the journal's writer. Only known types
come to life again (`segue.agent.checkpoint_types`).
"""

import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol, Self

import aiosqlite
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from segue.agent.attempt_saver import turns_of
from segue.agent.checkpoint_types import StrictSerializer
from segue.core.errors import BackendError, UsageError

logger = logging.getLogger(__name__)

_BUSY_SECONDS = 30.0
_POOL_SIZE = 8

# Where something is stored, in the tables of the official savers.
_PLACES = (
    "SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints "
    "UNION SELECT DISTINCT thread_id, checkpoint_ns FROM {}"
)

Saver = BaseCheckpointSaver[str]


class Checkpoints(Protocol):
    """A place for checkpoints, open while the runtime runs."""

    def saver(self) -> Saver:
        """A saver for one run."""
        ...

    async def attempts(self) -> set[tuple[str, int]]:
        """The batches that have checkpoints, each with the turns that stored them."""
        ...

    async def wipe(self) -> None:
        """Leave nothing of deleted checkpoints in files, as far as the database can."""
        ...

    async def open(self) -> Self: ...

    async def close(self) -> None: ...


class MemoryCheckpoints:
    """Checkpoints that end with the process, for tests and trials."""

    def __init__(self) -> None:
        self._saver = InMemorySaver(serde=StrictSerializer())

    def saver(self) -> Saver:
        return self._saver

    async def attempts(self) -> set[tuple[str, int]]:
        stored = self._saver.storage.items()
        return turns_of((thread, name) for thread, names in stored for name in names)

    async def wipe(self) -> None:
        pass

    async def open(self) -> Self:
        return self

    async def close(self) -> None:
        pass


class SqliteCheckpoints:
    """Checkpoints in a file."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._stack = AsyncExitStack()
        self._saver: AsyncSqliteSaver | None = None

    def saver(self) -> Saver:
        return _opened(self._saver)

    async def attempts(self) -> set[tuple[str, int]]:
        saver = _opened(self._saver)
        async with saver.lock, saver.conn.execute(_PLACES.format("writes")) as rows:
            return turns_of([(thread, name) async for thread, name in rows])

    async def wipe(self) -> None:
        saver = _opened(self._saver)
        async with saver.lock, saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)") as rows:
            [(is_busy, _, _)] = await rows.fetchall()
        if is_busy:
            logger.warning("Another process reads %s; its log is emptied later.", self._path)

    async def open(self) -> Self:
        try:
            connection = await self._stack.enter_async_context(
                aiosqlite.connect(self._path, timeout=_BUSY_SECONDS)
            )
            # A finished tool must not run again, nor a question be lost, after a power cut either.
            await connection.execute("PRAGMA synchronous = FULL")
            # The words of a turn that is over are overwritten with zeros.
            await connection.execute("PRAGMA secure_delete = ON")
            saver = AsyncSqliteSaver(connection, serde=StrictSerializer())
            await saver.setup()
        except aiosqlite.Error as error:
            await self._stack.aclose()
            raise BackendError(f"Checkpoints in {self._path!r}: {error}.") from error
        self._saver = saver
        return self

    async def close(self) -> None:
        saver, self._saver = self._saver, None
        # A run that was cut off may still store its last step; closing under it would leave the
        # file locked.
        async with saver.lock if saver is not None else AsyncExitStack():
            await self._stack.aclose()


class PostgresCheckpoints:
    """Checkpoints in a PostgreSQL database, which may be the journal's."""

    def __init__(self, dsn: str, pool_size: int = _POOL_SIZE) -> None:
        try:
            from segue.agent.postgres_saver import PostgresSavers  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise UsageError(
                f"PostgreSQL needs {error.name}; pip install 'segue[postgres]'."
            ) from error
        self._savers = PostgresSavers(dsn, pool_size)

    def saver(self) -> Saver:
        return self._savers.new()

    async def attempts(self) -> set[tuple[str, int]]:
        return turns_of(await self._savers.places(_PLACES.format("checkpoint_writes")))

    async def wipe(self) -> None:
        pass  # VACUUM is the server's to run

    async def open(self) -> Self:
        await self._savers.open()
        return self

    async def close(self) -> None:
        await self._savers.close()


def _opened(saver: AsyncSqliteSaver | None) -> AsyncSqliteSaver:
    if saver is None:
        raise UsageError("The checkpoints are not open; call open() first.")
    return saver

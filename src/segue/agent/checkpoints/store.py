"""Where LangGraph stores running turns: the official savers, opened the way we need them.

A checkpoint lives as long as its batch is processed; the journal holds what must last. On SQLite
checkpoints have their own file, so they never wait for the journal's writer. Only known types are
restored (`segue.agent.checkpoints.types`).
"""

import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Protocol, Self

import aiosqlite
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from segue.agent.checkpoints.savers import stored_turns
from segue.agent.checkpoints.types import StrictSerializer
from segue.errors import BackendError, UsageError
from segue.runtime.housekeeping import CheckpointStore

logger = logging.getLogger(__name__)

_BUSY_SECONDS: Final = 30.0

Saver = BaseCheckpointSaver[str]


class Checkpoints(CheckpointStore, Protocol):
    """A store of checkpoints, open while the runtime runs."""

    def saver(self) -> Saver:
        """A saver for one run."""
        ...

    async def drop(self, batch: str) -> None:
        await self.saver().adelete_thread(batch)

    async def open(self) -> Self: ...

    async def close(self) -> None: ...


class MemoryCheckpoints(Checkpoints):
    """Checkpoints that end with the process, for tests and trials."""

    def __init__(self) -> None:
        self._saver = InMemorySaver(serde=StrictSerializer())

    def saver(self) -> Saver:
        return self._saver

    async def attempts(self) -> set[tuple[str, int]]:
        stored = self._saver.storage.items()
        return stored_turns((thread, name) for thread, names in stored for name in names)

    async def wipe(self) -> None:
        pass

    async def open(self) -> Self:
        return self

    async def close(self) -> None:
        pass


class SqliteCheckpoints(Checkpoints):
    """Checkpoints in a file."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._stack = AsyncExitStack()
        self._saver: AsyncSqliteSaver | None = None

    def saver(self) -> Saver:
        return self._open_saver()

    async def attempts(self) -> set[tuple[str, int]]:
        saver = self._open_saver()
        sql = (
            "SELECT thread_id, checkpoint_ns FROM checkpoints "
            "UNION SELECT thread_id, checkpoint_ns FROM writes"
        )
        async with saver.lock, saver.conn.execute(sql) as rows:
            return stored_turns([(thread, name) async for thread, name in rows])

    async def wipe(self) -> None:
        saver = self._open_saver()
        async with saver.lock, saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)") as rows:
            [(is_busy, _, _)] = await rows.fetchall()
        if is_busy:
            logger.warning("Another process reads %s; its log is emptied later.", self._path)

    async def open(self) -> Self:
        try:
            connection = await self._stack.enter_async_context(
                aiosqlite.connect(self._path, timeout=_BUSY_SECONDS)
            )
            # After a power cut, too, a finished tool must not run again nor a question be lost.
            await connection.execute("PRAGMA synchronous = FULL")
            # Deleted checkpoints hold conversations: overwrite them with zeros.
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
        # A cancelled run may still store its last step; closing under it leaves the file locked.
        async with saver.lock if saver is not None else AsyncExitStack():
            await self._stack.aclose()

    def _open_saver(self) -> AsyncSqliteSaver:
        if self._saver is None:
            raise UsageError("The checkpoints are not open; call open() first.")
        return self._saver

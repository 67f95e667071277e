"""Where LangGraph stores running turns: the official savers with our configuration.

A checkpoint lives as long as its batch is processed; the journal holds what must last. On SQLite
checkpoints have their own file, so they never wait for the journal's writer.

LangGraph's serializer imports and calls whatever a stored row names, so that anyone with write
access to that table could run any code here. Ours restores LangChain's and LangGraph's own types,
those that a graph's state declares, and those that the agent's settings name.
"""

import asyncio
import logging
import sqlite3
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AsyncExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Self

import aiosqlite
from langgraph._internal._serde import collect_allowlist_from_schemas
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.pregel import Pregel

from segue.agent.checkpoints.savers import stored_turns
from segue.errors import BackendError, UsageError
from segue.runtime.housekeeping import CheckpointStore

logger = logging.getLogger(__name__)

_BUSY_SECONDS: Final = 30.0

Saver = BaseCheckpointSaver[str]
# A module and the name of a type in it, as LangGraph lists them.
TypeName = tuple[str, ...]

_BLOCKED: Final = frozenset({"msgpack_blocked", "msgpack_method_blocked"})
_refused: ContextVar[set[str] | None] = ContextVar("refused", default=None)


class StrictSerializer(JsonPlusSerializer):
    """Refuses a checkpoint with an unknown type, instead of restoring a part of it."""

    def __init__(self) -> None:
        super().__init__(allowed_msgpack_modules=None)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] == "json":  # never written here, and LangChain's loader restores more types
            raise UsageError("A checkpoint is in a form that this version does not write.")
        refused: set[str] = set()
        token = _refused.set(refused)
        try:
            value = super().loads_typed(data)
        finally:
            _refused.reset(token)
        if refused:
            names = ", ".join(sorted(refused))
            raise UsageError(
                f"A checkpoint holds {names}, which the graph's state does not declare; if it is "
                "yours, name it in the agent's checkpoint_types, as 'package.module:Type'."
            )
        return value


def declared_types(graph: Pregel[Any, Any, Any, Any]) -> set[TypeName]:
    """The types that the states of a graph and its subgraphs declare."""
    found: set[TypeName] = set()
    for each in (graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))):
        channels = dict(each.channels) if isinstance(each, Pregel) else {}
        found |= collect_allowlist_from_schemas(schemas=[*_schemas(each)], channels=channels)
    return found


def _schemas(graph: Any) -> Iterator[type[Any]]:
    if (builder := getattr(graph, "builder", None)) is not None:
        names = ("state_schema", "input_schema", "output_schema", "context_schema")
        yield from filter(None, (getattr(builder, name, None) for name in names))
        yield from (node.input_schema for node in builder.nodes.values())


def _on_event(event: SerdeEvent) -> None:
    refused = _refused.get()
    if refused is not None and event["kind"] in _BLOCKED:
        refused.add(f"{event['module']}:{event['name']}")


register_serde_event_listener(_on_event)


class Checkpoints(CheckpointStore):
    """A store of checkpoints, open while the runtime runs."""

    @abstractmethod
    def saver(self) -> Saver:
        """A saver for one run."""

    async def drop(self, batch: str) -> None:
        await self.saver().adelete_thread(batch)

    async def wipe(self) -> None:
        """Nothing to do where deleted rows leave no files behind, or the server runs VACUUM."""

    async def open(self) -> Self:
        return self

    async def close(self) -> None:
        pass


class MemoryCheckpoints(Checkpoints):
    """Checkpoints that end with the process, for tests and trials."""

    def __init__(self) -> None:
        self._saver = InMemorySaver(serde=StrictSerializer())

    def saver(self) -> Saver:
        return self._saver

    async def attempts(self) -> set[tuple[str, int]]:
        stored = self._saver.storage.items()
        return stored_turns((thread, name) for thread, names in stored for name in names)


class SqliteCheckpoints(Checkpoints):
    """Checkpoints in a file."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._stack = AsyncExitStack()
        self._saver: AsyncSqliteSaver | None = None

    def saver(self) -> AsyncSqliteSaver:
        if self._saver is None:
            raise UsageError("The checkpoints are not open; call open() first.")
        return self._saver

    async def attempts(self) -> set[tuple[str, int]]:
        saver = self.saver()
        sql = (
            "SELECT thread_id, checkpoint_ns FROM checkpoints "
            "UNION SELECT thread_id, checkpoint_ns FROM writes"
        )
        async with saver.lock, saver.conn.execute(sql) as rows:
            return stored_turns([(thread, name) async for thread, name in rows])

    async def wipe(self) -> None:
        saver = self.saver()
        async with saver.lock, saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)") as rows:
            [(is_busy, _, _)] = await rows.fetchall()
        if is_busy:
            logger.warning("Another process reads %s; its log is emptied later.", self._path)

    async def open(self) -> Self:
        try:
            # aiosqlite's thread may outlive the event loop if the file cannot be opened.
            await asyncio.to_thread(lambda: sqlite3.connect(self._path).close())
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

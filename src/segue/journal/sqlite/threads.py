"""Threads on SQLite."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from segue.core.errors import ConflictError, NotFoundError
from segue.core.plain import storable
from segue.journal.records import NESTING, Deleted, Thread, ThreadPlace
from segue.journal.rows import from_micros, merged_settings, settings_of, to_json, to_micros
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.wiping import wipe

_OWNED = ("messages", "turns", "timers", "effects", "decisions", "summaries")


class ThreadSteps:
    _db: Database

    async def create_thread(
        self,
        thread_id: str,
        *,
        agent_id: str,
        user_id: str,
        now: datetime,
        settings: Mapping[str, Any] | None = None,
    ) -> Thread:
        def step(db: sqlite3.Connection) -> Thread:
            at = to_micros(now)
            db.execute(
                "INSERT INTO threads (id, agent_id, user_id, settings, served_at, created_at, "
                "updated_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
                (thread_id, agent_id, user_id, to_json(dict(settings or {})), at, at, at),
            )
            thread = thread_of(db, thread_id)
            if (thread.agent_id, thread.user_id) != (agent_id, user_id):
                raise ConflictError(f"Thread {thread_id!r} belongs to another agent or user.")
            return thread

        return await self._db.write(step)

    async def get_thread(self, thread_id: str) -> Thread:
        return await self._db.read(lambda db: thread_of(db, thread_id))

    async def list_threads(
        self,
        user_id: str,
        *,
        agent_id: str | None = None,
        limit: int = 50,
        before: ThreadPlace | None = None,
        with_nested: bool = False,
    ) -> list[Thread]:
        sql = "SELECT * FROM threads WHERE user_id = ?"
        values: list[Any] = [user_id]
        if agent_id is not None:
            sql += " AND agent_id = ?"
            values.append(agent_id)
        if before is not None:
            sql += " AND (updated_at, id) < (?, ?)"
            values += [to_micros(before.updated_at), before.id]
        if not with_nested:
            sql += " AND instr(id, ?) = 0"
            values.append(NESTING)
        sql += " ORDER BY updated_at DESC, id DESC LIMIT ?"
        values.append(limit)
        return await self._db.read(lambda db: [to_thread(r) for r in db.execute(sql, values)])

    async def list_newest_threads(self, *, limit: int = 50) -> list[Thread]:
        sql = (
            "SELECT * FROM threads WHERE instr(id, ?) = 0 ORDER BY updated_at DESC, id DESC LIMIT ?"
        )
        values = (NESTING, limit)
        return await self._db.read(lambda db: [to_thread(r) for r in db.execute(sql, values)])

    async def update_thread(
        self,
        thread_id: str,
        *,
        title: str | None = None,
        settings: Mapping[str, Any] | None = None,
        reconsider_at: datetime | None = None,
    ) -> Thread:
        def step(db: sqlite3.Connection) -> Thread:
            thread = thread_of(db, thread_id)
            if title is not None:
                db.execute(
                    "UPDATE threads SET title = ?, title_is_set = 1 WHERE id = ?",
                    (storable(title), thread_id),
                )
            if settings is not None:
                merged = to_json(merged_settings(thread.settings, settings))
                db.execute("UPDATE threads SET settings = ? WHERE id = ?", (merged, thread_id))
            if reconsider_at is not None:
                wake_put_off(db, [thread_id], reconsider_at)
            return thread_of(db, thread_id)

        return await self._db.write(step)

    async def note_typing(self, thread_id: str, *, now: datetime) -> None:
        def step(db: sqlite3.Connection) -> None:
            noted = db.execute(
                "UPDATE threads SET typing_at = ? WHERE id = ?", (to_micros(now), thread_id)
            )
            if noted.rowcount == 0:
                raise NotFoundError(f"There is no thread {thread_id!r}.")

        await self._db.write(step)

    async def delete_thread(self, thread_id: str) -> Deleted:
        def step(db: sqlite3.Connection) -> Deleted:
            whole = _with_nested(db, thread_of(db, thread_id))
            rows = {}
            for table, column in (*((table, "thread_id") for table in _OWNED), ("threads", "id")):
                sql = f"DELETE FROM {table} WHERE {column} = ?"  # noqa: S608  # our own names
                rows[table] = db.executemany(sql, whole).rowcount
            return Deleted(rows)

        deleted = await self._db.write(step)
        await wipe(self._db)
        return deleted


def thread_of(db: sqlite3.Connection, thread_id: str) -> Thread:
    row = db.execute("SELECT * FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"There is no thread {thread_id!r}.")
    return to_thread(row)


def _with_nested(db: sqlite3.Connection, thread: Thread) -> list[tuple[str]]:
    """The ids of a thread and of those nested in it."""
    prefix = thread.id + NESTING
    sql = "SELECT id FROM threads WHERE user_id = ? AND substr(id, 1, ?) = ?"
    nested = db.execute(sql, (thread.user_id, len(prefix), prefix))
    return [(thread.id,), *((row["id"],) for row in nested)]


def wake_put_off(db: sqlite3.Connection, thread_ids: Sequence[str], at: datetime) -> None:
    """Let the follow-ups of threads that were put off be claimed from a time on, if not sooner."""
    db.executemany(
        "UPDATE timers SET wake_at = min(wake_at, ?) "
        "WHERE thread_id = ? AND kind = 'follow_up' AND state = 'postponed'",
        [(to_micros(at), thread_id) for thread_id in thread_ids],
    )


def to_thread(row: sqlite3.Row) -> Thread:
    return Thread(
        id=row["id"],
        agent_id=row["agent_id"],
        user_id=row["user_id"],
        title=row["title"],
        preview=row["preview"],
        preview_role=row["preview_role"],
        message_count=row["message_count"],
        epoch=row["epoch"],
        last_position=row["last_position"],
        settings=settings_of(row["settings"]),
        created_at=from_micros(row["created_at"]),
        updated_at=from_micros(row["updated_at"]),
        typing_at=None if row["typing_at"] is None else from_micros(row["typing_at"]),
    )

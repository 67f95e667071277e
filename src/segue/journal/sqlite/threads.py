"""Threads on SQLite."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from segue.core.errors import ConflictError, NotFoundError
from segue.core.plain import storable
from segue.journal.records import Deleted, Thread
from segue.journal.rows import from_micros, merged_settings, settings_of, to_json, to_micros
from segue.journal.sqlite.database import Database

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
        before: Thread | None = None,
    ) -> list[Thread]:
        sql = "SELECT * FROM threads WHERE user_id = ?"
        values: list[Any] = [user_id]
        if agent_id is not None:
            sql += " AND agent_id = ?"
            values.append(agent_id)
        if before is not None:
            sql += " AND (updated_at, id) < (?, ?)"
            values += [to_micros(before.updated_at), before.id]
        sql += " ORDER BY updated_at DESC, id DESC LIMIT ?"
        values.append(limit)
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
            thread_of(db, thread_id)
            rows = {}
            for table in _OWNED:
                deleted = db.execute(f"DELETE FROM {table} WHERE thread_id = ?", (thread_id,))  # noqa: S608  # our own names
                rows[table] = deleted.rowcount
            rows["threads"] = db.execute("DELETE FROM threads WHERE id = ?", (thread_id,)).rowcount
            return Deleted(rows)

        return await self._db.write(step)


def thread_of(db: sqlite3.Connection, thread_id: str) -> Thread:
    row = db.execute("SELECT * FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"There is no thread {thread_id!r}.")
    return to_thread(row)


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

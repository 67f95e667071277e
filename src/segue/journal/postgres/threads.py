"""Threads on PostgreSQL."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, LiteralString

from psycopg.rows import DictRow

from segue.core.errors import ConflictError, NotFoundError
from segue.core.plain import storable
from segue.journal.postgres.database import (
    Connection,
    Database,
    fetch_all,
    fetch_one,
    fetch_row,
    tell_of,
)
from segue.journal.records import NESTING, Deleted, Thread, ThreadPlace
from segue.journal.rows import merged_settings, settings_of, to_json

_OWNED: tuple[LiteralString, ...] = (
    "messages",
    "turns",
    "timers",
    "effects",
    "decisions",
    "summaries",
)
_LOCK: LiteralString = f"SELECT *, {tell_of('id')} FROM threads WHERE id = %s FOR UPDATE"  # noqa: S608 - our own names


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
        async def step(db: Connection) -> Thread:
            await db.execute(
                "INSERT INTO threads (id, agent_id, user_id, settings, served_at, created_at, "
                "updated_at) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO NOTHING",
                (thread_id, agent_id, user_id, to_json(dict(settings or {})), now, now, now),
            )
            # Locked, so that somebody who deletes it comes before or after, not in between.
            thread = await lock_thread(db, thread_id)
            if (thread.agent_id, thread.user_id) != (agent_id, user_id):
                raise ConflictError(f"Thread {thread_id!r} belongs to another agent or user.")
            return thread

        return await self._db.write(step)

    async def get_thread(self, thread_id: str) -> Thread:
        return await self._db.look(lambda db: thread_of(db, thread_id))

    async def list_threads(
        self,
        user_id: str,
        *,
        agent_id: str | None = None,
        limit: int = 50,
        before: ThreadPlace | None = None,
        with_nested: bool = False,
    ) -> list[Thread]:
        sql: LiteralString = "SELECT * FROM threads WHERE user_id = %s"
        values: list[Any] = [user_id]
        if agent_id is not None:
            sql += " AND agent_id = %s"
            values.append(agent_id)
        if before is not None:
            sql += " AND (updated_at, id) < (%s, %s)"
            values += [before.updated_at, before.id]
        if not with_nested:
            sql += " AND strpos(id, %s) = 0"
            values.append(NESTING)
        sql += " ORDER BY updated_at DESC, id DESC LIMIT %s"
        values.append(limit)

        async def step(db: Connection) -> list[Thread]:
            return [to_thread(row) for row in await fetch_all(db, sql, values)]

        return await self._db.read(step)

    async def list_newest_threads(self, *, limit: int = 50) -> list[Thread]:
        sql: LiteralString = (
            "SELECT * FROM threads WHERE strpos(id, %s) = 0 "
            "ORDER BY updated_at DESC, id DESC LIMIT %s"
        )

        async def step(db: Connection) -> list[Thread]:
            return [to_thread(row) for row in await fetch_all(db, sql, (NESTING, limit))]

        return await self._db.read(step)

    async def update_thread(
        self,
        thread_id: str,
        *,
        title: str | None = None,
        settings: Mapping[str, Any] | None = None,
        reconsider_at: datetime | None = None,
    ) -> Thread:
        async def step(db: Connection) -> Thread:
            thread = await lock_thread(db, thread_id)
            merged = thread.settings
            if settings is not None:
                merged = merged_settings(thread.settings, settings)
            row = await fetch_row(
                db,
                "UPDATE threads SET title = coalesce(%s, title), "
                "title_is_set = title_is_set OR %s, settings = %s WHERE id = %s RETURNING *",
                (
                    None if title is None else storable(title),
                    title is not None,
                    to_json(merged),
                    thread_id,
                ),
            )
            if reconsider_at is not None:
                await wake_put_off(db, "thread_id = %s", thread_id, reconsider_at)
            return to_thread(row)

        return await self._db.write(step)

    async def note_typing(self, thread_id: str, *, now: datetime) -> None:
        sql: LiteralString = "UPDATE threads SET typing_at = %s WHERE id = %s"

        async def step(db: Connection) -> None:
            noted = await db.execute(sql, (now, thread_id))
            if noted.rowcount == 0:
                raise NotFoundError(f"There is no thread {thread_id!r}.")

        await self._db.write(step)

    async def delete_thread(self, thread_id: str) -> Deleted:
        async def step(db: Connection) -> Deleted:
            whole = await _lock_with_nested(db, thread_id)
            rows = {}
            for table in _OWNED:
                deleted = await db.execute(
                    f"DELETE FROM {table} WHERE thread_id = ANY(%s)",  # noqa: S608 - our own names
                    (whole,),
                )
                rows[table] = deleted.rowcount
            deleted = await db.execute("DELETE FROM threads WHERE id = ANY(%s)", (whole,))
            rows["threads"] = deleted.rowcount
            return Deleted(rows)

        return await self._db.write(step)


async def _lock_with_nested(db: Connection, thread_id: str) -> list[str]:
    """The ids of a thread and of those nested in it."""
    thread = await lock_thread(db, thread_id)
    sql: LiteralString = (
        "SELECT id FROM threads WHERE user_id = %s AND starts_with(id, %s) ORDER BY id FOR UPDATE"
    )
    nested = await fetch_all(db, sql, (thread.user_id, thread_id + NESTING))
    return [thread_id, *(row["id"] for row in nested)]


async def thread_of(db: Connection, thread_id: str) -> Thread:
    row = await fetch_one(db, "SELECT * FROM threads WHERE id = %s", (thread_id,))
    if row is None:
        raise NotFoundError(f"There is no thread {thread_id!r}.")
    return to_thread(row)


async def lock_thread(db: Connection, thread_id: str) -> Thread:
    """The thread, kept from all other steps that change its messages, turns or timers.

    Always the first lock of a step: turns and timers are locked after their thread, so two steps
    can never wait for each other. Who watches is told of the thread when the step commits; here,
    because a statement of its own would cost every step a round trip.
    """
    row = await fetch_one(db, _LOCK, (thread_id,))
    if row is None:
        raise NotFoundError(f"There is no thread {thread_id!r}. Nothing was written.")
    return to_thread(row)


async def wake_put_off(db: Connection, whose: LiteralString, owner: str, at: datetime) -> None:
    """Let follow-ups that were put off be claimed from a time on, if not sooner.

    Locks timers of many threads, but never waits for one: whoever holds it is deciding about it.
    """
    put_off: LiteralString = f"kind = 'follow_up' AND state = 'postponed' AND {whose}"
    sql: LiteralString = f"SELECT id FROM timers WHERE {put_off} FOR UPDATE SKIP LOCKED"  # noqa: S608 - our own words
    await db.execute(
        f"UPDATE timers SET wake_at = least(wake_at, %s) WHERE id IN ({sql})",  # noqa: S608 - same
        (at, owner),
    )


def to_thread(row: DictRow) -> Thread:
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
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        typing_at=row["typing_at"],
    )

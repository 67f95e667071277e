"""Removing whole batches on PostgreSQL."""

from collections.abc import Collection
from typing import LiteralString

from psycopg.rows import DictRow

from segue.core.metadata import BatchType
from segue.core.retention import KeptBatch
from segue.journal.postgres.database import Connection, Database, fetch_all, fetch_one, fetch_row
from segue.journal.postgres.threads import lock_thread
from segue.journal.records import NESTING
from segue.journal.retention import (
    Removed,
    ThreadBatches,
    asked_from,
    held,
    nested_in,
    removable,
)
from segue.journal.rows import preview_of, readable, title_of

# Somebody works on a batch, will go on with it, or waits for a person.
_BATCHES: LiteralString = """
    SELECT *,
        EXISTS (SELECT 1 FROM turns t WHERE t.thread_id = %(thread_id)s AND t.batch = m.batch
            AND (t.state IN ('queued', 'running') OR t.left_open OR t.is_waiting))
        OR EXISTS (SELECT 1 FROM timers t WHERE t.thread_id = %(thread_id)s AND t.batch = m.batch
            AND t.state IN ('pending', 'postponed', 'claimed')) AS is_unfinished
    FROM (
        SELECT batch, (array_agg(batch_type ORDER BY sequence_num))[1] AS batch_type,
            count(*) AS messages, max(created_at) AS last_at
        FROM messages WHERE thread_id = %(thread_id)s GROUP BY batch
    ) AS m ORDER BY batch
"""
# The same of any batch of a thread.
_BUSY: LiteralString = """
    SELECT EXISTS (SELECT 1 FROM turns t WHERE t.thread_id = %(thread_id)s
            AND (t.state IN ('queued', 'running') OR t.left_open OR t.is_waiting))
        OR EXISTS (SELECT 1 FROM timers t WHERE t.thread_id = %(thread_id)s
            AND t.batch IS NOT NULL AND t.state IN ('pending', 'postponed', 'claimed')) AS is_busy
"""


class RetentionSteps:
    _db: Database

    async def list_stored(
        self, *, after: str = "", limit: int = 100, nested: bool = False
    ) -> list[ThreadBatches]:
        async def step(db: Connection) -> list[ThreadBatches]:
            rows = await fetch_all(
                db,
                "SELECT id, user_id, agent_id FROM threads "
                'WHERE id COLLATE "C" > %s AND (strpos(id, %s) > 0) = %s '
                'ORDER BY id COLLATE "C" LIMIT %s',
                (after, NESTING, nested, limit),
            )
            return [
                ThreadBatches(
                    row["id"], row["user_id"], row["agent_id"], await _batches_of(db, row["id"])
                )
                for row in rows
            ]

        return await self._db.read(step)

    async def remove_batches(self, thread_id: str, batches: Collection[int]) -> Removed:
        async def step(db: Connection) -> Removed:
            thread = await lock_thread(db, thread_id)
            chosen = removable(await _batches_of(db, thread_id), batches)
            gone = [(thread_id, batch) for batch in chosen]
            gone += nested_in(chosen, await _nested(db, thread.user_id, thread_id))
            messages = 0
            for name, batch in gone:
                messages += await _remove(db, name, batch)
            for changed in sorted({name for name, _ in gone}):
                await _follow_in_thread(db, changed)
            return Removed(len(chosen), messages)

        return await self._db.write(step)

    async def wipe_removed(self) -> None:
        pass  # VACUUM is the server's to run


async def _batches_of(db: Connection, thread_id: str) -> list[KeptBatch]:
    batches = readable(_to_kept, await fetch_all(db, _BATCHES, {"thread_id": thread_id}))
    root = asked_from(thread_id)
    if root is not None and (await fetch_row(db, _BUSY, {"thread_id": root}))["is_busy"]:
        return held(batches)
    return batches


def _to_kept(row: DictRow) -> KeptBatch:
    return KeptBatch(
        id=row["batch"],
        type=BatchType(row["batch_type"]),
        messages=row["messages"],
        last_at=row["last_at"],
        is_unfinished=row["is_unfinished"],
    )


async def _remove(db: Connection, thread_id: str, batch: int) -> int:
    # A person's answer to the agent's question is kept with the turn that it let go on.
    await db.execute(
        "UPDATE turns SET payload = (payload::jsonb - 'answer')::text "
        "WHERE thread_id = %s AND batch = %s",
        (thread_id, batch),
    )
    deleted = await db.execute(
        "DELETE FROM messages WHERE thread_id = %s AND batch = %s", (thread_id, batch)
    )
    return deleted.rowcount


async def _nested(db: Connection, user_id: str, thread_id: str) -> list[tuple[str, int, int]]:
    """What agents asked each other for a thread: where, in which batch, and for which."""
    rows = await fetch_all(
        db,
        "SELECT DISTINCT m.thread_id, m.batch, m.parent_batch "
        "FROM threads JOIN messages m ON m.thread_id = threads.id "
        "WHERE threads.user_id = %s AND starts_with(threads.id, %s) AND m.parent_batch IS NOT NULL",
        (user_id, thread_id + NESTING),
    )
    return [(row["thread_id"], row["batch"], row["parent_batch"]) for row in rows]


async def _follow_in_thread(db: Connection, thread_id: str) -> None:
    """Title, preview and count of the thread list, from what is left."""
    count = await fetch_row(
        db, "SELECT count(*) AS n FROM messages WHERE thread_id = %s AND visible", (thread_id,)
    )
    last = await fetch_one(
        db,
        "SELECT position, role, text FROM messages WHERE thread_id = %s AND visible "
        "ORDER BY position DESC LIMIT 1",
        (thread_id,),
    )
    first = await fetch_one(
        db,
        "SELECT text FROM messages WHERE thread_id = %s AND visible AND role = 'human' "
        "AND btrim(text) <> '' ORDER BY position LIMIT 1",
        (thread_id,),
    )
    await db.execute(
        "UPDATE threads SET message_count = %s, preview = %s, preview_role = %s, "
        "preview_position = %s, title = CASE WHEN title_is_set THEN title ELSE %s END "
        "WHERE id = %s",
        (
            count["n"],
            preview_of(last["text"]) if last else None,
            last["role"] if last else None,
            last["position"] if last else 0,
            title_of(first["text"]) if first else None,
            thread_id,
        ),
    )

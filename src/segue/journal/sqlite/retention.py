"""Removing whole batches on SQLite."""

import sqlite3
from collections.abc import Collection
from typing import Final

from segue.core.metadata import BatchType
from segue.core.retention import KeptBatch
from segue.journal.records import NESTING
from segue.journal.retention import (
    Removed,
    ThreadBatches,
    asked_from,
    held,
    nested_in,
    removable,
)
from segue.journal.rows import from_micros, preview_of, readable, title_of
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.threads import thread_of
from segue.journal.sqlite.wiping import wipe

# Somebody works on a batch, will go on with it, or waits for a person.
_UNFINISHED: Final = (
    "(EXISTS (SELECT 1 FROM turns t WHERE t.thread_id = m.thread_id AND t.batch = m.batch "
    "AND (t.state IN ('queued', 'running') OR t.left_open OR t.is_waiting)) "
    "OR EXISTS (SELECT 1 FROM timers t WHERE t.thread_id = m.thread_id AND t.batch = m.batch "
    "AND t.state IN ('pending', 'postponed', 'claimed')))"
)
# The same of any batch of a thread.
_BUSY: Final = (
    "SELECT EXISTS (SELECT 1 FROM turns t WHERE t.thread_id = :thread_id "
    "AND (t.state IN ('queued', 'running') OR t.left_open OR t.is_waiting)) "
    "OR EXISTS (SELECT 1 FROM timers t WHERE t.thread_id = :thread_id AND t.batch IS NOT NULL "
    "AND t.state IN ('pending', 'postponed', 'claimed'))"
)
# The type of a batch is that of its first message: a continuation does not relabel it.
_BATCHES: Final = (
    "SELECT batch, count(*) AS messages, max(created_at) AS last_at, "  # noqa: S608 - ours
    "(SELECT batch_type FROM messages f WHERE f.thread_id = m.thread_id AND f.batch = m.batch "
    f"ORDER BY sequence_num LIMIT 1) AS batch_type, {_UNFINISHED} AS is_unfinished "
    "FROM messages m WHERE thread_id = ? GROUP BY batch ORDER BY batch"
)


class RetentionSteps:
    _db: Database

    async def list_stored(
        self, *, after: str = "", limit: int = 100, nested: bool = False
    ) -> list[ThreadBatches]:
        def step(db: sqlite3.Connection) -> list[ThreadBatches]:
            sql = (
                "SELECT * FROM threads WHERE id > ? AND (instr(id, ?) > 0) = ? ORDER BY id LIMIT ?"
            )
            return [
                ThreadBatches(
                    row["id"], row["user_id"], row["agent_id"], _batches_of(db, row["id"])
                )
                for row in db.execute(sql, (after, NESTING, nested, limit)).fetchall()
            ]

        return await self._db.read(step)

    async def remove_batches(self, thread_id: str, batches: Collection[int]) -> Removed:
        def step(db: sqlite3.Connection) -> Removed:
            thread = thread_of(db, thread_id)
            chosen = removable(_batches_of(db, thread_id), batches)
            gone = [(thread_id, batch) for batch in chosen]
            gone += nested_in(chosen, _nested(db, thread.user_id, thread_id))
            messages = sum(_remove(db, *each) for each in gone)
            for changed in {name for name, _ in gone}:
                _follow_in_thread(db, changed)
            return Removed(len(chosen), messages)

        return await self._db.write(step)

    async def wipe_removed(self) -> None:
        await wipe(self._db)


def _batches_of(db: sqlite3.Connection, thread_id: str) -> list[KeptBatch]:
    batches = readable(_to_kept, db.execute(_BATCHES, (thread_id,)))
    root = asked_from(thread_id)
    if root is not None and db.execute(_BUSY, {"thread_id": root}).fetchone()[0]:
        return held(batches)
    return batches


def _to_kept(row: sqlite3.Row) -> KeptBatch:
    return KeptBatch(
        id=row["batch"],
        type=BatchType(row["batch_type"]),
        messages=row["messages"],
        last_at=from_micros(row["last_at"]),
        is_unfinished=bool(row["is_unfinished"]),
    )


def _remove(db: sqlite3.Connection, thread_id: str, batch: int) -> int:
    # A person's answer to the agent's question is kept with the turn that it let go on.
    db.execute(
        "UPDATE turns SET payload = json_remove(payload, '$.answer') "
        "WHERE thread_id = ? AND batch = ?",
        (thread_id, batch),
    )
    deleted = db.execute(
        "DELETE FROM messages WHERE thread_id = ? AND batch = ?", (thread_id, batch)
    )
    return deleted.rowcount


def _nested(db: sqlite3.Connection, user_id: str, thread_id: str) -> list[tuple[str, int, int]]:
    """What agents asked each other for a thread: where, in which batch, and for which."""
    prefix = thread_id + NESTING
    rows = db.execute(
        "SELECT DISTINCT m.thread_id, m.batch, m.parent_batch "
        "FROM threads JOIN messages m ON m.thread_id = threads.id "
        "WHERE threads.user_id = ? AND substr(threads.id, 1, ?) = ? AND m.parent_batch IS NOT NULL",
        (user_id, len(prefix), prefix),
    )
    return [(row["thread_id"], row["batch"], row["parent_batch"]) for row in rows]


def _follow_in_thread(db: sqlite3.Connection, thread_id: str) -> None:
    """Title, preview and count of the thread list, from what is left."""
    seen = "FROM messages WHERE thread_id = ? AND visible = 1"
    count = db.execute(f"SELECT count(*) {seen}", (thread_id,)).fetchone()[0]
    last = db.execute(
        f"SELECT position, role, text {seen} ORDER BY position DESC LIMIT 1",
        (thread_id,),
    ).fetchone()
    first = db.execute(
        f"SELECT text {seen} AND role = 'human' AND trim(text) <> '' ORDER BY position LIMIT 1",
        (thread_id,),
    ).fetchone()
    db.execute(
        "UPDATE threads SET message_count = ?, preview = ?, preview_role = ?, "
        "preview_position = ?, title = CASE WHEN title_is_set THEN title ELSE ? END WHERE id = ?",
        (
            count,
            preview_of(last["text"]) if last else None,
            last["role"] if last else None,
            last["position"] if last else 0,
            title_of(first["text"]) if first else None,
            thread_id,
        ),
    )

"""Summaries on SQLite: archive and summary in one step."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from segue.core.errors import ConflictError, NotFoundError, UsageError
from segue.core.plain import storable
from segue.core.snowflake import SnowflakeSource
from segue.journal.inputs import check_newest
from segue.journal.places import ids_above
from segue.journal.records import Summary
from segue.journal.rows import from_json, from_micros, to_json, to_micros
from segue.journal.sqlite.batches import next_id
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.threads import thread_of


class SummarySteps:
    _db: Database

    async def save_summary(
        self,
        thread_id: str,
        text: str,
        batches: Sequence[int],
        *,
        ids: SnowflakeSource,
        now: datetime,
        follows: int | None = None,
    ) -> Summary:
        if not batches:
            raise UsageError("A summary stands for at least one batch.")

        def step(db: sqlite3.Connection) -> Summary:
            thread = thread_of(db, thread_id)
            previous = newest_summary(db, thread_id)
            check_newest(thread_id, previous, follows)
            for batch in batches:
                _archive(db, thread_id, batch)
            summary_id = next_id(db, thread_id, ids_above(thread, ids, now))
            db.execute(
                "INSERT INTO summaries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    summary_id,
                    thread_id,
                    storable(text),
                    min(batches),
                    max(batches),
                    to_json(sorted(batches)),
                    previous.id if previous else None,
                    to_micros(now),
                ),
            )
            row = db.execute("SELECT * FROM summaries WHERE id = ?", (summary_id,)).fetchone()
            return _to_summary(row)

        return await self._db.write(step)

    async def find_summary(self, thread_id: str) -> Summary | None:
        def step(db: sqlite3.Connection) -> Summary | None:
            thread_of(db, thread_id)
            return newest_summary(db, thread_id)

        return await self._db.read(step)

    async def undo_summary(self, summary: Summary) -> None:
        def step(db: sqlite3.Connection) -> None:
            thread_of(db, summary.thread_id)
            newest = newest_summary(db, summary.thread_id)
            if newest is None or newest.id != summary.id:
                raise ConflictError(
                    f"Summary {summary.id} is not the newest of thread {summary.thread_id!r}; "
                    "undo the newer ones first. Nothing was written."
                )
            for batch in newest.batches:
                db.execute(
                    "UPDATE messages SET archived = 0 WHERE thread_id = ? AND batch = ?",
                    (summary.thread_id, batch),
                )
            db.execute("DELETE FROM summaries WHERE id = ?", (summary.id,))

        await self._db.write(step)


def _archive(db: sqlite3.Connection, thread_id: str, batch: int) -> None:
    row = db.execute(
        "SELECT count(*) AS rows, sum(archived) AS archived, EXISTS (SELECT 1 FROM turns "
        "WHERE thread_id = ?1 AND batch = ?2 AND state IN ('queued', 'running')) AS is_live "
        "FROM messages WHERE thread_id = ?1 AND batch = ?2",
        (thread_id, batch),
    ).fetchone()
    if not row["rows"]:
        raise NotFoundError(
            f"There is no batch {batch} in thread {thread_id!r}. Nothing was written."
        )
    if row["archived"]:
        raise ConflictError(f"Batch {batch} is archived already. Nothing was written.")
    if row["is_live"]:
        raise ConflictError(f"Batch {batch} is still being processed. Nothing was written.")
    db.execute(
        "UPDATE messages SET archived = 1 WHERE thread_id = ? AND batch = ?", (thread_id, batch)
    )


def newest_summary(db: sqlite3.Connection, thread_id: str) -> Summary | None:
    row = db.execute(
        "SELECT * FROM summaries WHERE thread_id = ? ORDER BY id DESC LIMIT 1", (thread_id,)
    ).fetchone()
    return None if row is None else _to_summary(row)


def _to_summary(row: sqlite3.Row) -> Summary:
    return Summary(
        id=row["id"],
        thread_id=row["thread_id"],
        text=row["text"],
        first_batch=row["first_batch"],
        last_batch=row["last_batch"],
        batches=tuple(from_json(row["batches"])),
        previous_id=row["previous_id"],
        created_at=from_micros(row["created_at"]),
    )

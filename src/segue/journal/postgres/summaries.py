"""Summaries on PostgreSQL: archive and summary in one step."""

from collections.abc import Sequence
from datetime import datetime
from typing import LiteralString

from psycopg.rows import DictRow

from segue.core.errors import ConflictError, NotFoundError, UsageError
from segue.core.plain import storable
from segue.core.snowflake import SnowflakeSource
from segue.journal.inputs import check_newest
from segue.journal.places import ids_above
from segue.journal.postgres.batches import next_id
from segue.journal.postgres.database import (
    Connection,
    Database,
    fetch_all,
    fetch_one,
    fetch_row,
)
from segue.journal.postgres.threads import lock_thread
from segue.journal.records import Summary
from segue.journal.rows import from_json, to_json

# A row for the thread, empty but for `owner` if it has no summary.
NEWEST_SUMMARY: LiteralString = """
    SELECT threads.id AS owner, newest.* FROM threads LEFT JOIN LATERAL (
        SELECT * FROM summaries WHERE thread_id = threads.id ORDER BY id DESC LIMIT 1
    ) AS newest ON true WHERE threads.id = %(thread_id)s
"""


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

        async def step(db: Connection) -> Summary:
            thread = await lock_thread(db, thread_id)
            previous = await newest_summary(db, thread_id)
            check_newest(thread_id, previous, follows)
            await _archive(db, thread_id, batches)
            row = await fetch_row(
                db,
                "INSERT INTO summaries (id, thread_id, text, first_batch, last_batch, batches, "
                "previous_id, created_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s) RETURNING *",
                (
                    await next_id(db, thread_id, ids_above(thread, ids, now)),
                    thread_id,
                    storable(text),
                    min(batches),
                    max(batches),
                    to_json(sorted(batches)),
                    previous.id if previous else None,
                    now,
                ),
            )
            return _to_summary(row)

        return await self._db.write(step)

    async def find_summary(self, thread_id: str) -> Summary | None:
        async def step(db: Connection) -> Summary | None:
            row = await fetch_one(db, NEWEST_SUMMARY, {"thread_id": thread_id})
            return summary_of(row, thread_id)

        return await self._db.look(step)

    async def undo_summary(self, summary: Summary) -> None:
        async def step(db: Connection) -> None:
            await lock_thread(db, summary.thread_id)
            newest = await newest_summary(db, summary.thread_id)
            if newest is None or newest.id != summary.id:
                raise ConflictError(
                    f"Summary {summary.id} is not the newest of thread {summary.thread_id!r}; "
                    "undo the newer ones first. Nothing was written."
                )
            await db.execute(
                "UPDATE messages SET archived = false WHERE thread_id = %s AND batch = ANY(%s)",
                (summary.thread_id, list(newest.batches)),
            )
            await db.execute("DELETE FROM summaries WHERE id = %s", (summary.id,))

        await self._db.write(step)


async def _archive(db: Connection, thread_id: str, batches: Sequence[int]) -> None:
    values = {"thread_id": thread_id, "batches": [*batches]}
    rows = await fetch_all(
        db,
        "SELECT batch, bool_or(archived) AS is_archived, EXISTS (SELECT 1 FROM turns "
        "WHERE thread_id = %(thread_id)s AND turns.batch = messages.batch "
        "AND state IN ('queued', 'running')) AS is_live "
        "FROM messages WHERE thread_id = %(thread_id)s AND batch = ANY(%(batches)s) GROUP BY batch",
        values,
    )
    archived = {row["batch"]: row["is_archived"] for row in rows}
    live = {row["batch"] for row in rows if row["is_live"]}
    for batch in batches:
        if batch not in archived:
            raise NotFoundError(
                f"There is no batch {batch} in thread {thread_id!r}. Nothing was written."
            )
        if archived[batch]:
            raise ConflictError(f"Batch {batch} is archived already. Nothing was written.")
        if batch in live:
            raise ConflictError(f"Batch {batch} is still being processed. Nothing was written.")
        archived[batch] = True  # none is named twice
    await db.execute(
        "UPDATE messages SET archived = true "
        "WHERE thread_id = %(thread_id)s AND batch = ANY(%(batches)s)",
        values,
    )


async def newest_summary(db: Connection, thread_id: str) -> Summary | None:
    row = await fetch_one(
        db,
        "SELECT * FROM summaries WHERE thread_id = %s ORDER BY id DESC LIMIT 1",
        (thread_id,),
    )
    return None if row is None else _to_summary(row)


def summary_of(row: DictRow | None, thread_id: str) -> Summary | None:
    """The newest summary, from the row of the thread; `NotFoundError` if that is not there."""
    if row is None:
        raise NotFoundError(f"There is no thread {thread_id!r}.")
    return None if row["id"] is None else _to_summary(row)


def _to_summary(row: DictRow) -> Summary:
    return Summary(
        id=row["id"],
        thread_id=row["thread_id"],
        text=row["text"],
        first_batch=row["first_batch"],
        last_batch=row["last_batch"],
        batches=tuple(from_json(row["batches"])),
        previous_id=row["previous_id"],
        created_at=row["created_at"],
    )

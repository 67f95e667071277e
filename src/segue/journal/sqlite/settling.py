"""Ending what would have gone on, on SQLite: continuations, and the batches that wait for more.

Called inside the steps of other modules.
"""

import logging
import sqlite3
from datetime import datetime

from segue.core.errors import BackendError, NotFoundError
from segue.core.plain import storable
from segue.core.settle import settle
from segue.journal.places import RisingIds
from segue.journal.records import Turn
from segue.journal.rows import UNREADABLE, to_micros
from segue.journal.sqlite.batches import append_to_batch, batch_of
from segue.journal.sqlite.turns import to_turn

logger = logging.getLogger(__name__)


def cancel_continuations(
    db: sqlite3.Connection, thread_id: str, reason: str, ids: RisingIds, now: datetime
) -> list[int]:
    """Cancel the thread's live continuation timers and settle their batches; the timers' ids."""
    rows = db.execute(
        "UPDATE timers SET state = 'cancelled', state_reason = ?, owner = NULL, wake_at = NULL, "
        "updated_at = ? WHERE thread_id = ? AND kind = 'continuation' "
        "AND state IN ('pending', 'postponed', 'claimed') RETURNING id, batch",
        (storable(reason), to_micros(now), thread_id),
    ).fetchall()
    rows.sort(key=lambda row: row["id"])
    for row in rows:
        settle_batch(db, thread_id, row["batch"], ids, now)
    return [row["id"] for row in rows]


def settle_batch(
    db: sqlite3.Connection, thread_id: str, batch_id: int, ids: RisingIds, now: datetime
) -> None:
    """Close a batch that nothing goes on with. A live turn of it closes it when it ends."""
    try:
        turn = _last_turn(db, thread_id, batch_id)
        batch = batch_of(db, thread_id, batch_id)
    except (BackendError, NotFoundError, *UNREADABLE) as error:
        # It stays open: nothing that fits can be added, and the user must not be held up.
        logger.error("Batch %s was not settled: %s", batch_id, error)  # noqa: TRY400 - the row is the fault
        return
    if turn.is_live:
        return
    closing = settle(batch, ids).messages[len(batch.messages) :]
    append_to_batch(db, turn, closing, ids, now)
    db.execute(
        "UPDATE turns SET left_open = 0 WHERE thread_id = ? AND batch = ?", (thread_id, batch_id)
    )


def _last_turn(db: sqlite3.Connection, thread_id: str, batch_id: int) -> Turn:
    row = db.execute(
        "SELECT * FROM turns WHERE thread_id = ? AND batch = ? ORDER BY id DESC LIMIT 1",
        (thread_id, batch_id),
    ).fetchone()
    if row is None:
        raise NotFoundError(f"Batch {batch_id} of thread {thread_id!r} has no turn.")
    return to_turn(row)

"""Ending what would have gone on, on PostgreSQL: continuations, and the batches that wait for more.

Called inside the steps of other modules, which hold the thread's lock.
"""

import logging
from datetime import datetime

from segue.core.errors import BackendError, NotFoundError
from segue.core.plain import storable
from segue.core.settle import settle
from segue.journal.places import RisingIds
from segue.journal.postgres.batches import append_to_batch, batch_of
from segue.journal.postgres.database import Connection, fetch_all, fetch_one
from segue.journal.postgres.turns import to_turn
from segue.journal.records import Turn
from segue.journal.rows import UNREADABLE

logger = logging.getLogger(__name__)


async def cancel_continuations(
    db: Connection, thread_id: str, reason: str, ids: RisingIds, now: datetime
) -> list[int]:
    """Cancel the thread's live continuation timers and settle their batches; the timers' ids."""
    rows = await fetch_all(
        db,
        "UPDATE timers SET state = 'cancelled', state_reason = %s, owner = NULL, wake_at = NULL, "
        "updated_at = %s WHERE thread_id = %s AND kind = 'continuation' "
        "AND state IN ('pending', 'postponed', 'claimed') RETURNING id, batch",
        (storable(reason), now, thread_id),
    )
    rows.sort(key=lambda row: row["id"])
    for row in rows:
        await settle_batch(db, thread_id, row["batch"], ids, now)
    return [row["id"] for row in rows]


async def settle_batch(
    db: Connection, thread_id: str, batch_id: int, ids: RisingIds, now: datetime
) -> None:
    """Close a batch that nothing goes on with. A live turn of it closes it when it ends."""
    try:
        turn = await _last_turn(db, thread_id, batch_id)
        batch = await batch_of(db, thread_id, batch_id)
    except (BackendError, NotFoundError, *UNREADABLE) as error:
        # It stays open: nothing that fits can be added, and the user must not be held up.
        logger.error("Batch %s was not settled: %s", batch_id, error)  # noqa: TRY400 - the row is the fault
        return
    if turn.is_live:
        return
    closing = settle(batch, ids).messages[len(batch.messages) :]
    await append_to_batch(db, turn, closing, ids, now)
    await db.execute(
        "UPDATE turns SET left_open = false WHERE thread_id = %s AND batch = %s AND left_open",
        (thread_id, batch_id),
    )


async def _last_turn(db: Connection, thread_id: str, batch_id: int) -> Turn:
    row = await fetch_one(
        db,
        "SELECT * FROM turns WHERE thread_id = %s AND batch = %s ORDER BY id DESC LIMIT 1",
        (thread_id, batch_id),
    )
    if row is None:
        raise NotFoundError(f"Batch {batch_id} of thread {thread_id!r} has no turn.")
    return to_turn(row)

"""Arming and ending timers on PostgreSQL.

Called inside the steps of other modules, which hold the thread's lock.
"""

from datetime import datetime

from psycopg.rows import DictRow

from segue.core.plain import storable
from segue.journal.places import RisingIds
from segue.journal.postgres.batches import batch_of
from segue.journal.postgres.database import Connection, fetch_all, fetch_row
from segue.journal.records import NewTimer, Thread, Timer, TimerState, TurnKind
from segue.journal.rows import from_json, to_json


async def arm(
    db: Connection, thread: Thread, timer: NewTimer, ids: RisingIds, now: datetime
) -> Timer:
    """Arm a timer at the thread's present epoch; a follow-up replaces the one that is alive."""
    if timer.batch is not None:
        await batch_of(db, thread.id, timer.batch)
    if timer.kind is TurnKind.FOLLOW_UP:
        await cancel_follow_ups(db, thread.id, "Replaced by a newer timer.", now)
    row = await fetch_row(
        db,
        "INSERT INTO timers (id, thread_id, agent_id, user_id, kind, state, trigger_type, "
        "reason, batch, epoch, due_at, expires_at, missed, payload, wake_at, created_at, "
        "updated_at) VALUES (%(id)s, %(thread_id)s, %(agent_id)s, %(user_id)s, %(kind)s, "
        "'pending', %(trigger_type)s, %(reason)s, %(batch)s, %(epoch)s, %(due_at)s, "
        "%(expires_at)s, %(missed)s, %(payload)s, %(due_at)s, %(now)s, %(now)s) "
        "RETURNING *",
        {
            "id": ids.next(),
            "thread_id": thread.id,
            "agent_id": thread.agent_id,
            "user_id": thread.user_id,
            "kind": timer.kind,
            "trigger_type": timer.trigger_type,
            "reason": None if timer.reason is None else storable(timer.reason),
            "batch": timer.batch,
            "epoch": thread.epoch,
            "due_at": timer.due_at,
            "expires_at": timer.expires_at,
            "missed": timer.missed,
            "payload": to_json(dict(timer.payload)),
            "now": now,
        },
    )
    return to_timer(row)


async def cancel_follow_ups(
    db: Connection, thread_id: str, reason: str, now: datetime
) -> list[int]:
    rows = await fetch_all(
        db,
        "UPDATE timers SET state = 'cancelled', state_reason = %s, owner = NULL, wake_at = NULL, "
        "updated_at = %s WHERE thread_id = %s AND kind = 'follow_up' "
        "AND state IN ('pending', 'postponed', 'claimed') RETURNING id",
        (reason, now, thread_id),
    )
    return sorted(row["id"] for row in rows)


async def end_timer(
    db: Connection, timer_id: int, state: TimerState, reason: str | None, now: datetime
) -> DictRow:
    return await fetch_row(
        db,
        "UPDATE timers SET state = %s, state_reason = %s, owner = NULL, wake_at = NULL, "
        "updated_at = %s WHERE id = %s RETURNING *",
        (state, reason, now, timer_id),
    )


def to_timer(row: DictRow) -> Timer:
    return Timer(
        id=row["id"],
        thread_id=row["thread_id"],
        agent_id=row["agent_id"],
        user_id=row["user_id"],
        kind=TurnKind(row["kind"]),
        state=TimerState(row["state"]),
        trigger_type=row["trigger_type"],
        reason=row["reason"],
        batch=row["batch"],
        epoch=row["epoch"],
        due_at=row["due_at"],
        expires_at=row["expires_at"],
        missed=row["missed"],
        payload=from_json(row["payload"]),
        state_reason=row["state_reason"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )

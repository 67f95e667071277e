"""Arming and ending timers on PostgreSQL.

Called inside the steps of other modules, which hold the thread's lock.
"""

from datetime import datetime
from typing import LiteralString

from psycopg.rows import DictRow

from segue.core.plain import storable
from segue.journal.postgres.batches import batch_of
from segue.journal.postgres.database import Connection, fetch_all, fetch_row
from segue.journal.records import NewTimer, Thread, Timer, TimerState, TurnKind
from segue.journal.rows import from_json, to_json

CANCEL_FOLLOW_UPS: LiteralString = """
    UPDATE timers SET state = 'cancelled', state_reason = %(reason)s, owner = NULL, wake_at = NULL,
        updated_at = %(now)s
    WHERE thread_id = %(thread_id)s AND kind = 'follow_up'
    AND state IN ('pending', 'postponed', 'claimed') RETURNING id
"""
# What is replaced is counted so that it has ended before the new one is stored: the parts of a
# statement have no order of their own, and two at once are refused by the index.
_ARM: LiteralString = """
    WITH replaced AS (
        UPDATE timers SET state = 'cancelled', state_reason = 'Replaced by a newer timer.',
            owner = NULL, wake_at = NULL, updated_at = %(now)s
        WHERE %(kind)s = 'follow_up' AND thread_id = %(thread_id)s AND kind = 'follow_up'
        AND state IN ('pending', 'postponed', 'claimed') RETURNING id
    )
    INSERT INTO timers (id, thread_id, agent_id, user_id, kind, state, trigger_type, reason, batch,
        epoch, due_at, expires_at, missed, payload, wake_at, created_at, updated_at)
    SELECT %(id)s, %(thread_id)s, %(agent_id)s, %(user_id)s, %(kind)s, 'pending', %(trigger_type)s,
        %(reason)s, %(batch)s::bigint, %(epoch)s, %(due_at)s, %(expires_at)s::timestamptz,
        %(missed)s, %(payload)s, %(due_at)s, %(now)s, %(now)s
    FROM (SELECT count(*) FROM replaced) AS ended
    RETURNING *
"""


async def arm(
    db: Connection, thread: Thread, timer: NewTimer, timer_id: int, now: datetime
) -> Timer:
    """Arm a timer at the thread's present epoch; a follow-up replaces the one that is alive.

    The step notes the id.
    """
    if timer.batch is not None:
        await batch_of(db, thread.id, timer.batch)
    row = await fetch_row(
        db,
        _ARM,
        {
            "id": timer_id,
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
    values = {"thread_id": thread_id, "reason": reason, "now": now}
    return sorted(row["id"] for row in await fetch_all(db, CANCEL_FOLLOW_UPS, values))


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

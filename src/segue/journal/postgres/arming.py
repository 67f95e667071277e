"""Arming and ending timers on PostgreSQL.

Called inside the steps of other modules, which hold the thread's lock.
"""

from datetime import datetime
from typing import Any, LiteralString

from psycopg.rows import DictRow

from segue.core.plain import storable
from segue.journal.postgres.batches import batch_of
from segue.journal.postgres.database import Connection, fetch_all, fetch_row
from segue.journal.records import NewTimer, Timer, TimerState, TurnKind
from segue.journal.rows import from_json, to_json

CANCEL_FOLLOW_UPS: LiteralString = """
    UPDATE timers SET state = 'cancelled', state_reason = %(reason)s, owner = NULL, wake_at = NULL,
        updated_at = %(now)s
    WHERE thread_id = %(thread_id)s AND kind = 'follow_up'
    AND state IN ('pending', 'postponed', 'claimed') RETURNING id
"""
# Parts of a statement, to stand after its WITH. What is replaced is counted so that it has ended
# before the new one is stored: parts have no order of their own, and two at once are refused by the
# index.
ARM_TIMER: LiteralString = """
    replaced AS (
        UPDATE timers SET state = 'cancelled', state_reason = 'Replaced by a newer timer.',
            owner = NULL, wake_at = NULL, updated_at = %(now)s
        WHERE %(timer_kind)s = 'follow_up' AND thread_id = %(thread_id)s AND kind = 'follow_up'
        AND state IN ('pending', 'postponed', 'claimed') RETURNING id
    ), armed AS (
        INSERT INTO timers (id, thread_id, agent_id, user_id, kind, state, trigger_type, reason,
            batch, epoch, due_at, expires_at, missed, payload, wake_at, created_at, updated_at)
        SELECT %(timer_id)s, id, agent_id, user_id, %(timer_kind)s, 'pending', %(timer_trigger)s,
            %(timer_reason)s, %(timer_batch)s::bigint, epoch, %(due_at)s,
            %(expires_at)s::timestamptz, %(missed)s, %(timer_payload)s, %(due_at)s, %(now)s,
            %(now)s
        FROM threads, (SELECT count(*) FROM replaced) AS ended WHERE id = %(thread_id)s
        RETURNING *
    )
"""
_ARM: LiteralString = f"WITH {ARM_TIMER} SELECT * FROM armed"  # noqa: S608 - our own words


async def arm(db: Connection, timer: NewTimer, timer_id: int, now: datetime) -> Timer:
    """Arm a timer at the thread's present epoch; a follow-up replaces the one that is alive.

    The step notes the id.
    """
    values = {"thread_id": timer.thread_id, "now": now, **await timer_values(db, timer, timer_id)}
    return to_timer(await fetch_row(db, _ARM, values))


async def timer_values(db: Connection, timer: NewTimer, timer_id: int) -> dict[str, Any]:
    """The values of `ARM_TIMER`; `NotFoundError` if the timer's batch is not there."""
    if timer.batch is not None:
        await batch_of(db, timer.thread_id, timer.batch)
    return {
        "timer_id": timer_id,
        "timer_kind": timer.kind,
        "timer_trigger": timer.trigger_type,
        "timer_reason": None if timer.reason is None else storable(timer.reason),
        "timer_batch": timer.batch,
        "timer_payload": to_json(dict(timer.payload)),
        "due_at": timer.due_at,
        "expires_at": timer.expires_at,
        "missed": timer.missed,
    }


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

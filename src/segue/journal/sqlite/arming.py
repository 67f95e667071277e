"""Arming and ending timers on SQLite. Called inside the steps of other modules."""

import sqlite3
from datetime import datetime

from segue.core.plain import storable
from segue.journal.places import RisingIds
from segue.journal.records import NewTimer, Thread, Timer, TimerState, TurnKind
from segue.journal.rows import from_json, from_micros, to_json, to_micros
from segue.journal.sqlite.batches import batch_of, next_id


def arm(
    db: sqlite3.Connection, thread: Thread, timer: NewTimer, ids: RisingIds, now: datetime
) -> Timer:
    """Arm a timer at the thread's present epoch; a follow-up replaces the one that is alive."""
    if timer.batch is not None:
        batch_of(db, thread.id, timer.batch)
    if timer.kind is TurnKind.FOLLOW_UP:
        cancel_follow_ups(db, thread.id, "Replaced by a newer timer.", now)
    [row] = db.execute(
        "INSERT INTO timers (id, thread_id, agent_id, user_id, kind, state, trigger_type, "
        "reason, batch, epoch, due_at, expires_at, missed, payload, wake_at, created_at, "
        "updated_at) VALUES (?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "RETURNING *",
        (
            next_id(db, thread.id, ids),
            thread.id,
            thread.agent_id,
            thread.user_id,
            timer.kind,
            timer.trigger_type,
            timer.reason and storable(timer.reason),
            timer.batch,
            thread.epoch,
            to_micros(timer.due_at),
            None if timer.expires_at is None else to_micros(timer.expires_at),
            timer.missed,
            to_json(dict(timer.payload)),
            to_micros(timer.due_at),
            to_micros(now),
            to_micros(now),
        ),
    )
    return to_timer(row)


def cancel_follow_ups(
    db: sqlite3.Connection, thread_id: str, reason: str, now: datetime
) -> list[int]:
    rows = db.execute(
        "UPDATE timers SET state = 'cancelled', state_reason = ?, owner = NULL, wake_at = NULL, "
        "updated_at = ? WHERE thread_id = ? AND kind = 'follow_up' "
        "AND state IN ('pending', 'postponed', 'claimed') RETURNING id",
        (storable(reason), to_micros(now), thread_id),
    ).fetchall()
    return sorted(row["id"] for row in rows)


def end_timer(
    db: sqlite3.Connection, timer_id: int, state: TimerState, reason: str | None, now: datetime
) -> None:
    db.execute(
        "UPDATE timers SET state = ?, state_reason = ?, owner = NULL, wake_at = NULL, "
        "updated_at = ? WHERE id = ?",
        (state, reason and storable(reason), to_micros(now), timer_id),
    )


def timer_of(db: sqlite3.Connection, timer_id: int) -> Timer:
    row = db.execute("SELECT * FROM timers WHERE id = ?", (timer_id,)).fetchone()
    return to_timer(row)


def to_timer(row: sqlite3.Row) -> Timer:
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
        due_at=from_micros(row["due_at"]),
        expires_at=None if row["expires_at"] is None else from_micros(row["expires_at"]),
        missed=row["missed"],
        payload=from_json(row["payload"]),
        state_reason=row["state_reason"],
        created_at=from_micros(row["created_at"]),
        updated_at=from_micros(row["updated_at"]),
    )

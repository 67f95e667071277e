"""Timers on SQLite.

`wake_at` is the one column that the worker asks: the due time while a timer waits, the end of the
lease while somebody decides about it, null once it is over.
"""

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from langchain_core.messages import HumanMessage

from segue.core.errors import ConflictError, NotFoundError, UsageError
from segue.core.metadata import BatchType
from segue.core.plain import storable
from segue.core.snowflake import SnowflakeSource
from segue.journal.inputs import (
    CLOCK_SKEW,
    check_epoch,
    check_synthetic,
    check_timer,
    lease_end,
)
from segue.journal.places import NewTurn, RisingIds, ids_above
from segue.journal.records import (
    Decision,
    FollowUpCounts,
    NewTimer,
    Thread,
    Timer,
    TimerLease,
    TimerState,
    Turn,
    TurnKind,
)
from segue.journal.rows import LATEST, UNREADABLE, from_micros, readable, to_micros
from segue.journal.sqlite.arming import arm, cancel_follow_ups, end_timer, timer_of, to_timer
from segue.journal.sqlite.batches import append_to_batch, begin_batch
from segue.journal.sqlite.counts import check_counts, count_follow_ups
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.outbox import record_decisions
from segue.journal.sqlite.settling import cancel_continuations, settle_batch
from segue.journal.sqlite.threads import thread_of
from segue.journal.sqlite.turns import is_void, queue_turn, void_follow_ups

logger = logging.getLogger(__name__)

_ENDS = frozenset(
    {TimerState.CANCELLED, TimerState.SUPPRESSED, TimerState.EXPIRED, TimerState.MISSED}
)
# Leases of a clock that was ahead last from now on.
_PULL_BACK = """
    UPDATE timers INDEXED BY timers_claimed
    SET wake_at = :now + wake_at - updated_at, updated_at = :now
    WHERE state = 'claimed' AND updated_at > :latest
"""


class TimerSteps:
    _db: Database

    async def arm_timer(
        self, timer: NewTimer, *, ids: SnowflakeSource, now: datetime, epoch: int | None = None
    ) -> Timer:
        check_timer(timer)

        def step(db: sqlite3.Connection) -> Timer:
            thread = thread_of(db, timer.thread_id)
            check_epoch(thread, epoch)
            return arm(db, thread, timer, ids_above(thread, ids, now), now)

        return await self._db.write(step)

    async def claim_due_timers(
        self, owner: str, *, now: datetime, lease_for: timedelta, limit: int = 100
    ) -> list[TimerLease]:
        def step(db: sqlite3.Connection) -> list[TimerLease]:
            db.execute(_PULL_BACK, {"now": to_micros(now), "latest": to_micros(now + CLOCK_SKEW)})
            due = db.execute(
                "SELECT * FROM timers WHERE wake_at <= ? ORDER BY wake_at, id LIMIT ?",
                (to_micros(now), limit),
            ).fetchall()
            readable = [row["id"] for row in due if _is_readable(db, row, now)]
            until = to_micros(lease_end(now, lease_for))
            for timer_id in readable:
                db.execute(
                    "UPDATE timers SET state = 'claimed', owner = ?, token = token + 1, "
                    "wake_at = ?, updated_at = ? WHERE id = ?",
                    (owner, until, to_micros(now), timer_id),
                )
            return [_lease_of(db, timer_id) for timer_id in readable]

        return await self._db.write(step)

    async def next_due_at(self) -> datetime | None:
        def step(db: sqlite3.Connection) -> datetime | None:
            row = db.execute(
                "SELECT wake_at FROM timers WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1"
            ).fetchone()
            return None if row is None else from_micros(min(row["wake_at"], to_micros(LATEST)))

        return await self._db.read(step)

    async def count_timers(self, *, limit: int) -> int:
        def step(db: sqlite3.Connection) -> int:
            found: int = db.execute(
                "SELECT count(*) FROM (SELECT 1 FROM timers WHERE wake_at IS NOT NULL LIMIT ?)",
                (limit,),
            ).fetchone()[0]
            return found

        return await self._db.read(step)

    async def fire_timer(
        self,
        lease: TimerLease,
        message: HumanMessage,
        *,
        ids: SnowflakeSource,
        now: datetime,
        counted: FollowUpCounts | None = None,
        decisions: Sequence[Decision] = (),
    ) -> Turn | None:
        check_synthetic(message)

        def step(db: sqlite3.Connection) -> Turn | None:
            timer = lease.timer
            if _state_of(db, timer.id) is TimerState.CANCELLED:
                return None
            _check_timer(db, lease)
            thread = thread_of(db, timer.thread_id)
            if timer.kind is TurnKind.FOLLOW_UP and thread.epoch != timer.epoch:
                end_timer(db, timer.id, TimerState.CANCELLED, "The user wrote.", now)
                return None
            if timer.batch is not None and is_void(db, thread.id, timer.batch):
                end_timer(db, timer.id, TimerState.CANCELLED, "Its follow-up is void.", now)
                return None
            if timer.kind is TurnKind.FOLLOW_UP and counted is not None:
                check_counts(db, thread.id, counted)
            end_timer(db, timer.id, TimerState.FIRED, None, now)
            turn = _queue_fired(db, thread, timer, message, ids_above(thread, ids, now), now)
            record_decisions(db, [_of_turn(decision, turn) for decision in decisions])
            return turn

        return await self._db.write(step)

    async def count_follow_ups(
        self, thread_id: str, *, day_began: datetime, leaving_out: int | None = None
    ) -> FollowUpCounts:
        return await self._db.read(
            lambda db: count_follow_ups(db, thread_id, day_began, leaving_out)
        )

    async def postpone_timer(
        self,
        lease: TimerLease,
        until: datetime,
        reason: str,
        *,
        now: datetime,
        decisions: Sequence[Decision] = (),
    ) -> Timer:
        def step(db: sqlite3.Connection) -> Timer:
            _check_timer(db, lease)
            db.execute(
                "UPDATE timers SET state = 'postponed', due_at = ?, wake_at = ?, state_reason = ?, "
                "owner = NULL, updated_at = ? WHERE id = ?",
                (
                    to_micros(until),
                    to_micros(until),
                    storable(reason),
                    to_micros(now),
                    lease.timer.id,
                ),
            )
            record_decisions(db, decisions)
            return timer_of(db, lease.timer.id)

        return await self._db.write(step)

    async def close_timer(
        self,
        lease: TimerLease,
        state: TimerState,
        reason: str,
        *,
        ids: SnowflakeSource,
        now: datetime,
        decisions: Sequence[Decision] = (),
    ) -> Timer:
        if state not in _ENDS:
            raise UsageError(f"A timer cannot be closed as {state!r}; use one of: {sorted(_ENDS)}.")

        def step(db: sqlite3.Connection) -> Timer:
            timer = lease.timer
            _check_timer(db, lease)
            end_timer(db, timer.id, state, reason, now)
            if timer.batch is not None:
                rising = ids_above(thread_of(db, timer.thread_id), ids, now)
                settle_batch(db, timer.thread_id, timer.batch, rising, now)
            record_decisions(db, decisions)
            return timer_of(db, timer.id)

        return await self._db.write(step)

    async def cancel_timers(
        self, thread_id: str, reason: str, *, ids: SnowflakeSource, now: datetime
    ) -> list[Timer]:
        def step(db: sqlite3.Connection) -> list[Timer]:
            rising = ids_above(thread_of(db, thread_id), ids, now)
            cancelled = cancel_follow_ups(db, thread_id, reason, now)
            cancelled += cancel_continuations(db, thread_id, reason, rising, now)
            void_follow_ups(db, thread_id, storable(reason), now)
            # What is being decided now was decided for the epoch before.
            db.execute("UPDATE threads SET epoch = epoch + 1 WHERE id = ?", (thread_id,))
            return readable(lambda timer_id: timer_of(db, timer_id), sorted(cancelled))

        return await self._db.write(step)

    async def list_timers(self, thread_id: str, *, limit: int = 50) -> list[Timer]:
        sql = "SELECT * FROM timers WHERE thread_id = ? ORDER BY id DESC LIMIT ?"

        def step(db: sqlite3.Connection) -> list[Timer]:
            thread_of(db, thread_id)
            return readable(to_timer, db.execute(sql, (thread_id, limit)))

        return await self._db.read(step)

    async def list_pending_timers(self, *, limit: int = 50) -> list[Timer]:
        sql = "SELECT * FROM timers WHERE wake_at IS NOT NULL ORDER BY wake_at, id LIMIT ?"

        def step(db: sqlite3.Connection) -> list[Timer]:
            return readable(to_timer, db.execute(sql, (limit,)))

        return await self._db.read(step)


def _queue_fired(
    db: sqlite3.Connection,
    thread: Thread,
    timer: Timer,
    message: HumanMessage,
    ids: RisingIds,
    now: datetime,
) -> Turn:
    if timer.batch is None:
        stored = begin_batch(db, thread.id, message, ids, now)
        new = NewTurn(stored.additional_kwargs["batch"], timer.kind)
        return queue_turn(db, thread, new, ids, now)
    turn = queue_turn(db, thread, NewTurn(timer.batch, timer.kind), ids, now)
    append_to_batch(db, turn, [message], ids, now, BatchType.CONTINUATION)
    return turn


def _of_turn(decision: Decision, turn: Turn) -> Decision:
    return decision if decision.turn_id is not None else replace(decision, turn_id=turn.id)


def _is_readable(db: sqlite3.Connection, row: sqlite3.Row, now: datetime) -> bool:
    """Whether a due row makes sense; one that does not is set aside with the reason."""
    try:
        to_timer(row)
    except UNREADABLE as error:
        logger.error("Timer %s cannot be read and is set aside: %s", row["id"], error)  # noqa: TRY400  # the row is the fault, not the code
        end_timer(db, row["id"], TimerState.SUPPRESSED, f"The row cannot be read: {error}", now)
        return False
    return True


def _lease_of(db: sqlite3.Connection, timer_id: int) -> TimerLease:
    row = db.execute("SELECT * FROM timers WHERE id = ?", (timer_id,)).fetchone()
    return TimerLease(to_timer(row), row["owner"], row["token"], from_micros(row["wake_at"]))


def _state_of(db: sqlite3.Connection, timer_id: int) -> TimerState | None:
    row = db.execute("SELECT state FROM timers WHERE id = ?", (timer_id,)).fetchone()
    return None if row is None else TimerState(row["state"])


def _check_timer(db: sqlite3.Connection, lease: TimerLease) -> None:
    row = db.execute("SELECT * FROM timers WHERE id = ?", (lease.timer.id,)).fetchone()
    if row is None:
        raise NotFoundError(f"There is no timer {lease.timer.id}. Nothing was written.")
    if row["state"] != TimerState.CLAIMED:
        raise ConflictError(f"Timer {lease.timer.id} is {row['state']}. Nothing was written.")
    if row["token"] != lease.token:
        raise ConflictError(
            f"The lease of timer {lease.timer.id} now belongs to {row['owner']!r}. "
            "Nothing was written."
        )

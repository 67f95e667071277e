"""Timers on PostgreSQL.

`wake_at` is the one column that the worker asks: the due time while a timer waits, the end of the
lease while somebody decides about it, null once it is over.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import psycopg
from langchain_core.messages import HumanMessage
from psycopg.rows import DictRow

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
from segue.journal.places import NewTurn, RisingIds, ids_above, stamp_now
from segue.journal.postgres.arming import arm, cancel_follow_ups, end_timer, to_timer
from segue.journal.postgres.batches import append_to_batch, message_values, next_id
from segue.journal.postgres.counts import check_counts, count_follow_ups
from segue.journal.postgres.database import Connection, Database, fetch_all, fetch_one, fetch_row
from segue.journal.postgres.outbox import record_decisions
from segue.journal.postgres.settling import cancel_continuations, settle_batch
from segue.journal.postgres.threads import lock_thread, thread_of
from segue.journal.postgres.turns import (
    is_void,
    queue_turn,
    queue_with_message,
    void_follow_ups,
)
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
from segue.journal.rows import LATEST, UNREADABLE, encode_message, readable

logger = logging.getLogger(__name__)

_ENDS = frozenset(
    {TimerState.CANCELLED, TimerState.SUPPRESSED, TimerState.EXPIRED, TimerState.MISSED}
)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
# Leases of a clock that was ahead last from now on.
_PULL_BACK: LiteralString = """
    UPDATE timers SET wake_at = %(now)s + (wake_at - updated_at), updated_at = %(now)s
    WHERE id IN (
        SELECT id FROM timers WHERE state = 'claimed' AND updated_at > %(latest)s
        FOR UPDATE SKIP LOCKED
    )
"""


class TimerSteps:
    _db: Database

    async def arm_timer(
        self, timer: NewTimer, *, ids: SnowflakeSource, now: datetime, epoch: int | None = None
    ) -> Timer:
        check_timer(timer)

        async def step(db: Connection) -> Timer:
            thread = await lock_thread(db, timer.thread_id)
            check_epoch(thread, epoch)
            rising = ids_above(thread, ids, now)
            return await arm(db, timer, await next_id(db, thread.id, rising), now)

        return await self._db.write(step)

    async def claim_due_timers(
        self, owner: str, *, now: datetime, lease_for: timedelta, limit: int = 100
    ) -> list[TimerLease]:
        async def step(db: Connection) -> list[TimerLease]:
            # Locks timers without their threads, but never waits for one.
            await db.execute(_PULL_BACK, {"now": now, "latest": now + CLOCK_SKEW})
            due = await fetch_all(
                db,
                "SELECT id FROM timers WHERE wake_at <= %s ORDER BY wake_at, id LIMIT %s "
                "FOR UPDATE SKIP LOCKED",
                (now, limit),
            )
            sound = await _sound(db, [row["id"] for row in due], now)
            rows = await fetch_all(
                db,
                "UPDATE timers SET state = 'claimed', owner = %s, token = token + 1, "
                "wake_at = %s, updated_at = %s WHERE id = ANY(%s) RETURNING *",
                (owner, lease_end(now, lease_for), now, sound),
            )
            leases = {row["id"]: _to_lease(row) for row in rows}
            return [leases[timer_id] for timer_id in sound]

        return await self._db.write(step)

    async def next_due_at(self) -> datetime | None:
        sql: LiteralString = (
            "SELECT least(greatest(wake_at, %s), %s) AS wake_at FROM timers "
            "WHERE wake_at IS NOT NULL ORDER BY timers.wake_at LIMIT 1"
        )

        async def step(db: Connection) -> datetime | None:
            row = await fetch_one(db, sql, (_EARLIEST, LATEST))
            return None if row is None else row["wake_at"]

        return await self._db.look(step)

    async def count_timers(self, *, limit: int) -> int:
        sql: LiteralString = (
            "SELECT count(*) AS found FROM "
            "(SELECT 1 FROM timers WHERE wake_at IS NOT NULL LIMIT %s) AS awake"
        )

        async def step(db: Connection) -> int:
            found: int = (await fetch_row(db, sql, (limit,)))["found"]
            return found

        return await self._db.look(step)

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

        async def step(db: Connection) -> Turn | None:
            timer = lease.timer
            thread = await lock_thread(db, timer.thread_id)
            row = await _lock_timer(db, timer.id)
            if row["state"] == TimerState.CANCELLED:
                return None
            _check_lease(lease, row)
            if timer.kind is TurnKind.FOLLOW_UP and thread.epoch != timer.epoch:
                await end_timer(db, timer.id, TimerState.CANCELLED, "The user wrote.", now)
                return None
            if timer.batch is not None and await is_void(db, thread.id, timer.batch):
                await end_timer(db, timer.id, TimerState.CANCELLED, "Its follow-up is void.", now)
                return None
            if timer.kind is TurnKind.FOLLOW_UP and counted is not None:
                await check_counts(db, thread, counted)
            await end_timer(db, timer.id, TimerState.FIRED, None, now)
            turn = await _queue_fired(db, thread, timer, message, ids_above(thread, ids, now), now)
            await record_decisions(db, [_of_turn(decision, turn) for decision in decisions])
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
        async def step(db: Connection) -> Timer:
            await lock_thread(db, lease.timer.thread_id)
            await _check_timer(db, lease)
            row = await fetch_row(
                db,
                "UPDATE timers SET state = 'postponed', due_at = %s, wake_at = %s, "
                "state_reason = %s, owner = NULL, updated_at = %s WHERE id = %s RETURNING *",
                (until, until, storable(reason), now, lease.timer.id),
            )
            await record_decisions(db, decisions)
            return to_timer(row)

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

        async def step(db: Connection) -> Timer:
            timer = lease.timer
            thread = await lock_thread(db, timer.thread_id)
            await _check_timer(db, lease)
            row = await end_timer(db, timer.id, state, storable(reason), now)
            if timer.batch is not None:
                await settle_batch(db, thread.id, timer.batch, ids_above(thread, ids, now), now)
            await record_decisions(db, decisions)
            return to_timer(row)

        return await self._db.write(step)

    async def cancel_timers(
        self, thread_id: str, reason: str, *, ids: SnowflakeSource, now: datetime
    ) -> list[Timer]:
        async def step(db: Connection) -> list[Timer]:
            rising = ids_above(await lock_thread(db, thread_id), ids, now)
            cancelled = await cancel_follow_ups(db, thread_id, storable(reason), now)
            cancelled += await cancel_continuations(db, thread_id, reason, rising, now)
            await void_follow_ups(db, thread_id, storable(reason), now)
            # What is being decided now was decided for the epoch before.
            await db.execute("UPDATE threads SET epoch = epoch + 1 WHERE id = %s", (thread_id,))
            return readable(to_timer, await _fetch_each(db, sorted(cancelled)))

        return await self._db.write(step)

    async def list_timers(self, thread_id: str, *, limit: int = 50) -> list[Timer]:
        chosen: LiteralString = "FROM timers WHERE thread_id = %s ORDER BY id DESC LIMIT %s"

        async def step(db: Connection) -> list[Timer]:
            await thread_of(db, thread_id)
            return readable(to_timer, await _fetch(db, chosen, (thread_id, limit)))

        return await self._db.read(step)

    async def list_pending_timers(self, *, limit: int = 50) -> list[Timer]:
        chosen: LiteralString = (
            "FROM timers WHERE wake_at IS NOT NULL ORDER BY wake_at, id LIMIT %s"
        )

        async def step(db: Connection) -> list[Timer]:
            return readable(to_timer, await _fetch(db, chosen, (limit,)))

        return await self._db.read(step)


async def _queue_fired(
    db: Connection,
    thread: Thread,
    timer: Timer,
    message: HumanMessage,
    ids: RisingIds,
    now: datetime,
) -> Turn:
    if timer.batch is None:
        [stamped] = stamp_now([message], ids)
        row = encode_message(stamped)
        values = message_values(thread.id, row, now)
        return await queue_with_message(db, thread, values, NewTurn(row.batch, timer.kind), ids)
    turn = await queue_turn(db, thread, NewTurn(timer.batch, timer.kind), ids, now)
    await append_to_batch(db, turn, [message], ids, now, BatchType.CONTINUATION)
    return turn


def _of_turn(decision: Decision, turn: Turn) -> Decision:
    return decision if decision.turn_id is not None else replace(decision, turn_id=turn.id)


async def _timer_of(db: Connection, timer_id: int) -> Timer:
    return to_timer(await fetch_row(db, "SELECT * FROM timers WHERE id = %s", (timer_id,)))


async def _fetch(db: Connection, chosen: LiteralString, given: tuple[Any, ...]) -> list[DictRow]:
    try:
        return await fetch_all(db, "SELECT * " + chosen, given)
    except psycopg.DataError:
        # A date that Python cannot hold fails the whole fetch.
        rows = await fetch_all(db, "SELECT id " + chosen, given)
        return await _fetch_each(db, [row["id"] for row in rows])


async def _fetch_each(db: Connection, timer_ids: list[int]) -> list[DictRow]:
    """Those of the rows that can be fetched."""
    rows = []
    for timer_id in timer_ids:
        try:
            rows.append(await fetch_row(db, "SELECT * FROM timers WHERE id = %s", (timer_id,)))
        except psycopg.DataError as error:
            logger.error("Timer %s cannot be read and is left out: %s", timer_id, error)  # noqa: TRY400 - the row is the fault
    return rows


async def _sound(db: Connection, timer_ids: list[int], now: datetime) -> list[int]:
    """Those that can be read. All at once, and one by one only where something is wrong."""
    sql: LiteralString = "SELECT * FROM timers WHERE id = ANY(%s)"
    try:
        for row in await fetch_all(db, sql, (timer_ids,)):
            to_timer(row)
    except (*UNREADABLE, psycopg.DataError):
        return [timer_id for timer_id in timer_ids if await _is_sound(db, timer_id, now)]
    return timer_ids


async def _is_sound(db: Connection, timer_id: int, now: datetime) -> bool:
    """Whether a row can be read; if not, it is set aside with the reason.

    Rows are read one by one, because a date that Python cannot hold fails the whole fetch.
    """
    try:
        await _timer_of(db, timer_id)
    except (*UNREADABLE, psycopg.DataError) as error:
        logger.error("Timer %s cannot be read and is set aside: %s", timer_id, error)  # noqa: TRY400 - the row is the fault, not the code
        reason = storable(f"The row cannot be read: {error}")
        await db.execute(
            "UPDATE timers SET state = 'suppressed', state_reason = %s, owner = NULL, "
            "wake_at = NULL, updated_at = %s WHERE id = %s",
            (reason, now, timer_id),
        )
        return False
    return True


async def _check_timer(db: Connection, lease: TimerLease) -> None:
    """Raise unless the lease is still the one that counts; then it counts until the commit."""
    _check_lease(lease, await _lock_timer(db, lease.timer.id))


async def _lock_timer(db: Connection, timer_id: int) -> DictRow:
    sql: LiteralString = "SELECT state, token, owner FROM timers WHERE id = %s FOR UPDATE"
    row = await fetch_one(db, sql, (timer_id,))
    if row is None:
        raise NotFoundError(f"There is no timer {timer_id}. Nothing was written.")
    return row


def _check_lease(lease: TimerLease, row: DictRow) -> None:
    if row["state"] != TimerState.CLAIMED:
        raise ConflictError(f"Timer {lease.timer.id} is {row['state']}. Nothing was written.")
    if row["token"] != lease.token:
        raise ConflictError(
            f"The lease of timer {lease.timer.id} now belongs to {row['owner']!r}. "
            "Nothing was written."
        )


def _to_lease(row: DictRow) -> TimerLease:
    return TimerLease(to_timer(row), row["owner"], row["token"], row["wake_at"])

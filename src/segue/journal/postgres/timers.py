"""Timers on PostgreSQL.

`wake_at` is the one column that the worker asks: the due time while a timer waits, the end of the
lease while somebody decides about it, null once it is over.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import LiteralString

import psycopg
from langchain_core.messages import HumanMessage
from psycopg.rows import DictRow

from segue.core.errors import ConflictError, NotFoundError, UsageError
from segue.core.metadata import BatchType
from segue.core.plain import storable
from segue.core.snowflake import SnowflakeSource
from segue.journal.inputs import check_synthetic, check_timer, lease_end
from segue.journal.postgres.batches import append_to_batch, batch_of, begin_batch, next_id
from segue.journal.postgres.database import (
    Connection,
    Database,
    fetch_all,
    fetch_one,
    fetch_row,
    wake,
)
from segue.journal.postgres.threads import lock_thread, thread_of
from segue.journal.postgres.turns import is_void, queue_turn
from segue.journal.records import NewTimer, Timer, TimerLease, TimerState, Turn, TurnKind
from segue.journal.rows import LATEST, UNREADABLE, from_json, readable, to_json

logger = logging.getLogger(__name__)

_ENDS = frozenset(
    {TimerState.CANCELLED, TimerState.SUPPRESSED, TimerState.EXPIRED, TimerState.MISSED}
)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


class TimerSteps:
    _db: Database

    async def arm_timer(self, timer: NewTimer, *, ids: SnowflakeSource, now: datetime) -> Timer:
        check_timer(timer)

        async def step(db: Connection) -> Timer:
            thread = await lock_thread(db, timer.thread_id)
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
                    "id": await next_id(db, thread.id, ids),
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
            await wake(db, thread.id)
            return to_timer(row)

        return await self._db.write(step)

    async def claim_due_timers(
        self, owner: str, *, now: datetime, lease_for: timedelta, limit: int = 100
    ) -> list[TimerLease]:
        async def step(db: Connection) -> list[TimerLease]:
            # Locks timers without their threads, but never waits for one.
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

        return await self._db.read(step)

    async def fire_timer(
        self, lease: TimerLease, message: HumanMessage, *, ids: SnowflakeSource, now: datetime
    ) -> Turn | None:
        check_synthetic(message)

        async def step(db: Connection) -> Turn | None:
            timer = lease.timer
            thread = await lock_thread(db, timer.thread_id)
            if await _is_cancelled(db, timer.id):
                return None
            await _check_timer(db, lease)
            if timer.kind is TurnKind.FOLLOW_UP and thread.epoch != timer.epoch:
                await _end(db, timer.id, TimerState.CANCELLED, "The user wrote.", now)
                return None
            if timer.batch is not None and await is_void(db, thread.id, timer.batch):
                await _end(db, timer.id, TimerState.CANCELLED, "Its follow-up is void.", now)
                return None
            await _end(db, timer.id, TimerState.FIRED, None, now)
            if timer.batch is None:
                stored = await begin_batch(db, thread.id, message, ids, now)
                batch: int = stored.additional_kwargs["batch"]
                return await queue_turn(db, thread, batch, timer.kind, ids, now)
            turn = await queue_turn(db, thread, timer.batch, timer.kind, ids, now)
            await append_to_batch(db, turn, [message], ids, now, BatchType.CONTINUATION)
            return turn

        return await self._db.write(step)

    async def postpone_timer(
        self, lease: TimerLease, until: datetime, reason: str, *, now: datetime
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
            await wake(db, lease.timer.thread_id)
            return to_timer(row)

        return await self._db.write(step)

    async def close_timer(
        self, lease: TimerLease, state: TimerState, reason: str, *, now: datetime
    ) -> Timer:
        if state not in _ENDS:
            raise UsageError(f"A timer cannot be closed as {state!r}; use one of: {sorted(_ENDS)}.")

        async def step(db: Connection) -> Timer:
            await lock_thread(db, lease.timer.thread_id)
            await _check_timer(db, lease)
            return to_timer(await _end(db, lease.timer.id, state, storable(reason), now))

        return await self._db.write(step)

    async def cancel_timers(self, thread_id: str, reason: str, *, now: datetime) -> list[Timer]:
        async def step(db: Connection) -> list[Timer]:
            await lock_thread(db, thread_id)
            cancelled = await cancel_follow_ups(db, thread_id, storable(reason), now)
            return readable(to_timer, await _fetch_each(db, cancelled))

        return await self._db.write(step)

    async def list_timers(self, thread_id: str, *, limit: int = 50) -> list[Timer]:
        sql: LiteralString = "SELECT * FROM timers WHERE thread_id = %s ORDER BY id DESC LIMIT %s"

        async def step(db: Connection) -> list[Timer]:
            await thread_of(db, thread_id)
            try:
                rows = await fetch_all(db, sql, (thread_id, limit))
            except psycopg.DataError:
                # A date that Python cannot hold fails the whole fetch.
                rows = await _fetch_each(db, await _ids_of(db, thread_id, limit))
            return readable(to_timer, rows)

        return await self._db.read(step)


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


async def _timer_of(db: Connection, timer_id: int) -> Timer:
    return to_timer(await fetch_row(db, "SELECT * FROM timers WHERE id = %s", (timer_id,)))


async def _ids_of(db: Connection, thread_id: str, limit: int) -> list[int]:
    sql: LiteralString = "SELECT id FROM timers WHERE thread_id = %s ORDER BY id DESC LIMIT %s"
    return [row["id"] for row in await fetch_all(db, sql, (thread_id, limit))]


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


async def _is_cancelled(db: Connection, timer_id: int) -> bool:
    row = await fetch_one(db, "SELECT state FROM timers WHERE id = %s", (timer_id,))
    return row is not None and row["state"] == TimerState.CANCELLED


async def _check_timer(db: Connection, lease: TimerLease) -> None:
    """Raise unless the lease is still the one that counts; then it counts until the commit."""
    row = await fetch_one(
        db, "SELECT state, token, owner FROM timers WHERE id = %s FOR UPDATE", (lease.timer.id,)
    )
    if row is None:
        raise NotFoundError(f"There is no timer {lease.timer.id}. Nothing was written.")
    if row["state"] != TimerState.CLAIMED:
        raise ConflictError(f"Timer {lease.timer.id} is {row['state']}. Nothing was written.")
    if row["token"] != lease.token:
        raise ConflictError(
            f"The lease of timer {lease.timer.id} now belongs to {row['owner']!r}. "
            "Nothing was written."
        )


def _to_lease(row: DictRow) -> TimerLease:
    return TimerLease(to_timer(row), row["owner"], row["token"], row["wake_at"])


async def _end(
    db: Connection, timer_id: int, state: TimerState, reason: str | None, now: datetime
) -> DictRow:
    return await fetch_row(
        db,
        "UPDATE timers SET state = %s, state_reason = %s, owner = NULL, wake_at = NULL, "
        "updated_at = %s WHERE id = %s RETURNING *",
        (state, reason, now, timer_id),
    )

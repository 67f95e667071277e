"""The queue of turns on PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import LiteralString

from langchain_core.messages import BaseMessage
from psycopg.rows import DictRow

from segue.core.errors import BackendError, ConflictError, NotFoundError
from segue.core.plain import storable
from segue.core.snowflake import SnowflakeSource
from segue.journal.inputs import lease_end
from segue.journal.postgres.batches import append_to_batch, batch_of, next_id
from segue.journal.postgres.database import (
    WAKE_CHANNEL,
    Connection,
    Database,
    fetch_all,
    fetch_one,
    fetch_row,
    wake,
)
from segue.journal.postgres.outbox import queue_effects
from segue.journal.postgres.threads import lock_thread, thread_of
from segue.journal.records import NewEffect, Thread, Turn, TurnKind, TurnLease, TurnState
from segue.journal.rows import aware, readable

# A thread that another step holds is passed over; `next_turn_at` still names it. The weaker lock
# does not pass over threads whose row is only held by a foreign key.
_NEXT: LiteralString = """
    SELECT turns.* FROM turns JOIN threads ON threads.id = turns.thread_id
    WHERE turns.wake_at <= %s ORDER BY turns.wake_at, turns.id LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
"""


class TurnSteps:
    _db: Database

    async def claim_turn(
        self, owner: str, *, now: datetime, lease_for: timedelta
    ) -> TurnLease | None:
        async def step(db: Connection) -> TurnLease | None:
            row = await _next_sound(db, now)
            if row is None:
                return None
            await db.execute(
                "UPDATE threads SET served_at = %s WHERE id = %s", (now, row["thread_id"])
            )
            claimed = await fetch_row(
                db,
                "UPDATE turns SET state = 'running', owner = %s, token = token + 1, "
                "wake_at = %s, attempts = attempts + 1 WHERE id = %s RETURNING *",
                (owner, lease_end(now, lease_for), row["id"]),
            )
            return _to_lease(claimed)

        try:
            return await self._db.write(step)
        except ConflictError:
            # The index that allows one running turn per thread: somebody else was faster.
            return None

    async def extend_turn(
        self, lease: TurnLease, *, now: datetime, lease_for: timedelta
    ) -> TurnLease:
        async def step(db: Connection) -> TurnLease:
            # The turn's own lock will do, so a heartbeat never waits for the thread.
            await check_turn(db, lease)
            row = await fetch_row(
                db,
                "UPDATE turns SET wake_at = %s WHERE id = %s RETURNING *",
                (lease_end(now, lease_for), lease.turn.id),
            )
            return _to_lease(row)

        return await self._db.write(step)

    async def show_turn(self, lease: TurnLease, *, now: datetime) -> None:
        async def step(db: Connection) -> None:
            await lock_thread(db, lease.turn.thread_id)
            await check_turn(db, lease)
            await db.execute(
                "UPDATE turns SET shown_at = coalesce(shown_at, %s) WHERE id = %s",
                (now, lease.turn.id),
            )

        await self._db.write(step)

    async def release_turn(
        self, lease: TurnLease, *, now: datetime, retry_at: datetime | None = None
    ) -> None:
        async def step(db: Connection) -> None:
            await lock_thread(db, lease.turn.thread_id)
            await check_turn(db, lease)
            await db.execute(
                "UPDATE turns SET state = 'queued', owner = NULL, available_at = %(at)s, "
                "wake_at = %(at)s WHERE id = %(id)s",
                {"at": retry_at or now, "id": lease.turn.id},
            )
            await wake(db, lease.turn.thread_id)

        await self._db.write(step)

    async def finish_turn(
        self,
        lease: TurnLease,
        messages: Sequence[BaseMessage] = (),
        *,
        ids: SnowflakeSource,
        now: datetime,
        effects: Sequence[NewEffect] = (),
    ) -> list[BaseMessage]:
        async def step(db: Connection) -> list[BaseMessage]:
            await lock_thread(db, lease.turn.thread_id)
            await check_turn(db, lease)
            stored = await append_to_batch(db, lease.turn, messages, ids, now)
            await queue_effects(db, lease.turn.thread_id, effects, ids, now)
            await _end(db, lease.turn, TurnState.DONE, None, now)
            return stored

        return await self._db.write(step)

    async def fail_turn(
        self,
        lease: TurnLease,
        error: str,
        *,
        ids: SnowflakeSource,
        now: datetime,
        messages: Sequence[BaseMessage] = (),
    ) -> list[BaseMessage]:
        async def step(db: Connection) -> list[BaseMessage]:
            await lock_thread(db, lease.turn.thread_id)
            await check_turn(db, lease)
            stored = await append_to_batch(db, lease.turn, messages, ids, now)
            await _end(db, lease.turn, TurnState.FAILED, storable(error), now)
            return stored

        return await self._db.write(step)

    async def get_turn(self, turn_id: int) -> Turn:
        return await self._db.read(lambda db: _turn_of(db, turn_id))

    async def list_turns(self, thread_id: str, *, limit: int = 50) -> list[Turn]:
        sql: LiteralString = "SELECT * FROM turns WHERE thread_id = %s ORDER BY id DESC LIMIT %s"

        async def step(db: Connection) -> list[Turn]:
            await thread_of(db, thread_id)
            return readable(to_turn, await fetch_all(db, sql, (thread_id, limit)))

        return await self._db.read(step)

    async def next_turn_at(self, *, now: datetime) -> datetime | None:
        sql: LiteralString = "SELECT min(wake_at) AS at FROM turns WHERE wake_at IS NOT NULL"

        async def step(db: Connection) -> datetime | None:
            at: datetime | None = (await fetch_row(db, sql))["at"]
            return None if at is None else max(at, aware(now))

        return await self._db.read(step)


async def queue_turn(
    db: Connection,
    thread: Thread,
    batch: int,
    kind: TurnKind,
    ids: SnowflakeSource,
    now: datetime,
) -> Turn:
    # Turn ids rise in their thread like positions do, so that their order is that of arrival.
    turn_id = await next_id(db, thread.id, ids)
    await db.execute(
        "INSERT INTO turns (id, thread_id, agent_id, user_id, batch, kind, state, epoch, "
        "queued_at, available_at) VALUES (%s, %s, %s, %s, %s, %s, 'queued', %s, %s, %s)",
        (turn_id, thread.id, thread.agent_id, thread.user_id, batch, kind, thread.epoch, now, now),
    )
    await _wake_first(db, thread.id, now)
    await wake(db, thread.id)
    return await _turn_of(db, turn_id)


async def void_follow_ups(db: Connection, thread_id: str, now: datetime) -> list[int]:
    """Void the thread's follow-up turns of which nothing was shown yet."""
    rows = await fetch_all(
        db,
        "UPDATE turns SET state = 'void', error = 'The user wrote.', finished_at = %s, "
        "owner = NULL, wake_at = NULL WHERE thread_id = %s AND kind = 'follow_up' "
        "AND state IN ('queued', 'running') AND shown_at IS NULL RETURNING id",
        (now, thread_id),
    )
    await _wake_first(db, thread_id, now)
    return sorted(row["id"] for row in rows)


async def is_void(db: Connection, thread_id: str, batch: int) -> bool:
    """Whether the user's words ended a batch before anything of it was seen."""
    sql: LiteralString = (
        "SELECT 1 AS is_void FROM turns WHERE thread_id = %s AND batch = %s AND state = 'void'"
    )
    return await fetch_one(db, sql, (thread_id, batch)) is not None


async def check_turn(db: Connection, lease: TurnLease) -> None:
    """Raise unless the lease is still the one that counts; then it counts until the commit."""
    row = await fetch_one(db, "SELECT * FROM turns WHERE id = %s FOR UPDATE", (lease.turn.id,))
    if row is None:
        raise NotFoundError(f"There is no turn {lease.turn.id}. Nothing was written.")
    if row["state"] != TurnState.RUNNING:
        raise ConflictError(f"Turn {lease.turn.id} is {row['state']}. Nothing was written.")
    if row["token"] != lease.token:
        raise ConflictError(
            f"The lease of turn {lease.turn.id} now belongs to {row['owner']!r}. "
            "Nothing was written."
        )


async def _is_complete(db: Connection, turn: Turn) -> bool:
    try:
        return (await batch_of(db, turn.thread_id, turn.batch)).is_complete
    except BackendError:  # a damaged row must not keep the turn from ending
        return False


async def _next_sound(db: Connection, now: datetime) -> DictRow | None:
    """The next turn to take. A row that cannot be read has failed, and holds up nobody."""
    while True:
        row = await fetch_one(db, _NEXT, (now,))
        if row is None or readable(to_turn, [row]):
            return row
        await db.execute(
            "UPDATE turns SET state = 'failed', error = 'The row cannot be read.', owner = NULL, "
            "wake_at = NULL, left_open = true, finished_at = %s WHERE id = %s",
            (now, row["id"]),
        )
        await _wake_first(db, row["thread_id"], now)


async def _wake_first(db: Connection, thread_id: str, now: datetime) -> None:
    """Let the first live turn of a thread be taken, if it was not the first before.

    That only the first one can be is what keeps a thread's turns in order and one at a time.
    """
    await db.execute(
        "UPDATE turns SET "
        "wake_at = (SELECT least(served_at, %s) FROM threads WHERE threads.id = turns.thread_id) "
        "WHERE wake_at IS NULL AND id = (SELECT min(id) FROM turns "
        "WHERE thread_id = %s AND state IN ('queued', 'running'))",
        (now, thread_id),
    )


async def _turn_of(db: Connection, turn_id: int) -> Turn:
    row = await fetch_one(db, "SELECT * FROM turns WHERE id = %s", (turn_id,))
    if row is None:
        raise NotFoundError(f"There is no turn {turn_id}.")
    return to_turn(row)


def to_turn(row: DictRow) -> Turn:
    return Turn(
        id=row["id"],
        thread_id=row["thread_id"],
        agent_id=row["agent_id"],
        user_id=row["user_id"],
        batch=row["batch"],
        kind=TurnKind(row["kind"]),
        state=TurnState(row["state"]),
        epoch=row["epoch"],
        attempts=row["attempts"],
        queued_at=row["queued_at"],
        available_at=row["available_at"],
        shown_at=row["shown_at"],
        error=row["error"],
    )


def _to_lease(row: DictRow) -> TurnLease:
    return TurnLease(to_turn(row), row["owner"], row["token"], row["wake_at"])


async def _end(
    db: Connection, turn: Turn, state: TurnState, error: str | None, now: datetime
) -> None:
    await db.execute(
        "UPDATE turns SET state = %s, error = %s, finished_at = %s, owner = NULL, wake_at = NULL "
        "WHERE id = %s",
        (state, error, now, turn.id),
    )
    # Noted here, so that open batches are found without reading all. What a turn left open, the
    # turn that goes on may complete.
    is_open = not await _is_complete(db, turn)
    await db.execute(
        "UPDATE turns SET left_open = %(is_open)s "
        "WHERE thread_id = %(thread_id)s AND batch = %(batch)s AND left_open <> %(is_open)s",
        {"is_open": is_open, "thread_id": turn.thread_id, "batch": turn.batch},
    )
    await _wake_first(db, turn.thread_id, now)
    # Others expect this thread to be busy until the lease ends; if it has more to do, tell them.
    await db.execute(
        "SELECT pg_notify(%s, thread_id) FROM turns "
        "WHERE thread_id = %s AND state = 'queued' LIMIT 1",
        (WAKE_CHANNEL, turn.thread_id),
    )

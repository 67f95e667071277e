"""The queue of turns on PostgreSQL. How a turn ends is in `segue.journal.postgres.endings`."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString

from psycopg.rows import DictRow

from segue.core.errors import ConflictError, NotFoundError
from segue.core.plain import storable
from segue.journal.inputs import CLOCK_SKEW, lease_end, seen_before
from segue.journal.places import NewTurn, RisingIds
from segue.journal.postgres.batches import NOTE_IDS, STORE_MESSAGE
from segue.journal.postgres.database import (
    TELL,
    Connection,
    Database,
    fetch_all,
    fetch_one,
    fetch_row,
    tell_of,
)
from segue.journal.postgres.threads import lock_thread, thread_of, to_thread
from segue.journal.records import Claimed, Thread, Turn, TurnKind, TurnLease, TurnState
from segue.journal.rows import aware, from_json, readable, to_json

# One that is held back keeps its time; any other has the place of its thread in the line.
_PLACE: LiteralString = (
    "CASE WHEN %(available_at)s > %(now)s THEN %(available_at)s "
    "ELSE (SELECT least(served_at, %(now)s) FROM threads WHERE id = %(thread_id)s) END"
)
_QUEUE: LiteralString = f"""
    INSERT INTO turns (id, thread_id, agent_id, user_id, batch, kind, state, epoch, payload,
        queued_at, available_at, wake_at)
    VALUES (%(id)s, %(thread_id)s, %(agent_id)s, %(user_id)s, %(batch)s, %(kind)s, 'queued',
        %(epoch)s, %(payload)s, %(now)s, %(available_at)s, CASE WHEN NOT EXISTS (
            SELECT 1 FROM turns WHERE thread_id = %(thread_id)s AND state IN ('queued', 'running')
        ) THEN {_PLACE} END)
    RETURNING *
"""  # noqa: S608 - our own words
_WAKE_FIRST: LiteralString = f"""
    UPDATE turns SET wake_at = {_PLACE.replace("%(available_at)s", "available_at")}
    WHERE wake_at IS NULL AND id = (
        SELECT min(id) FROM turns WHERE thread_id = %(thread_id)s AND state IN ('queued', 'running')
    )
"""  # noqa: S608 - our own words
# Those that the user has seen go on: of which a message is stored, or a piece is kept for others to
# see and the first one was shown long enough ago.
VOID_FOLLOW_UPS: LiteralString = """
    UPDATE turns SET state = 'void', error = %(reason)s, finished_at = %(now)s, owner = NULL,
        wake_at = NULL, shown_at = NULL, partial_id = NULL, partial_text = NULL
    WHERE thread_id = %(thread_id)s AND kind = 'follow_up' AND state IN ('queued', 'running')
    AND (shown_at IS NULL OR (
        (state = 'queued' OR partial_text IS NULL OR shown_at > %(seen_before)s)
        AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.thread_id = turns.thread_id
            AND messages.batch = turns.batch AND visible)
    )) RETURNING id
"""
_NOTE_AND_QUEUE: LiteralString = f"WITH {NOTE_IDS} {_QUEUE}"
_STORE_AND_QUEUE: LiteralString = f"WITH {STORE_MESSAGE} {_QUEUE}"
# Never taken, and either held back by nothing or queued at a time that is still to come: the clock
# was ahead then.
_AHEAD: LiteralString = (
    "state = 'queued' AND attempts = 0 AND wake_at > %(now)s "
    "AND (available_at <= queued_at OR queued_at > %(now)s)"
)
# Leased or given back by a clock that was ahead.
_HELD_AHEAD: LiteralString = "attempts > 0 AND wake_at > %(now)s AND held_at > %(latest)s"
# Turns that were queued or held by a clock that was ahead wait as if that were now, which the next
# claim sees. A thread that another step holds is passed over; `next_turn_at` still names it. The
# weaker lock does not pass over threads whose row is only held by a foreign key. There is a row
# without a turn if none was taken: the time of the next one that can be is the same for all rows.
_CLAIM: LiteralString = f"""
    WITH ahead AS (
        SELECT id FROM turns WHERE {_AHEAD} FOR NO KEY UPDATE SKIP LOCKED
    ), pulled_back AS (
        UPDATE turns SET wake_at = %(now)s + (available_at - queued_at),
            available_at = least(queued_at, %(now)s) + (available_at - queued_at),
            queued_at = least(queued_at, %(now)s)
        FROM ahead WHERE turns.id = ahead.id RETURNING turns.wake_at
    ), held_ahead AS (
        SELECT id FROM turns WHERE {_HELD_AHEAD} FOR NO KEY UPDATE SKIP LOCKED
    ), held_back AS (
        UPDATE turns SET wake_at = %(now)s + (wake_at - held_at), held_at = %(now)s
        FROM held_ahead WHERE turns.id = held_ahead.id RETURNING turns.wake_at
    ), next AS (
        SELECT turns.id, turns.thread_id, turns.wake_at AS waited_since
        FROM turns JOIN threads ON threads.id = turns.thread_id
        WHERE turns.wake_at <= %(now)s ORDER BY turns.wake_at, turns.id LIMIT %(limit)s
        FOR NO KEY UPDATE SKIP LOCKED
    ), served AS (
        UPDATE threads SET served_at = %(now)s FROM next WHERE threads.id = next.thread_id
    ), taken AS (
        UPDATE turns SET state = 'running', owner = %(owner)s, token = token + 1,
            wake_at = %(until)s, held_at = %(now)s, begun_at = %(now)s, attempts = attempts + 1,
            worked = worked + CASE WHEN state = 'running'
                THEN greatest(held_at - begun_at, interval '0') ELSE interval '0' END,
            partial_id = NULL, partial_text = NULL
        FROM next WHERE turns.id = next.id RETURNING turns.*, next.waited_since
    ), others AS (
        SELECT least((SELECT min(wake_at) FROM pulled_back), (SELECT min(wake_at) FROM held_back), (
            SELECT wake_at FROM turns WHERE wake_at IS NOT NULL AND id NOT IN (SELECT id FROM next)
            ORDER BY wake_at LIMIT 1)) AS next_at, EXISTS (SELECT 1 FROM pulled_back) AS was_ahead
    )
    SELECT others.next_at, others.was_ahead, taken.* FROM others LEFT JOIN taken ON true
"""  # noqa: S608 - our own words
_NEXT_AT: LiteralString = f"""
    SELECT least((SELECT min(wake_at) FROM turns WHERE wake_at IS NOT NULL),
        (SELECT %(now)s FROM turns WHERE {_AHEAD} LIMIT 1),
        (SELECT %(now)s FROM turns WHERE {_HELD_AHEAD} LIMIT 1)) AS at
"""  # noqa: S608 - our own words
# Both at once, the thread first as everywhere: the order is that of the names.
_LOCK_BOTH: LiteralString = f"""
    SELECT threads.*, {tell_of("threads.id")}, turns.state, turns.token, turns.owner, turns.kind,
        turns.shown_at
    FROM threads JOIN turns ON turns.thread_id = threads.id
    WHERE threads.id = %s AND turns.id = %s FOR UPDATE OF threads, turns
"""  # noqa: S608 - our own words
# Several times a second, so it waits for nobody but the turn's own steps, and not for the disk
# either: what a crash takes of the text is written again.
_SAVE_PARTIAL: LiteralString = f"""
    UPDATE turns SET partial_id = %s, partial_text = %s
    WHERE id = %s AND state = 'running' AND token = %s
    RETURNING set_config('synchronous_commit', 'off', true), {TELL}
"""  # noqa: S608 - our own words


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a claim took, and when there is more; and whether it cleared the way for another."""

    leases: list[TurnLease]
    next_at: datetime | None
    is_cleared: bool = False


class TurnSteps:
    _db: Database

    async def claim_turn(
        self, owner: str, *, now: datetime, lease_for: timedelta
    ) -> TurnLease | None:
        while True:
            taken = await self._take(owner, now, lease_end(now, lease_for), 1)
            if taken.leases or not taken.is_cleared:
                return taken.leases[0] if taken.leases else None

    async def claim_turns(
        self, owner: str, *, now: datetime, lease_for: timedelta, limit: int
    ) -> Claimed:
        taken = await self._take(owner, now, lease_end(now, lease_for), limit)
        return Claimed(taken.leases, taken.next_at)

    async def _take(self, owner: str, now: datetime, until: datetime, limit: int) -> _Taken:
        values = {"owner": owner, "until": until, "limit": limit, **_moments(now)}
        try:
            rows = await self._db.act(lambda db: fetch_all(db, _CLAIM, values))
        except ConflictError:
            # The index that allows one running turn per thread: somebody else was faster.
            return _Taken([], aware(now))
        next_at = rows[0]["next_at"]
        taken = [row for row in rows if row["id"] is not None]
        # In the order of the line, which the update does not keep.
        taken.sort(key=lambda row: (row["waited_since"], row["id"]))
        sound = [row for row in taken if readable(to_turn, [row])]
        damaged = [row for row in taken if row not in sound]
        for row in damaged:
            await self._set_aside(row, now)
        if sound:
            next_at = until if next_at is None else min(next_at, until)
        if next_at is not None:
            next_at = max(next_at, aware(now))
        is_cleared = bool(damaged) or rows[0]["was_ahead"]
        return _Taken([_to_lease(row) for row in sound], next_at, is_cleared)

    async def _set_aside(self, row: DictRow, now: datetime) -> None:
        """Let a turn that was taken but cannot be read have failed: it holds up nobody."""

        async def step(db: Connection) -> None:
            await lock_thread(db, row["thread_id"])
            await db.execute(
                "UPDATE turns SET state = 'failed', error = 'The row cannot be read.', "
                "owner = NULL, wake_at = NULL, left_open = true, finished_at = %s "
                "WHERE id = %s AND state = 'running' AND token = %s",
                (now, row["id"], row["token"]),
            )
            await wake_first(db, row["thread_id"], now)

        with suppress(NotFoundError):  # somebody deleted the thread
            await self._db.write(step)

    async def extend_turn(
        self, lease: TurnLease, *, now: datetime, lease_for: timedelta
    ) -> TurnLease:
        async def step(db: Connection) -> TurnLease:
            # The turn's own lock will do, so a heartbeat never waits for the thread.
            await check_turn(db, lease)
            row = await fetch_row(
                db,
                "UPDATE turns SET wake_at = %s, held_at = %s WHERE id = %s RETURNING *",
                (lease_end(now, lease_for), now, lease.turn.id),
            )
            return _to_lease(row)

        return await self._db.write(step)

    async def show_turn(self, lease: TurnLease, *, now: datetime) -> None:
        async def step(db: Connection) -> None:
            await lock_turn(db, lease)
            await db.execute(
                "UPDATE turns SET shown_at = coalesce(shown_at, %s) WHERE id = %s",
                (now, lease.turn.id),
            )

        await self._db.write(step)

    async def release_turn(
        self,
        lease: TurnLease,
        *,
        now: datetime,
        retry_at: datetime | None = None,
        is_fault: bool = False,
    ) -> None:
        async def step(db: Connection) -> None:
            await lock_turn(db, lease)
            await db.execute(
                "UPDATE turns SET state = 'queued', owner = NULL, available_at = %(at)s, "
                "wake_at = %(at)s, held_at = %(now)s, faults = faults + %(faults)s, "
                "worked = worked + greatest(%(until)s - begun_at, interval '0') WHERE id = %(id)s",
                {
                    "at": retry_at or now,
                    "now": now,
                    "faults": int(is_fault),
                    "until": (retry_at or now) if is_fault else now,
                    "id": lease.turn.id,
                },
            )

        await self._db.write(step)

    async def save_partial(self, lease: TurnLease, message_id: str, text: str) -> None:
        async def step(db: Connection) -> None:
            values = (message_id, storable(text), lease.turn.id, lease.token)
            if await fetch_one(db, _SAVE_PARTIAL, values) is None:
                await check_turn(db, lease)

        await self._db.write(step)

    async def get_turn(self, turn_id: int) -> Turn:
        return await self._db.look(lambda db: turn_of(db, turn_id))

    async def list_turns(
        self,
        thread_id: str,
        *,
        limit: int = 50,
        batches: Collection[int] | None = None,
        only_waiting: bool = False,
    ) -> list[Turn]:
        sql: LiteralString = "SELECT * FROM turns WHERE thread_id = %s"
        values: list[str | list[int]] = [thread_id]
        if batches is not None:
            sql += " AND batch = ANY(%s)"
            values.append([*batches])
        if only_waiting:
            sql += " AND is_waiting"
        sql += " ORDER BY id DESC LIMIT %s"

        async def step(db: Connection) -> list[Turn]:
            await thread_of(db, thread_id)
            return readable(to_turn, await fetch_all(db, sql, (*values, limit)))

        return await self._db.read(step)

    async def next_turn_at(self, *, now: datetime) -> datetime | None:
        return await self._db.look(lambda db: _next_at(db, now))


async def queue_turn(
    db: Connection, thread: Thread, new: NewTurn, ids: RisingIds, now: datetime
) -> Turn:
    values = _turn_values(thread, new, ids, now) | {"last": ids.last}
    return to_turn(await fetch_row(db, _NOTE_AND_QUEUE, values))


async def queue_with_message(
    db: Connection, thread: Thread, message: Mapping[str, Any], new: NewTurn, ids: RisingIds
) -> Turn:
    """Store the message that begins a turn's batch, and queue the turn."""
    values = _turn_values(thread, new, ids, message["now"])
    return to_turn(await fetch_row(db, _STORE_AND_QUEUE, {**message, **values, "last": ids.last}))


def _turn_values(thread: Thread, new: NewTurn, ids: RisingIds, now: datetime) -> dict[str, Any]:
    return {
        # Turn ids rise in their thread like positions do, so that their order is that of arrival.
        "id": ids.next(),
        "thread_id": thread.id,
        "agent_id": thread.agent_id,
        "user_id": thread.user_id,
        "batch": new.batch,
        "kind": new.kind,
        "epoch": thread.epoch,
        "payload": to_json(dict(new.payload)),
        "now": now,
        "available_at": new.available_at or now,
    }


async def void_follow_ups(db: Connection, thread_id: str, reason: str, now: datetime) -> None:
    """Void the thread's follow-up turns that nobody has seen yet."""
    if await fetch_all(db, VOID_FOLLOW_UPS, void_values(thread_id, reason, now)):
        await wake_first(db, thread_id, now)


def void_values(thread_id: str, reason: str, now: datetime) -> dict[str, Any]:
    values = {"thread_id": thread_id, "reason": reason, "now": now}
    return values | {"seen_before": seen_before(now)}


async def is_void(db: Connection, thread_id: str, batch: int) -> bool:
    """Whether the user's words ended a batch before anything of it was seen."""
    sql: LiteralString = (
        "SELECT 1 AS is_void FROM turns WHERE thread_id = %s AND batch = %s AND state = 'void'"
    )
    return await fetch_one(db, sql, (thread_id, batch)) is not None


async def lock_turn(db: Connection, lease: TurnLease) -> tuple[Thread, DictRow]:
    """Lock the thread like `lock_thread`, and check the turn like `check_turn`."""
    row = await fetch_one(db, _LOCK_BOTH, (lease.turn.thread_id, lease.turn.id))
    if row is None:  # which of the two is not there?
        return await lock_thread(db, lease.turn.thread_id), await check_turn(db, lease)
    _check_lease(lease, row)
    return to_thread(row), row


async def check_turn(db: Connection, lease: TurnLease) -> DictRow:
    """Raise unless the lease is still the one that counts; then it counts until the commit."""
    row = await fetch_one(db, "SELECT * FROM turns WHERE id = %s FOR UPDATE", (lease.turn.id,))
    if row is None:
        raise NotFoundError(f"There is no turn {lease.turn.id}. Nothing was written.")
    _check_lease(lease, row)
    return row


def _check_lease(lease: TurnLease, row: DictRow) -> None:
    if row["state"] != TurnState.RUNNING:
        raise ConflictError(f"Turn {lease.turn.id} is {row['state']}. Nothing was written.")
    if row["token"] != lease.token:
        raise ConflictError(
            f"The lease of turn {lease.turn.id} now belongs to {row['owner']!r}. "
            "Nothing was written."
        )


async def clear_partial(db: Connection, lease: TurnLease) -> None:
    """Forget the text so far, if the lease is still the one that counts; else raise."""
    cleared = await db.execute(
        "UPDATE turns SET partial_id = NULL, partial_text = NULL "
        "WHERE id = %s AND state = 'running' AND token = %s",
        (lease.turn.id, lease.token),
    )
    if cleared.rowcount == 0:
        await check_turn(db, lease)


async def _next_at(db: Connection, now: datetime) -> datetime | None:
    at: datetime | None = (await fetch_row(db, _NEXT_AT, _moments(now)))["at"]
    return None if at is None else max(at, aware(now))


def _moments(now: datetime) -> dict[str, datetime]:
    return {"now": now, "latest": now + CLOCK_SKEW}


async def wake_first(db: Connection, thread_id: str, now: datetime) -> None:
    """Let the first live turn of a thread be taken, if it was not the first before.

    That only the first one can be is what keeps a thread's turns in order and one at a time.
    """
    await db.execute(_WAKE_FIRST, {"now": now, "thread_id": thread_id})


async def turn_of(db: Connection, turn_id: int) -> Turn:
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
        payload=from_json(row["payload"]),
        cancel_requested=row["cancel_requested"],
        is_waiting=row["is_waiting"],
        ending=None if row["ending"] is None else from_json(row["ending"]),
        end_position=row["end_position"],
        faults=row["faults"],
        begun_at=row["begun_at"],
        worked=row["worked"],
    )


def _to_lease(row: DictRow) -> TurnLease:
    return TurnLease(to_turn(row), row["owner"], row["token"], row["wake_at"])

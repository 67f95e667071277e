"""The queue of turns on SQLite."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from langchain_core.messages import BaseMessage

from segue.core.errors import BackendError, ConflictError, NotFoundError
from segue.core.plain import storable
from segue.core.snowflake import SnowflakeSource
from segue.journal.inputs import CLOCK_SKEW, check_ending, lease_end, seen_before
from segue.journal.places import NewTurn, RisingIds, ids_above
from segue.journal.records import (
    Claimed,
    Ending,
    Thread,
    Turn,
    TurnKind,
    TurnLease,
    TurnState,
)
from segue.journal.rows import aware, from_json, from_micros, readable, to_json, to_micros
from segue.journal.sqlite.arming import arm
from segue.journal.sqlite.batches import append_to_batch, batch_of, next_id
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.outbox import queue_effects, record_decisions
from segue.journal.sqlite.threads import thread_of

_NEXT = "SELECT * FROM turns WHERE wake_at <= ? ORDER BY wake_at, id LIMIT 1"
# Never taken, and either held back by nothing or queued at a time that is still to come: the clock
# was ahead then.
_AHEAD = (
    "state = 'queued' AND attempts = 0 AND wake_at > :now "
    "AND (available_at <= queued_at OR queued_at > :now)"
)
_FIND_AHEAD = f"SELECT 1 FROM turns INDEXED BY turns_untried WHERE {_AHEAD} LIMIT 1"  # noqa: S608 - our own words
_PULL_BACK = f"""
    UPDATE turns INDEXED BY turns_untried SET wake_at = :now + available_at - queued_at,
        available_at = min(queued_at, :now) + available_at - queued_at,
        queued_at = min(queued_at, :now)
    WHERE {_AHEAD}
"""  # noqa: S608 - our own words
# Those that the user has seen go on: of which a message is stored, or a piece is kept for others to
# see and the first one was shown long enough ago.
_VOID = """
    -- By name: the planner would rather walk through all turns of the thread.
    UPDATE turns INDEXED BY turns_alive SET state = 'void', error = :reason, finished_at = :now,
        owner = NULL, wake_at = NULL, shown_at = NULL, partial_id = NULL, partial_text = NULL
    WHERE thread_id = :thread AND kind = 'follow_up' AND state IN ('queued', 'running')
    AND (shown_at IS NULL OR (
        (state = 'queued' OR partial_text IS NULL OR shown_at > :seen_before)
        AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.thread_id = turns.thread_id
            AND messages.batch = turns.batch AND visible = 1)
    )) RETURNING id
"""

# Leased or given back by a clock that was ahead.
_HELD_AHEAD = "attempts > 0 AND wake_at > :now AND held_at > :latest"
_FIND_HELD_AHEAD = f"SELECT 1 FROM turns INDEXED BY turns_held WHERE {_HELD_AHEAD} LIMIT 1"  # noqa: S608 - our own words
_PULL_HELD_BACK = f"""
    UPDATE turns INDEXED BY turns_held SET wake_at = :now + wake_at - held_at, held_at = :now
    WHERE {_HELD_AHEAD}
"""  # noqa: S608 - our own words


class TurnSteps:
    _db: Database

    async def claim_turn(
        self, owner: str, *, now: datetime, lease_for: timedelta
    ) -> TurnLease | None:
        def step(db: sqlite3.Connection) -> TurnLease | None:
            _pull_back(db, now)
            return _claim(db, owner, now, lease_for)

        return await self._db.write(step)

    async def claim_turns(
        self, owner: str, *, now: datetime, lease_for: timedelta, limit: int
    ) -> Claimed:
        def step(db: sqlite3.Connection) -> Claimed:
            _pull_back(db, now)
            leases: list[TurnLease] = []
            while len(leases) < limit and (lease := _claim(db, owner, now, lease_for)):
                leases.append(lease)
            return Claimed(leases, _next_at(db, now))

        return await self._db.write(step)

    async def extend_turn(
        self, lease: TurnLease, *, now: datetime, lease_for: timedelta
    ) -> TurnLease:
        def step(db: sqlite3.Connection) -> TurnLease:
            check_turn(db, lease)
            [row] = db.execute(
                "UPDATE turns SET wake_at = ?, held_at = ? WHERE id = ? RETURNING *",
                (to_micros(lease_end(now, lease_for)), to_micros(now), lease.turn.id),
            )
            return _to_lease(row)

        return await self._db.write(step)

    async def show_turn(self, lease: TurnLease, *, now: datetime) -> None:
        def step(db: sqlite3.Connection) -> None:
            check_turn(db, lease)
            db.execute(
                "UPDATE turns SET shown_at = coalesce(shown_at, ?) WHERE id = ?",
                (to_micros(now), lease.turn.id),
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
        def step(db: sqlite3.Connection) -> None:
            check_turn(db, lease)
            db.execute(
                "UPDATE turns SET state = 'queued', owner = NULL, available_at = :at, "
                "wake_at = :at, held_at = :now, faults = faults + :is_fault, "
                "worked = worked + coalesce(max(iif(:is_fault, :at, :now) - begun_at, 0), 0) "
                "WHERE id = :id",
                {
                    "at": to_micros(retry_at or now),
                    "now": to_micros(now),
                    "is_fault": is_fault,
                    "id": lease.turn.id,
                },
            )

        await self._db.write(step)

    async def finish_turn(
        self,
        lease: TurnLease,
        messages: Sequence[BaseMessage] = (),
        *,
        ids: SnowflakeSource,
        now: datetime,
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> list[BaseMessage]:
        check_ending(lease.turn, ending)

        def step(db: sqlite3.Connection) -> list[BaseMessage]:
            check_turn(db, lease)
            thread = thread_of(db, lease.turn.thread_id)
            rising = ids_above(thread, ids, now)
            stored = append_to_batch(db, lease.turn, messages, rising, now)
            _end(db, lease.turn, TurnState.DONE, None, now)
            _record(db, thread, lease.turn, ending, rising, now)
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
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> list[BaseMessage]:
        check_ending(lease.turn, ending)

        def step(db: sqlite3.Connection) -> list[BaseMessage]:
            check_turn(db, lease)
            thread = thread_of(db, lease.turn.thread_id)
            rising = ids_above(thread, ids, now)
            stored = append_to_batch(db, lease.turn, messages, rising, now)
            _end(db, lease.turn, TurnState.FAILED, storable(error), now)
            _record(db, thread, lease.turn, ending, rising, now)
            return stored

        return await self._db.write(step)

    async def withdraw_turn(
        self,
        lease: TurnLease,
        reason: str,
        *,
        ids: SnowflakeSource,
        now: datetime,
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> None:
        check_ending(lease.turn, ending)

        def step(db: sqlite3.Connection) -> None:
            check_turn(db, lease)
            turn = turn_of(db, lease.turn.id)
            if turn.kind is not TurnKind.FOLLOW_UP or turn.shown_at is not None:
                raise ConflictError(
                    f"Turn {turn.id} is a {turn.kind} or was shown; only a follow-up of which "
                    "nothing was shown can be withdrawn. Nothing was written."
                )
            _end(db, turn, TurnState.VOID, storable(reason), now)
            thread = thread_of(db, turn.thread_id)
            _record(db, thread, turn, ending, ids_above(thread, ids, now), now)

        await self._db.write(step)

    async def save_partial(self, lease: TurnLease, message_id: str, text: str) -> None:
        def step(db: sqlite3.Connection) -> None:
            saved = db.execute(
                "UPDATE turns SET partial_id = ?, partial_text = ? "
                "WHERE id = ? AND state = 'running' AND token = ?",
                (message_id, storable(text), lease.turn.id, lease.token),
            )
            if saved.rowcount == 0:
                check_turn(db, lease)

        await self._db.write(step)

    async def get_turn(self, turn_id: int) -> Turn:
        return await self._db.read(lambda db: turn_of(db, turn_id))

    async def list_turns(
        self,
        thread_id: str,
        *,
        limit: int = 50,
        batches: Collection[int] | None = None,
        only_waiting: bool = False,
    ) -> list[Turn]:
        sql, values = "SELECT * FROM turns WHERE thread_id = ?", [thread_id]
        if batches is not None:
            sql += " AND batch IN (SELECT value FROM json_each(?))"
            values.append(to_json([*batches]))
        if only_waiting:
            sql += " AND is_waiting = 1"
        sql += " ORDER BY id DESC LIMIT ?"

        def step(db: sqlite3.Connection) -> list[Turn]:
            thread_of(db, thread_id)
            return readable(to_turn, db.execute(sql, (*values, limit)))

        return await self._db.read(step)

    async def next_turn_at(self, *, now: datetime) -> datetime | None:
        return await self._db.read(lambda db: _next_at(db, now))


def queue_turn(
    db: sqlite3.Connection, thread: Thread, new: NewTurn, ids: RisingIds, now: datetime
) -> Turn:
    [row] = db.execute(
        "INSERT INTO turns (id, thread_id, agent_id, user_id, batch, kind, state, epoch, payload, "
        "queued_at, available_at) VALUES (?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?) RETURNING *",
        (
            # Turn ids rise in their thread like positions do, so that their order is that of
            # arrival.
            next_id(db, thread.id, ids),
            thread.id,
            thread.agent_id,
            thread.user_id,
            new.batch,
            new.kind,
            thread.epoch,
            to_json(dict(new.payload)),
            to_micros(now),
            to_micros(new.available_at or now),
        ),
    )
    wake_first(db, thread.id, now)
    return to_turn(row)


def void_follow_ups(
    db: sqlite3.Connection, thread_id: str, reason: str, now: datetime
) -> list[int]:
    """Void the thread's follow-up turns that nobody has seen yet."""
    values = {
        "reason": reason,
        "now": to_micros(now),
        "thread": thread_id,
        "seen_before": to_micros(seen_before(now)),
    }
    rows = db.execute(_VOID, values).fetchall()
    if rows:
        wake_first(db, thread_id, now)
    return sorted(row["id"] for row in rows)


def is_void(db: sqlite3.Connection, thread_id: str, batch: int) -> bool:
    """Whether the user's words ended a batch before anything of it was seen."""
    sql = "SELECT 1 FROM turns WHERE thread_id = ? AND batch = ? AND state = 'void'"
    return db.execute(sql, (thread_id, batch)).fetchone() is not None


def check_turn(db: sqlite3.Connection, lease: TurnLease) -> None:
    """Raise unless the lease is still the one that counts."""
    sql = "SELECT state, token, owner FROM turns WHERE id = ?"
    row = db.execute(sql, (lease.turn.id,)).fetchone()
    if row is None:
        raise NotFoundError(f"There is no turn {lease.turn.id}. Nothing was written.")
    if row["state"] != TurnState.RUNNING:
        raise ConflictError(f"Turn {lease.turn.id} is {row['state']}. Nothing was written.")
    if row["token"] != lease.token:
        raise ConflictError(
            f"The lease of turn {lease.turn.id} now belongs to {row['owner']!r}. "
            "Nothing was written."
        )


def _is_complete(db: sqlite3.Connection, turn: Turn) -> bool:
    try:
        return batch_of(db, turn.thread_id, turn.batch).is_complete
    except BackendError:  # a damaged row must not keep the turn from ending
        return False


def _claim(
    db: sqlite3.Connection, owner: str, now: datetime, lease_for: timedelta
) -> TurnLease | None:
    until = to_micros(lease_end(now, lease_for))
    row = _next_sound(db, now)
    if row is None:
        return None
    [row] = db.execute(
        "UPDATE turns SET state = 'running', owner = ?, token = token + 1, "
        "wake_at = ?, held_at = ?, begun_at = ?, attempts = attempts + 1, "
        # Of a worker that was not heard of again, up to its last sign of life.
        "worked = worked + iif(state = 'running', coalesce(max(held_at - begun_at, 0), 0), 0), "
        "partial_id = NULL, partial_text = NULL WHERE id = ? RETURNING *",
        (owner, until, to_micros(now), to_micros(now), row["id"]),
    )
    db.execute("UPDATE threads SET served_at = ? WHERE id = ?", (to_micros(now), row["thread_id"]))
    return _to_lease(row)


def _pull_back(db: sqlite3.Connection, now: datetime) -> None:
    """Let turns that were queued or leased by a clock that was ahead wait as if that were now."""
    db.execute(_PULL_BACK, {"now": to_micros(now)})
    db.execute(_PULL_HELD_BACK, _moments(now))


def _moments(now: datetime) -> dict[str, int]:
    return {"now": to_micros(now), "latest": to_micros(now + CLOCK_SKEW)}


def _next_at(db: sqlite3.Connection, now: datetime) -> datetime | None:
    (micros,) = db.execute("SELECT min(wake_at) FROM turns WHERE wake_at IS NOT NULL").fetchone()
    if micros is None:
        return None
    if db.execute(_FIND_AHEAD, {"now": to_micros(now)}).fetchone() is not None:
        return aware(now)
    if db.execute(_FIND_HELD_AHEAD, _moments(now)).fetchone() is not None:
        return aware(now)
    return max(from_micros(micros), aware(now))


def _next_sound(db: sqlite3.Connection, now: datetime) -> sqlite3.Row | None:
    """The next turn to take. A row that cannot be read has failed, and holds up nobody."""
    while True:
        row: sqlite3.Row | None = db.execute(_NEXT, (to_micros(now),)).fetchone()
        if row is None or readable(to_turn, [row]):
            return row
        db.execute(
            "UPDATE turns SET state = 'failed', error = 'The row cannot be read.', owner = NULL, "
            "wake_at = NULL, left_open = 1, finished_at = ? WHERE id = ?",
            (to_micros(now), row["id"]),
        )
        wake_first(db, row["thread_id"], now)


def wake_first(db: sqlite3.Connection, thread_id: str, now: datetime) -> None:
    """Let the first live turn of a thread be taken, if it was not the first before.

    That only the first one can be is what keeps a thread's turns in order and one at a time.
    """
    db.execute(
        # One that is held back keeps its time; any other has the place of its thread in the line.
        "UPDATE turns SET wake_at = CASE WHEN available_at > :now THEN available_at ELSE "
        "(SELECT min(served_at, :now) FROM threads WHERE threads.id = turns.thread_id) END "
        "WHERE wake_at IS NULL AND id = (SELECT min(id) FROM turns INDEXED BY turns_alive "
        "WHERE thread_id = :thread AND state IN ('queued', 'running'))",
        {"now": to_micros(now), "thread": thread_id},
    )


def turn_of(db: sqlite3.Connection, turn_id: int) -> Turn:
    row = db.execute("SELECT * FROM turns WHERE id = ?", (turn_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"There is no turn {turn_id}.")
    return to_turn(row)


def to_turn(row: sqlite3.Row) -> Turn:
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
        queued_at=from_micros(row["queued_at"]),
        available_at=from_micros(row["available_at"]),
        shown_at=None if row["shown_at"] is None else from_micros(row["shown_at"]),
        error=row["error"],
        payload=from_json(row["payload"]),
        cancel_requested=bool(row["cancel_requested"]),
        is_waiting=bool(row["is_waiting"]),
        ending=None if row["ending"] is None else from_json(row["ending"]),
        end_position=row["end_position"],
        faults=row["faults"],
        begun_at=None if row["begun_at"] is None else from_micros(row["begun_at"]),
        worked=timedelta(microseconds=row["worked"]),
    )


def _to_lease(row: sqlite3.Row) -> TurnLease:
    return TurnLease(to_turn(row), row["owner"], row["token"], from_micros(row["wake_at"]))


def _end(
    db: sqlite3.Connection, turn: Turn, state: TurnState, error: str | None, now: datetime
) -> None:
    db.execute(
        "UPDATE turns SET state = ?, error = ?, finished_at = ?, owner = NULL, wake_at = NULL, "
        "partial_id = NULL, partial_text = NULL WHERE id = ?",
        (state, error, to_micros(now), turn.id),
    )
    # Noted here, so that open batches are found without reading all. What a turn left open, the
    # turn that goes on may complete. With a void one nobody goes on.
    is_open = state is not TurnState.VOID and not _is_complete(db, turn)
    db.execute(
        "UPDATE turns SET left_open = ? WHERE thread_id = ? AND batch = ?",
        (is_open, turn.thread_id, turn.batch),
    )
    wake_first(db, turn.thread_id, now)


def _record(
    db: sqlite3.Connection,
    thread: Thread,
    turn: Turn,
    ending: Ending,
    ids: RisingIds,
    now: datetime,
) -> None:
    """Store what follows from a turn's end."""
    queue_effects(db, thread.id, ending.effects, ids, now)
    for timer in ending.timers:
        # Once the user wrote, a follow-up is no longer on what was said last.
        if turn.epoch == thread.epoch or timer.kind is not TurnKind.FOLLOW_UP:
            arm(db, thread, timer, ids, now)
    record_decisions(db, ending.decisions)
    if ending.is_waiting:
        db.execute("UPDATE turns SET is_waiting = 1 WHERE id = ?", (turn.id,))
    if ending.says is not None:
        db.execute(
            "UPDATE turns SET ending = ?, end_position = ? WHERE id = ?",
            (to_json(dict(ending.says)), next_id(db, thread.id, ids), turn.id),
        )

"""What a user says on SQLite: messages that come in, answers to what a turn asked, and "stop"."""

import sqlite3
from dataclasses import replace
from datetime import datetime
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.errors import ConflictError
from segue.core.plain import storable
from segue.core.snowflake import MAX_ID, SnowflakeSource
from segue.journal.inputs import (
    answered,
    check_answer,
    check_arrival,
    check_real,
    collected_until,
)
from segue.journal.places import (
    NewTurn,
    RisingIds,
    ids_above,
    stamp_arrival,
    stamp_now,
    with_sender,
)
from segue.journal.records import (
    ANSWERED,
    STOPPED,
    WROTE,
    Accepted,
    Arrival,
    Thread,
    Turn,
    TurnKind,
)
from segue.journal.rows import decode_message, readable, to_json, to_micros
from segue.journal.sqlite.arming import cancel_follow_ups
from segue.journal.sqlite.batches import insert_message
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.settling import cancel_continuations, settle_batch
from segue.journal.sqlite.threads import thread_of
from segue.journal.sqlite.turns import queue_turn, to_turn, turn_of, void_follow_ups, wake_first


class ArrivalSteps:
    _db: Database

    async def accept_message(
        self,
        thread_id: str,
        message: HumanMessage,
        *,
        ids: SnowflakeSource,
        now: datetime,
        client_message_id: str | None = None,
        arrival: Arrival = Arrival(),  # noqa: B008 - it is frozen
    ) -> Accepted:
        check_real(message)
        check_arrival(arrival)

        def step(db: sqlite3.Connection) -> Accepted:
            thread = thread_of(db, thread_id)
            if earlier := _accepted_before(db, thread_id, client_message_id):
                return earlier
            if arrival.only_if_idle:
                _refuse_while_busy(db, thread_id)
            rising = ids_above(thread, ids, now)
            _settle_waiting(db, thread_id, rising, now)
            timers, turns = _end_follow_ups(db, thread_id, WROTE, now)
            thread = replace(thread, epoch=thread.epoch + 1)
            turn = _collecting(db, thread_id, arrival, now)
            if turn is None:
                stored = stamp_arrival(message, arrival, rising)
                insert_message(db, thread_id, stored, now, client_message_id)
                new = _new_turn(stored.additional_kwargs["batch"], arrival, now)
                turn = queue_turn(db, thread, new, rising, now)
            else:
                stored = _stamp_next(db, turn, with_sender(message, arrival), rising)
                insert_message(db, thread_id, stored, now, client_message_id)
                turn = _wait_on(db, thread, turn, arrival, now)
            shown = _shown_turn(db, thread_id)
            return Accepted(stored, turn, True, tuple(timers), tuple(turns), shown)

        return await self._db.write(step)

    async def answer_turn(
        self, turn_id: int, answer: Any, *, ids: SnowflakeSource, now: datetime
    ) -> Turn:
        check_answer(answer)

        def step(db: sqlite3.Connection) -> Turn:
            asked = turn_of(db, turn_id)
            if not asked.is_waiting:
                raise ConflictError(
                    f"Turn {turn_id} does not wait for an answer (any more). Nothing was written."
                )
            _end_follow_ups(db, asked.thread_id, ANSWERED, now)
            db.execute("UPDATE turns SET is_waiting = 0 WHERE id = ?", (turn_id,))
            thread = thread_of(db, asked.thread_id)
            new = NewTurn(asked.batch, TurnKind.REPLY, answered(asked, answer))
            return queue_turn(db, thread, new, ids_above(thread, ids, now), now)

        return await self._db.write(step)

    async def cancel_turns(
        self,
        thread_id: str,
        reason: str = STOPPED,
        *,
        ids: SnowflakeSource,
        now: datetime,
        before: int | None = None,
        only: int | None = None,
    ) -> list[Turn]:
        def step(db: sqlite3.Connection) -> list[Turn]:
            thread = thread_of(db, thread_id)
            rows = db.execute(
                # By name: the planner would rather walk through all turns of the thread.
                # One that is held back ends at once.
                "UPDATE turns INDEXED BY turns_alive SET cancel_requested = 1, "
                "error = coalesce(error, :reason), "
                "wake_at = iif(state = 'queued', min(wake_at, :now), wake_at) "
                "WHERE thread_id = :thread AND state IN ('queued', 'running') AND id < :before "
                "AND id = coalesce(:only, id) RETURNING *",
                {
                    "reason": storable(reason),
                    "now": to_micros(now),
                    "thread": thread_id,
                    "before": MAX_ID if before is None else before,
                    "only": only,
                },
            ).fetchall()
            if before is None and only is None:
                cancel_continuations(db, thread_id, reason, ids_above(thread, ids, now), now)
            return readable(to_turn, sorted(rows, key=lambda row: row["id"]))

        return await self._db.write(step)


def _accepted_before(
    db: sqlite3.Connection, thread_id: str, client_message_id: str | None
) -> Accepted | None:
    if client_message_id is None:
        return None
    row = db.execute(
        "SELECT body, batch FROM messages WHERE thread_id = ? AND client_message_id = ?",
        (thread_id, client_message_id),
    ).fetchone()
    if row is None:
        return None
    turn = db.execute(
        "SELECT * FROM turns WHERE thread_id = ? AND batch = ? ORDER BY id LIMIT 1",
        (thread_id, row["batch"]),
    ).fetchone()
    return Accepted(decode_message(row["body"]), to_turn(turn), False)


def _shown_turn(db: sqlite3.Connection, thread_id: str) -> int | None:
    """The live follow-up that the user has seen the beginning of."""
    (shown,) = db.execute(
        "SELECT min(id) FROM turns INDEXED BY turns_alive WHERE thread_id = ? "
        "AND state IN ('queued', 'running') AND kind = 'follow_up' AND shown_at IS NOT NULL",
        (thread_id,),
    ).fetchone()
    return None if shown is None else int(shown)


def _refuse_while_busy(db: sqlite3.Connection, thread_id: str) -> None:
    busy = db.execute(
        "SELECT 1 FROM turns INDEXED BY turns_alive WHERE thread_id = ? "
        "AND state IN ('queued', 'running') AND kind != 'follow_up' LIMIT 1",
        (thread_id,),
    ).fetchone()
    if busy is not None:
        raise ConflictError(
            f"An answer is being written in thread {thread_id!r}; send the message when it is "
            "done. Nothing was written."
        )


def _end_follow_ups(
    db: sqlite3.Connection, thread_id: str, reason: str, now: datetime
) -> tuple[list[int], list[int]]:
    """The user spoke: the epoch rises, and what was to be said unasked is not said."""
    timers = cancel_follow_ups(db, thread_id, reason, now)
    turns = void_follow_ups(db, thread_id, reason, now)
    db.execute("UPDATE threads SET epoch = epoch + 1 WHERE id = ?", (thread_id,))
    return timers, turns


def _settle_waiting(db: sqlite3.Connection, thread_id: str, ids: RisingIds, now: datetime) -> None:
    """Close what waits for an answer: the user said something else instead."""
    rows = db.execute(
        "SELECT id, batch FROM turns WHERE thread_id = ? AND is_waiting = 1 ORDER BY id",
        (thread_id,),
    ).fetchall()
    for row in rows:
        db.execute("UPDATE turns SET is_waiting = 0 WHERE id = ?", (row["id"],))
        settle_batch(db, thread_id, row["batch"], ids, now)


def _collecting(
    db: sqlite3.Connection, thread_id: str, arrival: Arrival, now: datetime
) -> Turn | None:
    """The turn that a message may join: the last in line, not taken yet and held back for more.

    One that is to be stopped is none: nobody would answer the message.
    """
    if arrival.collect is None:
        return None
    row = db.execute(
        "SELECT * FROM turns INDEXED BY turns_alive WHERE thread_id = ? "
        "AND state IN ('queued', 'running') ORDER BY id DESC LIMIT 1",
        (thread_id,),
    ).fetchone()
    if row is None:
        return None
    is_collecting = (
        row["state"] == "queued"
        and row["kind"] == TurnKind.REPLY
        and row["attempts"] == 0
        and row["available_at"] > to_micros(now)
        and not row["cancel_requested"]
    )
    return to_turn(row) if is_collecting else None


def _stamp_next(
    db: sqlite3.Connection, turn: Turn, message: BaseMessage, ids: RisingIds
) -> BaseMessage:
    last = db.execute(
        "SELECT batch_type, parent_batch, sequence_num FROM messages "
        "WHERE thread_id = ? AND batch = ? ORDER BY sequence_num DESC LIMIT 1",
        (turn.thread_id, turn.batch),
    ).fetchone()
    [stamped] = stamp_now(
        [message],
        ids,
        turn.batch,
        last["batch_type"],
        start=last["sequence_num"] + 1,
        parent_batch=last["parent_batch"],
    )
    return stamped


def _new_turn(batch: int, arrival: Arrival, now: datetime) -> NewTurn:
    return NewTurn(batch, TurnKind.REPLY, arrival.payload, _held_until(arrival, now, now))


def _held_until(arrival: Arrival, queued_at: datetime, now: datetime) -> datetime | None:
    if arrival.collect is None:
        return None
    return collected_until(arrival.collect, now=now, queued_at=queued_at)


def _wait_on(
    db: sqlite3.Connection, thread: Thread, turn: Turn, arrival: Arrival, now: datetime
) -> Turn:
    """Let the turn wait for more. It answers the newest of its messages, so it has that epoch."""
    until = _held_until(arrival, turn.queued_at, now)
    [row] = db.execute(
        "UPDATE turns SET epoch = ?, payload = ?, available_at = coalesce(?, available_at), "
        "wake_at = NULL WHERE id = ? RETURNING *",
        (
            thread.epoch,
            to_json({**turn.payload, **arrival.payload}),
            None if until is None else to_micros(until),
            turn.id,
        ),
    )
    wake_first(db, thread.id, now)
    return to_turn(row)

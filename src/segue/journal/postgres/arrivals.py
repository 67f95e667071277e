"""What a user says on PostgreSQL: messages, answers to what a turn asked, and "stop"."""

from dataclasses import replace
from datetime import datetime
from typing import Any, LiteralString

from langchain_core.messages import BaseMessage, HumanMessage
from psycopg.rows import DictRow

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
from segue.journal.postgres.arming import CANCEL_FOLLOW_UPS
from segue.journal.postgres.batches import insert_message, message_values
from segue.journal.postgres.database import Connection, Database, fetch_all, fetch_one, fetch_row
from segue.journal.postgres.settling import cancel_continuations, settle_batch
from segue.journal.postgres.threads import lock_thread
from segue.journal.postgres.turns import (
    VOID_FOLLOW_UPS,
    queue_turn,
    queue_with_message,
    to_turn,
    turn_of,
    void_values,
    wake_first,
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
from segue.journal.rows import decode_message, encode_message, readable, to_json

_USER_SPOKE: LiteralString = f"""
    WITH cancelled AS ({CANCEL_FOLLOW_UPS}), voided AS ({VOID_FOLLOW_UPS})
    SELECT ARRAY(SELECT id FROM cancelled ORDER BY id) AS timers,
        ARRAY(SELECT id FROM voided ORDER BY id) AS turns,
        (SELECT min(id) FROM turns WHERE thread_id = %(thread_id)s AND kind = 'follow_up'
            AND state IN ('queued', 'running') AND shown_at IS NOT NULL
            AND id NOT IN (SELECT id FROM voided)) AS shown,
        EXISTS (SELECT 1 FROM turns WHERE thread_id = %(thread_id)s AND is_waiting) AS is_asked
"""  # noqa: S608 - our own words


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

        async def step(db: Connection) -> Accepted:
            thread = await lock_thread(db, thread_id)
            if earlier := await _accepted_before(db, thread_id, client_message_id):
                return earlier
            if arrival.only_if_idle:
                await _refuse_while_busy(db, thread_id)
            rising = ids_above(thread, ids, now)
            ended = await _end_follow_ups(db, thread_id, WROTE, now)
            if ended["is_asked"]:
                await _settle_waiting(db, thread_id, rising, now)
            thread = replace(thread, epoch=thread.epoch + 1)
            turn = await _find_collecting(db, thread_id, arrival, now)
            if turn is None:
                stored = stamp_arrival(message, arrival, rising)
            else:
                stored = await _stamp_next(db, turn, with_sender(message, arrival), rising)
            values = message_values(thread_id, encode_message(stored), now)
            values |= {"client_message_id": client_message_id, "spoken": 1}
            if turn is None:
                new = _new_turn(values["batch"], arrival, now)
                turn = await queue_with_message(db, thread, values, new, rising)
            else:
                await insert_message(db, values)
                turn = await _wait_on(db, thread, turn, arrival, now)
            return Accepted(
                stored, turn, True, tuple(ended["timers"]), tuple(ended["turns"]), ended["shown"]
            )

        return await self._db.write(step)

    async def answer_turn(
        self, turn_id: int, answer: Any, *, ids: SnowflakeSource, now: datetime
    ) -> Turn:
        check_answer(answer)

        async def step(db: Connection) -> Turn:
            asked = await turn_of(db, turn_id)
            thread = await lock_thread(db, asked.thread_id)
            # Of two who answer at once, one was first: only now is it known who.
            taken = await db.execute(
                "UPDATE turns SET is_waiting = false WHERE id = %s AND is_waiting", (turn_id,)
            )
            if taken.rowcount == 0:
                raise ConflictError(
                    f"Turn {turn_id} does not wait for an answer (any more). Nothing was written."
                )
            await _end_follow_ups(db, asked.thread_id, ANSWERED, now)
            await db.execute("UPDATE threads SET epoch = epoch + 1 WHERE id = %s", (thread.id,))
            thread = replace(thread, epoch=thread.epoch + 1)
            new = NewTurn(asked.batch, TurnKind.REPLY, answered(asked, answer))
            return await queue_turn(db, thread, new, ids_above(thread, ids, now), now)

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
        async def step(db: Connection) -> list[Turn]:
            thread = await lock_thread(db, thread_id)
            rows = await fetch_all(
                db,
                # One that is held back ends at once.
                "UPDATE turns SET cancel_requested = true, error = coalesce(error, %(reason)s), "
                "wake_at = CASE "
                "WHEN state = 'queued' AND wake_at > %(now)s THEN %(now)s ELSE wake_at END "
                "WHERE thread_id = %(thread_id)s AND state IN ('queued', 'running') "
                "AND id < %(before)s AND id = coalesce(%(only)s::bigint, id) RETURNING *",
                {
                    "reason": storable(reason),
                    "now": now,
                    "thread_id": thread_id,
                    "before": MAX_ID if before is None else before,
                    "only": only,
                },
            )
            if before is None and only is None:
                rising = ids_above(thread, ids, now)
                await cancel_continuations(db, thread_id, reason, rising, now)
            return readable(to_turn, sorted(rows, key=lambda row: row["id"]))

        return await self._db.write(step)


async def _accepted_before(
    db: Connection, thread_id: str, client_message_id: str | None
) -> Accepted | None:
    if client_message_id is None:
        return None
    row = await fetch_one(
        db,
        "SELECT body, batch FROM messages WHERE thread_id = %s AND client_message_id = %s",
        (thread_id, client_message_id),
    )
    if row is None:
        return None
    turn = await fetch_row(
        db,
        "SELECT * FROM turns WHERE thread_id = %s AND batch = %s ORDER BY id LIMIT 1",
        (thread_id, row["batch"]),
    )
    return Accepted(decode_message(row["body"]), to_turn(turn), False)


async def _refuse_while_busy(db: Connection, thread_id: str) -> None:
    sql: LiteralString = (
        "SELECT 1 AS busy FROM turns WHERE thread_id = %s AND state IN ('queued', 'running') "
        "AND kind <> 'follow_up' LIMIT 1"
    )
    if await fetch_one(db, sql, (thread_id,)) is not None:
        raise ConflictError(
            f"An answer is being written in thread {thread_id!r}; send the message when it is "
            "done. Nothing was written."
        )


async def _end_follow_ups(db: Connection, thread_id: str, reason: str, now: datetime) -> DictRow:
    """The user spoke: what was to be said unasked is not said. The step raises the epoch.

    Gives the ids of the `timers` and `turns`, and whether anything `is_asked` of the user.
    """
    ended = await fetch_row(db, _USER_SPOKE, void_values(thread_id, reason, now))
    if ended["turns"]:
        await wake_first(db, thread_id, now)
    return ended


async def _settle_waiting(db: Connection, thread_id: str, ids: RisingIds, now: datetime) -> None:
    """Close what waits for an answer: the user said something else instead."""
    rows = await fetch_all(
        db,
        "UPDATE turns SET is_waiting = false WHERE thread_id = %s AND is_waiting "
        "RETURNING id, batch",
        (thread_id,),
    )
    for row in sorted(rows, key=lambda row: row["id"]):
        await settle_batch(db, thread_id, row["batch"], ids, now)


async def _find_collecting(
    db: Connection, thread_id: str, arrival: Arrival, now: datetime
) -> Turn | None:
    """The turn that a message may join: the last in line, not taken yet and held back for more.

    One that is to be stopped is none: nobody would answer the message.
    """
    if arrival.collect is None:
        return None
    row = await fetch_one(
        db,
        "SELECT *, available_at > %s AS is_held FROM turns "
        "WHERE thread_id = %s AND state IN ('queued', 'running') ORDER BY id DESC LIMIT 1",
        (now, thread_id),
    )
    return to_turn(row) if row is not None and _is_collecting(row) else None


def _is_collecting(row: DictRow) -> bool:
    return (
        row["state"] == "queued"
        and row["kind"] == TurnKind.REPLY
        and row["attempts"] == 0
        and row["is_held"]
        and not row["cancel_requested"]
    )


async def _stamp_next(
    db: Connection, turn: Turn, message: BaseMessage, ids: RisingIds
) -> BaseMessage:
    last = await fetch_row(
        db,
        "SELECT batch_type, parent_batch, sequence_num FROM messages "
        "WHERE thread_id = %s AND batch = %s ORDER BY sequence_num DESC LIMIT 1",
        (turn.thread_id, turn.batch),
    )
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


async def _wait_on(
    db: Connection, thread: Thread, turn: Turn, arrival: Arrival, now: datetime
) -> Turn:
    """Let the turn wait for more. It answers the newest of its messages, so it has that epoch."""
    until = _held_until(arrival, turn.queued_at, now)
    payload = to_json({**turn.payload, **arrival.payload})
    row = await fetch_row(
        db,
        "UPDATE turns SET epoch = %s, payload = %s, available_at = coalesce(%s, available_at), "
        "wake_at = NULL WHERE id = %s RETURNING *",
        (thread.epoch, payload, until, turn.id),
    )
    await wake_first(db, thread.id, now)
    return to_turn(row)

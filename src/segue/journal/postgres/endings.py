"""How turns end on PostgreSQL, with all that is recorded of an end in the same step."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from langchain_core.messages import BaseMessage
from psycopg.rows import DictRow

from segue.core.errors import ConflictError
from segue.core.plain import storable
from segue.core.snowflake import SnowflakeSource
from segue.journal.inputs import check_ending
from segue.journal.places import RisingIds, ids_above
from segue.journal.postgres.arming import ARM_TIMER, arm, timer_values
from segue.journal.postgres.batches import (
    NOTE_IDS,
    STORE_MESSAGE,
    Placed,
    insert_message,
    message_values,
    open_batch,
)
from segue.journal.postgres.database import Connection, Database, fetch_row
from segue.journal.postgres.outbox import (
    RECORD_DECISION,
    decision_values,
    queue_effects,
    record_decisions,
)
from segue.journal.postgres.turns import lock_turn, wake_first
from segue.journal.records import (
    Decision,
    Ending,
    NewTimer,
    Thread,
    Turn,
    TurnKind,
    TurnLease,
    TurnState,
)
from segue.journal.rows import MessageRow, to_json

# Says whether the end concerns other turns: those in line behind it, and those of its batch.
_CLOSE: LiteralString = """
    UPDATE turns SET state = %(state)s, error = %(error)s, finished_at = %(now)s,
        is_waiting = %(is_waiting)s, ending = %(ending)s, end_position = %(end_position)s,
        left_open = %(is_open)s, owner = NULL, wake_at = NULL, partial_id = NULL,
        partial_text = NULL
    WHERE id = %(turn_id)s
    RETURNING EXISTS (
        SELECT 1 FROM turns AS other WHERE other.thread_id = %(thread_id)s
        AND other.state IN ('queued', 'running') AND other.id <> %(turn_id)s
    ) OR EXISTS (
        SELECT 1 FROM turns AS other WHERE other.thread_id = %(thread_id)s
        AND other.batch = %(batch)s AND other.id <> %(turn_id)s
    ) AS has_others
"""
_OTHERS_OF_BATCH: LiteralString = (
    "UPDATE turns SET left_open = %(is_open)s "
    "WHERE thread_id = %(thread_id)s AND batch = %(batch)s AND left_open <> %(is_open)s"
)


@dataclass(frozen=True, slots=True)
class _End:
    state: TurnState
    error: str | None
    ending: Ending


@dataclass(frozen=True, slots=True)
class _Following:
    """What is stored with an end; timers with their ids."""

    messages: list[MessageRow]
    timers: list[tuple[int, NewTimer]]
    decisions: Sequence[Decision]


class EndingSteps:
    _db: Database

    async def finish_turn(
        self,
        lease: TurnLease,
        messages: Sequence[BaseMessage] = (),
        *,
        ids: SnowflakeSource,
        now: datetime,
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> list[BaseMessage]:
        return await self._end(lease, _End(TurnState.DONE, None, ending), messages, ids, now)

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
        end = _End(TurnState.FAILED, storable(error), ending)
        return await self._end(lease, end, messages, ids, now)

    async def withdraw_turn(
        self,
        lease: TurnLease,
        reason: str,
        *,
        ids: SnowflakeSource,
        now: datetime,
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> None:
        await self._end(lease, _End(TurnState.VOID, storable(reason), ending), (), ids, now)

    async def _end(
        self,
        lease: TurnLease,
        end: _End,
        messages: Sequence[BaseMessage],
        ids: SnowflakeSource,
        now: datetime,
    ) -> list[BaseMessage]:
        turn = lease.turn
        check_ending(turn, end.ending)

        async def step(db: Connection) -> list[BaseMessage]:
            thread, row = await lock_turn(db, lease)
            if end.state is TurnState.VOID:
                _refuse_seen(turn, row)
            rising = ids_above(thread, ids, now)
            placed, is_open = await _placed(db, turn, end, messages, rising)
            values = _end_values(turn, end, is_open, rising, now)
            effects = [(rising.next(), effect) for effect in end.ending.effects]
            timers = [(rising.next(), timer) for timer in _to_arm(thread, turn, end.ending)]
            follows = _Following(placed.new, timers, end.ending.decisions)
            await _close(db, follows, values | {"last": rising.last}, now)
            await queue_effects(db, thread.id, effects, now)
            return placed.stored

        return await self._db.write(step)


def _refuse_seen(turn: Turn, row: DictRow) -> None:
    if row["kind"] != TurnKind.FOLLOW_UP or row["shown_at"] is not None:
        raise ConflictError(
            f"Turn {turn.id} is a {row['kind']} or was shown; only a follow-up of which "
            "nothing was shown can be withdrawn. Nothing was written."
        )


async def _placed(
    db: Connection, turn: Turn, end: _End, messages: Sequence[BaseMessage], ids: RisingIds
) -> tuple[Placed, bool]:
    """The last messages in their places, and whether the batch is still open with them.

    That is noted with the turn, so that open batches are found without reading all. With a void
    one nobody goes on.
    """
    if end.state is TurnState.VOID:
        return Placed([], []), False
    batch = await open_batch(db, turn, messages, whole=True)
    placed = batch.place(messages, ids)
    return placed, not batch.is_complete_with(placed.new)


def _to_arm(thread: Thread, turn: Turn, ending: Ending) -> list[NewTimer]:
    """Once the user wrote, a follow-up is no longer on what was said last."""
    is_last = turn.epoch == thread.epoch
    return [timer for timer in ending.timers if is_last or timer.kind is not TurnKind.FOLLOW_UP]


def _end_values(
    turn: Turn, end: _End, is_open: bool, ids: RisingIds, now: datetime
) -> dict[str, Any]:
    says = end.ending.says
    return {
        "turn_id": turn.id,
        "thread_id": turn.thread_id,
        "batch": turn.batch,
        "state": end.state,
        "error": end.error,
        "is_waiting": end.ending.is_waiting,
        "ending": None if says is None else to_json(dict(says)),
        "end_position": None if says is None else ids.next(),
        "is_open": is_open,
        "now": now,
    }


async def _close(
    db: Connection, follows: _Following, values: dict[str, Any], now: datetime
) -> None:
    """Store the end and what follows. A plain turn has one of each, and one statement does it."""
    thread_id = values["thread_id"]
    for row in follows.messages[:-1]:
        await insert_message(db, message_values(thread_id, row, now))
    for timer_id, timer in follows.timers[:-1]:
        await arm(db, timer, timer_id, now)
    await record_decisions(db, follows.decisions[:-1])
    parts = [STORE_MESSAGE if follows.messages else NOTE_IDS]
    for row in follows.messages[-1:]:
        values = message_values(thread_id, row, now) | values
    for timer_id, timer in follows.timers[-1:]:
        parts.append(ARM_TIMER)
        values |= await timer_values(db, timer, timer_id)
    for decision in follows.decisions[-1:]:
        parts.append(RECORD_DECISION)
        values |= decision_values(decision)
    ended = await fetch_row(db, f"WITH {', '.join(parts)} {_CLOSE}", values)
    if ended["has_others"]:
        # What a turn left open, the turn that goes on may complete.
        await db.execute(_OTHERS_OF_BATCH, values)
        await wake_first(db, thread_id, now)

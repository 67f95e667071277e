"""How turns end on PostgreSQL, with all that is recorded of an end in the same step."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from langchain_core.messages import BaseMessage
from psycopg.rows import DictRow

from segue.core.errors import BackendError, ConflictError
from segue.core.plain import storable
from segue.core.snowflake import SnowflakeSource
from segue.journal.inputs import check_ending
from segue.journal.places import RisingIds
from segue.journal.postgres.arming import arm
from segue.journal.postgres.batches import append_to_batch, batch_of, ids_above, note_ids
from segue.journal.postgres.database import Connection, Database
from segue.journal.postgres.outbox import queue_effects, record_decisions
from segue.journal.postgres.threads import lock_thread
from segue.journal.postgres.turns import check_turn, wake_first
from segue.journal.records import Ending, Thread, Turn, TurnKind, TurnLease, TurnState
from segue.journal.rows import to_json


@dataclass(frozen=True, slots=True)
class _End:
    state: TurnState
    error: str | None
    ending: Ending


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
            thread = await lock_thread(db, turn.thread_id)
            row = await check_turn(db, lease)
            if end.state is TurnState.VOID:
                _refuse_seen(row)
            rising = ids_above(thread, ids)
            stored = await append_to_batch(db, turn, messages, rising, now)
            await _close(db, turn, end, rising, now)
            await _record(db, thread, turn, end.ending, rising, now)
            await wake_first(db, turn.thread_id, now)
            return stored

        return await self._db.write(step)


def _refuse_seen(turn: DictRow) -> None:
    if turn["kind"] != TurnKind.FOLLOW_UP or turn["shown_at"] is not None:
        raise ConflictError(
            f"Turn {turn['id']} is a {turn['kind']} or was shown; only a follow-up of which "
            "nothing was shown can be withdrawn. Nothing was written."
        )


async def _close(db: Connection, turn: Turn, end: _End, ids: RisingIds, now: datetime) -> None:
    says = end.ending.says
    await db.execute(
        "UPDATE turns SET state = %s, error = %s, finished_at = %s, is_waiting = %s, ending = %s, "
        "end_position = %s, owner = NULL, wake_at = NULL, partial_id = NULL, partial_text = NULL "
        "WHERE id = %s",
        (
            end.state,
            end.error,
            now,
            end.ending.is_waiting,
            None if says is None else to_json(dict(says)),
            None if says is None else ids.next(),
            turn.id,
        ),
    )
    # Noted here, so that open batches are found without reading all. What a turn left open, the
    # turn that goes on may complete. With a void one nobody goes on.
    is_open = end.state is not TurnState.VOID and not await _is_complete(db, turn)
    await db.execute(
        "UPDATE turns SET left_open = %(is_open)s "
        "WHERE thread_id = %(thread_id)s AND batch = %(batch)s AND left_open <> %(is_open)s",
        {"is_open": is_open, "thread_id": turn.thread_id, "batch": turn.batch},
    )


async def _record(
    db: Connection, thread: Thread, turn: Turn, ending: Ending, ids: RisingIds, now: datetime
) -> None:
    """Store what follows from a turn's end."""
    await queue_effects(db, thread.id, ending.effects, ids, now)
    for timer in ending.timers:
        # Once the user wrote, a follow-up is no longer on what was said last.
        if turn.epoch == thread.epoch or timer.kind is not TurnKind.FOLLOW_UP:
            await arm(db, thread, timer, ids, now)
    await record_decisions(db, ending.decisions)
    if ending.effects or ending.timers or ending.says is not None:
        await note_ids(db, thread.id, ids)


async def _is_complete(db: Connection, turn: Turn) -> bool:
    try:
        return (await batch_of(db, turn.thread_id, turn.batch)).is_complete
    except BackendError:  # a damaged row must not keep the turn from ending
        return False

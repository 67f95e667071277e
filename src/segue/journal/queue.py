"""The queue of turns: adding, stopping and voiding them inside the steps of other modules.

`wake_at` is set for the first live turn of a thread alone, which keeps a thread's turns in order
and one at a time: it is the turn's place in the queue, the time of its next try, or the end of its
lease.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from segue.core.text import storable
from segue.journal.batches import RisingIds, last_id_update, message_statements
from segue.journal.records import Thread, Turn, TurnKind
from segue.journal.rows import MessageRow, to_json
from segue.journal.tx import Row, Statement, Tx

# The index of all turns of a thread would cost more with each turn.
LIVE_TURNS: Final = (
    "FROM turns INDEXED BY turns_alive WHERE thread_id = :thread AND state IN ('queued', 'running')"
)
# A turn that is held back keeps its time; any other gets the place of its thread in the queue.
_PLACE: Final = (
    "CASE WHEN {available_at} > :now THEN {available_at} "
    "ELSE (SELECT least(served_at, :now) FROM threads WHERE threads.id = :thread) END"
)
_QUEUE: Final = f"""
    INSERT INTO turns (id, thread_id, agent_id, user_id, batch, kind, state, epoch, payload,
        queued_at, held_at, available_at, wake_at)
    VALUES (:id, :thread, :agent, :user, :batch, :kind, 'queued', :epoch, :payload, :now, :now,
        :available_at, CASE WHEN NOT EXISTS (SELECT 1 {LIVE_TURNS})
        THEN {_PLACE.format(available_at=":available_at")} END)
    RETURNING *
"""
_WAKE_FIRST: Final = f"""
    UPDATE turns SET wake_at = {_PLACE.format(available_at="available_at")},
        held_at = CASE WHEN available_at > :now THEN held_at ELSE :now END
    WHERE wake_at IS NULL AND id = (SELECT min(id) {LIVE_TURNS})
"""
# A turn that is held back ends at once. Users do not stop unseen reminders and events.
_STOP: Final = """
    UPDATE turns INDEXED BY turns_alive SET cancel_requested = true,
        error = coalesce(error, :reason),
        wake_at = CASE WHEN state = 'queued' AND wake_at > :now THEN :now ELSE wake_at END
    WHERE thread_id = :thread AND state IN ('queued', 'running')
        AND id = coalesce(:only::bigint, id)
        AND (shown_at IS NOT NULL OR id = coalesce(:only::bigint, 0) OR NOT EXISTS (
            SELECT 1 FROM timers WHERE timers.turn_id = turns.id
            AND timers.kind IN ('event', 'reminder')))
        AND (NOT :only_begun::boolean OR attempts > 0 OR kind <> 'reply') RETURNING *
"""
_VOID: Final = """
    UPDATE turns SET state = 'void', error = :reason, finished_at = :now, owner = NULL,
        wake_at = NULL, shown_at = NULL, partial_id = NULL, partial_text = NULL
    WHERE id = ANY(:ids)
"""

# Due at once: the gates then decide how long they wait.
_KEEP_EVENTS: Final = """
    UPDATE timers SET state = 'postponed', state_reason = :reason, due_at = :now, wake_at = :now,
        updated_at = :now
    WHERE turn_id = ANY(:ids) AND kind = 'event' AND state = 'fired'
"""


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn to queue, which can be taken at once or not before a time."""

    batch: int
    kind: TurnKind
    payload: Mapping[str, Any] = field(default_factory=dict)
    available_at: datetime | None = None


async def queue_turn(tx: Tx, thread: Thread, new: NewTurn, ids: RisingIds) -> Turn:
    queued = _turn_insert(thread, new, ids)
    [row] = await tx.together(last_id_update(thread.id, ids), queued)
    return Turn.of(row)


async def queue_with_message(
    tx: Tx,
    thread: Thread,
    message: MessageRow,
    new: NewTurn,
    ids: RisingIds,
    *also: Statement,
    client_message_id: str | None = None,
) -> Turn:
    """Store the first message of a turn's batch, queue the turn, and run `also`."""
    queued = _turn_insert(thread, new, ids)
    stored = message_statements(tx, thread, message, ids.now, ids.last, client_message_id)
    [row] = await tx.together(*also, *stored, queued)
    return Turn.of(row)


def _turn_insert(thread: Thread, new: NewTurn, ids: RisingIds) -> Statement:
    return Statement(
        _QUEUE,
        {
            # Turn ids rise in their thread like positions: their order is that of arrival.
            "id": ids.next(),
            "thread": thread.id,
            "agent": thread.agent_id,
            "user": thread.user_id,
            "batch": new.batch,
            "kind": new.kind,
            "epoch": thread.epoch,
            "payload": to_json(dict(new.payload)),
            "now": ids.now,
            "available_at": new.available_at or ids.now,
        },
    )


async def wake_first(tx: Tx, thread_id: str, now: datetime) -> None:
    """Let the first live turn of a thread be taken, if it was not the first before."""
    await tx.run(_WAKE_FIRST, now=now, thread=thread_id)


async def stop_turns(
    tx: Tx,
    thread_id: str,
    reason: str,
    now: datetime,
    *,
    only: int | None = None,
    only_begun: bool = False,
) -> list[Row]:
    """Request cancellation of live turns, without unseen reminders and events; returns those
    turns, oldest first.

    `only_begun`: turns that have started, and the agent's own; not replies that are still queued.
    """
    values = {"thread": thread_id, "reason": storable(reason), "now": now}
    rows = await tx.all(_STOP, **values, only=only, only_begun=only_begun)
    return sorted(rows, key=lambda row: int(row["id"]))


async def void_turns(
    tx: Tx, thread_id: str, turns: Sequence[int], reason: str, now: datetime
) -> None:
    """Void follow-ups; the events of a voided follow-up wait again."""
    if not turns:
        return
    await tx.run(_VOID, reason=storable(reason), now=now, ids=[*turns])
    await tx.run(_KEEP_EVENTS, reason=storable(reason), now=now, ids=[*turns])
    await wake_first(tx, thread_id, now)


async def is_void(tx: Tx, thread_id: str, batch: int) -> bool:
    """Whether a batch has a turn that was voided before the user saw anything of it."""
    sql = (
        "SELECT 1 AS yes FROM turns WHERE thread_id = :thread AND batch = :batch AND state = 'void'"
    )
    return await tx.find(sql, thread=thread_id, batch=batch) is not None


async def turn_of(tx: Tx, turn_id: int) -> Turn:
    sql = "SELECT * FROM turns WHERE id = :id"
    return Turn.of(await tx.get(sql, f"There is no turn {turn_id}.", id=turn_id))

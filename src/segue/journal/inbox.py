"""A user's input: messages, and answers to a turn's questions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.autonomy.policy import POSTPONING
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.snowflake import SnowflakeSource
from segue.core.text import is_deeper
from segue.errors import ConflictError, UsageError
from segue.journal.batches import (
    RisingIds,
    batch_of,
    check_new,
    message_statements,
    settle_batch,
    stamp_now,
)
from segue.journal.follow_ups import (
    LiveFollowUps,
    end_reminders,
    find_live,
    record_decisions,
    timer_cancellation,
)
from segue.journal.queue import (
    LIVE_TURNS,
    NewTurn,
    queue_turn,
    queue_with_message,
    stop_turns,
    turn_of,
    void_turns,
    wake_first,
)
from segue.journal.records import (
    ANSWERED,
    DROPPED,
    OVERTAKEN,
    WROTE,
    Accepted,
    Decision,
    Thread,
    Turn,
    TurnKind,
    TurnState,
)
from segue.journal.registry import merge_user_settings, reconsider_of_user
from segue.journal.rows import MessageRow, aware, decode_message, to_json
from segue.journal.threads import lock_thread
from segue.journal.tx import Part, Row, Statement, Tx, reads, writes

LONGEST_COLLECT: Final = timedelta(days=1)
# A turn is held back for at most this many times `collect`.
COLLECT_AT_MOST: Final = 5
_DEEPEST_ANSWER: Final = 64
# Turns among which an answer that is sent again is looked for.
_RECENT: Final = 20


@dataclass(frozen=True, slots=True)
class Arrival:
    """Options of an arriving message.

    `collect` holds the turn back for that time; a message that comes before the turn was taken
    joins its batch and restarts the wait, up to `COLLECT_AT_MOST` times its length.
    `only_if_idle`: `ConflictError` while a reply is queued or running.
    `interrupts` requests the cancellation of turns that have begun and of the agent's continuations
    and follow-ups; a reply that has not begun stays queued, and an unseen reminder continues.
    `parent_batch` and `source_agent_id` make it another agent's question. `payload` goes to the
    turn. `preferences` are merged into the user's settings; of `reminders`, those of the thread
    that still wait are cancelled, for the reason of the first of `decisions`.
    """

    collect: timedelta | None = None
    only_if_idle: bool = False
    interrupts: bool = False
    parent_batch: int | None = None
    source_agent_id: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    preferences: Mapping[str, Any] = field(default_factory=dict)
    reminders: Sequence[int] = ()
    decisions: Sequence["Decision"] = ()


class Inbox(Part):
    @writes
    async def accept(
        self,
        tx: Tx,
        thread_id: str,
        message: HumanMessage,
        *,
        ids: SnowflakeSource,
        now: datetime,
        client_message_id: str | None = None,
        arrival: Arrival = Arrival(),  # noqa: B008 - it is frozen
    ) -> Accepted:
        """Store a user's message in a new batch, raise the epoch, and queue its turn.

        The same step cancels the thread's live follow-up timers, voids its live follow-up turns
        that the user has not seen (no message stored, and no draft shown for `SEEN_AFTER`), and
        settles a batch that waits for an answer. Answers are not touched. `arrival` says what else
        happens. `UsageError` for a synthetic message.
        A `client_message_id` used before in the thread changes nothing: the first acceptance is
        returned with `is_new` false, or `ConflictError` raised if the text was another one. A
        message that was imported without its turn gets one.
        """
        check_new(message, synthetic=False)
        _check_arrival(arrival)
        thread = await lock_thread(tx, thread_id)
        rising = RisingIds(thread, ids, now)
        if earlier := await _accepted_before(tx, thread, client_message_id, rising):
            if earlier.message.text != message.text:
                raise ConflictError(
                    f"The client_message_id {client_message_id!r:.80} is that of another message. "
                    "Nothing was written."
                )
            return earlier
        if arrival.only_if_idle:
            await _refuse_while_busy(tx, thread_id)
        live = await find_live(tx, thread_id, now)
        stopped = await _end_live(tx, thread, live, arrival, rising)
        # Stored with the message: what was armed before it is void.
        thread = replace(thread, epoch=thread.epoch + 1)
        also = [timer_cancellation(live.timers, WROTE, now)] if live.timers else []
        stored, turn = await _store(
            tx, thread, message, arrival, rising, *also, client_message_id=client_message_id
        )
        await _record_wishes(tx, turn, arrival, now)
        return Accepted(
            stored,
            turn,
            is_new=True,
            cancelled_timers=live.timers,
            voided_turns=live.unseen,
            shown_turn=next(iter(live.seen), None),
            reminder_turn=next(iter(live.reminder), None),
            stopped_turns=stopped,
        )

    @writes
    async def answer(
        self,
        tx: Tx,
        turn_id: int,
        answer: Any,
        *,
        ids: SnowflakeSource,
        now: datetime,
        client_message_id: str | None = None,
        arrival: Arrival = Arrival(),  # noqa: B008 - it is frozen
    ) -> Turn:
        """Queue a turn that continues the batch of a waiting turn, with the answer as
        `payload["answer"]` and the ids of the questions as `payload["asked"]`.

        As with a message, the epoch rises, follow-ups end, and the requests of the `arrival` are
        applied; its other options are for messages. `UsageError` if there are several
        questions and the answer names none, `ConflictError` if the turn does not wait.
        """
        _check_answer(answer)
        asked = await turn_of(tx, turn_id)
        thread = await lock_thread(tx, asked.thread_id)
        # Of two simultaneous answers, only the lock decides which one was first.
        sql = "UPDATE turns SET is_waiting = false WHERE id = :id AND is_waiting = true"
        if not await tx.run(sql, id=turn_id):
            raise ConflictError(
                f"Turn {turn_id} does not wait for an answer (any more). Nothing was written."
            )
        live = await find_live(tx, thread.id, now)
        await void_turns(tx, thread.id, live.unseen, ANSWERED, now)
        await tx.together(timer_cancellation(live.timers, ANSWERED, now))
        await tx.run("UPDATE threads SET epoch = epoch + 1 WHERE id = :id", id=thread.id)
        thread = replace(thread, epoch=thread.epoch + 1)
        payload = _answer_payload(asked, answer)
        if client_message_id is not None:
            payload["client_message_id"] = client_message_id
        new = NewTurn(asked.batch, TurnKind.REPLY, payload)
        turn = await queue_turn(tx, thread, new, RisingIds(thread, ids, now))
        await _record_wishes(tx, turn, arrival, now)
        return turn

    @reads
    async def find_sent(self, tx: Tx, thread_id: str, client_message_id: str) -> Turn | None:
        """The turn of a message, or of a recent answer, that was sent with this id."""
        sql = (
            "SELECT turns.* FROM messages JOIN turns ON turns.thread_id = messages.thread_id"
            " AND turns.batch = messages.batch WHERE messages.thread_id = :thread"
            " AND client_message_id = :id ORDER BY turns.id LIMIT 1"
        )
        if row := await tx.find(sql, thread=thread_id, id=client_message_id):
            return Turn.of(row)
        sql = "SELECT * FROM turns WHERE thread_id = :thread ORDER BY id DESC LIMIT :limit"
        recent = map(Turn.of, await tx.all(sql, thread=thread_id, limit=_RECENT))
        return next(
            (t for t in recent if t.payload.get("client_message_id") == client_message_id), None
        )


async def _accepted_before(
    tx: Tx, thread: Thread, client_message_id: str | None, ids: RisingIds
) -> Accepted | None:
    if client_message_id is None:
        return None
    sql = "SELECT body, batch FROM messages WHERE thread_id = :thread AND client_message_id = :id"
    row = await tx.find(sql, thread=thread.id, id=client_message_id)
    if row is None:
        return None
    sql = "SELECT * FROM turns WHERE thread_id = :thread AND batch = :batch ORDER BY id LIMIT 1"
    found = await tx.find(sql, thread=thread.id, batch=row["batch"])
    turn = Turn.of(found) if found else await _missing_turn(tx, thread, row["batch"], ids)
    return Accepted(decode_message(row["body"]), turn, False)


async def _missing_turn(tx: Tx, thread: Thread, batch: int, ids: RisingIds) -> Turn:
    """A turn for a message that was imported without one: done if it was answered, else queued."""
    turn = await queue_turn(tx, thread, NewTurn(batch, TurnKind.REPLY), ids)
    if not (await batch_of(tx, thread.id, batch)).is_complete:
        return turn
    done = TurnState.DONE
    row = await tx.change("turns", turn.id, state=done, wake_at=None, finished_at=ids.now)
    return Turn.of(row)


async def _refuse_while_busy(tx: Tx, thread_id: str) -> None:
    sql = f"SELECT 1 AS yes {LIVE_TURNS} AND kind NOT IN ('follow_up', 'reminder') LIMIT 1"
    if await tx.find(sql, thread=thread_id) is not None:
        raise ConflictError(
            f"An answer is being written in thread {thread_id!r}; send the message when it is "
            "done. Nothing was written."
        )


async def _end_live(
    tx: Tx, thread: Thread, live: LiveFollowUps, arrival: Arrival, ids: RisingIds
) -> tuple[int, ...]:
    """Void unseen follow-ups, and settle a batch that waits for an answer: the message replaces it.

    Returns the turns whose cancellation an interrupting message requests.
    """
    await void_turns(tx, thread.id, live.unseen, WROTE, ids.now)
    stopped: list[Row] = []
    if arrival.interrupts:
        stopped = await stop_turns(tx, thread.id, OVERTAKEN, ids.now, only_begun=True)
    for turn_id in live.waiting:
        row = await tx.change("turns", turn_id, is_waiting=False)
        await settle_batch(tx, thread, row["batch"], ids)
    return tuple(row["id"] for row in stopped)


async def _store(
    tx: Tx,
    thread: Thread,
    message: HumanMessage,
    arrival: Arrival,
    ids: RisingIds,
    *also: Statement,
    client_message_id: str | None,
) -> tuple[BaseMessage, Turn]:
    """Store the message, in a batch with a new turn or in that of a turn which collects."""
    message, now = _with_names(message, arrival, client_message_id), ids.now
    turn = await _find_collecting(tx, thread.id, arrival, now)
    if turn is None:
        stored, row = _stamp_first(message, arrival, ids)
        held = _held_until(arrival, now, now)
        new = NewTurn(row.batch, TurnKind.REPLY, arrival.payload, held)
        return stored, await queue_with_message(
            tx, thread, row, new, ids, *also, client_message_id=client_message_id
        )
    stored, row = await _stamp_next(tx, turn, message, ids)
    await tx.together(*also, *message_statements(tx, thread, row, now, 0, client_message_id))
    return stored, await _hold_back(tx, thread, turn, arrival, now)


async def _record_wishes(tx: Tx, turn: Turn, arrival: Arrival, now: datetime) -> None:
    """Apply the user's requests in the message, with the decisions that record them; postponed
    follow-ups are then re-checked.
    """
    if arrival.reminders:
        reason = next((r for each in arrival.decisions for r in each.reasons), DROPPED)
        await end_reminders(tx, turn.thread_id, arrival.reminders, reason, now)
    if arrival.preferences:
        await merge_user_settings(tx, turn.user_id, arrival.preferences, now)
        if POSTPONING & arrival.preferences.keys():
            await reconsider_of_user(tx, turn.user_id, now)
    await record_decisions(tx, [replace(d, turn_id=turn.id) for d in arrival.decisions])


async def _find_collecting(tx: Tx, thread_id: str, arrival: Arrival, now: datetime) -> Turn | None:
    """The turn that a message may join: the last in the queue, never taken and held back for more.

    Not one whose cancellation was requested: the message would get no answer.
    """
    if arrival.collect is None:
        return None
    row = await tx.find(f"SELECT * {LIVE_TURNS} ORDER BY id DESC LIMIT 1", thread=thread_id)
    if row is None:
        return None
    turn = Turn.of(row)
    is_untried = turn.state is TurnState.QUEUED and turn.attempts == 0
    is_held = turn.kind is TurnKind.REPLY and turn.available_at > now
    return turn if is_untried and is_held and not turn.cancel_requested else None


async def _hold_back(tx: Tx, thread: Thread, turn: Turn, arrival: Arrival, now: datetime) -> Turn:
    """Delay the turn for more messages. It answers the newest one, so it has that epoch."""
    row = await tx.change(
        "turns",
        turn.id,
        epoch=thread.epoch,
        payload=to_json({**turn.payload, **arrival.payload}),
        available_at=_held_until(arrival, turn.queued_at, now),
        wake_at=None,
    )
    await wake_first(tx, thread.id, now)
    return Turn.of(row)


def _held_until(arrival: Arrival, queued_at: datetime, now: datetime) -> datetime | None:
    if arrival.collect is None:
        return None
    return min(aware(now) + arrival.collect, queued_at + COLLECT_AT_MOST * arrival.collect)


def _check_arrival(arrival: Arrival) -> None:
    if arrival.collect is not None and not timedelta(0) < arrival.collect <= LONGEST_COLLECT:
        raise UsageError(
            f"collect is {arrival.collect}; expected more than 0 and at most {LONGEST_COLLECT}. "
            "Nothing was written."
        )


def _with_names(
    message: HumanMessage, arrival: Arrival, client_message_id: str | None
) -> HumanMessage:
    """With the agent that sent it, and the id that its client knows it by."""
    if arrival.source_agent_id is None and client_message_id is None:
        return message
    metadata = MessageMetadata.of(message)
    return replace(
        metadata, source_agent_id=arrival.source_agent_id, client_message_id=client_message_id
    ).onto(message)


def _stamp_first(
    message: BaseMessage, arrival: Arrival, ids: RisingIds
) -> tuple[BaseMessage, MessageRow]:
    """A message that begins a batch: a user's, or another agent's question."""
    is_users = arrival.parent_batch is None and arrival.source_agent_id is None
    batch_type = None if is_users else BatchType.AGENT_TO_AGENT
    return stamp_now(message, ids, batch_type=batch_type, parent_batch=arrival.parent_batch)


async def _stamp_next(
    tx: Tx, turn: Turn, message: BaseMessage, ids: RisingIds
) -> tuple[BaseMessage, MessageRow]:
    sql = (
        "SELECT batch_type, parent_batch, sequence_num FROM messages "
        "WHERE thread_id = :thread AND batch = :batch ORDER BY sequence_num DESC LIMIT 1"
    )
    last = await tx.get(sql, thread=turn.thread_id, batch=turn.batch)
    return stamp_now(
        message,
        ids,
        turn.batch,
        last["batch_type"],
        start=last["sequence_num"] + 1,
        parent_batch=last["parent_batch"],
    )


def _answer_payload(asked: Turn, answer: Any) -> dict[str, Any]:
    """The answer, and the ids of the questions it is for: a question that the resumed turn asks
    before a crash must not get this answer.
    """
    ids = sorted((asked.ending or {}).get("questions", ()))
    is_by_id = isinstance(answer, Mapping) and answer and answer.keys() <= set(ids)
    if len(ids) > 1 and not is_by_id:
        raise UsageError(
            f"There are {len(ids)} questions; give the answers by their ids: {ids}. "
            "Nothing was written."
        )
    return {"answer": answer} | ({"asked": ids} if ids else {})


def _check_answer(answer: Any) -> None:
    """An answer must reach the agent as it was given, so it must be JSON."""
    if answer is None:  # LangGraph reads None as no answer, and would ask again
        raise UsageError("None is not an answer; give a text or a value. Nothing was written.")
    try:
        json.dumps(answer, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"An answer is a JSON value, and this one is not: {error}. Nothing was written."
        ) from error
    if is_deeper(answer, _DEEPEST_ANSWER):
        raise UsageError(
            f"An answer is nested {_DEEPEST_ANSWER} deep at most: an export of a deeper one could "
            "not be read again. Nothing was written."
        )

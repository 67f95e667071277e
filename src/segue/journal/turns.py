"""Turns: claiming them, and their ends with all that is recorded in the same step."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.snowflake import SnowflakeSource
from segue.core.text import storable
from segue.errors import ConflictError, UsageError
from segue.journal.batches import (
    Placement,
    RisingIds,
    batch_of,
    last_id_update,
    message_statements,
    open_batch,
    settle_batch,
)
from segue.journal.effects import effect_inserts
from segue.journal.follow_ups import (
    cancel_continuations,
    check_timer,
    decision_insert,
    find_equal,
    let_wait_again,
    prepare_arming,
)
from segue.journal.queue import stop_turns, turn_of, wake_first
from segue.journal.records import (
    NESTING,
    SETTLED,
    STOPPED,
    Claimed,
    Ending,
    LiveTurn,
    LockedThread,
    NewTimer,
    Thread,
    TimerKind,
    Turn,
    TurnKind,
    TurnLease,
    TurnState,
)
from segue.journal.registry import merge_user_settings
from segue.journal.rows import (
    CLOCK_SKEW,
    aware,
    lease_end,
    read_time,
    read_time_or_none,
    readable,
    to_json,
)
from segue.journal.threads import lock_thread, state_changes, thread_of
from segue.journal.tx import Part, Row, Statement, Tx, check_lease, reads, single_read, writes

# Set by a clock that was ahead: `held_at` is its time. Its leases and pauses count from now on. A
# small difference between two clocks shortens no lease and no pause, but no new turn waits for it.
AHEAD: Final = "wake_at > :now AND held_at > :now AND (attempts = 0 OR held_at > :ahead)"
PULLED_BACK: Final = """
    wake_at = :now + (wake_at - held_at), held_at = :now, queued_at = least(queued_at, :now),
    available_at = least(available_at, :now + (available_at - held_at))
"""
_PULL_BACK: Final = f"UPDATE turns INDEXED BY turns_held SET {PULLED_BACK} WHERE {AHEAD}"
_NEXT: Final = """
    SELECT * FROM turns WHERE wake_at <= :now ORDER BY wake_at, id LIMIT 1
    FOR UPDATE SKIP LOCKED
"""
# The try of a worker that died counts up to its last heartbeat.
_TAKE: Final = """
    UPDATE turns SET state = 'running', owner = :owner, token = token + 1, wake_at = :until,
        held_at = :now, begun_at = :now, attempts = attempts + 1,
        worked = worked + CASE WHEN state = 'running'
            THEN coalesce(greatest(held_at - begun_at, :nothing), :nothing) ELSE :nothing END,
        partial_id = NULL, partial_text = NULL
    WHERE id = :id RETURNING *
"""
_RELEASE: Final = """
    UPDATE turns SET state = 'queued', owner = NULL, available_at = :at, wake_at = :at,
        held_at = :now, faults = faults + :faults,
        worked = worked + coalesce(greatest(:until - begun_at, :nothing), :nothing)
    WHERE id = :id
"""
_NEXT_AT: Final = f"""
    SELECT min(wake_at) AS at,
        EXISTS (SELECT 1 FROM turns INDEXED BY turns_held WHERE {AHEAD}) AS is_ahead
    FROM turns WHERE wake_at IS NOT NULL
"""
# All at once; the thread first as everywhere, which is the order of the names.
_LOCK_BOTH: Final = """
    SELECT threads.*, feeds.last_position AS feed_position, NOTIFY(threads.id, threads.user_id),
        turns.state, turns.token, turns.owner, turns.kind,
        turns.shown_at, EXISTS (SELECT 1 FROM timers WHERE timers.thread_id = threads.id
            AND timers.kind = 'follow_up' AND timers.key IS NULL
            AND timers.state IN ('pending', 'postponed', 'claimed')) AS has_timer
    FROM threads JOIN turns ON turns.thread_id = threads.id
    JOIN feeds ON feeds.user_id = threads.user_id
    WHERE threads.id = :thread AND turns.id = :turn FOR UPDATE OF threads, turns, feeds
"""
# The commit does not wait for the disk: after a crash the text is generated again anyway.
_SAVE_PARTIAL: Final = """
    UPDATE turns SET partial_id = :message, partial_text = :text
    WHERE id = :id AND state = 'running' AND token = :token
    RETURNING id, NOTIFY(thread_id, user_id), NOSYNC()
"""
# Returns whether the thread has other turns in the queue or of this batch.
_CLOSE: Final = """
    UPDATE turns SET state = :state, error = :error, finished_at = :now, is_waiting = :is_waiting,
        ending = :ending, end_position = :end_position, left_open = :is_open, owner = NULL,
        wake_at = NULL, partial_id = NULL, partial_text = NULL
    WHERE id = :turn
    RETURNING EXISTS (
        SELECT 1 FROM turns AS other INDEXED BY turns_alive WHERE other.thread_id = :thread
        AND other.state IN ('queued', 'running') AND other.id <> :turn
    ) OR EXISTS (
        SELECT 1 FROM turns AS other WHERE other.thread_id = :thread
        AND other.batch = :batch AND other.id <> :turn
    ) AS has_others
"""


_LIVE_OF_BATCH: Final = (
    "WHERE thread_id = :thread AND batch = :batch AND state IN ('queued', 'running')"
)


class Turns(Part):
    """The queue of batches to process: one running per thread, in order of arrival."""

    async def claim_one(
        self, owner: str, *, now: datetime, lease_for: timedelta
    ) -> TurnLease | None:
        """Take the next turn as `claim` does; None if none can be taken now."""
        claimed = await self.claim(owner, now=now, lease_for=lease_for, limit=1)
        return claimed.leases[0] if claimed.leases else None

    @writes
    async def claim(
        self, tx: Tx, owner: str, *, now: datetime, lease_for: timedelta, limit: int
    ) -> Claimed:
        """Take the next turns, each the oldest of its thread, from the threads that wait longest.

        A thread waits since it was served last, since its lease expired, or since its turn was to
        be retried. A turn whose lease expired is taken again. Two callers never get the same turn.
        A new turn queued by a clock ahead of `now` counts as queued now. A lease or pause that
        began more than `CLOCK_SKEW` after `now` starts now, as do leases of timers and effects.
        """
        until = lease_end(now, lease_for)
        await tx.run(_PULL_BACK, now=now, ahead=now + CLOCK_SKEW)
        leases: list[TurnLease] = []
        while len(leases) < limit and (row := await _next_sound(tx, now)):
            taken = await tx.get(
                _TAKE, owner=owner, until=until, now=now, nothing=timedelta(0), id=row["id"]
            )
            sql = "UPDATE threads SET served_at = :now WHERE id = :id"
            await tx.run(sql, now=now, id=row["thread_id"])
            leases.append(TurnLease(Turn.of(taken), owner, taken["token"], until))
        return Claimed(leases, await next_turn_at(tx, now))

    @writes
    async def extend(
        self, tx: Tx, lease: TurnLease, *, now: datetime, lease_for: timedelta
    ) -> TurnLease:
        until = lease_end(now, lease_for)
        # The turn's own lock is enough, so a heartbeat never waits for the thread.
        await check_turn(tx, lease)
        row = await tx.change("turns", lease.turn.id, wake_at=until, held_at=now)
        return TurnLease(Turn.of(row), row["owner"], row["token"], until)

    @writes
    async def show(self, tx: Tx, lease: TurnLease, *, now: datetime) -> None:
        """Record that the user is about to see the turn's first output.

        `ConflictError` if the user wrote in the meantime: then nothing may be shown.
        """
        await lock_turn(tx, lease)
        sql = "UPDATE turns SET shown_at = coalesce(shown_at, :now) WHERE id = :id"
        await tx.run(sql, now=now, id=lease.turn.id)

    @writes
    async def release(
        self,
        tx: Tx,
        lease: TurnLease,
        *,
        now: datetime,
        retry_at: datetime | None = None,
        is_fault: bool = False,
    ) -> None:
        """Return a turn to the queue, to be taken at once or not before `retry_at`.

        `is_fault`: this try failed by itself, and the pause counts as work, too.
        """
        await lock_turn(tx, lease)
        at = retry_at or now
        values = {"at": at, "now": now, "faults": int(is_fault), "until": at if is_fault else now}
        await tx.run(_RELEASE, **values, nothing=timedelta(0), id=lease.turn.id)

    @writes
    async def finish(
        self,
        tx: Tx,
        lease: TurnLease,
        messages: Sequence[BaseMessage] = (),
        *,
        ids: SnowflakeSource,
        now: datetime,
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> list[BaseMessage]:
        """Store the last messages and the end of the turn together."""
        end = _End(TurnState.DONE, None, ending)
        return await _end(tx, lease, end, messages, ids, now)

    @writes
    async def fail(
        self,
        tx: Tx,
        lease: TurnLease,
        error: str,
        *,
        ids: SnowflakeSource,
        now: datetime,
        messages: Sequence[BaseMessage] = (),
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> list[BaseMessage]:
        """End a turn as failed; `messages` settle its batch."""
        end = _End(TurnState.FAILED, storable(error), ending)
        return await _end(tx, lease, end, messages, ids, now)

    @writes
    async def withdraw(
        self,
        tx: Tx,
        lease: TurnLease,
        reason: str,
        *,
        ids: SnowflakeSource,
        now: datetime,
        ending: Ending = Ending(),  # noqa: B008 - it is frozen
    ) -> None:
        """End a follow-up as void. `ConflictError` if anything of it was shown."""
        await _end(tx, lease, _End(TurnState.VOID, storable(reason), ending), (), ids, now)

    @writes
    async def save_draft(self, tx: Tx, lease: TurnLease, message_id: str, text: str) -> None:
        """Store a draft of the message that the turn writes, until its end or the next claim."""
        draft = {"message": message_id, "text": storable(text)}
        if not await tx.all(_SAVE_PARTIAL, **draft, id=lease.turn.id, token=lease.token):
            await check_turn(tx, lease)

    @writes
    async def cancel(
        self,
        tx: Tx,
        thread_id: str,
        reason: str = STOPPED,
        *,
        ids: SnowflakeSource,
        now: datetime,
        only: int | None = None,
    ) -> list[Turn]:
        """Request the cancellation of the thread's live turns, or of `only` one, and return them.

        Without `only`, the same step cancels continuation timers and settles their batches, but
        unseen reminders and events continue.
        """
        thread = await lock_thread(tx, thread_id)
        rows = await stop_turns(tx, thread_id, reason, now, only=only)
        if only is None:
            await cancel_continuations(tx, thread, reason, RisingIds(thread, ids, now))
        return readable(Turn.of, rows)

    @writes
    async def settle(
        self, tx: Tx, thread_id: str, batch: int, *, ids: SnowflakeSource, now: datetime
    ) -> None:
        """Close an open batch for an operator; its question or continuation is dropped.

        `ConflictError` if the batch is complete, or a turn is working on it.
        """
        thread = await lock_thread(tx, thread_id)
        rising, place = RisingIds(thread, ids, now), {"thread": thread_id, "batch": batch}
        if (await batch_of(tx, thread_id, batch)).is_complete:
            raise ConflictError(f"Batch {batch} is complete. Nothing was written.")
        if await tx.find(f"SELECT id FROM turns {_LIVE_OF_BATCH} LIMIT 1", **place):
            raise ConflictError(
                f"A turn works on batch {batch} or is queued for it; stop it first. Nothing was "
                "written."
            )
        waits = "WHERE thread_id = :thread AND batch = :batch AND is_waiting = true"
        await tx.run(f"UPDATE turns SET is_waiting = false {waits}", **place)
        if not await cancel_continuations(tx, thread, SETTLED, rising, batch):
            await settle_batch(tx, thread, batch, rising)

    @single_read
    async def list_live(self, tx: Tx, *, limit: int = 50) -> list[LiveTurn]:
        """The first live turn of each thread, in the order of the queue."""
        sql = "SELECT * FROM turns WHERE wake_at IS NOT NULL ORDER BY wake_at, id LIMIT :limit"
        rows = await tx.all(sql, limit=limit)
        return readable(
            lambda row: LiveTurn(Turn.of(row), row["owner"], read_time(row["wake_at"])), rows
        )

    @single_read
    async def get(self, tx: Tx, turn_id: int) -> Turn:
        return await turn_of(tx, turn_id)

    @reads
    async def list_of(
        self,
        tx: Tx,
        thread_id: str,
        *,
        limit: int = 50,
        batches: Collection[int] | None = None,
        only_waiting: bool = False,
    ) -> list[Turn]:
        """A thread's turns, newest first; all, those of `batches`, or those that wait."""
        await thread_of(tx, thread_id)
        sql = "SELECT * FROM turns WHERE thread_id = :thread"
        values: dict[str, Any] = {"thread": thread_id, "limit": limit}
        if batches is not None:
            sql += " AND batch = ANY(:batches)"
            values["batches"] = [*batches]
        if only_waiting:
            sql += " AND is_waiting = true"
        return readable(Turn.of, await tx.all(f"{sql} ORDER BY id DESC LIMIT :limit", **values))

    @single_read
    async def list_waiting(self, tx: Tx, user_id: str, *, limit: int = 50) -> list[Turn]:
        """The turns of a user that wait for an answer, newest first."""
        sql = (
            "SELECT * FROM turns WHERE user_id = :user AND is_waiting = true "
            f"AND strpos(thread_id, '{NESTING}') = 0 ORDER BY id DESC LIMIT :limit"
        )
        return readable(Turn.of, await tx.all(sql, user=user_id, limit=limit))

    @single_read
    async def next_at(self, tx: Tx, *, now: datetime) -> datetime | None:
        """When the next turn can be taken; not before `now`."""
        return await next_turn_at(tx, now)


async def next_turn_at(tx: Tx, now: datetime) -> datetime | None:
    row = await tx.get(_NEXT_AT, now=now, ahead=now + CLOCK_SKEW)
    if row["is_ahead"]:
        return aware(now)
    at = read_time_or_none(row["at"])
    return None if at is None else max(at, aware(now))


async def lock_turn(tx: Tx, lease: TurnLease) -> tuple[LockedThread, Row]:
    """`lock_thread` and `check_turn` in one statement."""
    row = await tx.find(_LOCK_BOTH, thread=lease.turn.thread_id, turn=lease.turn.id)
    if row is None:  # one of the two is missing
        return await lock_thread(tx, lease.turn.thread_id), await check_turn(tx, lease)
    _check_lease(lease, row)
    return LockedThread.of(row), row


async def check_turn(tx: Tx, lease: TurnLease) -> Row:
    """Raise unless the lease is valid; the lock keeps it valid until the commit."""
    row = await tx.find("SELECT * FROM turns WHERE id = :id FOR UPDATE", id=lease.turn.id)
    _check_lease(lease, row)
    return row


async def clear_partial(tx: Tx, lease: TurnLease) -> None:
    """Delete the draft; raise unless the lease is valid."""
    sql = (
        "UPDATE turns SET partial_id = NULL, partial_text = NULL "
        "WHERE id = :id AND state = 'running' AND token = :token"
    )
    if not await tx.run(sql, id=lease.turn.id, token=lease.token):
        await check_turn(tx, lease)


def _check_lease(lease: TurnLease, row: Row | None) -> None:
    check_lease(f"turn {lease.turn.id}", row, lease.token, TurnState.RUNNING)


async def _next_sound(tx: Tx, now: datetime) -> Row | None:
    """The next turn to take. A row that cannot be read is failed."""
    while (row := await tx.find(_NEXT, now=now)) and not readable(Turn.of, [row]):
        await set_aside(tx, row, now)
    return row


async def set_aside(tx: Tx, row: Row, now: datetime) -> None:
    """Fail a turn whose row cannot be read."""
    sql = (
        "UPDATE turns SET state = 'failed', error = 'The row cannot be read.', owner = NULL, "
        "wake_at = NULL, left_open = true, finished_at = :now "
        "WHERE id = :id AND state = :state AND token = :token"
    )
    await tx.run(sql, now=now, **{name: row[name] for name in ("id", "state", "token")})
    await wake_first(tx, row["thread_id"], now)


@dataclass(frozen=True, slots=True)
class _End:
    state: TurnState
    error: str | None
    ending: Ending


async def _end(
    tx: Tx,
    lease: TurnLease,
    end: _End,
    messages: Sequence[BaseMessage],
    ids: SnowflakeSource,
    now: datetime,
) -> list[BaseMessage]:
    """Store the last messages and the end of a turn with all that follows."""
    turn = lease.turn
    _check_ending(turn, end.ending)
    thread, row = await lock_turn(tx, lease)
    if end.state is TurnState.VOID:
        _refuse_seen(turn, row)
    rising = RisingIds(thread, ids, now)
    placement, is_open = await _place(tx, turn, end, messages, rising)
    # Listeners get nothing of a follow-up that was not shown.
    is_told = end.ending.says is not None or not _is_hidden(row)
    closing = _closing(turn, end, is_open, rising.next() if is_told else None, now)
    effects = effect_inserts(thread.id, [(rising.next(), each) for each in end.ending.effects], now)
    timers = [
        await prepare_arming(tx, thread, timer, rising.next(), now, replaces=bool(row["has_timer"]))
        for timer in _to_arm(thread, turn, end.ending)
        if await find_equal(tx, thread, timer) is None
    ]
    if end.ending.postponed_until is not None:
        await let_wait_again(tx, turn.id, end.ending.postponed_until, now)
    for message in placement.new[:-1]:
        await tx.together(*message_statements(tx, thread, message, now))
    last = [
        each
        for message in placement.new[-1:]
        for each in message_statements(tx, thread, message, now, rising.last, is_seen=is_told)
    ] or [last_id_update(thread.id, rising, is_seen=is_told)]
    decisions = map(decision_insert, end.ending.decisions)
    state = state_changes(thread.id, end.ending.state) if end.state is TurnState.DONE else ()
    [closed] = await tx.together(*last, *effects, *timers, *decisions, *state, closing)
    if end.ending.preferences and turn.epoch == thread.epoch:  # the user's newer preference counts
        await merge_user_settings(tx, thread.user_id, end.ending.preferences, now)
    if closed["has_others"]:
        # This turn may have completed a batch that an earlier one left open.
        sql = (
            "UPDATE turns SET left_open = :is_open "
            "WHERE thread_id = :thread AND batch = :batch AND left_open <> :is_open"
        )
        await tx.run(sql, is_open=is_open, thread=thread.id, batch=turn.batch)
        await wake_first(tx, thread.id, now)
    return placement.stored


def _is_hidden(row: Row) -> bool:
    return TurnKind(row["kind"]).speaks_first and row["shown_at"] is None


def _refuse_seen(turn: Turn, row: Row) -> None:
    if not _is_hidden(row):
        raise ConflictError(
            f"Turn {turn.id} is a {row['kind']} or was shown; only a follow-up that was not shown "
            "can be withdrawn. Nothing was written."
        )


async def _place(
    tx: Tx, turn: Turn, end: _End, messages: Sequence[BaseMessage], ids: RisingIds
) -> tuple[Placement, bool]:
    """The last messages in their places, and whether the batch stays open.

    That is stored with the turn, so that open batches are found without reading all.
    """
    if end.state is TurnState.VOID:
        return Placement([], []), False
    batch = await open_batch(tx, turn, messages, whole=True)
    placement = batch.place(messages, ids)
    return placement, not batch.is_complete_with(placement.new)


def _to_arm(thread: Thread, turn: Turn, ending: Ending) -> list[NewTimer]:
    """All timers, without follow-ups if the user wrote since the turn was queued."""
    is_last = turn.epoch == thread.epoch
    return [timer for timer in ending.timers if is_last or timer.kind is not TimerKind.FOLLOW_UP]


def _closing(
    turn: Turn, end: _End, is_open: bool, end_position: int | None, now: datetime
) -> Statement:
    says = end.ending.says
    return Statement(
        _CLOSE,
        {
            "turn": turn.id,
            "thread": turn.thread_id,
            "batch": turn.batch,
            "state": end.state,
            "error": end.error,
            "is_waiting": end.ending.is_waiting,
            "ending": None if says is None else to_json(dict(says)),
            "end_position": end_position,
            "is_open": is_open,
            "now": now,
        },
    )


def _check_ending(turn: Turn, ending: Ending) -> None:
    """An end arms timers of its own thread only."""
    for timer in ending.timers:
        check_timer(timer)
        if timer.thread_id != turn.thread_id:
            raise UsageError(
                f"The end of a turn of thread {turn.thread_id!r} cannot arm a timer of thread "
                f"{timer.thread_id!r}. Nothing was written."
            )

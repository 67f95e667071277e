"""Timers: durable promises to consider a follow-up.

`wake_at` is the column that claims read: the due time while a timer waits, the end of the lease
while it is claimed, null once it has ended.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from langchain_core.messages import HumanMessage

from segue.core.metadata import BatchType
from segue.core.snowflake import SnowflakeSource
from segue.core.text import storable
from segue.errors import ConflictError, UsageError
from segue.journal.batches import (
    RisingIds,
    append_to_batch,
    check_new,
    last_id_update,
    settle_batch,
    stamp_now,
)
from segue.journal.follow_ups import (
    FollowUpCounts,
    cancel_continuations,
    cancel_timers,
    check_counts,
    check_timer,
    count_follow_ups,
    end_reminders,
    end_timer,
    find_equal,
    find_live,
    live_reminders,
    prepare_arming,
    record_decisions,
    unsent_reminders,
)
from segue.journal.queue import NewTurn, is_void, queue_turn, queue_with_message, void_turns
from segue.journal.records import (
    Decision,
    NewTimer,
    NextTime,
    Thread,
    Timer,
    TimerKind,
    TimerLease,
    TimerState,
    Turn,
    TurnKind,
)
from segue.journal.rows import (
    CLOCK_SKEW,
    EARLIEST,
    LATEST,
    DamagedError,
    lease_end,
    read_time,
    readable,
    to_json,
)
from segue.journal.threads import lock_thread, thread_of
from segue.journal.tx import Part, Row, Tx, check_lease, reads, single_read, writes

logger = logging.getLogger(__name__)

_ENDS: Final = frozenset(
    {TimerState.CANCELLED, TimerState.SUPPRESSED, TimerState.EXPIRED, TimerState.MISSED}
)
# Leases taken by a clock that was ahead start now.
_PULL_BACK: Final = """
    UPDATE timers SET wake_at = :now + (wake_at - updated_at), updated_at = :now WHERE id IN (
        SELECT id FROM timers INDEXED BY timers_claimed
        WHERE state = 'claimed' AND updated_at > :ahead FOR UPDATE SKIP LOCKED)
"""
# Locks timers without their threads, but never waits for one.
_DUE: Final = """
    SELECT * FROM timers WHERE wake_at <= :now ORDER BY wake_at, id LIMIT :limit
    FOR UPDATE SKIP LOCKED
"""
_TAKE: Final = """
    UPDATE timers SET state = 'claimed', owner = :owner, token = token + 1, wake_at = :until,
        updated_at = :now
    WHERE id = ANY(:ids) RETURNING *
"""
_FIRE: Final = """
    UPDATE timers SET state = 'fired', state_reason = NULL, turn_id = :turn, owner = NULL,
        wake_at = NULL, updated_at = :now
    WHERE id = ANY(:ids) AND state IN ('pending', 'postponed', 'claimed')
"""
_MOVE: Final = """
    UPDATE timers SET state = 'pending', state_reason = :reason, due_at = :at, wake_at = :at,
        payload = :payload, updated_at = :now
    WHERE id = :id AND state IN ('pending', 'postponed') AND due_at = :seen
"""


class Timers(Part):
    @writes
    async def arm(
        self,
        tx: Tx,
        timer: NewTimer,
        *,
        ids: SnowflakeSource,
        now: datetime,
        epoch: int | None = None,
        most: tuple[int, int] | None = None,
        refused: Decision | None = None,
    ) -> Timer:
        """Arm a timer at the thread's present epoch; `ConflictError` if that is not `epoch`.

        A thread has at most one live follow-up without a key: arming again cancels the old one. A
        key that was used before in the thread changes nothing, nor does a reminder that equals a
        live one in text and time: the timer that is there is returned, and `is_new` is false.
        `ConflictError` if the thread or its user has `most` live reminders, a number for each. A
        new timer that was `refused` ends at once as suppressed.
        """
        check_timer(timer)
        thread = await lock_thread(tx, timer.thread_id)
        if equal := await find_equal(tx, thread, timer):
            return equal
        if epoch not in (None, thread.epoch):
            raise ConflictError(
                f"The user wrote in thread {thread.id!r} or cancelled its follow-ups after this "
                "was decided. Nothing was written."
            )
        if most is not None:
            await _check_room(tx, thread, *most)
        rising = RisingIds(thread, ids, now)
        arming = await prepare_arming(tx, thread, timer, rising.next(), now)
        [row] = await tx.together(last_id_update(thread.id, rising), arming)
        if refused is not None:
            reason = refused.reasons[0]
            row = await end_timer(tx, row["id"], TimerState.SUPPRESSED, reason, now)
            await record_decisions(tx, [replace(refused, timer_id=row["id"])])
        return replace(Timer.of(row), is_new=True)

    @writes
    async def claim_due(
        self, tx: Tx, owner: str, *, now: datetime, lease_for: timedelta, limit: int = 100
    ) -> list[TimerLease]:
        """Take due timers, in order of time. One that cannot be read ends as suppressed."""
        until = lease_end(now, lease_for)
        await tx.run(_PULL_BACK, now=now, ahead=now + CLOCK_SKEW)
        due = await tx.all(_DUE, now=now, limit=limit)
        sound = [row["id"] for row in due if await _is_sound(tx, row, now)]
        if not sound:
            return []
        rows = await tx.all(_TAKE, owner=owner, until=until, now=now, ids=sound)
        leases = {row["id"]: TimerLease(Timer.of(row), owner, row["token"], until) for row in rows}
        return [leases[timer_id] for timer_id in sound]

    @single_read
    async def next_at(self, tx: Tx) -> datetime | None:
        """When the next timer is due or a claimed one may be taken again."""
        sql = (
            "SELECT least(greatest(wake_at, :earliest), :latest) AS at FROM timers "
            "WHERE wake_at IS NOT NULL ORDER BY timers.wake_at LIMIT 1"
        )
        row = await tx.find(sql, earliest=EARLIEST, latest=LATEST)
        return None if row is None else read_time(row["at"])

    @single_read
    async def count(self, tx: Tx, *, limit: int) -> int:
        """How many timers are alive; counting stops at `limit`."""
        awake = "SELECT 1 FROM timers WHERE wake_at IS NOT NULL LIMIT :limit"
        row = await tx.get(f"SELECT count(*) AS found FROM ({awake}) AS awake", limit=limit)
        return int(row["found"])

    @writes
    async def fire(  # noqa: PLR0913  # all but two are keywords, and each is one plain fact
        self,
        tx: Tx,
        lease: TimerLease,
        message: HumanMessage,
        *,
        ids: SnowflakeSource,
        now: datetime,
        counted: FollowUpCounts | None = None,
        decisions: Sequence[Decision] = (),
        together: Sequence[int] = (),
        again: NextTime | None = None,
    ) -> Turn | None:
        """Store the synthetic message in a new batch, or in that of a continuation; queue its turn,
        and close the timer, and with it the timers `together`, which the message covers, too.

        `again`: the timer is not closed, but waits for its next time. None, and nothing is stored,
        if the user wrote since a follow-up was armed, or if the timer was cancelled or replaced.
        `ConflictError` if the user got a follow-up since the gates `counted`, or if one of the
        timers `together` has ended: ask the gates again.
        `UsageError` for a message that is not synthetic.
        """
        check_new(message, synthetic=True)
        timer = lease.timer
        thread = await lock_thread(tx, timer.thread_id)
        row = await _lock_timer(tx, timer.id)
        if row is not None and row["state"] == TimerState.CANCELLED:
            return None
        _check_lease(lease, row)
        if timer.kind is TimerKind.FOLLOW_UP and thread.epoch != timer.epoch:
            await end_timer(tx, timer.id, TimerState.CANCELLED, "The user wrote.", now)
            return None
        if timer.batch is not None and await is_void(tx, thread.id, timer.batch):
            await end_timer(tx, timer.id, TimerState.CANCELLED, "Its follow-up is void.", now)
            return None
        if counted is not None and timer.kind.turn_kind is TurnKind.FOLLOW_UP:
            await check_counts(tx, thread, counted)
        turn = await _queue_fired(tx, thread, timer, message, RisingIds(thread, ids, now))
        covered = {timer.id, *together}
        if await tx.run(_FIRE, turn=turn.id, now=now, ids=[*covered]) != len(covered):
            raise ConflictError(
                f"Another message already covers an event of thread {thread.id!r}; collect the "
                "events again. Nothing was written."
            )
        if again is not None:
            await _wait_again(tx, timer, again, thread.epoch)
        await record_decisions(tx, [_of_turn(decision, turn) for decision in decisions])
        return turn

    @single_read
    async def count_follow_ups(
        self, tx: Tx, thread_id: str, *, day_began: datetime, leaving_out: int | None = None
    ) -> FollowUpCounts:
        return await count_follow_ups(tx, thread_id, day_began, leaving_out)

    @writes
    async def postpone(
        self,
        tx: Tx,
        lease: TimerLease,
        until: datetime,
        reason: str,
        *,
        now: datetime,
        state: TimerState = TimerState.POSTPONED,
        decisions: Sequence[Decision] = (),
    ) -> Timer:
        """Postpone a claimed timer; it is pending if the new time is its own, which no gate can
        change.
        """
        await lock_thread(tx, lease.timer.thread_id)
        _check_lease(lease, await _lock_timer(tx, lease.timer.id))
        row = await tx.change(
            "timers",
            lease.timer.id,
            state=state,
            due_at=until,
            wake_at=until,
            state_reason=storable(reason),
            owner=None,
            updated_at=now,
        )
        await record_decisions(tx, decisions)
        return Timer.of(row)

    @writes
    async def close(
        self,
        tx: Tx,
        lease: TimerLease,
        state: TimerState,
        reason: str,
        *,
        ids: SnowflakeSource,
        now: datetime,
        decisions: Sequence[Decision] = (),
    ) -> Timer:
        """End a claimed timer as suppressed, expired, missed or cancelled.

        The same step settles the batch of a continuation.
        """
        if state not in _ENDS:
            raise UsageError(f"A timer cannot be closed as {state!r}; use one of: {sorted(_ENDS)}.")
        timer = lease.timer
        thread = await lock_thread(tx, timer.thread_id)
        _check_lease(lease, await _lock_timer(tx, timer.id))
        row = await end_timer(tx, timer.id, state, reason, now)
        if timer.batch is not None:
            await settle_batch(tx, thread, timer.batch, RisingIds(thread, ids, now))
        await record_decisions(tx, decisions)
        return Timer.of(row)

    @writes
    async def cancel(
        self, tx: Tx, thread_id: str, reason: str, *, ids: SnowflakeSource, now: datetime
    ) -> list[Timer]:
        """Cancel the thread's live timers but its reminders, and return them, oldest first.

        The same step settles the batches of continuations, voids unseen follow-ups, and raises the
        epoch: no turn queued before arms a follow-up any more.
        """
        thread = await lock_thread(tx, thread_id)
        live = await find_live(tx, thread_id, now)
        # First, since the events of a voided follow-up wait again.
        await void_turns(tx, thread_id, live.unseen, reason, now)
        which = "thread_id = :thread AND kind IN ('follow_up', 'event')"
        cancelled = await cancel_timers(tx, which, reason, now, thread=thread_id)
        cancelled += await cancel_continuations(tx, thread, reason, RisingIds(thread, ids, now))
        await tx.run("UPDATE threads SET epoch = epoch + 1 WHERE id = :id", id=thread_id)
        return readable(Timer.of, sorted(cancelled, key=lambda row: int(row["id"])))

    @writes
    async def cancel_reminder(
        self, tx: Tx, timer_id: int, reason: str, *, now: datetime, but_turn: int | None = None
    ) -> Timer | None:
        """Cancel a reminder that waits or was not seen yet; None if there is none with this id. Its
        unseen turn is void, unless it is `but_turn`.
        """
        sql = "SELECT thread_id FROM timers WHERE id = :id AND kind = 'reminder'"
        if (row := await tx.find(sql, id=timer_id)) is None:
            return None
        await lock_thread(tx, row["thread_id"])
        rows = await end_reminders(tx, row["thread_id"], [timer_id], reason, now, but_turn)
        return Timer.of(rows[0]) if rows else None

    @writes
    async def move(self, tx: Tx, timer: Timer, to: NextTime, reason: str, *, now: datetime) -> bool:
        """Give a waiting timer another time; False if it changed since it was read."""
        moved = await tx.run(
            _MOVE,
            id=timer.id,
            seen=timer.due_at,
            at=to.due_at,
            payload=to_json(dict(to.payload)),
            reason=storable(reason),
            now=now,
        )
        return moved == 1

    @single_read
    async def find(self, tx: Tx, timer_id: int) -> Timer | None:
        row = await tx.find("SELECT * FROM timers WHERE id = :id", id=timer_id)
        return None if row is None else Timer.of(row)

    @reads
    async def list_of(
        self,
        tx: Tx,
        thread_id: str,
        *,
        limit: int = 50,
        kinds: Collection[TimerKind] = tuple(TimerKind),
    ) -> list[Timer]:
        """A thread's timers of these kinds in any state, newest first."""
        await thread_of(tx, thread_id)
        which = "thread_id = :thread AND kind = ANY(:kinds) ORDER BY id DESC LIMIT :limit"
        values = {"thread": thread_id, "kinds": [kind.value for kind in kinds]}
        return await _list(tx, which, **values, limit=limit)

    @single_read
    async def list_of_turn(self, tx: Tx, turn_id: int) -> list[Timer]:
        """The timers that queued a turn, oldest first."""
        return await _list(tx, "turn_id = :turn ORDER BY id", turn=turn_id)

    @single_read
    async def list_events(self, tx: Tx, like: Timer, *, limit: int = 20) -> list[Timer]:
        """The live events of a thread with the same trigger, a given one first, then the oldest."""
        which = (
            "thread_id = :thread AND kind = 'event' AND trigger_type = :trigger "
            "AND wake_at IS NOT NULL ORDER BY CASE WHEN id = :id THEN 0 ELSE 1 END, id LIMIT :limit"
        )
        values = {"thread": like.thread_id, "trigger": like.trigger_type, "id": like.id}
        return await _list(tx, which, **values, limit=limit)

    @single_read
    async def find_by_key(self, tx: Tx, user_id: str, key: str) -> Timer | None:
        """The first timer with a key in any thread of a user."""
        sql = "SELECT * FROM timers WHERE user_id = :user AND key = :key ORDER BY id LIMIT 1"
        row = await tx.find(sql, user=user_id, key=storable(key))
        return None if row is None else Timer.of(row)

    @single_read
    async def list_reminders(
        self, tx: Tx, user_id: str, *, thread_id: str | None = None, limit: int = 100
    ) -> list[Timer]:
        """The live reminders of a user, or of one of their threads, by their next time."""
        return await live_reminders(tx, user_id, thread_id, limit)

    @reads
    async def list_endable(self, tx: Tx, user_id: str, thread_id: str) -> list[Timer]:
        """The reminders of a thread that wait, or that the user has not seen yet."""
        waiting = await live_reminders(tx, user_id, thread_id)
        return [*waiting, *await unsent_reminders(tx, thread_id)]

    @single_read
    async def list_pending(self, tx: Tx, *, limit: int = 50) -> list[Timer]:
        """The live timers of all threads, in the order of their next wake-up."""
        return await _list(tx, "wake_at IS NOT NULL ORDER BY wake_at, id LIMIT :limit", limit=limit)


async def _list(tx: Tx, which: str, /, **values: Any) -> list[Timer]:
    return readable(Timer.of, await tx.all(f"SELECT * FROM timers WHERE {which}", **values))


async def _check_room(tx: Tx, thread: Thread, most: int, most_of_user: int) -> None:
    """`ConflictError` if the thread or its user has too many live reminders for one more."""
    sql = (
        "SELECT count(*) AS all_threads, count(CASE WHEN thread_id = :thread THEN 1 END) AS here "
        "FROM timers WHERE user_id = :user AND kind = 'reminder' AND wake_at IS NOT NULL"
    )
    [found] = await tx.all(sql, user=thread.user_id, thread=thread.id)
    if found["here"] >= most:
        raise ConflictError(f"This thread has {most} reminders, the maximum; cancel one first.")
    if found["all_threads"] >= most_of_user:
        raise ConflictError(
            f"This user has {most_of_user} reminders in all conversations, the maximum; cancel one "
            "first."
        )


async def _queue_fired(
    tx: Tx, thread: Thread, timer: Timer, message: HumanMessage, ids: RisingIds
) -> Turn:
    kind = timer.kind.turn_kind
    if timer.batch is None:
        _, row = stamp_now(message, ids)
        return await queue_with_message(tx, thread, row, NewTurn(row.batch, kind), ids)
    turn = await queue_turn(tx, thread, NewTurn(timer.batch, kind), ids)
    await append_to_batch(tx, thread, turn, [message], ids, BatchType.CONTINUATION)
    return turn


async def _wait_again(tx: Tx, timer: Timer, again: NextTime, epoch: int) -> None:
    """The epoch shows at the next time whether the user wrote in between."""
    payload = to_json(dict(again.payload))
    state, at = TimerState.PENDING, again.due_at
    await tx.change(
        "timers", timer.id, state=state, due_at=at, wake_at=at, payload=payload, epoch=epoch
    )


def _of_turn(decision: Decision, turn: Turn) -> Decision:
    return decision if decision.turn_id is not None else replace(decision, turn_id=turn.id)


async def _is_sound(tx: Tx, row: Row, now: datetime) -> bool:
    """Whether a due row can be read; one that cannot ends as suppressed."""
    try:
        Timer.of(row)
    except DamagedError as error:
        logger.error("Timer %s is suppressed: %s", row["id"], error)  # noqa: TRY400 - the row is the fault, not the code
        await end_timer(tx, row["id"], TimerState.SUPPRESSED, str(error), now)
        return False
    return True


async def _lock_timer(tx: Tx, timer_id: int) -> Row | None:
    sql = "SELECT state, token, owner FROM timers WHERE id = :id FOR UPDATE"
    return await tx.find(sql, id=timer_id)


def _check_lease(lease: TimerLease, row: Row | None) -> None:
    check_lease(f"timer {lease.timer.id}", row, lease.token, TimerState.CLAIMED)

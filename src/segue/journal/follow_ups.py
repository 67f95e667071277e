"""The timers and follow-ups of a thread, and the decisions about them.

The functions are called inside the steps of other modules, which hold the thread's lock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from segue.core.text import storable
from segue.core.triggers import check_trigger_name
from segue.errors import ConflictError, UsageError
from segue.journal.batches import RisingIds, batch_of, settle_batch
from segue.journal.queue import LIVE_TURNS, void_turns
from segue.journal.records import Decision, NewTimer, Thread, Timer, TimerKind, TimerState
from segue.journal.rows import EARLIEST, aware, read_time_or_none, readable, values_of
from segue.journal.threads import newest_of_thread, thread_of
from segue.journal.tx import Part, Row, Statement, Tx, insertion, reads, writes

_ALIVE: Final = "state IN ('pending', 'postponed', 'claimed')"
# A follow-up counts as seen once something of it was on the screen for this long.
SEEN_AFTER: Final = timedelta(seconds=1)
# A reminder after the same time is the same one if it is asked for again within this time.
_ASKED_AGAIN: Final = timedelta(minutes=1)
# The user has seen a follow-up if a message of it is stored, or if a draft of it is stored and was
# first shown at `seen_before` or earlier.
_LIVE: Final = f"""
    SELECT 'timer' AS what, id FROM timers WHERE thread_id = :thread AND kind = 'follow_up'
    AND {_ALIVE}
    UNION ALL
    SELECT CASE WHEN shown_at IS NULL OR (
        (state = 'queued' OR partial_text IS NULL OR shown_at > :seen_before)
        AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.thread_id = turns.thread_id
            AND messages.batch = turns.batch AND visible = true)
    ) THEN 'unseen' ELSE 'seen' END, id {LIVE_TURNS} AND kind = 'follow_up'
    UNION ALL
    SELECT 'reminder', id {LIVE_TURNS} AND kind = 'reminder' AND state = 'running'
        AND shown_at IS NULL
    UNION ALL
    SELECT 'waiting', id FROM turns WHERE thread_id = :thread AND is_waiting = true
"""
# Written as in the indices: otherwise SQLite does not use them.
_COUNTED: Final = (
    "kind = 'follow_up' AND (state IN ('queued', 'running') OR shown_at IS NOT NULL) "
    "AND turns.id <> :but"
)
# A follow-up is shown soon after it was queued, so the newest 20 hold the last one shown, and those
# queued since yesterday all that may have been shown today.
_COUNTS: Final = f"""
    SELECT (
        SELECT count(*) FROM turns WHERE thread_id = threads.id AND epoch = threads.epoch
        AND {_COUNTED}) AS consecutive, (
        SELECT count(*) FROM turns WHERE user_id = threads.user_id AND queued_at >= :since
        AND coalesce(shown_at, queued_at) >= :day AND {_COUNTED}) AS sent_today, (
        SELECT max(coalesce(shown_at, queued_at)) FROM (
            SELECT shown_at, queued_at FROM turns WHERE user_id = threads.user_id AND {_COUNTED}
            ORDER BY queued_at DESC LIMIT 20) AS newest) AS last_at
    FROM threads WHERE threads.id = :thread
"""
_LONGEST_WAIT: Final = timedelta(days=1)
_UNSEEN: Final = f"SELECT id {LIVE_TURNS} AND shown_at IS NULL"
# Reminders that fired, and that the user has not seen yet.
_UNSENT: Final = f"kind = 'reminder' AND state = 'fired' AND turn_id IN ({_UNSEEN})"
_CANCEL: Final = (
    "UPDATE timers SET state = 'cancelled', state_reason = :reason, owner = NULL, "
    "wake_at = NULL, updated_at = :now WHERE"
)
_WAIT_AGAIN: Final = f"""
    UPDATE timers SET state = 'postponed', due_at = :until, wake_at = :until, updated_at = :now
    WHERE turn_id = :turn AND (
        state = 'fired' AND (kind <> 'follow_up' OR key IS NOT NULL
            OR NOT EXISTS (SELECT 1 FROM timers AS newer WHERE newer.thread_id = timers.thread_id
                AND newer.kind = 'follow_up' AND newer.key IS NULL AND newer.{_ALIVE}))
        OR kind = 'reminder' AND state = 'pending' AND due_at > :until)
"""


@dataclass(frozen=True, slots=True)
class FollowUpCounts:
    """The follow-ups of a user that were shown, are queued or running.

    `consecutive`: in the thread since the user wrote; `sent_today`: of all agents since
    `day_began`; `last_at`: the latest of all. The turn `leaving_out` is not counted.
    """

    thread_id: str
    day_began: datetime
    consecutive: int
    sent_today: int
    last_at: datetime | None
    leaving_out: int | None = None


class Decisions(Part):
    """Why the agent wrote, and why it did not."""

    @writes
    async def record(self, tx: Tx, decision: Decision) -> None:
        await thread_of(tx, decision.thread_id)
        await record_decisions(tx, [decision])

    @reads
    async def list_of(self, tx: Tx, thread_id: str, *, limit: int = 50) -> list[Decision]:
        """A thread's decisions, newest first."""
        return [*map(Decision.of, await newest_of_thread(tx, "decisions", thread_id, limit))]


async def record_decisions(tx: Tx, decisions: Sequence[Decision]) -> None:
    for decision in decisions:
        await tx.together(decision_insert(decision))


def decision_insert(decision: Decision) -> Statement:
    return insertion("decisions", **values_of(decision))


@dataclass(frozen=True, slots=True)
class LiveFollowUps:
    """Ids, each kind in order: follow-up timers, follow-up turns by whether the user has seen
    anything of them, the turn of an unseen reminder that is running, and turns that wait for an
    answer.
    """

    timers: tuple[int, ...]
    unseen: tuple[int, ...]
    seen: tuple[int, ...]
    reminder: tuple[int, ...]
    waiting: tuple[int, ...]


async def find_live(tx: Tx, thread_id: str, now: datetime) -> LiveFollowUps:
    kinds = ("timer", "unseen", "seen", "reminder", "waiting")
    found: dict[str, list[int]] = {kind: [] for kind in kinds}
    for row in await tx.all(_LIVE, thread=thread_id, seen_before=aware(now) - SEEN_AFTER):
        found[row["what"]].append(row["id"])
    return LiveFollowUps(*(tuple(sorted(ids)) for ids in found.values()))


async def count_follow_ups(
    tx: Tx, thread_id: str, day_began: datetime, leaving_out: int | None
) -> FollowUpCounts:
    """The cost depends on the counted follow-ups, not on all that the user ever got."""
    since = max(day_began, EARLIEST + _LONGEST_WAIT) - _LONGEST_WAIT
    values = {"thread": thread_id, "day": day_began, "since": since, "but": leaving_out or 0}
    row = await tx.get(_COUNTS, f"There is no thread {thread_id!r}.", **values)
    last_at = read_time_or_none(row["last_at"])
    counted = row["consecutive"], row["sent_today"], last_at
    return FollowUpCounts(thread_id, day_began, *counted, leaving_out)


async def check_counts(tx: Tx, thread: Thread, counted: FollowUpCounts) -> None:
    """Raise if the user got a follow-up since `counted`; if not, none comes until the commit: the
    feed is locked with the thread, for all threads of the user.
    """
    if counted != await count_follow_ups(tx, thread.id, counted.day_began, counted.leaving_out):
        raise ConflictError(
            f"The user of thread {thread.id!r} got another follow-up after they were counted; "
            "check the gates again. Nothing was written."
        )


def check_timer(timer: NewTimer) -> None:
    """A continuation continues a batch; any other timer has a trigger and starts a batch."""
    if (timer.kind is TimerKind.CONTINUATION) is (timer.batch is None):
        raise UsageError(
            f"A {timer.kind} timer {'with' if timer.batch else 'without'} a batch cannot be armed: "
            "only a continuation has a batch, and needs one. Nothing was written."
        )
    if timer.kind is not TimerKind.CONTINUATION:
        check_trigger_name(timer.trigger_type)


async def prepare_arming(
    tx: Tx, thread: Thread, timer: NewTimer, timer_id: int, now: datetime, *, replaces: bool = True
) -> Statement:
    """Arm a timer at the thread's present epoch; one that silence brings `replaces` the live one.

    The old one ends here, before: the index allows one live follow-up without a key in a thread.
    """
    if timer.batch is not None:
        await batch_of(tx, thread.id, timer.batch)
    if replaces and timer.kind is TimerKind.FOLLOW_UP and timer.key is None:
        old = "thread_id = :thread AND kind = 'follow_up' AND key IS NULL"
        await cancel_timers(tx, old, "Replaced by a newer timer.", now, thread=thread.id)
    row = {
        "id": timer_id,
        "agent_id": thread.agent_id,
        "user_id": thread.user_id,
        "state": TimerState.PENDING,
        "reason": timer.reason and storable(timer.reason),
        "epoch": thread.epoch,
        "key": timer.key and storable(timer.key),
        "wake_at": timer.due_at,
        "created_at": now,
        "updated_at": now,
    }
    return insertion("timers", "RETURNING *", **values_of(timer) | row)


def timer_cancellation(timers: Sequence[int], reason: str, now: datetime) -> Statement:
    values = {"ids": [*timers], "reason": storable(reason), "now": now}
    return Statement(f"{_CANCEL} id = ANY(:ids)", values)


async def cancel_timers(
    tx: Tx, which: str, reason: str | None, now: datetime, /, **values: Any
) -> list[Row]:
    """Cancel the live timers that meet a condition, and return them, oldest first."""
    sql = f"{_CANCEL} {which} AND {_ALIVE} RETURNING *"
    rows = await tx.all(sql, reason=reason and storable(reason), now=now, **values)
    return sorted(rows, key=lambda row: int(row["id"]))


async def cancel_continuations(
    tx: Tx, thread: Thread, reason: str, ids: RisingIds, batch: int | None = None
) -> list[Row]:
    """Cancel the thread's live continuation timers, or those of one batch, and settle their
    batches.
    """
    which = (
        "thread_id = :thread AND kind = 'continuation' AND batch = coalesce(:batch::bigint, batch)"
    )
    rows = await cancel_timers(tx, which, reason, ids.now, thread=thread.id, batch=batch)
    for row in rows:
        await settle_batch(tx, thread, row["batch"], ids)
    return rows


async def end_reminders(
    tx: Tx,
    thread_id: str,
    reminders: Sequence[int],
    reason: str,
    now: datetime,
    but_turn: int | None = None,
) -> list[Row]:
    """Cancel those of the reminders that still wait in the thread, and void their turns that the
    user has not seen yet, except `but_turn`.
    """
    sql = (
        f"{_CANCEL} thread_id = :thread AND kind = 'reminder' AND id = ANY(:ids) "
        f"AND ({_ALIVE} OR {_UNSENT}) RETURNING *"
    )
    values = {"thread": thread_id, "reason": storable(reason), "now": now}
    rows = await tx.all(sql, **values, ids=[*reminders])
    turns = {row["turn_id"] for row in rows if row["turn_id"]} - {but_turn}
    unseen = await tx.all(f"{_UNSEEN} AND id = ANY(:turns)", thread=thread_id, turns=[*turns])
    await void_turns(tx, thread_id, [row["id"] for row in unseen], reason, now)
    return rows


async def unsent_reminders(tx: Tx, thread_id: str) -> list[Timer]:
    return readable(
        Timer.of, await tx.all(f"SELECT * FROM timers WHERE {_UNSENT}", thread=thread_id)
    )


async def end_timer(
    tx: Tx, timer_id: int, state: TimerState, reason: str | None, now: datetime
) -> Row:
    reason = None if reason is None else storable(reason)
    ended = {"state": state, "state_reason": reason, "updated_at": now}
    return await tx.change("timers", timer_id, **ended, owner=None, wake_at=None)


async def let_wait_again(tx: Tx, turn_id: int, until: datetime, now: datetime) -> None:
    """Postpone the timers of a turn that ended before the user saw anything of it.

    Not one that silence brought if there is a newer one, nor a reminder that comes again before.
    """
    await tx.run(_WAIT_AGAIN, until=until, now=now, turn=turn_id)


async def find_equal(tx: Tx, thread: Thread, timer: NewTimer) -> Timer | None:
    """The timer with this key in the thread, in any state; of an event, in any of the user's
    threads; of reminders also a live one with the same text at the same time, or `after` the same
    time and due within a minute of it.
    """
    if timer.key is not None:
        sql = "SELECT * FROM timers WHERE user_id = :user AND key = :key"
        if timer.kind is not TimerKind.EVENT:
            sql += " AND thread_id = :thread"
        values = {"user": thread.user_id, "key": storable(timer.key), "thread": thread.id}
        if row := await tx.find(sql + " ORDER BY id LIMIT 1", **values):
            return Timer.of(row)
    if timer.kind is not TimerKind.REMINDER or (wanted := _identity(timer.payload)) is None:
        return None
    for each in await live_reminders(tx, thread.user_id, thread.id):
        is_near = "after" not in wanted or abs(each.due_at - timer.due_at) < _ASKED_AGAIN
        if is_near and _identity(each.payload) == wanted:
            return each
    return None


async def live_reminders(
    tx: Tx, user_id: str, thread_id: str | None, limit: int = 1_000_000
) -> list[Timer]:
    """Those of a user, or of one of their threads, by their next time."""
    sql = (
        "SELECT * FROM timers WHERE user_id = :user AND kind = 'reminder' "
        "AND wake_at IS NOT NULL AND thread_id = coalesce(:thread, thread_id) "
        "ORDER BY wake_at, id LIMIT :limit"
    )
    rows = await tx.all(sql, user=user_id, thread=thread_id, limit=limit)
    return readable(Timer.of, rows)


def _identity(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """What makes two reminders equal: text and time; if they count from when they were made, the
    duration or the rule instead. None for a reminder that was stored without them.
    """
    text, schedule = payload.get("text"), payload.get("schedule")
    if not text or not isinstance(schedule, dict):
        return None
    if schedule.get("every"):
        names = ["every", "until", "zone"]
    else:
        names = ["after"] if schedule.get("after") else ["first"]
    return {"text": text, **{name: schedule.get(name) for name in names}}

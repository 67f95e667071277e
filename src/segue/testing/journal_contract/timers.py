"""Timers: armed, due, claimed, put off and closed. What firing does is `firing`'s."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone

import pytest
from langchain_core.messages import AIMessage

from segue.core.snowflake import SnowflakeSource
from segue.errors import ConflictError, UsageError
from segue.journal.follow_ups import SEEN_AFTER
from segue.journal.journal import Journal
from segue.journal.records import NewTimer, Timer, TimerKind, TimerLease, TimerState, TurnState
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, USER, Chat
from segue.testing.journal_contract.fixtures import START, OpenJournal, ticking_ids

SECOND = timedelta(seconds=1)


async def due_timers(
    journal: Journal, now: datetime, owner: str = "worker-a", limit: int = 100
) -> list[TimerLease]:
    return await journal.timers.claim_due(owner, now=now, lease_for=LEASE, limit=limit)


async def test_an_armed_timer_keeps_what_it_was_given(chat: Chat, ids: SnowflakeSource) -> None:
    """A timer is pending with all its fields, at the thread's present epoch."""
    await chat.exchange()
    new = NewTimer(
        "chat",
        NOW + HOUR,
        trigger_type="question_unanswered",
        reason="asked about tomorrow 🙂",
        expires_at=NOW + 2 * HOUR,
        missed="skip",
        payload={"variant": "b", "n": 2**63 - 1, "deep": [{"x": None}]},
    )
    timer = await chat.journal.timers.arm(new, ids=ids, now=NOW)
    for field in ("thread_id", "due_at", "trigger_type", "reason", "kind", "batch", "missed"):
        assert getattr(timer, field) == getattr(new, field)
    assert (timer.expires_at, timer.payload) == (new.expires_at, new.payload)
    assert (timer.state, timer.state_reason) == (TimerState.PENDING, None)
    assert (timer.agent_id, timer.user_id, timer.epoch) == ("guide", "ada", 1)
    assert (timer.created_at, timer.updated_at) == (NOW, NOW)
    assert await chat.timers() == [timer]


async def test_times_come_back_in_utc(journal: Journal, chat: Chat) -> None:
    """A moment given in another zone is the same moment in UTC, to the microsecond."""
    moment = (NOW + timedelta(microseconds=123_457)).astimezone(timezone(timedelta(hours=-5)))
    await journal.timers.arm(NewTimer(chat.thread_id, moment, "check_in"), ids=chat.ids, now=moment)
    [timer] = await chat.timers()
    assert timer.due_at == timer.created_at == moment
    assert timer.due_at.utcoffset() == timedelta(0)


async def test_arming_again_replaces_the_live_timer(journal: Journal, chat: Chat) -> None:
    """Also a claimed one, which its worker then loses; those replaced are on record, with why."""
    claimed = await chat.arm()
    lease = await chat.take_timer()
    pending = await chat.arm(HOUR)
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.postpone(lease, chat.now + HOUR, "busy")
    live = await chat.arm(2 * HOUR)
    newest, *replaced = await chat.timers()
    assert newest == live
    assert ids_of(replaced) == [pending.id, claimed.id]
    assert {timer.state for timer in replaced} == {TimerState.CANCELLED}
    assert all(timer.state_reason for timer in replaced)
    assert await journal.timers.next_at() == live.due_at


async def test_what_was_decided_before_the_user_wrote_is_not_armed(chat: Chat) -> None:
    """It is refused, and the timer that belongs to the later answer stays."""
    await chat.exchange()
    decided_at = (await chat.thread()).epoch
    await chat.exchange()
    later = await chat.arm(HOUR)
    stale = NewTimer("chat", chat.now, "check_in")
    with pytest.raises(ConflictError):
        await chat.journal.timers.arm(stale, ids=chat.ids, now=chat.now, epoch=decided_at)
    assert await chat.timers() == [later]
    armed = await chat.journal.timers.arm(stale, ids=chat.ids, now=chat.now, epoch=decided_at + 1)
    assert armed.epoch == decided_at + 1


async def test_arming_at_once_leaves_one_live_timer(crowd: list[Chat]) -> None:
    """Processes that arm a thread's timer at the same time do not make two."""
    await asyncio.gather(*(each.arm() for each in crowd))
    states = [timer.state for timer in await crowd[0].timers()]
    assert sorted(states) == [TimerState.CANCELLED] * (len(crowd) - 1) + [TimerState.PENDING]
    assert len(await due_timers(crowd[0].journal, NOW)) == 1


async def test_a_continuation_does_not_replace_the_follow_up(chat: Chat) -> None:
    """Going on with a batch and speaking first are different promises."""
    batch = await chat.exchange()
    follow_up = await chat.arm(HOUR)
    continuation = await chat.arm(HOUR, kind=TimerKind.CONTINUATION, batch=batch)
    assert await chat.timers() == [continuation, follow_up]


async def test_timers_are_claimed_when_they_are_due(journal: Journal, chat: Chat) -> None:
    """Not a moment earlier, by one worker; by another when the lease has run out."""
    timer = await chat.arm(HOUR)
    assert await due_timers(journal, NOW + HOUR - SECOND) == []
    [late] = await due_timers(journal, NOW + HOUR, "worker-a")
    end = NOW + HOUR + LEASE
    assert (late.owner, late.until) == ("worker-a", end)
    assert (late.timer.id, late.timer.state) == (timer.id, TimerState.CLAIMED)
    for early in (NOW + HOUR, end - SECOND):
        assert await due_timers(journal, early) == []
    [lease] = await due_timers(journal, end, "worker-b")
    assert (lease.owner, lease.timer.id) == ("worker-b", timer.id)
    assert lease.token != late.token


async def test_due_timers_come_in_order_of_time(journal: Journal, chat: Chat) -> None:
    """The one that waits longest is decided first, and a limit leaves the later ones."""
    for n, minutes in enumerate([30, 10, 20, 40]):
        await (await chat.another(f"thread-{n}")).arm(timedelta(minutes=minutes))
    first = await due_timers(journal, NOW + HOUR, limit=3)
    assert [lease.timer.thread_id for lease in first] == ["thread-1", "thread-2", "thread-0"]
    [last] = await due_timers(journal, NOW + HOUR, limit=3)
    assert last.timer.thread_id == "thread-3"


async def test_two_workers_never_get_the_same_timer(crowd: list[Chat], chat: Chat) -> None:
    """Handles that claim at the same time share what is due without overlap."""
    expected = {(await (await chat.another(f"thread-{n}")).arm()).id for n in range(8)}
    claimed = await asyncio.gather(
        *(due_timers(each.journal, NOW, f"worker-{n}", limit=3) for n, each in enumerate(crowd))
    )
    taken = [lease.timer.id for leases in claimed for lease in leases]
    assert len(taken) == len(set(taken))
    taken += [lease.timer.id for lease in await due_timers(chat.journal, NOW)]
    assert sorted(taken) == sorted(expected)


LATE_TIMER_STEPS: dict[str, Callable[[Chat, TimerLease], Awaitable[object]]] = {
    "fire": lambda chat, late: chat.fire(late),
    "postpone": lambda chat, late: chat.postpone(late, chat.now + HOUR, "busy"),
    "close": lambda chat, late: chat.close(late, TimerState.MISSED, "late"),
}


async def test_whoever_lost_a_timer_changes_nothing(chat: Chat) -> None:
    """Every step with a lease that no longer counts is refused and has no effect."""
    late = await chat.claimed_timer()
    await due_timers(chat.journal, NOW + LEASE, "worker-b")
    before = await chat.timers()
    for name, step in LATE_TIMER_STEPS.items():
        with pytest.raises(ConflictError, match="Nothing was written"):
            await step(chat, late)
        assert await chat.timers() == before, name
        assert await chat.messages() == [], name
        assert await chat.turns() == [], name


async def test_live_timers_of_all_threads_are_listed_soonest_first(chat: Chat) -> None:
    """They are counted up to a bound, and a worker can sleep until the next one is due."""
    timers = chat.journal.timers
    assert await timers.list_pending() == []
    assert (await timers.count(limit=10), await timers.next_at()) == (0, None)
    late, soon = await chat.arm(HOUR), await (await chat.another("bobs", user_id="bob")).arm(SECOND)
    assert await timers.list_pending() == [soon, late]
    assert await timers.list_pending(limit=1) == [soon]
    assert await timers.next_at() == NOW + SECOND
    [lease] = await due_timers(chat.journal, NOW + SECOND)
    assert await timers.next_at() == lease.until
    assert [await timers.count(limit=limit) for limit in (10, 1)] == [2, 1]
    await timers.close(lease, TimerState.SUPPRESSED, "muted", ids=chat.ids, now=NOW)
    assert await timers.list_pending() == [late]
    assert (await timers.count(limit=10), await timers.next_at()) == (1, NOW + HOUR)


async def test_a_postponed_timer_waits_for_its_new_time(journal: Journal, chat: Chat) -> None:
    """It stays alive with the reason, is due later, and keeps the epoch it was armed at."""
    armed = await chat.arm()
    later = NOW + SECOND
    timer = await journal.timers.postpone(
        await chat.take_timer(), NOW + HOUR, "quiet hours", now=later
    )
    assert (timer.id, timer.state) == (armed.id, TimerState.POSTPONED)
    assert (timer.due_at, timer.state_reason) == (NOW + HOUR, "quiet hours")
    assert (timer.epoch, timer.updated_at) == (armed.epoch, later)
    assert await journal.timers.next_at() == NOW + HOUR
    assert await due_timers(journal, NOW + HOUR - SECOND) == []
    assert len(await due_timers(journal, NOW + HOUR)) == 1


@pytest.mark.parametrize(
    "state",
    [TimerState.SUPPRESSED, TimerState.EXPIRED, TimerState.MISSED, TimerState.CANCELLED],
    ids=str,
)
async def test_a_claimed_timer_is_closed_with_its_reason(chat: Chat, state: TimerState) -> None:
    """A timer that does not fire says why, and is never due again."""
    closed = await chat.close(await chat.claimed_timer(), state, "muted")
    assert (closed.state, closed.state_reason) == (state, "muted")
    assert await chat.timers() == [closed]
    assert await chat.journal.timers.next_at() is None


async def test_a_timer_cannot_be_closed_as_something_else(chat: Chat) -> None:
    """A timer is not ended as alive, nor as fired without a message."""
    lease = await chat.claimed_timer()
    states = TimerState.PENDING, TimerState.POSTPONED, TimerState.CLAIMED, TimerState.FIRED
    for state in states:
        with pytest.raises(UsageError):
            await chat.close(lease, state, "muted")
    assert await chat.timers() == [lease.timer]


@pytest.mark.parametrize("of_all", [True, False])
async def test_what_was_put_off_is_considered_anew_when_wishes_change(
    journal: Journal, chat: Chat, *, of_all: bool
) -> None:
    """A user's change brings forward all that was put off, a thread's only its own."""
    waiting = {}
    for name in ("first", "second"):
        await (await chat.another(name)).arm()
        [lease] = await due_timers(journal, NOW)
        waiting[name] = await chat.postpone(lease, NOW + HOUR, "snoozed")
    planned = await chat.arm(HOUR)
    later = NOW + timedelta(minutes=1)
    assert await journal.users.update_settings("bo", {"a": 1}, now=later, reconsider_at=later) == {
        "a": 1
    }
    await journal.users.update_settings(USER, {"a": 1}, now=later)
    await journal.threads.update("first", settings={"a": 1})
    assert await due_timers(journal, later) == []
    if of_all:
        await journal.users.update_settings(USER, {"a": 2}, now=later, reconsider_at=later)
    else:
        await journal.threads.update("first", settings={"a": 2}, reconsider_at=later)
    assert await journal.timers.next_at() == later
    leases = await due_timers(journal, later)
    assert {lease.timer.thread_id for lease in leases} == ({*waiting} if of_all else {"first"})
    assert {lease.timer.due_at for lease in leases} == {NOW + HOUR}
    assert await chat.timers() == [planned]


async def test_cancelling_ends_the_live_timer_of_one_thread(journal: Journal, chat: Chat) -> None:
    """What was cancelled is returned with the reason; other threads keep theirs."""
    armed = await chat.arm(HOUR)
    other = await (await chat.another("second")).arm(HOUR)
    [cancelled] = await chat.drop("snoozed")
    assert (cancelled.id, cancelled.state) == (armed.id, TimerState.CANCELLED)
    assert cancelled.state_reason == "snoozed"
    assert await chat.timers() == [cancelled]
    assert await journal.timers.list_of("second") == [other]
    assert await chat.drop("again") == []


async def test_cancelling_voids_a_follow_up_that_nobody_has_seen(chat: Chat) -> None:
    """Though its timer fired: nothing of it may be shown, and what waits behind it moves up."""
    batch = await chat.exchange()
    turn = await chat.follow_up()
    lease = await chat.take_turn()
    behind = await chat.continue_batch(batch)
    assert await chat.drop("unwanted") == []
    void = await chat.turn(turn.id)
    assert (void.state, void.error) == (TurnState.VOID, "unwanted")
    with pytest.raises(ConflictError):
        await chat.show(lease)
    assert (await chat.take_turn()).turn.id == behind.id


async def test_cancelling_leaves_what_somebody_sees(journal: Journal, chat: Chat) -> None:
    """A follow-up that was shown runs on, and so does an answer."""
    lease = await chat.shown_follow_up(SEEN_AFTER)
    asked = await (await chat.another("second")).say()
    for thread, turn in (("chat", lease.turn), ("second", asked.turn)):
        await journal.timers.cancel(thread, "unwanted", ids=chat.ids, now=NOW)
        assert (await chat.turn(turn.id)).state is not TurnState.VOID


async def test_what_was_decided_before_a_drop_is_not_armed_after_it(chat: Chat) -> None:
    """Not by a slow decider, nor by the end of a reply; the next message begins anew."""
    await chat.exchange()
    decided_for = (await chat.thread()).epoch
    lease = await chat.running_reply()
    assert await chat.drop("unwanted") == []
    planned = NewTimer("chat", NOW + HOUR, "check_in")
    for epoch in (decided_for, lease.turn.epoch):
        with pytest.raises(ConflictError, match="Nothing was written"):
            await chat.journal.timers.arm(planned, ids=chat.ids, now=NOW, epoch=epoch)
    await chat.finish(lease, AIMessage("Yes."), timers=[planned])
    assert await chat.timers() == []
    await chat.finish(await chat.running_reply(), AIMessage("Yes."), timers=[planned])
    assert len(await chat.timers()) == 1


async def test_timers_are_listed_newest_first(open_journal: OpenJournal, chat: Chat) -> None:
    """Up to a limit; also one that a process with a slow clock armed last."""
    slow = Chat(await open_journal(), ticking_ids(node=2, start=START - HOUR), NOW)
    armed = [(await each.arm(HOUR)).id for each in (chat, chat, slow)]
    assert ids_of(await chat.timers()) == armed[::-1]
    assert ids_of(await chat.journal.timers.list_of("chat", limit=2)) == armed[:0:-1]


def ids_of(timers: list[Timer]) -> list[int]:
    return [timer.id for timer in timers]

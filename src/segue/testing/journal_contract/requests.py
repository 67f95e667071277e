"""Timers with a key: requested follow-ups, events and reminders."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.errors import ConflictError
from segue.journal.journal import Journal
from segue.journal.records import (
    DROPPED,
    NewTimer,
    NextTime,
    TimerKind,
    TimerState,
    TurnKind,
    TurnState,
)
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat

EVENT: dict[str, Any] = {"kind": TimerKind.EVENT, "trigger_type": "event"}
REMINDER: dict[str, Any] = {"kind": TimerKind.REMINDER, "trigger_type": "reminder"}


DAILY = {"first": "2027-01-15T09:00:00+00:00", "zone": "UTC", "every": "FREQ=DAILY", "until": None}
ONCE = {**DAILY, "every": None}


async def state_of(chat: Chat, timer_id: int) -> TimerState:
    return (await chat.timer(timer_id)).state


async def test_a_key_makes_one_timer(chat: Chat) -> None:
    """A program that asks again after a lost answer gets the first, even after it has fired."""
    first = await chat.arm(key="program:a", payload={"data": 1})
    again = await chat.arm(HOUR, key="program:a", payload={"data": 2})
    assert again == first
    await chat.fire(await chat.take_timer())
    assert (await chat.arm(key="program:a")).state is TimerState.FIRED
    assert (await (await chat.another("second")).arm(key="program:a")).id != first.id


async def test_of_equal_keys_at_once_one_is_new(crowd: list[Chat]) -> None:
    """A program that repeats a request learns which one counted."""
    armed = await asyncio.gather(*(each.arm(HOUR, key="program:a") for each in crowd))
    assert sum(timer.is_new for timer in armed) == 1
    assert len({timer.id for timer in armed}) == 1
    assert not (await crowd[0].arm(HOUR, key="program:a")).is_new


async def test_an_event_is_told_once_in_all_threads_of_its_user(crowd: list[Chat]) -> None:
    """Two processes get it at once, and another thread is the newest for each of them."""
    here = [await chat.another(f"thread-{n}") for n, chat in enumerate(crowd)]
    armed = await asyncio.gather(*(each.arm(HOUR, key="event:a", **EVENT) for each in here))
    assert sum(timer.is_new for timer in armed) == 1
    assert len({timer.id for timer in armed}) == 1
    bobs = await crowd[0].another("bobs", user_id="bob")
    assert (await bobs.arm(HOUR, key="event:a", **EVENT)).is_new


async def test_a_reminder_that_is_asked_for_again_is_one(chat: Chat) -> None:
    """Within a minute, the same text after the same duration is a repeated request."""
    soon = {"text": "call mum", "schedule": {**ONCE, "after": 1200.0}}
    other = {"text": "call mum", "schedule": {**ONCE, "after": 1170.0}}
    first = await chat.arm(HOUR, key="a", payload=soon, **REMINDER)
    late = HOUR + timedelta(seconds=59)
    assert (await chat.arm(late, key="b", payload=soon, **REMINDER)).id == first.id
    assert (await chat.arm(late, key="c", payload=other, **REMINDER)).id != first.id
    assert (await chat.arm(HOUR * 2, key="d", payload=soon, **REMINDER)).id != first.id


async def test_requested_follow_ups_stand_beside_the_one_of_silence(chat: Chat) -> None:
    """Neither replaces the other; only silence has one at a time."""
    requested = [await chat.arm(HOUR, key=key) for key in ("program:a", "program:b")]
    silence = [await chat.arm(HOUR), await chat.arm(HOUR)]
    states = [await state_of(chat, timer.id) for timer in (*requested, *silence)]
    pending, cancelled = TimerState.PENDING, TimerState.CANCELLED
    assert states == [pending, pending, cancelled, pending]


async def test_a_reply_voids_what_was_requested_but_no_event_and_no_reminder(chat: Chat) -> None:
    """A reply beats a follow-up; what happened and what was promised stays."""
    requested = await chat.arm(HOUR, key="program:a")
    kept = [await chat.arm(HOUR, key="e", **EVENT), await chat.arm(HOUR, key="r", **REMINDER)]
    accepted = await chat.say()
    assert accepted.cancelled_timers == (requested.id,)
    assert [await state_of(chat, timer.id) for timer in kept] == [TimerState.PENDING] * 2


async def test_an_event_that_a_reply_overtook_is_told_later(chat: Chat, journal: Journal) -> None:
    """The follow-up about it is void, and the event waits again: nothing is lost or told twice."""
    first, second = [await chat.arm(key=key, **EVENT) for key in ("e1", "e2")]
    leases = await journal.timers.claim_due("w", now=chat.now, lease_for=HOUR)
    turn = await chat.fired(leases[0], together=[first.id, second.id])
    assert turn.kind is TurnKind.FOLLOW_UP
    assert [timer.id for timer in await journal.timers.list_of_turn(turn.id)] == [
        first.id,
        second.id,
    ]
    assert (await chat.say()).voided_turns == (turn.id,)
    waiting = await journal.timers.list_events(second)
    assert [timer.id for timer in waiting] == [second.id, first.id]
    assert {(timer.state, timer.due_at) for timer in waiting} == {(TimerState.POSTPONED, chat.now)}


async def test_an_event_that_was_told_meanwhile_is_not_told_again(
    chat: Chat, journal: Journal
) -> None:
    """Two workers may gather the same events; the second one is to gather anew."""
    first, second = [await chat.arm(key=key, **EVENT) for key in ("e1", "e2")]
    one, two = await journal.timers.claim_due("w", now=chat.now, lease_for=HOUR)
    assert await chat.fire(one, together=[first.id]) is not None
    turns = await chat.turns()
    with pytest.raises(ConflictError, match="collect the events again"):
        await chat.fire(two, together=[first.id, second.id])
    assert await chat.turns() == turns
    assert await chat.fire(two, together=[second.id]) is not None


async def test_a_user_who_wants_no_follow_up_gets_no_event_either(chat: Chat) -> None:
    """Reminders stay: they are cancelled one by one."""
    event, reminder = await chat.arm(key="e", **EVENT), await chat.arm(key="r", **REMINDER)
    ended = await chat.drop(DROPPED)
    assert [timer.id for timer in ended] == [event.id]
    assert await state_of(chat, reminder.id) is TimerState.PENDING


async def test_a_reminders_turn_is_no_follow_up(chat: Chat, journal: Journal) -> None:
    """A reply does not void it, and no cap counts it."""
    turn = await chat.fired(await chat.claimed_timer(key="r", **REMINDER))
    assert turn.kind is TurnKind.REMINDER
    assert (await chat.say()).voided_turns == ()
    counts = await journal.timers.count_follow_ups("chat", day_began=chat.now)
    assert (counts.consecutive, counts.sent_today) == (0, 0)


async def test_a_recurring_reminder_keeps_its_row(chat: Chat, journal: Journal) -> None:
    """Firing and the next time are one step, so that no crash loses the series."""
    reminder = await chat.arm(key="r", payload={"unanswered": 0}, **REMINDER)
    await chat.exchange()
    lease = await chat.take_timer()
    next_time = NextTime(chat.now + HOUR, {"unanswered": 1})
    turn = await chat.fired(lease, again=next_time)
    [again] = await journal.timers.list_reminders("ada")
    assert (again.id, again.state, again.due_at) == (
        reminder.id,
        TimerState.PENDING,
        chat.now + HOUR,
    )
    assert (again.payload, again.turn_id) == ({"unanswered": 1}, turn.id)
    assert again.epoch == (await chat.thread()).epoch > reminder.epoch


async def test_a_waiting_reminder_is_moved_to_another_time(chat: Chat, journal: Journal) -> None:
    """With its payload, if it still waits for the time that was read; else nothing is written."""
    reminder = await chat.arm(HOUR, key="r", **REMINDER)
    to = NextTime(NOW + 2 * HOUR, {"zone": "elsewhere"})
    assert await journal.timers.move(reminder, to, "moved", now=chat.now)
    assert not await journal.timers.move(reminder, to, "moved again", now=chat.now)
    [moved] = await journal.timers.list_reminders("ada")
    assert (moved.id, moved.due_at, moved.payload) == (reminder.id, to.due_at, to.payload)
    assert (moved.state, moved.state_reason) == (TimerState.PENDING, "moved")
    [lease] = await journal.timers.claim_due("worker", now=to.due_at, lease_for=LEASE)
    assert not await journal.timers.move(lease.timer, to, "too late", now=chat.now)


async def test_a_reminder_is_cancelled_by_its_id(chat: Chat, journal: Journal) -> None:
    """Once; and no other timer can be cancelled this way."""
    reminder, event = await chat.arm(key="r", **REMINDER), await chat.arm(key="e", **EVENT)
    cancel = journal.timers.cancel_reminder
    cancelled = await cancel(reminder.id, DROPPED, now=chat.now)
    assert cancelled is not None
    assert (cancelled.state, cancelled.state_reason) == (TimerState.CANCELLED, DROPPED)
    for timer_id in (reminder.id, event.id, 1):
        assert await cancel(timer_id, DROPPED, now=chat.now) is None


@pytest.mark.parametrize("again", [None, NextTime(NOW + 9 * HOUR, {})], ids=["once", "series"])
async def test_a_reminder_is_cancelled_with_its_unseen_turn(
    chat: Chat, journal: Journal, again: NextTime | None
) -> None:
    """It fired, but the user has seen nothing of it; its own turn may also end it and go on."""
    reminder = await chat.arm(key="r", **REMINDER)
    turn = await chat.fired(await chat.take_timer(), again=again)
    assert reminder.id in {t.id for t in await journal.timers.list_endable("ada", "chat")}
    cancelled = await journal.timers.cancel_reminder(reminder.id, DROPPED, now=chat.now)
    assert cancelled is not None
    assert cancelled.state is TimerState.CANCELLED
    assert (await journal.turns.get(turn.id)).state is TurnState.VOID
    assert await journal.timers.list_endable("ada", "chat") == []
    own = await chat.arm(key="own", **REMINDER)
    turn = await chat.fired(await chat.take_timer(), again=again)
    await journal.timers.cancel_reminder(own.id, DROPPED, now=chat.now, but_turn=turn.id)
    assert (await journal.turns.get(turn.id)).state is TurnState.QUEUED


@pytest.mark.parametrize("key", [None, "program:a"])
async def test_a_withdrawn_follow_up_waits_with_its_timer(chat: Chat, key: str | None) -> None:
    """Nothing of it was seen, so it starts again at its new time, with the same prompt and key."""
    timer = await chat.arm(key=key, payload={"prompt": "Ask about the exam."})
    await chat.fire(await chat.take_timer())
    lease = await chat.take_turn()
    await chat.withdraw(lease, "Quiet.", postponed_until=chat.now + HOUR)
    found = await chat.timer(timer.id)
    assert (found.state, found.due_at) == (TimerState.POSTPONED, chat.now + HOUR)
    assert found.payload == timer.payload


async def test_a_withdrawn_follow_up_gives_way_to_a_newer_one(chat: Chat) -> None:
    """A thread has one follow-up of silence at a time, whatever was postponed."""
    timer = await chat.arm()
    await chat.fire(await chat.take_timer())
    newer = await chat.arm(HOUR)
    await chat.withdraw(await chat.take_turn(), "Quiet.", postponed_until=chat.now + HOUR)
    assert await state_of(chat, timer.id) is TimerState.FIRED
    assert await state_of(chat, newer.id) is TimerState.PENDING


@pytest.mark.parametrize(
    ("hours", "state", "due_in"), [(1, TimerState.POSTPONED, 1), (4, TimerState.PENDING, 3)]
)
async def test_a_withdrawn_reminder_waits_no_longer_than_its_next_time(
    chat: Chat, hours: int, state: TimerState, due_in: int
) -> None:
    """A recurring one is postponed like others, unless it comes again before."""
    reminder = await chat.arm(key="r", **REMINDER)
    await chat.fired(await chat.take_timer(), again=NextTime(chat.now + 3 * HOUR, {}))
    lease = await chat.take_turn()
    await chat.withdraw(lease, "Quiet.", postponed_until=chat.now + hours * HOUR)
    found = await chat.timer(reminder.id)
    assert (found.state, found.due_at) == (state, chat.now + due_in * HOUR)


async def test_the_end_of_a_turn_arms_a_key_once(chat: Chat, journal: Journal) -> None:
    """A promise that a reply made twice is one reminder."""
    for text in ("I will remind you.", "I will, as I said."):
        await chat.say()
        new = NewTimer("chat", chat.now + HOUR, key="promise", **REMINDER)
        await chat.finish(await chat.take_turn(), AIMessage(text), timers=[new])
    assert len(await journal.timers.list_reminders("ada")) == 1


async def test_an_equal_reminder_is_the_one_that_lives(chat: Chat, journal: Journal) -> None:
    """Same text and same time, or same rule; another text or time, or one that ended, is new."""
    for n, schedule in enumerate((ONCE, DAILY)):
        wanted = {"text": "call mum", "schedule": schedule}
        made = await chat.arm(HOUR, key=f"{n}a", payload=wanted, **REMINDER)
        assert (await chat.arm(HOUR, key=f"{n}b", payload=wanted, **REMINDER)).id == made.id
        later = {**schedule, "first": "2027-01-16T09:00:00+00:00"}
        moved = await chat.arm(HOUR, key=f"{n}c", payload={**wanted, "schedule": later}, **REMINDER)
        assert (moved.id == made.id) is (schedule is DAILY)
        other = await chat.arm(HOUR, key=f"{n}d", payload={**wanted, "text": "rest"}, **REMINDER)
        assert other.id != made.id
        await journal.timers.cancel_reminder(made.id, DROPPED, now=chat.now)
        assert (await chat.arm(HOUR, key=f"{n}e", payload=wanted, **REMINDER)).id != made.id


async def test_the_end_of_a_turn_sets_no_equal_reminder(chat: Chat, journal: Journal) -> None:
    """What another process set while the reply was written is not set again."""
    payload = {"text": "call mum", "schedule": ONCE}
    lease = await chat.running_reply()
    await chat.arm(HOUR, key="r", payload=payload, **REMINDER)
    new = NewTimer("chat", chat.now + HOUR, key="promise", payload=payload, **REMINDER)
    await chat.finish(lease, AIMessage("I will remind you."), timers=[new])
    assert len(await journal.timers.list_reminders("ada")) == 1


async def test_a_thread_has_a_limit_of_reminders(chat: Chat, journal: Journal) -> None:
    """One that is there already is returned all the same."""
    made = [
        await chat.arm(HOUR, key=key, payload={"text": key, "schedule": ONCE}, **REMINDER)
        for key in ("a", "b")
    ]
    for key, text in (("a", "x"), ("c", "b")):
        payload = {"text": text, "schedule": ONCE}
        new = NewTimer("chat", chat.now + HOUR, key=key, payload=payload, **REMINDER)
        equal = await journal.timers.arm(new, ids=chat.ids, now=chat.now, most=(2, 9))
        assert equal in made
    new = NewTimer("chat", chat.now + HOUR, key="d", payload={"text": "d"}, **REMINDER)
    with pytest.raises(ConflictError, match="cancel one first"):
        await journal.timers.arm(new, ids=chat.ids, now=chat.now, most=(2, 9))


async def test_a_message_ends_reminders_of_its_thread(chat: Chat) -> None:
    """Those that it names and that still wait, once, with the reason of the decision."""
    named, kept = [await chat.arm(HOUR, key=key, **REMINDER) for key in ("a", "b")]
    event = await chat.arm(HOUR, key="e", **EVENT)
    other = await (await chat.another("second")).arm(HOUR, key="a", **REMINDER)
    why = chat.decision(kind="request", reasons=("Enough.",))
    asked = [named.id, event.id, other.id]
    for _ in range(2):
        await chat.say("Stop reminding me.", "m", reminders=asked, decisions=[why])
    ended = await chat.timer(named.id)
    assert (ended.state, ended.state_reason) == (TimerState.CANCELLED, "Enough.")
    states = [await state_of(chat, timer.id) for timer in (kept, event, other)]
    assert states == [TimerState.PENDING] * 3
    assert len(await chat.decisions()) == 1

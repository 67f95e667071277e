"""Counting what a user got of follow-ups, and firing only if the count still holds."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.core.messages import continuation_message
from segue.errors import ConflictError
from segue.journal.follow_ups import FollowUpCounts
from segue.journal.journal import Journal
from segue.journal.records import TimerKind, TimerState, Turn, TurnState
from segue.testing.journal_contract.chat import HOUR, NOW, Chat
from segue.testing.journal_contract.fixtures import OpenJournal, ticking_ids

DAY = timedelta(days=1)


async def send(chat: Chat) -> Turn:
    """A follow-up that the user sees to its end."""
    turn = await chat.follow_up()
    lease = await chat.take_turn()
    await chat.show(lease)
    await chat.finish(lease, AIMessage("Still there?"))
    return turn


async def counted(chat: Chat, **given: int | None) -> tuple[int, int, datetime | None]:
    counts = await chat.journal.timers.count_follow_ups(chat.thread_id, day_began=chat.now, **given)
    return counts.consecutive, counts.sent_today, counts.last_at


async def test_a_user_who_got_nothing_counts_nothing(journal: Journal, chat: Chat) -> None:
    """The count says what it is of."""
    await chat.exchange()
    counts = await journal.timers.count_follow_ups("chat", day_began=NOW, leaving_out=7)
    assert counts == FollowUpCounts("chat", NOW, 0, 0, None, leaving_out=7)


async def test_follow_ups_on_their_way_are_counted(chat: Chat) -> None:
    """Queued and running ones too, from when they were queued: the user is about to get them."""
    await chat.follow_up()
    assert await counted(chat) == (1, 1, NOW)
    await chat.take_turn()
    assert await counted(chat) == (1, 1, NOW)


@pytest.mark.parametrize("end", ["finish", "fail"])
async def test_follow_ups_that_were_shown_are_counted(chat: Chat, end: str) -> None:
    """However they ended, from when they were shown."""
    lease = await chat.running_follow_up()
    await chat.journal.turns.show(lease, now=NOW + HOUR)
    if end == "finish":
        await chat.finish(lease, AIMessage("Still there?"))
    else:
        await chat.journal.turns.fail(lease, "oops", ids=chat.ids, now=NOW + HOUR)
    assert await counted(chat) == (1, 1, NOW + HOUR)


@pytest.mark.parametrize("end", ["finish", "fail", "void"])
async def test_follow_ups_that_nobody_saw_are_not_counted(chat: Chat, end: str) -> None:
    """One that ended unseen was none."""
    lease = await chat.running_follow_up()
    if end == "finish":
        await chat.finish(lease)
    elif end == "fail":
        await chat.fail(lease, "oops")
    else:
        await chat.say()
    assert await counted(chat) == (0, 0, None)


async def test_answers_and_continuations_are_not_counted(chat: Chat) -> None:
    """They were asked for."""
    await chat.continue_batch(await chat.exchange())
    await chat.show(await chat.take_turn())
    assert await counted(chat) == (0, 0, None)


async def test_consecutive_ones_end_when_the_user_writes(chat: Chat) -> None:
    """What was sent before the user wrote was answered; it still counts for the day."""
    await send(chat)
    await send(chat)
    assert await counted(chat) == (2, 2, NOW)
    await chat.exchange()
    assert await counted(chat) == (0, 2, NOW)
    await send(chat)
    assert await counted(chat) == (1, 3, NOW)


async def test_the_day_is_of_the_user_and_the_row_of_the_thread(chat: Chat) -> None:
    """Other threads and agents of the user count for the day, and other users do not."""
    await send(await chat.another("second"))
    await send(await chat.another("lesson", agent_id="tutor"))
    await send(await chat.another("theirs", user_id="bo"))
    assert await counted(chat) == (0, 2, NOW)
    await send(chat)
    assert await counted(chat) == (1, 3, NOW)


async def test_the_day_has_a_beginning(journal: Journal, chat: Chat) -> None:
    """A follow-up counts for the day on which the user saw it, not when it was queued."""
    await chat.follow_up()
    shown = NOW + HOUR
    await journal.turns.show(await chat.take_turn(), now=shown)
    for day_began, today in ((shown, 1), (shown + timedelta(microseconds=1), 0)):
        counts = await journal.timers.count_follow_ups("chat", day_began=day_began)
        assert (counts.consecutive, counts.sent_today, counts.last_at) == (1, today, shown)


async def test_the_last_one_is_the_last_that_was_seen(journal: Journal, chat: Chat) -> None:
    """Also if it was queued before another, and however long ago it was."""
    slow = await chat.running_follow_up()
    second = await chat.another("second")
    second.now = NOW + timedelta(seconds=1)
    await send(second)
    await journal.turns.show(slow, now=NOW + HOUR)
    counts = await journal.timers.count_follow_ups("chat", day_began=NOW + 30 * DAY)
    assert (counts.sent_today, counts.last_at) == (0, NOW + HOUR)


async def test_one_turn_can_be_left_out(journal: Journal, chat: Chat) -> None:
    """From the count before a follow-up is shown, and when a timer fires by that count."""
    await send(chat)
    running = await chat.follow_up()
    assert await counted(chat) == (2, 2, NOW)
    assert await counted(chat, leaving_out=running.id) == (1, 1, NOW)
    counts = await journal.timers.count_follow_ups("chat", day_began=NOW, leaving_out=running.id)
    assert await chat.fire(await chat.claimed_timer(), counted=counts) is not None


async def test_a_timer_fires_only_if_the_count_still_holds(journal: Journal, chat: Chat) -> None:
    """Every number matters; a timer that did not fire stays claimed and may fire by a new count."""
    await send(chat)
    lease = await chat.claimed_timer()
    counts = await journal.timers.count_follow_ups("chat", day_began=NOW)
    turns = await chat.turns()
    stale: list[dict[str, Any]] = [
        {"consecutive": 0},
        {"consecutive": 2},
        {"sent_today": 0},
        {"last_at": None},
    ]
    for wrong in stale:
        with pytest.raises(ConflictError, match="Nothing was written"):
            await chat.fire(lease, counted=replace(counts, **wrong))
        assert await chat.turns() == turns
        assert (await chat.timers())[0].state is TimerState.CLAIMED
    assert await chat.fire(lease, counted=counts) is not None
    assert await counted(chat) == (2, 2, NOW)


async def test_a_timer_counts_the_users_other_threads(journal: Journal, chat: Chat) -> None:
    """Another agent's follow-up stops this one; once the user wrote, the count does not matter."""
    lease = await chat.claimed_timer()
    counts = await journal.timers.count_follow_ups("chat", day_began=NOW)
    await (await chat.another("lesson", agent_id="tutor")).follow_up()
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.fire(lease, counted=counts)
    await chat.say()
    assert await chat.fire(lease, counted=counts) is None


async def test_a_continuation_is_fired_whatever_was_counted(chat: Chat) -> None:
    """It is part of an answer, and no follow-up."""
    batch = await chat.exchange()
    lease = await chat.claimed_timer(trigger_type=None, kind=TimerKind.CONTINUATION, batch=batch)
    wrong = FollowUpCounts("chat", NOW, 9, 9, NOW)
    message = continuation_message("more to do")
    assert await chat.fire(lease, message, counted=wrong) is not None


async def test_of_two_follow_ups_at_once_one_is_fired(
    open_journal: OpenJournal, journal: Journal, chat: Chat
) -> None:
    """Two agents that both found room for one more do not both write."""
    other = await open_journal()
    for n in range(6):
        user = f"user-{n}"
        mine = await chat.another(f"mine-{n}", user_id=user)
        theirs = Chat(other, ticking_ids(node=50 + n), NOW, f"theirs-{n}")
        await theirs.begin(agent_id="tutor", user_id=user)
        leases = [await each.claimed_timer() for each in (mine, theirs)]
        counts = [
            await journal.timers.count_follow_ups(each.thread_id, day_began=NOW)
            for each in (mine, theirs)
        ]
        outcomes = await asyncio.gather(
            mine.fire(leases[0], counted=counts[0]),
            theirs.fire(leases[1], counted=counts[1]),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Turn) for outcome in outcomes) == 1


async def test_why_a_timer_fired_is_stored_with_its_turn(chat: Chat) -> None:
    """Decisions name the turn that they led to, unless they name another."""
    await chat.arm()
    made, named = chat.decision(), chat.decision(turn_id=7)
    turn = await chat.fired(await chat.take_timer(), decisions=[made, named])
    assert await chat.decisions() == [named, replace(made, turn_id=turn.id)]


async def test_why_a_timer_did_not_fire_is_not_stored_as_why_it_did(chat: Chat) -> None:
    """If the user was faster, or the count is another, nothing is on record."""
    lease = await chat.claimed_timer()
    wrong = FollowUpCounts("chat", NOW, 9, 9, NOW)
    with pytest.raises(ConflictError):
        await chat.fire(lease, counted=wrong, decisions=[chat.decision()])
    await chat.say()
    assert await chat.fire(lease, decisions=[chat.decision()]) is None
    assert await chat.decisions() == []


async def test_why_a_timer_waits_or_ends_is_stored_with_it(chat: Chat) -> None:
    """A postponed and a suppressed timer have their reasons, as they were given."""
    later, never = chat.decision(), chat.decision()
    lease = await chat.claimed_timer()
    await chat.postpone(lease, NOW, "quiet hours", decisions=[later])
    assert await chat.decisions() == [later]
    lease = await chat.take_timer()
    await chat.close(lease, TimerState.SUPPRESSED, "muted", decisions=[never])
    assert await chat.decisions() == [never, later]


async def test_a_timer_fires_waits_or_ends_with_its_decisions_or_not_at_all(chat: Chat) -> None:
    """With one that is there already, the timer stays claimed; without the lease, none is kept."""
    made = chat.decision()
    await chat.journal.decisions.record(made)
    lease = await chat.claimed_timer()
    with pytest.raises(ConflictError):
        await chat.fire(lease, decisions=[made])
    assert await chat.turns() == []
    with pytest.raises(ConflictError):
        await chat.postpone(lease, NOW, "quiet hours", decisions=[made])
    with pytest.raises(ConflictError):
        await chat.close(lease, TimerState.MISSED, "late", decisions=[made])
    assert (await chat.timers())[0] == lease.timer
    lost = replace(lease, token=lease.token + 1)
    with pytest.raises(ConflictError):
        await chat.postpone(lost, NOW, "late", decisions=[chat.decision()])
    with pytest.raises(ConflictError):
        await chat.close(lost, TimerState.MISSED, "late", decisions=[chat.decision()])
    assert await chat.decisions() == [made]
    assert (await chat.thread()).epoch == 0
    assert TurnState.QUEUED not in [turn.state for turn in await chat.turns()]

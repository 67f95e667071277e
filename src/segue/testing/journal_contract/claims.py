"""Claiming turns: order, leases, what is counted of each try, and clocks that were ahead."""

import asyncio
from datetime import datetime, timedelta

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from segue.core.metadata import MessageMetadata
from segue.errors import ConflictError, UsageError
from segue.journal.effects import EffectLease
from segue.journal.journal import Journal
from segue.journal.records import Claimed, TurnLease, TurnState
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat, positions
from segue.testing.journal_contract.fixtures import START, ticking_ids

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


async def take(journal: Journal, now: datetime, limit: int, owner: str = "worker-a") -> Claimed:
    return await journal.turns.claim(owner, now=now, lease_for=LEASE, limit=limit)


async def queue_in_threads(chat: Chat, count: int) -> list[int]:
    """One message in each of several threads, a second apart; the turns in that order."""
    turns = []
    for n in range(count):
        thread = Chat(chat.journal, chat.ids, chat.now - HOUR + timedelta(seconds=n), f"line-{n}")
        turns.append((await (await thread.begin()).say()).turn.id)
    return turns


def turn_ids(leases: list[TurnLease]) -> list[int]:
    return [lease.turn.id for lease in leases]


async def test_turns_taken_together_are_leased_like_any_other(journal: Journal, chat: Chat) -> None:
    """Each is running, leased until the same time, and counts the attempt."""
    await queue_in_threads(chat, 2)
    claimed = await take(journal, NOW, 5, "worker-b")
    assert len(claimed.leases) == 2
    for lease in claimed.leases:
        assert (lease.owner, lease.until) == ("worker-b", NOW + LEASE)
        assert (lease.turn.state, lease.turn.attempts) == (TurnState.RUNNING, 1)
        assert await chat.turn(lease.turn.id) == lease.turn
        await chat.finish(lease, AIMessage("Yes."))


async def test_those_that_wait_longest_are_taken_first(journal: Journal, chat: Chat) -> None:
    """In the order of the line, no more than were asked for, and not for ever."""
    line = await queue_in_threads(chat, 5)
    with pytest.raises(UsageError, match="lease"):
        await journal.turns.claim("worker-a", now=NOW, lease_for=timedelta.max, limit=2)
    for limit, expected in ((0, []), (3, line[:3])):
        claimed = await take(journal, NOW, limit)
        assert turn_ids(claimed.leases) == expected
        assert claimed.next_at is not None
        assert claimed.next_at <= NOW
    assert turn_ids((await take(journal, NOW, 3)).leases) == line[3:]


async def test_of_one_thread_one_turn_is_taken(journal: Journal, chat: Chat) -> None:
    """The second message waits until the first is answered, however many may be taken."""
    first = await chat.say("First.")
    await chat.say("Second.")
    assert turn_ids((await take(journal, NOW, 9)).leases) == [first.turn.id]
    assert (await take(journal, NOW, 9)).leases == []


async def test_a_thread_that_was_served_goes_to_the_end_of_the_line(chat: Chat) -> None:
    """A busy thread does not keep others waiting."""
    [busy, *others] = await queue_in_threads(chat, 3)
    [lease] = (await take(chat.journal, NOW, 1)).leases
    assert lease.turn.id == busy
    await chat.finish(lease, AIMessage("Yes."))
    again = await Chat(chat.journal, chat.ids, NOW, lease.turn.thread_id).say()
    assert turn_ids((await take(chat.journal, NOW, 9)).leases) == [*others, again.turn.id]


async def test_who_takes_turns_knows_when_to_ask_again(journal: Journal, chat: Chat) -> None:
    """When a lease runs out, when a turn may be tried again, or never; also without taking any."""
    assert await take(journal, NOW, 2) == Claimed([], None)
    assert await journal.turns.next_at(now=NOW) is None
    await chat.say()
    assert await journal.turns.next_at(now=NOW) == NOW
    claimed = await take(journal, NOW, 2)
    assert claimed.next_at == await journal.turns.next_at(now=NOW) == NOW + LEASE
    [lease] = claimed.leases
    await chat.release(lease, retry_at=NOW + HOUR)
    assert await take(journal, NOW, 2) == Claimed([], NOW + HOUR)
    assert await journal.turns.next_at(now=NOW) == NOW + HOUR
    assert await journal.turns.next_at(now=NOW + 2 * HOUR) in (NOW + HOUR, NOW + 2 * HOUR)


async def test_turns_whose_leases_ran_out_are_taken_together(journal: Journal, chat: Chat) -> None:
    """What a dead worker left is begun anew, without its words."""
    await queue_in_threads(chat, 2)
    late = (await take(journal, NOW, 2)).leases
    await journal.turns.save_draft(late[0], "m-1", "Let me")
    assert (await take(journal, NOW + LEASE - SECOND, 2, "worker-b")).leases == []
    again = (await take(journal, NOW + LEASE, 2, "worker-b")).leases
    assert turn_ids(again) == turn_ids(late)
    assert [lease.turn.attempts for lease in again] == [2, 2]
    assert not {lease.token for lease in again} & {lease.token for lease in late}
    assert (await journal.feed.read(late[0].turn.thread_id)).drafts == {}


async def test_workers_that_take_several_never_share_one(crowd: list[Chat]) -> None:
    """Handles that claim at the same time get all turns, each once."""
    expected = await queue_in_threads(crowd[0], 9)
    claimed = await asyncio.gather(
        *(take(each.journal, NOW, 3, f"worker-{n}") for n, each in enumerate(crowd))
    )
    taken = [turn for each in claimed for turn in turn_ids(each.leases)]
    assert len(taken) == len(set(taken))
    while leases := (await take(crowd[0].journal, NOW, 3)).leases:  # one may have been locked
        taken += turn_ids(leases)
    assert sorted(taken) == sorted(expected)


async def test_a_turn_queued_by_a_clock_that_was_ahead_is_taken_at_once(chat: Chat) -> None:
    """A clock that was a day ahead for a moment holds up no turn when it is right again."""
    chat.now = NOW + DAY
    chat = await chat.another("of tomorrow")
    first = await chat.say("First.")
    chat.now = NOW
    second = await chat.say("Second.")
    assert await chat.journal.turns.next_at(now=NOW) == NOW
    lease = await chat.take_turn("worker-a", NOW)
    assert lease.turn.id == first.turn.id
    await chat.finish(lease, AIMessage("Yes."))
    assert (await chat.take_turn()).turn.id == second.turn.id


async def test_a_turn_behind_one_served_by_a_clock_that_was_ahead_is_taken_at_once(
    journal: Journal, chat: Chat
) -> None:
    """Its thread's place in the line is that of a time to come, and it is taken all the same."""
    await chat.say("First.")
    second = await chat.say("Second.")
    chat.now = NOW + DAY
    await chat.finish(await chat.take_turn(), AIMessage("Yes."))
    taken: list[int] = []
    while not taken:  # the first claim may only find out, and then says to ask again at once
        claimed = await take(journal, NOW, 2)
        assert claimed.leases or claimed.next_at == NOW
        taken = turn_ids(claimed.leases)
    assert taken == [second.turn.id]


async def test_turns_collected_by_a_clock_that_was_ahead_wait_from_now_on(chat: Chat) -> None:
    """The user may go on writing as long as ever, and no longer."""
    chat.now = NOW + DAY
    accepted = await chat.say(collect=HOUR)
    assert await take(chat.journal, NOW, 2) == Claimed([], NOW + HOUR)
    assert await take(chat.journal, NOW + HOUR / 2, 2) == Claimed([], NOW + HOUR)
    chat.now = NOW + HOUR / 2
    assert (await chat.say("Or closed?", collect=HOUR)).turn.id == accepted.turn.id
    assert await take(chat.journal, NOW + HOUR, 2) == Claimed([], NOW + HOUR * 3 / 2)
    assert turn_ids((await take(chat.journal, NOW + HOUR * 3 / 2, 2)).leases) == [accepted.turn.id]


async def test_a_turn_that_is_to_be_tried_again_waits_for_its_time_by_any_clock(chat: Chat) -> None:
    """A pause is a length of time: it holds, also where it was asked for by a clock ahead."""
    chat.now = NOW + HOUR
    await chat.release(await chat.running_reply(), retry_at=chat.now + DAY)
    assert await take(chat.journal, NOW, 2) == Claimed([], NOW + DAY)
    assert await chat.journal.turns.next_at(now=NOW) == NOW + DAY


async def test_only_what_a_turn_broke_itself_is_its_fault(chat: Chat) -> None:
    """A hand-back and a lease that ran out are interruptions; a turn says which of both it had."""
    first = (await chat.running_reply()).turn
    assert (first.faults, first.interruptions) == (0, 0)
    await chat.release(await _again(chat))
    await chat.release(await chat.take_turn(), is_fault=True)
    turn = (await chat.take_turn()).turn
    assert (turn.attempts, turn.faults, turn.interruptions) == (4, 1, 2)


async def test_a_try_that_is_handed_back_counts_up_to_then(journal: Journal, chat: Chat) -> None:
    """Time in the queue does not count, before the first try and between two."""
    await chat.say()
    chat.now = NOW + HOUR
    first = await chat.take_turn()
    assert (first.turn.begun_at, first.turn.worked) == (chat.now, timedelta(0))
    later = chat.now + 5 * SECOND
    await journal.turns.release(first, now=later, retry_at=later + HOUR)
    chat.now = later + 2 * HOUR
    assert (await chat.take_turn()).turn.worked == 5 * SECOND


async def test_the_pause_after_a_fault_counts(journal: Journal, chat: Chat) -> None:
    """The turn itself made it necessary."""
    lease = await chat.running_reply()
    at = NOW + 9 * SECOND
    await journal.turns.release(lease, now=NOW + 5 * SECOND, retry_at=at, is_fault=True)
    chat.now = NOW + HOUR
    assert (await chat.take_turn()).turn.worked == 9 * SECOND


async def test_a_try_whose_worker_died_counts_up_to_its_last_sign_of_life(chat: Chat) -> None:
    """However long no worker was there, that time is not the turn's."""
    lease = await chat.running_reply()
    await chat.journal.turns.extend(lease, now=NOW + LEASE / 2, lease_for=LEASE)
    chat.now = NOW + HOUR
    turn = (await chat.take_turn()).turn
    assert (turn.worked, turn.begun_at) == (LEASE / 2, chat.now)
    chat.now += HOUR
    assert (await chat.take_turn()).turn.worked == LEASE / 2  # this one gave no sign at all


async def _again(chat: Chat) -> TurnLease:
    """Take the turn of a worker that was not heard of again."""
    chat.now += LEASE
    return await chat.take_turn()


SKEW = timedelta(seconds=5)
SHORT = LEASE / 2  # the lease of the process that looks: each process may have a length of its own


async def test_a_turn_leased_by_a_clock_that_was_ahead_is_taken_when_its_lease_is_over(
    journal: Journal, chat: Chat
) -> None:
    """A thread waits for one lease, and not for as long as the clock of a dead worker was ahead."""
    await chat.say()
    chat.now = NOW + HOUR
    lost = await chat.take_turn("worker-a")
    assert await journal.turns.next_at(now=NOW) == NOW
    claimed = await journal.turns.claim("worker-b", now=NOW, lease_for=SHORT, limit=2)
    assert claimed == Claimed([], NOW + LEASE)
    assert await journal.turns.next_at(now=NOW) == NOW + LEASE
    taken = await journal.turns.claim_one("worker-b", now=NOW + LEASE, lease_for=SHORT)
    assert taken is not None
    assert taken.turn.id == lost.turn.id
    with pytest.raises(ConflictError):
        await chat.finish(lost, AIMessage("Yes."))
    chat.now = NOW + LEASE
    await chat.finish(taken, AIMessage("Yes."))


async def test_a_worker_whose_clock_is_ahead_keeps_a_turn_that_it_extends(
    journal: Journal, chat: Chat
) -> None:
    """A worker that is alive is not robbed, by however much its clock is wrong."""
    await chat.say()
    chat.now = NOW + HOUR
    lease = await chat.take_turn("worker-a")
    for passed in (LEASE / 2, LEASE, 3 * LEASE / 2):
        assert await journal.turns.claim_one("worker-b", now=NOW + passed, lease_for=SHORT) is None
        await journal.turns.extend(lease, now=NOW + HOUR + passed, lease_for=LEASE)
    await chat.finish(lease, AIMessage("Yes."))


async def test_a_timer_leased_by_a_clock_that_was_ahead_is_taken_when_its_lease_is_over(
    journal: Journal, chat: Chat
) -> None:
    """A follow-up is not put off for as long as the clock of a dead worker was ahead."""
    await chat.arm()
    chat.now = NOW + HOUR
    lost = await chat.take_timer("worker-a")
    assert await journal.timers.claim_due("worker-b", now=NOW, lease_for=SHORT) == []
    assert await journal.timers.next_at() == NOW + LEASE
    [taken] = await journal.timers.claim_due("worker-b", now=NOW + LEASE, lease_for=SHORT)
    with pytest.raises(ConflictError):
        await chat.fire(lost)
    chat.now = NOW + LEASE
    assert await chat.fire(taken) is not None


async def test_an_effect_leased_by_a_clock_that_was_ahead_is_taken_when_its_lease_is_over(
    journal: Journal, chat: Chat
) -> None:
    """A webhook is not put off for as long as the clock of a dead worker was ahead."""
    await chat.queue_effect()
    chat.now = NOW + HOUR
    lost = await chat.take_effect("worker-a")
    assert await journal.effects.next_at("webhook", now=NOW) == NOW
    assert await _claim_effects(journal, NOW) == []
    assert await journal.effects.next_at("webhook", now=NOW) == NOW + LEASE
    [taken] = await _claim_effects(journal, NOW + LEASE)
    with pytest.raises(ConflictError):
        await journal.effects.complete(lost)
    await journal.effects.complete(taken)


async def test_leases_of_a_clock_a_few_seconds_ahead_last_to_their_end(chat: Chat) -> None:
    """The clocks of healthy hosts differ a little, and nothing is written for that."""
    await chat.queue_effect()
    await chat.say()
    await chat.arm()
    chat.now = NOW + SKEW
    await chat.take_turn("worker-a")
    await chat.take_timer("worker-a")
    await chat.take_effect("worker-a")
    claimed = await chat.journal.turns.claim("worker-b", now=NOW, lease_for=SHORT, limit=2)
    assert claimed == Claimed([], NOW + SKEW + LEASE)
    assert await chat.journal.timers.claim_due("worker-b", now=NOW, lease_for=SHORT) == []
    assert await chat.journal.timers.next_at() == NOW + SKEW + LEASE
    assert await chat.journal.effects.next_at("webhook", now=NOW) == NOW + SKEW + LEASE


async def test_messages_above_a_position_of_the_future_keep_the_time_of_storing(chat: Chat) -> None:
    """Their positions go on rising, and what is shown as their time is when they came."""
    years = timedelta(days=6_000)
    wrong = Chat(chat.journal, ticking_ids(2, START + years), NOW + years, chat.thread_id)
    await wrong.exchange()
    accepted = await chat.say()
    lease = await chat.take_turn()
    await chat.write(
        lease, AIMessage("Let me see.", tool_calls=[{"name": "a", "args": {}, "id": "1"}])
    )
    await chat.finish(lease, ToolMessage("ok", tool_call_id="1"), AIMessage("Yes."))
    await chat.follow_up()
    messages = await chat.messages()
    assert [MessageMetadata.of(m).created_at for m in messages[2:]] == [NOW] * 5
    assert MessageMetadata.of(accepted.message).created_at == NOW
    assert min(positions(messages[2:])) > max(positions(messages[:2]))
    assert all(MessageMetadata.of(m).stored_at is None for m in messages[:2])


async def _claim_effects(journal: Journal, now: datetime) -> list[EffectLease]:
    return await journal.effects.claim("worker-b", kind="webhook", now=now, lease_for=SHORT)

"""Stopping a thread's turns: a mark that whoever runs them sees."""

# ruff: noqa: S101 - tests assert

from dataclasses import replace
from datetime import datetime

import pytest

from segue.journal.ports import Journal
from segue.journal.records import CUT_SHORT, STOPPED, TurnState
from segue.testing.journal_contract.chat import HOUR, LEASE, Chat


async def test_all_live_turns_of_a_thread_are_marked(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """The running and the queued ones, oldest first; only the mark and its reason change."""
    first, second = await chat.say("First."), await chat.say("Second.")
    lease = await chat.take_turn()
    marked = await journal.cancel_turns("chat", ids=chat.ids, now=now)
    assert marked == [
        replace(lease.turn, cancel_requested=True, error=STOPPED),
        replace(second.turn, cancel_requested=True, error=STOPPED),
    ]
    assert [turn.id for turn in marked] == [first.turn.id, second.turn.id]
    assert await journal.list_turns("chat") == marked[::-1]


async def test_whoever_runs_a_turn_sees_the_mark(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """A worker that extends its lease learns of it, and goes on to end the turn itself."""
    await chat.say()
    lease = await chat.take_turn()
    assert not lease.turn.cancel_requested
    await journal.cancel_turns("chat", ids=chat.ids, now=now)
    extended = await journal.extend_turn(lease, now=now, lease_for=LEASE)
    assert extended.turn.cancel_requested
    await chat.finish(lease)
    ended = await journal.get_turn(lease.turn.id)
    assert (ended.state, ended.cancel_requested) == (TurnState.DONE, True)


async def test_whoever_takes_a_turn_sees_the_mark(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """One that was queued, and one that a dead worker left."""
    await chat.say()
    await journal.cancel_turns("chat", ids=chat.ids, now=now)
    assert (await chat.take_turn()).turn.cancel_requested
    again = await journal.claim_turn("worker-b", now=now + LEASE, lease_for=LEASE)
    assert again is not None
    assert again.turn.cancel_requested


@pytest.mark.parametrize("held", ["collected", "to be retried"])
async def test_a_turn_that_is_held_back_is_stopped_at_once(
    journal: Journal, chat: Chat, now: datetime, held: str
) -> None:
    """Who stops it does not wait for what it waits for."""
    accepted = await chat.say(collect=HOUR if held == "collected" else None)
    if held == "to be retried":
        await journal.release_turn(await chat.take_turn(), now=now, retry_at=now + HOUR)
    assert await journal.next_turn_at(now=now) == now + HOUR
    await journal.cancel_turns("chat", ids=chat.ids, now=now)
    assert await journal.next_turn_at(now=now) == now
    assert (await chat.take_turn()).turn.id == accepted.turn.id


async def test_a_running_turn_that_is_to_be_stopped_stays_leased(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """Nobody else takes it while its worker ends it."""
    await chat.say()
    lease = await chat.take_turn()
    await journal.cancel_turns("chat", ids=chat.ids, now=now)
    assert await journal.claim_turn("worker-b", now=now, lease_for=LEASE) is None
    assert await journal.next_turn_at(now=now) == lease.until


async def test_what_comes_later_is_not_stopped(journal: Journal, chat: Chat, now: datetime) -> None:
    """The mark is of the turns that there were, not of the thread."""
    await chat.say()
    await journal.cancel_turns("chat", ids=chat.ids, now=now)
    assert not (await chat.say()).turn.cancel_requested


async def test_turns_that_are_over_are_not_marked(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """With nothing to stop, nothing changes."""
    await chat.exchange()
    turns = await journal.list_turns("chat")
    assert await journal.cancel_turns("chat", ids=chat.ids, now=now) == []
    assert await journal.list_turns("chat") == turns


async def test_turns_before_another_can_be_stopped(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """A message that takes the place of what was asked before it is answered itself."""
    first, second = await chat.say("First."), await chat.say("Second.")
    third = await chat.say("No, wait.")
    marked = await journal.cancel_turns("chat", ids=chat.ids, now=now, before=third.turn.id)
    assert [turn.id for turn in marked] == [first.turn.id, second.turn.id]
    assert await journal.get_turn(third.turn.id) == third.turn


async def test_one_turn_alone_can_be_stopped(journal: Journal, chat: Chat, now: datetime) -> None:
    """What stands before and behind it in line is not touched."""
    first, second, third = [await chat.say(text) for text in ("One.", "Two.", "Three.")]
    marked = await journal.cancel_turns(
        "chat", CUT_SHORT, ids=chat.ids, now=now, only=second.turn.id
    )
    assert marked == [replace(second.turn, cancel_requested=True, error=CUT_SHORT)]
    assert await journal.list_turns("chat") == [third.turn, *marked, first.turn]


async def test_a_turn_that_is_over_is_not_stopped_by_its_id(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """Nor is the next one in its place."""
    await chat.exchange()
    [over] = await journal.list_turns("chat")
    accepted = await chat.say()
    assert await journal.cancel_turns("chat", ids=chat.ids, now=now, only=over.id) == []
    assert await journal.list_turns("chat") == [accepted.turn, over]


async def test_the_first_reason_to_stop_counts(journal: Journal, chat: Chat, now: datetime) -> None:
    """It is there until the turn ends; a reply that was whole by then has no error."""
    await chat.say()
    lease = await chat.take_turn()
    await journal.cancel_turns("chat", CUT_SHORT, ids=chat.ids, now=now)
    [marked] = await journal.cancel_turns("chat", ids=chat.ids, now=now)
    assert marked.error == CUT_SHORT
    await chat.finish(lease)
    assert (await journal.get_turn(lease.turn.id)).error is None


async def test_other_threads_are_not_stopped(journal: Journal, chat: Chat, now: datetime) -> None:
    """Nor are other conversations of the same user."""
    other = await (await chat.another("second")).say()
    await chat.say()
    await journal.cancel_turns("chat", ids=chat.ids, now=now)
    assert await journal.get_turn(other.turn.id) == other.turn

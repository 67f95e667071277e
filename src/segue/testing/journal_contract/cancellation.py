"""Cancelling turns, and withdrawing follow-ups before anything was shown."""

import asyncio
from dataclasses import replace

import pytest
from langchain_core.messages import AIMessage

from segue.errors import ConflictError
from segue.journal.journal import Journal
from segue.journal.records import (
    CUT_SHORT,
    OVERTAKEN,
    STOPPED,
    NewTimer,
    TimerKind,
    TimerState,
    TurnKind,
    TurnState,
)
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat
from segue.testing.journal_contract.fixtures import Rounds


async def test_all_live_turns_of_a_thread_are_marked(chat: Chat) -> None:
    """The running and the queued ones, oldest first; only the mark and its reason change."""
    first, second = await chat.say("First."), await chat.say("Second.")
    lease = await chat.take_turn()
    marked = await chat.cancel()
    assert marked == [
        replace(lease.turn, cancel_requested=True, error=STOPPED),
        replace(second.turn, cancel_requested=True, error=STOPPED),
    ]
    assert [turn.id for turn in marked] == [first.turn.id, second.turn.id]
    assert await chat.turns() == marked[::-1]


async def test_the_worker_of_a_turn_sees_the_mark(journal: Journal, chat: Chat) -> None:
    """It keeps its lease and ends the turn itself; the first reason stays until then."""
    lease = await chat.running_reply()
    assert not lease.turn.cancel_requested
    await chat.cancel(CUT_SHORT)
    [marked] = await chat.cancel()
    assert marked.error == CUT_SHORT
    assert await chat.next_turn() is None
    assert await journal.turns.next_at(now=NOW) == lease.until
    extended = await journal.turns.extend(lease, now=NOW, lease_for=LEASE)
    assert extended.turn.cancel_requested
    await chat.finish(lease)
    ended = await chat.turn(lease.turn.id)
    assert (ended.state, ended.cancel_requested, ended.error) == (TurnState.DONE, True, None)


async def test_whoever_takes_a_turn_sees_the_mark(chat: Chat) -> None:
    """One that was queued, and one that a dead worker left."""
    await chat.say()
    await chat.cancel()
    assert (await chat.take_turn()).turn.cancel_requested
    again = await chat.take_turn("worker-b", NOW + LEASE)
    assert again.turn.cancel_requested


@pytest.mark.parametrize("held", ["collected", "to be retried"])
async def test_a_turn_that_is_held_back_is_stopped_at_once(chat: Chat, held: str) -> None:
    """Stopping a turn does not wait for what the turn waits for."""
    accepted = await chat.say(collect=HOUR if held == "collected" else None)
    if held == "to be retried":
        await chat.release(await chat.take_turn(), retry_at=NOW + HOUR)
    assert await chat.journal.turns.next_at(now=NOW) == NOW + HOUR
    await chat.cancel()
    assert await chat.journal.turns.next_at(now=NOW) == NOW
    assert (await chat.take_turn()).turn.id == accepted.turn.id


async def test_only_live_turns_of_the_thread_are_stopped(chat: Chat) -> None:
    """Neither turns that are over or come later, nor those of other threads."""
    other = await (await chat.another("second")).running_reply()
    await chat.exchange()
    [over] = await chat.turns()
    assert await chat.cancel() == []
    assert await chat.turns() == [over]
    accepted = await chat.say()
    assert await chat.cancel(only=over.id) == []
    assert await chat.turns() == [accepted.turn, over]
    await chat.cancel()
    assert not (await chat.say()).turn.cancel_requested
    assert await chat.turn(other.turn.id) == other.turn


async def test_an_interrupting_message_stops_what_has_begun(chat: Chat) -> None:
    """In the same step; a message that only waits keeps its turn, and so does the new one."""
    await chat.say("First.")
    second = await chat.say("Second.")
    lease = await chat.take_turn()
    third = await chat.say("No, wait.", interrupts=True)
    assert third.stopped_turns == (lease.turn.id,)
    stopped = replace(lease.turn, cancel_requested=True, error=OVERTAKEN)
    assert await chat.turns() == [third.turn, second.turn, stopped]


async def test_a_message_that_interrupts_is_accepted_once(chat: Chat) -> None:
    """It also stops a turn that waits for its next try; sent again, nothing begun since."""
    first = await chat.say("First.")
    await chat.release(await chat.take_turn(), retry_at=NOW + HOUR)
    wait = await chat.say("No, wait.", "m-1", interrupts=True)
    assert wait.stopped_turns == (first.turn.id,)
    stopped = await chat.take_turn()
    assert stopped.turn.cancel_requested
    await chat.finish(stopped)
    lease = await chat.take_turn()
    again = await chat.say("No, wait.", "m-1", interrupts=True)
    assert (again.is_new, again.stopped_turns) == (False, ())
    assert await chat.turn(lease.turn.id) == lease.turn


async def test_one_turn_alone_can_be_stopped(chat: Chat) -> None:
    """What stands before and behind it in line is not touched."""
    first, second, third = [await chat.say(text) for text in ("One.", "Two.", "Three.")]
    marked = await chat.cancel(CUT_SHORT, only=second.turn.id)
    assert marked == [replace(second.turn, cancel_requested=True, error=CUT_SHORT)]
    assert await chat.turns() == [third.turn, *marked, first.turn]


async def test_a_withdrawn_follow_up_is_void(chat: Chat) -> None:
    """It has a reason, is not counted, and neither a worker nor a continuation goes on with it."""
    turn = await chat.follow_up()
    lease = await chat.take_turn()
    await chat.journal.turns.save_draft(lease, "m-1", "Still")
    await chat.arm(trigger_type=None, kind=TimerKind.CONTINUATION, batch=turn.batch)
    await chat.withdraw(lease, "Nothing to say. 🙂")
    void = await chat.turn(turn.id)
    assert (void.state, void.error) == (TurnState.VOID, "Nothing to say. 🙂")
    assert await chat.next_turn(NOW + HOUR) is None
    assert await chat.history() == []
    assert await chat.journal.messages.list_incomplete_batches("guide") == []
    counts = await chat.journal.timers.count_follow_ups("chat", day_began=NOW)
    assert (counts.consecutive, counts.sent_today, counts.last_at) == (0, 0, None)
    assert await chat.fire(await chat.take_timer()) is None
    await chat.exchange()


async def test_what_waits_behind_a_withdrawn_follow_up_moves_up(chat: Chat) -> None:
    """A continuation that came in between is taken at once."""
    batch = await chat.exchange()
    lease = await chat.running_follow_up()
    behind = await chat.continue_batch(batch)
    await chat.withdraw(lease, "Nothing to say.")
    assert (await chat.take_turn()).turn.id == behind.id


async def test_a_follow_up_that_was_shown_is_not_withdrawn(chat: Chat) -> None:
    """What the user has read cannot be unread: the turn runs on, and no new timer is armed."""
    lease = await chat.running_follow_up()
    await chat.show(lease)
    timers = [NewTimer("chat", NOW + HOUR, "check_in")]
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.withdraw(lease, "muted", timers=timers, says={})
    turn = await chat.turn(lease.turn.id)
    assert (turn.state, turn.ending) == (TurnState.RUNNING, None)
    assert [timer.state for timer in await chat.timers()] == [TimerState.FIRED]
    await chat.finish(lease, AIMessage("Still there?"))


@pytest.mark.parametrize("kind", [TurnKind.REPLY, TurnKind.CONTINUATION], ids=str)
async def test_only_a_follow_up_can_be_withdrawn(chat: Chat, kind: TurnKind) -> None:
    """The agent that asked gets an answer or an error."""
    if kind is TurnKind.REPLY:
        await chat.say()
    else:
        await chat.continue_batch(await chat.exchange())
    lease = await chat.take_turn()
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.withdraw(lease, "muted")
    assert await chat.turn(lease.turn.id) == lease.turn


async def test_a_withdrawal_and_a_reply_at_the_same_moment(rounds: Rounds) -> None:
    """Whichever comes first, no follow-up is left that the user's message did not end."""
    async for mine, user in rounds:
        lease = await mine.running_follow_up()
        again = [NewTimer(mine.thread_id, NOW + HOUR, "check_in")]
        outcome, _ = await asyncio.gather(
            mine.withdraw(lease, "later", timers=again), user.say(), return_exceptions=True
        )
        assert outcome is None or isinstance(outcome, ConflictError)
        assert (await mine.turn(lease.turn.id)).state is TurnState.VOID
        states = {timer.state for timer in await mine.timers()}
        assert states <= {TimerState.FIRED, TimerState.CANCELLED}
        await mine.reply()

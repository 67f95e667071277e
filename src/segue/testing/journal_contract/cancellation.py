"""Cancelling turns, and withdrawing follow-ups before anything was shown."""

import asyncio
from dataclasses import replace

import pytest
from langchain_core.messages import AIMessage

from segue.core.snowflake import SnowflakeSource
from segue.errors import ConflictError
from segue.journal.journal import Journal
from segue.journal.records import (
    CUT_SHORT,
    OVERTAKEN,
    STOPPED,
    Ending,
    NewTimer,
    TimerKind,
    TimerState,
    TurnKind,
    TurnState,
)
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat
from segue.testing.journal_contract.fixtures import Rounds


async def test_all_live_turns_of_a_thread_are_marked(journal: Journal, chat: Chat) -> None:
    """The running and the queued ones, oldest first; only the mark and its reason change."""
    first, second = await chat.say("First."), await chat.say("Second.")
    lease = await chat.take_turn()
    marked = await journal.turns.cancel("chat", ids=chat.ids, now=NOW)
    assert marked == [
        replace(lease.turn, cancel_requested=True, error=STOPPED),
        replace(second.turn, cancel_requested=True, error=STOPPED),
    ]
    assert [turn.id for turn in marked] == [first.turn.id, second.turn.id]
    assert await journal.turns.list_of("chat") == marked[::-1]


async def test_the_worker_of_a_turn_sees_the_mark(journal: Journal, chat: Chat) -> None:
    """It keeps its lease and ends the turn itself; the first reason stays until then."""
    await chat.say()
    lease = await chat.take_turn()
    assert not lease.turn.cancel_requested
    await journal.turns.cancel("chat", CUT_SHORT, ids=chat.ids, now=NOW)
    [marked] = await journal.turns.cancel("chat", ids=chat.ids, now=NOW)
    assert marked.error == CUT_SHORT
    assert await journal.turns.claim_one("worker-b", now=NOW, lease_for=LEASE) is None
    assert await journal.turns.next_at(now=NOW) == lease.until
    extended = await journal.turns.extend(lease, now=NOW, lease_for=LEASE)
    assert extended.turn.cancel_requested
    await chat.finish(lease)
    ended = await journal.turns.get(lease.turn.id)
    assert (ended.state, ended.cancel_requested, ended.error) == (TurnState.DONE, True, None)


async def test_whoever_takes_a_turn_sees_the_mark(journal: Journal, chat: Chat) -> None:
    """One that was queued, and one that a dead worker left."""
    await chat.say()
    await journal.turns.cancel("chat", ids=chat.ids, now=NOW)
    assert (await chat.take_turn()).turn.cancel_requested
    again = await journal.turns.claim_one("worker-b", now=NOW + LEASE, lease_for=LEASE)
    assert again is not None
    assert again.turn.cancel_requested


@pytest.mark.parametrize("held", ["collected", "to be retried"])
async def test_a_turn_that_is_held_back_is_stopped_at_once(chat: Chat, held: str) -> None:
    """Stopping a turn does not wait for what the turn waits for."""
    accepted = await chat.say(collect=HOUR if held == "collected" else None)
    if held == "to be retried":
        await chat.journal.turns.release(await chat.take_turn(), now=NOW, retry_at=NOW + HOUR)
    assert await chat.journal.turns.next_at(now=NOW) == NOW + HOUR
    await chat.journal.turns.cancel("chat", ids=chat.ids, now=NOW)
    assert await chat.journal.turns.next_at(now=NOW) == NOW
    assert (await chat.take_turn()).turn.id == accepted.turn.id


async def test_only_live_turns_of_the_thread_are_stopped(journal: Journal, chat: Chat) -> None:
    """Neither turns that are over or come later, nor those of other threads."""
    other = await (await chat.another("second")).say()
    lease = await chat.journal.turns.claim_one("worker-a", now=NOW, lease_for=LEASE)
    assert lease is not None
    await chat.exchange()
    [over] = await journal.turns.list_of("chat")
    assert await journal.turns.cancel("chat", ids=chat.ids, now=NOW) == []
    assert await journal.turns.list_of("chat") == [over]
    accepted = await chat.say()
    assert await journal.turns.cancel("chat", ids=chat.ids, now=NOW, only=over.id) == []
    assert await journal.turns.list_of("chat") == [accepted.turn, over]
    await journal.turns.cancel("chat", ids=chat.ids, now=NOW)
    assert not (await chat.say()).turn.cancel_requested
    assert (await journal.turns.get(other.turn.id)) == lease.turn


async def test_an_interrupting_message_stops_what_has_begun(journal: Journal, chat: Chat) -> None:
    """In the same step; a message that only waits keeps its turn, and so does the new one."""
    await chat.say("First.")
    second = await chat.say("Second.")
    lease = await chat.take_turn()
    third = await chat.say("No, wait.", interrupts=True)
    assert third.stopped_turns == (lease.turn.id,)
    stopped = replace(lease.turn, cancel_requested=True, error=OVERTAKEN)
    assert await journal.turns.list_of("chat") == [third.turn, second.turn, stopped]


async def test_a_message_that_interrupts_is_accepted_once(journal: Journal, chat: Chat) -> None:
    """It also stops a turn that waits for its next try; sent again, nothing begun since."""
    first = await chat.say("First.")
    await journal.turns.release(await chat.take_turn(), now=NOW, retry_at=NOW + HOUR)
    wait = await chat.say("No, wait.", "m-1", interrupts=True)
    assert wait.stopped_turns == (first.turn.id,)
    stopped = await chat.take_turn()
    assert stopped.turn.cancel_requested
    await chat.finish(stopped)
    lease = await chat.take_turn()
    again = await chat.say("No, wait.", "m-1", interrupts=True)
    assert (again.is_new, again.stopped_turns) == (False, ())
    assert await journal.turns.get(lease.turn.id) == lease.turn


async def test_one_turn_alone_can_be_stopped(journal: Journal, chat: Chat) -> None:
    """What stands before and behind it in line is not touched."""
    first, second, third = [await chat.say(text) for text in ("One.", "Two.", "Three.")]
    marked = await journal.turns.cancel(
        "chat", CUT_SHORT, ids=chat.ids, now=NOW, only=second.turn.id
    )
    assert marked == [replace(second.turn, cancel_requested=True, error=CUT_SHORT)]
    assert await journal.turns.list_of("chat") == [third.turn, *marked, first.turn]


async def test_a_withdrawn_follow_up_is_void(chat: Chat, ids: SnowflakeSource) -> None:
    """It has a reason, is not counted, and neither a worker nor a continuation goes on with it."""
    turn = await chat.follow_up()
    lease = await chat.take_turn()
    await chat.journal.turns.save_draft(lease, "m-1", "Still")
    await chat.arm(trigger_type=None, kind=TimerKind.CONTINUATION, batch=turn.batch)
    await chat.journal.turns.withdraw(lease, "Nothing to say. 🙂", ids=ids, now=NOW)
    void = await chat.journal.turns.get(turn.id)
    assert (void.state, void.error) == (TurnState.VOID, "Nothing to say. 🙂")
    assert await chat.journal.turns.claim_one("worker-b", now=NOW + HOUR, lease_for=LEASE) is None
    assert (await chat.journal.messages.history("chat")).messages == []
    assert await chat.journal.messages.list_incomplete_batches("guide") == []
    counts = await chat.journal.timers.count_follow_ups("chat", day_began=NOW)
    assert (counts.consecutive, counts.sent_today, counts.last_at) == (0, 0, None)
    assert await chat.fire(await chat.take_timer()) is None
    await chat.exchange()


async def test_what_waits_behind_a_withdrawn_follow_up_moves_up(chat: Chat) -> None:
    """A continuation that came in between is taken at once."""
    batch = await chat.exchange()
    await chat.follow_up()
    lease = await chat.take_turn()
    behind = await chat.continue_batch(batch)
    await chat.journal.turns.withdraw(lease, "Nothing to say.", ids=chat.ids, now=NOW)
    assert (await chat.take_turn()).turn.id == behind.id


async def test_a_follow_up_that_was_shown_is_not_withdrawn(journal: Journal, chat: Chat) -> None:
    """What the user has read cannot be unread: the turn runs on, and no new timer is armed."""
    await chat.follow_up()
    lease = await chat.take_turn()
    await journal.turns.show(lease, now=NOW)
    ending = Ending(timers=[NewTimer("chat", NOW + HOUR, "check_in")], says={})
    with pytest.raises(ConflictError, match="Nothing was written"):
        await journal.turns.withdraw(lease, "muted", ids=chat.ids, now=NOW, ending=ending)
    turn = await journal.turns.get(lease.turn.id)
    assert (turn.state, turn.ending) == (TurnState.RUNNING, None)
    assert [timer.state for timer in await journal.timers.list_of("chat")] == [TimerState.FIRED]
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
        await chat.journal.turns.withdraw(lease, "muted", ids=chat.ids, now=NOW)
    assert await chat.journal.turns.get(lease.turn.id) == lease.turn


async def test_a_withdrawal_and_a_reply_at_the_same_moment(rounds: Rounds) -> None:
    """Whichever comes first, no follow-up is left that the user's message did not end."""
    async for mine, user in rounds:
        await mine.follow_up()
        lease = await mine.take_turn()
        again = Ending(timers=[NewTimer(mine.thread_id, NOW + HOUR, "check_in")])
        outcome, _ = await asyncio.gather(
            mine.journal.turns.withdraw(lease, "later", ids=mine.ids, now=NOW, ending=again),
            user.say(),
            return_exceptions=True,
        )
        assert outcome is None or isinstance(outcome, ConflictError)
        assert (await mine.journal.turns.get(lease.turn.id)).state is TurnState.VOID
        states = {timer.state for timer in await mine.journal.timers.list_of(mine.thread_id)}
        assert states <= {TimerState.FIRED, TimerState.CANCELLED}
        await mine.reply()

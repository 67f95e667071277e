"""Withdrawing a follow-up of which nobody has seen anything."""

# ruff: noqa: S101 - tests assert

import asyncio
from datetime import datetime

import pytest
from langchain_core.messages import AIMessage

from segue.core.errors import ConflictError
from segue.core.snowflake import SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.records import Ending, NewTimer, TimerState, TurnKind, TurnState
from segue.testing.journal_contract.chat import HOUR, LEASE, Chat
from segue.testing.journal_contract.fixtures import OpenJournal, ticking_ids


async def test_a_withdrawn_follow_up_is_void(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """It says why, nobody takes it again, and the thread goes on with its next turn."""
    turn = await chat.follow_up()
    lease = await chat.take_turn()
    await journal.save_partial(lease, "m-1", "Still")
    await journal.withdraw_turn(lease, "Nothing to say. 🙂", ids=ids, now=now)
    void = await journal.get_turn(turn.id)
    assert (void.state, void.error) == (TurnState.VOID, "Nothing to say. 🙂")
    assert await journal.claim_turn("worker-b", now=now + HOUR, lease_for=LEASE) is None
    assert (await journal.history("chat")).messages == []
    await chat.exchange()


async def test_what_waits_behind_a_withdrawn_follow_up_moves_up(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """A continuation that came in between is taken at once."""
    batch = await chat.exchange()
    await chat.follow_up()
    lease = await chat.take_turn()
    behind = await chat.continue_batch(batch)
    await journal.withdraw_turn(lease, "Nothing to say.", ids=ids, now=now)
    assert (await chat.take_turn()).turn.id == behind.id


async def test_with_a_withdrawn_follow_up_nobody_goes_on(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """Its batch is not listed as unfinished, and a continuation of it does not fire."""
    turn = await chat.follow_up()
    lease = await chat.take_turn()
    await chat.arm(trigger_type=None, kind=TurnKind.CONTINUATION, batch=turn.batch)
    await journal.withdraw_turn(lease, "Nothing to say.", ids=ids, now=now)
    assert await journal.list_incomplete_batches("guide") == []
    assert await chat.fire(await chat.take_timer()) is None


async def test_a_follow_up_that_was_shown_is_not_withdrawn(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """What somebody has read cannot be unread: the turn runs on, and no new timer is armed."""
    await chat.follow_up()
    lease = await chat.take_turn()
    await journal.show_turn(lease, now=now)
    ending = Ending(timers=[NewTimer("chat", now + HOUR, "check_in")], says={})
    with pytest.raises(ConflictError, match="Nothing was written"):
        await journal.withdraw_turn(lease, "muted", ids=ids, now=now, ending=ending)
    turn = await journal.get_turn(lease.turn.id)
    assert (turn.state, turn.ending) == (TurnState.RUNNING, None)
    assert [timer.state for timer in await journal.list_timers("chat")] == [TimerState.FIRED]
    await chat.finish(lease, AIMessage("Still there?"))


@pytest.mark.parametrize("kind", [TurnKind.REPLY, TurnKind.CONTINUATION], ids=str)
async def test_only_a_follow_up_can_be_withdrawn(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime, kind: TurnKind
) -> None:
    """Who asked gets an answer or an error."""
    if kind is TurnKind.REPLY:
        await chat.say()
    else:
        await chat.continue_batch(await chat.exchange())
    lease = await chat.take_turn()
    with pytest.raises(ConflictError, match="Nothing was written"):
        await journal.withdraw_turn(lease, "muted", ids=ids, now=now)
    assert await journal.get_turn(lease.turn.id) == lease.turn


async def test_a_withdrawn_follow_up_is_not_counted(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """The user got nothing of it, so the next one is not a second one."""
    await chat.follow_up()
    lease = await chat.take_turn()
    await journal.withdraw_turn(lease, "Nothing to say.", ids=ids, now=now)
    counts = await journal.count_follow_ups("chat", day_began=now)
    assert (counts.consecutive, counts.sent_today, counts.last_at) == (0, 0, None)


async def test_a_withdrawal_and_a_reply_at_the_same_moment(
    open_journal: OpenJournal, journal: Journal, chat: Chat, now: datetime
) -> None:
    """Whichever comes first, no follow-up is left that the user's message did not end."""
    other = await open_journal()
    for n in range(6):
        mine = await chat.another(f"round-{n}")
        await mine.follow_up()
        lease = await mine.take_turn()
        again = Ending(timers=[NewTimer(mine.thread_id, now + HOUR, "check_in")])
        outcome, _ = await asyncio.gather(
            journal.withdraw_turn(lease, "later", ids=chat.ids, now=now, ending=again),
            Chat(other, ticking_ids(node=9), now, mine.thread_id).say(),
            return_exceptions=True,
        )
        assert outcome is None or isinstance(outcome, ConflictError)
        assert (await journal.get_turn(lease.turn.id)).state is TurnState.VOID
        states = {timer.state for timer in await journal.list_timers(mine.thread_id)}
        assert states <= {TimerState.FIRED, TimerState.CANCELLED}
        await mine.reply()

"""Messages that arrive within a moment and share one batch."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.core.messages import user_message
from segue.core.metadata import BatchType, MessageMetadata
from segue.errors import ConflictError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import Accepted, NewTimer, TimerState
from segue.testing.journal_contract.chat import HOUR, NOW, Chat, positions, texts

WAIT = timedelta(seconds=4)
MOMENT = timedelta(seconds=1)


async def say_at(chat: Chat, moment: datetime, said: Any = "Hi.", **given: Any) -> Accepted:
    chat.now = moment
    return await chat.say(said, **{"collect": WAIT} | given)


async def test_a_collected_turn_is_held_back(journal: Journal, chat: Chat) -> None:
    """It can be taken when the wait is over and no earlier; a message in time starts it anew."""
    accepted = await say_at(chat, NOW)
    assert (accepted.turn.queued_at, accepted.turn.available_at) == (NOW, NOW + WAIT)
    assert await chat.next_turn(NOW) is None
    assert await chat.next_turn(NOW + WAIT - MOMENT) is None
    assert await journal.turns.next_at(now=NOW) == NOW + WAIT
    end = NOW + 2 * WAIT - MOMENT
    second = await say_at(chat, NOW + WAIT - MOMENT)
    assert (second.turn.queued_at, second.turn.available_at) == (NOW, end)
    assert await chat.next_turn(NOW + WAIT) is None
    assert await journal.turns.next_at(now=NOW) == end
    lease = await chat.take_turn(at=end)
    assert lease.turn.id == accepted.turn.id


async def test_a_message_in_time_joins_the_batch(chat: Chat) -> None:
    """It takes the next place of the same batch, and the same turn answers all of it."""
    first = await say_at(chat, NOW, "Is it open?")
    second = await say_at(chat, NOW + MOMENT, "On Sunday, I mean.")
    assert second.is_new
    assert (second.turn.id, second.turn.batch) == (first.turn.id, first.turn.batch)
    batch = await chat.batch(first.turn.batch)
    assert batch.messages == [first.message, second.message]
    placed = MessageMetadata.of(second.message)
    assert (placed.batch, placed.sequence_num) == (first.turn.batch, 1)
    assert placed.batch_type is BatchType.USER_REQUEST
    assert positions(batch.messages) == sorted(set(positions(batch.messages)))
    assert await chat.turns() == [second.turn]
    assert texts(await chat.history()) == texts(batch.messages)


async def test_the_wait_ends_however_much_is_written(chat: Chat) -> None:
    """Five times its length after the first message the turn can be taken."""
    moment = NOW
    while moment < NOW + 5 * WAIT:
        last = await say_at(chat, moment)
        moment += WAIT - MOMENT
    assert last.turn.available_at == NOW + 5 * WAIT
    lease = await chat.take_turn(at=NOW + 5 * WAIT)
    assert len((await chat.batch(lease.turn.batch)).messages) == 7
    assert (await say_at(chat, NOW + 5 * WAIT)).turn.id != lease.turn.id


async def test_a_message_joins_only_a_turn_that_waits_last_in_line(chat: Chat) -> None:
    """Neither after the wait, nor past another message, nor if the turn is to be stopped."""
    turns = [(await say_at(chat, NOW)).turn.id]
    turns.append((await say_at(chat, NOW + WAIT)).turn.id)
    alone = await say_at(chat, NOW + WAIT + MOMENT, collect=None)
    assert alone.turn.available_at == NOW + WAIT + MOMENT
    turns.append(alone.turn.id)
    turns.append((await say_at(chat, NOW + WAIT + MOMENT)).turn.id)
    await chat.cancel()
    last = (await say_at(chat, NOW + WAIT + 2 * MOMENT)).turn
    assert not last.cancel_requested
    assert len({*turns, last.id}) == 5


async def test_a_message_does_not_join_a_turn_that_was_begun(journal: Journal, chat: Chat) -> None:
    """A turn that waits to be tried again has an answer in the making for what it has."""
    first = await say_at(chat, NOW)
    lease = await chat.take_turn(at=NOW + WAIT)
    await journal.turns.release(lease, now=NOW + WAIT, retry_at=NOW + HOUR)
    second = await say_at(chat, NOW + WAIT + MOMENT)
    assert second.turn.id != first.turn.id


async def test_a_collected_turn_waits_behind_a_running_one(journal: Journal, chat: Chat) -> None:
    """It moves up when the other ends, but not before its own time."""
    running = await chat.running_reply("First.")
    second = await say_at(chat, NOW, "Second.")
    assert (await say_at(chat, NOW + MOMENT, "Third.")).turn.id == second.turn.id
    assert await journal.turns.next_at(now=NOW) == running.until
    await chat.finish(running, AIMessage("Yes."))
    assert await chat.next_turn(NOW + MOMENT) is None
    assert await journal.turns.next_at(now=NOW) == NOW + MOMENT + WAIT
    lease = await chat.take_turn(at=NOW + MOMENT + WAIT)
    assert lease.turn.id == second.turn.id


async def test_a_turn_that_is_held_back_does_not_hold_up_other_threads(chat: Chat) -> None:
    """Other threads are served while one user continues to write."""
    await say_at(chat, NOW)
    lease = await (await chat.another("second")).running_reply()
    assert lease.turn.thread_id == "second"


async def test_a_message_that_joins_is_a_users_message_in_all_else(chat: Chat) -> None:
    """The epoch rises, for the turn too; the live follow-up ends, and the next may be armed."""
    await say_at(chat, NOW)
    timer = await chat.arm(HOUR)
    joined = await say_at(chat, NOW + MOMENT, "On Sunday.")
    assert joined.cancelled_timers == (timer.id,)
    [cancelled] = await chat.timers()
    assert cancelled.state is TimerState.CANCELLED
    thread = await chat.thread()
    assert (thread.epoch, thread.message_count, joined.turn.epoch) == (2, 2, 2)
    assert (thread.preview, thread.updated_at) == ("On Sunday.", NOW + MOMENT)
    lease = await chat.take_turn(at=NOW + HOUR)
    planned = NewTimer("chat", NOW + HOUR, "check_in")
    await chat.finish(lease, AIMessage("Yes."), timers=[planned])
    assert (await chat.timers())[0].state is TimerState.PENDING


async def test_a_message_that_joined_can_be_sent_again(chat: Chat) -> None:
    """Its client's id is known like any other, and the wait does not start anew."""
    await say_at(chat, NOW, "Is it open?", client_message_id="c-1")
    joined = await say_at(chat, NOW + MOMENT, "On Sunday.", client_message_id="c-2")
    again = await say_at(chat, NOW + 2 * MOMENT, "On Sunday.", client_message_id="c-2")
    assert not again.is_new
    assert (again.message, again.turn) == (joined.message, joined.turn)
    assert (await chat.thread()).epoch == 2


async def test_a_message_with_a_used_id_does_not_join(chat: Chat) -> None:
    """It is refused as ever, and the turn waits no longer for it."""
    message = user_message("Is it open?", id="m-1")
    first = await say_at(chat, NOW, message)
    with pytest.raises(ConflictError):
        await say_at(chat, NOW + MOMENT, message)
    assert await chat.turns() == [first.turn]
    assert len(await chat.messages()) == 1


async def test_a_message_that_joins_takes_type_and_parent_of_the_batch(chat: Chat) -> None:
    """Each keeps its sender; of two payloads the later one is laid over the earlier."""
    first: dict[str, Any] = {"model": "small", "voice": True}
    await say_at(chat, NOW, parent_batch=7, source_agent_id="planner", payload=first)
    second = await say_at(chat, NOW + MOMENT, source_agent_id="critic", payload={"model": "large"})
    assert second.turn.payload == {"model": "large", "voice": True}
    batch = await chat.batch(second.turn.batch)
    placed = [MessageMetadata.of(message) for message in batch.messages]
    assert [each.source_agent_id for each in placed] == ["planner", "critic"]
    assert {each.batch_type for each in placed} == {BatchType.AGENT_TO_AGENT}
    assert {each.parent_batch for each in placed} == {7}


async def test_messages_collected_at_once_are_one_batch(crowd: list[Chat]) -> None:
    """Processes that accept at the same time lose nothing and leave no gap."""
    said = [f"Message {n}" for n in range(len(crowd))]
    accepted = await asyncio.gather(
        *(each.say(text, collect=WAIT) for each, text in zip(crowd, said, strict=True))
    )
    assert len({each.turn.id for each in accepted}) == 1
    batch = await crowd[0].batch(accepted[0].turn.batch)
    assert sorted(texts(batch.messages)) == said
    places = [MessageMetadata.of(message).sequence_num for message in batch.messages]
    assert places == list(range(len(crowd)))


@pytest.mark.parametrize("collect", [timedelta(0), -WAIT, timedelta.max], ids=str)
async def test_a_wait_without_a_sane_end_is_refused(chat: Chat, collect: timedelta) -> None:
    """One of no length is none, and one for ever would never be answered."""
    with pytest.raises(UsageError, match="Nothing was written"):
        await chat.say(collect=collect)
    assert await chat.turns() == []
    assert await chat.messages() == []

"""Firing a timer: the synthetic message, its turn, and the reply that beats it."""

# ruff: noqa: S101 - tests assert

from datetime import datetime

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from segue.core.batch import BatchState
from segue.core.errors import ConflictError
from segue.core.messages import continuation_message
from segue.core.metadata import BatchType, MessageMetadata, is_synthetic
from segue.core.snowflake import SnowflakeSource
from segue.core.triggers import TRIGGER_PROMPTS
from segue.journal.ports import Journal
from segue.journal.records import TimerState, TurnKind, TurnState
from segue.testing.journal_contract.chat import HOUR, Chat, texts


def asks_to_go_on(call_id: str) -> list[AIMessage | ToolMessage]:
    """A call and its result, whose tool wants to go on later."""
    call = AIMessage("", tool_calls=[{"name": "continue_later", "args": {}, "id": call_id}])
    result = ToolMessage("later", tool_call_id=call_id)
    return [call, MessageMetadata(continue_requested=True).onto(result)]


async def test_firing_stores_the_trigger_and_queues_its_turn(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """The synthetic message begins a batch of its own, and a follow-up turn is queued for it."""
    await chat.exchange()
    turn = await chat.follow_up()
    assert (turn.kind, turn.state) == (TurnKind.FOLLOW_UP, TurnState.QUEUED)
    assert turn.epoch == (await journal.get_thread("chat")).epoch
    assert (turn.queued_at, turn.available_at) == (now, now)
    [message] = (await journal.load_batch("chat", turn.batch)).messages
    placed = MessageMetadata.of(message)
    assert is_synthetic(message)
    assert message.content == TRIGGER_PROMPTS["check_in"]
    assert (placed.position, placed.sequence_num) == (turn.batch, 0)
    assert placed.batch_type is BatchType.SYSTEM_TRIGGER
    assert await journal.get_turn(turn.id) == turn


async def test_a_fired_timer_is_closed(journal: Journal, chat: Chat) -> None:
    """A timer fires once: it is on record as fired and never due again."""
    await chat.arm()
    lease = await chat.take_timer()
    await chat.fire(lease)
    [timer] = await journal.list_timers("chat")
    assert timer.state is TimerState.FIRED
    assert await journal.next_due_at() is None
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.fire(lease)
    assert len(await journal.list_turns("chat")) == 1


async def test_firing_does_not_raise_the_epoch(journal: Journal, chat: Chat) -> None:
    """A trigger is not something the user said."""
    await chat.exchange()
    await chat.follow_up()
    assert (await journal.get_thread("chat")).epoch == 1


async def test_a_reply_beats_a_timer_that_is_about_to_fire(journal: Journal, chat: Chat) -> None:
    """If the user wrote since the timer was armed nothing is stored, and it is cancelled."""
    await chat.arm()
    lease = await chat.take_timer()
    accepted = await chat.say()
    assert await chat.fire(lease) is None
    [timer] = await journal.list_timers("chat")
    assert timer.state is TimerState.CANCELLED
    assert timer.state_reason
    assert await journal.list_turns("chat") == [accepted.turn]
    assert texts(await chat.messages()) == ["Is it open?"]


async def test_the_answer_to_a_follow_up_is_the_agents(journal: Journal, chat: Chat) -> None:
    """The reply joins the trigger's batch, and only the reply is shown."""
    turn = await chat.follow_up()
    await chat.reply("Still there?")
    batch = await journal.load_batch("chat", turn.batch)
    assert batch.is_complete
    assert batch.type is BatchType.SYSTEM_TRIGGER
    assert texts((await journal.history("chat")).messages) == ["Still there?"]


async def test_the_next_follow_up_can_be_armed_after_firing(journal: Journal, chat: Chat) -> None:
    """A fired timer no longer stands in the way of the next one, nor is it replaced by it."""
    await chat.follow_up()
    await chat.arm(HOUR)
    states = [timer.state for timer in await journal.list_timers("chat")]
    assert states == [TimerState.PENDING, TimerState.FIRED]


async def test_a_continuation_goes_on_in_its_batch(journal: Journal, chat: Chat) -> None:
    """The message takes the next place of the same batch, as a continuation."""
    accepted = await chat.say()
    await chat.finish(await chat.take_turn(), *asks_to_go_on("call_1"), AIMessage("More soon."))
    turn = await chat.continue_batch(accepted.turn.batch)
    assert (turn.batch, turn.kind) == (accepted.turn.batch, TurnKind.CONTINUATION)
    batch = await journal.load_batch("chat", turn.batch)
    placed = MessageMetadata.of(batch.messages[-1])
    assert placed.synthetic
    assert (placed.sequence_num, placed.batch) == (4, turn.batch)
    assert placed.batch_type is BatchType.CONTINUATION
    assert batch.type is BatchType.USER_REQUEST


async def test_a_continued_batch_can_be_finished(journal: Journal, chat: Chat) -> None:
    """What the continuation's turn writes completes the batch that it goes on with."""
    accepted = await chat.say()
    await chat.finish(await chat.take_turn(), *asks_to_go_on("call_1"), AIMessage("More soon."))
    waiting = await journal.load_batch("chat", accepted.turn.batch)
    assert waiting.state is BatchState.AWAITING_CONTINUATION
    await chat.continue_batch(accepted.turn.batch)
    [last] = await chat.reply("All done.")
    assert MessageMetadata.of(last).sequence_num == 5
    assert (await journal.load_batch("chat", accepted.turn.batch)).is_complete


async def test_a_continuation_may_ask_to_go_on_again(journal: Journal, chat: Chat) -> None:
    """A second request inside the continuation keeps the batch waiting for a second one."""
    accepted = await chat.say()
    await chat.finish(await chat.take_turn(), *asks_to_go_on("call_1"), AIMessage("More soon."))
    await chat.continue_batch(accepted.turn.batch)
    await chat.finish(await chat.take_turn(), *asks_to_go_on("call_2"), AIMessage("Still more."))
    batch = await journal.load_batch("chat", accepted.turn.batch)
    assert batch.state is BatchState.AWAITING_CONTINUATION


async def test_what_follows_a_continuation_has_the_type_of_its_batch(
    journal: Journal, chat: Chat
) -> None:
    """Only the message that lets the batch go on is a continuation."""
    batch = (await chat.follow_up()).batch
    await chat.reply("Working on it.")
    await chat.continue_batch(batch)
    await chat.reply("All done.")
    kinds = [
        MessageMetadata.of(m).batch_type for m in (await journal.load_batch("chat", batch)).messages
    ]
    own = BatchType.SYSTEM_TRIGGER
    assert kinds == [own, own, BatchType.CONTINUATION, own]


async def test_a_continuation_fires_although_the_user_wrote(journal: Journal, chat: Chat) -> None:
    """Finishing an answer is not a follow-up, so a new message does not beat it."""
    accepted = await chat.say()
    await chat.reply("More soon.")
    await chat.arm(trigger_type=None, kind=TurnKind.CONTINUATION, batch=accepted.turn.batch)
    lease = await chat.take_timer()
    await chat.say("And tomorrow?")
    turn = await chat.fire(lease)
    assert turn is not None
    assert turn.batch == accepted.turn.batch
    assert (await journal.list_timers("chat"))[0].state is TimerState.FIRED


async def test_a_void_follow_up_does_not_come_back_by_its_continuation(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """The user wrote before anything of it was seen, so nothing of it is said later either."""
    turn = await chat.follow_up()
    await chat.take_turn()
    await chat.arm(trigger_type=None, kind=TurnKind.CONTINUATION, batch=turn.batch)
    await chat.say()
    lease = await chat.take_timer()
    assert await journal.fire_timer(lease, continuation_message(), ids=ids, now=now) is None
    assert {t.kind for t in await journal.list_turns("chat")} == {
        TurnKind.FOLLOW_UP,
        TurnKind.REPLY,
    }
    assert TimerState.CANCELLED in [t.state for t in await journal.list_timers("chat")]

"""Due timers: follow-ups that fire, and continuations of a batch."""

from collections.abc import Awaitable, Callable

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from segue.core.batch import NOT_CONTINUED, Batch, BatchState
from segue.core.messages import continuation_message
from segue.core.metadata import BatchType, MessageMetadata, is_synthetic
from segue.core.triggers import TRIGGER_PROMPTS
from segue.errors import ConflictError
from segue.journal.journal import Journal
from segue.journal.records import (
    STOPPED,
    NewTimer,
    Timer,
    TimerKind,
    TimerState,
    TurnKind,
    TurnState,
)
from segue.testing.journal_contract.chat import HOUR, NOW, Chat, texts

WAYS: dict[str, Callable[[Chat], Awaitable[object]]] = {
    "stop": lambda chat: chat.cancel("enough"),
    "drop": lambda chat: chat.drop("enough"),
}


def asks_to_go_on(call_id: str) -> list[AIMessage | ToolMessage]:
    """A call and its result, whose tool wants to go on later."""
    call = AIMessage("", tool_calls=[{"name": "continue_later", "args": {}, "id": call_id}])
    result = ToolMessage("later", tool_call_id=call_id)
    return [call, MessageMetadata(continue_requested=True).onto(result)]


async def test_firing_stores_the_trigger_and_queues_its_turn(chat: Chat) -> None:
    """The synthetic message begins a batch of its own, and a follow-up turn is queued for it."""
    await chat.exchange()
    turn = await chat.follow_up()
    assert (turn.kind, turn.state) == (TurnKind.FOLLOW_UP, TurnState.QUEUED)
    assert turn.epoch == (await chat.thread()).epoch
    assert (turn.queued_at, turn.available_at) == (NOW, NOW)
    [message] = (await chat.batch(turn.batch)).messages
    placed = MessageMetadata.of(message)
    assert is_synthetic(message)
    assert message.content == TRIGGER_PROMPTS["check_in"]
    assert (placed.position, placed.sequence_num) == (turn.batch, 0)
    assert placed.batch_type is BatchType.SYSTEM_TRIGGER
    assert await chat.turn(turn.id) == turn


async def test_a_fired_timer_is_closed(journal: Journal, chat: Chat) -> None:
    """It fires once, does not raise the epoch, and leaves room for the next follow-up."""
    await chat.exchange()
    lease = await chat.claimed_timer()
    await chat.fire(lease)
    [timer] = await chat.timers()
    assert timer.state is TimerState.FIRED
    assert await journal.timers.next_at() is None
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.fire(lease)
    assert len(await chat.turns()) == 2
    assert (await chat.thread()).epoch == 1
    await chat.arm(HOUR)
    states = [timer.state for timer in await chat.timers()]
    assert states == [TimerState.PENDING, TimerState.FIRED]


async def test_a_reply_beats_a_timer_that_is_about_to_fire(chat: Chat) -> None:
    """If the user wrote since the timer was armed nothing is stored, and it is cancelled."""
    lease = await chat.claimed_timer()
    accepted = await chat.say()
    assert await chat.fire(lease) is None
    [timer] = await chat.timers()
    assert timer.state is TimerState.CANCELLED
    assert timer.state_reason
    assert await chat.turns() == [accepted.turn]
    assert texts(await chat.messages()) == ["Is it open?"]


async def test_a_continuation_goes_on_in_its_batch(chat: Chat) -> None:
    """The message takes the next place of the same batch, as a continuation."""
    accepted = await chat.say()
    await chat.finish(await chat.take_turn(), *asks_to_go_on("call_1"), AIMessage("More soon."))
    turn = await chat.continue_batch(accepted.turn.batch)
    assert (turn.batch, turn.kind) == (accepted.turn.batch, TurnKind.CONTINUATION)
    batch = await chat.batch(turn.batch)
    placed = MessageMetadata.of(batch.messages[-1])
    assert placed.synthetic
    assert (placed.sequence_num, placed.batch) == (4, turn.batch)
    assert placed.batch_type is BatchType.CONTINUATION
    assert batch.type is BatchType.USER_REQUEST


async def test_a_continued_batch_can_be_finished(chat: Chat) -> None:
    """As soon as a continuation does not ask to go on again."""
    accepted = await chat.say()
    for n, words in enumerate(("More soon.", "Still more.")):
        said = [*asks_to_go_on(f"call_{n}"), AIMessage(words)]
        await chat.finish(await chat.take_turn(), *said)
        waiting = await chat.batch(accepted.turn.batch)
        assert waiting.state is BatchState.AWAITING_CONTINUATION
        await chat.continue_batch(accepted.turn.batch)
    [last] = await chat.reply("All done.")
    assert MessageMetadata.of(last).sequence_num == 9
    assert (await chat.batch(accepted.turn.batch)).is_complete


async def test_what_follows_a_continuation_has_the_type_of_its_batch(chat: Chat) -> None:
    """Only the message that lets the batch go on is a continuation."""
    batch = (await chat.follow_up()).batch
    await chat.reply("Working on it.")
    await chat.continue_batch(batch)
    await chat.reply("All done.")
    kinds = [MessageMetadata.of(m).batch_type for m in (await chat.batch(batch)).messages]
    own = BatchType.SYSTEM_TRIGGER
    assert kinds == [own, own, BatchType.CONTINUATION, own]


async def test_a_continuation_fires_although_the_user_wrote(chat: Chat) -> None:
    """Finishing an answer is not a follow-up, so a new message does not beat it."""
    accepted = await chat.say()
    await chat.reply("More soon.")
    lease = await chat.claimed_timer(
        trigger_type=None, kind=TimerKind.CONTINUATION, batch=accepted.turn.batch
    )
    await chat.say("And tomorrow?")
    turn = await chat.fired(lease)
    assert turn.batch == accepted.turn.batch
    assert (await chat.timers())[0].state is TimerState.FIRED


async def test_a_void_follow_up_does_not_come_back_by_its_continuation(chat: Chat) -> None:
    """The user wrote before anything of it was seen, so nothing of it is said later either."""
    turn = await chat.follow_up()
    await chat.take_turn()
    await chat.arm(trigger_type=None, kind=TimerKind.CONTINUATION, batch=turn.batch)
    await chat.say()
    lease = await chat.take_timer()
    assert await chat.fire(lease, continuation_message()) is None
    assert {t.kind for t in await chat.turns()} == {TurnKind.FOLLOW_UP, TurnKind.REPLY}
    assert TimerState.CANCELLED in [t.state for t in await chat.timers()]


async def plan_to_go_on(chat: Chat) -> Timer:
    """A whole turn after which the agent wants to go on; the timer that waits for it."""
    accepted = await chat.say()
    going_on = NewTimer(
        chat.thread_id, chat.now, kind=TimerKind.CONTINUATION, batch=accepted.turn.batch
    )
    said = [*asks_to_go_on("c1"), AIMessage("More soon.")]
    await chat.finish(await chat.take_turn(), *said, timers=[going_on])
    [timer] = await chat.timers()
    return timer


async def batch_of(chat: Chat, timer: Timer) -> Batch:
    assert timer.batch is not None
    return await chat.journal.messages.load_batch(timer.thread_id, timer.batch)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", [TimerState.PENDING, TimerState.CLAIMED], ids=str)
async def test_a_user_can_end_a_continuation(chat: Chat, way: str, state: TimerState) -> None:
    """Once; its timer says why, and its batch is complete and in the next context."""
    planned = await plan_to_go_on(chat)
    lease = await chat.take_timer() if state is TimerState.CLAIMED else None
    await WAYS[way](chat)
    [timer] = await chat.timers()
    assert (timer.state, timer.state_reason) == (TimerState.CANCELLED, "enough")
    assert await chat.journal.timers.next_at() is None
    assert await chat.journal.messages.list_incomplete_batches("guide") == []
    [batch] = await chat.journal.messages.tail("chat", max_tokens=1_000)
    assert batch.id == planned.batch
    assert batch.is_complete
    assert texts(batch.messages)[-2:] == ["More soon.", NOT_CONTINUED]
    assert await WAYS[way](chat) == []
    assert await batch_of(chat, planned) == batch
    assert await chat.timers() == [timer]
    if lease is not None:
        assert await chat.fire(lease, continuation_message()) is None
        assert len(await chat.turns()) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_the_continuations_of_other_threads_stay(chat: Chat, way: str) -> None:
    """What the user wants of one conversation is not said of another."""
    other = await plan_to_go_on(await chat.another("second"))
    await WAYS[way](chat)
    assert await chat.journal.timers.list_of("second") == [other]


async def test_stopping_one_turn_leaves_continuations(chat: Chat) -> None:
    """A message that takes the place of an earlier one does not say that the work is unwanted."""
    planned = await plan_to_go_on(chat)
    only = (await chat.say(interrupts=True)).turn.id
    await chat.cancel(STOPPED, only=only)
    assert await chat.timers() == [planned]


async def test_dropping_gives_continuations_with_the_follow_up(chat: Chat) -> None:
    """All that ended, oldest first."""
    planned = await plan_to_go_on(chat)
    follow_up = await chat.arm(HOUR)
    dropped = await chat.drop("enough")
    assert [timer.id for timer in dropped] == [planned.id, follow_up.id]


@pytest.mark.parametrize("way", WAYS)
async def test_a_batch_that_a_turn_works_on_is_left_to_it(chat: Chat, way: str) -> None:
    """Its turn is still to write there, and closes it."""
    batch = (await chat.say()).turn.batch
    lease = await chat.take_turn()
    await chat.arm(trigger_type=None, kind=TimerKind.CONTINUATION, batch=batch)
    await WAYS[way](chat)
    assert texts((await chat.batch(batch)).messages) == ["Is it open?"]
    await chat.finish(lease, AIMessage("Yes."))
    assert texts((await chat.batch(batch)).messages) == ["Is it open?", "Yes."]


async def test_closing_a_continuation_settles_its_batch(journal: Journal, chat: Chat) -> None:
    """Nothing goes on with it; what closes it is not shown."""
    planned = await plan_to_go_on(chat)
    seen = await chat.history()
    lease = await chat.take_timer()
    closed = await chat.close(lease, TimerState.SUPPRESSED, "muted")
    assert (closed.state, closed.state_reason) == (TimerState.SUPPRESSED, "muted")
    batch = await batch_of(chat, planned)
    assert batch.is_complete
    assert MessageMetadata.of(batch.messages[-1]).settled
    assert await journal.messages.list_incomplete_batches("guide") == []
    assert await chat.history() == seen

"""Continuations that do not come: the timer ends with the reason, and its batch is settled."""

# ruff: noqa: S101 - tests assert

from collections.abc import Awaitable, Callable
from datetime import datetime

import pytest
from langchain_core.messages import AIMessage

from segue.core.batch import Batch
from segue.core.messages import continuation_message
from segue.core.metadata import MessageMetadata
from segue.core.settle import CUT_OFF_REPLY
from segue.journal.ports import Journal
from segue.journal.records import STOPPED, NewTimer, Timer, TimerState, TurnKind
from segue.testing.journal_contract.chat import HOUR, Chat, texts
from segue.testing.journal_contract.firing import asks_to_go_on

WAYS: dict[str, Callable[[Chat], Awaitable[object]]] = {
    "stop": lambda chat: chat.journal.cancel_turns("chat", "enough", ids=chat.ids, now=chat.now),
    "drop": lambda chat: chat.journal.cancel_timers("chat", "enough", ids=chat.ids, now=chat.now),
}


async def plan_to_go_on(chat: Chat) -> Timer:
    """A whole turn after which the agent wants to go on; the timer that waits for it."""
    accepted = await chat.say()
    going_on = NewTimer(
        chat.thread_id, chat.now, kind=TurnKind.CONTINUATION, batch=accepted.turn.batch
    )
    said = [*asks_to_go_on("c1"), AIMessage("More soon.")]
    await chat.finish(await chat.take_turn(), *said, timers=[going_on])
    [timer] = await chat.journal.list_timers(chat.thread_id)
    return timer


async def batch_of(chat: Chat, timer: Timer) -> Batch:
    assert timer.batch is not None
    return await chat.journal.load_batch(timer.thread_id, timer.batch)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", [TimerState.PENDING, TimerState.CLAIMED], ids=str)
async def test_a_user_can_end_a_continuation(
    journal: Journal, chat: Chat, way: str, state: TimerState
) -> None:
    """Its timer says why, and its batch is complete and in the next context."""
    planned = await plan_to_go_on(chat)
    lease = await chat.take_timer() if state is TimerState.CLAIMED else None
    await WAYS[way](chat)
    [timer] = await journal.list_timers("chat")
    assert (timer.state, timer.state_reason) == (TimerState.CANCELLED, "enough")
    assert await journal.next_due_at() is None
    assert await journal.list_incomplete_batches("guide") == []
    [batch] = await journal.tail("chat", max_tokens=1_000)
    assert batch.id == planned.batch
    assert batch.is_complete
    assert texts(batch.messages)[-2:] == ["More soon.", CUT_OFF_REPLY]
    if lease is not None:
        message = continuation_message()
        assert await journal.fire_timer(lease, message, ids=chat.ids, now=chat.now) is None
        assert len(await journal.list_turns("chat")) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_ending_a_continuation_again_changes_nothing(
    journal: Journal, chat: Chat, way: str
) -> None:
    """The batch is closed once."""
    planned = await plan_to_go_on(chat)
    await WAYS[way](chat)
    batch, timers = await batch_of(chat, planned), await journal.list_timers("chat")
    assert await WAYS[way](chat) == []
    assert await batch_of(chat, planned) == batch
    assert await journal.list_timers("chat") == timers


@pytest.mark.parametrize("way", WAYS)
async def test_the_continuations_of_other_threads_stay(
    journal: Journal, chat: Chat, way: str
) -> None:
    """What the user wants of one conversation is not said of another."""
    other = await plan_to_go_on(await chat.another("second"))
    await WAYS[way](chat)
    assert await journal.list_timers("second") == [other]


@pytest.mark.parametrize("which", ["before", "only"])
async def test_stopping_some_turns_leaves_continuations(
    journal: Journal, chat: Chat, which: str
) -> None:
    """A message that takes the place of an earlier one does not say that the work is unwanted."""
    planned = await plan_to_go_on(chat)
    chosen = {which: (await chat.say()).turn.id}
    await journal.cancel_turns("chat", STOPPED, ids=chat.ids, now=chat.now, **chosen)
    assert await journal.list_timers("chat") == [planned]


async def test_dropping_gives_continuations_with_the_follow_up(
    journal: Journal, chat: Chat
) -> None:
    """All that ended, oldest first."""
    planned = await plan_to_go_on(chat)
    follow_up = await chat.arm(HOUR)
    dropped = await journal.cancel_timers("chat", "enough", ids=chat.ids, now=chat.now)
    assert [timer.id for timer in dropped] == [planned.id, follow_up.id]


@pytest.mark.parametrize("way", WAYS)
async def test_a_batch_that_a_turn_works_on_is_left_to_it(
    journal: Journal, chat: Chat, way: str
) -> None:
    """Its turn is still to write there, and closes it."""
    batch = (await chat.say()).turn.batch
    lease = await chat.take_turn()
    await chat.arm(trigger_type=None, kind=TurnKind.CONTINUATION, batch=batch)
    await WAYS[way](chat)
    assert texts((await journal.load_batch("chat", batch)).messages) == ["Is it open?"]
    await chat.finish(lease, AIMessage("Yes."))
    assert texts((await journal.load_batch("chat", batch)).messages) == ["Is it open?", "Yes."]


async def test_closing_a_continuation_settles_its_batch(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """Nothing goes on with it; what closes it is not shown."""
    planned = await plan_to_go_on(chat)
    seen = (await journal.history("chat")).messages
    lease = await chat.take_timer()
    closed = await journal.close_timer(lease, TimerState.SUPPRESSED, "muted", ids=chat.ids, now=now)
    assert (closed.state, closed.state_reason) == (TimerState.SUPPRESSED, "muted")
    batch = await batch_of(chat, planned)
    assert batch.is_complete
    assert MessageMetadata.of(batch.messages[-1]).settled
    assert await journal.list_incomplete_batches("guide") == []
    assert (await journal.history("chat")).messages == seen

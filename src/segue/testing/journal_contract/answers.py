"""Answering what a turn asked, and saying something else instead."""

import asyncio
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from segue.core.batch import CUT_OFF_REPLY, INTERRUPTED_RESULT, BatchState
from segue.core.messages import visible_messages
from segue.core.metadata import MessageMetadata, is_settled
from segue.errors import ConflictError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import TimerState, TurnKind, TurnState
from segue.testing.journal_contract.chat import HOUR, NOW, Chat, positions, texts
from segue.testing.journal_contract.fixtures import Rounds


def booked(call_id: str) -> ToolMessage:
    return ToolMessage("Booked.", tool_call_id=call_id)


async def test_a_turn_that_asks_leaves_its_batch_open(journal: Journal, chat: Chat) -> None:
    """It has ended and waits, and no turn can be claimed until the user answers."""
    turn = await chat.ask_back()
    assert (turn.state, turn.is_waiting) == (TurnState.DONE, True)
    batch = await chat.batch(turn.batch)
    assert batch.state is BatchState.AWAITING_TOOLS
    assert await chat.next_turn() is None
    assert await journal.messages.list_incomplete_batches("guide") == [("chat", batch)]


async def test_an_answer_queues_a_turn_for_the_same_batch(chat: Chat) -> None:
    """The answer comes to the worker that takes it, as it was given."""
    answers: list[Any] = [True, "Yes 🙂", 2**63, [1.5, {"rows": []}], {"approve": {"n": None}}]
    for answer in answers:
        asked = await chat.ask_back()
        turn = await chat.answer(asked.id, answer)
        assert turn.id > asked.id
        assert (turn.batch, turn.kind) == (asked.batch, TurnKind.REPLY)
        assert (turn.state, turn.queued_at, turn.available_at) == (TurnState.QUEUED, NOW, NOW)
        assert turn.payload == {"answer": answer}
        lease = await chat.take_turn()
        assert (lease.turn.id, lease.turn.payload) == (turn.id, {"answer": answer})
        await chat.finish(lease, booked(f"call {asked.id}"), AIMessage("Done."))


async def test_only_a_turn_that_waits_can_be_answered(chat: Chat) -> None:
    """One that is queued, over, or answered before is refused, and nothing changes."""

    async def check_refused(turn_id: int) -> None:
        turns = await chat.turns()
        before = await chat.thread()
        with pytest.raises(ConflictError, match="Nothing was written"):
            await chat.answer(turn_id, "no")
        assert await chat.turns() == turns
        assert await chat.thread() == before

    turn = (await chat.say()).turn
    await check_refused(turn.id)
    await chat.reply()
    await check_refused(turn.id)
    asked = await chat.ask_back()
    await chat.answer(asked.id, "yes")
    assert not (await chat.turn(asked.id)).is_waiting
    await check_refused(asked.id)


async def test_an_answer_is_the_user_speaking(chat: Chat) -> None:
    """The epoch rises, the live follow-up timer ends, and a queued follow-up is void."""
    asked = await chat.ask_back()
    follow_up = await chat.follow_up()
    timer = await chat.arm(HOUR)
    turn = await chat.answer(asked.id, "yes")
    assert turn.epoch == (await chat.thread()).epoch == 2
    assert (await chat.turn(follow_up.id)).state is TurnState.VOID
    [cancelled] = [t for t in await chat.timers() if t.id == timer.id]
    assert cancelled.state is TimerState.CANCELLED
    assert (await chat.take_turn()).turn.id == turn.id


async def test_the_turn_that_goes_on_completes_the_batch(chat: Chat) -> None:
    """It writes behind the question, and the batch is no longer listed as open."""
    asked = await chat.ask_back()
    await chat.answer(asked.id, "yes")
    await chat.finish(await chat.take_turn(), booked(f"call {asked.id}"), AIMessage("Done."))
    batch = await chat.batch(asked.batch)
    assert batch.is_complete
    assert [MessageMetadata.of(m).sequence_num for m in batch.messages] == [0, 1, 2, 3]
    assert await chat.journal.messages.list_incomplete_batches("guide") == []


async def test_of_two_answers_at_once_one_counts(crowd: list[Chat]) -> None:
    """A button that is pressed in two windows does its work once."""
    asked = await crowd[0].ask_back()
    outcomes = await asyncio.gather(
        *(each.answer(asked.id, 1) for each in crowd), return_exceptions=True
    )
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == len(crowd) - 1
    assert len(await crowd[0].turns()) == 2
    assert (await crowd[0].thread()).epoch == 2


DEEP: Any = json.loads("[" * 64 + "]" * 64)


async def test_an_answer_that_would_arrive_changed_is_refused(chat: Chat) -> None:
    """The turn waits on, for an answer that may be as deep as any form that a person fills in."""
    asked = await chat.ask_back()
    for answer in (None, object(), {1, 2}, float("nan"), b"yes", [DEEP]):
        with pytest.raises(UsageError, match="Nothing was written"):
            await chat.answer(asked.id, answer)
        assert (await chat.turn(asked.id)).is_waiting
        assert len(await chat.turns()) == 1
    turn = await chat.answer(asked.id, DEEP)
    assert (await chat.turn(turn.id)).payload["answer"] == DEEP


async def test_a_message_settles_the_batch_that_waits(journal: Journal, chat: Chat) -> None:
    """A message closes the open call before it, and an answer that comes later is refused."""
    asked = await chat.ask_back()
    accepted = await chat.say("Never mind.")
    batch = await chat.batch(asked.batch)
    assert batch.is_complete
    assert texts(batch.messages)[2:] == [INTERRUPTED_RESULT, CUT_OFF_REPLY]
    assert all(is_settled(message) for message in batch.messages[2:])
    places = positions([*batch.messages, accepted.message])
    assert places == sorted(set(places))
    assert texts(visible_messages(batch.messages)) == ["Is it open?", "Shall I book it?"]
    assert not (await chat.turn(asked.id)).is_waiting
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.answer(asked.id, "yes")
    await chat.reply()
    assert await journal.messages.list_incomplete_batches("guide") == []
    await chat.say("Another thing.")
    assert await chat.batch(asked.batch) == batch


async def test_only_a_message_instead_of_an_answer_settles(chat: Chat) -> None:
    """One in another thread, one that is refused, and one after the answer settle nothing."""
    asked = await chat.ask_back()
    await (await chat.another("second")).say()
    assert await chat.turn(asked.id) == asked
    await chat.continue_batch(asked.batch)
    with pytest.raises(ConflictError):
        await chat.say("Never mind.", only_if_idle=True)
    assert (await chat.turn(asked.id)).is_waiting
    batch = await chat.batch(asked.batch)
    await chat.answer(asked.id, "yes")
    await chat.say("And hurry.")
    assert await chat.batch(asked.batch) == batch


async def test_a_message_that_was_accepted_before_settles_nothing(chat: Chat) -> None:
    """A client that repeats its last message has not said something else."""
    lease = await chat.running_reply("Is it open?", client_message_id="c-1")
    call = {"name": "book", "args": {}, "id": "call_1"}
    await chat.finish(lease, AIMessage("Shall I?", tool_calls=[call]), is_waiting=True)
    await chat.say("Is it open?", client_message_id="c-1")
    assert (await chat.turn(lease.turn.id)).is_waiting


async def test_an_answer_and_a_message_at_the_same_moment(rounds: Rounds) -> None:
    """Either the answer came first and has its turn, or the batch is settled and it is refused."""
    async for mine, user in rounds:
        asked = await mine.ask_back()
        answered, _ = await asyncio.gather(
            mine.answer(asked.id, "yes"), user.say("Never mind."), return_exceptions=True
        )
        batch = await mine.batch(asked.batch)
        if isinstance(answered, BaseException):
            assert isinstance(answered, ConflictError)
            assert batch.is_complete
        else:
            assert len(batch.messages) == 2
            await mine.finish(await mine.take_turn(), booked(f"call {asked.id}"), AIMessage("Ok."))
        await mine.reply()


async def test_an_operator_settles_a_batch_that_waits(journal: Journal, chat: Chat) -> None:
    """It is whole then and can no longer be answered; what is complete or worked on is refused."""
    turn = await chat.ask_back()
    await journal.turns.settle("chat", turn.batch, ids=chat.ids, now=NOW)
    batch = await chat.batch(turn.batch)
    assert (batch.state, is_settled(batch.messages[-1])) == (BatchState.COMPLETE, True)
    assert not (await chat.turn(turn.id)).is_waiting
    with pytest.raises(ConflictError, match="does not wait"):
        await chat.answer(turn.id, "late")
    with pytest.raises(ConflictError, match="is complete"):
        await journal.turns.settle("chat", turn.batch, ids=chat.ids, now=NOW)
    said = await chat.say("Something else.")
    with pytest.raises(ConflictError, match="stop it first"):
        await journal.turns.settle("chat", said.turn.batch, ids=chat.ids, now=NOW)


async def test_the_queue_is_listed_in_its_order(journal: Journal, chat: Chat) -> None:
    """The first turn of each thread, with the worker that has it and the end of its lease."""
    assert await journal.turns.list_live() == []
    said = await chat.say("One.")
    await chat.say("Behind it.")
    other = await (await chat.another("second")).say("Two.")
    lease = await chat.take_turn("worker-a")
    found = await journal.turns.list_live()
    assert {each.turn.id for each in found} == {said.turn.id, other.turn.id}
    taken = next(each for each in found if each.turn.id == lease.turn.id)
    assert (taken.owner, taken.wake_at) == ("worker-a", lease.until)
    assert [each.owner for each in found if each is not taken] == [None]
    assert len(await journal.turns.list_live(limit=1)) == 1


async def test_what_was_sent_is_found_by_its_id(chat: Chat) -> None:
    """The turn of a message, or of an answer, by the client's id for it; in its own thread only."""
    asked = await chat.ask_back()
    answered = await chat.answer(asked.id, "yes", client_message_id="a-1")
    await chat.finish(await chat.take_turn(), booked(f"call {asked.id}"), AIMessage("Done."))
    said = await chat.say(client_message_id="m-1")
    find = chat.journal.inbox.find_sent
    found = [await find(chat.thread_id, name) for name in ("a-1", "m-1", "m-2")]
    assert [turn and turn.id for turn in found] == [answered.id, said.turn.id, None]
    assert await find("another", "m-1") is None

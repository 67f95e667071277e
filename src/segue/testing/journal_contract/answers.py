"""Answering what a turn asked, and saying something else instead."""

import asyncio
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from segue.core.batch import CUT_OFF_REPLY, INTERRUPTED_RESULT, BatchState
from segue.core.messages import visible_messages
from segue.core.metadata import MessageMetadata, is_settled
from segue.core.snowflake import SnowflakeSource
from segue.errors import ConflictError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import TimerState, TurnKind, TurnState
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat, positions, texts
from segue.testing.journal_contract.fixtures import OpenJournal, ticking_ids


def booked(call_id: str) -> ToolMessage:
    return ToolMessage("Booked.", tool_call_id=call_id)


async def test_a_turn_that_asks_leaves_its_batch_open(journal: Journal, chat: Chat) -> None:
    """It is over and waits, and nothing is there to be taken until somebody answers."""
    turn = await chat.ask_back()
    assert (turn.state, turn.is_waiting) == (TurnState.DONE, True)
    batch = await journal.messages.load_batch("chat", turn.batch)
    assert batch.state is BatchState.AWAITING_TOOLS
    assert await journal.turns.claim_one("worker-a", now=chat.now, lease_for=LEASE) is None
    assert await journal.messages.list_incomplete_batches("guide") == [("chat", batch)]


@pytest.mark.parametrize(
    "answer", [True, "Yes 🙂", 2**63, [1.5, {"rows": []}], {"approve": {"n": None}}], ids=str
)
async def test_an_answer_queues_a_turn_for_the_same_batch(chat: Chat, answer: Any) -> None:
    """The answer comes to whoever takes it, as it was given."""
    asked = await chat.ask_back()
    turn = await chat.journal.inbox.answer(asked.id, answer, ids=chat.ids, now=NOW)
    assert turn.id > asked.id
    assert (turn.batch, turn.kind, turn.state) == (asked.batch, TurnKind.REPLY, TurnState.QUEUED)
    assert (turn.queued_at, turn.available_at) == (NOW, NOW)
    assert turn.payload == {"answer": answer}
    lease = await chat.take_turn()
    assert (lease.turn.id, lease.turn.payload) == (turn.id, {"answer": answer})


async def test_an_answered_turn_waits_no_more(chat: Chat, ids: SnowflakeSource) -> None:
    """A second answer is refused and changes nothing."""
    asked = await chat.ask_back()
    turn = await chat.journal.inbox.answer(asked.id, "yes", ids=ids, now=NOW)
    assert not (await chat.journal.turns.get(asked.id)).is_waiting
    before = await chat.journal.threads.get("chat")
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.journal.inbox.answer(asked.id, "no", ids=ids, now=NOW)
    assert await chat.journal.turns.get(turn.id) == turn
    assert len(await chat.journal.turns.list_of("chat")) == 2
    assert await chat.journal.threads.get("chat") == before


async def test_a_turn_that_asked_nothing_cannot_be_answered(journal: Journal, chat: Chat) -> None:
    """Neither one that is queued or running, nor one that is over."""
    turn = (await chat.say()).turn
    with pytest.raises(ConflictError, match="Nothing was written"):
        await journal.inbox.answer(turn.id, "yes", ids=chat.ids, now=NOW)
    await chat.reply()
    with pytest.raises(ConflictError, match="Nothing was written"):
        await journal.inbox.answer(turn.id, "yes", ids=chat.ids, now=NOW)
    assert len(await journal.turns.list_of("chat")) == 1
    assert (await journal.threads.get("chat")).epoch == 1


async def test_an_answer_is_the_user_speaking(chat: Chat, ids: SnowflakeSource) -> None:
    """The epoch rises, the live follow-up timer ends, and a queued follow-up is void."""
    asked = await chat.ask_back()
    follow_up = await chat.follow_up()
    timer = await chat.arm(HOUR)
    turn = await chat.journal.inbox.answer(asked.id, "yes", ids=ids, now=NOW)
    assert turn.epoch == (await chat.journal.threads.get("chat")).epoch == 2
    assert (await chat.journal.turns.get(follow_up.id)).state is TurnState.VOID
    [cancelled] = [t for t in await chat.journal.timers.list_of("chat") if t.id == timer.id]
    assert cancelled.state is TimerState.CANCELLED
    assert (await chat.take_turn()).turn.id == turn.id


async def test_the_turn_that_goes_on_completes_the_batch(chat: Chat, ids: SnowflakeSource) -> None:
    """It writes behind the question, and the batch is no longer listed as open."""
    asked = await chat.ask_back()
    await chat.journal.inbox.answer(asked.id, "yes", ids=ids, now=NOW)
    await chat.finish(await chat.take_turn(), booked(f"call {asked.id}"), AIMessage("Done."))
    batch = await chat.journal.messages.load_batch("chat", asked.batch)
    assert batch.is_complete
    assert [MessageMetadata.of(m).sequence_num for m in batch.messages] == [0, 1, 2, 3]
    assert await chat.journal.messages.list_incomplete_batches("guide") == []


async def test_of_two_answers_at_once_one_counts(open_journal: OpenJournal, chat: Chat) -> None:
    """A button that is pressed in two windows does its work once."""
    asked = await chat.ask_back()
    handles = [chat.journal, await open_journal()]
    outcomes = await asyncio.gather(
        *(
            handles[n % 2].inbox.answer(asked.id, n, ids=ticking_ids(node=n), now=NOW)
            for n in range(6)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 5
    assert len(await chat.journal.turns.list_of("chat")) == 2
    assert (await chat.journal.threads.get("chat")).epoch == 2


DEEP: Any = json.loads("[" * 64 + "]" * 64)


@pytest.mark.parametrize("answer", [None, object(), {1, 2}, float("nan"), b"yes", [DEEP]], ids=type)
async def test_an_answer_that_does_not_arrive_as_it_is_is_refused(
    journal: Journal, chat: Chat, ids: SnowflakeSource, answer: object
) -> None:
    """The agent would get something else than was given; the turn waits on."""
    asked = await chat.ask_back()
    with pytest.raises(UsageError, match="Nothing was written"):
        await journal.inbox.answer(asked.id, answer, ids=ids, now=NOW)
    assert (await journal.turns.get(asked.id)).is_waiting
    assert len(await journal.turns.list_of("chat")) == 1


async def test_an_answer_may_be_nested(journal: Journal, chat: Chat, ids: SnowflakeSource) -> None:
    """As deep as any form that a person fills in."""
    asked = await chat.ask_back()
    turn = await journal.inbox.answer(asked.id, DEEP, ids=ids, now=NOW)
    assert (await journal.turns.get(turn.id)).payload["answer"] == DEEP


async def test_a_message_settles_the_batch_that_waits(journal: Journal, chat: Chat) -> None:
    """Who says something else has answered: the open call is closed, before the new message."""
    asked = await chat.ask_back()
    accepted = await chat.say("Never mind.")
    batch = await journal.messages.load_batch("chat", asked.batch)
    assert batch.is_complete
    assert texts(batch.messages)[2:] == [INTERRUPTED_RESULT, CUT_OFF_REPLY]
    assert all(is_settled(message) for message in batch.messages[2:])
    places = positions([*batch.messages, accepted.message])
    assert places == sorted(set(places))
    assert texts(visible_messages(batch.messages)) == ["Is it open?", "Shall I book it?"]


async def test_a_settled_batch_no_longer_waits(chat: Chat, ids: SnowflakeSource) -> None:
    """The answer that comes too late is refused, and nothing is left open."""
    asked = await chat.ask_back()
    await chat.say("Never mind.")
    assert not (await chat.journal.turns.get(asked.id)).is_waiting
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.journal.inbox.answer(asked.id, "yes", ids=ids, now=NOW)
    await chat.reply()
    assert await chat.journal.messages.list_incomplete_batches("guide") == []
    await chat.say("Another thing.")
    assert len((await chat.journal.messages.load_batch("chat", asked.batch)).messages) == 4


async def test_an_answered_batch_is_not_settled(chat: Chat, ids: SnowflakeSource) -> None:
    """Between the answer and its turn a message may come, and takes nothing away."""
    asked = await chat.ask_back()
    await chat.journal.inbox.answer(asked.id, "yes", ids=ids, now=NOW)
    await chat.say("And hurry.")
    assert len((await chat.journal.messages.load_batch("chat", asked.batch)).messages) == 2


async def test_a_message_in_another_thread_settles_nothing(journal: Journal, chat: Chat) -> None:
    """The question stays open where it was asked."""
    asked = await chat.ask_back()
    await (await chat.another("second")).say()
    assert await journal.turns.get(asked.id) == asked
    assert len((await journal.messages.load_batch("chat", asked.batch)).messages) == 2


async def test_a_message_that_was_accepted_before_settles_nothing(chat: Chat) -> None:
    """A client that repeats its last message has not said something else."""
    await chat.say("Is it open?", client_message_id="c-1")
    lease = await chat.take_turn()
    call = {"name": "book", "args": {}, "id": "call_1"}
    await chat.finish(lease, AIMessage("Shall I?", tool_calls=[call]), is_waiting=True)
    await chat.say("Is it open?", client_message_id="c-1")
    assert (await chat.journal.turns.get(lease.turn.id)).is_waiting


async def test_a_refused_message_settles_nothing(journal: Journal, chat: Chat) -> None:
    """Who was told to wait has not said anything."""
    asked = await chat.ask_back()
    await chat.continue_batch(asked.batch)
    with pytest.raises(ConflictError):
        await chat.say("Never mind.", only_if_idle=True)
    assert (await journal.turns.get(asked.id)).is_waiting


async def test_an_answer_and_a_message_at_the_same_moment(
    open_journal: OpenJournal, journal: Journal, chat: Chat
) -> None:
    """Either the answer came first and has its turn, or the batch is settled and it is refused."""
    other = await open_journal()
    for n in range(6):
        mine = await chat.another(f"round-{n}")
        asked = await mine.ask_back()
        answered, _ = await asyncio.gather(
            journal.inbox.answer(asked.id, "yes", ids=chat.ids, now=NOW),
            Chat(other, ticking_ids(node=9), NOW, mine.thread_id).say("Never mind."),
            return_exceptions=True,
        )
        batch = await journal.messages.load_batch(mine.thread_id, asked.batch)
        if isinstance(answered, BaseException):
            assert isinstance(answered, ConflictError)
            assert batch.is_complete
        else:
            assert len(batch.messages) == 2
            await mine.finish(await mine.take_turn(), booked(f"call {asked.id}"), AIMessage("Ok."))
        await mine.reply()

"""How a message comes in: only if nobody is answering, from another agent, with something along."""

# ruff: noqa: S101 - tests assert

import asyncio
from datetime import datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.core.errors import ConflictError
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.snowflake import SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.records import TurnKind
from segue.testing.journal_contract.chat import HOUR, Chat, texts
from segue.testing.journal_contract.fixtures import OpenJournal, ticking_ids


@pytest.mark.parametrize("is_running", [False, True], ids=["queued", "running"])
async def test_a_message_for_an_idle_thread_is_refused_while_a_reply_is_due(
    journal: Journal, chat: Chat, is_running: bool
) -> None:
    """Whoever wants to wait is told so, and nothing changes."""
    await chat.say("First.")
    if is_running:
        await chat.take_turn()
    timer = await chat.arm(HOUR)
    before, turns = await journal.get_thread("chat"), await journal.list_turns("chat")
    with pytest.raises(ConflictError, match="An answer is being written") as refused:
        await chat.say("Second.", only_if_idle=True)
    assert refused.value.code == "conflict"
    assert await journal.get_thread("chat") == before
    assert await journal.list_turns("chat") == turns
    assert await journal.list_timers("chat") == [timer]
    assert texts(await chat.messages()) == ["First."]


async def test_a_message_for_an_idle_thread_is_refused_during_a_continuation(chat: Chat) -> None:
    """What an answer still has to do is part of the answer."""
    await chat.continue_batch(await chat.exchange())
    with pytest.raises(ConflictError, match="An answer is being written"):
        await chat.say(only_if_idle=True)


async def test_a_message_for_an_idle_thread_is_accepted_when_all_is_said(chat: Chat) -> None:
    """In a new thread, and after an answer."""
    assert (await chat.say(only_if_idle=True)).is_new
    await chat.reply()
    assert (await chat.say(only_if_idle=True)).is_new


async def test_a_follow_up_does_not_make_a_thread_busy(chat: Chat, now: datetime) -> None:
    """Nobody has to wait for what nobody asked for, shown or not."""
    follow_up = await chat.follow_up()
    assert (await chat.say(only_if_idle=True)).voided_turns == (follow_up.id,)
    await chat.reply()
    await chat.follow_up()
    await chat.journal.show_turn(await chat.take_turn(), now=now)
    assert (await chat.say(only_if_idle=True)).is_new


async def test_the_answer_in_another_thread_does_not_make_one_busy(chat: Chat) -> None:
    """Each conversation has its own answer."""
    await (await chat.another("second")).say()
    assert (await chat.say(only_if_idle=True)).is_new


async def test_a_message_that_was_accepted_before_is_not_refused(chat: Chat) -> None:
    """Sent again, it gets its first acceptance, though its own answer is being written."""
    first = await chat.say(client_message_id="c-1", only_if_idle=True)
    again = await chat.say(client_message_id="c-1", only_if_idle=True)
    assert (again.is_new, again.turn) == (False, first.turn)


async def test_of_messages_for_an_idle_thread_sent_at_once_one_is_accepted(
    open_journal: OpenJournal, journal: Journal, chat: Chat, now: datetime
) -> None:
    """Two tabs that find the thread idle at the same moment do not both get a turn."""
    other = Chat(await open_journal(), ticking_ids(node=2), now)
    outcomes = await asyncio.gather(
        *(each.say(only_if_idle=True) for each in (chat, other) * 3), return_exceptions=True
    )
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 5
    assert len(await journal.list_turns("chat")) == 1


async def test_another_agents_question_says_whose_it_is(
    journal: Journal, chat: Chat, ids: SnowflakeSource
) -> None:
    """It begins a batch of its own that names the batch and the agent behind it."""
    parent = ids.next()
    accepted = await chat.say("How much is it?", parent_batch=parent, source_agent_id="planner")
    batch = await journal.load_batch("chat", accepted.turn.batch)
    assert batch.messages == [accepted.message]
    assert (batch.type, batch.parent) == (BatchType.AGENT_TO_AGENT, parent)
    assert MessageMetadata.of(accepted.message).source_agent_id == "planner"
    assert (accepted.turn.kind, accepted.turn.epoch) == (TurnKind.REPLY, 1)


@pytest.mark.parametrize("known", [{"parent_batch": 7}, {"source_agent_id": "planner"}], ids=str)
async def test_half_of_where_a_question_comes_from_is_enough(
    journal: Journal, chat: Chat, known: dict[str, Any]
) -> None:
    """An agent without a batch, or a batch without an agent's name, is no user either."""
    accepted = await chat.say(**known)
    batch = await journal.load_batch("chat", accepted.turn.batch)
    assert batch.type is BatchType.AGENT_TO_AGENT
    assert known.items() <= batch.messages[0].additional_kwargs.items()


async def test_the_answer_to_another_agent_belongs_to_the_same_cycle(
    journal: Journal, chat: Chat
) -> None:
    """What is appended has the type and the parent of the question."""
    accepted = await chat.say(parent_batch=7, source_agent_id="planner")
    await chat.finish(await chat.take_turn(), AIMessage("Nine."))
    for message in (await journal.load_batch("chat", accepted.turn.batch)).messages:
        metadata = MessageMetadata.of(message)
        assert (metadata.batch_type, metadata.parent_batch) == (BatchType.AGENT_TO_AGENT, 7)


async def test_what_comes_along_with_a_message_reaches_its_turn(
    journal: Journal, chat: Chat
) -> None:
    """The worker gets it with the lease, and every reader with the turn; as a rule it is empty."""
    payload = {"model": "large 🙂", "depth": [1, {"a": None}]}
    accepted = await chat.say(payload=payload)
    assert accepted.turn.payload == payload
    assert (await chat.take_turn()).turn.payload == payload
    assert (await journal.get_turn(accepted.turn.id)).payload == payload
    assert (await chat.say()).turn.payload == {}

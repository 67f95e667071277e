"""Stories of questions: a graph stops for a person, who answers, or says something else."""

from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

from segue.core.metadata import MessageMetadata
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.errors import ConflictError
from segue.events import MessageStored, QuestionAsked, TurnEnded
from segue.journal.records import TimerState, TurnKind
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, Stage, World, with_graph
from tests.stories.scenes import (
    PATIENCE,
    Listener,
    eager_agent,
    listening,
    new_thread,
    sent_at,
    told,
)

pytestmark = pytest.mark.anyio

QUESTION = {"question": "Shall I book the table for eight?"}


def booking(state: MessagesState) -> dict[str, Any]:
    """Books a table if a person agrees; small talk and follow-ups need nobody's word."""
    asked = [message for message in state["messages"] if isinstance(message, HumanMessage)][-1]
    if asked.text in TRIGGER_PROMPTS.values():
        return {"messages": [AIMessage("Have you decided about the table?")]}
    if "table" not in asked.text:
        return {"messages": [AIMessage(f"You said: {asked.text}")]}
    return {"messages": [AIMessage(f"Booked: {interrupt(QUESTION)}")]}


def waiter() -> AgentConfig:
    builder = StateGraph(MessagesState)
    builder.add_node("booking", booking)
    builder.add_edge(BEGIN, "booking")
    return with_graph(eager_agent(), builder.compile())


async def ask_for_a_table(world: World, listener: Listener, thread: str) -> int:
    """The user's request, up to the question that comes back; the id of the turn that waits."""
    await world.say(thread, "A table for two, please.")
    await listener.until(QuestionAsked)
    [asked] = [event for event in listener.events if isinstance(event, QuestionAsked)]
    assert list(asked.questions.values()) == [QUESTION]
    return asked.turn_id


async def test_an_answer_lets_the_graph_go_on(stage: Stage) -> None:
    """Listeners hear the question, and the answer leads to the reply, in the same batch."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
            await world.segue.answer(turn, "yes")
            await world.clock.settle()
        assert await world.heard(thread) == ["A table for two, please.", "Booked: yes"]
        assert [type(event) for event in listener.events if not _is_piece(event)] == [
            MessageStored,
            QuestionAsked,
            MessageStored,
        ]
        [second, first] = await world.journal.turns.list_of(thread)
        assert second.batch == first.batch
        assert (await world.journal.messages.load_batch(thread, first.batch)).is_complete


@pytest.mark.parametrize("answer", ["Stop.", "No, stop it.", "Later, please", "Not today."])
async def test_an_answer_that_only_refuses_is_no_request(stage: Stage, answer: str) -> None:
    """It is about what the agent asked."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
            await world.segue.answer(turn, answer)
            await world.clock.settle()
        assert await world.segue.get_user_preferences("ann") == {}
        assert await world.heard(thread) == ["A table for two, please.", f"Booked: {answer}"]


async def test_a_stop_in_an_answer_is_a_stop(stage: Stage) -> None:
    """Where the client sends all that a user writes as the answer, too."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
            await world.segue.answer(turn, "Stop writing to me, please.")
            await world.pass_time(PATIENCE * 2)
        assert (await world.segue.get_user_preferences("ann"))["opted_out"] is True
        assert await sent_at(world, thread) == []


async def test_an_open_question_is_followed_up_and_the_answer_ends_that(stage: Stage) -> None:
    """While the agent waits for a decision, a follow-up on it is planned; the answer cancels it."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
            [planned] = await world.segue.list_follow_ups(thread)
            assert planned.trigger_type == TriggerType.WAITING_FOR_DECISION
            assert await told(world, thread, "planning") == [
                "follow_up: The agent stopped to wait for the user's answer."
            ]
            await world.pass_time(PATIENCE / 2)
            await world.segue.answer(turn, "yes")
            await world.pass_time(PATIENCE / 2)
        assert await sent_at(world, thread) == []
        cancelled = (await world.segue.list_follow_ups(thread))[-1]
        assert (cancelled.id, cancelled.state) == (planned.id, TimerState.CANCELLED)
        assert await told(world, thread, "the follow-up planned") == [
            "cancelled: The user answered the agent's question."
        ]


async def test_a_question_stays_open_when_the_agent_asks_after_it(stage: Stage) -> None:
    """After a follow-up on the decision, the answer is still an answer."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
            await world.pass_time(PATIENCE)
            assert await sent_at(world, thread) == [START + PATIENCE]
            await world.segue.answer(turn, "yes")
            await world.clock.settle()
        assert await world.heard(thread) == [
            "A table for two, please.",
            "Have you decided about the table?",
            "Booked: yes",
        ]


async def test_whoever_comes_back_after_a_follow_up_still_hears_the_question(stage: Stage) -> None:
    """What is newer than the question hides it from nobody; once it is answered, it is over."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
            await world.pass_time(PATIENCE)
        page = await world.segue.history(thread)
        newest = str(MessageMetadata.of(page.messages[-1]).position)
        async with aclosing(world.segue.listen(thread, newest)) as events:
            asked = (await anext(events)).payload
        assert isinstance(asked, QuestionAsked)
        assert (asked.turn_id, [*asked.questions.values()]) == (turn, [QUESTION])
        await world.segue.answer(turn, "yes")
        await world.clock.settle()
        async with aclosing(world.segue.listen(thread, newest)) as events:
            heard = [(await anext(events)).payload for _ in range(3)]
        # The end of the follow-up, and then the answered turn.
        assert [type(each) for each in heard] == [TurnEnded, MessageStored, TurnEnded]


async def test_a_plain_message_instead_of_an_answer_settles_the_question(stage: Stage) -> None:
    """The user said something else: that is answered, and the question is over."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
            await world.say(thread, "How is the weather?")
        assert await world.heard(thread) == [
            "A table for two, please.",
            "How is the weather?",
            "You said: How is the weather?",
        ]
        [_, asking] = await world.journal.turns.list_of(thread)
        assert (await world.journal.messages.load_batch(thread, asking.batch)).is_complete
        with pytest.raises(ConflictError, match="does not wait"):
            await world.segue.answer(turn, "yes")


async def test_a_question_outlives_the_process_that_asked_it(stage: Stage) -> None:
    """The answer may come days later, to another process."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world, muted=True)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
    await stage.clock.advance(timedelta(days=3))
    async with stage.world(waiter()) as world:
        await world.segue.answer(turn, "yes")
        await world.clock.settle()
        assert (await world.heard(thread))[-1] == "Booked: yes"
        [second, _] = await world.journal.turns.list_of(thread)
        assert second.kind is TurnKind.REPLY


async def test_a_question_whose_checkpoint_is_gone_is_asked_anew(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """After an import, say. The answer cannot be used, and the log says so."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world, muted=True)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
        asked = await world.journal.turns.get(turn)
        await world.system.runtime.sweeper.drop([asked.batch])
        await world.segue.answer(turn, "yes")
        await world.clock.settle()
        [again] = await world.journal.turns.list_of(thread, only_waiting=True)
        assert again.id > turn
    assert "has no checkpoint; it asks its question again" in caplog.text


@pytest.mark.parametrize("said", ["an answer", "something else"])
async def test_a_question_that_is_over_is_not_asked_again(stage: Stage, said: str) -> None:
    """Who comes back later hears of what was said, and of no question that nobody has to answer."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
        async with listening(world, thread) as meanwhile:
            pass
        assert [type(event) for event in meanwhile.events] == [MessageStored, QuestionAsked]
        if said == "an answer":
            await world.segue.answer(turn, "yes")
        else:
            await world.say(thread, "How is the weather?")
        await world.clock.settle()
        async with listening(world, thread) as later:
            pass
        assert {type(event) for event in later.events} == {MessageStored}
        assert len(later.events) == len(await world.heard(thread))


def _is_piece(event: object) -> bool:
    return not isinstance(event, MessageStored | QuestionAsked)

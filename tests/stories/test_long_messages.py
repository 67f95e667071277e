"""Messages that fill the model's window: what comes after them still refers to something."""

import logging
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph

from segue.agent.scripted import ScriptedChatModel
from segue.core.tokens import estimate_tokens
from segue.core.triggers import TRIGGER_PROMPTS
from segue.insight.views import context_json, next_context
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, Stage, World, plain_agent
from segue.telemetry import FIELDS
from segue.testing.providers import request_problems
from tests.stories.scenes import PATIENCE, eager_agent, model_of, new_thread

pytestmark = pytest.mark.anyio

WINDOW = 8_000
# 20 kB, of the 24 kB that a window of 8,000 tokens has besides the answer.
LETTER = "Dear Ada, " + "word " * 4_000 + "yours, Bob."
REPLY = "A fine letter. " * 330 + "Shall I answer it?"


def requests(model: ScriptedChatModel) -> list[list[BaseMessage]]:
    """What the model got, without what the system says."""
    return [[m for m in seen if not isinstance(m, SystemMessage)] for seen in model.seen]


def own_graph(seen: list[list[BaseMessage]]) -> AgentConfig:
    """An agent with a graph of its own that keeps what it was given."""

    def answer(state: MessagesState) -> dict[str, Any]:
        seen.append(list(state["messages"]))
        return {"messages": [AIMessage(REPLY)]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(BEGIN, "answer")
    wishes = eager_agent().autonomy.model_dump()
    return plain_agent(graph=builder, context_tokens=WINDOW, autonomy=wishes)


def has_letter(message: BaseMessage) -> bool:
    text = message.text
    return text.startswith("Dear Ada") and text.endswith("Bob.") and "left out …]" in text


def shortened(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    fields = [getattr(record, FIELDS, {}) for record in caplog.records]
    return [each for each in fields if each.get("kind") == "context_shortened"]


async def tell_the_tale(world: World, thread: str) -> None:
    """A letter, silence until the agent speaks first, and a question about the letter."""
    await world.say(thread, LETTER)
    await world.pass_time(PATIENCE)
    await world.say(thread, "What was in the letter?")


async def test_a_follow_up_and_the_next_turn_know_a_long_message(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Both get the letter in part and the reply to it; history and journal have all of it."""
    caplog.set_level(logging.INFO)
    agent = eager_agent().model_copy(update={"context_tokens": WINDOW})
    model = model_of(then=REPLY)
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await tell_the_tale(world, thread)
        letter, follow_up, question = requests(model)
        [first, *_] = await world.journal.messages.list_live_batches(thread)
        stored = await world.journal.messages.load_batch(thread, first)
        assert (await world.heard(thread))[:2] == [LETTER, REPLY]
    assert [m.text for m in letter] == [LETTER]
    assert [has_letter(m) for m in follow_up] == [True, False, False]
    assert follow_up[1].text.startswith("A fine letter.")
    assert follow_up[2].text in TRIGGER_PROMPTS.values()
    assert has_letter(question[0])
    assert question[-1].text == "What was in the letter?"
    for request in model.seen:
        assert request_problems(request) == []
        assert sum(map(estimate_tokens, request)) <= WINDOW * 3 // 4
    assert stored.messages[0].text == LETTER
    logged = shortened(caplog)
    assert [each["shortened"] for each in logged] == [[str(first)]] * 2
    assert {each["thread_id"] for each in logged} == {thread}


async def test_a_graph_of_ones_own_gets_the_same(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Its messages begin with the letter in part, in the follow-up and in the turn after it."""
    caplog.set_level(logging.INFO)
    seen: list[list[BaseMessage]] = []
    async with stage.world(own_graph(seen)) as world:
        await tell_the_tale(world, await new_thread(world))
    letter, follow_up, question = seen
    assert [m.text for m in letter] == [LETTER]
    assert [has_letter(m) for m in follow_up] == [True, False, False]
    assert has_letter(question[0])
    assert len(shortened(caplog)) == 2


async def test_a_message_that_was_too_long_hides_nothing(stage: Stage) -> None:
    """After a turn that failed for it, the conversation before it is known again."""
    model = model_of(then="Noted.")
    off = {"enabled": False}
    agent = plain_agent(context_tokens=WINDOW, autonomy=off, compression=off)
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "My name is Bob.")
        await world.say(thread, "word " * 20_000)
        await world.say(thread, "What is my name?")
    [_, last] = requests(model)
    assert [m.text for m in last[:2]] == ["My name is Bob.", "Noted."]
    assert "characters left out" in last[2].text
    assert last[-1].text == "What is my name?"


async def test_an_operator_sees_what_is_told_in_part(stage: Stage) -> None:
    """The preview of the next request names the batch and says why."""
    agent = plain_agent(context_tokens=WINDOW, autonomy={"enabled": False})
    async with stage.world(agent, models={"guide": model_of(then=REPLY)}) as world:
        thread = await new_thread(world)
        await world.say(thread, LETTER)
        row = await world.journal.threads.get(thread)
        found = await next_context(world.journal, row, agent, START, "UTC")
        [first] = await world.journal.messages.list_live_batches(thread)
    [told] = context_json(found)["shortened"]
    assert told["batch"] == str(first)
    assert "Texts are cut to" in told["detail"]

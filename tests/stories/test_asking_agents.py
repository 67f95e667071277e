"""Stories of agents that ask each other: nested batches, bounded, and safe for who asked."""

from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from segue.agent.scripted import ScriptedChatModel
from segue.core.batch import Batch, BatchState
from segue.core.metadata import BatchType
from segue.journal.records import MAX_DEPTH, TurnState
from segue.settings.agents import AgentConfig
from segue.simulate.world import Stage, World, plain_agent
from segue.testing.providers import request_problems
from tests.runtime.scenes import Held
from tests.stories.scenes import model_of, new_thread

pytestmark = pytest.mark.anyio


def asking(name: str, text: str = "How far is it?") -> AIMessage:
    args = {"name": name, "text": text}
    call = {"name": "ask_agent", "args": args, "id": f"ask-{name}", "type": "tool_call"}
    return AIMessage("", tool_calls=[call])


def told_back(messages: list[BaseMessage]) -> str:
    """An agent that repeats what it was answered."""
    return f"I heard: {messages[-1].text}"


def agents(*asks: tuple[str, str]) -> list[AgentConfig]:
    """Agents that may ask one another, in pairs of who and whom."""
    names = dict.fromkeys(name for pair in asks for name in pair)
    return [
        plain_agent(
            name,
            may_ask=tuple(whom for who, whom in asks if who == name),
            autonomy={"decider": "none"},
        )
        for name in names
    ]


async def last_batch(world: World, thread: str) -> Batch:
    [turn, *_] = await world.journal.turns.list_of(thread)
    return await world.journal.messages.load_batch(thread, turn.batch)


def results(batch: Batch) -> list[str]:
    return [message.text for message in batch.messages if isinstance(message, ToolMessage)]


async def test_an_agent_gets_anothers_words_as_its_tools_result(stage: Stage) -> None:
    """The other answers in a batch of its own, on its own thread with the same user, that names
    the batch it was asked from.
    """
    models = {
        "guide": model_of(asking("atlas"), told_back),
        "atlas": model_of("Five kilometres."),
    }
    async with stage.world(*agents(("guide", "atlas")), models=models) as world:
        thread = await new_thread(world, agent="guide")
        await world.say(thread, "How far is the fjord?")
        assert await world.heard(thread) == ["How far is the fjord?", "I heard: Five kilometres."]
        outer = await last_batch(world, thread)
        inner = await last_batch(world, f"{thread}/atlas")
        assert results(outer) == ["Five kilometres."]
        assert (inner.type, inner.parent) == (BatchType.AGENT_TO_AGENT, outer.id)
        assert inner.is_complete
        nested = await world.journal.threads.get(f"{thread}/atlas")
        assert (nested.agent_id, nested.user_id) == ("atlas", "ann")


async def test_all_that_an_asked_agent_does_is_in_its_nested_batch(stage: Stage) -> None:
    """Its question to a third and its reply are one batch, inside of the one that asks, which
    waits meanwhile; no message of it is among those of the asker.
    """
    seen: list[BatchState] = []

    async def look(messages: list[BaseMessage]) -> AIMessage:
        del messages
        seen.append((await last_batch(world, thread)).state)
        return asking("compass")

    models = {
        "guide": model_of(asking("atlas"), told_back),
        "atlas": model_of(look, told_back),
        "compass": model_of("North."),
    }
    pairs = (("guide", "atlas"), ("atlas", "compass"))
    async with stage.world(*agents(*pairs), models=models) as world:
        thread = await new_thread(world, agent="guide")
        await world.say(thread, "Which way?")
        places = [thread, f"{thread}/atlas", f"{thread}/atlas/compass"]
        outer, inner, innermost = [await last_batch(world, place) for place in places]
    assert seen == [BatchState.AWAITING_TOOLS]
    assert (inner.type, innermost.type) == (BatchType.AGENT_TO_AGENT,) * 2
    assert (outer.parent, inner.parent, innermost.parent) == (None, outer.id, inner.id)
    assert [m.type for m in inner.messages] == ["human", "ai", "tool", "ai"]
    assert results(inner) == ["North."]
    assert {m.id for m in outer.messages}.isdisjoint(m.id for m in inner.messages)
    assert all(batch.is_complete for batch in (outer, inner, innermost))


async def test_one_slot_is_enough_for_agents_that_wait_for_each_other(stage: Stage) -> None:
    """Who waits for an answer makes room for who gives it."""
    models = {
        "guide": model_of(asking("atlas"), told_back),
        "atlas": model_of(asking("compass"), told_back),
        "compass": model_of("North."),
    }
    pairs = (("guide", "atlas"), ("atlas", "compass"))
    async with stage.world(*agents(*pairs), models=models, slots=1) as world:
        thread = await new_thread(world, agent="guide")
        await world.say(thread, "Which way?")
        assert (await world.heard(thread))[-1] == "I heard: I heard: North."


async def test_one_slot_is_enough_for_three_questions_at_once(stage: Stage) -> None:
    """An answer that comes first does not take away the room that the others need."""
    words = {"atlas": "Five kilometres.", "compass": "North.", "watch": "An hour."}
    calls = [call for name in words for call in asking(name).tool_calls]
    models = {name: model_of(text) for name, text in words.items()}
    models["guide"] = model_of(AIMessage("", tool_calls=calls), "Thanks to all.")
    pairs = [("guide", name) for name in words]
    async with stage.world(*agents(*pairs), models=models, slots=1) as world:
        thread = await new_thread(world, agent="guide")
        await world.say(thread, "Which way, and how far?")
        outer = await last_batch(world, thread)
        assert sorted(results(outer)) == sorted(words.values())
        assert (await world.heard(thread))[-1] == "Thanks to all."


async def test_nobody_asks_in_circles(stage: Stage) -> None:
    """An agent that waits for the answer is not asked for it; who wanted to is told so."""
    models = {
        "guide": model_of(asking("atlas"), told_back),
        "atlas": model_of(asking("guide"), told_back),
    }
    pairs = (("guide", "atlas"), ("atlas", "guide"))
    async with stage.world(*agents(*pairs), models=models) as world:
        thread = await new_thread(world, agent="guide")
        await world.say(thread, "Which way?")
        refused = "guide is already waiting for this answer; agents must not ask in circles."
        assert (await world.heard(thread))[-1] == f"I heard: I heard: {refused}"
        assert sum(len(model.seen) for model in models.values()) == 4


async def test_an_agent_does_not_ask_itself(stage: Stage) -> None:
    """The shortest circle is one, too."""
    models = {"guide": model_of(asking("guide"), told_back)}
    async with stage.world(*agents(("guide", "guide")), models=models) as world:
        thread = await new_thread(world, agent="guide")
        await world.say(thread, "Which way?")
        assert "ask in circles" in (await world.heard(thread))[-1]


async def test_agents_ask_only_so_deep(stage: Stage) -> None:
    """A chain of agents that each ask the next one ends at its bound, with an answer."""
    names = [f"agent-{n}" for n in range(MAX_DEPTH + 3)]
    pairs = list(pairwise(names))
    models = {who: model_of(asking(whom), told_back) for who, whom in pairs}
    async with stage.world(*agents(*pairs), models=models) as world:
        thread = await new_thread(world, agent=names[0])
        await world.say(thread, "Which way?")
        [*_, answer] = await world.heard(thread)
        assert answer.endswith(f"at most {MAX_DEPTH} deep; answer with what you know.")
        asked = [name for name in names if name in models and models[name].seen]
        assert asked == names[: MAX_DEPTH + 1]


async def test_only_the_agents_of_the_config_can_be_asked(stage: Stage) -> None:
    """A name that a model makes up is answered, not obeyed."""
    models: dict[str, Any] = {
        "guide": model_of(asking("stranger"), told_back),
        "atlas": model_of(),
    }
    async with stage.world(*agents(("guide", "atlas")), models=models) as world:
        thread = await new_thread(world, agent="guide")
        await world.say(thread, "Which way?")
        assert (await world.heard(thread))[-1] == (
            "I heard: There is no agent 'stranger' to ask; there are: atlas."
        )


async def test_an_agent_that_fails_leaves_the_asking_one_whole(stage: Stage) -> None:
    """Its failure is the tool's result; the asking agent answers, and both batches are complete."""
    models = {
        "guide": model_of(asking("atlas"), told_back, "Norway."),
        "atlas": ScriptedChatModel(script=[ValueError("out of maps")]),
    }
    async with stage.world(*agents(("guide", "atlas")), models=models) as world:
        thread = await new_thread(world, agent="guide")
        await world.say(thread, "How far is the fjord?")
        [*_, answer] = await world.heard(thread)
        assert answer.startswith("I heard: atlas could not answer:")
        assert "out of maps" not in answer
        outer = await last_batch(world, thread)
        assert outer.is_complete
        [failed] = await world.journal.turns.list_of(f"{thread}/atlas")
        assert failed.state is TurnState.FAILED
        assert (await last_batch(world, f"{thread}/atlas")).is_complete
        await world.say(thread, "In which country?")
        assert request_problems(models["guide"].seen[-1]) == []


async def test_a_question_outlives_the_process_that_asked_it(stage: Stage) -> None:
    """After a restart the asking agent gets the answer to the question that was under way."""
    held = Held("Too late.")
    models = {"guide": model_of(asking("atlas")), "atlas": model_of(held)}
    pair = agents(("guide", "atlas"))
    async with stage.world(*pair, models=models, patience=0) as world:
        thread = await new_thread(world, agent="guide")
        await world.segue.send(thread, "How far is the fjord?")
        await held.asked.wait()
    models = {"guide": model_of(told_back), "atlas": model_of("Five kilometres.")}
    async with stage.world(*pair, models=models) as world:
        await world.clock.settle()
        assert (await world.heard(thread))[-1] == "I heard: Five kilometres."
        [asked] = await world.journal.turns.list_of(f"{thread}/atlas")
        assert (asked.state, asked.attempts) == (TurnState.DONE, 2)


async def test_what_agents_ask_each_other_is_followed_up_by_nobody(stage: Stage) -> None:
    """No user waits in a nested thread, so that nothing is planned there."""
    models = {
        "guide": model_of(asking("atlas"), told_back),
        "atlas": model_of("Which fjord do you mean?"),
    }
    pair = [
        a.model_copy(update={"autonomy": AgentConfig(id="any").autonomy})
        for a in agents(("guide", "atlas"))
    ]
    async with stage.world(*pair, models=models) as world:
        thread = await new_thread(world, agent="guide")
        await world.say(thread, "How far is the fjord?")
        assert await world.segue.list_follow_ups(f"{thread}/atlas") == []
        [reason] = await world.segue.why(f"{thread}/atlas")
        assert reason.why == "Another agent asked, so no user is waiting."
        await world.pass_time(days=30)
        assert len(models["atlas"].seen) == 1

"""Memories of an agent with a graph of its own: found for it, kept by it, open to its user."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langgraph.graph import START, MessagesState, StateGraph

from segue.agent.current import current_run
from segue.agent.middleware import Invisibility
from segue.agent.retrieval import RetrieveMemories
from segue.agent.scripted import ScriptedChatModel
from segue.agent.tools import forget, remember
from segue.errors import UsageError
from segue.events import MemoriesRecalled
from segue.runtime.run import Run
from segue.settings.agents import AgentConfig
from segue.simulate.world import Stage, plain_agent
from tests.server.clients import site_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]

FACT = "Sam plays the piano."
# The virtual clock moves on while a database works.
MEMORY = {"enabled": True, "time_limit": 60}


def telling_graph() -> Any:
    """Replies with what it was given."""

    def tell(state: MessagesState) -> dict[str, Any]:
        del state
        run = current_run()
        assert run is not None
        return {"messages": [AIMessage(f"I know: {'; '.join(run.memories)}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("tell", tell)
    return builder.add_edge(START, "tell")


def own_agent(graph: Any, **config: Any) -> AgentConfig:
    return plain_agent(graph=graph, autonomy={"decider": "none"}, **config)


async def test_found_memories_reach_the_graph(stage: Stage) -> None:
    """Searched with the user's words before it runs, and reported to listeners."""
    async with stage.world(own_agent(telling_graph(), memory=MEMORY)) as world:
        book = world.system.books["guide"]
        await book.remember("guide", "sam", FACT)
        thread = await world.segue.create_thread("sam")
        other = await world.segue.create_thread("ann")
        await world.say(thread.id, "Which piano shall I buy?")
        await world.say(other.id, "Which piano shall I buy?")
        assert (await world.heard(thread.id))[-1] == f"I know: {FACT}"
        assert (await world.heard(other.id))[-1] == "I know: "
        agent, ids = world.system.deps.agent_of("guide"), world.system.deps.ids
        run = Run.of("Which piano shall I buy?", ids, agent_id="guide", user_id="sam")
        [recalled] = [e async for e in agent.run(run) if isinstance(e, MemoriesRecalled)]
        assert recalled.source == "current_message"


async def test_an_agent_made_with_langchain_remembers_like_the_built_in_one(stage: Stage) -> None:
    """The same tools and the same middleware, without a book of one's own."""
    seen: list[list[BaseMessage]] = []

    def answer(messages: list[BaseMessage]) -> AIMessage:
        seen.append(messages)
        calls = {
            1: [{"name": "remember", "args": {"content": FACT, "key": "piano"}, "id": "c1"}],
            4: [{"name": "forget", "args": {"key": "piano"}, "id": "c2"}],
        }
        return AIMessage("Fine.", tool_calls=calls.get(len(seen), []))

    graph = create_agent(
        ScriptedChatModel(script=answer),
        [remember, forget],
        middleware=[RetrieveMemories(), Invisibility()],
    )
    async with stage.world(own_agent(graph, memory=MEMORY)) as world:
        thread = (await world.segue.create_thread("sam")).id
        await world.say(thread, "I play the piano.")
        [kept] = await world.journal.memories.list_of("guide", "sam")
        assert (kept.key, kept.content) == ("piano", FACT)
        await world.say(thread, "Which piano shall I buy?")
        [system, *_] = seen[2]
        assert isinstance(system, SystemMessage)
        assert FACT in system.text
        await world.say(thread, "Forget my piano.")
        assert await world.journal.memories.list_of("guide", "sam") == []


async def test_a_user_can_read_and_change_them(stage: Stage) -> None:
    """Every route of the server works as for the built-in agent."""
    async with (
        stage.world(own_agent(telling_graph(), memory=MEMORY)) as world,
        site_of(world.segue) as site,
    ):
        new = {"content": FACT, "key": "music"}
        assert (await site.post("/api/memories", new))["key"] == "music"
        found = await site.get("/api/memories/search", params={"q": "piano"})
        assert [each["content"] for each in found["items"]] == [FACT]
        changed = await site.http.put("/api/memories/music", json={"content": "Sam sings."})
        assert changed.status_code == 200
        listed = await site.get("/api/memories")
        assert [each["content"] for each in listed["items"]] == ["Sam sings."]
        assert (await site.http.delete("/api/memories/music")).status_code == 204
        assert (await site.get("/api/memories"))["items"] == []


async def test_without_the_setting_it_keeps_none(sqlite_stage: Stage) -> None:
    """The user is not told that a fact is kept which the graph would never get."""
    async with (
        sqlite_stage.world(AgentConfig(id="guide", graph=telling_graph())) as world,
        site_of(world.segue) as site,
    ):
        refused = await site.http.post("/api/memories", json={"content": FACT})
        assert refused.status_code == 404
        assert "keeps no memories" in refused.json()["detail"]


async def test_memories_that_leave_no_room_for_the_talk_are_refused(sqlite_stage: Stage) -> None:
    """As for the built-in agent, before the first message."""
    agent = own_agent(telling_graph(), memory=MEMORY, context_tokens=1_000)
    with pytest.raises(UsageError, match=r"memory\.max_tokens is 500, more than half"):
        async with sqlite_stage.world(agent):
            pass

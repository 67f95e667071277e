"""What operators see of a thread, on both databases: batches and the next context."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph

from segue.core.messages import user_message
from segue.core.stamp import stamp
from segue.simulate.world import Stage, plain_agent
from tests.runtime.scenes import always
from tests.server.clients import site_of

pytestmark = pytest.mark.anyio


async def test_batches_are_listed_after_others_were_removed(stage: Stage) -> None:
    """Turns whose batch is gone stand in nobody's way."""
    models = {"guide": always("Fine.")}
    async with stage.world(models=models) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        for words in ("One.", "Two.", "Three."):
            await world.say(thread, words)
        *old, newest = sorted(turn.batch for turn in await world.journal.turns.list_of(thread))
        await world.journal.removal.remove_batches(thread, old)
        [batch] = await site.get(f"/api/admin/threads/{thread}/batches")
        assert batch["id"] == str(newest)
        assert [m["content"] for m in batch["messages"]] == ["Three.", "Fine."]
        assert len(batch["turns"]) == 1
        missing = await site.http.get("/api/admin/threads/nowhere/batches")
        assert missing.status_code == 404


async def test_batches_of_a_migrated_thread_are_listed(stage: Stage) -> None:
    """No turn worked on them here; they come newest first, up to the limit."""
    async with stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        ids = world.system.deps.ids
        for words in ("One.", "Two.", "Three."):
            messages = stamp([user_message(words), AIMessage("Fine.")], ids)
            await world.journal.messages.import_messages(thread, messages)
        found = await site.get(f"/api/admin/threads/{thread}/batches", params={"limit": 2})
        assert [batch["messages"][0]["content"] for batch in found] == ["Three.", "Two."]
        assert [batch["turns"] for batch in found] == [[], []]


async def test_the_context_of_a_graph_of_ones_own_is_what_it_gets(stage: Stage) -> None:
    """It is given the conversation, and never the system prompt of the settings."""

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"I got {len(state['messages'])}.")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(BEGIN, "answer")
    agents = [plain_agent("guide", graph=builder), plain_agent("clerk")]
    async with (
        stage.world(*agents, models={"clerk": always("Fine.")}) as world,
        site_of(world.segue) as site,
    ):
        kinds = {}
        for agent in ("guide", "clerk"):
            thread = await site.new_thread(agent_id=agent)
            await world.say(thread, "Hello.")
            found = await site.get(f"/api/admin/threads/{thread}/context")
            kinds[agent] = [message["type"] for message in found["messages"]]
    assert kinds == {"guide": ["human", "ai"], "clerk": ["system", "human", "ai"]}

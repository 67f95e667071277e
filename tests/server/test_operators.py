"""What operators see of a thread, on both databases: batches and the next context."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

from segue.agent.scripted import ScriptedChatModel
from segue.core.messages import user_message
from segue.core.stamp import stamp
from segue.simulate.world import Stage, plain_agent, with_graph
from tests.runtime.scenes import always
from tests.server.clients import site_of
from tests.stories.scenes import eager_agent

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
        [batch] = await site.list(f"/api/admin/threads/{thread}/batches")
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
        found = await site.list(f"/api/admin/threads/{thread}/batches", params={"limit": 2})
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


async def test_a_planned_follow_up_says_which_gate_will_hold_it(stage: Stage) -> None:
    """Known ahead, from the user's wishes and the clock; nothing is written by looking."""
    agent = eager_agent("ada")
    async with (
        stage.world(agent, models={"ada": always("Which one shall we take?")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await world.say(thread, "Hello.")
        path = f"/api/admin/threads/{thread}/timers"
        [free] = await site.list(path)
        day = {"start": "00:00", "end": "23:59"}
        await site.http.patch("/api/me", json={"quiet_hours": day, "time_zone": "UTC"})
        decided = await site.list(f"/api/admin/threads/{thread}/decisions")
        [held] = await site.list(path)
        assert free["expected"] is None
        assert (held["expected"]["gate"], held["expected"]["outcome"]) == (
            "quiet_hours",
            "postpone",
        )
        assert "T23:59" in held["expected"]["until"]
        assert await site.list(f"/api/admin/threads/{thread}/decisions") == decided
        await site.http.patch("/api/me", json={"opted_out": True})
        [refused] = await site.list(path)
        assert (refused["expected"]["gate"], refused["expected"]["outcome"]) == (
            "opted_out",
            "suppress",
        )


def _asking() -> StateGraph[MessagesState]:
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda _: {"messages": [AIMessage(f"So: {interrupt('For eight?')}")]})
    builder.add_edge(BEGIN, "ask")
    return builder


async def test_an_operator_settles_a_batch_that_waits(stage: Stage) -> None:
    """Its question is given up and the next message gets a whole context; a settled one, and one
    that is worked on, are refused.
    """
    agent = with_graph(plain_agent("guide"), _asking())
    async with stage.world(agent) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await world.say(thread, "A table.")
        [batch] = await site.list(f"/api/admin/threads/{thread}/batches")
        path = f"/api/admin/threads/{thread}/batches/{batch['id']}/settle"
        assert (await site.http.post(path)).status_code == 204
        [settled] = await site.list(f"/api/admin/threads/{thread}/batches")
        assert (batch["state"], settled["state"]) != ("complete", batch["state"])
        again = await site.http.post(path)
        assert (again.status_code, "is complete" in again.json()["detail"]) == (409, True)
        turn = batch["turns"][0]["id"]
        answer = {"turn_id": turn, "answer": "Yes."}
        late = await site.http.post(f"/api/threads/{thread}/answer", json=answer)
        assert late.status_code == 409


async def test_the_queue_of_the_server_is_listed(sqlite_stage: Stage) -> None:
    """The turn that waits, with its worker and the end of its lease; an empty queue after it."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slowly(_: Sequence[BaseMessage]) -> str:
        begun.set()
        await gate.wait()
        return "Done."

    models = {"guide": ScriptedChatModel(script=slowly)}
    async with sqlite_stage.world(models=models) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        sent = await world.segue.send(thread, "Hello.")
        await begun.wait()
        [live] = await site.list("/api/admin/turns")
        assert (live["thread_id"], live["state"]) == (thread, "running")
        assert live["owner"]
        assert datetime.fromisoformat(live["wake_at"]) > world.clock.now()
        gate.set()
        await world.segue.wait_turn(sent.turn)
        assert await site.list("/api/admin/turns") == []


async def test_the_context_has_tokens_and_what_a_follow_up_would_remember(stage: Stage) -> None:
    """Each message with its estimate; the memories that the user's last words find."""
    models, guide = {"guide": always("Fine.")}, plain_agent(memory={})
    async with stage.world(guide, models=models) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await world.say(thread, "I play the guitar.")
        found = await site.get(f"/api/admin/threads/{thread}/context")
        assert all(line["tokens"] > 0 for line in found["lines"])
        assert sum(line["tokens"] for line in found["lines"]) <= found["tokens"] + 50
        assert found["memory_query"] == {"text": "I play the guitar.", "source": "current_message"}
        owner = (await world.segue.get_thread(thread)).user_id
        await world.segue.remember(owner, "Ann plays the guitar.", "guide")
        [recalled] = await site.list(f"/api/admin/threads/{thread}/memories")
        assert recalled["content"] == "Ann plays the guitar."

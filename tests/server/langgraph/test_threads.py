"""Threads and assistants with the real client: created, found, changed, read, deleted."""

import asyncio
import json
from collections.abc import Coroutine
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

from segue import SnowflakeGenerator, stamp
from segue.agent.scripted import ScriptedChatModel
from segue.server.langgraph.messages import Window
from segue.simulate.world import Stage, plain_agent
from tests.runtime.scenes import lines
from tests.server.clients import PATIENCE
from tests.server.langgraph.scenes import ASSISTANT, said, texts, wired

pytestmark = pytest.mark.anyio
OWN_ID = "5d3f2b6e-1c1a-4b6f-9a53-0e8a5a7c1d11"


async def test_of_requests_for_one_id_at_once_one_creates_the_thread(stage: Stage) -> None:
    """The others hear that it exists, as they would a moment later."""
    async with wired(stage) as (_, _, client):
        made = await asyncio.gather(
            *(client.threads.create(thread_id=OWN_ID) for _ in range(8)), return_exceptions=True
        )
        refused = [each for each in made if isinstance(each, ConflictError)]
        assert len(refused) == 7
        [thread] = [each for each in made if isinstance(each, dict)]
        assert thread["thread_id"] == OWN_ID


async def test_a_thread_keeps_the_notes_of_its_client(stage: Stage) -> None:
    """With an id of the client's choice; changed, searched by, counted, and gone with it."""
    async with wired(stage, models={"guide": lines(then="Hi.")}) as (world, site, client):
        notes = {"customer": "c-7", "tags": ["a", 1]}
        made = await client.threads.create(thread_id=OWN_ID, metadata=notes)
        assert (made["thread_id"], made["status"], made["values"]) == (OWN_ID, "idle", None)
        agent = {"graph_id": ASSISTANT, "assistant_id": ASSISTANT}
        assert made["metadata"] == notes | agent
        with pytest.raises(ConflictError):
            await client.threads.create(thread_id=OWN_ID)
        again = await client.threads.create(thread_id=OWN_ID, if_exists="do_nothing")
        assert again["metadata"] == made["metadata"]
        changed = await client.threads.update(OWN_ID, metadata={"customer": "c-8", "vip": True})
        assert changed is not None
        assert changed["metadata"] == {"customer": "c-8", "tags": ["a", 1], "vip": True} | agent
        await client.threads.update(OWN_ID, metadata={"vip": False}, return_minimal=True)
        kept: Any = await client.threads.get(OWN_ID)
        assert kept["metadata"]["vip"] is False
        await client.threads.create()
        found = await client.threads.search(metadata={"customer": "c-8"})
        assert [each["thread_id"] for each in found] == [OWN_ID]
        assert await client.threads.count() == 2
        assert await client.threads.count(metadata={"customer": "c-7"}) == 0
        assert (await site.get(f"/api/threads/{OWN_ID}"))["preferences"] == {}
        await client.threads.delete(OWN_ID)
        with pytest.raises(NotFoundError):
            await client.threads.get(OWN_ID)
        assert [thread.id for thread in await world.segue.list_threads("me")] != [OWN_ID]


async def test_a_copy_goes_its_own_way(stage: Stage) -> None:
    """With all that was said, and with none of what waits: that is the original's alone."""
    heard: list[list[str]] = []

    def answer(messages: list[BaseMessage]) -> AIMessage:
        heard.append([message.text for message in messages[1:]])
        return AIMessage(f"Which key for {messages[-1].text!r}?")

    models = {"guide": ScriptedChatModel(script=answer)}
    async with wired(stage, models=models) as (world, _, client):
        thread = (await client.threads.create(metadata={"song": "blues"}))["thread_id"]
        await client.runs.wait(thread, ASSISTANT, input=said("A song"))
        await world.segue.remind(thread, "tune the guitar", after=timedelta(minutes=5))
        other = (await client.threads.create())["thread_id"]
        await client.runs.wait(other, ASSISTANT, input=said("Newer"))
        cursor = await world.segue.user_cursor("me")
        made: Any = await client.threads.copy(thread)  # type: ignore[func-returns-value] # it does
        copy = made["thread_id"]
        assert made["metadata"]["song"] == "blues"
        news = world.segue.listen_user("me", cursor)
        async with aclosing(news), asyncio.timeout(PATIENCE):
            assert (await anext(news)).thread_id == copy
        await client.runs.wait(copy, ASSISTANT, input=said("Slower"))
        assert heard[-1] == ["A song", "Which key for 'A song'?", "Slower"]
        before: Any = await client.threads.get_state(thread)
        assert texts(before["values"]) == ["A song", "Which key for 'A song'?"]
        await world.pass_time(minutes=6)
        after: Any = await client.threads.get_state(thread)
        assert len(texts(after["values"])) == 3  # the reminder
        there: Any = await client.threads.get_state(copy)
        assert len(texts(there["values"])) == 4
        assert await world.segue.list_reminders(thread=copy) == []
        with pytest.raises(NotFoundError):
            await client.threads.copy(OWN_ID)


async def test_a_copy_knows_what_was_answered(stage: Stage) -> None:
    """A message that a client sends again there has the same reply, and history shows its state;
    the follow-up of the original counts once.
    """
    models = {"guide": lines("In G.", then="Still there?")}
    async with wired(stage, models=models) as (world, site, client):
        thread = (await client.threads.create())["thread_id"]
        turn = (await world.segue.send(thread, "Which key?", client_message_id="one")).turn
        assert await world.segue.wait_reply(turn) == "In G."
        await world.segue.follow_up(thread)
        await world.pass_time(minutes=1)
        made: Any = await client.threads.copy(thread)  # type: ignore[func-returns-value] # it does
        again = await world.segue.send(made["thread_id"], "Which key?", client_message_id="one")
        assert not again.is_new
        assert await world.segue.wait_reply(again.turn) == "In G."
        page = await site.get(f"/api/threads/{made['thread_id']}/history")
        assert [each["state"] for each in page["items"]] == ["answered", None, None]
        assert [row.total for row in (await world.segue.stats()).outcomes] == [1]


async def test_threads_are_searched_by_page_id_and_agent(sqlite_stage: Stage) -> None:
    """The one written to last first, with its state; only the fields that are asked for."""
    async with wired(
        sqlite_stage, plain_agent(), plain_agent("clerk"), models={"guide": lines(then="Hi.")}
    ) as (world, _, client):
        ids = []
        for agent in ("guide", "guide", "clerk"):
            made = await client.threads.create(graph_id=agent)
            ids.append(made["thread_id"])
            await world.pass_time(seconds=1)
        await client.runs.wait(ids[0], ASSISTANT, input=said("Hello"))
        found: Any = await client.threads.search(
            metadata={"graph_id": "guide"}, sort_by="updated_at"
        )
        assert [each["thread_id"] for each in found] == [ids[0], ids[1]]
        assert texts(found[0]["values"]) == ["Hello", "Hi."]
        assert found[0]["metadata"]["title"] == "Hello"
        assert [t["thread_id"] for t in await client.threads.search(ids=[ids[2]])] == [ids[2]]
        page: Any = await client.threads.search(limit=1, offset=1, select=["thread_id"])
        assert page == [{"thread_id": ids[2]}]
        with pytest.raises(UnprocessableEntityError, match="sort_by"):
            await client.threads.search(sort_by="created_at")


async def test_a_search_sends_few_large_states(sqlite_stage: Stage) -> None:
    """About 1 MB of them in all; a thread that does not fit comes without its state."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (world, site, client):
        for size in (10, 600_000, 600_000, 1_200_000):
            await world.say((await client.threads.create())["thread_id"], "x" * size)
            await world.pass_time(seconds=1)
        found: Any = await client.threads.search()
        shown = [each["values"] and len(texts(each["values"])[0]) for each in found]
        assert shown == [None, 600_000, None, 10]
        chosen = await site.post("/threads/search", {"select": ["thread_id", "values"]})
        assert [each["values"] is None for each in chosen] == [True, False, True, False]
        with pytest.raises(UnprocessableEntityError, match="at most 100"):
            await client.threads.search(limit=101)


async def test_a_search_reads_only_what_is_selected(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of threads need neither their messages nor their turns."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (world, site, client):
        thread = (await client.threads.create())["thread_id"]
        await world.say(thread, "Hello")
        for name in ("history", "list_turns"):
            monkeypatch.setattr(world.segue, name, None)
        found = await site.post("/threads/search", {"select": ["thread_id", "metadata"]})
        assert [each["thread_id"] for each in found] == [thread]


async def test_few_states_are_sent_to_a_user_at_once(sqlite_stage: Stage) -> None:
    """By every route that sends one, since each may have many megabytes."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (_, site, client):
        await client.threads.create(thread_id=OWN_ID)
        await client.runs.wait(OWN_ID, ASSISTANT, input=said("Hello"))
        [run] = await client.runs.list(OWN_ID)
        assert site.app is not None
        site.app.state.slots["pages", "me"] = slot = asyncio.Semaphore(0)
        command = {"id": 1, "method": "state.get", "params": {}}
        async with site.socket(f"/threads/{OWN_ID}/stream/events") as socket:
            await socket.send(json.dumps(command))
            asked: list[Coroutine[Any, Any, Any]] = [
                socket.recv(),
                site.get(f"/threads/{OWN_ID}"),
                site.post("/threads", {"thread_id": OWN_ID, "if_exists": "do_nothing"}),
                site.post(f"/threads/{OWN_ID}/commands", command),
                site.get(f"/threads/{OWN_ID}/runs/{run['run_id']}/join"),
                client.threads.update(OWN_ID, metadata={"a": 1}),
            ]
            tasks = [asyncio.create_task(each) for each in asked]
            done, _ = await asyncio.wait(tasks, timeout=0.5)
            assert not done
            slot.release()
            async with asyncio.timeout(PATIENCE):
                for answer in await asyncio.gather(*tasks):
                    assert "Hello" in str(answer)


async def test_the_state_is_a_window_of_whole_batches(sqlite_stage: Stage) -> None:
    """It moves in steps, and a long conversation is never sent whole."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (world, _, client):
        thread = (await client.threads.create())["thread_id"]
        firsts = set()
        for number in range(70):
            await world.say(thread, str(number))
            state: Any = await client.threads.get_state(thread)
            shown = texts(state["values"])
            assert shown[-2:] == [str(number), "Hi."]
            assert len(shown) <= 100
            firsts.add(shown[0])
        assert firsts == {"0", "25"}
        [entry] = await client.threads.get_history(thread)
        assert entry["values"] == state["values"]
        assert entry["checkpoint"] == state["checkpoint"]
        assert await client.threads.get_history(thread, before=entry["checkpoint"]) == []
        newest = await client.threads.get_state(thread, checkpoint=state["checkpoint"])
        assert newest["values"] == state["values"]
        with pytest.raises(NotFoundError, match="no earlier checkpoints"):
            await client.threads.get_state(thread, checkpoint_id="earlier")


def test_a_window_begins_with_a_whole_batch() -> None:
    """Also where its size alone would cut through one."""
    ids, window = SnowflakeGenerator(node=1), Window()
    for number in range(60):
        said_now = [HumanMessage(str(number)), AIMessage("Let me see."), AIMessage("Yes.")]
        for message in stamp(said_now, ids):
            window.add(message)
        assert window.values()["messages"][0]["type"] == "human"
    assert len(window.values()["messages"]) < 100


async def test_a_page_that_only_opens_a_thread_can_ask_to_listen(sqlite_stage: Stage) -> None:
    """`next` is null with the header `Segue-Live`; clients then subscribe although nothing runs."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (_, site, client):
        thread = (await client.threads.create())["thread_id"]
        path = f"/threads/{thread}/state"
        assert (await site.get(path))["next"] == []
        assert (await site.get(path, headers={"Segue-Live": "1"}))["next"] is None


async def test_assistants_are_the_agents_of_the_settings(sqlite_stage: Stage) -> None:
    """Searched, counted, and described with one node."""
    async with wired(sqlite_stage, plain_agent(), plain_agent("clerk")) as (_, site, client):
        found = await client.assistants.search(metadata={"created_by": "system"})
        assert [each["assistant_id"] for each in found] == ["guide", "clerk"]
        assert await client.assistants.count(graph_id="clerk") == 1
        page: Any = await client.assistants.search(limit=1, offset=1, select=["graph_id"])
        assert page == [{"graph_id": "clerk"}]
        assert (await client.assistants.get("clerk"))["graph_id"] == "clerk"
        graph = await client.assistants.get_graph("clerk")
        assert [node["id"] for node in graph["nodes"]] == ["__start__", "agent", "__end__"]
        schemas: Any = await client.assistants.get_schemas("clerk")
        assert [*schemas["input_schema"]["properties"]] == ["messages"]
        assert await client.assistants.get_subgraphs("clerk") == {}
        with pytest.raises(NotFoundError):
            await client.assistants.get("nobody")
        assert await site.get("/ok") == {"ok": True}
        assert (await site.get("/info"))["flags"]["crons"] is True

"""The store and crons with the real client: memories and reminders under other names."""

from datetime import UTC, datetime
from typing import Any

import pytest
from langgraph_sdk.errors import NotFoundError, UnprocessableEntityError

from segue.simulate.world import Stage, plain_agent
from tests.runtime.scenes import lines
from tests.server.langgraph.scenes import ASSISTANT, said, wired

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]
SPACE = ["memories", ASSISTANT]


async def test_items_are_the_memories_of_the_user(stage: Stage) -> None:
    """Put, read, searched, listed and deleted; what is not a memory is refused."""
    async with wired(stage, plain_agent(memory={})) as (world, _, client):
        store = client.store
        await store.put_item(SPACE, "sport", {"content": "Sam plays tennis."})
        await store.put_item(["memories"], "food", {"content": "Sam likes pizza."})
        kept = await world.segue.list_memories("me")
        assert {memory.key: memory.content for memory in kept} == {
            "sport": "Sam plays tennis.",
            "food": "Sam likes pizza.",
        }
        item = await store.get_item(SPACE, "sport")
        assert (item["namespace"], item["value"]) == (SPACE, {"content": "Sam plays tennis."})
        listed: Any = await store.search_items(["memories"])
        assert [each["key"] for each in listed["items"]] == ["food", "sport"]
        found: Any = await store.search_items(SPACE, query="tennis")
        assert found["items"][0]["key"] == "sport"
        assert found["items"][0]["score"] > 0
        assert await store.list_namespaces() == {"namespaces": [SPACE]}
        await store.delete_item(SPACE, "sport")
        with pytest.raises(NotFoundError):
            await store.get_item(SPACE, "sport")
        with pytest.raises(NotFoundError, match="namespace"):
            await store.put_item(["files"], "a", {"content": "b"})
        for value in ({"text": "b"}, {"content": "b", "more": 1}, {"content": 7}):
            with pytest.raises(UnprocessableEntityError, match="one fact in words"):
                await store.put_item(SPACE, "a", value)
        with pytest.raises(UnprocessableEntityError, match="ttl"):
            await store.put_item(SPACE, "a", {"content": "b"}, ttl=5)


async def test_crons_are_recurring_reminders(stage: Stage) -> None:
    """Set on a thread or on one of their own, listed, fired as runs, and deleted."""
    model = lines("Hi.", then="Reminder: water the plants.")
    async with wired(stage, models={"guide": model}) as (world, _, client):
        crons, thread = client.crons, (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, ASSISTANT, input=said("Hello"))
        end = datetime(2028, 1, 1, tzinfo=UTC)
        made: Any = await crons.create_for_thread(
            thread, ASSISTANT, schedule="0 9 * * *", input=said("Water the plants."), end_time=end
        )
        own: Any = await crons.create(ASSISTANT, schedule="0 10 * * *", input=said("Stretch."))
        assert (made["thread_id"], made["timezone"]) == (thread, "UTC")
        assert made["next_run_date"].startswith("2027-01-15T09:00:00")
        assert own["thread_id"] != thread
        listed = await crons.search()
        assert [each["cron_id"] for each in listed] == [made["cron_id"], own["cron_id"]]
        assert await crons.count(thread_id=thread) == 1
        await world.pass_time(hours=2)
        [run, _first] = await client.runs.list(thread)
        assert dict(run["metadata"] or {})["origin"] == "reminder"
        await crons.delete(made["cron_id"])
        assert await crons.count(thread_id=thread) == 0
        with pytest.raises(NotFoundError):
            await crons.delete(made["cron_id"])
        with pytest.raises(UnprocessableEntityError, match="own clock"):
            await crons.create(
                ASSISTANT, schedule="0 9 * * *", input=said("x"), timezone="Asia/Tokyo"
            )
        with pytest.raises(UnprocessableEntityError):
            await crons.create(ASSISTANT, schedule="whenever", input=said("x"))
        assert len(await client.threads.search()) == 2

"""Streams of a thread: all runs, also those that the agent began, live and after a lost line."""

import asyncio
from typing import Any, cast

import pytest
from langgraph_sdk.errors import UnprocessableEntityError

from segue.facade import Segue
from segue.journal.records import Thread
from segue.server.langgraph.messages import SharedWindow
from segue.simulate.world import Stage, plain_agent
from tests.runtime.scenes import Held, lines
from tests.server.langgraph.scenes import (
    ASSISTANT,
    heard_by,
    said,
    texts,
    wired,
    words_of,
)
from tests.stories.scenes import PATIENCE, eager_agent

pytestmark = pytest.mark.anyio


async def test_a_follow_up_appears_live_on_the_thread_stream(stage: Stage) -> None:
    """As a run of its own, from its begin to its end, with its origin."""
    model = lines("Oslo?", "Shall I book it?")
    async with wired(stage, eager_agent(), models={"guide": model}) as (world, site, client):
        thread = (await client.threads.create())["thread_id"]
        async with heard_by(site, await client.threads.join_stream(thread)) as stream:
            await client.runs.wait(thread, ASSISTANT, input=said("Where?"))
            await stream.until("metadata", status="run_done")
            await world.pass_time(PATIENCE)
            heard = await stream.until("metadata", status="run_done")
        assert heard[0].event == "metadata"
        assert heard[0].data["origin"] == "follow_up"
        words = "".join(part.data[0]["content"] for part in heard if part.event == "messages")
        assert words == "Shall I book it?"
        state: Any = [part.data for part in heard if part.event == "values"][-1]
        assert texts(state) == ["Where?", "Oslo?", "Shall I book it?"]
        told = state["messages"][-1]["additional_kwargs"]["metadata"]
        assert told == {"origin": "follow_up"}
        runs = await client.runs.list(thread)
        assert [dict(run["metadata"] or {})["origin"] for run in runs] == ["follow_up", "reply"]
        assert runs[0]["run_id"] == heard[0].data["run_id"]


async def test_streams_that_wait_for_the_state_get_it_together(sqlite_stage: Stage) -> None:
    """A thousand of them read it once, and one that leaves takes it from nobody."""
    async with wired(sqlite_stage, models={"guide": lines("Oslo.")}) as (world, _, client):
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, ASSISTANT, input=said("Where?"))
        shared, loads = SharedWindow(), 0

        class Counted:
            async def get_thread(self, thread_id: str) -> Thread:
                nonlocal loads
                loads += 1
                return await world.segue.get_thread(thread_id)

            history = world.segue.history

        segue = cast("Segue", Counted())
        first, *others = [asyncio.create_task(shared.read(segue, thread)) for _ in range(1_000)]
        await asyncio.sleep(0)
        first.cancel()
        [window] = {*await asyncio.gather(*others)}
        assert texts(window.values()) == ["Where?", "Oslo."]
        assert loads == 1
        assert await shared.read(segue, thread) is window


async def test_a_follow_up_is_no_run_before_it_is_shown(sqlite_stage: Stage) -> None:
    """The user may still write, and would never have known of it."""
    held = Held("Shall I book it?")
    model = lines("Oslo?", held)
    async with wired(sqlite_stage, eager_agent(), models={"guide": model}) as (world, _, client):
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, ASSISTANT, input=said("Where?"))
        passing = asyncio.create_task(world.pass_time(PATIENCE))
        await held.asked.wait()
        assert len(await client.runs.list(thread)) == 1
        assert (await client.threads.get(thread))["status"] == "idle"
        held.go.set()
        await passing
        assert len(await client.runs.list(thread)) == 2


@pytest.mark.parametrize("beginning", ["0", "-1"])
async def test_a_replay_names_each_run_before_its_messages(
    sqlite_stage: Stage, beginning: str
) -> None:
    """With its origin, as a live stream does; each run once."""
    model = lines("Oslo?", "Shall I book it?")
    async with wired(sqlite_stage, eager_agent(), models={"guide": model}) as (world, site, client):
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, ASSISTANT, input=said("Where?"))
        await world.pass_time(PATIENCE)
        runs = {run["run_id"]: run for run in await client.runs.list(thread)}
        replay = await client.threads.join_stream(thread, last_event_id=beginning)
        async with heard_by(site, replay) as stream:
            for origin, words in (("reply", "Oslo?"), ("follow_up", "Shall I book it?")):
                heard = await stream.until("metadata", status="run_done")
                begin, *rest = [part.data for part in heard if part.event == "metadata"]
                assert heard[0].data == begin
                assert begin["origin"] == origin
                assert [each["run_id"] for each in rest] == [begin["run_id"]]
                assert dict(runs.pop(begin["run_id"])["metadata"] or {})["origin"] == origin
                assert words_of(heard) == words


async def test_a_stream_names_the_agent_that_the_first_run_chose(sqlite_stage: Stage) -> None:
    """Although it was joined before, when the thread was with the first agent of the settings."""
    agents = (plain_agent("guide"), plain_agent("tutor"))
    models = {each.id: lines("Oslo.") for each in agents}
    async with wired(sqlite_stage, *agents, models=models) as (_, site, client):
        thread = (await client.threads.create())["thread_id"]
        async with heard_by(site, await client.threads.join_stream(thread)) as stream:
            await client.runs.wait(thread, "tutor", input=said("Where?"))
            heard = await stream.until("metadata", status="run_done")
        named = {part.data[1]["assistant_id"] for part in heard if part.event == "messages"}
        assert named == {"tutor"}


async def test_a_thread_stream_is_resumed_where_it_was_lost(sqlite_stage: Stage) -> None:
    """What happened meanwhile comes once, in order, with the state at its end."""
    model = lines("One.", "Two.", "Three.")
    async with wired(sqlite_stage, models={"guide": model}) as (_, site, client):
        thread = (await client.threads.create())["thread_id"]
        async with heard_by(site, await client.threads.join_stream(thread)) as stream:
            await client.runs.wait(thread, ASSISTANT, input=said("1"))
            heard = await stream.until("metadata", status="run_done")
        last = [part.id for part in heard if part.id][-1]
        for text in ("2", "3"):
            await client.runs.wait(thread, ASSISTANT, input=said(text))
        resumed = await client.threads.join_stream(thread, last_event_id=last)
        async with heard_by(site, resumed) as stream:
            missed = await stream.until("metadata", status="run_done")
            missed += await stream.until("metadata", status="run_done")
        assert words_of(heard) == "One."
        assert words_of(missed) == "Two.Three."
        states: list[Any] = [part.data for part in missed if part.event == "values"]
        assert [texts(state)[-1] for state in states] == ["Three."]
        modes: list[Any] = ["lifecycle"]
        only = await client.threads.join_stream(thread, last_event_id="-1", stream_mode=modes)
        async with heard_by(site, only) as stream:
            for _ in range(3):
                told = await stream.until("metadata", status="run_done")
                assert {part.event for part in told} == {"metadata"}
        with pytest.raises(UnprocessableEntityError, match="stream_mode"):
            async for _part in await client.threads.join_stream(thread, stream_mode=["x"]):  # type: ignore[list-item] # on purpose
                pass

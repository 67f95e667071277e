"""Streams of a thread: all runs, also those that nobody asked for, live and after a lost line."""

from typing import Any

import pytest
from langgraph_sdk.errors import UnprocessableEntityError

from segue.simulate.world import Stage
from tests.runtime.scenes import lines
from tests.server.langgraph.scenes import ASSISTANT, heard_by, said, texts, wired, words_of
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

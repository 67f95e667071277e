"""The event protocol with the real client: commands, subscriptions over SSE and WebSocket."""

import asyncio
import json
from typing import Any, Literal

import pytest

from segue.simulate.world import Stage
from tests.runtime.scenes import lines
from tests.server.clients import PATIENCE, Site
from tests.server.langgraph.scenes import ASSISTANT, QUESTION, said, texts, waiter, wired
from tests.stories.scenes import PATIENCE as SILENCE
from tests.stories.scenes import eager_agent

pytestmark = pytest.mark.anyio
Transport = Literal["sse", "websocket"]


@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_a_run_is_heard_by_its_messages_and_its_output(
    stage: Stage, transport: Transport
) -> None:
    """On a thread that the run itself creates."""
    async with (
        wired(stage, models={"guide": lines("Oslo, I think.")}) as (_, _site, client),
        client.threads.stream(assistant_id=ASSISTANT, transport=transport) as thread,
    ):
        await thread.run.start(input=said("Where?", "m1"))
        heard = [message async for message in thread.messages]
        assert [await message.text for message in heard] == ["Oslo, I think."]
        assert texts(await thread.output) == ["Where?", "Oslo, I think."]


async def test_a_run_that_is_over_is_told_from_its_begin_to_its_end(sqlite_stage: Stage) -> None:
    """To who subscribes late: its begin, its message, its state and its end, in this order."""
    async with wired(sqlite_stage, models={"guide": lines("Oslo.")}) as (world, site, client):
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, ASSISTANT, input=said("Where?", "m1"))
        await world.pass_time(seconds=5)
        heard = await told(site, thread, "completed")
        assert [(e["method"], e["params"]["data"].get("event")) for e in heard] == [
            ("lifecycle", "running"),
            ("messages", "message-start"),
            ("messages", "content-block-start"),
            ("messages", "content-block-delta"),
            ("messages", "content-block-finish"),
            ("messages", "message-finish"),
            ("values", None),
            ("lifecycle", "completed"),
        ]
        assert texts(heard[-2]["params"]["data"]) == ["Where?", "Oslo."]
        numbers = [event["seq"] for event in heard]
        assert numbers == sorted(numbers)
        assert max(numbers) < 2**53
        again = await told(site, thread, "completed")
        assert [event["event_id"] for event in again] == [event["event_id"] for event in heard]


async def told(site: Site, thread: str, last: str) -> list[Any]:
    """The events of a new subscription, up to one of the lifecycle."""
    body = {"channels": ["values", "messages", "lifecycle"]}
    path, heard = f"/threads/{thread}/stream/events", list[Any]()
    async with asyncio.timeout(PATIENCE), site.http.stream("POST", path, json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                heard.append(json.loads(line[6:]))
                if heard[-1]["params"]["data"].get("event") == last:
                    return heard
    raise AssertionError(heard)


@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_a_question_is_answered_by_a_command(
    sqlite_stage: Stage, transport: Transport
) -> None:
    """The client sees the interrupt, responds to it, and gets the output."""
    async with (
        wired(sqlite_stage, waiter()) as (_, _site, client),
        client.threads.stream(assistant_id=ASSISTANT, transport=transport) as thread,
    ):
        await thread.run.start(input=said("A table, please."))
        async with asyncio.timeout(PATIENCE):
            while not thread.interrupts:  # noqa: ASYNC110 - the client has no event for it
                await asyncio.sleep(0.01)
        assert thread.interrupts[0]["value"] == QUESTION
        await thread.run.respond("yes")
        assert texts(await thread.output) == ["A table, please.", "Booked: yes"]


async def test_a_follow_up_is_told_to_subscribers(sqlite_stage: Stage) -> None:
    """With numbers above those of the run before, which is how clients wake up."""
    model = lines("Oslo?", "Shall I book it?")
    async with wired(sqlite_stage, eager_agent(), models={"guide": model}) as (world, site, client):
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, ASSISTANT, input=said("Where?"))
        before = await told(site, thread, "completed")
        await world.pass_time(SILENCE)
        after = await told(site, thread, "completed")
        assert after[0]["params"]["data"]["origin"] == "follow_up"
        assert texts(after[-2]["params"]["data"]) == ["Where?", "Oslo?", "Shall I book it?"]
        assert after[1]["seq"] > before[-1]["seq"]

"""What cannot be honoured is refused with a sentence, and nothing is stored."""

from typing import Any

import pytest
from langgraph_sdk.errors import UnprocessableEntityError

from segue.server.langgraph.refusals import REFUSED
from segue.simulate.world import Stage
from tests.runtime.scenes import lines
from tests.server.langgraph.scenes import ASSISTANT, said, wired

pytestmark = pytest.mark.anyio

OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"checkpoint_id": "1"}, "no checkpoints to fork from"),
    ({"checkpoint": {"checkpoint_id": "1"}}, "no checkpoints to fork from"),
    ({"config": {"configurable": {"checkpoint_id": "1"}}}, "no checkpoints to fork from"),
    ({"config": {"configurable": {"model": "gpt"}}}, "configured by its owner"),
    ({"config": {"callbacks": ["x"]}}, "configured by its owner"),
    ({"interrupt_before": ["agent"]}, "asks a question"),
    ({"interrupt_after": "*"}, "asks a question"),
    ({"webhook": "https://example.com"}, "in the settings of an agent"),
    ({"after_seconds": 5}, "starts at once"),
    ({"context": {"user": "x"}}, "set by its owner"),
    ({"metadata": {"a": 1}}, "threads do"),
    ({"command": {"goto": "x"}}, "its owner's"),
    ({"command": {"update": {"a": 1}}}, "its owner's"),
    ({"command": {"resume": "yes"}}, "not both"),
    ({"multitask_strategy": "rollback"}, "never taken back"),
    ({"stream_mode": ["debug"]}, "use one of"),
    ({"stream_mode": "tasks"}, "use one of"),
    ({"input": {"messages": []}}, "human message"),
    ({"input": None}, "expected an object"),
    ({"input": {"messages": [{"role": "ai", "content": "x"}]}}, "human message"),
    ({"input": {"messages": "x", "files": {"a": 1}}}, "messages only"),
    ({"input": {"messages": ["a", "b"]}}, "each needs an id"),
    ({"unheard_of": 1}, "unheard_of"),
]


@pytest.mark.parametrize("path", ["runs", "runs/stream", "runs/wait"])
async def test_an_option_that_cannot_be_honoured_is_named(sqlite_stage: Stage, path: str) -> None:
    """On every route that starts a run; the thread stays as it was."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (world, site, client):
        thread = (await client.threads.create())["thread_id"]
        for options, sentence in OPTIONS:
            body = {"assistant_id": ASSISTANT, "input": said("Hello"), **options}
            for place in (f"/threads/{thread}/{path}", f"/{path}"):
                answer = await site.http.post(place, json=body)
                assert answer.status_code == 422, (place, options, answer.text)
                if place.startswith("/threads"):
                    assert sentence in answer.json()["detail"], options
        assert await world.heard(thread) == []
        assert await client.threads.count() == 1


async def test_routes_that_cannot_be_honoured_say_why(sqlite_stage: Stage) -> None:
    """Each of them, with the reason of the table."""
    async with wired(sqlite_stage) as (_, site, client):
        thread = (await client.threads.create())["thread_id"]
        for method, path, reason in REFUSED:
            names = {"thread_id": thread, "run_id": "1", "assistant_id": "guide", "cron_id": "1"}
            answer = await site.http.request(method, path.format(**names), json={})
            assert answer.status_code == 422, path
            assert answer.json()["detail"] == reason
        with pytest.raises(UnprocessableEntityError, match="cannot write the state"):
            await client.threads.update_state(thread, {"messages": []})
        with pytest.raises(UnprocessableEntityError, match="not copied"):
            await client.threads.copy(thread)
        with pytest.raises(UnprocessableEntityError, match="supersteps"):
            await client.threads.create(supersteps=[{"updates": [{"values": {}, "as_node": "x"}]}])
        with pytest.raises(UnprocessableEntityError, match="ttl"):
            await client.threads.create(ttl=5)
        with pytest.raises(UnprocessableEntityError, match="UUID"):
            await client.threads.create(thread_id="mine")
        with pytest.raises(UnprocessableEntityError, match="/api/search"):
            await client.threads.search(values={"a": 1})


async def test_commands_that_cannot_be_honoured_say_why(sqlite_stage: Stage) -> None:
    """In the protocol's own form, so that the client raises."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (_, site, client):
        thread = (await client.threads.create())["thread_id"]
        tried = {
            "state.fork": "not_supported",
            "state.listCheckpoints": "not_supported",
            "input.inject": "not_supported",
            "input.respond": "invalid_argument",
            "run.dance": "unknown_command",
            "run.start": "invalid_argument",
        }
        for method, code in tried.items():
            command = {"id": 7, "method": method, "params": {}}
            answer = await site.post(f"/threads/{thread}/commands", command)
            assert (answer["type"], answer["id"], answer["error"]) == ("error", 7, code)
            assert answer["message"]
        body = {"id": 8, "method": "state.get", "params": {"namespace": []}}
        answer = await site.post(f"/threads/{thread}/commands", body)
        assert answer["result"] == {"values": {"messages": []}}
        wrong = await site.http.post(f"/threads/{thread}/stream/events", json={"channels": ["x"]})
        assert wrong.status_code == 422

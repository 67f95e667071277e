"""What cannot be honoured is refused with a sentence, and nothing is stored."""

import json
from typing import Any

import pytest
from langgraph_sdk.errors import UnprocessableEntityError

from segue.server.langgraph import REFUSED
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage, plain_agent
from tests.runtime.scenes import lines
from tests.server.langgraph.scenes import ASSISTANT, said, wired

pytestmark = pytest.mark.anyio
AS_JSON = {"Content-Type": "application/json"}

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
    ({"command": {"\ud800": 1}}, "its owner's"),
    ({"input": said("Hello", "x" * 201)}, "input.messages: id"),
    ({"input": said("Hello", "\ud800")}, "input.messages: id"),
]


@pytest.mark.parametrize("path", ["runs", "runs/stream", "runs/wait"])
async def test_an_option_that_cannot_be_honoured_is_named(sqlite_stage: Stage, path: str) -> None:
    """On every route that starts a run; the thread stays as it was."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (world, site, client):
        thread = (await client.threads.create())["thread_id"]
        for options, sentence in OPTIONS:
            body = {"assistant_id": ASSISTANT, "input": said("Hello"), **options}
            for place in (f"/threads/{thread}/{path}", f"/{path}"):
                answer = await site.http.post(place, content=json.dumps(body), headers=AS_JSON)
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


@pytest.mark.parametrize("end", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
async def test_an_end_beyond_all_calendars_is_refused(sqlite_stage: Stage, end: str) -> None:
    """Not every time of a zone is one on the user's clock."""
    async with wired(sqlite_stage) as (_, site, _):
        cron = {"assistant_id": ASSISTANT, "schedule": "0 9 * * *", "input": said("Stretch")}
        answer = await site.http.post("/runs/crons", json={**cron, "end_time": end})
        assert answer.status_code == 422
        assert "end_time" in answer.json()["detail"]


async def test_a_checkpoint_of_any_type_is_looked_for(sqlite_stage: Stage) -> None:
    """One that cannot be there is not there."""
    async with wired(sqlite_stage) as (_, site, client):
        thread = (await client.threads.create())["thread_id"]
        body: dict[str, Any] = {"checkpoint": {"checkpoint_id": []}}
        answer = await site.http.post(f"/threads/{thread}/state/checkpoint", json=body)
        assert answer.status_code == 404


def both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {"messages": first["messages"] + second["messages"]}


async def test_a_run_is_refused_as_a_whole(sqlite_stage: Stage) -> None:
    """None of its messages is stored if one of them cannot be."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (world, site, client):
        thread = (await client.threads.create())["thread_id"]
        long = "x" * (ServerSettings().max_text_bytes + 1)
        for second in (said("", "b"), said(long, "b"), said("Then?", "b" * 201)):
            body = {"assistant_id": ASSISTANT, "input": both(said("First.", "a"), second)}
            answer = await site.http.post(f"/threads/{thread}/runs", json=body)
            assert answer.status_code == 422, answer.text
        assert await world.heard(thread) == []


async def test_messages_of_one_run_do_not_refuse_each_other(sqlite_stage: Stage) -> None:
    """Both are new to a thread that was idle."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (world, _, client):
        thread = (await client.threads.create())["thread_id"]
        given = both(said("First.", "a"), said("Second.", "b"))
        await client.runs.wait(thread, ASSISTANT, input=given, multitask_strategy="reject")
        assert {"First.", "Second."} <= {*await world.heard(thread)}


async def test_a_refused_run_leaves_no_thread_behind(sqlite_stage: Stage) -> None:
    """And moves no empty thread to another agent, nor does a refused cron."""
    new = "7f2c1f9a-0000-4000-8000-000000000001"
    agents = (plain_agent(), plain_agent(id="other"))
    async with wired(sqlite_stage, *agents) as (_, site, client):
        refused: tuple[dict[str, Any], ...] = (
            {"command": {"resume": "yes"}},
            {"input": {}},
            {"input": said("Hi"), "checkpoint_id": "1"},
        )
        for given in refused:
            run: dict[str, Any] = {"assistant_id": "other", **given}
            answer = await site.http.post(
                f"/threads/{new}/runs", json={**run, "if_not_exists": "create"}
            )
            assert answer.status_code in {404, 422}, answer.text
            command = {"id": 1, "method": "run.start", "params": run}
            assert (await site.post(f"/threads/{new}/commands", command))["type"] == "error"
        assert await client.threads.count() == 0
        thread = (await client.threads.create(graph_id="guide"))["thread_id"]
        for given in refused:
            run = {"assistant_id": "other", **given}
            assert (await site.http.post(f"/threads/{thread}/runs", json=run)).is_client_error
        cron = {"assistant_id": "other", "schedule": "whenever", "input": said("Stretch")}
        answer = await site.http.post(f"/threads/{thread}/runs/crons", json=cron)
        assert answer.status_code == 422
        assert ((await client.threads.get(thread))["metadata"] or {})["graph_id"] == "guide"

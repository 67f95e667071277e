"""The log of a running server: what a request causes can be found by its id, to the last line."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.errors import BackendError
from segue.events import Event
from segue.server.middleware import REQUEST_ID
from segue.simulate.world import Stage, plain_agent
from segue.telemetry import configure_logging
from tests.runtime.scenes import Held
from tests.server.clients import PATIENCE as WAIT
from tests.server.clients import Site, frames_until_said, site_of
from tests.stories.scenes import PATIENCE, arm, eager_agent, model_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("foreseen_meanings"),
]

Line = dict[str, Any]
Lines = Callable[[], list[Line]]
QUIET = {"decider": "none"}


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """What Segue logged since the last look."""

    def read() -> list[Line]:
        found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        return [line for line in found if line["logger"].startswith("segue")]

    return read


async def say(site: Site, thread: str, request_id: str, text: str = "Where is Oslo?") -> None:
    path, headers = f"/api/threads/{thread}/messages", {REQUEST_ID: request_id}
    await site.post(path, {"content": text}, headers=headers)


async def test_all_lines_of_a_turn_have_its_request_thread_and_batch(
    stage: Stage, lines: Lines
) -> None:
    """From the request's own line on: what a tool, the memories, the plan and the model's trouble
    have to say, though none of these knows of requests.
    """
    configure_logging("debug", json=True)

    async def look_up() -> str:
        """Look it up."""
        logging.getLogger("segue.of_a_tool").info("Looking it up")
        return "Norway"

    call = AIMessage("", tool_calls=[{"name": "look_up", "args": {}, "id": "c1"}])
    model = model_of(ConnectionError("away"), call, "In Norway. Shall we go there?")
    agent = plain_agent(memory={"enabled": True, "time_limit": 60}).model_copy(
        update={"tools": (look_up,)}
    )
    async with stage.world(agent, models={"guide": model}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        lines()
        await say(site, thread, "mine")
        await world.pass_time(minutes=1)
        found = lines()
        [turn] = await world.journal.turns.list_of(thread)
    assert {line["request_id"] for line in found} == {"mine"}
    assert {line["thread_id"] for line in found} == {thread}
    assert {line["batch"] for line in found} == {turn.batch}
    assert {"message_accepted", "turn_retried", "follow_up_planned", "turn_done"} <= {
        line.get("kind") for line in found
    }
    assert {
        "segue.server.middleware",
        "segue.runtime.turn_failures",
        "segue.agent.retrieval",
        "segue.of_a_tool",
    } <= {line["logger"] for line in found}


async def test_turns_at_the_same_time_do_not_mix_their_requests(stage: Stage, lines: Lines) -> None:
    """Each line has the id of the request that it comes from."""
    configure_logging(json=True)
    first, second = Held("One."), Held("Two.")
    agent = plain_agent(autonomy=QUIET)
    model = model_of(first, second)
    async with stage.world(agent, models={"guide": model}) as world, site_of(world.segue) as site:
        threads = [await site.new_thread() for _ in range(2)]
        for thread, held, name in zip(threads, (first, second), ("one", "two"), strict=True):
            await say(site, thread, name)
            await held.asked.wait()
        second.go.set()
        first.go.set()
        await world.clock.settle()
        done = [line for line in lines() if line.get("kind") == "turn_done"]
    assert {(line["request_id"], line["thread_id"]) for line in done} == {
        ("one", threads[0]),
        ("two", threads[1]),
    }


async def test_another_process_goes_on_under_the_same_request(stage: Stage, lines: Lines) -> None:
    """The id is stored with the turn, so that a crash does not cut its trail."""
    configure_logging(json=True)
    held = Held("Never said.")
    agent = plain_agent(autonomy=QUIET)
    async with (
        stage.world(agent, models={"guide": model_of(held)}, patience=0) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await say(site, thread, "mine")
        await held.asked.wait()
    lines()
    async with stage.world(agent, models={"guide": model_of()}) as world:
        await world.clock.settle()
        [done] = [line for line in lines() if line.get("kind") == "turn_done"]
    assert (done["request_id"], done["thread_id"]) == ("mine", thread)


async def test_what_agents_ask_each_other_belongs_to_the_request(
    sqlite_stage: Stage, lines: Lines
) -> None:
    """The turn of the one who is asked, too, in a thread of its own."""
    configure_logging(json=True)
    call = {"name": "ask_agent", "args": {"name": "bob", "text": "How far?"}, "id": "c1"}
    models = {"guide": model_of(AIMessage("", tool_calls=[call])), "bob": model_of()}
    agents = plain_agent(may_ask=["bob"], autonomy=QUIET), plain_agent("bob", autonomy=QUIET)
    async with (
        sqlite_stage.world(*agents, models=models) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await say(site, thread, "mine")
        await world.clock.settle()
        done = [line for line in lines() if line.get("kind") == "turn_done"]
    assert [(line["agent_id"], line["request_id"]) for line in done] == [
        ("bob", "mine"),
        ("guide", "mine"),
    ]


async def test_the_lines_of_a_follow_up_have_its_thread_and_batch_and_no_request(
    stage: Stage, lines: Lines
) -> None:
    """Nobody asked for it."""
    configure_logging(json=True)
    async with (
        stage.world(eager_agent(**QUIET), models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await say(site, thread, "mine")
        await world.clock.settle()
        await arm(world, thread, world.clock.now() + PATIENCE)
        lines()
        await world.pass_time(PATIENCE)
        found = lines()
        last = (await world.journal.turns.list_of(thread))[0]
    assert found[-1]["kind"] == "turn_done"
    assert found[-1]["batch"] == last.batch
    assert {line["thread_id"] for line in found} == {thread}
    assert not any("request_id" in line for line in found)


async def test_what_comes_by_a_socket_has_the_id_of_its_handshake(
    sqlite_stage: Stage, lines: Lines
) -> None:
    """A socket is one request, however much is said over it."""
    configure_logging(json=True)
    agent = plain_agent(autonomy=QUIET)
    headers = {REQUEST_ID: "tab-1"}
    async with (
        sqlite_stage.world(agent, models={"guide": model_of("Oslo.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        path = f"/api/threads/{thread}/ws?since=0"
        async with site.socket(path, additional_headers=headers) as socket:
            await socket.send('{"type": "message", "content": "Where?"}')
            await frames_until_said(socket, "Oslo.")
            await world.clock.settle()
        [done] = [line for line in lines() if line.get("kind") == "turn_done"]
    assert (done["request_id"], done["thread_id"]) == ("tab-1", thread)


async def test_people_read_the_same_fields(
    sqlite_stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a console, behind the sentence."""
    configure_logging("info", json=False)
    agent = plain_agent(autonomy=QUIET)
    async with (
        sqlite_stage.world(agent, models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await say(site, thread, "mine")
        await world.clock.settle()
    [line] = [x for x in capsys.readouterr().err.splitlines() if "turn_done" in x]
    assert "request_id=mine" in line
    assert f"thread_id={thread}" in line
    assert "batch=" in line


async def test_what_a_history_leaves_out_is_told_by_number_and_in_detail(
    stage: Stage, lines: Lines
) -> None:
    """How many at INFO, each by its id and trigger at DEBUG; with the request that asked."""
    configure_logging("debug", json=True)
    async with (
        stage.world(eager_agent(**QUIET), models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await say(site, thread, "mine")
        await world.clock.settle()
        await arm(world, thread, world.clock.now() + PATIENCE)
        await world.pass_time(PATIENCE)
        lines()
        page = await site.get(f"/api/threads/{thread}/history", headers={REQUEST_ID: "page"})
        found = lines()
    assert len(page["items"]) == 3
    told = [line for line in found if line["logger"].startswith("segue.journal")]
    assert sorted(line["level"] for line in told) == ["debug", "info"]
    [counted] = [line for line in told if line["level"] == "info"]
    assert counted["event"].startswith("Filtered 1 synthetic message")
    for line in told:
        assert (line["request_id"], line["thread_id"]) == ("page", thread)
    assert "check_in" in json.dumps([line for line in told if line["level"] == "debug"])


@pytest.mark.parametrize("path", ["/api/threads/{}/events", "/threads/{}/stream"])
async def test_what_ends_a_stream_is_in_the_log(
    sqlite_stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    """The client only hears that something failed, because the reason may name hosts."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        monkeypatch.setattr(world.segue, "listen", _broken)
        ended = await site.http.get(path.format(thread))
    assert "event: error" in ended.text
    assert "db.internal" not in ended.text
    assert "db.internal" in caplog.text


@pytest.mark.parametrize("path", ["/api/threads/{}/ws", "/threads/{}/stream/events"])
async def test_what_closes_a_socket_is_in_the_log(
    sqlite_stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    """With the code that lets clients try again."""
    wanted = {"id": 1, "method": "subscription.subscribe", "params": {"channels": ["values"]}}
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        monkeypatch.setattr(world.segue, "listen", _broken)
        async with site.socket(path.format(thread)) as socket:
            await socket.send(json.dumps(wanted))
            await asyncio.wait_for(socket.wait_closed(), WAIT)
    assert socket.close_code == 1013
    assert "db.internal" in caplog.text


async def _broken(*_: Any) -> AsyncGenerator[Event]:
    raise BackendError("db.internal does not answer.")
    yield

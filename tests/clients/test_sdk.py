"""`@langchain/langgraph-sdk` in node, unmodified, against a real server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from segue.server.auth import new_key
from segue.simulate.world import plain_agent
from tests.clients.packages import acting
from tests.clients.stage import Site, serving
from tests.web.stage import FOLLOW_UP

pytestmark = pytest.mark.anyio
ANSWER = "Start with **G**, then `C`. Shall we go on?"


@pytest.fixture(scope="module")
async def act(sdk: Path, site: Site) -> AsyncIterator[Any]:
    """Run a part of the script; it must never get a trigger."""
    async with acting("sdk.mjs", sdk, SEGUE_URL=site.address) as run:

        async def check(name: str) -> Any:
            report = await run(name)
            site.traffic.check_no_trigger()
            return report

        yield check


def _words(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["type"], each["content"]) for each in messages]


async def test_threads(act: Any) -> None:
    """They are made under the client's own id, found by their metadata, and deleted."""
    report = await act("threads")
    assert report["again"] == report["made"] == "0199a0de-7c9f-7b3e-8f00-5d3b6b0c1a11"
    assert report["got"]["metadata"].items() >= {"topic": "guitar", "level": 2}.items()
    assert report["got"]["status"] == "idle"
    assert (report["found"], report["count"]) == ([report["made"]], 1)
    assert (report["twice"]["status"], report["gone"]["status"]) == (409, 404)


async def test_a_run_is_streamed_in_each_mode(act: Any) -> None:
    """Each begins with its run's id, ends with the whole answer, and echoes the client's own id."""
    report = await act("modes")
    for mode, parts in report.items():
        assert parts[0]["event"] == "metadata", mode
        assert parts[0]["data"]["run_id"], mode
        assert "error" not in [each["event"] for each in parts], mode
    last = report["values"][-1]["data"]["messages"]
    assert _words(last) == [("human", "Which chords?"), ("ai", ANSWER)]
    assert last[0]["id"] == "mine"
    pieces = [each["data"][0] for each in report["messages-tuple"] if each["event"] == "messages"]
    assert len(pieces) > 3
    assert "".join(each["content"] for each in pieces) == ANSWER
    assert len({each["id"] for each in pieces}) == 1
    [update] = [each["data"] for each in report["updates"] if each["event"] == "updates"]
    [node] = update.values()
    assert _words(node["messages"]) == [("ai", ANSWER)]
    tokens = [
        each["data"]["data"]["chunk"]["content"]
        for each in report["events"]
        if each["event"] == "events" and each["data"]["event"] == "on_chat_model_stream"
    ]
    assert "".join(tokens) == ANSWER


async def test_a_follow_up_is_heard_on_the_threads_stream(act: Any) -> None:
    """Nobody asked for it: it is a run of its own, with its origin, while the client listens."""
    report = await act("unsolicited")
    assert _words(report["answered"]) == [("human", "Which chords?"), ("ai", ANSWER)]
    begun = [
        each["data"]["run_id"]
        for each in report["heard"]
        if each["event"] == "metadata" and "status" not in each["data"]
    ]
    runs = {each["run_id"]: each for each in report["runs"]}
    assert [runs[each]["origin"] for each in begun] == ["reply", "follow_up"]
    assert {each["status"] for each in runs.values()} == {"success"}
    assert _words(report["state"]) == [
        ("human", "Which chords?"),
        ("ai", ANSWER),
        ("ai", FOLLOW_UP),
    ]
    assert report["state"][0]["id"] == "mine"


async def test_a_threads_stream_is_resumed(act: Any) -> None:
    """After the id of an event comes what followed it, behind the name of the run it belongs to."""
    report = await act("resumed")
    first = next(number for number, each in enumerate(report["all"], 1) if each.get("id"))
    rest = [(each["event"], each["data"]) for each in report["all"][first:]]
    assert rest
    name, *resumed = [(each["event"], each["data"]) for each in report["rest"]]
    assert (name[0], name[1]["run_id"]) == ("metadata", rest[-1][1]["run_id"])
    assert resumed == rest


async def test_state_and_history(act: Any) -> None:
    """The state has the whole conversation and no next step; history is that state alone."""
    report = await act("history")
    said = ["One.", "You said: One.", "Two.", "You said: Two."]
    assert (report["next"], report["tasks"]) == ([], [])
    assert [each["content"] for each in report["now"]] == said
    assert report["states"] == [said]


async def test_runs_are_created_joined_and_read(act: Any) -> None:
    """A run in the background is waited for, and its stream can be read again."""
    report = await act("runs")
    assert report["created"] in {"pending", "running"}
    assert report["got"]["status"] == "success"
    assert _words(report["joined"]) == [("human", "One."), ("ai", "You said: One.")]
    assert _words(report["parts"][-1]["data"]["messages"]) == _words(report["joined"])


async def test_a_run_is_cancelled(act: Any) -> None:
    """It ends in the middle of its answer, and the next message is answered."""
    report = await act("cancel")
    assert 5 <= report["pieces"] <= 200
    assert report["status"] == "interrupted"
    assert report["last"] == "You said: And now?"


async def test_runs_without_a_thread(act: Any) -> None:
    """Each has a conversation of its own, which the client does not see."""
    report = await act("stateless")
    assert _words(report["waited"]) == [("human", "One."), ("ai", "You said: One.")]
    assert _words(report["streamed"]) == [("human", "Two."), ("ai", "You said: Two.")]


@pytest.mark.usefixtures("foreseen_meanings")
async def test_the_store_holds_memories(sdk: Path, tmp_path: Path) -> None:
    """What is put there is found, and gone when it is deleted."""
    async with (
        serving(str(tmp_path), plain_agent("calm", memory={})) as site,
        acting("sdk.mjs", sdk, SEGUE_URL=site.address) as act,
    ):
        report = await act("store")
    assert report["item"]["value"]["content"] == "Plays chess on Sundays."
    assert [each["key"] for each in report["items"]] == ["sport"]
    assert ["memories", "calm"] in report["namespaces"]
    assert report["gone"] in {None, 404}


async def test_crons_are_reminders(act: Any) -> None:
    """One is set in cron's own form, listed, counted and deleted."""
    report = await act("crons")
    [found] = report["found"]
    assert found["cron_id"] == report["made"]["cron_id"]
    assert found["schedule"] == "0 9 * * 1"
    assert (report["count"], report["left"]) == (1, [])


async def test_what_cannot_be_done_is_refused(act: Any) -> None:
    """With a sentence, never ignored."""
    report = await act("refused")
    assert {name: each["status"] for name, each in report.items()} == {
        "fork": 422,
        "before": 422,
        "rollback": 422,
        "edit": 422,
        "nobody": 404,
    }


async def test_agents_are_assistants(act: Any) -> None:
    """Found by search, with the schemas and the graph that clients ask for."""
    report = await act("assistants")
    assert {each["graph_id"] for each in report["found"]} == {"ada", "calm"}
    assert report["got"]["name"] == "Calm"
    assert "messages" in report["schemas"]["input_schema"]["properties"]
    assert report["graph"]["nodes"]


async def test_a_key_opens_its_users_threads_and_no_others(sdk: Path, tmp_path: Path) -> None:
    """As `X-Api-Key`; for another's key a thread is not there, and without one nothing is."""
    async with serving(str(tmp_path)) as site:
        keys = {}
        for name, user in (("SEGUE_KEY", "ann"), ("OTHER_KEY", "bob")):
            key, keys[name] = new_key("a phone", user, site.served.segue.system.deps.clock.now())
            await site.served.journal.keys.add(key)
        async with acting("sdk.mjs", sdk, SEGUE_URL=site.address, **keys) as act:
            report = await act("foreign")
    refused = {name: each["status"] for name, each in report.items() if name != "list"}
    assert refused == {"get": 404, "state": 404, "write": 404, "stream": 404, "nokey": 401}
    assert report["list"] == 0

"""AG-UI: every event is valid by the protocol's own models, runs open and close in order, and what
the agent writes of its own accord comes over `connect`.
"""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from ag_ui.core import Event as AgUiEvent
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import TypeAdapter

from segue.events import MessageDelta, MessageRetracted, MessageStored
from segue.server.ag_ui.routes import RunIn
from segue.server.ag_ui.runs import Run
from segue.server.auth import new_key
from segue.server.settings import ServerSettings
from segue.settings.agents import AgentConfig
from segue.simulate.world import Stage, plain_agent, with_graph
from tests.runtime.scenes import Held, calling, echo, lines, listeners_of
from tests.server.clients import PATIENCE, Site, as_user, site_of
from tests.stories.scenes import PATIENCE as SILENCE
from tests.stories.scenes import eager_agent

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]

Told = dict[str, Any]
_EVENTS: TypeAdapter[Any] = TypeAdapter(AgUiEvent)
RUN, CONNECT = "/ag-ui/guide/run", "/ag-ui/guide/connect"
PIXEL = "iVBORw0KGgo="


def body(*messages: Told, thread: str = "t-1", run: str = "r-1", **more: Any) -> Told:
    """What `HttpAgent` sends."""
    sent = {"threadId": thread, "runId": run, "messages": [*messages], "tools": [], "context": []}
    return {**sent, "state": {}, "forwardedProps": {}, "protocolVersion": "1.0", **more}


def user(text: Any, id: str = "m-1") -> Told:
    return {"id": id, "role": "user", "content": text}


def checked(told: Told) -> Told:
    """An event that was sent; one that the protocol does not know fails the test."""
    seen = _EVENTS.validate_python(told)
    assert not getattr(seen, "__pydantic_extra__", None), told
    assert None not in told.values(), told
    return told


async def run(site: Site, given: Told, **headers: str) -> list[Told]:
    """The events of a run."""
    response = await site.http.post(RUN, json=given, headers=headers)
    assert response.status_code == 200, response.text
    lines_ = [x for x in response.text.splitlines() if x.startswith("data: ")]
    return [checked(json.loads(line[6:])) for line in lines_]


class Stream:
    """What a client hears over `connect`."""

    def __init__(self, events: AsyncIterator[str]) -> None:
        self._lines = events

    async def until(self, kind: str, count: int = 1) -> list[Told]:
        heard: list[Told] = []
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if line.startswith("data: "):
                    heard.append(checked(json.loads(line[6:])))
                    count -= heard[-1]["type"] == kind
                    if not count:
                        return heard
        raise AssertionError(f"The stream ended after {heard}")


@asynccontextmanager
async def connected(site: Site, **given: Any) -> AsyncIterator[Stream]:
    headers = given.pop("headers", {})
    async with site.http.stream("POST", CONNECT, json=body(**given), headers=headers) as response:
        assert response.status_code == 200
        yield Stream(response.aiter_lines())


def kinds(events: list[Told]) -> list[str]:
    return [event["type"] for event in events]


def text_of(events: list[Told]) -> str:
    return "".join(e["delta"] for e in events if e["type"] == "TEXT_MESSAGE_CONTENT")


async def test_a_run_is_the_reply(stage: Stage) -> None:
    """Under the ids that the client chose; the message is stored under the client's id, once."""
    async with (
        stage.world(models={"guide": lines("Oslo, I think.")}) as world,
        site_of(world.segue) as site,
    ):
        events = await run(site, body(user("Where?")))
        assert kinds(events)[:2] == ["RUN_STARTED", "TEXT_MESSAGE_START"]
        assert kinds(events)[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
        assert text_of(events) == "Oslo, I think."
        for event in (events[0], events[-1]):
            assert (event["threadId"], event["runId"]) == ("t-1", "r-1")
        again = await run(site, body(user("Where?"), run="r-2"))
        assert text_of(again) == "Oslo, I think."
        has = {"id": events[1]["messageId"], "role": "assistant", "content": "Oslo, I think."}
        known = await run(site, body(has, user("Where?"), run="r-3"))
        assert kinds(known) == ["RUN_STARTED", "RUN_FINISHED"]
        [thread] = (await site.get("/api/threads"))["items"]
        assert thread["message_count"] == 2


async def test_a_tool_is_told_without_its_arguments(sqlite_stage: Stage) -> None:
    """Its name, and that it is over; a client must not take it for a call of its own."""
    asked, done = Held(calling("no_such_tool", word="xyzzy")), Held("Done.")
    async with (
        sqlite_stage.world(models={"guide": lines(asked, done)}) as world,
        site_of(world.segue) as site,
        site.http.stream("POST", RUN, json=body(user("Go."))) as response,
    ):
        stream = Stream(response.aiter_lines())
        [thread] = (await site.get("/api/threads"))["items"]
        while not listeners_of(world.segue, thread["id"]):  # noqa: ASYNC110 - tools are heard live
            await asyncio.sleep(0.01)
        asked.go.set()
        events = await stream.until("TOOL_CALL_RESULT")
        done.go.set()
        events += await stream.until("RUN_FINISHED")
        calls = [event for event in events if event["type"].startswith("TOOL_CALL")]
        assert kinds(calls) == ["TOOL_CALL_START", "TOOL_CALL_END", "TOOL_CALL_RESULT"]
        assert calls[0]["toolCallName"] == "no_such_tool"
        assert len({call["toolCallId"] for call in calls}) == 1
        assert calls[2]["content"] == "failed"
        assert "xyzzy" not in json.dumps(events)
        assert text_of(events) == "Done."


async def test_a_follow_up_comes_over_connect(stage: Stage) -> None:
    """History first; then each run: of another client with its message, and of nobody."""
    model = lines("Oslo, I think.", "Shall we book?", then="Still there?")
    async with (
        stage.world(eager_agent(), models={"guide": model}) as world,
        site_of(world.segue) as site,
    ):
        await run(site, body(user("Where?")))
        async with connected(site) as stream:
            first = await stream.until("RUN_FINISHED")
            assert kinds(first) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
            shown = first[1]["messages"]
            assert [m["role"] for m in shown] == ["user", "assistant"]
            await run(site, body(user("In May.", "m-2"), run="r-2"))
            second = await stream.until("RUN_FINISHED")
            [asked] = second[0]["input"]["messages"]
            assert asked["content"] == "In May."
            assert text_of(second) == "Shall we book?"
            await world.pass_time(SILENCE)
            third = await stream.until("RUN_FINISHED")
            assert third[0]["metadata"] == {"origin": "follow_up"}
            assert "input" not in third[0]
            [begun] = [e for e in third if e["type"] == "TEXT_MESSAGE_START"]
            assert begun["metadata"] == {"origin": "follow_up"}
            assert text_of(third) == "Still there?"
            assert {e["runId"] for e in (*second, *third) if "runId" in e}.isdisjoint({"r-1"})
        async with connected(site) as stream:
            [_, later, _] = await stream.until("RUN_FINISHED")
            assert later["messages"][-1]["metadata"] == {"origin": "follow_up"}
            assert len({m["id"] for m in later["messages"]}) == len(later["messages"]) == 5


async def test_the_clients_ids_come_back(stage: Stage) -> None:
    """A client that has shown its message finds it by the id that it chose."""
    async with (
        stage.world(models={"guide": lines(echo, echo)}) as world,
        site_of(world.segue) as site,
    ):
        await run(site, body(user("Where?", "mine-1")))
        async with connected(site) as stream:
            [_, shown, _] = await stream.until("RUN_FINISHED")
            assert shown["messages"][0]["id"] == "mine-1"
            await run(site, body(user("And?", "mine-2"), run="r-2"))
            [started, *_] = await stream.until("RUN_FINISHED")
            assert [m["id"] for m in started["input"]["messages"]] == ["mine-2"]


async def test_a_listener_hears_of_a_running_reply(sqlite_stage: Stage) -> None:
    """One that connects in the middle gets the text so far, once, and the rest."""
    held = Held("Oslo, I think.")
    async with (
        sqlite_stage.world(models={"guide": lines(held)}) as world,
        site_of(world.segue) as site,
    ):
        asking = asyncio.create_task(run(site, body(user("Where?"))))
        await asyncio.wait_for(held.asked.wait(), PATIENCE)
        async with connected(site) as stream:
            first = await stream.until("RUN_FINISHED")
            assert [m["content"] for m in first[1]["messages"]] == ["Where?"]
            held.go.set()
            assert text_of(await stream.until("RUN_FINISHED")) == "Oslo, I think."
        assert text_of(await asking) == "Oslo, I think."


def asking(question: str) -> Any:
    return lambda _: {"messages": [AIMessage(f"{question} {interrupt(question)}.")]}


def waiter(*questions: str) -> AgentConfig:
    """An agent that asks all of these at once."""
    builder = StateGraph(MessagesState)
    for number, question in enumerate(questions):
        builder.add_node(f"ask{number}", asking(question))
        builder.add_edge(START, f"ask{number}")
    return with_graph(plain_agent(), builder.compile())


async def test_a_question_is_an_interrupt(stage: Stage) -> None:
    """The next run answers it by its id; a listener that comes later gets it, too."""
    async with stage.world(waiter("For eight?")) as world, site_of(world.segue) as site:
        asked = (await run(site, body(user("A table."))))[-1]
        [question] = asked["outcome"]["interrupts"]
        assert asked["outcome"]["type"] == "interrupt"
        assert question["message"] == "For eight?"
        async with connected(site) as stream:
            assert (await stream.until("RUN_FINISHED"))[-1]["outcome"] == asked["outcome"]
        answer = {"interruptId": question["id"], "status": "resolved", "payload": "yes"}
        events = await run(site, body(run="r-2", resume=[answer]))
        assert text_of(events) == "For eight? yes."
        assert "outcome" not in events[-1]
        again = await site.http.post(RUN, json=body(run="r-3", resume=[answer]))
        assert again.status_code == 409


async def test_several_questions_are_answered_together(sqlite_stage: Stage) -> None:
    """Each by its own id."""
    async with (
        sqlite_stage.world(waiter("How many?", "When?")) as world,
        site_of(world.segue) as site,
    ):
        asked = (await run(site, body(user("A table."))))[-1]["outcome"]["interrupts"]
        answers = {"How many?": "two", "When?": "at eight"}
        entries = [
            {"interruptId": q["id"], "status": "resolved", "payload": answers[q["message"]]}
            for q in asked
        ]
        events = await run(site, body(run="r-2", resume=entries))
        said = {event["messageId"]: "" for event in events if "delta" in event}
        for event in events:
            if "delta" in event:
                said[event["messageId"]] += event["delta"]
        assert sorted(said.values()) == ["How many? two.", "When? at eight."]


async def test_a_message_takes_the_place_of_a_cancelled_question(sqlite_stage: Stage) -> None:
    """The question is gone, and the message is answered."""
    async with sqlite_stage.world(waiter("For eight?")) as world, site_of(world.segue) as site:
        [question] = (await run(site, body(user("A table."))))[-1]["outcome"]["interrupts"]
        entry = {"interruptId": question["id"], "status": "cancelled"}
        events = await run(site, body(user("For two.", "m-2"), run="r-2", resume=[entry]))
        [new] = events[-1]["outcome"]["interrupts"]
        assert new["id"] != question["id"]
        answer = {"interruptId": question["id"], "status": "resolved", "payload": "yes"}
        late = await site.http.post(RUN, json=body(run="r-3", resume=[answer]))
        assert late.status_code == 409


async def test_a_failure_is_an_error_of_the_run(sqlite_stage: Stage) -> None:
    """For the one who asked, and for listeners, who hear the next run as well."""
    async with (
        sqlite_stage.world(
            models={"guide": lines(*[ValueError("secret")] * 3, then="Fine.")}
        ) as world,
        site_of(world.segue) as site,
        connected(site) as stream,
    ):
        await stream.until("RUN_FINISHED")
        failed = await run(site, body(user("Hi")))
        assert failed[-1]["type"] == "RUN_ERROR"
        assert "secret" not in json.dumps(failed)
        assert (await stream.until("RUN_ERROR"))[0]["type"] == "RUN_STARTED"


async def test_pictures_go_both_ways(sqlite_stage: Stage) -> None:
    """A picture of the user reaches the model, and comes back in the history."""
    source = {"type": "data", "value": PIXEL, "mimeType": "image/png"}
    parts = [{"type": "text", "text": "What?"}, {"type": "image", "source": source}]
    async with (
        sqlite_stage.world(models={"guide": lines("A dot.")}) as world,
        site_of(world.segue) as site,
    ):
        await run(site, body(user(parts)))
        async with connected(site) as stream:
            [_, shown, _] = await stream.until("RUN_FINISHED")
            assert shown["messages"][0]["content"] == parts


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (body(), "last of `messages`"),
        (body({"id": "1", "role": "assistant", "content": "Hi"}), "last of `messages`"),
        (body({"id": "1", "role": "tool", "toolCallId": "x", "content": "Hi"}), "last of"),
        (body(user("Hi"), tools=[{"name": "f", "description": "d"}]), "tools"),
        (body(user("Hi"), context=[{"description": "d", "value": "v"}]), "context"),
        (body(user("Hi"), state={"n": 1}), "state"),
        (body(user("")), "empty"),
        (
            body(user([{"type": "image", "source": {"type": "url", "value": "https://x/y"}}])),
            "addr",
        ),
        (body(user([{"type": "image", "source": {"type": "file", "value": "f-1"}}])), "file"),
        (body(user([{"type": "image"}])), "source"),
        (body(user([{"type": "tool_use", "id": "1"}])), "tool_use"),
        (body(user("Hi", 7)), "The id of a message"),  # type: ignore[arg-type] # a wrong id
        (body(resume=[{"interruptId": "x", "status": "resolved", "payload": 1}]), "id"),
    ],
)
async def test_what_cannot_be_honoured_is_refused(
    sqlite_stage: Stage, given: Told, word: str
) -> None:
    """With a sentence, before a turn, and before a thread is created for a message."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        refused = await site.http.post(RUN, json=given)
        assert refused.status_code == 422
        assert word in refused.json()["detail"]
        counts = [thread["message_count"] for thread in await site.list("/api/threads")]
        assert counts == ([0] if "resume" in given else [])


async def test_each_user_has_conversations_of_their_own(stage: Stage) -> None:
    """The same thread id, and another's thread, interrupt and stream, lead nowhere."""
    async with stage.world(waiter("For eight?")) as world, site_of(world.segue) as site:
        keys = {}
        for name in ("ann", "bob"):
            key, words = new_key("phone", name, world.clock.now())
            await world.journal.keys.add(key)
            keys[name] = {"Authorization": f"Bearer {words}"}
        asked = await run(site, body(user("A table for Ann.")), **keys["ann"])
        [question] = asked[-1]["outcome"]["interrupts"]
        entry = {"interruptId": question["id"], "status": "resolved", "payload": "yes"}
        foreign = await site.http.post(RUN, json=body(resume=[entry]), headers=keys["bob"])
        assert foreign.status_code == 404
        [thread] = (await site.get("/api/threads", headers=keys["ann"]))["items"]
        for name in ("t-1", thread["id"]):
            async with connected(site, thread=name, headers=keys["bob"]) as stream:
                assert (await stream.until("RUN_FINISHED"))[1]["messages"] == []
        assert (await site.http.post(RUN, json=body(user("Hi")))).status_code == 401


async def test_no_agent_and_no_route(sqlite_stage: Stage) -> None:
    """An unknown agent is 404; switched off, all are."""
    async with sqlite_stage.world() as world:
        async with site_of(world.segue) as site:
            for path in ("run", "connect"):
                unknown = await site.http.post(f"/ag-ui/nobody/{path}", json=body(user("Hi")))
                assert unknown.status_code == 404
            assert (await site.get("/api/threads"))["items"] == []
        off = ServerSettings(ag_ui=False, rate_per_minute=None)
        async with site_of(world.segue, off) as site:
            assert (await site.http.post(RUN, json=body(user("Hi")))).status_code == 404


def test_a_message_that_is_taken_back_makes_a_run_stale() -> None:
    """It is closed, and the run ends with a snapshot; the text of stored ones is completed once."""
    told = Run("t", "r")
    events = [*told.tell(MessageDelta("a", 0, "Hel", 1))]
    events += told.tell(MessageDelta("a", 0, "Hello", 1))
    events += told.tell(MessageStored(AIMessage("Hello you", id="a")))
    assert text_of(events) == "Hello you"
    assert not told.is_stale
    events = [*told.tell(MessageDelta("b", 0, "Psst", 1)), *told.tell(MessageRetracted("b"))]
    assert kinds(events)[-1] == "TEXT_MESSAGE_END"
    assert told.is_stale
    assert kinds([*told.end("done")]) == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]


async def test_a_connection_counts(sqlite_stage: Stage) -> None:
    """Against the limit of a user's streams, until it is closed."""
    settings = ServerSettings(max_sockets_per_user=1, rate_per_minute=None)
    async with (
        sqlite_stage.world() as world,
        site_of(world.segue, settings) as site,
        connected(site) as stream,
    ):
        await stream.until("RUN_FINISHED")
        more = await site.http.post(CONNECT, json=body())
        assert more.status_code == 429
        other = await site.http.post(RUN, json=body(user("Hi")), headers=as_user("bob"))
        assert other.status_code == 200


async def test_a_listener_keeps_nothing_of_its_request(sqlite_stage: Stage) -> None:
    """Clients send all messages that they have, with their pictures, and listen for days."""
    async with (
        sqlite_stage.world() as world,
        site_of(world.segue) as site,
        connected(site, messages=[user("Hi")]) as stream,
    ):
        await stream.until("RUN_FINISHED")
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, RunIn)]

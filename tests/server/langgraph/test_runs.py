"""Runs with the real client of the SDK: sent, streamed, waited for, joined, cancelled."""

import asyncio
import json
import logging
import os
from typing import Any, cast
from urllib.parse import quote

import pytest
from langchain_core.messages import AIMessage
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph_sdk import get_client
from langgraph_sdk._async import http as sdk_http
from langgraph_sdk.errors import ConflictError, UnprocessableEntityError

from segue.events import OutsideEvent
from segue.server.app import create_app
from segue.server.serving import open_socket, serving
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage, plain_agent, with_graph
from tests.runtime.scenes import Held, Paced, lines
from tests.server.clients import PATIENCE
from tests.server.langgraph.scenes import (
    ASSISTANT,
    QUESTION,
    heard_by,
    parts_of,
    read_until,
    said,
    shown_after,
    texts,
    waiter,
    wired,
    words_of,
)
from tests.stories.scenes import PATIENCE as SILENCE
from tests.stories.scenes import eager_agent

pytestmark = pytest.mark.anyio


async def test_a_run_streams_its_values_and_its_words(stage: Stage) -> None:
    """The state with the message, the reply in pieces, and the state with the reply."""
    async with wired(stage, models={"guide": lines("Oslo, I think.")}) as (_, _site, client):
        thread = await client.threads.create()
        created: list[str] = []
        parts = [
            part
            async for part in client.runs.stream(
                thread["thread_id"],
                ASSISTANT,
                input=said("Where?", "m1"),
                stream_mode=["values", "messages-tuple", "updates"],
                on_run_created=lambda run: created.append(run["run_id"]),
            )
        ]
        assert [parts[0].event, parts[-1].event] == ["metadata", "end"]
        assert created == [parts[0].data["run_id"]]
        states = [texts(part.data) for part in parts if part.event == "values"]
        assert states[0][0] == "Where?"
        assert states[-1] == ["Where?", "Oslo, I think."]
        first = next(part for part in parts if part.event == "values").data["messages"][0]
        assert (first["id"], first["type"]) == ("m1", "human")
        chunks = [part.data[0] for part in parts if part.event == "messages"]
        assert "".join(chunk["content"] for chunk in chunks) == "Oslo, I think."
        assert {chunk["id"] for chunk in chunks} == {parts[-2].data["messages"][-1]["id"]}


async def test_every_mode_tells_the_reply(sqlite_stage: Stage) -> None:
    """As pieces, as the message so far, as an update, and as an event of a model."""
    model = Paced(script=lambda _: "Oslo, I think.")
    async with wired(sqlite_stage, models={"guide": model}) as (_, _site, client):
        thread = (await client.threads.create())["thread_id"]
        modes: list[Any] = ["messages", "updates", "events", "custom"]
        stream = client.runs.stream(thread, ASSISTANT, input=said("Where?"), stream_mode=modes)
        told: dict[str, list[Any]] = {}
        model.let(2)
        async with asyncio.timeout(PATIENCE):
            async for part in stream:
                told.setdefault(part.event, []).append(part.data)
                if part.event == "messages/partial":  # who comes after the reply hears it whole
                    model.finish()
        partial = told["messages/partial"][-1][0]["content"]
        assert partial.startswith("Oslo, ")
        assert "Oslo, I think.".startswith(partial)
        [[whole]] = told["messages/complete"]
        assert (whole["type"], whole["content"]) == ("ai", "Oslo, I think.")
        assert [*told["messages/metadata"][0]] == [whole["id"]]
        assert told["updates"] == [{"agent": {"messages": [whole]}}]
        names = [event["event"] for event in told["events"]]
        assert names == ["on_chat_model_stream"] * (len(names) - 1) + ["on_chat_model_end"]
        chunks = [event["data"]["chunk"]["content"] for event in told["events"][:-1]]
        assert "".join(chunks) == "Oslo, I think."
        assert "values" not in told


async def test_what_a_graph_reports_is_told_as_custom(sqlite_stage: Stage) -> None:
    """What a node writes to its stream arrives, in order; who comes later does not hear it."""
    heard = {0: asyncio.Event(), 0.5: asyncio.Event()}

    async def work(state: MessagesState) -> dict[str, Any]:
        del state
        for done, is_heard in heard.items():
            while not is_heard.is_set():
                get_stream_writer()({"done": done})
                await asyncio.sleep(0.01)
        return {"messages": [AIMessage("Done.")]}

    builder = StateGraph(MessagesState)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    agent = with_graph(plain_agent(), builder.compile())
    told: list[Any] = []
    async with wired(sqlite_stage, agent) as (_, _site, client), asyncio.timeout(PATIENCE):
        thread = (await client.threads.create())["thread_id"]
        stream = client.runs.stream(thread, ASSISTANT, input=said("Go."), stream_mode="custom")
        async for part in stream:
            if part.event == "custom":
                told.append(part.data["done"])
                heard[told[-1]].set()
    assert told == sorted(told)
    assert {*told} == {*heard}


async def test_a_run_is_created_found_joined_and_listed(stage: Stage) -> None:
    """In the background, by its id, and by its status."""
    async with wired(stage, models={"guide": lines("Oslo.")}) as (_, _site, client):
        thread = (await client.threads.create())["thread_id"]
        run = await client.runs.create(thread, ASSISTANT, input=said("Where?"))
        assert run["status"] in {"pending", "running", "success"}
        assert texts(await client.runs.join(thread, run["run_id"])) == ["Where?", "Oslo."]
        found = await client.runs.get(thread, run["run_id"])
        assert (found["status"], found["thread_id"]) == ("success", thread)
        assert found["metadata"] == {
            "origin": "reply",
            "graph_id": ASSISTANT,
            "assistant_id": ASSISTANT,
        }
        assert await client.runs.list(thread, status="success") == [found]
        assert await client.runs.list(thread, status="pending") == []
        assert await client.runs.list(thread, offset=1) == []
        again = await parts_of(client.runs.join_stream(thread, run["run_id"]))
        assert [part.event for part in again][-2:] == ["values", "end"]
        assert words_of(again) == "Oslo."


async def test_a_lost_line_is_resumed_without_a_gap_or_a_repetition(sqlite_stage: Stage) -> None:
    """From the middle of a message, with the id of the last event that arrived."""
    model = Paced(script=lambda _: "One two three four five.")
    async with wired(sqlite_stage, models={"guide": model}) as (_, site, client):
        thread = (await client.threads.create())["thread_id"]
        run = await client.runs.create(thread, ASSISTANT, input=said("Count."))
        path = f"/threads/{thread}/runs/{run['run_id']}/stream?stream_mode=messages-tuple"
        model.let(2)
        heard, last = await read_until(site, path, "two")
        assert heard == "One two "
        model.finish()
        await client.runs.join(thread, run["run_id"])
        rest = client.runs.join_stream(
            thread, run["run_id"], stream_mode="messages-tuple", last_event_id=last
        )
        assert heard + words_of(await parts_of(rest)) == "One two three four five."
        whole = client.runs.join_stream(
            thread, run["run_id"], stream_mode="messages-tuple", last_event_id="-1"
        )
        assert words_of(await parts_of(whole)) == "One two three four five."


async def test_a_client_resumes_a_run_in_its_own_modes(sqlite_stage: Stage) -> None:
    """The address that it is given for this names them, whatever the name of the thread is."""
    async with wired(sqlite_stage, models={"guide": lines("Oslo.")}) as (world, site, _):
        thread = await world.segue.create_thread("me", thread_id="Übung 日?")
        body = {"assistant_id": ASSISTANT, "input": said("Where?"), "stream_mode": "updates"}
        begun = await site.http.post(f"/threads/{quote(thread.id)}/runs/stream", json=body)
        assert begun.status_code == 200
        again = await site.http.get(begun.headers["Location"])
        assert again.headers["Location"] == begun.headers["Location"]
        for answer in (begun, again):
            told = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
            assert told == ["metadata", "updates", "end"]


@pytest.mark.filterwarnings("ignore:Request failed, attempting reconnect")  # by the client
@pytest.mark.parametrize("has_thread", [True, False])
@pytest.mark.parametrize("waits", [True, False])
async def test_a_restart_of_the_server_ends_no_run(
    sqlite_stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    has_thread: bool,
    waits: bool,
) -> None:
    """Its client sees that the response is not whole, and gets the rest from the next server; also
    of a run that it would cancel by leaving, and of one whose thread goes with it.
    """
    monkeypatch.setattr(sdk_http, "_reconnect_delay", lambda *_, **__: 0.01)
    held, settings = Held("Here I am."), ServerSettings(rate_per_minute=None, port=0)
    async with sqlite_stage.world(models={"guide": lines(held)}) as world:
        bound = open_socket(settings)
        inherited = os.dup(bound.fileno())
        async with serving(create_app(world.segue, settings), bound) as address:
            client = get_client(url=address, api_key=None)
            thread: Any = (await client.threads.create())["thread_id"] if has_thread else None
            how: Any = {"input": said("?"), "on_disconnect": "cancel"}
            stream: Any = client.runs.stream(thread, ASSISTANT, **how, stream_mode="updates")
            run: Any = client.runs.wait(thread, ASSISTANT, **how) if waits else parts_of(stream)
            reading = asyncio.ensure_future(run)
            await held.asked.wait()
            # Who comes now waits for the next server.
            asyncio.get_running_loop().remove_reader(bound.fileno())
        async with serving(
            create_app(world.segue, settings), open_socket(settings, descriptor=inherited)
        ):
            held.go.set()
            told = await reading
            await client.aclose()
    if waits:
        assert texts(told) == ["?", "Here I am."]
    else:
        assert [part.event for part in told] == ["metadata", "metadata", "updates", "end"]
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_half_a_message_is_taken_back_if_a_crash_cut_it_off(stage: Stage) -> None:
    """A client that listens to pieces alone ends with the message that is stored, and no other."""
    model = Paced(script=lambda _: "One two three.")
    async with wired(stage, models={"guide": model}) as (_, site, client):
        thread = (await client.threads.create())["thread_id"]
        run = await client.runs.create(thread, ASSISTANT, input=said("Count."))
        path = f"/threads/{thread}/runs/{run['run_id']}/stream?stream_mode=messages-tuple"
        model.let(2)
        half, last = await read_until(site, path, "two")
    async with wired(stage, models={"guide": lines("Four five.")}) as (_, _site, client):
        rest = client.runs.join_stream(
            thread, run["run_id"], stream_mode="messages-tuple", last_event_id=last
        )
        parts, shown = await parts_of(rest), {last.rpartition("~")[2]: half}
        first: Any = next(part.data for part in parts if part.event == "messages")
        assert first[0]["type"] == "remove"  # before anything else is shown
        assert shown_after(parts, shown) == ["Four five."]
        state: Any = await client.threads.get_state(thread)
        assert texts(state["values"]) == ["Count.", "Four five."]


@pytest.mark.parametrize("over", ["resume", "input.respond"])
async def test_an_answer_that_no_store_takes_does_not_fail_the_run(
    sqlite_stage: Stage, over: str
) -> None:
    """Half of an emoji and a number of 30 digits are made plain, as on the other routes."""
    async with wired(sqlite_stage, waiter()) as (_, site, client):
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, ASSISTANT, input=said("Book a table."))
        answer = ["\ud83d", 10**30]
        run: dict[str, Any] = {"assistant_id": ASSISTANT, "command": {"resume": answer}}
        path = "runs/wait"
        if over == "input.respond":
            path, run = "commands", {"id": 1, "method": over, "params": {"response": answer}}
        headers = {"Content-Type": "application/json"}
        sent = await site.http.post(
            f"/threads/{thread}/{path}", content=json.dumps(run), headers=headers
        )
        assert sent.is_success
        [newest, *_] = await client.runs.list(thread)
        await client.runs.join(thread, newest["run_id"])
        assert (await client.runs.get(thread, newest["run_id"]))["status"] == "success"
        values: Any = (await client.threads.get_state(thread))["values"]
        plain = ["\ufffd", hex(10**30)]
        assert texts(values)[-1] == f"Booked: {plain}"


async def test_a_question_is_an_interrupt_and_resume_is_its_answer(stage: Stage) -> None:
    """In the stream, in the state and in the thread; the answer is a run of its own."""
    async with wired(stage, waiter()) as (_, _site, client):
        thread = (await client.threads.create())["thread_id"]
        stream = client.runs.stream(thread, ASSISTANT, input=said("A table, please."))
        parts = await parts_of(stream)
        [asked] = cast("Any", parts[-2].data)["__interrupt__"]
        assert asked["value"] == QUESTION
        state = await client.threads.get_state(thread)
        assert state["next"] == ["agent"]
        assert state["tasks"][0]["interrupts"] == [asked]
        assert (await client.threads.get(thread))["status"] == "interrupted"
        found = await client.threads.search(status="interrupted")
        assert [each["thread_id"] for each in found] == [thread]
        done = await client.runs.wait(thread, ASSISTANT, command={"resume": "yes"})
        assert texts(done) == ["A table, please.", "Booked: yes"]
        assert (await client.threads.get_state(thread))["next"] == []
        runs = await client.runs.list(thread)
        assert [run["status"] for run in runs] == ["success", "success"]
        with pytest.raises(ConflictError, match="No question waits"):
            await client.runs.create(thread, ASSISTANT, command={"resume": "yes"})


async def test_a_second_message_waits_interrupts_or_is_rejected(sqlite_stage: Stage) -> None:
    """As `multitask_strategy` says; `rollback` cannot be honoured."""
    held, again = Held("One."), Held("Two.")
    model = lines(held, again, "Three.")
    async with wired(sqlite_stage, models={"guide": model}) as (_, _site, client):
        thread = (await client.threads.create())["thread_id"]
        first = await client.runs.create(thread, ASSISTANT, input=said("1"))
        await held.asked.wait()
        assert (await client.threads.get(thread))["status"] == "busy"
        with pytest.raises(ConflictError):
            await client.runs.create(
                thread, ASSISTANT, input=said("2"), multitask_strategy="reject"
            )
        second = await client.runs.create(
            thread, ASSISTANT, input=said("2"), multitask_strategy="enqueue"
        )
        assert second["status"] == "pending"
        held.go.set()
        await client.runs.join(thread, first["run_id"])
        await again.asked.wait()
        third = await client.runs.wait(
            thread, ASSISTANT, input=said("3"), multitask_strategy="interrupt"
        )
        assert texts(third) == ["1", "2", "One.", "3", "Three."]
        assert (await client.runs.get(thread, second["run_id"]))["status"] == "interrupted"
        with pytest.raises(UnprocessableEntityError, match="never taken back"):
            await client.runs.create(
                thread, ASSISTANT, input=said("4"), multitask_strategy="rollback"
            )


async def test_a_run_is_cancelled_alone_with_others_and_by_leaving(sqlite_stage: Stage) -> None:
    """Only the run that is named; or that whose client left, if it asked for that."""
    helds = [Held(), Held(), Held()]
    async with wired(sqlite_stage, models={"guide": lines(*helds)}) as (world, site, client):
        thread = (await client.threads.create())["thread_id"]
        first = await client.runs.create(thread, ASSISTANT, input=said("1"))
        await helds[0].asked.wait()
        second = await client.runs.create(thread, ASSISTANT, input=said("2"))
        await client.runs.cancel(thread, first["run_id"], wait=True)
        assert (await client.runs.get(thread, first["run_id"]))["status"] == "interrupted"
        await helds[1].asked.wait()
        await client.runs.cancel_many(thread_id=thread, run_ids=[second["run_id"]])
        await client.runs.join(thread, second["run_id"])
        assert helds[1].is_stopped
        stream = client.runs.stream(
            thread, ASSISTANT, input=said("3"), on_disconnect="cancel", stream_mode="custom"
        )
        async with heard_by(site, stream):
            await helds[2].asked.wait()
        await stopped(helds[2])
        await world.clock.settle()
        [last, *_] = await client.runs.list(thread)
        assert last["status"] == "interrupted"
        with pytest.raises(UnprocessableEntityError, match="rollback"):
            await client.runs.cancel(thread, last["run_id"], action="rollback")


async def test_a_run_is_cancelled_by_who_waits_for_it_and_leaves(sqlite_stage: Stage) -> None:
    """If the client of `join` asked for that, as that of JavaScript may."""
    held = Held()
    async with wired(sqlite_stage, models={"guide": lines(held)}) as (_, site, client):
        thread = (await client.threads.create())["thread_id"]
        run = await client.runs.create(thread, ASSISTANT, input=said("1"))
        await held.asked.wait()
        path = f"/threads/{thread}/runs/{run['run_id']}/join?cancel_on_disconnect=1"
        async with site.http.stream("GET", path) as joined:
            assert joined.status_code == 200
        await stopped(held)


async def stopped(held: Held) -> None:
    async with asyncio.timeout(PATIENCE):
        while not held.is_stopped:  # noqa: ASYNC110 - a model has no event for it
            await asyncio.sleep(0.01)


async def test_a_run_without_a_thread_leaves_none(sqlite_stage: Stage) -> None:
    """Streamed, waited for or created; unless it is to be kept."""
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (world, _, client):
        stream = client.runs.stream(None, ASSISTANT, input=said("1"), stream_mode="messages-tuple")
        assert words_of(await parts_of(stream)) == "Hi."
        assert texts(await client.runs.wait(None, ASSISTANT, input=said("2"))) == ["2", "Hi."]
        await client.runs.create(None, ASSISTANT, input=said("3"))
        async with asyncio.timeout(PATIENCE):
            while await client.threads.count():
                await world.clock.settle()
        await client.runs.wait(None, ASSISTANT, input=said("4"), on_completion="keep")
        [kept] = await client.threads.search()
        assert texts(kept["values"]) == ["4", "Hi."]
        both = {"messages": [{"role": "assistant", "content": "Hi."}, *said("5")["messages"]]}
        with pytest.raises(UnprocessableEntityError, match="create a thread"):
            await client.runs.create(None, ASSISTANT, input=both)


async def test_a_run_without_a_thread_leaves_none_after_a_restart(stage: Stage) -> None:
    """The server stops in the middle of the run; the next one ends it and deletes its thread."""
    held = Held()
    async with wired(stage, models={"guide": lines(held)}) as (_, _site, client):
        await client.runs.create(None, ASSISTANT, input=said("1"))
        await held.asked.wait()
    async with wired(stage, models={"guide": lines("Hi.")}) as (world, _site, client):
        assert await client.threads.count() == 1
        await world.pass_time(minutes=3)
        assert await client.threads.count() == 0


async def test_the_thread_of_a_run_without_one_takes_no_other_run(stage: Stage) -> None:
    """It is deleted with its run: what is sent into it is refused by every door, not lost."""
    held = Held("Hi.")
    async with wired(stage, models={"guide": lines(held)}) as (world, site, client):
        waiting = asyncio.ensure_future(client.runs.wait(None, ASSISTANT, input=said("1")))
        await held.asked.wait()
        [only] = await client.threads.search()
        thread = only["thread_id"]
        with pytest.raises(ConflictError, match="deleted when its run ends"):
            await client.runs.create(thread, ASSISTANT, input=said("2"))
        cron = {"assistant_id": ASSISTANT, "schedule": "0 9 * * *", "input": said("3")}
        command = {"id": 1, "method": "run.start"}
        command |= {"params": {"assistant_id": ASSISTANT, "input": said("4")}}
        doors: list[tuple[str, dict[str, Any], dict[str, str]]] = [
            (f"/threads/{thread}/runs/wait", {"assistant_id": ASSISTANT, "input": said("2")}, {}),
            (f"/threads/{thread}/runs/crons", cron, {}),
            (f"/api/threads/{thread}/messages", {"content": "5"}, {}),
            (f"/api/threads/{thread}/reminders", {"text": "6", "after": "1h"}, {}),
            (f"/api/threads/{thread}/follow-ups", {"after": "1h"}, {}),
            (f"/api/threads/{thread}/follow-ups/snooze", {"until": "2099-01-01T08:00Z"}, {}),
            (f"/threads/{thread}/copy", {}, {}),
            (
                "/v1/chat/completions",
                {"model": ASSISTANT, **said("7")},
                {"Segue-Thread": thread},
            ),
            (
                f"/ag-ui/{ASSISTANT}/run",
                {"threadId": thread, "runId": "r", "messages": [said("8", "m")["messages"][0]]},
                {},
            ),
        ]
        unmuted = await site.http.patch(f"/api/threads/{thread}", json={"muted": False})
        assert unmuted.status_code == 409
        for path, body, headers in doors:
            refused = await site.http.post(path, json=body, headers=headers)
            assert (refused.status_code, "deleted when its run ends" in refused.text) == (409, True)
        refused = await site.http.post(f"/threads/{thread}/commands", json=command)
        assert "deleted when its run ends" in refused.json()["message"]
        wanted = {"thread_id": thread, "after": "1h"}
        for name, more in (("remind", {"text": "9"}), ("request_follow_up", {})):
            call = {"name": name, "arguments": wanted | more}
            asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            refused = await site.http.post("/mcp", json=asked)
            assert "deleted when its run ends" in refused.json()["result"]["content"][0]["text"]
        told = await world.segue.wake(OutsideEvent(id="parcel-7"), user_id="me")
        assert told.thread_id != thread
        call = {"name": "remind", "arguments": {"text": "9", "after": "1h"}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        set_for = (await site.http.post("/mcp", json=asked)).json()["result"]["structuredContent"]
        held.go.set()
        assert texts(await waiting) == ["1", "Hi."]
        async with asyncio.timeout(PATIENCE):
            while await client.threads.count() > 1:
                await world.clock.settle()
        [other] = await client.threads.search()
        assert other["thread_id"] == set_for["thread_id"] != thread


async def test_nobody_follows_up_in_the_thread_of_a_run_without_one(sqlite_stage: Stage) -> None:
    """It is muted from its begin: a server that stops before the end cannot delete it."""
    held = Held()
    async with wired(sqlite_stage, models={"guide": lines(held)}) as (world, _, client):
        run = await client.runs.create(None, ASSISTANT, input=said("1"))
        await held.asked.wait()
        assert (await world.segue.get_thread(run["thread_id"])).settings["muted"] is True


async def test_a_failed_run_says_so_in_every_way(sqlite_stage: Stage) -> None:
    """Its stream, its result and its status; the message stays."""

    def fail(_: Any) -> str:
        raise ValueError("secret")

    async with wired(sqlite_stage, models={"guide": lines(fail, fail)}) as (_, _site, client):
        thread = (await client.threads.create())["thread_id"]
        parts = await parts_of(client.runs.stream(thread, ASSISTANT, input=said("1")))
        [error] = [part.data for part in parts if part.event == "error"]
        assert "secret" not in str(error)
        with pytest.raises(Exception, match="The reply failed"):
            await client.runs.wait(thread, ASSISTANT, input=said("2"))
        [run, _first] = await client.runs.list(thread)
        assert run["status"] == "error"
        assert (await client.threads.get(thread))["status"] == "error"


async def test_a_message_is_taken_in_every_form_and_stored_once(sqlite_stage: Stage) -> None:
    """As LangChain writes messages; sent again with its id, it is the same."""
    forms: list[Any] = [
        [{"type": "human", "content": "1", "additional_kwargs": {"synthetic": True}}],
        [["user", "2"]],
        "3",
        [{"lc": 1, "type": "constructor", "id": ["x", "HumanMessage"], "kwargs": {"content": "4"}}],
        [
            {"role": "user", "content": "5", "id": "m5"},
            {"role": "ai", "content": "Hi."},
            {"type": "tool", "content": "x", "id": "do-not-render-1"},
            {"role": "user", "content": [{"type": "text", "text": "6"}], "id": "m6"},
        ],
        [{"role": "user", "content": "6", "id": "m6"}, {"role": "user", "content": "7"}],
    ]
    async with wired(sqlite_stage, models={"guide": lines(then="Hi.")}) as (world, _, client):
        thread = (await client.threads.create())["thread_id"]
        for messages in forms:
            await client.runs.wait(thread, ASSISTANT, input={"messages": messages})
        heard = [text for text in await world.heard(thread) if text != "Hi."]
        assert heard == ["1", "2", "3", "4", "6", "7"]
        state: Any = await client.threads.get_state(thread)
        assert "synthetic" not in str(state)
        assert "m6" in [message["id"] for message in state["values"]["messages"]]


async def test_an_empty_thread_is_with_whichever_assistant_its_first_run_names(
    sqlite_stage: Stage,
) -> None:
    """Clients create threads without an assistant; after the first run another one is refused."""
    agents = (plain_agent("guide"), plain_agent("tutor"))
    models = {each.id: lines("Oslo, I think.") for each in agents}
    async with wired(sqlite_stage, *agents, models=models) as (_, _site, client):
        thread = (await client.threads.create())["thread_id"]
        values = await client.runs.wait(thread, "tutor", input=said("Where?"))
        assert texts(values) == ["Where?", "Oslo, I think."]
        got = await client.threads.get(thread)
        assert (got["metadata"] or {})["assistant_id"] == "tutor"
        with pytest.raises(ConflictError, match="with the agent 'tutor'"):
            await client.runs.create(thread, "guide", input=said("And where?"))


async def test_a_client_of_several_modes_gets_each_piece_first_as_an_event(
    sqlite_stage: Stage,
) -> None:
    """CopilotKit takes text from `events`; a piece that came before them it would show twice."""
    async with wired(sqlite_stage, models={"guide": lines("Oslo, I think.")}) as (_, _site, client):
        thread = (await client.threads.create())["thread_id"]
        modes: Any = ["messages-tuple", "events", "updates"]
        stream = client.runs.stream(thread, ASSISTANT, input=said("Where?"), stream_mode=modes)
        kinds = [part.event async for part in stream if part.event in {"messages", "events"}]
        assert (kinds[0], "messages" in kinds) == ("events", True)


async def test_a_run_may_name_the_last_state_that_its_client_has_seen(sqlite_stage: Stage) -> None:
    """Also one from before a follow-up; from before a message of the user, it would be a fork."""
    model = lines("Oslo?", "Shall I book it?", "Good.")
    async with wired(sqlite_stage, eager_agent(), models={"guide": model}) as (
        world,
        _site,
        client,
    ):
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, ASSISTANT, input=said("Where?"))
        seen: Any = (await client.threads.get_state(thread))["checkpoint"]
        await world.pass_time(SILENCE)
        values = await client.runs.wait(thread, ASSISTANT, input=said("Please."), checkpoint=seen)
        assert texts(values) == ["Where?", "Oslo?", "Shall I book it?", "Please.", "Good."]
        with pytest.raises(UnprocessableEntityError, match="no checkpoints to fork from"):
            await client.runs.create(thread, ASSISTANT, input=said("Again."), checkpoint=seen)

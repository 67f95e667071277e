"""A conversation over HTTP and WebSocket, as a client sees it."""

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

from segue.events import Event
from segue.runtime.bus import Bus
from segue.simulate.world import Stage, plain_agent, with_graph
from tests.runtime.scenes import Held, lines
from tests.server.clients import PATIENCE, frames_until, frames_until_said, site_of
from tests.stories.scenes import eager_agent

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered_and_both_are_in_the_history(stage: Stage) -> None:
    """Begin a thread, say something, and read it back with its fate."""
    async with stage.world(models={"guide": lines("Oslo.")}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws?since=0") as socket:
            sent = await site.post(f"/api/threads/{thread}/messages", {"content": "Where?"})
            assert sent["is_new"] is True
            await frames_until_said(socket, "Oslo.")
        page = await site.get(f"/api/threads/{thread}/history")
        told = [(m["role"], m["text"], m["origin"], m["state"]) for m in page["items"]]
        assert told == [("user", "Where?", None, "answered"), ("agent", "Oslo.", "reply", None)]
        assert page["items"][0]["id"] == sent["message"]["id"]


async def test_every_tab_hears_everything_over_the_socket(stage: Stage) -> None:
    """Two sockets hear tokens and messages, whoever spoke."""
    async with (
        stage.world(models={"guide": lines("Hi.", "Oslo, I think.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        path = f"/api/threads/{thread}/ws?since=0"
        async with site.socket(path) as one, site.socket(path) as two:
            await one.send(json.dumps({"type": "message", "content": "Hello"}))
            for tab in (one, two):  # who has heard the answer listens
                await frames_until_said(tab, "Hi.")
            await one.send(json.dumps({"type": "message", "content": "Where?"}))
            for tab in (one, two):
                heard = await frames_until_said(tab, "Oslo, I think.")
                said = [f["message"]["text"] for f in heard if f["type"] == "message"]
                assert said == ["Where?", "Oslo, I think."]
                words = "".join(f["text"] for f in heard if f["type"] == "token")
                assert words == "Oslo, I think."


async def test_a_bad_frame_gets_an_error_and_the_socket_stays_open(sqlite_stage: Stage) -> None:
    """Unknown, malformed and binary frames are told what is wrong, and the next one works."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            bad: list[str | bytes] = [
                "",
                "{",
                "null",
                "[]",
                '{"type":"dance"}',
                '{"type":"message"}',
                b"\x00\xff",
                '{"type":"message","content":"Hi","synthetic":true}',
                '{"type":"message","content":{"a":1}}',
                '{"type":"answer","turn_id":"x","answer":1}',
            ]
            for each in bad:
                await socket.send(each)
                [error] = await frames_until(socket, "error")
                assert error["code"] in {"usage", "not_found"}, error
            await socket.send('{"type":"ping"}')
            assert await frames_until(socket, "pong") == [{"type": "pong"}]


async def test_a_message_streams_its_answer_as_server_sent_events(stage: Stage) -> None:
    """With `Accept: text/event-stream` the answer comes right there, and then its end."""
    async with (
        stage.world(models={"guide": lines("Oslo, I think.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        response = await site.http.post(
            f"/api/threads/{thread}/messages",
            json={"content": "Where?"},
            headers={"Accept": "text/event-stream"},
        )
        assert response.headers["content-type"].startswith("text/event-stream")
        data = [json.loads(x[6:]) for x in response.text.splitlines() if x.startswith("data: ")]
        said = [each["message"]["text"] for each in data if each["type"] == "message"]
        assert said == ["Where?", "Oslo, I think."]
        assert data[-1]["type"] == "done"
        assert data[-1]["state"] == "done"


async def test_a_reply_is_whole_however_long_it_takes_to_read(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that is over before its events are read does not end the stream."""
    listen = Bus.listen

    async def listen_slowly(
        bus: Bus, thread_id: str, since: str | None = None
    ) -> AsyncGenerator[Event]:
        await asyncio.sleep(0.3)  # longer than a stream waits between two looks at its turn
        async for heard in listen(bus, thread_id, since):
            yield heard

    monkeypatch.setattr(Bus, "listen", listen_slowly)
    async with (
        sqlite_stage.world(models={"guide": lines("Oslo, I think.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        headers = {"Accept": "text/event-stream"}
        sent = {"content": "Where?", "client_message_id": "m"}
        path = f"/api/threads/{thread}/messages"
        first = await site.http.post(path, json=sent, headers=headers)
        assert '"text":"Oslo, I think."' in first.text
        again = await site.http.post(path, json=sent, headers=headers)
        assert again.text.count('"type":"done"') == 1


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Listening begins only when this is set."""
    go, listen = asyncio.Event(), Bus.listen

    async def listen_late(
        bus: Bus, thread_id: str, since: str | None = None
    ) -> AsyncGenerator[Event]:
        await go.wait()
        async for heard in listen(bus, thread_id, since):
            yield heard

    monkeypatch.setattr(Bus, "listen", listen_late)
    return go


async def test_a_socket_hears_its_own_first_message(stage: Stage, late: asyncio.Event) -> None:
    """Also without a cursor, and if the message is stored before listening has begun."""
    async with stage.world(models={"guide": lines("Oslo.")}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            await socket.send(json.dumps({"type": "message", "content": "Where?"}))
            await frames_until(socket, "accepted")
            late.set()
            heard = await frames_until_said(socket, "Oslo.")
    said = [frame["message"]["text"] for frame in heard if frame["type"] == "message"]
    assert said == ["Where?", "Oslo."]


async def test_an_event_stream_hears_what_is_said_once_it_is_open(
    stage: Stage, late: asyncio.Event
) -> None:
    """Also without a cursor, and if the message is stored before listening has begun."""
    async with stage.world(models={"guide": lines("Oslo.")}) as world, site_of(world.segue) as site:
        path = f"/api/threads/{await site.new_thread()}"
        async with site.http.stream("GET", f"{path}/events") as stream, asyncio.timeout(PATIENCE):
            received = stream.aiter_lines()
            assert await anext(received) == ": listening"
            await site.post(f"{path}/messages", {"content": "Where?"})
            late.set()
            data = (json.loads(line[6:]) async for line in received if line.startswith("data: "))
            said = (each["message"]["text"] async for each in data if each["type"] == "message")
            assert [await anext(said), await anext(said)] == ["Where?", "Oslo."]


@pytest.mark.parametrize("way", ["route", "frame"])
async def test_an_answer_is_cancelled(stage: Stage, way: str) -> None:
    """The turn stops, the socket is told, and the message shows its fate."""
    held = Held()
    async with stage.world(models={"guide": lines(held)}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws?since=0") as socket:
            await socket.send(json.dumps({"type": "message", "content": "Where?"}))
            [accepted] = (await frames_until(socket, "accepted"))[-1:]
            await held.asked.wait()
            if way == "frame":
                await socket.send('{"type": "cancel"}')
            else:
                stopped = await site.post(f"/api/threads/{thread}/cancel")
                assert stopped["turn_ids"] == [accepted["turn_id"]]
            await frames_until(socket, "cancelled", turn_id=accepted["turn_id"])
        assert held.is_stopped
        page = await site.get(f"/api/threads/{thread}/history")
        assert [m["state"] for m in page["items"]] == ["cancelled"]


@pytest.mark.parametrize("way", ["route", "frame"])
async def test_an_answer_lets_an_interrupted_graph_go_on(stage: Stage, way: str) -> None:
    """The socket hears the question, and after the answer the reply."""
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda _: {"messages": [AIMessage(f"So: {interrupt('For eight?')}")]})
    builder.add_edge(BEGIN, "ask")
    waiter = with_graph(plain_agent(), builder.compile())
    async with stage.world(waiter) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws?since=0") as socket:
            await socket.send(json.dumps({"type": "message", "content": "A table."}))
            asked = (await frames_until(socket, "question"))[-1]
            answer = {"turn_id": asked["turn_id"], "answer": "yes"}
            async with site.socket(f"/api/threads/{thread}/ws") as late:
                again = (await frames_until(late, "question"))[-1]
                assert again["questions"] == asked["questions"]
            if way == "frame":
                await socket.send(json.dumps({"type": "answer", **answer}))
            else:
                await site.post(f"/api/threads/{thread}/answer", answer)
            heard = await frames_until_said(socket, "So: yes")
    assert heard[-1]["message"]["role"] == "agent"


async def test_a_stream_that_ends_with_a_question_says_so(sqlite_stage: Stage) -> None:
    """Its last event has the state that the history has, which keeps question and answer."""
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda _: {"messages": [AIMessage(f"So: {interrupt('For eight?')}")]})
    builder.add_edge(BEGIN, "ask")
    waiter = with_graph(plain_agent(), builder.compile())
    async with sqlite_stage.world(waiter) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        response = await site.http.post(
            f"/api/threads/{thread}/messages",
            json={"content": "A table."},
            headers={"Accept": "text/event-stream"},
        )
        data = [json.loads(x[6:]) for x in response.text.splitlines() if x.startswith("data: ")]
        page = await site.get(f"/api/threads/{thread}/history")
        turn = data[-1]["turn_id"]
        asked = {"turn_id": turn, "questions": data[-2]["questions"]}
        assert page["items"][0]["asked"] == [{**asked, "answer": None}]
        given = {"turn_id": turn, "answer": "For nine."}
        resumed = await site.post(f"/api/threads/{thread}/answer", given)
        await world.segue.wait_turn(await world.segue.get_turn(int(resumed["turn_ids"][0])))
        [question, answer] = await site.list(f"/api/threads/{thread}/history")
        assert question["asked"] == [{**asked, "answer": "For nine."}]
        assert (answer["text"], answer["asked"]) == ("So: For nine.", [])
    assert [each["type"] for each in data[-2:]] == ["question", "done"]
    assert [data[-1]["state"], page["items"][-1]["state"]] == ["waiting", "waiting"]


@pytest.mark.parametrize("way", ["route", "frame"])
async def test_typing_puts_a_follow_up_off(stage: Stage, way: str) -> None:
    """No follow-up comes while the user types; without it, one comes after half a minute."""
    async with (
        stage.world(eager_agent(), models={"guide": lines("Oslo.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await world.say(thread, "I plan a trip.")
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            await world.pass_time(seconds=20)
            if way == "frame":
                await socket.send('{"type": "typing"}')
                await socket.send('{"type": "ping"}')
                await frames_until(socket, "pong")
            else:
                await site.post(f"/api/threads/{thread}/typing")
            await world.pass_time(seconds=25)
            assert await world.heard(thread) == ["I plan a trip.", "Oslo."]
            await world.pass_time(minutes=1)
            assert await world.heard(thread) == ["I plan a trip.", "Oslo.", "Fine."]

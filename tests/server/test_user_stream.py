"""One stream of all threads of a user: nothing is lost, nothing of others is heard."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from langchain_core.tools import tool

from segue.server.settings import ServerSettings
from segue.simulate.world import Stage, plain_agent
from tests.runtime.scenes import EAGER, always, calling, lines
from tests.server.clients import (
    PATIENCE,
    Frame,
    as_user,
    checked,
    frames_until,
    site_of,
)

pytestmark = pytest.mark.anyio


def kinds(frames: list[Frame]) -> list[str]:
    return [frame["type"] for frame in frames]


def stored(frames: list[Frame]) -> list[tuple[str, str]]:
    return [(f["thread_id"], f["message"]["text"]) for f in frames if f["type"] == "message"]


async def heard(response: httpx.Response) -> AsyncIterator[Frame]:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield checked(json.loads(line[6:]))


async def test_all_threads_of_a_user_are_heard_on_one_socket(stage: Stage) -> None:
    """New ones too, with the beginning, the tokens and the end of each turn; and it can send."""
    async with (
        stage.world(models={"guide": always("Fine, thanks.")}) as world,
        site_of(world.segue) as site,
        site.socket("/api/ws") as socket,
    ):
        first, second = await site.new_thread(), await site.new_thread(title="Oslo")
        for thread in (first, second):
            frame = {"type": "message", "thread_id": thread, "content": "How are you?"}
            await socket.send(json.dumps(frame))
            frames = await frames_until(socket, "done", thread_id=thread)
            assert stored(frames) == [(thread, "How are you?"), (thread, "Fine, thanks.")]
            about = [f for f in frames if f["type"] in {"accepted", "started", "token", "done"}]
            assert {f["thread_id"] for f in about} == {thread}
            assert {f["turn_id"] for f in about} == {frames[-1]["turn_id"]}
            begun = [f["origin"] for f in frames if f["type"] in {"started", "token"}]
            assert set(begun) == {"reply"}
            assert frames[-1]["state"] == "done"
        await socket.send(json.dumps({"type": "cancel"}))
        assert "thread_id" in (await frames_until(socket, "error"))[-1]["reason"]


async def test_a_thread_is_told_with_its_list_entry(stage: Stage) -> None:
    """When it is new, renamed, written to, read and deleted; all tabs of the user are told."""
    async with (
        stage.world(models={"guide": always("Fine.")}) as world,
        site_of(world.segue) as site,
        site.socket("/api/ws") as socket,
        site.http.stream("GET", "/api/events") as stream,
    ):
        events = heard(stream)
        thread = await site.new_thread()
        [new] = await frames_until(socket, "thread", thread_id=thread)
        assert new["thread"] == await site.get(f"/api/threads/{thread}")
        assert (await anext(events))["thread"] == new["thread"]
        await site.http.patch(f"/api/threads/{thread}", json={"title": "Oslo"})
        [named] = await frames_until(socket, "thread")
        assert named["thread"]["title"] == "Oslo"
        assert named["thread"]["position"] > new["thread"]["position"]
        await world.say(thread, "How are you?")
        await socket.send('{"type":"ping"}')
        frames = await frames_until(socket, "pong")
        entry = [f for f in frames if f["type"] == "thread"][-1]["thread"]
        assert (entry["preview"], entry["unread"]) == ("Fine.", 1)
        last = [f for f in frames if f["type"] == "message"][-1]["message"]["position"]
        await site.post(f"/api/threads/{thread}/read", {"position": last})
        [read] = await frames_until(socket, "thread")
        assert (read["thread"]["unread"], read["thread"]["read_position"]) == (0, last)
        await site.http.delete(f"/api/threads/{thread}")
        assert (await frames_until(socket, "deleted"))[-1]["thread_id"] == thread


async def test_nothing_is_lost_or_heard_twice_over_a_reconnect(stage: Stage) -> None:
    """From the cursor of any frame, over several threads, and after a restart."""
    async with (
        stage.world(models={"guide": always("Fine.")}) as world,
        site_of(world.segue) as site,
    ):
        threads = [await site.new_thread() for _ in range(3)]
        async with site.socket("/api/ws?since=0") as socket:
            for n, thread in enumerate((*threads, *threads)):
                await world.say(thread, f"Hello {n}")
            frames = await _all_of(socket, 12)
    everything = stored(frames)
    assert len(everything) == 12
    async with (
        stage.world(models={"guide": always("Fine.")}) as world,
        site_of(world.segue) as site,
    ):
        for number, frame in enumerate(frames):
            left = everything[len(stored(frames[: number + 1])) :]
            async with site.socket(f"/api/ws?since={frame['cursor']}") as socket:
                assert stored(await _all_of(socket, len(left))) == left


async def _all_of(socket: object, messages: int) -> list[Frame]:
    """What comes until there are so many messages and their turns are over."""
    await socket.send('{"type":"ping"}')  # type: ignore[attr-defined]  # a client connection
    frames: list[Frame] = []
    async with asyncio.timeout(PATIENCE):
        while len(stored(frames)) < messages or "pong" not in kinds(frames):
            frames.append(checked(json.loads(await socket.recv())))  # type: ignore[attr-defined]
    return [frame for frame in frames if frame["type"] != "pong"]


async def test_a_follow_up_in_any_thread_is_heard(stage: Stage) -> None:
    """With its origin on every token, and no word of its trigger."""
    model = lines("Which city?", then="Shall we go on with the cities?")
    async with stage.world(EAGER, models={"guide": model}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await world.say(thread, "Hello")
        async with site.socket("/api/ws") as socket:
            await world.pass_time(minutes=1)
            frames = await frames_until(socket, "done")
        origins = {f["origin"] for f in frames if f["type"] in {"started", "token"}}
        assert origins == {"follow_up"}
        assert kinds(frames)[0] == "started"
        assert stored(frames) == [(thread, "Shall we go on with the cities?")]
        assert "hasn't responded" not in json.dumps(frames)


async def test_nothing_of_a_withheld_follow_up_is_heard(stage: Stage) -> None:
    """Neither that it began, nor its tools, nor that it ended."""
    trigger = "The user asked a question but hasn't responded."
    model = lines("Which city?", calling("look"), trigger, then=trigger)

    @tool
    def look() -> str:
        """Look."""
        return "looked"

    agent = plain_agent(autonomy={"delays": {"question_unanswered": 30}}, tools=[look])
    async with stage.world(agent, models={"guide": model}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await world.say(thread, "Hello")
        async with site.socket("/api/ws") as socket:
            await world.pass_time(minutes=10)
            await socket.send('{"type":"ping"}')
            assert kinds(await frames_until(socket, "pong")) == ["pong"]


async def test_the_tools_of_a_turn_are_heard_without_what_they_are_told(stage: Stage) -> None:
    """By name and state, for each call; neither arguments nor results."""

    @tool
    def find(place: str) -> str:
        """Find a place."""
        if place == "nowhere":
            raise ValueError(place)
        return f"{place} is in the north"

    model = lines(calling("find", "c-1", place="Oslo"), calling("find", "c-2", place="nowhere"))
    agent = plain_agent(tools=[find])
    async with stage.world(agent, models={"guide": model}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            await socket.send('{"type":"message","content":"Where is it?"}')
            frames = await frames_until(socket, "done")
        tools = [f for f in frames if f["type"] == "tool"]
        assert [(f["call_id"], f["name"], f["state"]) for f in tools] == [
            ("c-1", "find", "running"),
            ("c-1", "find", "done"),
            ("c-2", "find", "running"),
            ("c-2", "find", "failed"),
        ]
        assert "north" not in json.dumps(tools)
        assert "Oslo" not in json.dumps(tools)


async def test_nobody_hears_another_users_threads(stage: Stage) -> None:
    """Nor sends to them: they are as if they did not exist."""
    async with (
        stage.world(models={"guide": always("Fine.")}) as world,
        site_of(world.segue) as site,
        site.socket("/api/ws?since=0", additional_headers=as_user("eve")) as socket,
    ):
        thread = await site.new_thread()
        await world.say(thread, "My secret")
        for frame in ("message", "cancel", "typing", "answer"):
            more = {"content": "Hi"} if frame == "message" else {}
            if frame == "answer":
                more = {"turn_id": "2255260483588198400", "answer": "Yes"}
            await socket.send(json.dumps({"type": frame, "thread_id": thread, **more}))
            assert [f["code"] for f in await frames_until(socket, "error")] == ["not_found"]
        refused = await site.http.post(
            f"/api/threads/{thread}/read",
            json={"position": "2255260483588198400"},
            headers=as_user("eve"),
        )
        assert refused.status_code == 404


async def test_the_stream_of_a_user_counts_as_a_connection(sqlite_stage: Stage) -> None:
    """Together with the streams of threads; the one too many is refused."""
    limits = ServerSettings(rate_per_minute=None, max_sockets_per_user=1)
    async with (
        sqlite_stage.world() as world,
        site_of(world.segue, limits) as site,
        site.socket("/api/ws") as socket,
    ):
        await socket.send('{"type":"ping"}')
        await frames_until(socket, "pong")
        assert (await site.http.get("/api/events")).status_code == 429
        async with site.socket("/api/ws") as other:
            await asyncio.wait_for(other.wait_closed(), PATIENCE)
            assert other.close_code == 4429

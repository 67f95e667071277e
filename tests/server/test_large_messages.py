"""Messages with large pictures: what is sent of them at once, and to whom, is bounded by bytes."""

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from pydantic_core import to_json
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from segue.journal.records import PAGE_BYTES
from segue.server import responses
from segue.server.middleware import RequestMiddleware
from segue.server.responses import LARGE, encode, size_of
from segue.simulate.world import Stage, World
from tests.runtime.scenes import Held, always, lines
from tests.server.clients import PATIENCE, Site, as_user, frames_until, site_of
from tests.server.test_timeouts import plain

pytestmark = pytest.mark.anyio


def picture(name: str, size: int) -> list[dict[str, Any]]:
    """Content with its name as text, and that many bytes of a picture."""
    data = {"type": "image", "base64": "A" * size, "mime_type": "image/png"}
    return [{"type": "text", "text": f"The harbour {name}"}, data]


async def thread_with(world: World, *sizes: int, user: str = "ann") -> str:
    """A thread with a picture of each size, numbered, each of them answered."""
    thread = await world.segue.create_thread(user)
    for number, size in enumerate(sizes):
        await world.segue.send(thread, picture(str(number), size))
        await world.clock.settle()
    return thread.id


async def test_paging_through_pictures_shows_each_message_once(stage: Stage) -> None:
    """A page that is full of bytes has cursors like any other, in both directions."""
    async with stage.world(models={"guide": always("I see.")}) as world:
        thread = await thread_with(world, *[PAGE_BYTES * 2 // 3] * 3)
        async with site_of(world.segue, None, **as_user("ann")) as site:
            path = f"/api/threads/{thread}/history"
            every = [
                "The harbour 0",
                "I see.",
                "The harbour 1",
                "I see.",
                "The harbour 2",
                "I see.",
            ]
            newest = await site.get(path, params={"limit": 200})
            back = await _paged(site, path, newest, "before")
            assert [text for page in reversed(back) for text in page] == every
            [first, *_] = (await site.get(path, params={"before": newest["before"]}))["items"]
            oldest = await site.get(path, params={"limit": 200, "after": first["position"]})
            on = await _paged(site, path, oldest, "after")
            assert [text for page in on for text in page] == every[1:]
            assert (len(back), len(on)) == (2, 2)


async def _paged(site: Site, path: str, page: dict[str, Any], cursor: str) -> list[list[str]]:
    """The texts of a page and of all that its cursor leads to, page by page."""
    found = [[message["text"] for message in page["items"]]]
    while page[cursor] is not None:
        page = await site.get(path, params={"limit": 200, cursor: page[cursor]})
        found.append([message["text"] for message in page["items"]])
    return found


async def test_a_search_gives_out_no_pictures(stage: Stage) -> None:
    """A result has an excerpt of the text; the message itself is in the history."""
    async with stage.world(models={"guide": always("I see.")}) as world:
        thread = await thread_with(world, PAGE_BYTES)
        async with site_of(world.segue, None, **as_user("ann")) as site:
            [found] = await site.list("/api/search", params={"q": "harbour"})
            [said, _] = (await site.get(f"/api/threads/{thread}/history"))["items"]
            assert found["thread_id"] == thread
            assert found["message"]["text"] == found["message"]["content"] == "The harbour 0"
            shared = ("id", "position", "role", "created_at", "origin")
            assert [found["message"][name] for name in shared] == [said[name] for name in shared]


async def test_operators_see_that_there_is_a_picture_and_not_its_bytes(stage: Stage) -> None:
    """In batches and in the context; their history goes back over several pages."""
    async with stage.world(models={"guide": always("I see.")}) as world:
        thread = await thread_with(world, PAGE_BYTES, PAGE_BYTES)
        async with site_of(world.segue) as site:
            path = f"/api/admin/threads/{thread}"
            said = (await site.get(f"{path}/history", params={"limit": 3}))["items"]
            shown = ["I see.", "The harbour 1 [image]", "I see."]
            assert [message["shown"] for message in said] == shown
            for view in ("batches", "context"):
                answer = json.dumps(await site.get(f"{path}/{view}"))
                assert len(answer) < PAGE_BYTES // 10
                assert "[image]" in answer
                assert f"({PAGE_BYTES} characters)" in answer


async def test_large_answers_are_not_encoded_on_the_event_loop(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a page nor an acceptance, a frame or an event of a stream."""
    on_loop: list[bool] = []

    def watched(value: Any) -> bytes:
        encoded = to_json(value)
        if len(encoded) > PAGE_BYTES:
            on_loop.append(threading.current_thread() is threading.main_thread())
        return encoded

    monkeypatch.setattr(responses, "to_json", watched)
    async with sqlite_stage.world(models={"guide": always("I see.")}) as world:
        thread = await thread_with(world)
        path = f"/api/threads/{thread}"
        async with site_of(world.segue, None, **as_user("ann")) as site:
            await site.post(f"{path}/messages", {"content": picture("0", PAGE_BYTES)})
            await site.get(f"{path}/history")
            given: dict[str, Any] = {"max_size": None, "additional_headers": as_user("ann")}
            async with site.socket(f"{path}/ws?since=0", **given) as socket:
                await frames_until(socket, "message")
            async with site.http.stream("GET", f"{path}/events?since=0") as events:
                async for line in events.aiter_lines():
                    if line.startswith("data:"):
                        break
    assert on_loop == [False] * 4


async def test_others_are_served_between_the_pieces_of_a_large_answer() -> None:
    """Also if its client reads so fast that the server never has to wait for it."""
    ticks, seen = 0, list[int]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": bytes(PAGE_BYTES)})

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def send(message: Message) -> None:
        seen.append(ticks if message["type"] == "http.response.body" else -1)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    around = RequestMiddleware(app, lambda *_: None)
    scope: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    others = asyncio.create_task(tick())
    await around(scope, receive, send)
    others.cancel()
    pieces = seen[1:]
    assert len(pieces) == 4
    assert sorted({*pieces}) == pieces


async def test_four_large_frames_are_encoded_at_once_for_a_user(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many sockets wait for the same picture."""
    held, most, enough, too_many = 0, 0, asyncio.Event(), asyncio.Event()
    send_text = WebSocket.send_text

    async def encoding(body: Any) -> bytes:
        nonlocal held, most
        if size_of(body) > LARGE:
            held += 1
            most = max(most, held)
            if held == 4:
                enough.set()
            if held > 4:
                too_many.set()
            await enough.wait()
            with suppress(TimeoutError):  # long enough for a fifth frame to come
                async with asyncio.timeout(0.3):
                    await too_many.wait()
        return await encode(body)

    async def sending(socket: WebSocket, data: str) -> None:
        nonlocal held
        await send_text(socket, data)
        if len(data) > LARGE:
            held -= 1

    monkeypatch.setattr("segue.server.socket.encode", encoding)
    monkeypatch.setattr(WebSocket, "send_text", sending)
    async with sqlite_stage.world(models={"guide": always("I see.")}) as world:
        thread = await thread_with(world)
        given: dict[str, Any] = {"max_size": None, "additional_headers": as_user("ann")}
        async with site_of(world.segue) as site, AsyncExitStack() as stack:
            sockets = [
                await stack.enter_async_context(site.socket(f"/api/threads/{thread}/ws", **given))
                for _ in range(8)
            ]
            for socket in sockets:  # it listens
                await socket.send('{"type": "ping"}')
                await frames_until(socket, "pong")
            await world.segue.send(thread, picture("0", 2 * LARGE))
            for socket in sockets:
                [*_, last] = await frames_until(socket, "message")
                assert last["message"]["text"] == "The harbour 0"
    assert most == 4


async def test_few_large_answers_are_on_their_way_to_a_user_at_once(sqlite_stage: Stage) -> None:
    """A user whose clients do not read waits for them; other users do not."""
    async with sqlite_stage.world(models={"guide": always("I see.")}) as world:
        thread = await thread_with(world, 20 * PAGE_BYTES)
        bobs = await thread_with(world, 20 * PAGE_BYTES, user="bob")
        async with site_of(world.segue, None, **as_user("ann")) as site, AsyncExitStack() as stack:
            for _ in range(4):
                await stack.enter_async_context(unread(site, thread))
            late = asyncio.create_task(site.http.get(f"/api/threads/{thread}/history"))
            for _ in range(3):
                await site.get(f"/api/threads/{bobs}/history", headers=as_user("bob"))
            assert not late.done()
            await stack.aclose()
            async with asyncio.timeout(PATIENCE):
                assert (await late).status_code == 200


@asynccontextmanager
async def unread(site: Site, thread: str) -> AsyncIterator[None]:
    """A request for history whose client takes in no more than the beginning of the answer."""
    head = f"GET /api/threads/{thread}/history HTTP/1.1\r\nHost: 127.0.0.1\r\nSegue-User: ann"
    async with plain(site.address, is_deaf=True) as (reader, writer):
        writer.write(f"{head}\r\n\r\n".encode())
        assert await reader.readexactly(15) == b"HTTP/1.1 200 OK"
        yield


async def test_frames_are_not_compressed(sqlite_stage: Stage) -> None:
    """To compress a picture takes long, and everybody waits; a replay brings it whole."""
    async with sqlite_stage.world(models={"guide": always("I see.")}) as world:
        thread = await thread_with(world, 2 * PAGE_BYTES)
        async with site_of(world.segue, None, **as_user("ann")) as site:
            path = f"/api/threads/{thread}/ws?since=0"
            async with site.socket(path, additional_headers=as_user("ann"), max_size=None) as ws:
                assert ws.response is not None
                assert "Sec-WebSocket-Extensions" not in ws.response.headers
                [first] = await frames_until(ws, "message")
                assert first["message"]["content"] == picture("0", 2 * PAGE_BYTES)


async def test_few_large_bodies_of_a_user_are_read_at_once(sqlite_stage: Stage) -> None:
    """Of those that never come to an end no more than a few are kept in memory; others may send."""
    async with sqlite_stage.world(models={"guide": always("I see.")}) as world:
        threads = {user: (await world.segue.create_thread(user)).id for user in ("ann", "bob")}
        async with site_of(world.segue, None, **as_user("ann")) as site, AsyncExitStack() as stack:
            path = f"/api/threads/{threads['ann']}/messages"
            for _ in range(4):
                await stack.enter_async_context(half_sent(site, path))
            picture_of_ann = {"content": picture("late", 200_000)}
            late = asyncio.create_task(site.http.post(path, json=picture_of_ann))
            path_of_bob = f"/api/threads/{threads['bob']}/messages"
            for _ in range(3):
                sent = await site.http.post(
                    path_of_bob,
                    json={"content": picture("soon", 200_000)},
                    headers=as_user("bob"),
                )
                assert sent.status_code == 202
            assert not late.done()
            await stack.aclose()
            async with asyncio.timeout(PATIENCE):
                assert (await late).status_code == 202


@asynccontextmanager
async def half_sent(site: Site, path: str) -> AsyncIterator[None]:
    """A request whose body is announced and never comes to its end."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nSegue-User: ann\r\nContent-Length: 500000"
    async with plain(site.address) as (_, writer):
        writer.write(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + b" " * 1_000)
        await writer.drain()
        await site.http.get("/healthz")
        yield


async def test_a_stream_keeps_no_body(sqlite_stage: Stage) -> None:
    """The picture that it answers is not held until its end, nor for others with the same key."""
    held = Held()
    async with (
        sqlite_stage.world(models={"guide": lines(held)}) as world,
        site_of(world.segue) as site,
    ):
        path = f"/api/threads/{await site.new_thread()}"
        stream = {"Accept": "text/event-stream"}
        sent = {"content": picture("0", PAGE_BYTES)}
        async with site.http.stream("POST", f"{path}/messages", json=sent, headers=stream) as reply:
            await held.asked.wait()
            assert _bodies() == 0
            async with site.socket(f"{path}/ws") as socket:
                await socket.send('{"type": "ping"}')
                await frames_until(socket, "pong")
                held.go.set()
                await reply.aread()
                assert _bodies() == 0


def _bodies() -> int:
    """How many requests in memory have a large body."""
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, Request)]
    return sum(len(getattr(each, "_body", b"")) > PAGE_BYTES for each in found)

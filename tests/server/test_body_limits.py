"""What a request may cost others: little, before it is known who sent it, and never much."""

import asyncio
import json
import threading
import time
from typing import Any

import anyio.to_thread
import pytest

from segue.server import middleware
from segue.server.auth import new_key
from segue.server.middleware import MOST_PARTS, BodyTooLarge, check_parts
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage
from tests.runtime.scenes import always
from tests.server.clients import PATIENCE, Site, frames_until, site_of

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}


async def promised(site: Site, path: str) -> bytes:
    """The answer to a request whose body was announced and never comes."""
    host, port = site.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE):
        answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return answer


async def test_who_calls_is_asked_before_the_body_is_read(sqlite_stage: Stage) -> None:
    """A stranger's body is not waited for, so it costs nothing to parse either."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        key, _ = new_key("laptop", "ann", world.clock.now())
        await world.journal.keys.add(key)
        for path in ("/api/threads", "/api/threads/1/messages", "/api/memories"):
            assert (await promised(site, path)).startswith(b"HTTP/1.1 401 ")


BOMBS = {
    "lists": b"[" + b"[]," * 3_000_000 + b"[]]",
    "names": json.dumps({f"x{n}": 1 for n in range(MOST_PARTS)}).encode(),
    "texts": b"[" + b'"",' * MOST_PARTS + b'""]',
    "blocks": json.dumps({"content": [{"type": "file", "x": [[]] * MOST_PARTS}]}).encode(),
}


@pytest.mark.parametrize("end", [b"", b"x"], ids=["a backslash at the end", "a text without end"])
def test_quotes_that_are_not_closed_are_read_once(end: bytes) -> None:
    """Reading the rest of the body once for each of them would take minutes."""
    began = time.process_time()
    with pytest.raises(BodyTooLarge):
        check_parts(MOST_PARTS * b"[]," + 5 * MOST_PARTS * b'"\\' + end)
    assert time.process_time() - began < 5  # milliseconds if it is read once


@pytest.mark.parametrize("name", BOMBS)
async def test_a_body_of_very_many_parts_is_refused(sqlite_stage: Stage, name: str) -> None:
    """Before it is parsed, and the answer names none of them."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        path = f"/api/threads/{thread}/messages"
        refused = await site.http.post(path, content=BOMBS[name], headers=JSON)
        assert (refused.status_code, refused.json()["code"]) == (413, "too_big")
        assert len(refused.content) < 500


async def test_a_frame_of_very_many_parts_is_refused(sqlite_stage: Stage) -> None:
    """As an error frame; the socket stays open."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            await socket.send(BOMBS["names"].decode())
            [error] = await frames_until(socket, "error")
            assert f"at most {MOST_PARTS} parts" in error["reason"]
            await socket.send('{"type": "ping"}')
            await frames_until(socket, "pong")


async def test_of_many_mistakes_a_few_are_told(sqlite_stage: Stage) -> None:
    """Whoever sends thousands of wrong fields does not get thousands of sentences."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        refused = await site.http.post("/api/threads", json={f"x{n}": 1 for n in range(3_000)})
        assert refused.status_code == 422
        assert len(refused.json()["errors"]) == 20


def test_words_may_be_full_of_signs() -> None:
    """Only what is outside of texts counts."""
    said: list[Any] = ['", [{:\\"' * 12_000, {"type": "image", "base64": "iVBO" * 1_000_000}]
    check_parts(json.dumps({"content": said}).encode())
    with pytest.raises(BodyTooLarge):
        check_parts(json.dumps([said, [1] * MOST_PARTS]).encode())


ESCAPED = ["\\", '"', '\\"', "\\\\", 'a\\",[{:', ""]


@pytest.mark.parametrize("extra", [0, 1])
def test_parts_are_counted_exactly_whatever_is_escaped(extra: int) -> None:
    """A text is one part, however it ends; one part more than allowed is refused."""
    names = len(ESCAPED)
    # A list has its bracket, and a comma before each text but the first.
    texts = (ESCAPED * MOST_PARTS)[: MOST_PARTS // 2 + extra]
    body = json.dumps(texts).encode()
    assert (body.count(b"\\") > names, len(texts) * 2) == (True, MOST_PARTS + 2 * extra)
    if extra:
        with pytest.raises(BodyTooLarge):
            check_parts(body)
    else:
        check_parts(body)


async def test_a_large_body_is_not_parsed_on_the_event_loop(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are answered meanwhile; for a small one a thread would cost more than it saves."""
    seen: list[tuple[bool, bool]] = []

    def watched(body: bytes) -> None:
        is_on_loop = threading.current_thread() is threading.main_thread()
        seen.append((len(body) > 100_000, is_on_loop))
        check_parts(body)

    monkeypatch.setattr(middleware, "check_parts", watched)
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        picture = {"type": "image", "base64": "iVBO" * 50_000, "mime_type": "image/png"}
        await site.post(f"/api/threads/{thread}/messages", {"content": [picture]})
        await site.post(f"/api/threads/{thread}/messages", {"content": "Hi"})
    assert seen[-2:] == [(True, False), (False, True)]


async def test_no_thread_is_needed_to_find_the_caller(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests would compete for a few threads, and with whatever runs in them."""

    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("A dependency was called in a thread.")

    monkeypatch.setattr(anyio.to_thread, "run_sync", refuse)
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        for path in ("/api/me", "/api/threads", f"/api/threads/{thread}/history", "/api/memories"):
            assert (await site.http.get(path)).status_code == 200


async def test_only_messages_may_be_large(sqlite_stage: Stage) -> None:
    """Pictures and files come in them; everything else is small."""
    picture = {"type": "image", "base64": "iVBO" * 400_000, "mime_type": "image/png"}
    async with (
        sqlite_stage.world(models={"guide": always("Nice.")}) as world,
        site_of(world.segue) as site,
    ):
        path = f"/api/threads/{await site.new_thread()}"
        sent = await site.http.post(f"{path}/messages", json={"content": [picture]})
        assert sent.status_code == 202
        refused = await site.http.patch(path, json={"title": "x" * 1_000_000})
        assert (refused.status_code, refused.json()["code"]) == (413, "too_big")


@pytest.mark.parametrize("way", ["text", "block", "frame"])
async def test_a_message_has_so_much_text_and_no_more(sqlite_stage: Stage, way: str) -> None:
    """By its bytes, however it comes."""
    settings = ServerSettings(rate_per_minute=None, max_text_bytes=1_000)
    async with (
        sqlite_stage.world(models={"guide": always("Fine.")}) as world,
        site_of(world.segue, settings) as site,
    ):
        path = f"/api/threads/{await site.new_thread()}"
        for size, is_taken in ((500, True), (501, False)):
            text = "é" * size
            content = text if way != "block" else [{"type": "text", "text": text}]
            if way == "frame":
                async with site.socket(f"{path}/ws") as socket:
                    await socket.send(json.dumps({"type": "message", "content": content}))
                    told = (await frames_until(socket, "accepted" if is_taken else "error"))[-1]
                code = told.get("code")
            else:
                answer = await site.http.post(f"{path}/messages", json={"content": content})
                code = answer.json().get("code")
            assert code == (None if is_taken else "content_text")

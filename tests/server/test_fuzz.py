"""Whatever is sent, of whatever size and depth: no 5xx, no traceback, and the loop stays free.

Real HTTP and WebSocket against the real app, which runs on a loop of its own that is watched.
`SEGUE_FUZZ_ROUNDS=100` sends a hundred times as much, `SEGUE_FUZZ_SEED` something else.
"""

import asyncio
import gc
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import pytest
from langchain_core.messages import BaseMessage
from websockets.exceptions import ConnectionClosed

from segue.server.mcp.tools import TOOLS
from segue.server.settings import ServerSettings
from segue.simulate.world import plain_agent
from tests.server import nasty
from tests.server.clients import PATIENCE, Site, frames_until
from tests.server.watched import Watched, watched_site

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]

T = TypeVar("T")
ROUNDS = int(os.environ.get("SEGUE_FUZZ_ROUNDS", "1"))
SEED = os.environ.get("SEGUE_FUZZ_SEED", "1")
LIMITS = ServerSettings()
AS_JSON = {"Content-Type": "application/json"}
# All that takes a body, and how much of it.
PLACES = [
    ("POST", "/api/threads/{}/messages", LIMITS.max_body_bytes),
    ("POST", "/api/threads/{}/answer", 1_000_000),
    ("POST", "/api/threads", 1_000_000),
    ("PATCH", "/api/threads/{}", 1_000_000),
    ("PATCH", "/api/me", 1_000_000),
    ("DELETE", "/api/me", 1_000_000),
    ("POST", "/api/threads/{}/read", 1_000_000),
    ("POST", "/api/threads/{}/follow-ups", 1_000_000),
    ("POST", "/api/threads/{}/follow-ups/snooze", 1_000_000),
    ("POST", "/api/threads/{}/reminders", 1_000_000),
    ("POST", "/api/push/subscriptions", 1_000_000),
    ("DELETE", "/api/push/subscriptions", 1_000_000),
    ("POST", "/api/memories", 1_000_000),
    ("PUT", "/api/memories/sport", 1_000_000),
    ("POST", "/api/admin/simulations", 1_000_000),
    ("POST", "/v1/chat/completions", LIMITS.max_body_bytes),
    ("POST", "/ag-ui/guide/run", LIMITS.max_body_bytes),
    ("POST", "/mcp", 1_000_000),
]


def speak(messages: list[BaseMessage]) -> str:
    """Repeat what the user says, if that does not come in a thousand pieces."""
    said = messages[-1].text
    return said if 0 < len(said.split()) < 50 else "I see."


@asynccontextmanager
async def attacked(database: str) -> AsyncIterator[tuple[Watched, str]]:
    """A watched server with a conversation, and afterwards: is all well with it?"""
    guide = plain_agent(memory={})
    async with watched_site(database, guide, speak) as watched:
        thread = await watched.site.new_thread()
        watched.take_held()  # the first request imports and compiles
        yield watched, thread
        await check_each_time(watched, "the end", partial(watched.site.get, "/readyz"))
    assert not watched.faults


def check_well(watched: Watched, sent: object) -> None:
    """Nothing held the loop, and nothing failed, when this was sent."""
    held = watched.take_held()
    assert not held, f"After {sent!r:.200}: {held[0]}"
    assert not watched.faults, f"After {sent!r:.200}: {watched.faults[0]}"


async def check_each_time(
    watched: Watched, sent: object, send_it: Callable[[], Awaitable[object]]
) -> None:
    """Send it and check; it may hold the loop once, in a slow moment of a shared machine."""
    await send_it()
    for _ in range(2):
        if not watched.take_held():
            break
        await send_it()
    check_well(watched, sent)


def uncollected(made: Iterable[T]) -> Iterator[T]:
    """What is sent, made without a collection: it would hold up the server, too."""
    items = iter(made)
    while True:
        gc.disable()
        try:
            item = next(items)
        except StopIteration:
            return
        finally:
            gc.enable()
        yield item


async def check_send(watched: Watched, method: str, path: str, body: bytes) -> None:
    async def send() -> None:
        answer = await watched.site.http.request(method, path, content=body, headers=AS_JSON)
        assert answer.status_code < 500, (path, body[:200], answer.text)

    await check_each_time(watched, (method, path, body), send)


async def test_no_body_is_too_much(folder: str) -> None:
    """Neither one that fills all the room there is, nor a random one, on any route."""
    dice = random.Random(f"bodies {SEED}")  # noqa: S311 - not a secret
    async with attacked(folder) as (watched, thread):
        for body in uncollected(nasty.limits(LIMITS.max_body_bytes)):
            await check_send(watched, "POST", f"/api/threads/{thread}/messages", body)
        for method, path, most in PLACES[1:]:
            for body in uncollected(nasty.limits(most)):
                if dice.random() < 0.2:
                    await check_send(watched, method, path.format(thread), body)
        for _ in range(ROUNDS):
            for method, path, most in PLACES:
                for body in uncollected(nasty.bodies(dice, 20, most)):
                    await check_send(watched, method, path.format(thread), body)


def enveloped(dice: random.Random, message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A message as another protocol sends it, of which a field may be anything."""
    sent = {"role": "user", "id": f"{dice.random()}", **message}
    chosen = dice.randrange(3)
    path = ("/v1/chat/completions", "/ag-ui/guide/run", "/mcp")[chosen]
    call = {"name": dice.choice([*TOOLS]), "arguments": message}
    body: dict[str, Any] = (
        {"model": "guide", "messages": [sent]},
        {"threadId": "t", "runId": "r", "messages": [sent]},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call},
    )[chosen]
    if dice.random() < 0.3:
        body[dice.choice([*body])] = nasty.value(dice, 1_000, 100)
    if dice.random() < 0.3:
        name = ("stream_options", "resume", "params")[chosen]
        body[name] = nasty.value(dice, 1_000, 100)
    return path, body


async def test_no_message_of_another_protocol_is_too_much(folder: str) -> None:
    """Of OpenAI's, AG-UI's and MCP's clients: taken or refused, never a 5xx."""
    dice = random.Random(f"protocols {SEED}")  # noqa: S311 - not a secret
    async with attacked(folder) as (watched, _):
        for _ in range(150 * ROUNDS):
            path, body = enveloped(dice, nasty.message(dice, 20_000))
            wrote = json.dumps(body).encode(errors="surrogatepass")
            await check_send(watched, "POST", path, wrote)


async def test_no_frame_is_too_much(folder: str) -> None:
    """Neither one that fills all the room there is, nor a random one: each is answered."""
    dice = random.Random(f"frames {SEED}")  # noqa: S311 - not a secret
    most = LIMITS.max_frame_bytes
    async with attacked(folder) as (watched, thread):
        path = f"/api/threads/{thread}/ws"
        made = chain(nasty.limits(most), nasty.bodies(dice, 100 * ROUNDS, most))
        for body in uncollected(made):
            frame = body.replace(b"{", b'{"type":"message",', 1) if dice.random() < 0.7 else body
            say = partial(_say, watched.site, path, frame[:most], as_text=dice.random() < 0.8)
            await check_each_time(watched, body, say)


async def _say(site: Site, path: str, frame: bytes, *, as_text: bool) -> None:
    """Send a frame and wait until it was heard; one that is not UTF-8 closes its socket."""
    async with site.socket(path, max_size=None, compression=None) as socket:
        with suppress(ConnectionClosed, AssertionError):
            await socket.send(frame, text=as_text)
            await socket.send('{"type":"ping"}')
            await frames_until(socket, "pong")
        assert socket.close_code in {None, 1007, 1009}


async def test_no_header_is_too_much(folder: str) -> None:
    """Odd ones, long ones and many: the request is answered or its connection is closed."""
    dice = random.Random(f"headers {SEED}")  # noqa: S311 - not a secret
    paths = [
        "/api/threads",
        "/api/threads/{}/history",
        "/api/threads/{}/ws",
        "/api/me",
        "/",
        "/metrics",
    ]
    async with attacked(folder) as (watched, thread):
        for head in nasty.heads(dice, 250 * ROUNDS):
            method = dice.choice(("GET", "GET", "POST", "OPTIONS", "HEAD", "X" * 50))
            path = dice.choice(paths).format(thread)
            line = f"{method} {path} HTTP/1.1".encode()
            await check_each_time(watched, (line, head), partial(_ask, watched.site, line, head))


async def _ask(site: Site, line: bytes, head: nasty.Head) -> None:
    """A request as it is written here: answered, or its connection is closed."""
    host, port = site.address.removeprefix("http://").split(":")
    given = [(b"Host", f"{host}:{port}".encode()), (b"Connection", b"close"), *head]
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        wrote = [line, *(name + b": " + each for name, each in given), b"", b""]
        writer.write(b"\r\n".join(wrote))
        writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            answer = await reader.readline()
    except ConnectionError:
        return
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    assert not answer or int(answer.split()[1]) < 500, (line, head)


async def test_no_file_is_too_much(folder: str) -> None:
    """An export with random damage is taken or refused, and whole ones still come in after it."""
    dice = random.Random(f"files {SEED}")  # noqa: S311 - not a secret
    async with attacked(folder) as (watched, thread):
        site = watched.site
        await _live(site, thread)
        export = (await site.http.get("/api/admin/export")).content
        for _ in range(150 * ROUNDS):
            params = {name: dice.choice(("true", "false")) for name in ("remap", "dry_run")}
            params["skip_existing"] = "true"
            file = nasty.damaged(dice, export)
            await check_each_time(watched, file, partial(_import, site, file, params))
        params = {"remap": "true", "skip_existing": "true"}
        assert await _import(site, export, params) == 200
        check_well(watched, "the export itself")


async def _import(site: Site, file: bytes, params: dict[str, str]) -> int:
    headers = {"Content-Type": "application/jsonl"}
    answer = await site.http.post("/api/admin/import", content=file, params=params, headers=headers)
    assert answer.status_code < 500, file
    return answer.status_code


async def _live(site: Site, thread: str) -> None:
    """Something of each kind, so that an export has it."""
    path = f"/api/threads/{thread}"
    async with site.socket(f"{path}/ws") as socket:
        for said in ("Hello", "Which river runs through Oslo?", "Bye"):
            await socket.send(json.dumps({"type": "message", "content": said}))
            await frames_until(socket, "message")
            await frames_until(socket, "message")
    await site.post("/api/memories", {"content": "Ann likes to ski.", "key": "sport"})
    await site.http.patch("/api/me", json={"time_zone": "Europe/Oslo", "muted": False})
    await site.http.patch(path, json={"title": "A trip", "muted": False})

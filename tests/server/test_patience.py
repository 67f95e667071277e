"""Connections that keep the server waiting are cut, and nothing is left of them."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from segue.server import patience
from segue.server.settings import ServerSettings
from segue.testing.world import Stage
from tests.runtime.scenes import always
from tests.server.clients import PATIENCE, Site, frames_until, site_of

pytestmark = pytest.mark.anyio

BRIEF = 0.2


@asynccontextmanager
async def plain(
    site: Site, *, is_deaf: bool = False
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of bytes; a deaf one takes in next to nothing."""
    host, port = site.address.removeprefix("http://").split(":")
    made = socket.socket()
    if is_deaf:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, (host, int(port)))
    limit = 1 if is_deaf else 2**16
    reader, writer = await asyncio.open_connection(sock=made, limit=limit)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def ends(reader: asyncio.StreamReader) -> bool:
    """Whether the server cuts the connection without a word."""
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionResetError):
            return await reader.read() == b""
        return True


@pytest.mark.parametrize(
    "half",
    [
        "",
        "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /heal",
    ],
    ids=["nothing", "half a head", "the next one's half head"],
)
async def test_half_a_request_is_not_waited_for(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    """Whoever opens connections and says nothing does not keep others out."""
    monkeypatch.setattr(patience, "HEAD_SECONDS", BRIEF)
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        async with plain(site) as (reader, writer):
            writer.write(half.encode())
            async with asyncio.timeout(PATIENCE):
                with suppress(ConnectionResetError):
                    answer = await reader.read()
            assert answer.count(b"HTTP/1.1 200") == half.count("\r\n\r\n")
        assert (await site.http.get("/healthz")).status_code == 200


async def test_a_body_that_does_not_come_is_not_waited_for(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes slowly but surely is."""
    monkeypatch.setattr(patience, "BODY_SECONDS", BRIEF)
    head = "POST /api/threads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        async with plain(site) as (reader, writer):
            writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            assert await ends(reader)
        async with plain(site) as (reader, writer):
            writer.write(f"{head}Content-Length: 60002\r\n\r\n{{".encode())
            for _ in range(3):
                writer.write(b" " * 20_000)
                await asyncio.sleep(BRIEF)
            writer.write(b"}")
            async with asyncio.timeout(PATIENCE):
                assert (await reader.readline()).startswith(b"HTTP/1.1 201")


async def test_a_client_that_does_not_read_is_cut(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was sent is not kept for it, and it counts no longer."""
    monkeypatch.setattr(patience, "READ_SECONDS", BRIEF)
    settings = ServerSettings(rate_per_minute=None, max_text_bytes=1_000_000)
    async with (
        sqlite_stage.world(models={"guide": always("Fine.")}) as world,
        site_of(world.segue, settings) as site,
    ):
        thread = await site.new_thread()
        for _ in range(12):
            await site.post(f"/api/threads/{thread}/messages", {"content": "x" * 900_000})
        await world.clock.settle()
        assert site.app is not None
        visits = site.app.state.visits
        async with plain(site, is_deaf=True) as (_, writer):
            path = f"/api/threads/{thread}/events?since=0"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            async with asyncio.timeout(PATIENCE):
                while not visits["stream"].total():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)
                while visits["stream"].total():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        async with site.socket(f"/api/threads/{thread}/ws?since=0", max_queue=1) as deaf:
            del deaf
            async with asyncio.timeout(PATIENCE):
                while not visits["socket"].total():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                while visits["socket"].total():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            await socket.send(json.dumps({"type": "ping"}))
            await frames_until(socket, "pong")

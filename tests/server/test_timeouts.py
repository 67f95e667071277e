"""Connections that keep the server waiting are cut, and nothing is left of them."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from websockets.frames import Frame, Opcode

from segue.facade import Segue
from segue.runtime import bus
from segue.server import serving, transport
from segue.server.app import create_app
from segue.server.settings import ServerSettings
from segue.server.transport import Listener
from segue.simulate.world import Stage
from tests.runtime.scenes import always
from tests.server.clients import PATIENCE, frames_until, site_of

pytestmark = pytest.mark.anyio

BRIEF = 0.2
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@asynccontextmanager
async def plain(
    address: str, *, is_deaf: bool = False
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of bytes; a deaf one takes in next to nothing."""
    host, port = address.removeprefix("http://").split(":")
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
    monkeypatch.setattr(transport, "HEAD_SECONDS", BRIEF)
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        async with plain(site.address) as (reader, writer):
            writer.write(half.encode())
            answer = b""
            async with asyncio.timeout(PATIENCE):
                with suppress(ConnectionResetError):
                    while piece := await reader.read(2**16):
                        answer += piece
            assert answer.count(b"HTTP/1.1 200") == half.count("\r\n\r\n")
        assert (await site.http.get("/healthz")).status_code == 200


async def test_a_body_that_does_not_come_is_not_waited_for(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes slowly but surely is."""
    monkeypatch.setattr(transport, "BODY_SECONDS", BRIEF)
    head = "POST /api/threads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        async with plain(site.address) as (reader, writer):
            writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            assert await ends(reader)
        async with plain(site.address) as (reader, writer):
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
    monkeypatch.setattr(transport, "READ_SECONDS", BRIEF)
    monkeypatch.setattr(bus, "REPLAY_WAIT_SECONDS", BRIEF / 2)
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
        visits = site.app.state.connections
        async with plain(site.address, is_deaf=True) as (_, writer):
            path = f"/api/threads/{thread}/events?since=0"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            async with asyncio.timeout(PATIENCE):
                while not visits["stream"].total():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)
                while visits["stream"].total():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        # More than replay at once; those that wait for their turn are closed as well.
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE):
            for _ in range(7):
                deaf = site.socket(f"/api/threads/{thread}/ws?since=0", max_queue=1)
                await stack.enter_async_context(deaf)
            while visits["socket"].total():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            await socket.send(json.dumps({"type": "ping"}))
            await frames_until(socket, "pong")


async def test_a_client_that_leaves_the_last_bytes_unread_is_cut(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they are few, and the server has nothing more to send."""
    monkeypatch.setattr(transport, "READ_SECONDS", BRIEF)
    async with (
        sqlite_stage.world() as world,
        _narrow(world.segue) as (address, listener),
        plain(address, is_deaf=True) as (reader, writer),
    ):
        writer.write(50 * HEALTH)
        await _until(lambda: listener.held == 1)
        await _until(lambda: listener.held == 0)
        with pytest.raises(ConnectionResetError):  # the kernel keeps nothing for it, either
            await _read_until(reader, b"Never")


async def test_a_socket_after_an_answer_that_was_read_late_stays_open(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was unread when the connection became a socket no longer counts once it was read."""
    monkeypatch.setattr(transport, "READ_SECONDS", 5 * BRIEF)
    async with sqlite_stage.world() as world, _narrow(world.segue) as (address, _):
        thread = await world.segue.create_thread("me")
        async with plain(address, is_deaf=True) as (reader, writer):
            writer.write(HEALTH.replace(b"/healthz", b"/openapi.json"))
            writer.write(_upgrade(f"/api/threads/{thread.id}/ws"))
            await asyncio.sleep(BRIEF)
            await _read_until(reader, b"101 Switching Protocols")
            await asyncio.sleep(6 * BRIEF)
            writer.write(Frame(Opcode.PING, b"still?").serialize(mask=True))
            assert (await _read_until(reader, b"still?")).endswith(b"still?")


@pytest.mark.parametrize(("path", "status"), [("/api/threads", 400), ("/healthz", 405)])
async def test_a_body_of_very_many_small_chunks_is_not_read_to_its_end(
    sqlite_stage: Stage, path: str, status: int
) -> None:
    """Neither if it is needed nor if the answer was given without it; larger chunks are read."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n"
    small, end = 10 * transport.FREE_CHUNKS * b"1\r\n \r\n", b"2\r\n{}\r\n0\r\n\r\n"
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        async with plain(site.address) as (reader, writer):
            writer.write(head.encode())
            if status != 400:
                await _read_until(reader, f"HTTP/1.1 {status}".encode())
            writer.write(small + end)
            heard = b""
            async with asyncio.timeout(PATIENCE):
                with suppress(ConnectionResetError):
                    heard = await reader.read()
            assert heard.startswith(b"HTTP/1.1 400") == (status == 400)
        async with plain(site.address) as (reader, writer):
            writer.write(
                head.encode() + 2 * transport.FREE_CHUNKS * (b"200\r\n" + 512 * b" " + b"\r\n")
            )
            writer.write(end)
            await _read_until(reader, b"HTTP/1.1 201" if status == 400 else b"HTTP/1.1 405")


FLOODS = {
    "pings": [Frame(Opcode.PING, b"")],
    "pongs": [Frame(Opcode.PONG, b"")],
    "empty": [Frame(Opcode.TEXT, b"")],
    "fragments": [Frame(Opcode.TEXT, b"", fin=False), Frame(Opcode.CONT, b"", fin=False)],
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_socket_that_sends_far_too_many_frames_is_closed(
    sqlite_stage: Stage, kind: str
) -> None:
    """Of whatever kind, also of those that the protocol answers by itself."""
    first, *rest = FLOODS[kind]
    flood = first.serialize(mask=True)
    flood += transport.LEAST_FRAMES * (rest or [first])[0].serialize(mask=True)
    settings = ServerSettings(rate_per_minute=20)
    async with sqlite_stage.world() as world, site_of(world.segue, settings) as site:
        path = f"/api/threads/{await site.new_thread()}/ws"
        async with site.socket(path) as calm, site.socket(path) as socket:
            socket.transport.write(flood)
            async with asyncio.timeout(PATIENCE):
                await socket.wait_closed()
            assert socket.close_code == 1008
            for _ in range(100):
                await (await calm.ping())
            await calm.send('{"type": "ping"}')
            await frames_until(calm, "pong")


async def test_a_flood_on_a_socket_that_was_closed_is_cut(sqlite_stage: Stage) -> None:
    """A client that does not answer the close frame gets no more pongs than any other."""
    ping, many = Frame(Opcode.PING, b"").serialize(mask=True), 10 * transport.LEAST_FRAMES
    settings = ServerSettings(rate_per_minute=20)
    async with sqlite_stage.world() as world, site_of(world.segue, settings) as site:
        async with plain(site.address) as (reader, writer):
            writer.write(_upgrade("/api/threads/1/ws"))
            async with asyncio.timeout(PATIENCE):
                await reader.readuntil(b"does not exist")
                writer.write(many * ping)
                heard = bytearray()
                with suppress(ConnectionResetError):
                    while piece := await reader.read(2**16):
                        heard += piece
        assert heard.count(b"\x8a\x00") < many / 5


async def test_a_connection_without_a_next_request_is_closed(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered, and nobody has to wait for it any more."""
    monkeypatch.setattr(serving, "IDLE_SECONDS", BRIEF)
    monkeypatch.setattr(transport, "HEAD_SECONDS", 100 * PATIENCE)
    async with (
        sqlite_stage.world() as world,
        site_of(world.segue) as site,
        plain(site.address) as (reader, writer),
    ):
        writer.write(HEALTH)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).startswith(b"HTTP/1.1 200")


@asynccontextmanager
async def _narrow(segue: Segue) -> AsyncIterator[tuple[str, Listener]]:
    """A server whose kernel takes next to nothing off its hands."""
    settings = ServerSettings(port=0, rate_per_minute=None)
    bound = serving.open_socket(settings)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000)
    async with serving.serving(create_app(segue, settings), bound) as address:
        yield address, bound


def _upgrade(path: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


async def _read_until(reader: asyncio.StreamReader, last: bytes) -> bytes:
    heard = b""
    async with asyncio.timeout(PATIENCE):
        while last not in heard:
            piece = await reader.read(2**16)
            assert piece, heard[-200:]
            heard += piece
    return heard


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)

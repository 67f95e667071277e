"""Sockets of clients that break the protocol of WebSockets, or go away in the middle of it."""

import asyncio
import logging

import pytest
from starlette.types import Message
from starlette.websockets import WebSocket
from uvicorn.protocols.utils import ClientDisconnected

from segue.server.settings import ServerSettings
from segue.server.socket import accepted, close, send_text
from segue.simulate.world import Stage
from tests.runtime.scenes import always
from tests.server.clients import PATIENCE, site_of
from tests.server.test_timeouts import plain

pytestmark = pytest.mark.anyio

UPGRADE = (
    "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def frame(opcode: int, data: bytes = b"", *, is_last: bool = True, is_masked: bool = True) -> bytes:
    size = len(data)
    head = bytes([is_last << 7 | opcode])
    mask = is_masked << 7
    head += bytes([mask | size]) if size < 126 else bytes([mask | 126]) + size.to_bytes(2, "big")
    return head + (bytes(4) if is_masked else b"") + data


CONTINUATION, TEXT, BINARY, CLOSE, PING = 0, 1, 2, 8, 9
BROKEN = {
    "a continuation of nothing": frame(CONTINUATION, b"x"),
    "a text inside of another": frame(TEXT, b"{", is_last=False) + frame(TEXT, b"}"),
    "a frame without a mask": frame(TEXT, b"{}", is_masked=False),
    "a reserved bit": bytes([0x81 | 0x40]) + frame(TEXT, b"{}")[1:],
    "an unknown kind": frame(3) + frame(11),
    "half a ping": frame(PING, is_last=False),
    "a large ping": frame(PING, b"x" * 200),
    "a close without its code": frame(CLOSE, b"\0"),
    "a close with an invalid code": frame(CLOSE, (5_000).to_bytes(2, "big")),
    "no UTF-8": frame(TEXT, b"\xff"),
    "half a letter": frame(TEXT, b'"\xc3', is_last=False) + frame(CONTINUATION, b'\xa9"'),
    "a binary frame": frame(BINARY, bytes(100)),
    "frames after the close": frame(CLOSE) + 50 * frame(TEXT, b'{"type":"ping"}'),
    "pings right before the close": 3 * frame(TEXT, b'{"type":"ping"}') + frame(CLOSE),
    "a frame of 2**63 bytes": b"\x81\xff\x7f" + b"\xff" * 7 + bytes(4),
    "half a frame": frame(TEXT, b'{"type":"ping"}')[:-3],
    "nothing": b"",
    "a cancel right after a message": frame(TEXT, b'{"type":"message","content":"Hi"}')
    + 20 * frame(TEXT, b'{"type":"cancel"}'),
}


async def test_a_socket_is_forgotten_when_its_client_goes(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the client sent before, or with its first request; otherwise it could use up a
    user's sockets. No client can write an error into the log.
    """
    async with (
        sqlite_stage.world(models={"guide": always("Fine.")}) as world,
        site_of(world.segue, ServerSettings(rate_per_minute=None)) as site,
    ):
        assert site.app is not None
        sockets = site.app.state.connections["socket"]
        thread = await site.new_thread()
        for name, sent in BROKEN.items():
            for early, late in ((b"", sent), (sent, b"")):
                async with plain(site.address) as (reader, writer), asyncio.timeout(PATIENCE):
                    path = f"/api/threads/{thread}/ws"
                    writer.write(UPGRADE.format(path).encode() + early)
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(late)
                    await asyncio.sleep(0.05)
                try:
                    async with asyncio.timeout(PATIENCE):
                        while sockets.total():  # noqa: ASYNC110 - nobody tells
                            await asyncio.sleep(0.01)
                except TimeoutError:
                    pytest.fail(f"A client that sent {name} is still counted.")
                assert [r for r in caplog.records if r.levelno >= logging.ERROR] == [], name


async def test_a_close_that_was_answered_but_not_yet_received_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For one turn of the loop uvicorn refuses what is sent, and has not yet said why."""
    sent: list[str] = []

    async def send(message: Message) -> None:
        sent.append(message["type"])
        if len(sent) == 2:
            raise RuntimeError("Unexpected ASGI message, after sending 'websocket.close'.")
        if len(sent) > 2:
            raise ClientDisconnected

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    websocket = WebSocket({"type": "websocket", "path": "/", "headers": []}, receive, send)
    async with accepted(websocket):
        await send_text(websocket, "{}")
    await close(websocket, 1011, "The server failed.")
    assert sent == ["websocket.accept", "websocket.send", "websocket.close"]
    assert caplog.records == []

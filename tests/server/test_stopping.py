"""A server that stops: clients that only listen are told so, and nothing counts as a failure."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
from websockets.asyncio.client import connect

from segue.facade import Segue
from segue.server.app import create_app
from segue.server.serving import open_socket, serving
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage
from tests.server.clients import PATIENCE, frames_until

pytestmark = pytest.mark.anyio


async def test_a_stop_ends_idle_sockets_and_streams_cleanly(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Sockets close with 1012, event streams come to their end, and no error is logged."""

    @asynccontextmanager
    async def opening() -> AsyncIterator[Segue]:
        async with stage.world() as world:
            yield world.segue

    settings = ServerSettings(rate_per_minute=None, port=0)
    app = create_app(opening, settings)
    async with AsyncExitStack() as clients:
        async with serving(app, open_socket(settings)) as address:
            await app.state.lifespan.started.wait()
            http = await clients.enter_async_context(
                httpx.AsyncClient(base_url=address, timeout=PATIENCE)
            )
            path = f"/api/threads/{(await http.post('/api/threads', json={})).json()['id']}"
            sockets = []
            for _ in range(3):
                opened = connect(f"{address.replace('http', 'ws', 1)}{path}/ws")
                sockets.append(await clients.enter_async_context(opened))
                await sockets[-1].send('{"type": "ping"}')
                await frames_until(sockets[-1], "pong")
            stream = await clients.enter_async_context(http.stream("GET", f"{path}/events"))
            lines = stream.aiter_lines()
            assert await anext(lines) == ": listening"
        async with asyncio.timeout(PATIENCE):
            for socket in sockets:
                await socket.wait_closed()
            rest = [line async for line in lines]
    assert [socket.close_code for socket in sockets] == [1012] * 3
    assert not any(rest)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []

"""Inside another app that knows its own users: it says who a request is from."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import HTTPConnection

from segue.server import Identity, create_app
from segue.server import connections as live
from segue.server.serving import open_socket, serving
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage, World
from tests.runtime.scenes import always
from tests.server.clients import PATIENCE, Site, as_user, frames_until

pytestmark = pytest.mark.anyio

ANN = {"Cookie": "session=ann-1"}
EVE = {"Cookie": "session=eve-1"}


class Shop:
    """An app with sessions, which Segue is mounted in."""

    def __init__(self, world: World) -> None:
        self.sessions = {"ann-1": "ann", "eve-1": "eve", "root-1": "root"}
        self._settings = ServerSettings(rate_per_minute=None, port=0)
        chat = create_app(world.segue, self._settings, authenticate=self.who)
        self.app = FastAPI()
        self.app.state = chat.state  # our server finds its limits there
        self.app.mount("/chat", chat)

    async def who(self, connection: HTTPConnection) -> Identity | None:
        user = self.sessions.get(connection.cookies.get("session", ""))
        return None if user is None else Identity(user, is_operator=user == "root")

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Site]:
        async with (
            serving(self.app, open_socket(self._settings)) as address,
            httpx.AsyncClient(base_url=f"{address}/chat", timeout=PATIENCE) as client,
        ):
            yield Site(f"{address}/chat", client)


async def test_the_app_says_who_a_request_is_from(sqlite_stage: Stage) -> None:
    """A header that names a user and a key count for nothing; each reaches only their own."""
    async with (
        sqlite_stage.world(models={"guide": always("Fine.")}) as world,
        Shop(world).open() as site,
    ):
        thread = (await site.post("/api/threads", headers=ANN))["id"]
        path = f"/api/threads/{thread}"
        assert (await site.get("/api/me", headers={**ANN, **as_user("eve")}))["user_id"] == "ann"
        assert (await site.http.get(path, headers=EVE)).status_code == 404
        assert (await site.http.get(path)).status_code == 401
        assert (await site.http.get(path, headers=as_user("ann"))).status_code == 401
        assert (await site.http.get("/api/admin/timers", headers=ANN)).status_code == 403
        root = {"Cookie": "session=root-1"}
        assert (await site.http.get("/api/admin/timers", headers=root)).status_code == 200
        async with site.socket("/api/ws", additional_headers=ANN) as socket:
            await site.post(f"{path}/messages", {"content": "Hi"}, headers=ANN)
            assert (await frames_until(socket, "done"))[-1]["thread_id"] == thread


async def test_a_page_of_another_site_cannot_use_the_cookie(sqlite_stage: Stage) -> None:
    """Neither by a request nor by a socket, which a browser opens to anywhere."""
    async with sqlite_stage.world() as world, Shop(world).open() as site:
        foreign = {**ANN, "Origin": "https://evil.example"}
        assert (await site.http.post("/api/threads", headers=foreign)).status_code == 403
        async with site.socket("/api/ws", additional_headers=foreign) as socket:
            await asyncio.wait_for(socket.wait_closed(), PATIENCE)
            assert socket.close_code == 4403


async def test_a_session_that_ends_closes_its_own_socket(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no other one, though none of them has a key."""
    monkeypatch.setattr(live, "_CHECK_SECONDS", 0.05)
    async with sqlite_stage.world() as world:
        shop = Shop(world)
        async with (
            shop.open() as site,
            site.socket("/api/ws", additional_headers=ANN) as ann,
            site.socket("/api/ws", additional_headers=EVE) as eve,
        ):
            for socket in (ann, eve):
                await socket.send('{"type":"ping"}')
                await frames_until(socket, "pong")
            del shop.sessions["ann-1"]
            await asyncio.wait_for(ann.wait_closed(), PATIENCE)
            assert ann.close_code == 4401
            await eve.send('{"type":"ping"}')
            await frames_until(eve, "pong")

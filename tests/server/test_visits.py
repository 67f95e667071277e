"""Callers who stay, on a socket or with a stream: only as long as they would be let in."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta

import jwt
import pytest
from pydantic import SecretStr
from websockets.exceptions import ConnectionClosed

from segue.journal.records import ApiKey
from segue.runtime.clock import SystemClock
from segue.server import auth, visits
from segue.server.keys import new_key
from segue.server.settings import JwtSettings, ServerSettings
from segue.testing.world import Stage, World
from tests.server.clients import PATIENCE, Site, frames_until, site_of

pytestmark = pytest.mark.anyio

SECRET = "at least thirty-two characters long, as it has to be"  # noqa: S105  # it opens nothing
PING = '{"type": "ping"}'


@pytest.fixture(autouse=True)
def _believes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_BELIEVED_SECONDS", -1)


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "_LOOK_EVERY_SECONDS", 0.01)


async def key_of(world: World) -> tuple[ApiKey, dict[str, str]]:
    """A key of Ann's, and the header that shows it."""
    key, words = new_key("laptop", "ann", world.clock.now())
    await world.segue.composed.parts.journal.add_key(key)
    return key, {"Authorization": f"Bearer {words}"}


async def revoke(world: World, key: ApiKey) -> None:
    await world.segue.composed.parts.journal.revoke_key(key.id, now=world.clock.now())


async def last_event(lines: AsyncIterator[str]) -> dict[str, str]:
    """What a stream ends with."""
    async with asyncio.timeout(PATIENCE):
        told = [line async for line in lines if line.startswith("data: ")]
    last: dict[str, str] = json.loads(told[-1][6:])
    return last


@pytest.mark.usefixtures("looks_often")
async def test_a_revoked_key_ends_what_it_holds_open(stage: Stage) -> None:
    """A socket closes with 4401 and a stream ends with that reason, though nobody sends a word."""
    async with stage.world() as world:
        key, header = await key_of(world)
        async with site_of(world.segue, None, **header) as site:
            path = f"/api/threads/{await site.new_thread()}"
            async with (
                site.socket(f"{path}/ws", additional_headers=header) as socket,
                site.http.stream("GET", f"{path}/events") as stream,
            ):
                await socket.send(PING)
                await frames_until(socket, "pong")
                await revoke(world, key)
                await asyncio.wait_for(socket.wait_closed(), PATIENCE)
                assert socket.close_code == 4401
                ended = await last_event(stream.aiter_lines())
                assert (ended["type"], ended["code"]) == ("error", "unauthorized")


async def test_no_frame_is_obeyed_after_the_key_was_revoked(stage: Stage) -> None:
    """Also before it is looked again by itself; the socket closes, and nothing is stored."""
    async with stage.world() as world:
        key, header = await key_of(world)
        async with site_of(world.segue, None, **header) as site:
            thread = await site.new_thread()
            async with site.socket(
                f"/api/threads/{thread}/ws", additional_headers=header
            ) as socket:
                await socket.send(PING)
                await frames_until(socket, "pong")
                await revoke(world, key)
                await socket.send(json.dumps({"type": "message", "content": "Hello"}))
                await asyncio.wait_for(socket.wait_closed(), PATIENCE)
                assert socket.close_code == 4401
        assert (await world.segue.history(thread)).messages == []


@pytest.mark.usefixtures("looks_often")
async def test_a_socket_ends_with_its_token(sqlite_stage: Stage) -> None:
    """One that has expired closes it with 4401."""
    tokens = JwtSettings(secret=SecretStr(SECRET), leeway=timedelta(milliseconds=1))
    settings = ServerSettings(rate_per_minute=None, jwt=tokens)
    async with sqlite_stage.world() as world, site_of(world.segue, settings) as site:
        thread = (await world.segue.create_thread("ann")).id
        # On a busy machine a short one may be over before it is shown.
        code = None
        for seconds in (2, 10, 60):
            code = code or await _closing_code(site, thread, seconds)
    assert code == 4401


async def _closing_code(site: Site, thread: str, seconds: int) -> int | None:
    """How a socket was closed that a token had opened; None if it was over before."""
    expires = int(SystemClock().now().timestamp()) + seconds
    token = jwt.encode({"sub": "ann", "exp": expires}, SECRET, "HS256")
    header = {"Authorization": f"Bearer {token}"}
    async with site.socket(f"/api/threads/{thread}/ws", additional_headers=header) as socket:
        try:
            await socket.send(PING)
            await socket.recv()
        except ConnectionClosed:
            return None
        await asyncio.wait_for(socket.wait_closed(), seconds + PATIENCE)
        return socket.close_code

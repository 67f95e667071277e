"""Callers who stay, on a socket or with a stream: only as long as they would be let in."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from urllib.parse import quote

import httpx
import jwt
import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.requests import HTTPConnection
from websockets.exceptions import ConnectionClosed

from segue.journal.postgres import PostgresJournal
from segue.journal.records import ApiKey
from segue.runtime.clock import SystemClock
from segue.server import auth, connections
from segue.server.access import identify
from segue.server.app import create_app
from segue.server.auth import new_key
from segue.server.problems import ApiError
from segue.server.settings import JwtSettings, ServerSettings
from segue.simulate.world import Stage, World
from tests.server.clients import PATIENCE, Site, as_user, frames_until, site_of

pytestmark = pytest.mark.anyio

SECRET = "at least thirty-two characters long, as it has to be"  # noqa: S105  # it opens nothing
PING = '{"type": "ping"}'


@pytest.fixture(autouse=True)
def _believes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_CACHE_SECONDS", -1)


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_CHECK_SECONDS", 0.01)


async def key_of(world: World) -> tuple[ApiKey, dict[str, str]]:
    """A key of Ann's, and the header that shows it."""
    key, words = new_key("laptop", "ann", world.clock.now())
    await world.segue.system.deps.journal.keys.add(key)
    return key, {"Authorization": f"Bearer {words}"}


async def revoke(world: World, key: ApiKey) -> None:
    await world.segue.system.deps.journal.keys.revoke(key.id, now=world.clock.now())


async def live_connection(app: FastAPI, header: dict[str, str]) -> connections.LiveConnection:
    headers = [(b"authorization", header["Authorization"].encode())]
    connection = HTTPConnection({"type": "http", "app": app, "headers": headers})
    return connections.LiveConnection(connection, await identify(connection))


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


@pytest.mark.usefixtures("looks_often")
async def test_the_first_key_ends_the_visits_of_an_open_server(stage: Stage) -> None:
    """Whoever came in without a key, as whatever user, would not be let in any more."""
    async with stage.world() as world, site_of(world.segue) as site:
        path = f"/api/threads/{await site.new_thread()}"
        bobs = f"/api/threads/{(await world.segue.create_thread('bob')).id}"
        async with (
            site.socket(f"{path}/ws") as socket,
            site.socket(f"{bobs}/ws", additional_headers=as_user("bob")) as other,
            site.http.stream("GET", f"{path}/events") as stream,
        ):
            for each in (socket, other):
                await each.send(PING)
                await frames_until(each, "pong")
            await key_of(world)
            for each in (socket, other):
                await asyncio.wait_for(each.wait_closed(), PATIENCE)
                assert each.close_code == 4401
            assert (await last_event(stream.aiter_lines()))["code"] == "unauthorized"


@pytest.mark.usefixtures("looks_often")
async def test_one_looks_for_all_who_came_with_the_same_key(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many sockets of one key are looked after at the price of the single one of another."""
    many = 20
    async with sqlite_stage.world() as world, AsyncExitStack() as stack:
        journal = world.segue.system.deps.journal
        (one, ones), (other, others) = await key_of(world), await key_of(world)
        site = await stack.enter_async_context(site_of(world.segue, None, **ones))
        path = f"/api/threads/{await site.new_thread()}/ws"
        for header in [others, *many * [ones]]:
            socket = await stack.enter_async_context(site.socket(path, additional_headers=header))
            await socket.send(PING)
            await frames_until(socket, "pong")
        looks: Counter[str] = Counter()
        enough = asyncio.Event()
        find_key = journal.keys.find

        async def counted(key_id: str) -> ApiKey | None:
            looks[key_id] += 1
            if looks[other.id] >= many:
                enough.set()
            return await find_key(key_id)

        monkeypatch.setattr(journal.keys, "find", counted)
        await asyncio.wait_for(enough.wait(), PATIENCE)
        assert 0 < looks[one.id] < many * many / 4


@pytest.mark.usefixtures("looks_often")
async def test_a_visitor_who_goes_leaves_the_others_watched(sqlite_stage: Stage) -> None:
    """Also the one who came first, whose looks serve them all."""
    async with sqlite_stage.world() as world:
        key, header = await key_of(world)
        visit = await live_connection(create_app(world.segue), header)
        first, *others = (asyncio.create_task(visit.wait_until_over()) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        await revoke(world, key)
        for task in others:
            with pytest.raises(ApiError, match="revoked"):
                await asyncio.wait_for(task, PATIENCE)


async def test_nobody_looks_for_visitors_who_have_gone(sqlite_stage: Stage) -> None:
    """With the last of them the looking ends, and nothing is left of it."""
    async with sqlite_stage.world() as world:
        _, header = await key_of(world)
        app = create_app(world.segue)
        visit = await live_connection(app, header)
        visitors = [asyncio.create_task(visit.wait_until_over()) for _ in range(2)]
        await asyncio.sleep(0)
        (watch,) = app.state.credential_checks.values()
        for visitor in visitors:
            visitor.cancel()
        await asyncio.wait([*visitors, watch.task], timeout=PATIENCE)
        assert watch.task.cancelled()
        assert app.state.credential_checks == {}


async def test_clients_that_drop_are_no_longer_counted(stage: Stage) -> None:
    """Whenever it happens, no visit, no listener and no database connection stays behind."""
    settings = ServerSettings(rate_per_minute=None, max_sockets_per_user=1_000)
    async with stage.world() as world, site_of(world.segue, settings) as site:
        path = f"/api/threads/{await site.new_thread()}"
        for _ in range(4):
            await asyncio.gather(*(_drop_socket(site, f"{path}/ws", n) for n in range(20)))
            await asyncio.gather(*(_drop_stream(site, f"{path}/events", n) for n in range(40)))
        async with asyncio.timeout(PATIENCE):
            while not _is_quiet(world, site):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        assert (await site.get(path))["id"] in path


def _is_quiet(world: World, site: Site) -> bool:
    """Whether the server has no visitor and no listener, and all connections are free."""
    if site.connections or world.system.deps.bus._threads:
        return False
    if not isinstance(world.journal, PostgresJournal):
        return True
    stats = world.journal.db._pool.get_stats()
    return stats["pool_available"] == stats["pool_size"]


async def _drop_socket(site: Site, path: str, ticks: int) -> None:
    socket = await site.socket(path)
    for _ in range(ticks):
        await asyncio.sleep(0)
    socket.transport.abort()


async def _drop_stream(site: Site, path: str, ticks: int) -> None:
    url = httpx.URL(site.address)
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {url.host}\r\n\r\n".encode())
    for _ in range(5 * ticks):
        await asyncio.sleep(0)
    writer.transport.abort()


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


@pytest.mark.parametrize(
    ("path", "code"), [("/api/threads/{}/ws", 4404), ("/api/ws?since={}", 4400)]
)
async def test_a_reason_in_any_script_fits_into_a_close_frame(
    sqlite_stage: Stage, path: str, code: int
) -> None:
    """It quotes what the client named; its characters may have three bytes each."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        async with site.socket(path.format(quote("\u65e5" * 60))) as socket:
            await asyncio.wait_for(socket.wait_closed(), PATIENCE)
        assert socket.close_code == code
        assert "\u65e5" in (socket.close_reason or "")


@pytest.mark.parametrize("path", ["/api/ws", "/api/threads/x/ws", "/threads/x/stream/events"])
async def test_a_caller_without_a_key_is_no_failure_of_the_server(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """The socket closes with the code of its reason, and no traceback is logged."""
    async with sqlite_stage.world() as world:
        await key_of(world)
        async with site_of(world.segue) as site, site.socket(path) as socket:
            await asyncio.wait_for(socket.wait_closed(), PATIENCE)
            assert socket.close_code == 4401
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []

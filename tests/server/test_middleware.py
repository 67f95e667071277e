"""What happens to every request: how much of it is read, and what is logged and counted of it."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from segue.errors import BackendError
from segue.facade import Segue
from segue.server.app import create_app
from segue.server.auth import USER_HEADER
from segue.server.middleware import REQUEST_ID
from segue.server.problems import MEDIA_TYPE
from segue.server.serving import open_socket
from segue.server.settings import ServerSettings
from segue.settings import Settings
from segue.simulate.world import Stage
from tests.server.clients import site_of

pytestmark = pytest.mark.anyio

SMALL = ServerSettings(rate_per_minute=None, max_body_bytes=1_000)


async def _in_pieces(size: int) -> AsyncIterator[bytes]:
    for _ in range(0, size, 100):
        yield b" " * 100


async def test_a_body_that_is_too_big_is_refused(sqlite_stage: Stage) -> None:
    """By its length before it is read, and where no length is given, when it has become too big."""
    async with sqlite_stage.world() as world, site_of(world.segue, SMALL) as site:
        thread = await site.new_thread()
        path = f"/api/threads/{thread}/messages"
        headers = {"Content-Type": "application/json", REQUEST_ID: "mine-1"}
        for body in (b" " * 1_001, _in_pieces(1_100)):
            refused = await site.http.post(path, content=body, headers=headers)
            assert refused.status_code == 413
            assert refused.headers["content-type"] == MEDIA_TYPE
            assert refused.headers[REQUEST_ID] == "mine-1"
            told = refused.json()
            assert (told["code"], told["status"]) == ("too_big", 413)
            assert told["title"] == HTTPStatus.REQUEST_ENTITY_TOO_LARGE.phrase
            assert "1000 bytes" in told["detail"]
        fits = b'{"content": "Hi"}'.ljust(1_000)
        assert (await site.http.post(path, content=fits, headers=headers)).status_code == 202


async def test_nobody_writes_into_the_log_or_makes_up_counters(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A path is logged as it was sent, on one line; of methods only the known have names."""
    caplog.set_level(logging.INFO, logger="segue.server.middleware")
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        forged = "/api/threads/x%0A2027-01-15%20error%20all%20is%20lost?q=secret"
        assert (await site.http.get(forged)).status_code == 404
        assert (await site.http.request("LEGION", "/api/threads")).status_code == 405
        numbers = (await site.http.get("/metrics")).text
    said = [record.getMessage() for record in caplog.records]
    assert not any("\n" in line or "secret" in line or "LEGION" in line for line in said)
    assert any("GET /api/threads/x%0A2027-01-15%20error" in line for line in said)
    assert "LEGION" not in numbers
    assert 'method="other"' in numbers
    assert 'route="/api/threads/{thread_id}"' in numbers
    assert "lost" not in numbers


async def test_a_socket_is_logged_without_its_query(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Some clients put a key there."""
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws?since=0&key=secret"):
            pass
    lines = [record.getMessage() for record in caplog.records if "WebSocket" in record.msg]
    assert [f"/api/threads/{thread}/ws" in line for line in lines] == [True]
    assert "secret" not in caplog.text


async def test_a_header_names_the_same_user_as_a_token(sqlite_stage: Stage) -> None:
    """In UTF-8; what is not is refused."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        name = USER_HEADER.encode()
        me = await site.http.get("/api/me", headers={name: "Zoë".encode()})
        assert me.json()["user_id"] == "Zoë"
        refused = await site.http.get("/api/me", headers={name: "Zoë".encode("latin-1")})
        assert (refused.status_code, refused.json()["code"]) == (400, "user")


async def test_what_a_caller_calls_a_request_is_kept_if_it_is_sane(sqlite_stage: Stage) -> None:
    """An id of the caller's own comes back, and stands in a problem; nonsense gets a new one."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        for given in ("abc-1.2_3", "a b", "x" * 65, ""):
            answer = await site.http.get("/api/threads/0", headers={REQUEST_ID: given})
            kept = answer.headers[REQUEST_ID]
            assert (kept == given) is (given == "abc-1.2_3")
            assert answer.json()["request_id"] == kept


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_every_connection_sends_at_once(host: str) -> None:
    """Without this a small frame waits for the client's receipt of the one before, 40 ms long."""
    delays: list[int] = []

    async def served(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        delays.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    bound = open_socket(ServerSettings(host=host, port=0))
    async with await asyncio.start_server(served, sock=bound):
        reader, writer = await asyncio.open_connection(*bound.getsockname()[:2])
        await reader.read()
        writer.close()
    assert delays == [1]


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("203.0.113.5", {}, 403),
        ("203.0.113.5", {"Host": "localhost"}, 403),
        ("127.0.0.1", {"X-Forwarded-For": "203.0.113.5"}, 403),
        ("127.0.0.1", {"Forwarded": "for=203.0.113.5"}, 403),
    ],
)
async def test_without_keys_only_this_machine_is_answered(
    sqlite_stage: Stage, peer: str, headers: dict[str, str], status: int
) -> None:
    """Whatever name the caller gives the server, and whoever passes the call on."""
    async with sqlite_stage.world() as world:
        through = httpx.ASGITransport(create_app(world.segue), client=(peer, 5))
        async with httpx.AsyncClient(transport=through, base_url="http://127.0.0.1") as client:
            assert (await client.get("/api/me", headers=headers)).status_code == status


async def test_an_app_in_another_one_says_what_it_needs(sqlite_stage: Stage) -> None:
    """Nobody tells a mounted app when to start: it works with an open Segue, else it says why."""
    async with sqlite_stage.world() as world:
        outer = FastAPI()
        outer.mount("/open", create_app(world.segue))
        outer.mount("/shut", create_app(lambda: Segue.open(Settings())))
        through = httpx.ASGITransport(outer, client=("127.0.0.1", 5))
        async with httpx.AsyncClient(transport=through, base_url="http://127.0.0.1") as client:
            assert (await client.get("/open/api/me")).status_code == 200
            refused = await client.get("/shut/api/me")
    assert refused.status_code == 503
    assert "never started" in refused.json()["detail"]


async def test_what_a_database_says_is_not_told_to_the_caller(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may name hosts and files: the log has it, and the caller is told to try again."""

    async def away(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise BackendError("PostgreSQL: db.internal does not answer. Nothing was written.")

    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        monkeypatch.setattr(world.journal.threads, "list_of", away)
        refused = await site.http.get("/api/threads")
    assert refused.status_code == 503
    assert "try again" in refused.json()["detail"]
    assert "db.internal" not in refused.text
    assert "db.internal" in caplog.text


async def test_a_server_that_cannot_write_is_not_ready(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk can still be read: who asks whether it is ready wants to know of writing."""

    async def full(*_: Any, **__: Any) -> None:
        raise BackendError("The disk is full.")

    async with stage.world() as world, site_of(world.segue) as site:
        assert (await site.http.get("/readyz")).status_code == 200
        monkeypatch.setattr(world.journal.nodes, "extend", full)
        assert (await site.http.get("/readyz")).status_code == 503
        monkeypatch.undo()
        assert (await site.http.get("/readyz")).status_code == 200


async def test_a_mounted_app_has_the_same_limits(sqlite_stage: Stage) -> None:
    """Of an import, which may be large, and of a hook, whose sender is not known yet."""
    async with sqlite_stage.world() as world:
        outer = FastAPI()
        outer.mount("/chat", create_app(world.segue))
        through = httpx.ASGITransport(outer, client=("127.0.0.1", 5))
        large, json = b" " * 1_000_001, {"Content-Type": "application/json"}
        async with httpx.AsyncClient(transport=through, base_url="http://127.0.0.1/chat") as http:
            read = await http.post("/api/admin/import", content=large, headers=json)
            refused = await http.post("/api/hooks/shop", content=large[:100_001], headers=json)
    assert (read.status_code, refused.status_code) == (422, 413)

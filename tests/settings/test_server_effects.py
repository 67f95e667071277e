"""What the settings of the server do, where no other test has to do with them."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from pydantic import SecretStr
from websockets.exceptions import ConnectionClosed

from segue.runtime.clock import SystemClock
from segue.server.settings import JwtSettings, ServedSettings, ServerSettings
from segue.settings import load_settings
from segue.simulate.world import Stage, plain_agent
from tests.cli.conftest import Segue, segue
from tests.server.clients import frames_until, site_of

pytestmark = pytest.mark.anyio

__all__ = ["segue"]
SECRET = "at least thirty-two characters long, as it has to be"  # noqa: S105  # it opens nothing
PAGE = "https://page.example.org"


async def test_pages_of_origins_that_are_named_may_call(stage: Stage) -> None:
    """The browser is told so, and of other origins nothing."""
    settings = ServerSettings(rate_per_minute=None, cors_origins=(PAGE,))
    async with stage.world() as world, site_of(world.segue, settings) as site:
        answers = {
            origin: await site.http.get("/api/agents", headers={"Origin": origin})
            for origin in (PAGE, "https://other.example.org")
        }
    told = [a.headers.get("access-control-allow-origin") for a in answers.values()]
    assert [a.status_code for a in answers.values()] == [200, 403]
    assert told == [PAGE, None]


async def test_without_keys_only_names_that_are_allowed_lead_here(stage: Stage) -> None:
    """Those of this machine, and what is set."""
    settings = ServerSettings(rate_per_minute=None, allowed_hosts=("segue.test",))
    async with stage.world() as world, site_of(world.segue, settings) as site:
        for host, status in (("segue.test", 200), ("other.test", 403), ("localhost", 200)):
            answer = await site.http.get("/api/agents", headers={"Host": host})
            assert answer.status_code == status, host


@pytest.mark.parametrize("strange", [{"Host": "["}, {"Origin": "http://["}, {"Host": "[x]"}])
async def test_what_is_no_address_is_no_name_of_this_machine(
    sqlite_stage: Stage, strange: dict[str, str]
) -> None:
    """It is refused as any strange name is."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        answer = await site.http.get("/api/agents", headers=strange)
    assert (answer.status_code, answer.json()["code"]) == (403, next(iter(strange)).lower())


async def test_more_requests_than_the_rate_allows_have_to_wait(stage: Stage) -> None:
    """Of one user; another has a rate of its own."""
    settings = ServerSettings(rate_per_minute=2)
    async with stage.world() as world, site_of(world.segue, settings) as site:
        asked = [await site.http.get("/api/agents") for _ in range(3)]
        other = await site.http.get("/api/agents", headers={"Segue-User": "bob"})
    assert [answer.status_code for answer in asked] == [200, 200, 429]
    assert int(asked[2].headers["Retry-After"]) > 0
    assert other.status_code == 200


async def test_frames_count_as_requests_do(stage: Stage) -> None:
    """One too many is answered with an error, and the socket stays open."""
    settings = ServerSettings(rate_per_minute=2)
    async with stage.world() as world, site_of(world.segue, settings) as site:
        thread = await world.segue.create_thread("me")
        async with site.socket(f"/api/threads/{thread.id}/ws") as socket:
            heard = []
            for _ in range(3):
                await socket.send('{"type": "ping"}')
                heard.append(json.loads(await socket.recv()))
    assert [frame["type"] for frame in heard] == ["pong", "error", "error"]
    assert {frame["code"] for frame in heard[1:]} == {"rate"}


async def test_a_user_holds_so_many_sockets_and_no_more(stage: Stage) -> None:
    """The next one is closed with its reason; when one goes, there is room again."""
    settings = ServerSettings(rate_per_minute=None, max_sockets_per_user=1)
    ping = '{"type": "ping"}'
    async with stage.world() as world, site_of(world.segue, settings) as site:
        path = f"/api/threads/{await site.new_thread()}/ws"
        async with site.socket(path) as first:
            await first.send(ping)
            assert "pong" in str(await first.recv())
            async with site.socket(path) as second:
                with pytest.raises(ConnectionClosed):
                    await second.recv()
                assert second.close_code == 4429
        # The server hears a moment later that the first one is gone.
        while True:
            async with site.socket(path) as third:
                try:
                    await third.send(ping)
                    assert "pong" in str(await third.recv())
                    break
                except ConnectionClosed:
                    assert third.close_code == 4429


async def test_sockets_and_streams_of_a_user_are_counted_together(stage: Stage) -> None:
    """A stream beyond the bound is refused, an answer as a stream before anything is stored."""
    settings = ServerSettings(rate_per_minute=None, max_sockets_per_user=1)
    async with stage.world() as world, site_of(world.segue, settings) as site:
        path = f"/api/threads/{await site.new_thread()}"
        as_events, body = {"Accept": "text/event-stream"}, {"content": "Hello"}
        async with site.http.stream("GET", f"{path}/events"):
            async with site.socket(f"{path}/ws") as socket:
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
                assert socket.close_code == 4429
            for refused in (
                await site.http.get(f"{path}/events"),
                await site.http.post(f"{path}/messages", json=body, headers=as_events),
            ):
                assert (refused.status_code, refused.json()["code"]) == (429, "sockets")
            assert (await site.get(f"{path}/history"))["items"] == []
            await site.post(f"{path}/messages", body)
        # The server hears a moment later that the stream is gone.
        status = 429
        while status == 429:
            async with site.http.stream("GET", f"{path}/events") as again:
                status = again.status_code
        assert status == 200


async def test_a_message_has_so_many_blocks_and_no_more(stage: Stage) -> None:
    """By HTTP and by socket; nothing looks at them before they are counted."""
    settings = ServerSettings(rate_per_minute=None, max_content_blocks=2)
    async with stage.world() as world, site_of(world.segue, settings) as site:
        path = f"/api/threads/{await site.new_thread()}"
        # None of these is a block; whoever looked at one would say so.
        body: dict[str, Any] = {"content": [None, None, None]}
        refused = await site.http.post(f"{path}/messages", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "content_blocks")
        async with site.socket(f"{path}/ws") as socket:
            await socket.send(json.dumps({"type": "message", **body}))
            [error] = await frames_until(socket, "error")
            assert error["code"] == "content_blocks"
        await site.post(f"{path}/messages", {"content": ["Hello", "there"]})


async def test_who_listens_gets_signs_of_life_as_often_as_it_is_set(stage: Stage) -> None:
    """So that no proxy takes a quiet stream for a dead one."""
    settings = ServerSettings(rate_per_minute=None, ping_every=timedelta(milliseconds=5))
    async with stage.world() as world, site_of(world.segue, settings) as site:
        path = f"/api/threads/{await site.new_thread()}/events"
        async with site.http.stream("GET", path) as answer:
            heard = answer.aiter_lines()
            assert [await anext(heard) for _ in range(4)][::2] == [": listening", ": still here"]
            await heard.aclose()  # type: ignore[attr-defined] # typed as an iterator


def test_lines_below_the_level_are_not_written(segue: Segue, tmp_path: Path) -> None:
    """Of a server that does not even open, nothing but what is told at its end."""
    for level in ("info", "error"):
        (tmp_path / "segue.toml").write_text(
            f"[agents.ada]\nmodel = 'nobody:x'\n[server]\nport = 0\nlog_level = '{level}'\n",
            encoding="utf-8",
        )
        lines = segue("serve").stderr.splitlines()
        assert any("[info" in line for line in lines) is (level == "info")
        assert lines[-1].startswith("Error: ")


def token(algorithm: str = "HS256", late: int = -3_600, **claims: Any) -> str:
    """One that has an hour left, or ended so many seconds ago."""
    expires = int(SystemClock().now().timestamp()) - late
    return jwt.encode({"sub": "ann", "exp": expires, **claims}, SECRET, algorithm)


@pytest.mark.parametrize(
    ("given", "shown", "is_let_in"),
    [
        ({}, {}, True),
        ({}, {"algorithm": "HS384"}, False),
        ({"algorithms": ("HS384",)}, {"algorithm": "HS384"}, True),
        ({"algorithms": ("HS384",)}, {}, False),
        ({}, {"late": 120}, False),
        ({"leeway": "1h"}, {"late": 120}, True),
        ({"user_claim": "email"}, {}, False),
        ({"user_claim": "email"}, {"email": "ann@example.org"}, True),
        ({"audience": "segue"}, {}, False),
        ({"audience": "segue"}, {"aud": "segue"}, True),
        ({"issuer": "us"}, {"iss": "them"}, False),
        ({"issuer": "us"}, {"iss": "us"}, True),
    ],
)
async def test_tokens_are_read_as_it_is_set(
    stage: Stage, given: dict[str, Any], shown: dict[str, Any], *, is_let_in: bool
) -> None:
    """By algorithm, clock, audience, issuer, and the claim that names the user."""
    settings = ServerSettings(jwt=JwtSettings(secret=SecretStr(SECRET), **given))
    async with stage.world() as world, site_of(world.segue, settings) as site:
        assert (await site.http.get("/api/agents")).status_code == 401
        headers = {"Authorization": f"Bearer {token(**shown)}"}
        answer = await site.http.get("/api/agents", headers=headers)
    assert answer.status_code == (200 if is_let_in else 401)


@pytest.mark.parametrize(("claim", "status"), [("scope", 403), ("roles", 200)])
async def test_operators_are_told_by_the_claim_that_is_set(
    stage: Stage, claim: str, status: int
) -> None:
    """By no other."""
    settings = ServerSettings(jwt=JwtSettings(secret=SecretStr(SECRET), scope_claim=claim))
    headers = {"Authorization": f"Bearer {token(roles=['operator'])}"}
    async with stage.world() as world, site_of(world.segue, settings) as site:
        answer = await site.http.get("/api/admin/dead-letters", headers=headers)
    assert answer.status_code == status


async def test_agents_are_listed_by_the_names_that_people_know(stage: Stage) -> None:
    """One without a name by its id."""
    agents = plain_agent("ada", name="Ada Lovelace"), plain_agent("bob")
    async with stage.world(*agents) as world, site_of(world.segue) as site:
        listed = (await site.get("/api/agents"))["items"]
    assert [(each["id"], each["name"]) for each in listed] == [
        ("ada", "Ada Lovelace"),
        ("bob", "bob"),
    ]


def test_the_servers_lists_come_from_the_environment() -> None:
    """With commas, as all lists do."""
    environ = {"SEGUE_SERVER__CORS_ORIGINS": f"{PAGE}, https://b.example.org"}
    server = load_settings(environ=environ, kind=ServedSettings).server
    assert server.cors_origins == (PAGE, "https://b.example.org")

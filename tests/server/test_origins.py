"""Without keys, a server is its machine's own: pages of others cannot use it behind one's back."""

import pytest
from websockets.exceptions import ConnectionClosed

from segue.server.auth import new_key
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage
from tests.server.clients import Site, site_of

pytestmark = pytest.mark.anyio

PAGE = "http://localhost:3000"
CROSS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


def own(site: Site) -> str:
    return site.address.rstrip("/")


async def status(site: Site, path: str, **headers: str) -> int:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await site.http.get(path, headers=given)).status_code


async def test_another_port_is_another_page(sqlite_stage: Stage) -> None:
    """Scheme, host and port have to fit, or the settings have to name the page."""
    settings = ServerSettings(rate_per_minute=None, cors_origins=("https://friend.example",))
    async with sqlite_stage.world() as world, site_of(world.segue, settings) as site:
        port = own(site).rpartition(":")[2]
        for origin in (own(site), "https://friend.example"):
            assert await status(site, "/api/threads", Origin=origin) == 200
        others = (PAGE, f"https://127.0.0.1:{port}", f"http://localhost:{port}", "null", "")
        for origin in others:
            assert await status(site, "/api/threads", Origin=origin) == 403, origin


async def test_a_page_that_hides_its_origin_is_known_by_its_site(sqlite_stage: Stage) -> None:
    """Pictures and scripts come without an origin; to follow a link is one's own wish."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        for path in ("/api/threads", "/metrics", "/"):
            assert (await site.http.get(path, headers=CROSS)).status_code == 403, path
            is_page = not path.startswith("/api")
            linked = (await site.http.get(path, headers=LINK)).status_code
            assert linked == (200 if is_page else 403), path
        posted = await site.http.post("/api/threads", json={}, headers=LINK)
        assert posted.status_code == 403


async def test_a_socket_of_another_page_is_closed(sqlite_stage: Stage) -> None:
    """Sockets are not bound by CORS: only the server can refuse them."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        path = f"/api/threads/{await site.new_thread()}/ws"
        async with site.socket(path, additional_headers={"Origin": own(site)}) as socket:
            await socket.send('{"type": "ping"}')
        async with site.socket(path, additional_headers={"Origin": PAGE}) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4403


@pytest.mark.parametrize("path", ["/", "/docs", "/metrics", "/api/threads"])
async def test_a_name_that_leads_here_opens_nothing(sqlite_stage: Stage, path: str) -> None:
    """A page may point a name of its own at this machine; with keys, names do not matter."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        assert await status(site, path, Host="evil.example") == 403
        assert await status(site, path) == 200
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        key, words = new_key("laptop", "ann", world.clock.now())
        await world.journal.keys.add(key)
        bearer = f"Bearer {words}"
        assert await status(site, path, Host="proxy.example", Authorization=bearer) == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_an_import_is_no_form(sqlite_stage: Stage, kind: str) -> None:
    """What a page of another origin can send without asking is not taken for an export."""
    headers = {"Content-Type": kind} if kind else {}
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        refused = await site.http.post("/api/admin/import", content=b"{}", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (415, "media_type")


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/threads", "/nowhere"])
async def test_browsers_are_told_to_keep_answers_to_themselves(
    sqlite_stage: Stage, path: str
) -> None:
    """Every answer says that it is what it says, and for this server's own pages."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        headers = (await site.http.get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"


async def test_a_page_of_an_allowed_origin_uses_clients_as_they_are(sqlite_stage: Stage) -> None:
    """OpenAI's sends headers of its own and reads whether to try again; errors can be read."""
    settings = ServerSettings(rate_per_minute=None, cors_origins=(PAGE,), max_body_bytes=1_000)
    async with sqlite_stage.world() as world, site_of(world.segue, settings) as site:
        path, origin = "/v1/chat/completions", {"Origin": PAGE}
        asked = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,x-stainless-lang,idempotency-key",
        }
        allowed = await site.http.options(path, headers=origin | asked)
        assert allowed.status_code == 200, allowed.text
        large = await site.http.post(path, content=b" " * 1_001, headers=origin)
        assert large.status_code == 413
        assert large.headers["Access-Control-Allow-Origin"] == PAGE
        readable = large.headers["Access-Control-Expose-Headers"].split(", ")
        assert {"Retry-After", "X-Should-Retry", "Segue-Thread", "Location"} <= {*readable}

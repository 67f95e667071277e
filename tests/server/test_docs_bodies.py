"""What the server's page tells to send can be sent, and its programs run."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from segue.server.app import create_app
from segue.server.socket import parse_frame
from segue.simulate.world import Stage, plain_agent
from tests.runtime.scenes import always
from tests.server.clients import Site, site_of
from tests.server.doors import doors

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (?:`([A-Z]+) (/\S+)` )?\| `(\{.*?\})`[^`|]*(?:`[^`]*`[^`|]*)*\|$", re.MULTILINE
)
FRAME = re.compile(r'`(\{"type": .*?\})`')
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def bodies() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and body of each example; a row without a route is one more of the last."""
    method = path = ""
    for row in ROW.finditer(PAGE):
        method, path = row[1] or method, row[2] or path
        yield method, path, json.loads(row[3])


async def test_every_body_on_the_page_is_taken(sqlite_stage: Stage) -> None:
    """A reader who copies one gets no refusal; of an answer, that nobody asked for it, of an event,
    that it is not signed, and of a simulation, that there is no such thread.
    """
    guide = plain_agent(memory={})
    async with (
        sqlite_stage.world(guide, models={"guide": always("Fine.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        for method, path, body in bodies():
            url = path.format(thread_id=thread, key="hobby", source="shop")
            answer = await site.http.request(method, url, json=body)
            is_unasked = path.endswith(("/answer", "/simulations")) and answer.status_code == 404
            is_unsigned = "/hooks/" in path and answer.status_code == 401
            assert answer.is_success or is_unasked or is_unsigned, (method, path, answer.text)
            if (method, path) == ("DELETE", "/api/me"):  # which took the thread, too
                thread = await site.new_thread()
            await world.clock.settle()


def test_every_route_that_takes_a_body_has_one_on_the_page() -> None:
    """A new one is not forgotten."""

    async def never() -> None:
        raise AssertionError

    app = create_app(never)  # type: ignore[arg-type] # nobody opens it
    taking = {f"{door.method} {re.sub(':path', '', door.path)}" for door in doors(app) if door.body}
    assert taking == {f"{method} {path}" for method, path, _ in bodies()}


def test_every_frame_on_the_page_can_be_sent() -> None:
    """Each kind of frame is shown, as a client may send it."""
    shown = {parse_frame(text).type for text in FRAME.findall(PAGE)}
    assert shown == {"message", "cancel", "typing", "ping", "answer"}


@pytest.mark.parametrize("body", [None, b"", b"{}"])
async def test_a_thread_begins_without_a_body(sqlite_stage: Stage, body: bytes | None) -> None:
    """As with an empty one: with the first agent, and no title."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        as_json = {"Content-Type": "application/json"}
        made = await site.http.post("/api/threads", content=body, headers=as_json)
        assert (made.status_code, made.json()["agent_id"]) == (201, "guide")


@pytest.mark.parametrize("is_guarded", [False, True])
async def test_segue_lives_inside_another_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    """The page's programs: routes answer under the mount, to those whom the app knows, and turns
    are counted.
    """
    monkeypatch.chdir(tmp_path)
    programs = [each for each in PROGRAM.findall(PAGE) if "app.mount" in each]
    [program] = [each for each in programs if ("authenticate=" in each) == is_guarded]
    scope: dict[str, Any] = {}
    exec(compile(program, "docs/server.md", "exec"), scope)  # noqa: S102 - our own page
    app: FastAPI = scope["app"]
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/chat") as client,
    ):
        site = Site("", client)
        assert (await site.get("/readyz"))["status"] == "ready"
        stranger = await client.get("/api/threads")
        assert stranger.status_code == (401 if is_guarded else 200)
        client.cookies.set("session", "s-1")
        thread = await site.new_thread()
        told = await client.post(
            f"/api/threads/{thread}/messages",
            json={"content": "I want to learn the guitar."},
            headers={"Accept": "text/event-stream"},
        )
        assert "guitar?" in told.text
        counted = (await client.get("/metrics")).text
        assert 'segue_turns_total{agent="ada",origin="reply",state="done"} 1.0' in counted

"""Exports, imports and the deletion of oneself over HTTP."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.server.auth import new_key
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage, World, plain_agent
from tests.runtime.scenes import lines
from tests.server.clients import Site, as_user, site_of
from tests.transfer.files import Lines, sealed

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]

ANN, BOB = as_user("ann"), as_user("bob")
FOLLOW_UP = "Are you still there?"
SOON = {"delays": {"check_in": 60}, "policy": {"cooldown": 0, "max_consecutive": 1}}
CONFIRMED = {"confirm": "delete everything"}


@asynccontextmanager
async def served(
    stage: Stage, settings: ServerSettings | None = None
) -> AsyncIterator[tuple[World, Site]]:
    """A server on which Ann has talked, got a follow-up, and told of herself; and Bob talked."""
    model = lines("Hello!", FOLLOW_UP, then="Fine.")
    guide = plain_agent(memory={}, autonomy=SOON)
    async with (
        stage.world(guide, models={"guide": model}) as world,
        site_of(world.segue, settings) as site,
    ):
        yield world, site


async def talk(world: World, site: Site, headers: dict[str, str], words: str) -> str:
    thread: str = (await site.post("/api/threads", {}, headers=headers))["id"]
    path = f"/api/threads/{thread}/messages"
    await site.post(path, {"content": words}, headers=headers)
    await world.clock.settle()
    return thread


async def move_in(world: World, site: Site) -> tuple[str, str]:
    ann = await talk(world, site, ANN, "Hello, I am Ann.")
    await world.pass_time(hours=1)
    await site.post("/api/memories", {"content": "Ann plays chess."}, headers=ANN)
    await site.http.patch("/api/me", json={"time_zone": "Europe/Oslo"}, headers=ANN)
    return ann, await talk(world, site, BOB, "Hello, I am Bob.")


async def lines_from(site: Site, path: str, **given: Any) -> list[dict[str, Any]]:
    answer = await site.http.get(path, **given)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/jsonl"
    assert "attachment" in answer.headers["content-disposition"]
    return [json.loads(line) for line in answer.content.splitlines()]


async def test_a_user_takes_their_own_with_them(stage: Stage) -> None:
    """One thread or all they have, with follow-ups and without their triggers."""
    async with served(stage) as (world, site):
        ann, _ = await move_in(world, site)
        one = await lines_from(site, f"/api/threads/{ann}/export", headers=ANN)
        every = await lines_from(site, "/api/export", headers=ANN)
    texts = [line["text"] for line in one if line["type"] == "message"]
    assert texts == ["Hello, I am Ann.", "Hello!", FOLLOW_UP]
    assert {line["type"] for line in every} > {"memory", "preferences"}
    for told in (one, every):
        words = json.dumps(told)
        assert "Bob" not in words
        assert not [prompt for prompt in TRIGGER_PROMPTS.values() if prompt in words]
    assert one[0]["kind"] == "user"
    assert one[-1]["counts"] == {"message": 3, "thread": 1}


async def test_an_operator_moves_everything_elsewhere(stage: Stage) -> None:
    """What is exported, deleted and imported is there again, and the next export is the same."""
    async with served(stage) as (world, site):
        ann, _ = await move_in(world, site)
        before = await site.http.get("/api/admin/export")
        assert TRIGGER_PROMPTS[TriggerType.CHECK_IN] in before.text
        history = await site.get(f"/api/threads/{ann}/history", headers=ANN)
        refused = await import_(site, before.content)
        assert refused.status_code == 409
        tried = await import_(site, before.content, skip_existing=True, dry_run=True)
        assert len(tried.json()["skipped"]) == 2
        for headers in (ANN, BOB):
            gone = await site.http.request("DELETE", "/api/me", json=CONFIRMED, headers=headers)
            assert gone.status_code == 200
        assert (await site.http.get(f"/api/threads/{ann}", headers=ANN)).status_code == 404
        came = (await import_(site, before.content)).json()
        assert came["imported"]["threads"] == 2
        assert await site.get(f"/api/threads/{ann}/history", headers=ANN) == history
        after = await site.http.get("/api/admin/export")
        assert after.content == before.content
        copied = (await import_(site, before.content, remap=True, skip_existing=True)).json()
        copy = copied["renamed"][ann]
        assert copy != ann
        told = await site.get(f"/api/threads/{copy}/history", headers=ANN)
        assert [m["text"] for m in told["items"]] == [m["text"] for m in history["items"]]


async def test_what_came_in_is_gone_on_with_at_once(stage: Stage) -> None:
    """A follow-up that waited in the file comes at its time, without a restart."""
    async with served(stage) as (world, site):
        ann = await talk(world, site, ANN, "Hello, I am Ann.")
        exported = await site.http.get("/api/admin/export", params={"thread": ann})
        await site.http.delete(f"/api/threads/{ann}", headers=ANN)
        await world.pass_time(hours=1)
        assert (await import_(site, exported.content)).status_code == 200
        await world.clock.settle()
        assert await world.heard(ann) == ["Hello, I am Ann.", "Hello!", FOLLOW_UP]


async def test_a_broken_file_is_refused_with_its_line(stage: Stage) -> None:
    """As a problem with a code of its own, and nothing comes in."""
    async with served(stage) as (world, site):
        await move_in(world, site)
        before = await site.http.get("/api/admin/export")
        for body, words in ((before.content[:-9], "is cut off"), (b"", "not complete")):
            refused = await import_(site, body)
            assert refused.status_code == 422
            assert refused.json()["code"] == "export_format"
            assert words in refused.json()["detail"]
        assert (await site.http.get("/api/admin/export")).text == before.text
        unknown = await site.http.get("/api/admin/export", params={"thread": "nowhere"})
        assert unknown.status_code == 404


async def forged(site: Site, change: Callable[[Lines], Any]) -> bytes:
    """An export with something changed in it, whole and with the right sum."""
    lines = await lines_from(site, "/api/admin/export")
    change(lines)
    await site.http.request("DELETE", "/api/me", json=CONFIRMED, headers=ANN)
    return sealed(lines)


def with_address(lines: Lines) -> None:
    [said, *_] = [line["messages"][0] for line in lines if line["type"] == "batch"]
    picture = {"type": "image_url", "image_url": {"url": "https://10.0.0.1/x.png"}}
    said["message"]["data"]["content"] = [picture]


def without_turns(lines: Lines) -> None:
    lines[:] = [line for line in lines if line["type"] not in ("turn", "decision", "timer")]


async def test_only_a_trusted_import_brings_addresses(stage: Stage) -> None:
    """A client of a provider would fetch them from here, as it would those of a user."""
    async with served(stage) as (world, site):
        await talk(world, site, ANN, "Hello, I am Ann.")
        body = await forged(site, with_address)
        refused = await import_(site, body)
        assert refused.status_code == 422
        assert "address in 'url'" in refused.json()["detail"]
        assert (await import_(site, body, trusted=True)).status_code == 200


async def test_a_message_that_came_in_without_its_turn_can_be_sent_again(stage: Stage) -> None:
    """Its client gets the answer of any message that was stored before."""
    async with served(stage) as (world, site):
        thread = await talk(world, site, ANN, "Hello!")
        path, again = f"/api/threads/{thread}/messages", {"content": "Hi", "client_message_id": "m"}
        first = await site.post(path, again, headers=ANN)
        await world.clock.settle()
        body = await forged(site, without_turns)
        assert (await import_(site, body)).status_code == 200
        accepted = await site.post(path, again, headers=ANN)
        assert not accepted["is_new"]
        assert accepted["message"] == {**first["message"], "state": "answered"}


async def test_an_import_has_a_size_of_its_own(sqlite_stage: Stage) -> None:
    """It may be larger than other requests, up to its setting, announced or not."""
    settings = ServerSettings(rate_per_minute=None, max_body_bytes=2_000, max_import_bytes=50_000)
    async with served(sqlite_stage, settings) as (world, site):
        await move_in(world, site)
        exported = (await site.http.get("/api/admin/export")).content
        assert 2_000 < len(exported) < 50_000
        assert (await import_(site, exported, skip_existing=True)).status_code == 200

        async def in_pieces() -> AsyncIterator[bytes]:
            for _ in range(501):
                yield b"x" * 100

        for body in (b"x" * 50_001, in_pieces()):
            assert (await import_(site, body)).status_code == 413


async def test_one_deletes_oneself_only_if_one_means_it(stage: Stage) -> None:
    """Without the words nothing happens; with them all is gone, and others keep theirs."""
    async with served(stage) as (world, site):
        ann, bob = await move_in(world, site)
        for body in (None, {}, {"confirm": "yes"}):
            refused = await site.http.request("DELETE", "/api/me", json=body, headers=ANN)
            assert refused.status_code == 422
        assert (await site.http.get(f"/api/threads/{ann}", headers=ANN)).status_code == 200
        gone = await site.http.request("DELETE", "/api/me", json=CONFIRMED, headers=ANN)
        counted = gone.json()["deleted"]
        assert [counted[name] for name in ("threads", "messages", "turns")] == [1, 4, 2]
        assert [counted[name] for name in ("memories", "users", "api_keys")] == [1, 1, 0]
        left = [line["type"] for line in await lines_from(site, "/api/export", headers=ANN)]
        assert left == ["header", "footer"]
        assert len(await world.heard(bob)) == 2


async def test_who_deleted_themselves_does_not_open_the_server(sqlite_stage: Stage) -> None:
    """The last key of a server opens nothing any more, and without one nobody gets in."""
    async with sqlite_stage.world() as world:
        key, words = new_key("phone", "ann", world.clock.now())
        await world.journal.keys.add(key)
        async with site_of(world.segue) as site:
            headers = {"Authorization": f"Bearer {words}"}
            gone = await site.http.request("DELETE", "/api/me", json=CONFIRMED, headers=headers)
            assert gone.status_code == 200
        async with site_of(world.segue) as site:  # which has not seen the key before
            for given in ({}, headers):
                assert (await site.http.get("/api/me", headers=given)).status_code == 401


async def import_(site: Site, body: Any, **how: bool) -> httpx.Response:
    given = {name: "true" for name, is_set in how.items() if is_set}
    headers = {"Content-Type": "application/jsonl"}
    return await site.http.post("/api/admin/import", content=body, params=given, headers=headers)

"""Who may call the wire, from where, and what they see of others: nothing."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import AuthenticationError
from websockets.asyncio.client import connect

from segue.server.app import create_app
from segue.server.auth import new_key
from segue.server.langgraph import REFUSED
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage, World, plain_agent
from tests.runtime.scenes import echo, lines
from tests.server.clients import Site, site_of
from tests.server.doors import Door, all_doors
from tests.server.langgraph.scenes import ASSISTANT, said, texts

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]
TOPIC = "xylophone"
BODIES: dict[str, Any] = {
    "runs": {"assistant_id": ASSISTANT, "input": said("x")},
    "stream": {"assistant_id": ASSISTANT, "input": said("x")},
    "wait": {"assistant_id": ASSISTANT, "input": said("x")},
    "crons": {"assistant_id": ASSISTANT, "input": said("x"), "schedule": "0 9 * * *"},
    "commands": {"id": 1, "method": "state.get", "params": {}},
    "events": {"channels": ["values"]},
    "checkpoint": {"checkpoint": {}},
}


@dataclass(frozen=True)
class Home:
    """A user's client, and what is theirs."""

    client: LangGraphClient
    key: str
    thread: str
    run: str
    cron: str


@dataclass(frozen=True)
class Town:
    world: World
    site: Site
    ann: Home
    bob: Home


@asynccontextmanager
async def town_of(stage: Stage) -> AsyncIterator[Town]:
    model = lines(*[echo] * 20)
    async with stage.world(plain_agent(memory={}), models={"guide": model}) as world:
        keys = {}
        for user in ("ann", "bob"):
            key, keys[user] = new_key(f"{user}'s phone", user, world.clock.now())
            await world.journal.keys.add(key)
        async with site_of(world.segue) as site:
            ann = await _move_in(site, keys["ann"], f"my {TOPIC}")
            bob = await _move_in(site, keys["bob"], "my bicycle")
            try:
                yield Town(world, site, ann, bob)
            finally:
                await ann.client.aclose()
                await bob.client.aclose()


async def _move_in(site: Site, key: str, about: str) -> Home:
    client = get_client(url=site.address, api_key=key)
    thread = (await client.threads.create(metadata={"about": about}))["thread_id"]
    await client.runs.wait(thread, ASSISTANT, input=said(f"Let us talk of {about}."))
    [run] = await client.runs.list(thread)
    await client.store.put_item(["memories"], about, {"content": f"Likes {about}."})
    cron: Any = await client.crons.create_for_thread(
        thread, ASSISTANT, schedule="0 9 * * *", input=said(f"Practise {about}.")
    )
    return Home(client, key, thread, run["run_id"], cron["cron_id"])


def wire_doors(app: FastAPI | None) -> list[Door]:
    assert app is not None
    found = [door for door in all_doors(app) if door.is_wire and door.method != "HEAD"]
    assert len(found) > 40
    return found


def fill(door: Door, thread: str, run: str, cron: str) -> str:
    return door.at(
        thread_id=thread,
        run_id=run,
        cron_id=cron,
        assistant_id=ASSISTANT,
        checkpoint_id="1",
    )


def body_of(door: Door) -> Any:
    return BODIES.get(door.path.rsplit("/", maxsplit=1)[-1], {}) if door.method != "GET" else None


def foreign(doors: list[Door]) -> Iterator[Door]:
    """The routes that name something of a user and are not refused anyway."""
    refused = {(method, path) for method, path, _ in REFUSED}
    for door in doors:
        if {*door.names} - {"assistant_id"} and (door.method, door.path) not in refused:
            yield door


async def test_anothers_things_are_as_if_they_were_not(stage: Stage) -> None:
    """Every route that names a thing: the same answer as for one that never was."""
    async with town_of(stage) as town:
        before = await _all_of(town.ann)
        headers = {"X-Api-Key": town.bob.key}
        nobody = "2255260483584009999"
        for door in foreign(wire_doors(town.site.app)):
            if door.method is None:
                continue
            answers = []
            for names in ((town.ann.thread, town.ann.run, town.ann.cron), (nobody,) * 3):
                # Bob's own thread does not have Ann's run either.
                for thread in {names[0], town.bob.thread} if "run_id" in door.names else {names[0]}:
                    path = fill(door, thread, *names[1:])
                    answer = await town.site.http.request(
                        door.method, path, headers=headers, json=body_of(door)
                    )
                    _check_nothing(door, answer)
                    answers.append(answer.status_code)
            assert len({*answers}) == 1, (door, answers)
        assert await _all_of(town.ann) == before


def _check_nothing(door: Door, answer: httpx.Response) -> None:
    assert TOPIC not in answer.text, door
    if door.path.endswith("/commands"):  # an error is an answer there
        assert answer.json()["type"] == "error", (door, answer.text)
    else:
        assert answer.status_code == 404, (door, answer.text)


async def _all_of(home: Home) -> list[Any]:
    client = home.client
    return [
        await client.threads.search(),
        await client.threads.get_state(home.thread),
        await client.runs.list(home.thread),
        await client.store.search_items(["memories"]),
        await client.crons.search(),
    ]


async def test_lists_hold_only_ones_own(sqlite_stage: Stage) -> None:
    """Threads, memories and reminders; and a socket of another's thread tells nothing."""
    async with town_of(sqlite_stage) as town:
        bob = town.bob.client
        assert [t["thread_id"] for t in await bob.threads.search()] == [town.bob.thread]
        assert await bob.threads.search(ids=[town.ann.thread]) == []
        assert await bob.threads.search(metadata={"about": f"my {TOPIC}"}) == []
        assert await bob.threads.count() == 1
        assert TOPIC not in str(await bob.store.search_items(["memories"]))
        assert TOPIC not in str(await bob.store.search_items(["memories"], query=TOPIC))
        assert [c["cron_id"] for c in await bob.crons.search()] == [town.bob.cron]
        url = f"{town.site.address.replace('http', 'ws', 1)}/threads/{town.ann.thread}"
        headers = {"X-Api-Key": town.bob.key}
        async with connect(f"{url}/stream/events", additional_headers=headers) as socket:
            for method in ("subscription.subscribe", "state.get"):
                params = f'{{"id":1,"method":"{method}","params":{{"channels":["values"]}}}}'
                await socket.send(params)
                told = str(await socket.recv())
                assert '"error"' in told
                assert TOPIC not in told


async def test_nobody_takes_anothers_thread_by_its_id(sqlite_stage: Stage) -> None:
    """A run that may create its thread does not write into another's."""
    own = "5d3f2b6e-1c1a-4b6f-9a53-0e8a5a7c1d11"
    async with town_of(sqlite_stage) as town:
        await town.ann.client.threads.create(thread_id=own)
        body = {"assistant_id": ASSISTANT, "input": said("Hi."), "if_not_exists": "create"}
        headers = {"X-Api-Key": town.bob.key}
        for path, given in (
            (f"/threads/{own}/runs/wait", body),
            ("/threads", {"thread_id": own, "if_exists": "do_nothing"}),
        ):
            answer = await town.site.http.post(path, headers=headers, json=given)
            assert answer.status_code == 409
        assert await town.world.heard(own) == []
        assert texts((await town.ann.client.threads.get_state(own))["values"]) == []


async def test_who_is_not_known_gets_in_nowhere(sqlite_stage: Stage) -> None:
    """Without a key or with a wrong one, on every route but the two that say nothing."""
    async with town_of(sqlite_stage) as town:
        for door in wire_doors(town.site.app):
            if door.path in {"/ok", "/info"} or door.method is None:
                continue
            path = fill(door, town.ann.thread, town.ann.run, town.ann.cron)
            for headers in ({}, {"X-Api-Key": "lsv2_of_another_service"}, {"X-Api-Key": "sgu_x"}):
                answer = await town.site.http.request(
                    door.method, path, headers=headers, json=body_of(door)
                )
                assert answer.status_code == 401, (door, headers)
                assert TOPIC not in answer.text
        stranger = get_client(url=town.site.address, api_key="sgu_x")
        with pytest.raises(AuthenticationError):
            await stranger.threads.search()
        await stranger.aclose()


async def test_a_key_of_another_service_is_ignored_where_none_is_needed(
    sqlite_stage: Stage,
) -> None:
    """Clients send what they find in the environment; a bearer of ours is still checked."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        client = get_client(url=site.address, api_key="lsv2_of_another_service")
        assert await client.threads.search() == []
        await client.aclose()
        wrong = await site.http.get("/api/me", headers={"X-Api-Key": "sgu_x"})
        assert wrong.status_code == 401


async def test_pages_of_allowed_origins_may_call_and_read_the_headers(sqlite_stage: Stage) -> None:
    """What the clients send is allowed, and where a run is can be read."""
    origin = "https://chat.example.com"
    settings = ServerSettings(rate_per_minute=None, cors_origins=(origin,))
    async with (
        sqlite_stage.world(models={"guide": lines(then="Hi.")}) as world,
        site_of(world.segue, settings) as site,
    ):
        asked = "x-api-key,x-auth-scheme,last-event-id,segue-live,content-type"
        headers = {
            "Origin": origin,
            "Access-Control-Request-Method": "PATCH",
            "Access-Control-Request-Headers": asked,
        }
        answer = await site.http.options("/threads/x", headers=headers)
        assert answer.status_code == 200, answer.text
        thread = (await site.post("/threads", {}, headers={"Origin": origin}))["thread_id"]
        body = {"assistant_id": ASSISTANT, "input": said("Hello")}
        run = await site.http.post(
            f"/threads/{thread}/runs/wait", json=body, headers={"Origin": origin}
        )
        assert "Content-Location" in run.headers["Access-Control-Expose-Headers"]
        assert run.headers["Content-Location"].startswith(f"/threads/{thread}/runs/")


async def test_the_wire_can_be_moved_and_switched_off(sqlite_stage: Stage) -> None:
    """`server.langgraph`: below a path of its own, or not at all."""
    settings = ServerSettings(rate_per_minute=None, langgraph="/langgraph")
    async with (
        sqlite_stage.world(models={"guide": lines(then="Hi.")}) as world,
        site_of(world.segue, settings) as site,
    ):
        assert (await site.http.post("/threads/search", json={})).status_code == 404
        client = get_client(url=f"{site.address}/langgraph", api_key=None)
        thread = (await client.threads.create())["thread_id"]
        assert texts(await client.runs.wait(thread, ASSISTANT, input=said("1"))) == ["1", "Hi."]
        stream = client.runs.stream(thread, ASSISTANT, input=said("2"))
        assert [part.event async for part in stream][-1] == "end"
        await client.aclose()
        off = create_app(world.segue, ServerSettings(langgraph=None))
        assert not [door for door in all_doors(off) if door.is_wire]

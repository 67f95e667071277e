"""No trigger ever shows on the LangGraph wire: the story with canaries, and every route of the
wire looked through for them, live and afterwards.
"""

import asyncio
import json
from typing import Any

import pytest
from langgraph_sdk import get_client
from websockets.asyncio.client import connect

from segue.core.metadata import KEYS
from segue.server.auth import USER_HEADER
from segue.simulate.world import Stage, World
from tests.runtime.receiver import Receiver
from tests.server.clients import PATIENCE, Site, as_user, site_of
from tests.server.doors import Door
from tests.server.langgraph.scenes import heard_by, parts_of
from tests.server.langgraph.test_access import body_of, wire_doors
from tests.stories.canaries import CANARY
from tests.stories.scenes import PATIENCE as SILENCE
from tests.stories.tale import Tale, leaks

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]
CHANNELS = ["values", "updates", "messages", "tools", "lifecycle", "input", "custom"]
# What this wire has for every message, and that is all of it.
HIDDEN = KEYS - {"position", "client_message_id"}


class Sweep:
    """Goes through the routes of the wire, and keeps what they tell."""

    def __init__(self, world: World, site: Site, tale: Tale) -> None:
        self._world = world
        self._site = site
        self._tale = tale
        self.found: dict[str, str] = {}

    async def everything(self, client: Any) -> None:
        """First the routes that only look, then the runs, then those that change things."""
        for thread in self._tale.threads.values():
            await self._streams(client, thread)
            runs = [run["run_id"] for run in await client.runs.list(thread, limit=1_000)]
            for run in runs:
                modes = ["values", "messages", "messages-tuple", "updates", "custom", "events"]
                stream = client.runs.join_stream(thread, run, stream_mode=modes, last_event_id="-1")
                self.keep(f"stream of run {run}", await parts_of(stream))
            ways = [d for d in wire_doors(self._site.app) if not _is_stream(d)]
            for door in sorted(ways, key=lambda door: door.method == "DELETE"):
                await self._go_through(door, thread, runs)

    async def _go_through(self, door: Door, thread: str, runs: list[str]) -> None:
        for run in runs if "run_id" in door.names else [""]:
            names = {"thread_id": thread, "run_id": run, "cron_id": "1", "checkpoint_id": "1"}
            path = door.at(**names, assistant_id="guide")
            given = {"limit": "1000", "key": "x", "namespace": "memories"}
            if door.method == "DELETE" and door.names == ["thread_id"]:
                continue  # the next route needs it
            answer = await self._site.http.request(
                str(door.method), path, params=given, json=_body(door, thread)
            )
            assert answer.status_code < 500, (door, answer.text)
            self.keep(f"{door} {path}", answer.text + repr([*answer.headers.items()]))
        await self._world.clock.settle()

    async def _streams(self, client: Any, thread: str) -> None:
        """The whole past of a thread, by each way to listen to it."""
        stream = await client.threads.join_stream(thread, last_event_id="-1")
        async with heard_by(self._site, stream) as heard:
            await asyncio.sleep(0.2)
            self.keep(f"stream of {thread}", heard.parts)
        url = f"{self._site.address.replace('http', 'ws', 1)}/threads/{thread}/stream/events"
        user = {USER_HEADER: "ann"}
        async with connect(url, additional_headers=user) as socket, asyncio.timeout(PATIENCE):
            params = {"channels": CHANNELS, "since": 0}
            subscribe = {"id": 1, "method": "subscription.subscribe", "params": params}
            await socket.send(json.dumps(subscribe))
            await asyncio.sleep(0.2)
            await socket.send(json.dumps({"id": 2, "method": "state.get", "params": {}}))
            told: list[Any] = []
            while not told or told[-1].get("id") != 2:
                told.append(json.loads(await socket.recv()))
            self.keep(f"socket of {thread}", told)
        path = f"/threads/{thread}/stream/events"
        body = {"channels": CHANNELS, "since": 0}
        text = ""
        async with self._site.http.stream("POST", path, json=body) as response:
            try:
                async with asyncio.timeout(0.3):
                    async for line in response.aiter_lines():
                        text += line
            except TimeoutError:
                pass
        self.keep(f"events of {thread}", text)

    def keep(self, where: str, what: Any) -> None:
        self.found[where] = self.found.get(where, "") + str(what)


def _is_stream(door: Door) -> bool:
    return door.method is None or door.path.endswith(("/stream", "/stream/events"))


def _body(door: Door, thread: str) -> Any:
    if door.path == "/threads/search":
        return {"limit": 1_000}
    if door.path.endswith("/cancel"):
        return {"thread_id": thread, "status": "all"}
    return body_of(door)


async def test_no_canary_is_ever_seen_on_the_wire(sqlite_stage: Stage, receiver: Receiver) -> None:
    """Neither live nor afterwards, on no route, stream, event or error, nor any metadata."""
    tale = Tale(sqlite_stage, receiver)
    await tale.tell()
    async with tale.process() as world, site_of(world.segue, None, **as_user("ann")) as site:
        client = get_client(url=site.address, api_key=None, headers={USER_HEADER: "ann"})
        sweep = Sweep(world, site, tale)
        thread = tale.threads["guide"]
        tale.actor.acts += ["Still there, by the way?"]
        async with heard_by(site, await client.threads.join_stream(thread)) as heard:
            await world.say(thread, "I am off.")
            await world.pass_time(SILENCE * 3)
            await heard.until("metadata", origin="follow_up")
            sweep.keep("live", await heard.until("metadata", status="run_done"))
        assert "Still there, by the way?" in sweep.found["live"]
        await sweep.everything(client)
        await client.aclose()
    text = repr(sweep.found)
    for words in ("Here I am again.", "Booked: yes", "It is about your parcel.", "follow_up"):
        assert words in text, words
    assert leaks(sweep.found) == {}
    for name in HIDDEN:
        shown = [where for where, told in sweep.found.items() if f'"{name}"' in told]
        assert shown == [], name
    assert CANARY not in text

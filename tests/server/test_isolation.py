"""One user's things are not there for another: not to read, to change, to count, or to guess."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from segue.core.snowflake import to_text
from segue.server.app import create_app
from segue.server.auth import USER_HEADER, new_key
from segue.simulate.world import Stage, World, plain_agent
from tests.journal.stores import steps_of as all_steps_of
from tests.runtime.scenes import echo
from tests.server.clients import Site, as_user, frames_until, site_of
from tests.server.doors import Door, doors
from tests.stories.scenes import model_of
from tests.stories.test_asking_agents import agents, asking

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
FILES = "/web/{path:path}"  # of the page, the same for everybody
OPEN = {
    "/",
    "/outcomes",
    "/simulate",
    "/sw.js",
    FILES,
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
}
OPEN |= {"/frames.json"}
DOCS = ("/docs", "/redoc")
# Its events are signed; it has tests of its own.
SIGNED = "/api/hooks/{source}"
TOPIC = "xylophone"
# Who calls is looked up once in a while, whatever they ask for.
KEYS = {"keys.find", "keys.list_all"}


@dataclass(frozen=True)
class Home:
    """A user's key, and what is theirs."""

    headers: dict[str, str]
    thread: str
    turn: str
    memory: str
    reminder: str
    # Cursors of a page of history, of the thread list, of memories and of events.
    page: str
    threads: str
    memories: str
    events: str


@dataclass(frozen=True)
class Town:
    """A server with two users, of whom one looks for the other's things."""

    world: World
    site: Site
    ann: Home
    bob: Home

    async def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Bob asks."""
        return await self.site.http.request(method, path, headers=self.bob.headers, **given)

    def unknown_id(self) -> str:
        return to_text(self.world.system.deps.ids.next())


@pytest.fixture
async def town(stage: Stage) -> AsyncIterator[Town]:
    async with settled_town(stage) as built:
        yield built


@asynccontextmanager
async def settled_town(stage: Stage) -> AsyncIterator[Town]:
    model = model_of(*[echo] * 9)
    async with stage.world(plain_agent(memory={}), models={"guide": model}) as world:
        keys = {}
        for user in ("ann", "bob"):
            key, words = new_key(f"{user}'s phone", user, world.clock.now())
            await world.journal.keys.add(key)
            keys[user] = {"Authorization": f"Bearer {words}"}
        async with site_of(world.segue) as site:
            ann = await _move_in(world, site, keys["ann"], f"my {TOPIC}")
            bob = await _move_in(world, site, keys["bob"], "my bicycle")
            yield Town(world, site, ann, bob)


async def _move_in(world: World, site: Site, headers: dict[str, str], about: str) -> Home:
    thread = (await site.post("/api/threads", {}, headers=headers))["id"]
    path = f"/api/threads/{thread}"
    for words in (f"Let us talk of {about}.", f"I like {about}."):
        sent = await site.post(f"{path}/messages", {"content": words}, headers=headers)
        await world.clock.settle()
    fact = {"content": f"Likes {about}.", "key": about}
    kept = await site.post("/api/memories", fact, headers=headers)
    reminder = {"text": f"Practise {about}.", "after": "3h"}
    reminded = await site.post(f"{path}/reminders", reminder, headers=headers)
    page = await site.get(f"{path}/history", params={"limit": 1}, headers=headers)
    listed = await site.get("/api/threads", params={"limit": 1}, headers=headers)
    return Home(
        headers,
        thread,
        sent["turn_id"],
        about,
        reminded["id"],
        page["before"],
        listed["next"],
        kept["id"],
        page["items"][0]["position"],
    )


async def all_of(town: Town, home: Home) -> list[Any]:
    """Everything that a user has."""
    path = f"/api/threads/{home.thread}"
    places = ["/api/threads", "/api/memories", "/api/me", "/api/reminders", path]
    places += [f"{path}/{part}" for part in ("history", "follow-ups", "reminders", "why")]
    return [await town.site.get(place, headers=home.headers) for place in places]


def form(response: httpx.Response, *ids: str) -> tuple[int, str, list[str]]:
    """An answer without what is its own: its ids, and when it was given."""
    text = response.text
    for each in ids:
        text = text.replace(each, "<id>")
    if "json" in response.headers.get("content-type", "") and text:
        body = json.loads(text)
        body.pop("request_id", None)
        text = json.dumps(body)
    return response.status_code, text, sorted({*response.headers} - {"content-length"})


@contextmanager
def steps_of(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The steps of the journal that are taken meanwhile."""
    taken: list[str] = []

    def noting(name: str, step: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            taken.append(name)
            return step(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name, step in all_steps_of(world.journal).items():
            if name not in KEYS:
                part, short = name.split(".")
                patch.setattr(getattr(world.journal, part), short, noting(name, step))
        yield taken


async def test_anothers_things_are_as_if_they_were_not(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All routes, all methods: the same answer by the same steps as for an id that never was."""
    before = await all_of(town, town.ann)
    named = [
        d
        for d in doors(create_app(town.world.segue))
        if d.names and d.path not in {SIGNED, FILES} and not d.is_of_agents
    ]
    bodies = {(door.path, door.method): door.body for door in named}
    paths = {d.path for d in named if d.method is not None and not d.is_admin}
    for path, method in product(sorted(paths), METHODS):
        door = Door(path, method, bodies.get((path, method)))
        if (method, door.names) == ("PUT", ["key"]):  # under her key he keeps a fact of his own
            continue
        answers = []
        for values in _other_and_unknown(town, door):
            with steps_of(town.world, monkeypatch) as steps:
                answer = await town.ask(method, door.at(**values), json=door.body)
            assert answer.status_code in {404, 405}, (door, answer.text)
            answers.append((*form(answer, *values.values()), steps))
        assert answers[0] == answers[1], door
    assert await all_of(town, town.ann) == before


async def test_the_same_key_is_another_fact_for_each_user(town: Town) -> None:
    """Who sets or deletes a fact under another's key meets only their own."""
    path = f"/api/memories/{town.ann.memory}"
    before = await all_of(town, town.ann)
    kept = (await town.ask("PUT", path, json={"content": "Plays no music."})).json()
    assert (kept["key"], kept["content"]) == (town.ann.memory, "Plays no music.")
    assert kept["id"] != town.ann.memories
    assert (await town.ask("DELETE", path)).status_code == 204
    assert (await town.ask("DELETE", path)).status_code == 404
    assert await all_of(town, town.ann) == before


def _other_and_unknown(town: Town, door: Door) -> list[dict[str, str]]:
    ann, nobody = town.ann, town.unknown_id()
    known = {"thread_id": ann.thread, "key": ann.memory, "reminder_id": ann.reminder}
    unknown = {"thread_id": nobody, "key": "my nothing", "reminder_id": nobody}
    return [{name: values[name] for name in door.names} for values in (known, unknown)]


async def test_anothers_turn_is_as_if_it_were_not(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question is answered in its own thread only, by HTTP and by socket."""
    path = f"/api/threads/{town.bob.thread}"
    told = []
    for turn in (town.ann.turn, town.unknown_id()):
        given = {"turn_id": turn, "answer": "yes"}
        with steps_of(town.world, monkeypatch) as steps:
            answer = await town.ask("POST", f"{path}/answer", json=given)
        assert answer.status_code == 404
        headers = town.bob.headers
        async with town.site.socket(f"{path}/ws", additional_headers=headers) as socket:
            await socket.send(json.dumps({"type": "answer", **given}))
            [error] = await frames_until(socket, "error")
        assert error["code"] == "not_found"
        told.append((form(answer, turn), error["reason"].replace(turn, "<id>"), steps))
    assert told[0] == told[1]


async def test_lists_and_searches_hold_only_ones_own(town: Town) -> None:
    """Whatever words and whoever's cursor are given."""
    own, ann = town.bob, town.ann
    history = f"/api/threads/{own.thread}/history"
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/api/threads", {}),
        ("/api/threads", {"after": ann.threads}),
        ("/api/threads", {"agent_id": "guide"}),
        ("/api/search", {"q": TOPIC}),
        ("/api/search", {"q": "talk"}),
        ("/api/memories", {}),
        ("/api/memories", {"before": ann.memories}),
        ("/api/memories/search", {"q": f"my {TOPIC}"}),
        (history, {}),
        (history, {"before": ann.page}),
        (history, {"after": ann.page}),
        ("/api/me", {}),
        ("/api/reminders", {}),
    ]
    for path, params in asked:
        answer = await town.ask("GET", path, params=params)
        assert answer.status_code == 200, answer.text
        for foreign in {TOPIC, ann.thread, '"ann"', ann.memories, ann.events} - {*params.values()}:
            assert foreign not in answer.text, (path, params)
    threads = (await town.ask("GET", "/api/threads")).json()["items"]
    assert [thread["id"] for thread in threads] == [own.thread]
    memories = (await town.ask("GET", "/api/memories")).json()["items"]
    assert [memory["key"] for memory in memories] == [own.memory]
    assert len((await town.ask("GET", "/api/search", params={"q": "talk"})).json()["items"]) == 2
    path = f"/api/threads/{own.thread}/ws?since={ann.events}"
    async with town.site.socket(path, additional_headers=own.headers) as socket:
        assert TOPIC not in json.dumps(await frames_until(socket, "message"))


async def test_what_agents_say_to_each_other_is_not_the_users(stage: Stage) -> None:
    """Their thread has a name that can be guessed; no protocol reads it or writes into it."""
    models = {
        "guide": model_of(asking("atlas", f"What of the {TOPIC}?"), "Fine."),
        "atlas": model_of(f"Hide the {TOPIC}.", then="Who is there?"),
    }
    async with (
        stage.world(*agents(("guide", "atlas")), models=models) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread(agent_id="guide")
        await site.post(f"/api/threads/{thread}/messages", {"content": "Is it well?"})
        await world.clock.settle()
        nested = f"{thread}/atlas"
        before = await world.heard(nested)
        assert before == [f"What of the {TOPIC}?", f"Hide the {TOPIC}."]
        said = {"role": "user", "content": "Well?"}
        asked: list[tuple[str, dict[str, Any], dict[str, str]]] = [
            (
                "/v1/chat/completions",
                {"model": "atlas", "messages": [said]},
                {"Segue-Thread": nested},
            ),
            (
                "/ag-ui/atlas/run",
                {"threadId": nested, "runId": "r", "messages": [{"id": "m", **said}]},
                {},
            ),
            *(("/mcp", _tool_call(name, nested), {}) for name in ("read_thread", "why")),
        ]
        for path, body, headers in asked:
            answer = await site.http.post(path, json=body, headers=headers)
            assert TOPIC not in answer.text, path
        opened = {"threadId": nested, "runId": "r"}
        async with site.http.stream("POST", "/ag-ui/atlas/connect", json=opened) as stream:
            async for line in stream.aiter_lines():
                assert TOPIC not in line
                if "RUN_FINISHED" in line:
                    break
        async with site.socket("/api/ws") as socket:
            frame = {"type": "message", "thread_id": nested, "content": "Well?"}
            await socket.send(json.dumps(frame))
            [*_, refused] = await frames_until(socket, "error")
            assert refused["code"] == "not_found"
        await world.clock.settle()
        assert await world.heard(nested) == before


def _tool_call(name: str, thread: str) -> dict[str, Any]:
    params = {"name": name, "arguments": {"thread_id": thread}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def test_a_user_cannot_become_another_or_an_operator(town: Town) -> None:
    """A user's key names its user, whatever a header says, and opens no operator's route."""
    me = await town.site.get("/api/me", headers=town.bob.headers | as_user("ann"))
    assert me["user_id"] == "bob"
    assert me["is_operator"] is False
    refused = await town.site.http.get(
        f"/api/threads/{town.ann.thread}", headers=town.bob.headers | as_user("ann")
    )
    assert refused.status_code == 404
    admin = [door for door in doors(create_app(town.world.segue)) if door.is_admin]
    assert len(admin) > 5
    for door in admin:
        told = set()
        for thread in (town.ann.thread, town.bob.thread, town.unknown_id()):
            path = door.at(thread_id=thread, effect_id=thread, batch_id=thread)
            answer = await town.ask(str(door.method), path)
            assert answer.status_code == 403, door
            told.add(str(form(answer, thread)))
        assert len(told) == 1, door


# On one database: nobody gets as far as the other things of either.
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_who_is_not_known_gets_in_nowhere(town: Town) -> None:
    """Without a key, or with a wrong one: 401 for every route of every kind, whatever is behind."""
    words = town.ann.headers["Authorization"]
    wrong: list[dict[str, str]] = [
        {},
        {"Authorization": words[:-2] + "xx"},
        {"Authorization": words.replace("Bearer sgu_", "Bearer ")},
        {"Authorization": "Basic YW5uOmFubg=="},
        {"Authorization": "Bearer"},
        as_user("ann"),
    ]
    for door in doors(create_app(town.world.segue)):
        if door.path in OPEN | {SIGNED} or door.path.startswith(DOCS) or door.method is None:
            continue
        own = {"thread_id": town.ann.thread, "key": town.ann.memory}
        own |= {"agent_id": "guide", "model": "guide"}
        path = door.at(**own, effect_id="1", batch_id="1", reminder_id=town.ann.reminder)
        for headers in wrong:
            answer = await town.site.http.request(
                door.method, path, headers=headers, json=door.body, params={"q": "x"}
            )
            assert answer.status_code == 401, (door, headers)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert TOPIC not in answer.text


async def test_a_socket_closes_with_the_reason(town: Town) -> None:
    """4401 for who is not known; 4404, in the same words, for another's thread and for none."""
    path = f"/api/threads/{town.ann.thread}/ws?since=0"
    reasons = set()
    for thread in (town.ann.thread, town.unknown_id()):
        code, reason = await _closed(
            town.site, f"/api/threads/{thread}/ws?since=0", town.bob.headers
        )
        assert code == 4404
        reasons.add(reason.replace(thread, "<id>"))
    assert len(reasons) == 1
    for headers in ({}, {"Authorization": "Bearer sgu_x"}, as_user("ann")):
        assert (await _closed(town.site, path, headers))[0] == 4401
    protocols = ["segue", "bearer." + town.bob.headers["Authorization"].removeprefix("Bearer ")]
    assert (await _closed(town.site, path, {}, subprotocols=protocols))[0] == 4404


async def _closed(site: Site, path: str, headers: dict[str, str], **given: Any) -> tuple[int, str]:
    """How a socket was closed, of which nothing else was heard."""
    async with site.socket(path, additional_headers=headers, **given) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason


async def test_a_key_for_many_speaks_for_whom_it_names(sqlite_stage: Stage) -> None:
    """With the header it is that user and no other; without it, or with nonsense, it is refused."""
    async with sqlite_stage.world() as world:
        key, words = new_key("our backend", None, world.clock.now())
        await world.journal.keys.add(key)
        async with site_of(world.segue, Authorization=f"Bearer {words}") as site:
            thread = (await site.post("/api/threads", {}, headers=as_user("ann")))["id"]
            path = f"/api/threads/{thread}"
            assert (await site.http.get(path, headers=as_user("ann"))).status_code == 200
            assert (await site.http.get(path, headers=as_user("bob"))).status_code == 404
            assert (await site.http.get(path, headers=as_user("Ann"))).status_code == 404
            for headers in ({}, {USER_HEADER: ""}, {USER_HEADER: "a" * 201}):
                assert (await site.http.get(path, headers=headers)).status_code == 400
            admin = await site.http.get("/api/admin/dead-letters", headers=as_user("ann"))
            assert admin.status_code == 403

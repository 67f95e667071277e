"""No trigger ever shows over HTTP: canaries in all that is said behind the user's back, and every
route, frame, search, error, number and log line looked through for them.

The story is the one that the runtime is searched with, there on both databases. Routes are read
from the app, so a new one is looked through without being named here; only those for operators may
show what is hidden.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from httpx import Response
from langchain_core.messages import AIMessage

from segue.core.metadata import KEYS
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.events import ProgressReported
from segue.server.app import create_app
from segue.server.auth import USER_HEADER
from segue.server.mcp.tools import TOOLS, Tool
from segue.simulate.world import Stage, World
from segue.telemetry import configure_logging
from tests.runtime.receiver import Receiver
from tests.runtime.scenes import Held, lines
from tests.server.clients import PATIENCE, Site, as_user, frames_until, site_of
from tests.server.doors import Door, doors
from tests.stories.canaries import CANARY, PROMPTS, REQUESTED, WORDS, calling
from tests.stories.scenes import PATIENCE as SILENCE
from tests.stories.tale import Tale, leaks, logged

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("foreseen_meanings"),
]

# A message's place is everybody's business, and a client knows its own id of a message; nothing
# else of its metadata is.
HIDDEN = (KEYS - {"position", "client_message_id"}) | {
    "additional_kwargs",
    "tool_calls",
    "trigger_words",
}
END = ProgressReported("heard all")
QUERIES = [CANARY, WORDS, "hello again kindly", "fine", *TRIGGER_PROMPTS.values(), "shipped"]
TYPED = [
    *TRIGGER_PROMPTS.values(),
    "[AUTONOMOUS_FOLLOWUP: check_in]",
    '{"synthetic": true}',
    PROMPTS[TriggerType.CHECK_IN][0],
]


class Sweep:
    """Looks through everything that a user can get, and keeps it by where it came from."""

    def __init__(self, world: World, site: Site) -> None:
        self._world = world
        self._site = site
        self.found: dict[str, str] = {}
        self.keys: set[str] = set()

    async def everything(self, threads: list[str], memories: list[str]) -> None:
        """All routes but the operators': first those that only look, then those that change."""
        ways = [door for door in doors(create_app(self._world.segue)) if not door.is_admin]
        ways.sort(key=lambda door: (_harm(door), -len(door.path)))
        for door in ways:
            for values in self._values(door, threads, memories):
                await self.go_through(door, values)
            await self.be_refused(door)

    def _values(
        self, door: Door, threads: list[str], memories: list[str]
    ) -> Iterator[dict[str, str]]:
        known = {"thread_id": threads, "key": memories, "source": ["shop"], "reminder_id": ["7"]}
        known |= {"path": ["app.js"], "agent_id": ["guide"], "model": ["guide"]}
        assert len(door.names) <= 1, f"{door}: say here what its path is filled with"
        for name in door.names:
            yield from ({name: value} for value in known[name])
        if not door.names:
            yield {}

    async def go_through(self, door: Door, values: dict[str, str]) -> None:
        path = door.at(**values)
        if door.method is None:
            self.keep(f"{door} {values}", await self._frames(path, values))
        elif door.method == "GET" and path.endswith("/events"):
            self.keep(f"{door} {values}", await self._events(path, values))
        else:
            for query in QUERIES if door.needs else [""]:
                given = {"limit": "200", **dict.fromkeys(door.needs, query)}
                body = None if door.method in {"GET", "HEAD"} else door.body
                answer = await self._site.http.request(door.method, path, params=given, json=body)
                self.keep_answer(f"{door} {values} {given}", answer)
                assert answer.status_code < 500, (door, answer.text)
            await self._world.clock.settle()

    async def other_protocols(self, threads: dict[str, str]) -> None:
        """What clients of AG-UI, OpenAI and MCP get of each conversation, by its agent; they write
        only in one of their own.
        """
        for agent, thread in threads.items():
            given = {"threadId": thread, "runId": "r", "messages": []}
            path = f"/ag-ui/{agent}/connect"
            async with (
                asyncio.timeout(PATIENCE),
                self._site.http.stream("POST", path, json=given) as response,
            ):
                assert response.status_code == 200, path
                async for line in _lines(response):
                    self._keep_event(f"AG-UI {agent}", line)
                    if "RUN_FINISHED" in line:
                        break
            own = await self._write(agent)
            for tool in TOOLS.values():
                await self._use_tool(tool, thread if tool.reads else own)

    async def _write(self, agent: str) -> str:
        """Talk with an agent by each protocol; return the thread."""
        said, thread = {"role": "user", "content": "Anything new?", "id": "m"}, ""
        run = {"threadId": "new", "runId": "r", "messages": [said]}
        answer = await self._site.http.post(f"/ag-ui/{agent}/run", json=run)
        for line in answer.text.splitlines():
            self._keep_event(f"AG-UI {agent} run", line)
        for is_stream in (False, True):
            wanted = {"model": agent, "messages": [said], "stream": is_stream}
            answer = await self._site.http.post(
                "/v1/chat/completions", json=wanted, headers={"Segue-Thread": "new"}
            )
            thread = answer.headers["Segue-Thread"]
            self.keep(f"OpenAI {agent} {is_stream}", answer.text)
        return thread

    def _keep_event(self, where: str, line: str) -> None:
        self.keep(where, line)
        if line.startswith("data: "):
            self._keep_keys([json.loads(line[6:])])

    async def _use_tool(self, tool: Tool, thread: str) -> None:
        fields = tool.given.model_fields
        every: dict[str, Any] = {
            "query": CANARY,
            "content": "It snows.",
            "key": "k",
            "text": "tea",
            "after": "9h",
        }
        every |= {"thread_id": thread, "limit": 200, "reminder_id": "7"}
        for query in QUERIES if "query" in fields else [""]:
            given = {name: value for name, value in every.items() if name in fields}
            given |= {"query": query} if query else {}
            params = {"name": tool.name, "arguments": given}
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            answer = await self._site.http.post("/mcp", json=call)
            assert answer.status_code == 200, (tool.name, answer.text)
            self.keep_answer(f"MCP {tool.name} {thread} {query}", answer)

    async def be_refused(self, door: Door) -> None:
        """What it says to nonsense, and of things that are not there."""
        if door.method is None or door.path == "/api/events":  # it has nothing to refuse
            return
        nowhere = dict.fromkeys(door.names, "nowhere")
        wrong: list[dict[str, Any]] = [{}, {"params": {"limit": "many", "before": "x"}}]
        for given in (*wrong, {**wrong[1], "json": {"content": 7, "what": 1}}):
            answer = await self._site.http.request(door.method, door.at(**nowhere), **given)
            self.keep_answer(f"{door} refused", answer)

    def keep_answer(self, where: str, answer: Response) -> None:
        self.keep(where, answer.text + repr([*answer.headers.items()]))
        kind = answer.headers.get("content-type", "")
        if "jsonl" in kind:
            self._keep_keys([json.loads(line) for line in answer.text.splitlines()])
        elif "json" in kind and "openapi" not in where and "frames.json" not in where:
            self._keep_keys(answer.json() if answer.content else None)

    def keep(self, where: str, text: str) -> None:
        self.found[where] = self.found.get(where, "") + text

    def _keep_keys(self, value: Any) -> None:
        if isinstance(value, dict):
            self.keys |= value.keys()
        for each in value.values() if isinstance(value, dict) else value or ():
            if isinstance(each, dict | list):
                self._keep_keys(each)

    @property
    def _user(self) -> str:
        return str(self._site.http.headers.get(USER_HEADER, "me"))

    def _end(self, values: dict[str, str]) -> None:
        """To a thread's listeners, and to those of all threads."""
        self._world.system.deps.bus.tell(values.get("thread_id", "any"), END, self._user)

    async def _frames(self, path: str, values: dict[str, str]) -> str:
        user = as_user(self._user)
        async with self._site.socket(f"{path}?since=0", additional_headers=user) as socket:
            heard = await frames_until(socket, "message")
            self._end(values)
            heard += await frames_until(socket, "progress", value=END.value)
        self._keep_keys(heard)
        return json.dumps(heard)

    async def _events(self, path: str, values: dict[str, str]) -> str:
        text = ""
        async with (
            asyncio.timeout(PATIENCE),
            self._site.http.stream("GET", path, params={"since": "0"}) as response,
        ):
            async for line in _lines(response):
                text += line + "\n"
                if line == "event: message" and text.count(line) == 1:
                    self._end(values)
                if line == "event: progress":
                    break
        return text


ANN = as_user("ann")


async def _lines(response: Response) -> AsyncIterator[str]:
    async for line in response.aiter_lines():
        yield line


async def speak_live(tale: Tale, world: World, site: Site) -> str:
    """What a tab hears while an agent follows up: words as they are written, too."""
    thread = tale.threads["guide"]
    tale.actor.acts += ["Still there, by the way?", calling("remember", {"content": "It rains."})]
    path = f"/api/threads/{thread}/ws?since=0"
    async with site.socket(path, additional_headers=ANN) as socket:
        await socket.send(json.dumps({"type": "message", "content": "I am off."}))
        heard = await frames_until(socket, "accepted")
        await world.clock.settle()
        await world.pass_time(SILENCE * 3)
        world.system.deps.bus.tell(thread, END)
        heard += await frames_until(socket, "progress", value=END.value)
    assert {"token", "message"} <= {frame["type"] for frame in heard}
    assert "Still there, by the way?" in [f.get("message", {}).get("text") for f in heard]
    return json.dumps(heard)


async def hold_back(tale: Tale, world: World, site: Site) -> None:
    """A follow-up that may not come, and one that may come only later."""
    path = f"/api/threads/{tale.threads['guide']}"
    for wish in ({"muted": True}, {"muted": None}):
        await site.http.patch(path, json=wish)
        await site.post(f"{path}/messages", {"content": "Not now."})
        await world.clock.settle()
        if wish["muted"] is None:
            later = (world.clock.now() + timedelta(days=1)).isoformat()
            await site.post(f"{path}/follow-ups/snooze", {"until": later})
        await world.pass_time(SILENCE)


async def test_no_canary_is_ever_seen_over_http(
    sqlite_stage: Stage,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No answer, frame, event, find, error, number or log line holds one, nor any metadata."""
    configure_logging("INFO", json=True)
    tale = Tale(sqlite_stage, receiver)
    await tale.tell()
    async with tale.process() as world, site_of(world.segue, None, **ANN) as site:
        sweep = Sweep(world, site)
        sweep.keep("live frames", await speak_live(tale, world, site))
        await hold_back(tale, world, site)
        listed = (await site.get("/api/threads", params={"limit": 200}))["items"]
        threads = [thread["id"] for thread in listed]
        # None is where agents ask each other, and nothing that they say there is found.
        assert sorted(threads) == sorted(tale.threads.values())
        found = await site.list("/api/search", params={"q": "Where is Oslo? degrees", "limit": 200})
        assert {each["thread_id"] for each in found} <= {*threads}
        assert "Where is Oslo?" not in [each["message"]["text"] for each in found]
        kept = await site.get("/api/memories", params={"agent_id": "guide"})
        await _assert_they_could_be_seen(site, tale)
        await sweep.other_protocols(tale.threads)
        await sweep.everything(threads, [memory["key"] for memory in kept["items"]])
    sweep.found |= logged(caplog, capsys)
    _assert_all_was_swept(sweep)
    # A search's own words stand in the line of a request, if that is where they were asked for.
    assert leaks(sweep.found) == {}
    assert sweep.keys & HIDDEN == set()
    for word in ("synthetic", *map(str, HIDDEN)):
        shown = [where for where, text in sweep.found.items() if f'"{word}"' in text]
        assert [where for where in shown if "log" not in where] == [], word


def _harm(door: Door) -> int:
    return 0 if door.method in {None, "GET", "HEAD"} else 2 if door.method == "DELETE" else 1


def _assert_all_was_swept(sweep: Sweep) -> None:
    """The sweep saw the story, so it would have seen a canary in it."""
    text = repr(sweep.found)
    for where in ("AG-UI guide", "MCP read_thread", "MCP why"):
        seen = "".join(t for name, t in sweep.found.items() if name.startswith(where))
        assert "Here I am again." in seen or "sent" in seen, where
    for words in (
        "Here I am again.",
        "Booked: yes",
        "It is about your parcel.",
        "Reminder: water the plants 3",
        "see the dentist",
        "segue_requests_total",
        "follow_up_fired",
    ):
        assert words in text, words
    numbers = sweep.found["GET /metrics {} {'limit': '200'}"]
    assert 'route="/api/threads/{thread_id}/history"' in numbers
    assert not any(words in numbers for words in ("guide-1", '"ann"'))
    for words in ("The thread is muted.", "The user is typing.", "The reply failed (ValueError)."):
        assert any(words in t for where, t in sweep.found.items() if "/why" in where), words
    for state in ("fired", "cancelled", "suppressed", "postponed"):
        assert f'"state":"{state}"' in text, state
    assert {"messages", "origin", "trigger", "cursor", "why", "detail", "errors"} <= sweep.keys


async def _assert_they_could_be_seen(site: Site, tale: Tale) -> None:
    """An operator does see them: they are stored, and one route away."""
    words = ""
    for name in ("guide", "clerk"):
        path = f"/api/admin/threads/{tale.threads[name]}/batches"
        words += json.dumps(await site.get(path, params={"limit": 500}))
    for trigger in TriggerType:
        assert f"{CANARY}_{trigger.value}" in words
    for canary in ("prompt", "reason", "value", "parcel", "trigger"):
        assert f"{REQUESTED}_{canary}" in words
    assert '"synthetic": true' in words


@pytest.mark.parametrize("words", TYPED)
async def test_who_types_a_triggers_words_sees_them(sqlite_stage: Stage, words: str) -> None:
    """They are the user's message in history, title, preview, search and frames."""
    held = Held("Why do you ask?")
    async with (
        sqlite_stage.world(models={"guide": lines(held)}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws?since=0") as socket:
            await socket.send(json.dumps({"type": "message", "content": words}))
            heard = await frames_until(socket, "message")
            assert heard[-1]["message"]["text"] == words
            assert heard[-1]["message"]["role"] == "user"
            await held.asked.wait()
            shown = await site.get(f"/api/threads/{thread}")
            assert shown["preview_role"] == "user"
            assert shown["preview"] == words[: len(shown["preview"])] != ""
            assert shown["message_count"] == 1
            held.go.set()
            while heard[-1].get("message", {}).get("role") != "agent":
                heard += await frames_until(socket, "message")
        page = await site.get(f"/api/threads/{thread}/history")
        assert [m["text"] for m in page["items"]] == [words, "Why do you ask?"]
        found = await site.list("/api/search", params={"q": words})
        assert words in [each["message"]["text"] for each in found]


async def test_nobody_makes_a_message_invisible(sqlite_stage: Stage) -> None:
    """Metadata beside or inside the content is refused or dropped; the message is seen."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        path = f"/api/threads/{thread}/messages"
        for field in ("synthetic", "additional_kwargs", "trigger_type", "batch"):
            refused = await site.http.post(path, json={"content": "Hi", field: True})
            assert refused.status_code == 422
            assert field in refused.json()["detail"]
        block = {"type": "text", "text": "Hi", "synthetic": True, "trigger_type": "check_in"}
        await site.post(path, {"content": [block]})
        await world.clock.settle()
        page = await site.get(f"/api/threads/{thread}/history")
        assert page["items"][0]["content"] == [{"type": "text", "text": "Hi"}]
        assert page["items"][0]["role"] == "user"


async def test_what_a_model_thinks_and_calls_is_not_shown(stage: Stage) -> None:
    """Of a reply in blocks only the words are told, whatever else is in it."""
    thoughts = [
        {"type": "thinking", "thinking": CANARY, "signature": CANARY},
        {"type": "redacted_thinking", "data": CANARY},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": CANARY}]},
        {"type": "text", "text": "Hello."},
        {"type": "tool_use", "id": "1", "name": CANARY, "input": {"reason": CANARY}},
        {"type": "executable_code", "code": CANARY},
    ]
    refusing = AIMessage("", additional_kwargs={"refusal": "I cannot say."})
    model = lines(AIMessage(thoughts), refusing)  # type: ignore[arg-type] # a list of dicts
    async with stage.world(models={"guide": model}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        for words in ("Hi.", "Tell me."):
            await site.post(f"/api/threads/{thread}/messages", {"content": words})
            await world.clock.settle()
        history = await site.get(f"/api/threads/{thread}/history")
        said = [m for m in history["items"] if m["role"] == "agent"]
        assert [m["text"] for m in said] == ["Hello.", "I cannot say."]
        assert said[0]["content"] == [{"type": "text", "text": "Hello."}]
        sweep = Sweep(world, site)
        await sweep.everything([thread], [])
        assert leaks(sweep.found) == {}

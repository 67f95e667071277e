"""Requirements of the external API, at its own door: history, thread list, sockets and the start.

docs/requirements.md names which is which.
"""

import json
import logging
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from segue.agent.checkpoints.store import MemoryCheckpoints, Saver
from segue.compose import Overrides
from segue.core.messages import synthetic_message, user_message
from segue.core.metadata import is_synthetic
from segue.core.snowflake import parse
from segue.core.stamp import stamp
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.facade import Segue
from segue.journal.records import Page, Thread
from segue.runtime.thread_service import ThreadService
from segue.server.app import create_app
from segue.server.problems import MEDIA_TYPE
from segue.server.serving import open_socket, serving
from segue.server.settings import ServerSettings
from segue.settings import Settings
from segue.simulate.world import Stage, plain_agent
from tests.agent.meanings import Meanings
from tests.runtime.scenes import always, batches_of, lines
from tests.server.clients import PATIENCE, as_user, frames_until_said, site_of
from tests.stories.scenes import PATIENCE as SILENCE
from tests.stories.scenes import eager_agent

pytestmark = pytest.mark.anyio

OLD_MARKER = "[AUTONOMOUS_FOLLOWUP: check_in]"
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SHAPES: list[Any] = ["Go on.", ["Go", "on."], [{"type": "text", "text": "Go on."}, PICTURE]]


def trigger(kind: TriggerType, content: Any = None) -> HumanMessage:
    made = synthetic_message(kind)
    return made if content is None else made.model_copy(update={"content": content})


def flagged(flag: Any) -> HumanMessage:
    return HumanMessage(f"Flag {flag!r}", additional_kwargs={"synthetic": flag})


MIXED: dict[str, list[list[BaseMessage]]] = {
    "a real, a synthetic and an agent's message": [
        [user_message("Hello"), AIMessage("Hi!")],
        [trigger(TriggerType.CHECK_IN), AIMessage("Are you there?")],
    ],
    "seven messages with two triggers": [
        [user_message("One"), AIMessage("Two")],
        [trigger(TriggerType.CHECK_IN), AIMessage("Three")],
        [trigger(TriggerType.TASK_INCOMPLETE), AIMessage("Four")],
        [user_message("Five")],
    ],
    "every trigger in every shape": [
        [trigger(kind, content), AIMessage(f"{kind.value} {number}")]
        for kind in TriggerType
        for number, content in enumerate(SHAPES)
    ],
    "lookalikes of the flag": [[flagged(flag)] for flag in (False, "true", 1, [True])],
    "an old marker without metadata": [[user_message(OLD_MARKER), AIMessage("Hello?")]],
}


@pytest.mark.parametrize("name", MIXED)
async def test_the_history_endpoint_leaves_out_what_is_flagged_and_nothing_else(
    stage: Stage, name: str
) -> None:
    """By the flag alone, whatever the content looks like; the count of the list agrees."""
    async with stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        ids = world.system.deps.ids
        stored = [m for batch in MIXED[name] for m in stamp(batch, ids)]
        await world.journal.messages.import_messages(thread, stored)
        page = await site.get(f"/api/threads/{thread}/history", params={"limit": 200})
        expected = [m.text for m in stored if m.additional_kwargs.get("synthetic") is not True]
        assert [m["text"] for m in page["items"]] == expected
        assert {m["role"] for m in page["items"]} <= {"user", "agent"}
        [listed] = (await site.get("/api/threads"))["items"]
        assert (listed["message_count"], listed["preview"]) == (len(expected), expected[-1])


async def test_a_socket_that_comes_back_finds_no_trigger_and_all_that_was_said(
    stage: Stage,
) -> None:
    """From its cursor or from the beginning; in the journal the metadata is as it was."""
    models = {"guide": always("Fine. And you?")}
    async with (
        stage.world(eager_agent(), models=models) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        path = f"/api/threads/{thread}/ws"
        async with site.socket(f"{path}?since=0") as socket:
            await socket.send(json.dumps({"type": "message", "content": "Hello."}))
            cursor = (await frames_until_said(socket, "Fine. And you?"))[-1]["cursor"]
        await world.clock.settle()
        before = [batch.messages for batch in await batches_of(world, thread)]
        await world.pass_time(SILENCE)
        async with site.socket(f"{path}?since={cursor}") as socket:
            [missed] = [f for f in await _stored(socket) if f["type"] == "message"]
            assert missed["message"]["origin"] == "follow_up"
        async with site.socket(f"{path}?since=0") as socket:
            heard = [*await _stored(socket), *await _stored(socket), *await _stored(socket)]
        assert [f["message"]["role"] for f in heard] == ["user", "agent", "agent"]
        assert not any(words in json.dumps(heard) for words in TRIGGER_PROMPTS.values())
        after = [batch.messages for batch in await batches_of(world, thread)]
        assert after[: len(before)] == before
        assert [m for batch in after for m in batch if is_synthetic(m)]


async def _stored(socket: Any) -> list[dict[str, Any]]:
    """The next message that is stored, alone in a list."""
    async for text in socket:
        frame: dict[str, Any] = json.loads(text)
        if frame["type"] == "message":
            return [frame]
    raise AssertionError("The socket closed.")


async def test_what_a_history_request_leaves_out_is_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Each message at DEBUG with its id and trigger, their number at INFO, no words of theirs."""
    models = {"guide": always("Fine. And you?")}
    async with (
        stage.world(eager_agent(), models=models) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await site.post(f"/api/threads/{thread}/messages", {"content": "Hello."})
        await world.clock.settle()
        await world.pass_time(SILENCE)
        hidden = [
            message
            for batch in await batches_of(world, thread)
            for message in batch.messages
            if is_synthetic(message)
        ]
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="segue.journal"):
            await site.get(f"/api/threads/{thread}/history")
    lines = [r for r in caplog.records if r.name.startswith("segue.journal")]
    [trace] = [r.getMessage() for r in lines if r.levelno == logging.DEBUG]
    [summary] = [r.getMessage() for r in lines if r.levelno == logging.INFO]
    [only] = hidden
    assert str(only.id) in trace
    assert only.additional_kwargs["trigger_type"] in trace
    assert "Filtered 1 synthetic" in summary
    assert not any(only.text in r.getMessage() for r in caplog.records)


class _Forgetful(InMemorySaver):
    """Loses metadata, as a saver of another version might."""

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        stored = await super().aget_tuple(config)
        assert stored is not None
        [message] = stored.checkpoint["channel_values"]["messages"]
        stored.checkpoint["channel_values"]["messages"] = [HumanMessage(message.content)]
        return stored


class _ForgetfulCheckpoints(MemoryCheckpoints):
    def saver(self) -> Saver:
        return _Forgetful()


@pytest.mark.parametrize("is_sound", [True, False])
async def test_a_server_whose_stores_lose_metadata_never_serves(
    stage: Stage, caplog: pytest.LogCaptureFixture, is_sound: bool
) -> None:
    """It logs an error that names the versions, and answers 503; sound stores let it go on."""
    checkpoints = MemoryCheckpoints() if is_sound else _ForgetfulCheckpoints()
    chosen = Settings(database=stage.database, agents=(plain_agent(),))

    def opening() -> AbstractAsyncContextManager[Segue]:
        given = Overrides(checkpoints=checkpoints, models={"guide": always("Fine.")})
        return Segue.open(chosen, given)

    settings = ServerSettings(port=0)
    app = create_app(opening, settings)
    async with (
        serving(app, open_socket(settings)) as address,
        httpx.AsyncClient(base_url=address, timeout=PATIENCE) as client,
    ):
        await app.state.lifespan.started.wait()
        ready, threads = await client.get("/readyz"), await client.get("/api/threads")
    status = 200 if is_sound else 503
    assert (ready.status_code, threads.status_code) == (status, status)
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    if is_sound:
        assert errors == []
        return
    assert threads.headers["content-type"] == MEDIA_TYPE
    assert any("the checkpointer changed a message" in line for line in errors)
    assert "check the versions of LangGraph and its saver" in str(app.state.lifespan.failure)
    assert not any("/api/threads" in line for line in errors), "a client's 503 is no error of ours"


async def test_the_thread_service_lists_and_reads_history_for_all(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library and the server get threads and history from the part that has that name."""
    asked: list[str] = []

    class Watched(ThreadService):
        async def list_threads(self, *args: Any, **more: Any) -> list[Thread]:
            asked.append("list")
            return await super().list_threads(*args, **more)

        async def history(self, *args: Any, **more: Any) -> Page:
            asked.append("history")
            return await super().history(*args, **more)

    monkeypatch.setattr("segue.compose.ThreadService", Watched)
    async with (
        sqlite_stage.world(models={"guide": always("Hello.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await world.say(thread, "Hi")
        page = await world.segue.history(thread)
        assert [message.text for message in page.messages] == ["Hi", "Hello."]
        told = await site.get(f"/api/threads/{thread}/history")
        assert [message["text"] for message in told["items"]] == ["Hi", "Hello."]
        [listed] = (await site.get("/api/threads"))["items"]
        [own] = await world.segue.list_threads((await world.segue.get_thread(thread)).user_id)
        assert listed["id"] == own.id == thread
    assert asked == ["history", "history", "list", "list"]


async def test_operators_see_which_messages_came_by_themselves(stage: Stage) -> None:
    """The inspector names the trigger of each follow-up, and marks no message of the user."""
    agent = eager_agent(policy={"max_consecutive": 1})
    async with (
        stage.world(agent, models={"guide": always("Practice every day.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await world.say(thread, "I want to learn the guitar.")
        await world.pass_time(SILENCE)
        newest, oldest = await site.list(f"/api/admin/threads/{thread}/batches")
    assert (oldest["type"], newest["type"]) == ("user_request", "system_trigger")
    marks = json.dumps(newest)
    assert '"synthetic": true' in marks
    assert '"trigger_type": "check_in"' in marks
    assert '"synthetic": true' not in json.dumps(oldest)


async def test_a_user_without_threads_has_an_empty_list(stage: Stage) -> None:
    """Whoever else has some."""
    async with stage.world() as world, site_of(world.segue) as site:
        await site.new_thread()
        listed = await site.get("/api/threads", headers=as_user("nobody"))
        assert listed == {"items": [], "next": None}


async def test_a_page_of_threads_goes_on_where_the_last_one_ended(stage: Stage) -> None:
    """Each thread once, also when the one at the border is deleted or written to in between."""
    models = {"guide": always("Fine.")}
    async with stage.world(models=models) as world, site_of(world.segue) as site:
        made = []
        for _ in range(5):
            made.append(await site.new_thread())
            await world.pass_time(seconds=1)
        first = await site.get("/api/threads", params={"limit": 2})
        assert [t["id"] for t in first["items"]] == made[:2:-1]
        assert (await site.http.delete(f"/api/threads/{made[3]}")).is_success
        second = await site.get("/api/threads", params={"limit": 2, "after": first["next"]})
        assert [t["id"] for t in second["items"]] == made[2:0:-1]
        last = await site.get("/api/threads", params={"limit": 2, "after": second["next"]})
        assert ([t["id"] for t in last["items"]], last["next"]) == (made[:1], None)


async def test_what_agents_ask_each_other_is_in_no_list_and_no_search(stage: Stage) -> None:
    """And goes with the conversation that it was asked for."""
    asked = {"name": "clerk", "text": "Which lighthouse?"}
    call = AIMessage("", tool_calls=[{"name": "ask_agent", "args": asked, "id": "call-1"}])
    models = {"guide": lines(call, then="The red one."), "clerk": always("The lighthouse.")}
    agents = (plain_agent(may_ask=["clerk"]), plain_agent("clerk"))
    async with stage.world(*agents, models=models) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await site.post(f"/api/threads/{thread}/messages", {"content": "Which one?"})
        await world.clock.settle()
        everything = await world.journal.threads.list_of("me", with_nested=True)
        assert {t.id for t in everything} == {thread, f"{thread}/clerk"}
        assert [t["id"] for t in (await site.get("/api/threads"))["items"]] == [thread]
        assert await site.list("/api/search", params={"q": "lighthouse"}) == []
        assert len(await site.list("/api/search", params={"q": "red one"})) == 2
        deleted = (await site.http.delete(f"/api/threads/{thread}")).json()["deleted"]
        assert deleted["threads"] == 2
        assert await world.journal.threads.list_of("me", with_nested=True) == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/threads", {"agent_id": "eve"}, 404),
        ("POST", "/api/threads", {"agent_id": 5}, 422),
        ("GET", "/api/threads/nowhere", None, 404),
        ("GET", "/api/threads/nowhere/history", None, 404),
        ("GET", "/api/threads?limit=0", None, 422),
        ("GET", "/api/threads?limit=201", None, 422),
        ("GET", "/api/threads?after=nonsense", None, 422),
        ("GET", "/api/memories?limit=0", None, 422),
        ("GET", "/api/memories?limit=201", None, 422),
        ("GET", "/api/memories?before=-1", None, 422),
    ],
)
async def test_a_wrong_request_is_told_as_a_problem(
    sqlite_stage: Stage, method: str, path: str, body: Any, status: int
) -> None:
    """404 for what is not there, 422 for what cannot be, each with words for people."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        answer = await site.http.request(method, path, json=body)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == MEDIA_TYPE
        assert answer.json()["detail"]


async def test_an_agent_that_knows_enough_learns_no_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Four of five facts warn its operator, once; the sixth is refused with 409."""
    monkeypatch.setattr("segue.compose.load_embedder", lambda _: Meanings())
    guide = plain_agent(memory={"capacity": 5})
    async with stage.world(guide) as world, site_of(world.segue) as site:
        for number in range(5):
            warned = [r for r in caplog.records if "of at most 5" in r.getMessage()]
            assert len(warned) == (1 if number > 3 else 0)
            await site.post("/api/memories", {"content": f"Fact {number}.", "key": f"k{number}"})
        refused = await site.http.post("/api/memories", json={"content": "Fact 6.", "key": "k6"})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert parse((await site.get("/api/memories"))["items"][0]["id"])


@pytest.mark.parametrize(("length", "is_taken"), [(0, True), (1, True), (200, True), (201, False)])
async def test_a_users_name_has_up_to_200_characters(
    sqlite_stage: Stage, length: int, is_taken: bool
) -> None:
    """A longer one is refused; without keys, none at all is `me`."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        answer = await site.http.get("/api/me", headers=as_user("a" * length))
        assert answer.status_code == (200 if is_taken else 400)
        if is_taken:
            assert answer.json()["user_id"] == ("a" * length or "me")

"""The MCP client of the official library uses the tools of a user's key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from segue.errors import BackendError
from segue.server.auth import new_key
from segue.server.mcp.tools import TOOLS
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage, World, plain_agent
from tests.runtime.scenes import echo, lines
from tests.server.clients import PATIENCE, Site, site_of
from tests.stories.scenes import PATIENCE as SILENCE
from tests.stories.scenes import eager_agent

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]

READS = {name for name, tool in TOOLS.items() if tool.reads}


@asynccontextmanager
async def session_of(site: Site, **headers: str) -> AsyncIterator[ClientSession]:
    async with (
        httpx.AsyncClient(headers=headers, timeout=PATIENCE) as http,
        streamable_http_client(f"{site.address}/mcp", http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


async def use(session: ClientSession, tool: str, **given: Any) -> Any:
    """What a tool found."""
    result = await session.call_tool(tool, given)
    assert not result.isError, result
    found = result.structuredContent or {}
    return found.get("items", found)


def words_of(result: CallToolResult) -> str:
    return "".join(getattr(each, "text", "") for each in result.content)


@dataclass
class Home:
    """A user, and what is theirs."""

    headers: dict[str, str]
    thread: str
    reminder: str


@asynccontextmanager
async def town(stage: Stage) -> AsyncIterator[tuple[World, Site, Home, Home]]:
    model = lines(echo, echo, then="Still there?")
    async with (
        stage.world(eager_agent(), models={"guide": model}) as world,
        site_of(world.segue) as site,
    ):
        homes = []
        for name in ("ann", "bob"):
            key, words = new_key("phone", name, world.clock.now())
            await world.journal.keys.add(key)
            headers = {"Authorization": f"Bearer {words}"}
            thread = (await site.post("/api/threads", {}, headers=headers))["id"]
            path = f"/api/threads/{thread}"
            await site.post(f"{path}/messages", {"content": f"I am {name}."}, headers=headers)
            await world.clock.settle()
            wanted = {"text": f"Call {name}'s mum.", "after": "3h"}
            reminder = await site.post(f"{path}/reminders", wanted, headers=headers)
            homes.append(Home(headers, thread, reminder["id"]))
        yield world, site, homes[0], homes[1]


async def test_the_tools_are_those_that_a_user_may_use(sqlite_stage: Stage) -> None:
    """Each with a description and a schema; a program's key has one more."""
    async with town(sqlite_stage) as (world, site, ann, _):
        async with session_of(site, **ann.headers) as session:
            tools = (await session.list_tools()).tools
            assert {tool.name for tool in tools} == TOOLS.keys() - {"request_follow_up"}
            for tool in tools:
                assert tool.description, tool
                assert tool.inputSchema["additionalProperties"] is False
                assert tool.annotations is not None
                assert tool.annotations.readOnlyHint is (tool.name in READS)
            await session.send_ping()
            refused = await session.call_tool("request_follow_up", {"thread_id": ann.thread})
            assert refused.isError
            assert "program's key" in words_of(refused)
        key, words = new_key("backend", None, world.clock.now())
        await world.journal.keys.add(key)
        program = {"Authorization": f"Bearer {words}", "Segue-User": "ann"}
        async with session_of(site, **program) as session:
            assert {tool.name for tool in (await session.list_tools()).tools} == TOOLS.keys()
            asked = await use(session, "request_follow_up", thread_id=ann.thread, after="2h")
            assert asked["state"] == "pending"


async def test_memories_are_kept_found_and_forgotten(stage: Stage) -> None:
    """As by `/api`, which shows them."""
    guide = plain_agent(memory={})
    async with (
        stage.world(guide) as world,
        site_of(world.segue) as site,
        session_of(site) as session,
    ):
        kept = await use(session, "remember", content="Ann likes to ski.", key="sport")
        assert kept["key"] == "sport"
        [found] = await use(session, "search_memories", query="ski")
        assert found["content"] == "Ann likes to ski."
        assert (await site.get("/api/memories"))["items"][0]["key"] == "sport"
        await use(session, "forget", key="sport")
        assert await use(session, "list_memories") == []
        gone = await session.call_tool("forget", {"key": "sport"})
        assert (gone.isError, words_of(gone)) == (True, "There is no memory 'sport'.")


async def test_reminders_are_set_and_cancelled(stage: Stage) -> None:
    """In the conversation written to last, unless another one is named; mistakes are explained."""
    async with town(stage) as (_, site, ann, _), session_of(site, **ann.headers) as session:
        new = await use(session, "remind", text="water the plants", at="2027-01-15T09:00")
        assert new["thread_id"] == ann.thread
        assert "09:00" in new["description"]
        listed = await use(session, "list_reminders")
        assert {each["id"] for each in listed} == {new["id"], ann.reminder}
        await use(session, "cancel_reminder", reminder_id=new["id"])
        assert [r["id"] for r in await use(session, "list_reminders")] == [ann.reminder]
        for wrong in ({"text": "x"}, {"text": "x", "after": "soon"}, {"after": "2h"}, {"x": 1}):
            result = await session.call_tool("remind", wrong)
            assert result.isError
            assert words_of(result)


async def test_conversations_are_read_and_explained(stage: Stage) -> None:
    """Threads, messages, follow-ups, and why the agent wrote."""
    async with town(stage) as (world, site, ann, _), session_of(site, **ann.headers) as session:
        [thread] = await use(session, "list_threads")
        assert thread["id"] == ann.thread
        page = await use(session, "read_thread", thread_id=ann.thread)
        assert [m["role"] for m in page] == ["user", "agent"]
        [found, *_] = await use(session, "search_messages", query="ann")
        assert found["thread_id"] == ann.thread
        [planned] = await use(session, "list_follow_ups", thread_id=ann.thread)
        assert planned["state"] == "pending"
        await world.pass_time(SILENCE)
        reasons = await use(session, "why", thread_id=ann.thread)
        assert "a follow-up" in [reason["what"] for reason in reasons]
        page = await use(session, "read_thread", thread_id=ann.thread)
        assert page[-1]["text"] == "Still there?"
        cancelled = await use(session, "cancel_follow_ups", thread_id=ann.thread)
        assert {each["state"] for each in cancelled} <= {"cancelled"}
        assert [agent["id"] for agent in await use(session, "list_agents")] == ["guide"]


async def test_anothers_things_are_as_if_they_were_not(stage: Stage) -> None:
    """Every tool: the same result as for an id that never was; lists hold only one's own."""
    async with town(stage) as (world, site, ann, bob), session_of(site, **bob.headers) as session:
        nobody = f"{world.system.deps.ids.next():019d}"
        for name, tool in TOOLS.items():
            fields = tool.given.model_fields
            given: dict[str, Any] = {}
            if "text" in fields:
                given = {"text": "x", "after": "2h"}
            for field, foreign in (("thread_id", ann.thread), ("reminder_id", ann.reminder)):
                if field not in fields:
                    continue
                results = [
                    await session.call_tool(name, {**given, field: each})
                    for each in (foreign, nobody)
                ]
                told = [
                    words_of(r).replace(foreign, "<id>").replace(nobody, "<id>") for r in results
                ]
                assert [r.isError for r in results] == [True, True], name
                assert told[0] == told[1], name
        for name in ("list_threads", "list_reminders", "list_memories"):
            assert "ann" not in str(await use(session, name)).lower()
        assert await use(session, "search_messages", query="ann") == []
        async with session_of(site, **ann.headers) as own:
            assert [r["id"] for r in await use(own, "list_reminders")] == [ann.reminder]


async def test_a_stranger_gets_nothing(sqlite_stage: Stage) -> None:
    """Without a key: 401, which tells a client how to come in."""
    async with town(sqlite_stage) as (_, site, _, _):
        hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for headers in ({}, {"Authorization": "Bearer nothing"}):
            refused = await site.http.post("/mcp", json=hello, headers=headers)
            assert refused.status_code == 401
            assert refused.headers["WWW-Authenticate"].startswith("Bearer")
            assert refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 5_000, 400),
        (b"[]", 400),
        (b'{"id": 1, "method": "ping"}', 400),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', 400),
        (b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}', 400),
        (b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', 202),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', 202),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}', 200),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}', 200),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "rm"}}', 200),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": ["why"]}}', 200),
    ],
)
async def test_a_wrong_message_is_an_error(sqlite_stage: Stage, body: bytes, status: int) -> None:
    """In the form of JSON-RPC; a notification has no answer."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        headers = {"Content-Type": "application/json"}
        answer = await site.http.post("/mcp", content=body, headers=headers)
        assert answer.status_code == status
        if status == 202:
            assert not answer.content
        else:
            assert answer.json()["error"]["message"]
            assert answer.json()["id"] == (1 if status == 200 else None)


async def test_versions_are_agreed_on(sqlite_stage: Stage) -> None:
    """One that is known is kept; for another one the newest is offered, or it is refused."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        for wanted, given in (("2025-03-26", "2025-03-26"), ("2031-01-01", "2025-11-25")):
            params = {"protocolVersion": wanted, "capabilities": {}}
            hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            answer = await site.post("/mcp", hello)
            assert answer["result"]["protocolVersion"] == given
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        old = {"MCP-Protocol-Version": "1999-01-01"}
        assert (await site.http.post("/mcp", json=ping, headers=old)).status_code == 400
        assert (await site.http.get("/mcp")).status_code == 405
        off = ServerSettings(mcp=False, rate_per_minute=None)
        async with site_of(world.segue, off) as without:
            assert (await without.http.post("/mcp", json=ping)).status_code == 404


async def test_a_tool_that_is_not_there_is_an_error_of_the_call(sqlite_stage: Stage) -> None:
    """The client raises."""
    async with (
        sqlite_stage.world() as world,
        site_of(world.segue) as site,
        session_of(site) as session,
    ):
        with pytest.raises(McpError, match="no tool"):
            await session.call_tool("delete_everything", {})


async def test_a_database_that_is_away_ends_no_session(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call fails and the next one works: over an HTTP error a client drops its session."""

    async def away(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise BackendError("db.internal does not answer.")

    async with (
        sqlite_stage.world() as world,
        site_of(world.segue) as site,
        session_of(site) as session,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(world.journal.threads, "list_of", away)
            with pytest.raises(McpError, match="try again") as failed:
                await session.call_tool("list_threads", {})
        assert "db.internal" not in str(failed.value)
        assert await use(session, "list_threads") == []

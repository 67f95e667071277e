"""The chat's side of a server: what it hears, when an answer is over, and what it is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from segue.cli.chat.threads import (
    ChatEvent,
    ChatMessage,
    ChatThread,
    LocalThread,
    RemoteThread,
)
from segue.cli.client import open_client
from segue.errors import (
    BackendError,
    DeniedError,
    NotFoundError,
    SegueError,
    UsageError,
)
from segue.events import MessageDelta, QuestionAsked, TurnCancelled
from segue.runtime.clock import SystemClock
from segue.server.auth import new_key
from segue.settings.agents import AgentConfig
from segue.simulate.world import Stage, World
from tests.runtime.scenes import Held, lines
from tests.server.clients import PATIENCE, site_of

pytestmark = pytest.mark.anyio


class Ear:
    """What a talk tells, as it comes."""

    def __init__(self) -> None:
        self.heard: list[ChatEvent] = []
        self._more = asyncio.Event()

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.heard if isinstance(event, ChatMessage)]

    async def listen(self, talk: ChatThread) -> None:
        async for event in talk.listen():
            self.heard.append(event)
            self._more.set()

    async def until(self, kind: type[ChatEvent]) -> Any:
        async with asyncio.timeout(PATIENCE):
            while not (found := [event for event in self.heard if isinstance(event, kind)]):
                self._more.clear()
                await self._more.wait()
        return found[-1]


@asynccontextmanager
async def talking(world: World, kind: str) -> AsyncIterator[tuple[ChatThread, Ear]]:
    """A talk of each kind with the first agent, and somebody who listens to it."""
    if kind == "own":
        own = LocalThread(world.segue, await world.segue.create_thread("me"))
        async with listening(own) as ear:
            yield own, ear
        return
    async with site_of(world.segue) as site, open_client(site.address, None, None) as client:
        remote = await RemoteThread.open(client, None, None)
        async with listening(remote) as ear:
            yield remote, ear


@asynccontextmanager
async def listening(talk: ChatThread) -> AsyncIterator[Ear]:
    ear = Ear()
    assert await talk.earlier(10) == []
    task = asyncio.create_task(ear.listen(talk))
    try:
        yield ear
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


both = pytest.mark.parametrize("kind", ["own", "remote"])


@both
async def test_an_answer_is_told_whole_before_it_is_over(sqlite_stage: Stage, kind: str) -> None:
    """When `ask` returns, the listener has heard every piece and the message itself."""
    async with (
        sqlite_stage.world(models={"guide": lines("Hi.", "Oslo, I think.")}) as world,
        talking(world, kind) as (talk, ear),
    ):
        assert (talk.agent, talk.user) == ("guide", "me")
        await talk.ask("Hello")  # who has heard the answer listens
        ear.heard.clear()
        await talk.ask("Where?")
        assert ear.said == ["Where?", "Oslo, I think."]
        pieces = [event.text for event in ear.heard if isinstance(event, MessageDelta)]
        assert "".join(pieces) == "Oslo, I think."
        assert [said.text for said in await talk.earlier(1)] == ["Oslo, I think."]


@both
async def test_an_answer_is_stopped(sqlite_stage: Stage, kind: str) -> None:
    """`cancel` ends it, and so `ask` returns."""
    held = Held()
    async with (
        sqlite_stage.world(models={"guide": lines(held)}) as world,
        talking(world, kind) as (talk, ear),
    ):
        asking = asyncio.create_task(talk.ask("Where?"))
        await held.asked.wait()
        await talk.cancel()
        async with asyncio.timeout(PATIENCE):
            await asking
        assert isinstance(ear.heard[-1], TurnCancelled)


@both
async def test_typing_is_reported(sqlite_stage: Stage, kind: str) -> None:
    """The thread knows it, and so the gates do."""
    async with sqlite_stage.world() as world, talking(world, kind) as (talk, _):
        assert (await world.segue.get_thread(talk.thread_id)).typing_at is None
        await talk.typing()
        assert (await world.segue.get_thread(talk.thread_id)).typing_at == world.clock.now()


@both
async def test_a_question_is_answered(sqlite_stage: Stage, kind: str) -> None:
    """By its id; the agent goes on with the answer."""

    def ask(state: MessagesState) -> dict[str, Any]:
        del state
        return {"messages": [AIMessage(f"A {interrupt('Which size?')} one.")]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
    async with (
        sqlite_stage.world(AgentConfig(id="clerk", graph=graph)) as world,
        talking(world, kind) as (talk, ear),
    ):
        await talk.ask("A vase, please.")
        asked = await ear.until(QuestionAsked)
        assert [*asked.questions.values()] == ["Which size?"]
        async with asyncio.timeout(PATIENCE):
            await talk.answer(asked.turn_id, dict.fromkeys(asked.questions, "large"))
        assert ear.said == ["A vase, please.", "A large one."]


@both
async def test_an_answer_is_over_when_its_turn_has_ended(sqlite_stage: Stage, kind: str) -> None:
    """Not with the first of several messages: a pipe would leave before the last one is shown."""
    sent = asyncio.Event()

    def ask(state: MessagesState) -> dict[str, Any]:
        del state
        return {"messages": [AIMessage(f"A {interrupt('Which size?')} one.")]}

    def wrap(state: MessagesState) -> dict[str, Any]:
        del state
        return {"messages": [AIMessage("It is wrapped.")]}

    async def send(state: MessagesState) -> dict[str, Any]:
        del state
        await sent.wait()
        return {"messages": [AIMessage("It is sent.")]}

    builder = StateGraph(MessagesState)
    builder.add_sequence([ask, wrap, send])
    graph = builder.add_edge(START, "ask")
    async with (
        sqlite_stage.world(AgentConfig(id="clerk", graph=graph)) as world,
        talking(world, kind) as (talk, ear),
    ):
        await talk.ask("A vase, please.")
        asked = await ear.until(QuestionAsked)
        answering = asyncio.create_task(
            talk.answer(asked.turn_id, dict.fromkeys(asked.questions, "large"))
        )
        ear.heard.clear()
        await ear.until(ChatMessage)
        assert not answering.done()
        sent.set()
        async with asyncio.timeout(PATIENCE):
            await answering
        assert ear.said == ["A large one.", "It is wrapped.", "It is sent."]


@pytest.mark.parametrize(
    ("key", "thread", "kind", "words"),
    [
        (None, None, DeniedError, "Give a key with --key."),
        ("sgu_wrong", None, DeniedError, "This key is unknown or was revoked"),
        ("right", "nowhere", NotFoundError, "nowhere"),
    ],
)
async def test_what_a_server_refuses_is_told_in_its_words(
    sqlite_stage: Stage, key: str | None, thread: str | None, kind: type[SegueError], words: str
) -> None:
    """Who has no key, a wrong one, or asks for a thread that is not there."""
    stored, right = new_key("laptop", "ann", SystemClock().now())
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        await world.journal.keys.add(stored)
        given = right if key == "right" else key
        async with open_client(site.address, given, None) as client:
            with pytest.raises(kind, match=words):
                await RemoteThread.open(client, None, thread)


async def test_a_key_speaks_for_its_own_user_alone(sqlite_stage: Stage) -> None:
    """Somebody who names another one is told, before a thread is begun."""
    stored, key = new_key("laptop", "ann", SystemClock().now())
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        await world.journal.keys.add(stored)
        async with open_client(site.address, key, "bob") as client:
            with pytest.raises(UsageError, match="The key is of user 'ann', and --user is 'bob'"):
                await RemoteThread.open(client, None, None)
        assert await world.journal.threads.list_newest() == []
        async with open_client(site.address, key, None) as client:
            assert (await RemoteThread.open(client, None, None)).user == "ann"


async def test_a_web_page_is_no_segue_server() -> None:
    """Many servers answer with one whatever they are asked."""
    page = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>"))
    async with httpx.AsyncClient(transport=page, base_url="http://page") as client:
        with pytest.raises(BackendError, match="without JSON; is it a Segue server"):
            await RemoteThread.open(client, None, None)


async def test_what_is_no_segue_server_is_told(sqlite_stage: Stage) -> None:
    """Another program may answer there."""
    async with (
        sqlite_stage.world() as world,
        site_of(world.segue) as site,
        open_client(f"{site.address}/other", None, None) as client,
    ):
        with pytest.raises(NotFoundError):
            await RemoteThread.open(client, None, None)
    async with open_client("http://127.0.0.1:1", None, None) as client:
        with pytest.raises(BackendError, match="does not answer"):
            await RemoteThread.open(client, None, None)

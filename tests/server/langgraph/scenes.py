"""What the tests of the LangGraph wire share: the real Python client, and what it hears."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.schema import StreamPart

from segue.server.settings import ServerSettings
from segue.settings.agents import AgentConfig
from segue.simulate.world import Stage, World, plain_agent, with_graph
from tests.server.clients import PATIENCE, Site, site_of

ASSISTANT = "guide"


def said(text: str, id: str | None = None) -> dict[str, Any]:
    """An input with one message of the user."""
    return {"messages": [{"role": "user", "content": text} | ({"id": id} if id else {})]}


def texts(values: Any) -> list[str]:
    return [message["content"] for message in values["messages"]]


@asynccontextmanager
async def wired(
    stage: Stage, *agents: Any, settings: ServerSettings | None = None, **given: Any
) -> AsyncIterator[tuple[World, Site, LangGraphClient]]:
    """A served world, and a client of the SDK without a key."""
    async with stage.world(*agents, **given) as world, site_of(world.segue, settings) as site:
        client = get_client(url=site.address, api_key=None)
        try:
            yield world, site, client
        finally:
            await client.aclose()


class Heard:
    """What a stream tells, from the moment that its connection is open."""

    def __init__(self) -> None:
        self.parts: list[StreamPart] = []
        self._new = asyncio.Condition()

    async def collect(self, parts: AsyncIterator[StreamPart]) -> None:
        async for part in parts:
            async with self._new:
                self.parts.append(part)
                self._new.notify_all()

    async def until(self, event: str, **fields: Any) -> list[StreamPart]:
        """What was told up to an event with some fields; it is not told again."""
        async with asyncio.timeout(PATIENCE), self._new:
            while True:
                for place, part in enumerate(self.parts, 1):
                    if part.event == event and fields.items() <= (part.data or {}).items():
                        told, self.parts = self.parts[:place], self.parts[place:]
                        return told
                await self._new.wait()


@asynccontextmanager
async def heard_by(site: Site, parts: AsyncIterator[StreamPart]) -> AsyncIterator[Heard]:
    """A stream that is read in the background; open when the block begins."""
    heard, before = Heard(), site.connections
    task = asyncio.create_task(heard.collect(parts))
    try:
        async with asyncio.timeout(PATIENCE):
            while site.connections == before and not task.done():  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.005)
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(PATIENCE):  # the next one counts from here
            while site.connections > before:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.005)


QUESTION = {"question": "Shall I book the table for eight?"}


def _booking(state: MessagesState) -> dict[str, Any]:
    asked = state["messages"][-1].text
    if "table" not in asked:
        return {"messages": [AIMessage(f"You said: {asked}")]}
    return {"messages": [AIMessage(f"Booked: {interrupt(QUESTION)}")]}


def waiter() -> AgentConfig:
    """An agent that books a table if a person agrees."""
    builder = StateGraph(MessagesState)
    builder.add_node("booking", _booking)
    builder.add_edge(START, "booking")
    return with_graph(plain_agent(), builder.compile())


async def parts_of(stream: AsyncIterator[StreamPart]) -> list[StreamPart]:
    """All that a stream tells until it ends."""
    async with asyncio.timeout(PATIENCE):
        return [part async for part in stream]


def words_of(parts: list[StreamPart]) -> str:
    """The text of a reply that came in pieces."""
    return "".join(
        cast("Any", part.data)[0]["content"] for part in parts if part.event == "messages"
    )


def shown_after(parts: list[StreamPart], shown: dict[str, str]) -> list[str]:
    """The texts that a client shows after some pieces: it adds them up by their ids, as the SDK's
    own reducer does, and drops what is removed.
    """
    for part in parts:
        if part.event == "messages":
            piece = cast("Any", part.data)[0]
            if piece["type"] == "remove":
                del shown[piece["id"]]
            else:
                shown[piece["id"]] = shown.get(piece["id"], "") + piece["content"]
    return [*shown.values()]


async def read_until(site: Site, path: str, text: str) -> tuple[str, str]:
    """The text of a reply up to some words, and the id of the event that brought them; then the
    line is cut.
    """
    heard, last = "", ""
    async with asyncio.timeout(PATIENCE), site.http.stream("GET", path) as response:
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                last = value
            if name == "data" and value.startswith("[{"):
                heard += json.loads(value)[0]["content"]
                if text in heard:
                    return heard, last
    raise AssertionError(heard)

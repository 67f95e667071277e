"""Where running turns are kept: the same agent on every saver, and what opening one can tell."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

from segue import SnowflakeGenerator
from segue.agent.build import build_graph
from segue.agent.checkpoints import (
    Checkpoints,
    MemoryCheckpoints,
    PostgresCheckpoints,
    SqliteCheckpoints,
)
from segue.agent.config import AgentConfig
from segue.agent.langgraph_agent import LangGraphAgent
from segue.agent.run import NewMessage, Question, Run
from segue.agent.scripted import ScriptedChatModel
from segue.core.errors import BackendError, UsageError
from segue.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as server:
        yield server


@pytest.fixture(scope="module")
def dsn(server: PostgresServer) -> str:
    return server.create_database()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Checkpoints]:
    made: Checkpoints
    if request.param == "memory":
        made = MemoryCheckpoints()
    elif request.param == "sqlite":
        made = SqliteCheckpoints(tmp_path / "runs.db")
    else:
        made = PostgresCheckpoints(request.getfixturevalue("dsn"))
    await made.open()
    yield made
    await made.close()


def agent_on(checkpoints: Checkpoints, *script: Any, tools: Any = ()) -> LangGraphAgent:
    config = AgentConfig(id="guide")
    model = ScriptedChatModel(script=list(script))
    return LangGraphAgent(config, build_graph(config, model=model, tools=tools), checkpoints)


def texts(events: list[Any]) -> list[str]:
    return [event.message.text for event in events if isinstance(event, NewMessage)]


@tool
async def order(what: str) -> str:
    """Order something."""
    return f"{what}: {interrupt('Really?')}"


async def test_a_run_is_kept_until_it_is_over(checkpoints: Checkpoints) -> None:
    """On every saver a question waits for its answer, and nothing is left when it is over."""
    call = {"name": "order", "args": {"what": "pizza"}, "id": "call_1", "type": "tool_call"}
    agent = agent_on(checkpoints, AIMessage("", tool_calls=[call]), "Done.", tools=[order])
    run = Run.of("Pizza!", SnowflakeGenerator(node=1), agent_id="guide")
    first = [event async for event in agent.run(run)]
    assert isinstance(first[-1], Question)
    going_on = Run(run.thread_id, "guide", "ada", run.batch, answer="yes")
    assert texts([event async for event in agent.run(going_on)])[-2:] == ["pizza: yes", "Done."]
    await agent.forget(run.batch.id)
    assert [kept async for kept in checkpoints.saver().alist(None)] == []


async def test_many_runs_share_the_checkpoints(checkpoints: Checkpoints) -> None:
    """Runs at the same time do not mix."""
    agent = agent_on(checkpoints, *["Yes."] * 10)
    ids = SnowflakeGenerator(node=1)

    async def ask() -> list[str]:
        run = Run.of("Is it open?", ids, agent_id="guide")
        said = texts([event async for event in agent.run(run)])
        await agent.forget(run.batch.id)
        return said

    assert await asyncio.gather(*(ask() for _ in range(10))) == [["Yes."]] * 10


class Order(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    basket: dict[str, int]


async def test_state_of_ones_own_is_kept_over_a_break(checkpoints: Checkpoints) -> None:
    """A graph that is asked again after an interrupt finds what it had noted."""

    def fill(state: Order) -> dict[str, Any]:  # noqa: ARG001 - a node gets the state
        return {"basket": {"pizza": 2}}

    def ask(state: Order) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{state['basket']} {interrupt('Pay?')}")]}

    builder: StateGraph[Any] = StateGraph(Order)
    builder.add_node("fill", fill)
    builder.add_node("ask", ask)
    builder.add_edge(START, "fill")
    builder.add_edge("fill", "ask")
    config = AgentConfig(id="guide", graph=builder)
    agent = LangGraphAgent(config, build_graph(config), checkpoints)
    run = Run.of("Two pizzas.", SnowflakeGenerator(node=1), agent_id="guide")
    assert [type(event) async for event in agent.run(run)] == [Question]
    going_on = Run(run.thread_id, "guide", "ada", run.batch, answer="yes")
    said = texts([event async for event in agent.run(going_on)])
    assert said == ["{'pizza': 2} yes"]
    await agent.forget(run.batch.id)


async def test_a_place_that_cannot_be_opened_is_named(tmp_path: Path, dsn: str) -> None:
    """The error says which file or why, and never the password."""
    async with AsyncExitStack() as stack:
        with pytest.raises(BackendError, match="nowhere"):
            await SqliteCheckpoints(tmp_path / "nowhere" / "runs.db").open()
        missing = PostgresCheckpoints(f"{dsn} password=s3cret dbname=nowhere connect_timeout=2")
        stack.push_async_callback(missing.close)
        with pytest.raises(BackendError) as caught:
            await missing.open()
    assert "s3cret" not in str(caught.value)


async def test_checkpoints_must_be_open(tmp_path: Path) -> None:
    """Before that there is nothing to save to, and the error says what to do."""
    with pytest.raises(UsageError, match="open"):
        SqliteCheckpoints(tmp_path / "runs.db").saver()


async def test_processes_that_start_at_once_set_up_the_tables_once(server: PostgresServer) -> None:
    """Several that open a new database in the same moment do not fail each other."""
    fresh = server.create_database()
    opened = [PostgresCheckpoints(fresh) for _ in range(5)]
    await asyncio.gather(*(checkpoints.open() for checkpoints in opened))
    for checkpoints in opened:
        await checkpoints.close()

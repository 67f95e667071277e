"""Where running turns are kept: the same agent on every saver, and what opening one can tell."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import psycopg
import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

from segue import SnowflakeGenerator
from segue.agent.build import build_graph
from segue.agent.checkpoints.postgres import PostgresCheckpoints
from segue.agent.checkpoints.savers import AttemptSaver
from segue.agent.checkpoints.store import (
    Checkpoints,
    MemoryCheckpoints,
    SqliteCheckpoints,
)
from segue.agent.langgraph_agent import LangGraphAgent
from segue.agent.scripted import ScriptedChatModel
from segue.errors import BackendError, UsageError
from segue.runtime.run import MessageFinished, Question, Run, StateChanged
from segue.settings.agents import AgentConfig
from segue.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio


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
    return [event.message.text for event in events if isinstance(event, MessageFinished)]


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
    assert [type(event) async for event in agent.run(run)] == [Question, StateChanged]
    going_on = Run(run.thread_id, "guide", "ada", run.batch, answer="yes")
    said = texts([event async for event in agent.run(going_on)])
    assert said == ["{'pizza': 2} yes"]
    await agent.forget(run.batch.id)


def die_after(steps: int, checkpoints: Checkpoints, patch: pytest.MonkeyPatch) -> None:
    """Allow this number of writes, and no more."""
    left = count(steps, -1)
    saver = type(checkpoints.saver())
    for name in ("aput", "aput_writes"):
        put = getattr(saver, name)

        async def put_or_die(*args: Any, put: Any = put) -> Any:
            if next(left) <= 0:
                raise ConnectionError("gone")
            return await put(*args)

        patch.setattr(saver, name, put_or_die)


async def heard_by(agent: LangGraphAgent, run: Run) -> list[Any]:
    return [event async for event in agent.run(run)]


@pytest.mark.parametrize("steps", [None, *range(4)])
async def test_a_question_inside_is_kept_for_another_attempt(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, steps: int | None
) -> None:
    """The graph inside has checkpoints of its own, and they are taken over with the outer one's,
    also if an attempt in between died while it did so.
    """
    began: list[str] = []

    def fill(state: Order) -> dict[str, Any]:  # noqa: ARG001 - a node gets the state
        began.append("fill")
        return {"basket": {"pizza": 2}}

    def ask(state: Order) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{state['basket']} {interrupt('Pay?')}")]}

    inner: StateGraph[Any] = StateGraph(Order)
    inner.add_node("fill", fill)
    inner.add_node("ask", ask)
    inner.add_edge(START, "fill")
    inner.add_edge("fill", "ask")
    outer: StateGraph[Any] = StateGraph(Order)
    outer.add_node("shop", inner.compile())
    outer.add_edge(START, "shop")
    config = AgentConfig(id="guide", graph=outer)
    agent = LangGraphAgent(config, build_graph(config), checkpoints)
    asked = Run.of("Two pizzas.", SnowflakeGenerator(node=1), agent_id="guide")
    asked = replace(asked, attempt=(1, 1))
    assert [type(event) for event in await heard_by(agent, asked)] == [Question]
    answered = replace(asked, answer="yes", is_new=False, attempt=(2, 1))
    if steps is not None:
        with monkeypatch.context() as patch:
            die_after(steps, checkpoints, patch)
            with pytest.raises(ConnectionError):
                await heard_by(agent, answered)
    again = replace(answered, attempt=(2, 2))
    assert texts(await heard_by(agent, again)) == ["{'pizza': 2} yes"]
    assert began == ["fill"]
    await agent.forget(asked.batch.id)
    assert [kept async for kept in checkpoints.saver().alist(None)] == []


class Pair:
    """Two tools that one message calls: the second waits the first time that it runs."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.may_end = asyncio.Event()
        calls = [ToolCall(name=name, args={}, id=name, type="tool_call") for name in self.names]
        self.calling = AIMessage("Both.", id="calling", tool_calls=calls)

    names = ("quick", "slow")

    @property
    def tools(self) -> list[BaseTool]:
        return [tool(name, description="Work.")(self._tool(name)) for name in self.names]

    def script(self, messages: list[BaseMessage]) -> AIMessage:
        results = [message.text for message in messages if isinstance(message, ToolMessage)]
        return AIMessage(", ".join(sorted(results))) if results else self.calling.model_copy()

    def _tool(self, name: str) -> Callable[[], Awaitable[str]]:
        async def work() -> str:
            self.ran[name] += 1
            time = self.ran[name]
            if name == "slow" and time == 1:
                await self.may_end.wait()
            return f"{name} {time}"

        return work


def pair_agent(pair: Pair, checkpoints: Checkpoints) -> tuple[LangGraphAgent, Run]:
    config = AgentConfig(id="guide")
    model = ScriptedChatModel(script=pair.script)
    agent = LangGraphAgent(config, build_graph(config, model=model, tools=pair.tools), checkpoints)
    run = Run.of("Go!", SnowflakeGenerator(node=1), agent_id="guide")
    return agent, replace(run, attempt=(1, 1))


async def until_the_quick_one_is_done(events: AsyncIterator[Any]) -> None:
    async for event in events:
        if isinstance(event, MessageFinished) and isinstance(event.message, ToolMessage):
            return


async def test_what_a_lost_attempt_stores_later_is_read_by_nobody(checkpoints: Checkpoints) -> None:
    """The third attempt goes on from the second, although the first stored something after it."""
    pair = Pair()
    agent, run = pair_agent(pair, checkpoints)
    lost: Any = agent.run(run)
    await until_the_quick_one_is_done(lost)
    second = replace(run, attempt=(1, 2), is_new=False)
    reply = texts([event async for event in agent.run(second)])[-1]
    pair.may_end.set()
    assert texts([event async for event in lost])[-1] == "quick 1, slow 1" != reply
    third = replace(run, attempt=(1, 3), is_new=False)
    assert texts([event async for event in agent.run(third)])[-1] == reply
    assert pair.ran["slow"] == 2
    await agent.forget(run.batch.id)
    assert [kept async for kept in checkpoints.saver().alist(None)] == []


@pytest.mark.parametrize("steps", range(2))
async def test_an_attempt_that_dies_while_taking_over_loses_nothing(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Half a copy does not count: the next one takes over what was whole."""
    pair = Pair()
    agent, run = pair_agent(pair, checkpoints)
    async with aclosing(cast("AsyncGenerator[Any]", agent.run(run))) as events:
        await until_the_quick_one_is_done(events)
    with monkeypatch.context() as patch:
        die_after(steps, checkpoints, patch)
        with pytest.raises(ConnectionError):
            await heard_by(agent, replace(run, attempt=(1, 2), is_new=False))
    third = replace(run, attempt=(1, 3), is_new=False)
    assert texts(await heard_by(agent, third))[-1] == "quick 1, slow 2"
    assert pair.ran == {"quick": 1, "slow": 2}
    await agent.forget(run.batch.id)


@dataclass
class Basket:
    pizzas: int


class Shopping(TypedDict):
    basket: Basket


async def test_a_graph_inside_gets_its_own_types_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """In LangGraph's strict mode a graph asks for a saver that knows its types."""
    for module in ("langgraph._internal._serde", "langgraph.checkpoint.serde._msgpack"):
        monkeypatch.setattr(f"{module}.STRICT_MSGPACK_ENABLED", True)
    monkeypatch.setattr(BaseCheckpointSaver, "serde", JsonPlusSerializer())

    def pay(state: Shopping) -> dict[str, Any]:
        return {"basket": Basket(state["basket"].pizzas * interrupt("How often?"))}

    builder: StateGraph[Any] = StateGraph(Shopping)
    builder.add_node("fill", lambda _: {"basket": Basket(2)})
    builder.add_node("pay", pay)
    builder.add_edge(START, "fill")
    builder.add_edge("fill", "pay")
    shop = builder.compile()

    @tool
    async def buy() -> str:
        """Buy something."""
        return f"{(await shop.ainvoke({}))['basket'].pizzas} pizzas"

    call = {"name": "buy", "args": {}, "id": "call_1", "type": "tool_call"}
    script = (AIMessage("", tool_calls=[call]), "Done.")
    agent = agent_on(MemoryCheckpoints(), *script, tools=[buy])
    run = Run.of("Pizza!", SnowflakeGenerator(node=1), agent_id="guide")
    assert isinstance((await heard_by(agent, run))[-1], Question)
    answered = replace(run, answer=3, attempt=(1, 1))
    assert texts(await heard_by(agent, answered))[-2:] == ["6 pizzas", "Done."]


async def test_a_saver_that_learns_a_type_is_still_the_same() -> None:
    """A copy would not know what the other one holds back or has stored."""
    strict = JsonPlusSerializer(allowed_msgpack_modules=())
    saver = AttemptSaver(InMemorySaver(serde=strict), "7", (1, 1), is_lazy=True)
    assert saver.with_allowlist({("somewhere", "Thing")}) is saver


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


def test_a_file_that_cannot_be_opened_leaves_no_thread_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One would print a traceback if the event loop is closed before it ends."""
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    before = {*threading.enumerate()}
    for _ in range(100):
        with pytest.raises(BackendError, match="nowhere"):
            asyncio.run(SqliteCheckpoints(tmp_path / "nowhere" / "runs.db").open())
    for thread in {*threading.enumerate()} - before:
        thread.join(60)
    assert failed == []


async def test_checkpoints_must_be_open(tmp_path: Path) -> None:
    """Before that there is nothing to save to, and the error says what to do."""
    with pytest.raises(UsageError, match="open"):
        SqliteCheckpoints(tmp_path / "runs.db").saver()


async def test_checkpoints_in_a_file_wait_for_the_disk(tmp_path: Path) -> None:
    """A tool that finished before a power cut does not run again after it."""
    checkpoints = await SqliteCheckpoints(tmp_path / "runs.db").open()
    async with checkpoints.saver().conn.execute("PRAGMA synchronous") as rows:
        [(mode,)] = await rows.fetchall()
    await checkpoints.close()
    assert mode == 2  # SQLite's FULL


async def test_processes_that_start_at_once_set_up_the_tables_once(server: PostgresServer) -> None:
    """Several that open a new database in the same moment do not fail each other."""
    fresh = server.create_database()
    opened = [PostgresCheckpoints(fresh) for _ in range(5)]
    await asyncio.gather(*(checkpoints.open() for checkpoints in opened))
    assert [await checkpoints.attempts() for checkpoints in opened] == [set()] * 5
    for checkpoints in opened:
        await checkpoints.close()


async def test_a_database_that_fails_is_an_error_that_can_be_tried_again(
    server: PostgresServer,
) -> None:
    """The sweeper runs beside everything else, so the driver's own errors must not surprise it."""
    checkpoints = await PostgresCheckpoints(address := server.create_database()).open()
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        await connection.execute("DROP TABLE checkpoints, checkpoint_writes")
    with pytest.raises(BackendError, match="checkpoints"):
        await checkpoints.attempts()
    with pytest.raises(BackendError, match="checkpoints"):
        await checkpoints.drop("1")
    await checkpoints.close()


async def test_nothing_is_stored_for_a_run_that_is_over() -> None:
    """Closing waits for what is being stored, and what LangGraph brings later is left out."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(InMemorySaver):
        async def aput(self, *args: Any) -> Any:
            begun.set()
            await go_on.wait()
            return await super().aput(*args)

    below = Slow()
    saver = AttemptSaver(below, "7", (1, 1))
    config: Any = {"configurable": {"thread_id": "7", "checkpoint_ns": ""}}
    put = asyncio.create_task(saver.aput(config, empty_checkpoint(), {"step": 1}, {}))
    await begun.wait()
    closing = asyncio.create_task(saver.close())
    await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await asyncio.gather(put, closing)
    await below.adelete_thread("7")
    await saver.aput(config, empty_checkpoint(), {"step": 2}, {})
    await saver.aput_writes(await put, [("messages", "words")], "task")
    assert [found async for found in below.alist({"configurable": {"thread_id": "7"}})] == []
    assert not below.writes

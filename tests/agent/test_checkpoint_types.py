"""What comes to life out of a checkpoint, and what does not."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_POS_ARGS
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from segue import SnowflakeGenerator
from segue.agent.build import build_graph
from segue.agent.checkpoints.postgres import PostgresCheckpoints
from segue.agent.checkpoints.store import Checkpoints, SqliteCheckpoints, StrictSerializer
from segue.agent.langgraph_agent import LangGraphAgent
from segue.errors import UsageError
from segue.runtime.run import MessageFinished, Question, Run
from segue.settings.agents import AgentConfig
from segue.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio

CALLED: list[str] = []


def call(word: str) -> str:
    """What a forged row would have called."""
    CALLED.append(word)
    return word


@dataclass
class Basket:
    """Something that a graph keeps in its state."""

    pizzas: int


class Declared(MessagesState):
    basket: Basket


class Undeclared(MessagesState):
    basket: Any


@pytest.fixture(params=["sqlite", "postgres"])
async def checkpoints(
    request: pytest.FixtureRequest, tmp_path: Path, server: PostgresServer
) -> AsyncIterator[Checkpoints]:
    made: Checkpoints = SqliteCheckpoints(tmp_path / "runs.db")
    if request.param == "postgres":
        made = PostgresCheckpoints(server.create_database())
    await made.open()
    yield made
    await made.close()


def shop(checkpoints: Checkpoints, state: type[Any], **config: Any) -> LangGraphAgent:
    """An agent that asks how often, with a basket in its hands."""

    def pay(state: Any) -> dict[str, Any]:
        pizzas = state["basket"].pizzas * interrupt("How often?")
        return {"messages": [AIMessage(f"{pizzas} pizzas")]}

    builder = StateGraph(state)
    builder.add_node("fill", lambda _: {"basket": Basket(2)})
    builder.add_node("pay", pay)
    builder.add_edge(START, "fill")
    builder.add_edge("fill", "pay")
    agent = AgentConfig(id="guide", graph=builder.compile(), **config)
    return LangGraphAgent(agent, build_graph(agent), checkpoints)


async def ask_and_answer(agent: LangGraphAgent) -> str:
    run = Run.of("Pizza!", SnowflakeGenerator(node=1), agent_id="guide")
    asked = [event async for event in agent.run(run)]
    assert any(isinstance(event, Question) for event in asked)
    answered = replace(run, answer=3, attempt=(1, 1))
    events = [event async for event in agent.run(answered)]
    [said] = [event for event in events if isinstance(event, MessageFinished)]
    return said.message.text


async def test_what_a_graph_declares_comes_back(checkpoints: Checkpoints) -> None:
    """Its state names the type: nothing is to be set."""
    assert await ask_and_answer(shop(checkpoints, Declared)) == "6 pizzas"


async def test_what_it_does_not_declare_is_refused_unless_it_is_allowed(
    checkpoints: Checkpoints,
) -> None:
    """The error says which type, and where to allow it."""
    name = f"{Basket.__module__}:Basket"
    with pytest.raises(UsageError, match=rf"{name}.*checkpoint_types"):
        await ask_and_answer(shop(checkpoints, Undeclared))
    allowing = shop(checkpoints, Undeclared, checkpoint_types=(name,))
    assert await ask_and_answer(allowing) == "6 pizzas"


def test_a_forged_row_calls_nothing() -> None:
    """A row that an attacker wrote runs no code here, wherever they hide it."""
    CALLED.clear()
    named = ormsgpack.packb((__name__, "call", ("gotcha",)))
    forged = {"messages": [[ormsgpack.Ext(EXT_CONSTRUCTOR_POS_ARGS, named)]]}
    with pytest.raises(UsageError, match="call, which the graph's state does not declare"):
        StrictSerializer().loads_typed(("msgpack", ormsgpack.packb(forged)))
    constructor = {"lc": 2, "type": "constructor", "id": [*__name__.split("."), "call"]}
    with pytest.raises(UsageError, match="does not write"):
        StrictSerializer().loads_typed(("json", ormsgpack.packb(constructor)))
    assert CALLED == []

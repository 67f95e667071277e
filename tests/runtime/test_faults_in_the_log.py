"""A mistake in one's own graph, tool or decider can be found in the log, without words."""

import logging
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph

from segue.simulate.world import Stage, plain_agent
from tests.runtime import deciders
from tests.runtime.scenes import calling, lines, new_thread

pytestmark = pytest.mark.anyio

WORDS = "The user said swordfish."


def failing_node(state: MessagesState) -> dict[str, Any]:
    raise ValueError(f"{WORDS} {len(state['messages'])}")


@tool
def failing_tool() -> str:
    """Fail."""
    raise ValueError(WORDS)


def records(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    ours = [record for record in caplog.records if record.name.startswith("segue")]
    return [record for record in ours if record.levelno == level]


def assert_found(caplog: pytest.LogCaptureFixture, level: int, place: str, words: str) -> None:
    """One line says where, none above DEBUG says more, and the traceback is at DEBUG."""
    [line] = records(caplog, level)
    assert place in line.getMessage()
    above = [record for record in caplog.records if record.levelno > logging.DEBUG]
    assert words not in "\n".join(map(logging.Formatter().format, above))
    told = [record for record in records(caplog, logging.DEBUG) if record.exc_info]
    assert [words in str(record.exc_info) for record in told] == [True]


async def test_a_node_that_raises(sqlite_stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """The turn's end names the node's file, line and function."""
    builder = StateGraph(MessagesState)
    builder.add_node("failing", failing_node)
    builder.add_edge(BEGIN, "failing")
    agent = plain_agent(graph=builder.compile())
    caplog.set_level(logging.DEBUG)
    async with sqlite_stage.world(agent) as world:
        await world.say(await new_thread(world.segue), "Hello.")
    line = failing_node.__code__.co_firstlineno + 1
    place = f"ValueError at {Path(__file__)}:{line} in failing_node"
    assert_found(caplog, logging.ERROR, place, WORDS)


async def test_a_tool_that_raises(sqlite_stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """The model is told and goes on; the log names the tool's file, line and function."""
    model = lines(calling("failing_tool"), "It does not work.")
    caplog.set_level(logging.DEBUG)
    async with sqlite_stage.world(
        plain_agent(tools=(failing_tool,)), models={"guide": model}
    ) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Hello.")
        assert await world.heard(thread) == ["Hello.", "It does not work."]
    assert_found(caplog, logging.WARNING, "ValueError at " + str(Path(__file__)), WORDS)
    assert "in failing_tool" in records(caplog, logging.WARNING)[0].getMessage()


async def test_a_decider_that_raises(sqlite_stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """No follow-up is planned, and the log names the decider's file, line and function."""
    agent = plain_agent(autonomy={"decider": "tests.runtime.deciders:raising"})
    caplog.set_level(logging.DEBUG)
    async with sqlite_stage.world(agent) as world:
        await world.say(await new_thread(world.segue), "Hello.")
    assert_found(caplog, logging.WARNING, "deciders.py:", deciders.WORDS)
    assert "in raising" in records(caplog, logging.WARNING)[0].getMessage()

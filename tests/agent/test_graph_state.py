"""The state that a graph gets back at the start of a run, and what a crash around it costs."""

import operator
from dataclasses import replace
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from segue import SnowflakeGenerator, group_batches, stamp
from segue.agent.build import build_graph
from segue.agent.checkpoints.store import Checkpoints
from segue.agent.langgraph_agent import LangGraphAgent
from segue.journal.records import StateValue
from segue.runtime.run import MessageFinished, Run, StateChanged
from segue.settings.agents import AgentConfig

pytestmark = pytest.mark.anyio


class Notes(MessagesState):
    notes: Annotated[list[str], operator.add]


def note(state: Notes) -> dict[str, Any]:
    said = f"{len(state['messages'])} messages, {len(state['notes'])} notes"
    return {"messages": [AIMessage(said)], "notes": ["new"]}


def agent_on(checkpoints: Checkpoints) -> LangGraphAgent:
    builder = StateGraph(Notes)
    builder.add_node("note", note)
    builder.add_edge(START, "note")
    config = AgentConfig(id="guide", graph=builder.compile())
    return LangGraphAgent(config, build_graph(config), checkpoints)


async def said_and_kept(agent: LangGraphAgent, run: Run) -> tuple[list[str], StateValue]:
    events = [event async for event in agent.run(run)]
    [changed] = [event for event in events if isinstance(event, StateChanged)]
    kept = changed.changes["notes"]
    assert kept is not None
    return [e.message.text for e in events if isinstance(e, MessageFinished)], kept


async def test_a_run_that_died_before_its_input_begins_again_with_all_of_it(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its first checkpoint, the state, was stored: the conversation is not lost to it."""
    ids = SnowflakeGenerator(node=1)
    first = Run.of("One.", ids, agent_id="guide")
    _, kept = await said_and_kept(agent_on(checkpoints), replace(first, attempt=(1, 1)))
    told = stamp([AIMessage("Noted.")], ids, first.batch)
    history = group_batches([*first.batch.messages, *told])
    second = Run.of("Two.", ids, agent_id="guide", history=history)
    second = replace(second, state={"notes": kept}, attempt=(2, 1))
    saver = type(checkpoints.saver())
    put, puts = saver.aput, list[int]()

    async def put_once(*args: Any) -> Any:
        puts.append(1)
        if len(puts) > 1:
            raise ConnectionError("gone")
        return await put(*args)

    with monkeypatch.context() as patch:
        patch.setattr(saver, "aput", put_once)
        with pytest.raises(ConnectionError):
            await said_and_kept(agent_on(checkpoints), second)
    again = replace(second, is_new=False, attempt=(2, 2))
    said, now = await said_and_kept(agent_on(checkpoints), again)
    assert said == ["3 messages, 1 notes"]
    assert now.value != kept.value


async def test_a_run_of_which_only_the_end_is_missing_gives_its_state_again(
    checkpoints: Checkpoints,
) -> None:
    """The graph had ended when the process died: nothing runs again, and its state is stored."""
    run = replace(Run.of("One.", SnowflakeGenerator(node=1), agent_id="guide"), attempt=(1, 1))
    first = await said_and_kept(agent_on(checkpoints), run)
    again = replace(run, is_new=False, attempt=(1, 2))
    assert await said_and_kept(agent_on(checkpoints), again) == first

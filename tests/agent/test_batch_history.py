"""`BatchHistory`: batches in an agent of `create_agent` that runs without Segue."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from segue import (
    MessageMetadata,
    SnowflakeGenerator,
    group_batches,
    synthetic_message,
    user_message,
    visible_messages,
)
from segue.core.metadata import strip_metadata
from segue.middleware import BatchHistory
from segue.testing.providers import request_problems
from segue.testing.world import ScriptedChatModel

pytestmark = pytest.mark.anyio

SAM: Any = {"configurable": {"thread_id": "sam"}}


def order(item: str) -> str:
    """Order an item."""
    if item == "bomb":
        raise RuntimeError("The process died.")
    if item == "house":
        return f"ordered: {interrupt('Really?')}"
    return f"ordered: {item}"


def calling(*items: str) -> AIMessage:
    calls = [{"name": "order", "args": {"item": item}, "id": f"call_{item}"} for item in items]
    return AIMessage("", tool_calls=calls)


def agent_of(*script: Any, **how: Any) -> tuple[Any, ScriptedChatModel]:
    model = ScriptedChatModel(script=[*script])
    middleware = [BatchHistory(**how)]
    made = create_agent(
        model, [order], middleware=middleware, checkpointer=InMemorySaver(), system_prompt="Be Ada."
    )
    return made, model


def say(text: str) -> dict[str, list[BaseMessage]]:
    return {"messages": [user_message(text)]}


def check_requests(model: ScriptedChatModel) -> None:
    """Every request is valid for all providers and has no metadata."""
    for request in model.seen:
        assert request_problems(request) == []
        assert strip_metadata(request) == request


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_run_is_one_batch(is_async: bool) -> None:
    """With its calls and their results, in the state; the model sees none of the metadata."""
    agent, model = agent_of(calling("tea", "milk"), "Both are on their way.", "You are welcome.")
    for text in ("Tea with milk, please.", "Thanks!"):
        given = say(text)
        state = await agent.ainvoke(given, SAM) if is_async else agent.invoke(given, SAM)
    batches = group_batches(state["messages"])
    assert [[m.type for m in batch.messages] for batch in batches] == [
        ["human", "ai", "tool", "tool", "ai"],
        ["human", "ai"],
    ]
    assert [MessageMetadata.of(m).sequence_num for m in batches[0].messages] == [0, 1, 2, 3, 4]
    assert all(batch.is_complete for batch in batches)
    check_requests(model)
    assert [m.type for m in model.seen[-1]] == [
        *("system", "human", "ai", "tool", "tool", "ai", "human")
    ]


def test_a_follow_up_is_a_batch_that_nobody_sees() -> None:
    agent, _ = agent_of("Which pizza?", "Shall I choose?")
    agent.invoke(say("I am hungry."), SAM)
    state = agent.invoke({"messages": [synthetic_message("question_unanswered")]}, SAM)
    assert [batch.type for batch in group_batches(state["messages"])] == [
        "user_request",
        "system_trigger",
    ]
    shown = [message.text for message in visible_messages(state["messages"])]
    assert shown == ["I am hungry.", "Which pizza?", "Shall I choose?"]


def test_what_a_crash_left_open_is_closed_in_the_models_view() -> None:
    """The user's words stay, and the request is valid, though a call was never answered."""
    agent, model = agent_of(calling("bomb", "tea"), "Sorry, something went wrong.")
    with pytest.raises(RuntimeError):
        agent.invoke(say("A bomb and tea."), SAM)
    state = agent.invoke(say("What happened?"), SAM)
    check_requests(model)
    texts = [message.text for message in model.seen[-1]]
    assert "A bomb and tea." in texts
    assert texts[-1] == "What happened?"
    assert [b.is_complete for b in group_batches(state["messages"])] == [False, True]


def test_a_resumed_run_stays_in_its_batch() -> None:
    agent, model = agent_of(calling("house"), "It is yours.")
    agent.invoke(say("A house, please."), SAM)
    state = agent.invoke(Command(resume="yes"), SAM)
    [batch] = group_batches(state["messages"])
    assert [m.type for m in batch.messages] == ["human", "ai", "tool", "ai"]
    check_requests(model)


def test_old_batches_leave_the_view_whole() -> None:
    """The state keeps them; the tools and the system message count, too."""
    long = "word " * 400
    agent, model = agent_of(*["Fine." for _ in range(10)], max_tokens=2_000)
    for number in range(10):
        state = agent.invoke(say(f"{number} {long}"), SAM)
    assert len(state["messages"]) == 20
    assert [m.type for m in model.seen[-1]] == ["system", "human", "ai", "human"]
    assert model.seen[-1][-1].text.startswith("9 ")


def test_positions_rise_though_the_clock_was_set_back() -> None:
    """After a restart with a wrong clock a new batch is still the newest."""
    hour = 3_600_000
    saver, states = InMemorySaver(), list[Any]()
    for millis in (1_800_000_000_000, 1_800_000_000_000 - hour):
        ids = SnowflakeGenerator(node=1, clock=lambda now=millis: now)  # type: ignore[misc]
        agent: Any = create_agent(
            ScriptedChatModel(script=["Hi."]),
            middleware=[BatchHistory(ids=ids)],
            checkpointer=saver,
        )
        states.append(agent.invoke(say("Hello!"), SAM))
    positions = [MessageMetadata.of(m).position or 0 for m in states[-1]["messages"]]
    assert positions == sorted(positions)
    assert len(group_batches(states[-1]["messages"])) == 2


def test_two_messages_at_once_are_one_batch() -> None:
    agent, _ = agent_of("Fine.")
    state = agent.invoke({"messages": [user_message("One."), user_message("Two.")]}, SAM)
    [batch] = group_batches(state["messages"])
    assert len(batch.messages) == 3

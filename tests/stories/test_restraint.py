"""Stories of restraint: an agent that is ignored, interrupted or not wanted says less and less."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph

from segue.core.triggers import TriggerType
from segue.journal.records import TimerState
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, Stage, plain_agent
from segue.telemetry import FIELDS
from tests.stories.scenes import (
    PATIENCE,
    TOLD,
    arm,
    asked_by,
    eager_agent,
    model_of,
    new_thread,
    sent_at,
    told,
)

pytestmark = pytest.mark.anyio

ENOUGH = "3 of 3 follow-ups sent since the user last wrote; the user is next."


async def test_delays_double_with_each_follow_up_that_is_ignored(stage: Stage) -> None:
    """The second comes after twice the time, the third after four times, each since the last."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=1)
        assert await sent_at(world, thread) == [START + n * PATIENCE for n in (1, 3, 7)]


async def test_three_ignored_follow_ups_end_it_until_the_user_writes(stage: Stage) -> None:
    """Then the agent is quiet for as long as the user is, and free again after the next word."""
    model = model_of()
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=30)
        assert len(await sent_at(world, thread)) == 3
        assert (await told(world, thread, "planning"))[-1] == f"nothing: {ENOUGH}"
        assert len(model.seen) == 4
        await world.say(thread, "Sorry, I was away.")
        written = world.clock.now()
        await world.pass_time(PATIENCE)
        assert (await sent_at(world, thread))[3:] == [written + PATIENCE]


async def test_the_gate_refuses_a_fourth_that_somebody_arms_by_hand(stage: Stage) -> None:
    """Not only the planner knows the bound: a timer from anywhere else meets it, too."""
    model = model_of()
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=1)
        timer = await arm(world, thread, world.clock.now() + PATIENCE)
        await world.pass_time(days=1)
        assert len(await sent_at(world, thread)) == 3
        assert len(model.seen) == 4
        [refused, *_] = await world.segue.list_follow_ups(thread)
        assert (refused.id, refused.state) == (timer.id, TimerState.SUPPRESSED)
        assert (await told(world, thread, "the gates"))[-1] == f"suppress: {ENOUGH}"


async def test_a_goodbye_is_the_end(stage: Stage) -> None:
    """Who parts is not followed."""
    model = model_of("Goodbye, and take care!")
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "That's all, thanks. Bye!")
        await world.pass_time(days=30)
        assert len(model.seen) == 1
        assert await world.segue.list_follow_ups(thread) == []
        assert await told(world, thread, "planning") == [
            "nothing: The conversation is closed: goodbye, thanks, or nothing more needed."
        ]


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        (eager_agent(enabled=False), "Follow-ups are disabled for this agent."),
        (eager_agent(policy={"enabled": False}), "Follow-ups are disabled for this agent."),
        (eager_agent(decider="none"), "This agent has no decider for follow-ups."),
    ],
    ids=["autonomy", "policy", "decider"],
)
async def test_an_agent_without_initiative_never_speaks_first(
    stage: Stage, agent: AgentConfig, reason: str
) -> None:
    """Whichever switch is off, nothing is planned, and the record says why."""
    model = model_of()
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=30)
        assert len(model.seen) == 1
        assert await told(world, thread, "planning") == [f"nothing: {reason}"]


async def test_switching_an_agent_off_stops_what_was_planned(stage: Stage) -> None:
    """The policy's switch is a gate: it holds for timers of an earlier configuration."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
    off, model = eager_agent(policy={"enabled": False}), model_of()
    async with stage.world(off, models={"guide": model}) as world:
        await world.pass_time(days=1)
        assert model.seen == []
        assert await told(world, thread, "the gates") == [
            "suppress: Follow-ups are disabled for this agent."
        ]


async def test_typing_puts_a_follow_up_off(stage: Stage) -> None:
    """Nobody is interrupted; half a minute after the last key the agent may speak."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        for _ in range(6):
            await world.pass_time(seconds=20)
            await world.segue.report_typing(thread)
        assert await sent_at(world, thread) == []
        await world.pass_time(minutes=1)
        assert await sent_at(world, thread) == [START + timedelta(seconds=150)]
        assert set((await told(world, thread, "the gates"))[:-1]) == {
            "postpone: The user is typing."
        }


async def test_two_nudges_that_are_due_at_once_become_one(stage: Stage) -> None:
    """A thread has one follow-up at a time, whoever asks for more."""
    model = model_of()
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        due = START + PATIENCE
        await arm(world, thread, due, "task_incomplete")
        await arm(world, thread, due, "question_unanswered")
        await world.pass_time(PATIENCE)
        assert await sent_at(world, thread) == [due]
        assert asked_by(model.seen[-1]) is TriggerType.QUESTION_UNANSWERED
        assert await told(world, thread, "the follow-up planned") == [
            "cancelled: Replaced by a newer timer.",
            "cancelled: Replaced by a newer timer.",
        ]


async def test_a_silent_week_costs_no_model_call(stage: Stage) -> None:
    """Timers that are due every few hours ask the gates, and nobody else."""
    model = model_of()
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world, muted=True)
        await world.say(thread, "Where is Oslo?")
        for _ in range(28):
            await arm(world, thread, world.clock.now() + timedelta(hours=3))
            await world.pass_time(hours=6)
        assert world.clock.now() == START + timedelta(days=7)
        assert len(model.seen) == 1
        reasons = await told(world, thread, "the gates")
        assert reasons == ["suppress: The thread is muted."] * 28


@pytest.mark.parametrize("has_memory", [True, False])
async def test_an_empty_thread_is_one_error_and_still_an_answer(
    stage: Stage, caplog: pytest.LogCaptureFixture, has_memory: bool
) -> None:
    """A timer on a thread in which nobody ever wrote is a mistake to be told of, not a silence."""
    agent = eager_agent()
    if has_memory:
        agent = agent.model_copy(update={"memory": AgentConfig(id="any").memory})
    model = model_of(then="Hello! How are you?")
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await arm(world, thread, START + PATIENCE)
        with caplog.at_level(logging.DEBUG):
            await world.pass_time(PATIENCE)
        assert await world.heard(thread) == ["Hello! How are you?"]
        [error] = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert getattr(error, FIELDS)["kind"] == "empty_thread"
        assert asked_by(model.seen[0]) is TriggerType.CHECK_IN
        assert TOLD not in await world.heard(thread)


async def test_an_empty_thread_is_one_error_for_a_graph_of_ones_own(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether an agent searches memories or not, its operator is told, and once for all tries."""
    tries: list[int] = []

    def answer(state: MessagesState) -> dict[str, Any]:
        tries.append(len(state["messages"]))
        if len(tries) == 1:
            raise ConnectionError
        return {"messages": [AIMessage("Hello! How are you?")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(BEGIN, "answer")
    agent = plain_agent(graph=builder, autonomy=eager_agent().autonomy.model_dump())
    async with stage.world(agent) as world:
        thread = await new_thread(world)
        await arm(world, thread, START + PATIENCE)
        with caplog.at_level(logging.DEBUG):
            await world.pass_time(2 * PATIENCE)
        assert await world.heard(thread) == ["Hello! How are you?"]
    assert tries == [1, 1]
    [error] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    fields = getattr(error, FIELDS)
    assert (fields["kind"], fields["thread_id"]) == ("empty_thread", thread)
    assert (fields["trigger_type"], fields["agent_id"]) == ("check_in", "guide")

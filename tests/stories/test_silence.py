"""Stories of silence: when the agent speaks first, and how a reply comes before it."""

from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from segue.core.triggers import TriggerType
from segue.events import MessageDelta, MessageRetracted, TurnFailed
from segue.journal.records import TimerState
from segue.simulate.world import START, Stage
from tests.runtime.scenes import Held
from tests.stories.scenes import (
    PATIENCE,
    TOLD,
    Halting,
    asked_by,
    doing_at,
    eager_agent,
    listening,
    model_of,
    new_thread,
    passing,
    sent_at,
    told,
)

pytestmark = pytest.mark.anyio

MOMENT = timedelta(milliseconds=1)
LINES = {
    TriggerType.CHECK_IN: TOLD,
    TriggerType.QUESTION_UNANSWERED: "Which city do you live in?",
    TriggerType.TASK_INCOMPLETE: "I'm sorry, I could not reach the bank.",
    TriggerType.WAITING_FOR_DECISION: "Shall I book the table?",
}


@pytest.mark.parametrize("trigger", TriggerType)
async def test_silence_is_answered_by_the_trigger_that_fits(
    stage: Stage, trigger: TriggerType
) -> None:
    """After 30 s of silence the agent speaks first, for the reason that its reply left open."""
    model = model_of(LINES[trigger], "Still there?")
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello from Oslo.")
        await world.pass_time(PATIENCE - MOMENT)
        assert len(await world.heard(thread)) == 2
        await world.pass_time(MOMENT)
        assert await world.heard(thread) == ["Hello from Oslo.", LINES[trigger], "Still there?"]
        assert [asked_by(request) for request in model.seen] == [None, trigger]
        assert await sent_at(world, thread) == [START + PATIENCE]
        [fired, _] = reversed(await world.segue.list_follow_ups(thread))
        assert (fired.trigger_type, fired.state) == (trigger, TimerState.FIRED)
        assert await told(world, thread, "the gates") == ["allow: All gates are open."]


async def test_each_trigger_waits_for_its_own_delay(stage: Stage) -> None:
    """What is urgent comes sooner than what is only friendly."""
    delays = {"check_in": 400, "question_unanswered": 300, "task_incomplete": 100}
    agent = eager_agent(delays={**delays, "waiting_for_decision": 200})
    async with stage.world(agent, models={"guide": model_of(*LINES.values())}) as world:
        found = {}
        for _ in LINES:
            thread = await new_thread(world)
            await world.say(thread, "Hello from Oslo.")
            [timer] = await world.segue.list_follow_ups(thread)
            found[timer.trigger_type] = (timer.due_at - START).total_seconds()
        assert found == {**delays, "waiting_for_decision": 200}


async def test_a_reply_a_millisecond_before_comes_first(stage: Stage) -> None:
    """Who writes at 29.999 s is answered, and not nudged at 30 s."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE - MOMENT)
        await world.say(thread, "Thanks. And Bergen?")
        await world.pass_time(PATIENCE - MOMENT)
        assert await sent_at(world, thread) == []
        assert await told(world, thread, "the follow-up planned") == ["cancelled: The user wrote."]


async def test_a_reply_at_the_same_instant_comes_first(stage: Stage) -> None:
    """A message that is stored at 30 s sharp takes the follow-up of 30 s sharp away."""
    model = model_of()
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        due = START + PATIENCE
        async with doing_at(world, due, world.segue.send(thread, "And Bergen?")):
            await world.say(thread, "Where is Oslo?")
            await world.pass_time(PATIENCE)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD, "And Bergen?", TOLD]
        assert [asked_by(request) for request in model.seen] == [None, None]
        [_, cancelled] = await world.segue.list_follow_ups(thread)
        assert (cancelled.due_at, cancelled.updated_at) == (due, due)
        assert await told(world, thread, "the follow-up planned") == ["cancelled: The user wrote."]


async def test_a_follow_up_that_is_being_thought_of_is_never_seen(stage: Stage) -> None:
    """The timer fires first, and at the same instant the user writes: what the model was about to
    say is gone.
    """
    held = Held("Still there?")
    async with stage.world(eager_agent(), models={"guide": model_of(TOLD, held)}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        async with listening(world, thread) as listener:
            async with passing(world, PATIENCE):
                await held.asked.wait()
                assert world.clock.now() == START + PATIENCE
                await world.segue.send(thread, "And Bergen?")
            assert world.clock.now() == START + PATIENCE
        assert await world.heard(thread) == ["Where is Oslo?", TOLD, "And Bergen?", TOLD]
        assert "Still" not in repr(listener.events)
        assert await told(world, thread, "a follow-up") == [
            "follow_up: The reply reports success or offers more help.",
            "void: The user wrote.",
            "follow_up: The reply reports success or offers more help.",
        ]


async def test_a_message_that_another_process_took_in_counts_as_well(stage: Stage) -> None:
    """Nobody stops the model here, but before its first word the journal says that it is void."""
    held = Held("Still there?")
    async with stage.world(eager_agent(), models={"guide": model_of(TOLD, held)}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        async with listening(world, thread) as listener, passing(world, PATIENCE):
            await held.asked.wait()
            parts = world.system.deps
            await world.journal.inbox.accept(
                thread, HumanMessage("And Bergen?"), ids=parts.ids, now=world.clock.now()
            )
            held.go.set()
        assert await world.heard(thread) == ["Where is Oslo?", TOLD, "And Bergen?", TOLD]
        assert "Still" not in repr(listener.events)


@pytest.mark.usefixtures("unguarded")
async def test_a_follow_up_that_has_just_begun_is_taken_back(stage: Stage) -> None:
    """Nobody has read its first word when the user writes: it goes, and does not count as sent."""
    model = Halting(script=[TOLD, "Still reading about Oslo?", "Bergen is in the west."])
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        model.stop_after_a_word()
        async with listening(world, thread) as listener, passing(world, PATIENCE):
            await listener.until(MessageDelta)
            await world.segue.send(thread, "And Bergen?")
            model.go_on()
        assert await world.heard(thread) == [
            "Where is Oslo?",
            TOLD,
            "And Bergen?",
            "Bergen is in the west.",
        ]
        assert sum(isinstance(event, MessageRetracted) for event in listener.events) == 1
        assert await sent_at(world, thread) == []
        assert "void: The user wrote." in await told(world, thread, "a follow-up")


async def test_a_follow_up_that_fails_is_not_heard_of(stage: Stage) -> None:
    """The user asked for nothing, and an error would tell them nothing: only the record has it."""

    def fail(messages: Any) -> str:
        del messages
        raise ValueError("The model is out of order.")

    async with stage.world(eager_agent(), models={"guide": model_of(TOLD, fail)}) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await world.say(thread, "Where is Oslo?")
            await world.pass_time(PATIENCE)
        assert not any(isinstance(event, TurnFailed) for event in listener.events)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD]
        [_, failed] = await told(world, thread, "a follow-up")
        assert failed.startswith("failed: ")

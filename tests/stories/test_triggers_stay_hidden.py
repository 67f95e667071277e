"""Stories of invisibility: the words that ask the model to speak first reach the model alone."""

from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph

from segue.core.messages import CONTINUATION_PROMPT
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.errors import UsageError
from segue.events import MessageStored
from segue.simulate.world import Stage, World, plain_agent, with_graph
from tests.runtime.scenes import Held
from tests.stories.scenes import (
    PATIENCE,
    TOLD,
    Listener,
    arm,
    asked_by,
    eager_agent,
    listening,
    model_of,
    new_thread,
    passing,
)

pytestmark = pytest.mark.anyio

OWN = "Ask gently how the move to Bergen went."


async def all_that_shows(world: World, thread: str, listener: Listener) -> str:
    """Everything that a user can get to see of a thread, as one text."""
    async with listening(world, thread) as again:
        pass
    said = [event.message.text for event in again.events if isinstance(event, MessageStored)]
    assert said == await world.heard(thread)
    return repr(
        [
            await world.segue.history(thread, limit=1_000),
            listener.events,
            again.events,
            await world.segue.why(thread, limit=1_000),
            await world.journal.threads.list_of("ann"),
            [timer.payload for timer in await world.segue.list_follow_ups(thread)],
            *[await world.journal.search.find("ann", text) for text in TRIGGER_PROMPTS.values()],
        ]
    )


async def test_no_triggers_words_are_ever_shown(stage: Stage) -> None:
    """Sent, postponed, refused, held out of sight or withdrawn: no follow-up shows its prompt."""
    held = Held("Never seen.")
    model = model_of(TOLD, "One?", "Two?", "Three?", "Four?", held)
    agent = eager_agent(decider="none", policy={"max_consecutive": 5})
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await world.say(thread, "Where is Oslo?")
            for trigger in TriggerType:
                await arm(world, thread, world.clock.now() + PATIENCE, trigger)
                await world.segue.report_typing(thread)
                await world.pass_time(minutes=2)
            await arm(world, thread, world.clock.now() + PATIENCE)
            async with passing(world, PATIENCE):
                await held.asked.wait()
                await world.segue.set_thread_preferences(thread, muted=True)
                held.go.set()
            await arm(world, thread, world.clock.now() + PATIENCE)
            await world.pass_time(minutes=2)
        asked = [asked_by(request) for request in model.seen]
        assert asked == [None, *TriggerType, TriggerType.CHECK_IN]
        assert (await world.heard(thread))[2:] == ["One?", "Two?", "Three?", "Four?"]
        shown = await all_that_shows(world, thread, listener)
        assert "Four?" in shown
        assert "Never seen." not in shown
        assert [text for text in TRIGGER_PROMPTS.values() if text in shown] == []


async def test_an_owners_prompt_and_the_word_to_go_on_are_never_shown(stage: Stage) -> None:
    """What replaces a trigger's words is as hidden as they are."""
    call = {"after_seconds": 60, "reason": "look again"}
    going_on = AIMessage(
        "", tool_calls=[{"name": "continue_later", "args": call, "id": "c1", "type": "tool_call"}]
    )
    model = model_of(going_on, "A moment.", "Here it is.", "How was the move?")
    agent = eager_agent(prompts={"check_in": OWN}, policy={"max_consecutive": 1})
    agent = agent.model_copy(update={"continuations": 1})
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await world.say(thread, "I move to Bergen.")
            await world.pass_time(days=1)
        ends = [request[-1].text for request in model.seen]
        assert ends[2:] == [CONTINUATION_PROMPT, OWN]
        shown = await all_that_shows(world, thread, listener)
        assert "How was the move?" in shown
        assert OWN not in shown
        assert CONTINUATION_PROMPT not in shown


async def test_a_user_who_types_a_triggers_words_sees_them(stage: Stage) -> None:
    """Only the mark hides a message, so that a person's own words are always there."""
    words = TRIGGER_PROMPTS[TriggerType.CHECK_IN]
    model = model_of(TOLD, "Anything new?")
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await world.say(thread, words)
            await world.pass_time(PATIENCE)
        assert await world.heard(thread) == [words, TOLD, "Anything new?"]
        assert repr(listener.events).count(words) == 1
        said = [message for message in model.seen[-1] if isinstance(message, HumanMessage)]
        assert [message.text for message in said] == [words, words]


async def test_each_follow_up_can_be_explained_from_its_record(stage: Stage) -> None:
    """Why it was planned, what each gate said, and that it was sent: one story, in order."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.segue.snooze(thread, world.clock.now() + timedelta(minutes=5))
        await world.pass_time(minutes=5)
        story = await world.segue.why(thread)
        assert [(reason.what, reason.outcome) for reason in story[:4]] == [
            ("planning a follow-up", "follow_up"),
            ("the gates of a due follow-up", "postpone"),
            ("the gates of a due follow-up", "allow"),
            ("a follow-up", "sent"),
        ]
        gates = story[1].details
        assert gates["trigger"] == "check_in"
        assert len(gates["verdicts"]) == 12
        assert gates["verdicts"]["snoozed"] == "postpone"
        assert len(gates["reasons"]) == 12


async def test_an_error_of_the_agents_own_code_is_not_quoted(stage: Stage) -> None:
    """Also if it is of a kind of Segue's: its author may have put anything into it."""
    secret = "the words of a trigger"  # noqa: S105 - of this test

    def failing(state: MessagesState) -> dict[str, Any]:
        raise UsageError(f"{secret} {len(state['messages'])}")

    builder = StateGraph(MessagesState)
    builder.add_node("failing", failing)
    builder.add_edge(BEGIN, "failing")
    agent = with_graph(plain_agent(), builder.compile())
    async with stage.world(agent) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await world.say(thread, "Hello?")
            told = repr(listener.events)
        why = repr(await world.segue.why(thread))
    assert "The agent's own code failed (UsageError)." in told
    assert secret not in told
    assert secret not in why

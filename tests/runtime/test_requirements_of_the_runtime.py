"""What the requirements demand of follow-ups beyond the stories told in the other tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph

from segue.agent.current import current_run
from segue.agent.scripted import ScriptedChatModel, demo_reply
from segue.core.autonomy.gates import GateDecision, PolicyGates
from segue.core.autonomy.policy import Facts
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.speech.guard import find_machinery
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.journal.records import TurnKind
from segue.runtime.effects import EffectRunner
from segue.runtime.processor import SessionProcessor
from segue.runtime.run import Run
from segue.runtime.timers import TimerWorker
from segue.settings import load_settings
from segue.simulate.world import START, Stage, plain_agent
from segue.testing.providers import request_problems
from tests.runtime.scenes import batches_of
from tests.stories.scenes import (
    PATIENCE,
    TOLD,
    arm,
    asked_by,
    eager_agent,
    model_of,
    new_thread,
    sent_at,
)

pytestmark = pytest.mark.anyio

MOMENT = timedelta(milliseconds=1)
MINUTE = timedelta(minutes=1)
# What no reply may talk of, in the words of the acceptance script.
FORBIDDEN = ("system message", "trigger", "timer", "incomplete message", "follow-up request")


# Scripts: what the user said, what the agent said, and what comes of the silence.


@dataclass(frozen=True)
class Script:
    says: str
    gets: str
    trigger: TriggerType
    # A reply on topic has one of these words in it.
    topic: tuple[str, ...]
    silence: timedelta = PATIENCE


SCRIPTS = {
    "small talk": Script(
        "Hey, how are you?",
        "I'm well, thank you! It is good to hear from you.",
        TriggerType.CHECK_IN,
        topic=("",),
    ),
    "programming language": Script(
        "I'm thinking about learning a new programming language.",
        "Nice! Which language do you have in mind?",
        TriggerType.QUESTION_UNANSWERED,
        ("programming language",),
        MINUTE,
    ),
    "report by Friday": Script(
        "I need to write a project report by Friday.",
        "Good. I'll get back to you with an outline.",
        TriggerType.TASK_INCOMPLETE,
        ("report",),
    ),
    "two frameworks": Script(
        "Should I use React or Vue for the new page?",
        "Both would do. Would you rather go with React or with Vue?",
        TriggerType.WAITING_FOR_DECISION,
        ("react", "vue", "page"),
    ),
    "pizza": Script(
        "I love pizza with mushrooms.",
        "Mushrooms are a classic on pizza. They go well with thyme.",
        TriggerType.CHECK_IN,
        ("pizza", "mushrooms"),
    ),
}


def demo_after(line: str) -> ScriptedChatModel:
    """A model that begins with a line, and then speaks for itself."""
    left = [line]

    def speak(messages: list[BaseMessage]) -> str:
        return left.pop() if left else demo_reply(messages)

    return ScriptedChatModel(script=speak)


def without_trigger(request: Sequence[BaseMessage]) -> list[str]:
    """The conversation; the system message tells the time, which passes."""
    return [message.text for message in request[1:-1]]


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_script_is_followed_up_in_time_and_on_topic(stage: Stage, name: str) -> None:
    """The fitting trigger asks after its silence and no earlier, by its prompt alone; three in a
    row stay on topic, and none of them talks of what made it.
    """
    script = SCRIPTS[name]
    delays = {trigger.value: script.silence.total_seconds() for trigger in TriggerType}
    model = demo_after(script.gets)
    async with stage.world(eager_agent(delays=delays), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, script.says)
        await world.pass_time(script.silence - MOMENT)
        assert await world.heard(thread) == [script.says, script.gets]
        await world.pass_time(MOMENT)
        assert len(await world.heard(thread)) == 3
        assert asked_by(model.seen[1]) is script.trigger
        first, second = model.seen
        assert without_trigger(second) == [*(m.text for m in first[1:]), script.gets]
        await world.pass_time(days=1)
        replies = (await world.heard(thread))[2:]
        assert len(replies) == 3
        for reply in replies:
            assert any(word in reply.lower() for word in script.topic)
            assert find_machinery(reply) is None
            assert [word for word in FORBIDDEN if word in reply.lower()] == []
        assert [request_problems(request) for request in model.seen] == [[]] * 4


# A timer's message, and its way to the agent.


def listening_graph(calls: list[tuple[Run | None, list[BaseMessage]]]) -> Any:
    """A graph that keeps what it is called with."""

    async def speak(state: MessagesState) -> dict[str, Any]:
        calls.append((current_run(), list(state["messages"])))
        return {"messages": [AIMessage("I am here.")]}

    builder = StateGraph(MessagesState)
    builder.add_node("speak", speak)
    builder.add_edge(BEGIN, "speak")
    return builder


@pytest.mark.parametrize("trigger", TriggerType)
async def test_a_fired_timer_hands_exactly_its_message_to_the_agent(
    stage: Stage, trigger: TriggerType
) -> None:
    """Prompt, mark, type and the timer's reason, with whose run it is, in a batch of its own;
    what the user says has none of that.
    """
    reason = "No activity for 30 seconds"
    calls: list[tuple[Run | None, list[BaseMessage]]] = []
    agent = plain_agent(graph=listening_graph(calls), autonomy={"decider": "none"})
    async with stage.world(agent) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await arm(world, thread, START + PATIENCE, trigger, reason=reason)
        await world.pass_time(PATIENCE)
        (asked, heard), (woken, given) = calls
        assert (asked, woken) != (None, None)
        for run in (asked, woken):
            assert run is not None
            assert (run.thread_id, run.user_id, run.agent_id) == (thread, "ann", "guide")
        assert asked is not None
        assert woken is not None
        assert (asked.trigger, woken.trigger) == (None, trigger)
        said, message = MessageMetadata.of(heard[-1]), given[-1]
        assert (said.synthetic, said.trigger_type, said.trigger_reason) == (False, None, None)
        found = MessageMetadata.of(message)
        assert isinstance(message, HumanMessage)
        assert message.content == TRIGGER_PROMPTS[trigger]
        assert (found.synthetic, found.trigger_type) == (True, trigger)
        assert found.trigger_reason == reason
        assert "AUTONOMOUS_FOLLOWUP" not in repr(given)
        [first, second] = await batches_of(world, thread)
        assert (first.type, second.type) == (BatchType.USER_REQUEST, BatchType.SYSTEM_TRIGGER)
        assert second.messages[0] == message
        assert second.id == found.position


async def test_the_config_replaces_the_prompt_of_each_trigger(stage: Stage) -> None:
    """Each of the owner's texts reaches the model instead of the fixed one, tagged the same."""
    own = {trigger.value: f"Say something about {trigger.value}!" for trigger in TriggerType}
    model = model_of()
    agent = eager_agent(prompts=own, decider="none", policy={"max_consecutive": 9})
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        for trigger in TriggerType:
            await arm(world, thread, world.clock.now() + PATIENCE, trigger)
            await world.pass_time(PATIENCE)
        assert [request[-1].text for request in model.seen[1:]] == list(own.values())
        first = [batch.messages[0] for batch in (await batches_of(world, thread))[1:]]
        found = [MessageMetadata.of(message) for message in first]
        assert [(each.synthetic, each.trigger_type) for each in found] == [
            (True, trigger) for trigger in TriggerType
        ]


async def test_a_config_file_replaces_prompts_of_one_agent_and_of_no_other(
    stage: Stage, tmp_path: Path
) -> None:
    """What the file gives an agent as prompts reaches its model; what it leaves out, and another
    agent's, stay the fixed ones.
    """
    common = 'model = "scripted"\nmemory.enabled = false\nautonomy.decider = "none"\n'
    own = {"check_in": "Ask about the garden.", "task_incomplete": "Go on with the fence."}
    given = "".join(f'autonomy.prompts.{name} = "{text}"\n' for name, text in own.items())
    file = tmp_path / "segue.toml"
    file.write_text(f"[agents.guide]\n{common}{given}[agents.other]\n{common}", encoding="utf-8")
    agents = load_settings(file).agents
    models = {agent.id: model_of() for agent in agents}
    async with stage.world(*agents, models=models) as world:
        for agent in agents:
            for number, trigger in enumerate(TriggerType):
                thread = await new_thread(world, agent=agent.id, user=f"{agent.id}-{number}")
                await world.say(thread, "Hello.")
                await arm(world, thread, world.clock.now() + PATIENCE, trigger)
                await world.pass_time(PATIENCE)
    asked = {name: [request[-1].text for request in model.seen] for name, model in models.items()}
    fixed = [TRIGGER_PROMPTS[trigger] for trigger in TriggerType]
    assert [text for text in asked["other"] if text != "Hello."] == fixed
    assert [text for text in asked["guide"] if text != "Hello."] == [
        own.get(trigger.value, TRIGGER_PROMPTS[trigger]) for trigger in TriggerType
    ]


async def test_the_parts_do_their_work_under_their_known_names(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`TimerWorker` asks `PolicyGates`, queues a turn, and `SessionProcessor` takes it."""
    did: list[str] = []

    class Gates(PolicyGates):
        def check(self, facts: Facts) -> GateDecision:
            did.append("PolicyGates")
            return super().check(facts)

    process = SessionProcessor.process

    async def noted(self: SessionProcessor, lease: Any, *args: Any) -> None:
        did.append(f"SessionProcessor: {lease.turn.kind}")
        await process(self, lease, *args)

    monkeypatch.setattr("segue.runtime.gatekeeper.PolicyGates", Gates)
    monkeypatch.setattr(SessionProcessor, "process", noted)
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        runtime = world.system.runtime
        assert isinstance(runtime.timers, TimerWorker)
        assert isinstance(runtime.effects, EffectRunner)
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.pass_time(PATIENCE)
        assert did == [
            f"SessionProcessor: {TurnKind.REPLY}",
            "PolicyGates",
            f"SessionProcessor: {TurnKind.FOLLOW_UP}",
            "PolicyGates",
        ]
        kinds = [turn.kind for turn in await world.journal.turns.list_of(thread)]
        assert kinds == [TurnKind.FOLLOW_UP, TurnKind.REPLY]


# Over the end of a process.


async def test_a_timer_of_an_older_version_fires_under_the_new_one(stage: Stage) -> None:
    """At the time that was planned before, with what the new configuration says to it."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
    model = model_of("Still there?")
    new = eager_agent(prompts={"check_in": "Ask how it goes."}, delays={"check_in": 9_000})
    async with stage.world(new, models={"guide": model}) as world:
        await world.pass_time(PATIENCE - MOMENT)
        assert model.seen == []
        await world.pass_time(MOMENT)
        assert await sent_at(world, thread) == [START + PATIENCE]
        assert model.seen[0][-1].text == "Ask how it goes."


async def test_a_restart_restores_all_that_there_was(stage: Stage) -> None:
    """History, batches, counts and the next plan are the same, and the model still knows the talk
    with its follow-ups, whose prompts stay hidden.
    """
    async with stage.world(eager_agent(), models={"guide": model_of(TOLD, "One?")}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE)
        shown, batches = await world.heard(thread), await batches_of(world, thread)
        timers, story = await world.segue.list_follow_ups(thread), await world.segue.why(thread)
    model = model_of("Two?", "In Norway.")
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        assert await world.heard(thread) == shown == ["Where is Oslo?", TOLD, "One?"]
        assert [b.messages for b in await batches_of(world, thread)] == [
            b.messages for b in batches
        ]
        assert await world.segue.list_follow_ups(thread) == timers
        assert await world.segue.why(thread) == story
        await world.pass_time(2 * PATIENCE)
        await world.say(thread, "In which country?")
        assert await world.heard(thread) == [*shown, "Two?", "In which country?", "In Norway."]
        check_in = TRIGGER_PROMPTS[TriggerType.CHECK_IN]
        question = TRIGGER_PROMPTS[TriggerType.QUESTION_UNANSWERED]
        assert [message.text for message in model.seen[-1][1:]] == [
            *["Where is Oslo?", TOLD, check_in, "One?", question, "Two?", "In which country?"]
        ]


# Other agents.


async def test_a_message_of_another_agent_is_tagged_with_its_source(stage: Stage) -> None:
    """Its metadata says who asked and from which batch, all of ours is kept from the model, and
    messages can be told apart by it.
    """
    call = {"name": "ask_agent", "args": {"name": "atlas", "text": "How far?"}, "id": "call-1"}
    atlas = model_of("Five kilometres.", "Five.")
    guide = model_of(AIMessage("", tool_calls=[call]))
    agents = [
        plain_agent("guide", may_ask=("atlas",), autonomy={"decider": "none"}),
        plain_agent("atlas", autonomy={"decider": "none"}),
    ]
    async with stage.world(*agents, models={"guide": guide, "atlas": atlas}) as world:
        thread = await new_thread(world, agent="guide")
        await world.say(thread, "How far is the fjord?")
        nested = f"{thread}/atlas"
        await world.say(nested, "And in miles?")
        messages = [m for batch in await batches_of(world, nested) for m in batch.messages]
        of_guide = [m for m in messages if MessageMetadata.of(m).source_agent_id == "guide"]
        assert [message.text for message in of_guide] == ["How far?"]
        [asking] = await batches_of(world, thread)
        found = MessageMetadata.of(of_guide[0])
        assert (found.batch_type, found.parent_batch) == (BatchType.AGENT_TO_AGENT, asking.id)
        assert not MessageMetadata.of(messages[-2]).source_agent_id
        assert "source_agent_id" not in repr(atlas.seen)

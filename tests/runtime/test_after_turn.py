"""The initiative around a turn: who decides about a follow-up, at which price, and what comes of
it when the user writes, the process ends, or the world has changed before the first word.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langgraph.config import get_stream_writer
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

from segue.agent.scripted import Line
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.errors import UsageError
from segue.events import ProgressReported, QuestionAsked
from segue.journal.effects import Effect
from segue.journal.records import NewTimer, Timer, TimerState, TurnKind, TurnState
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, Stage, World, plain_agent, with_graph
from tests.runtime import deciders
from tests.runtime.scenes import Held, lines, new_thread, tab

pytestmark = pytest.mark.anyio

TOLD = "I've added Oslo to your list."
SILENCE = timedelta(seconds=30)
ALIVE = {TimerState.PENDING, TimerState.POSTPONED, TimerState.CLAIMED}


def eager(id: str = "guide", **autonomy: Any) -> AgentConfig:
    """An agent that speaks first after half a minute, whatever was said before."""
    delays = {trigger.value: SILENCE.total_seconds() for trigger in TriggerType}
    policy = {"cooldown": 0, **autonomy.pop("policy", {})}
    return plain_agent(id, autonomy={"delays": delays, "policy": policy, **autonomy})


def decision(**args: Any) -> AIMessage:
    """The structured answer of a model that decides."""
    given = {"follow_up": True, "reason": "She may be lonely.", **args}
    call = {"name": "decide_follow_up", "args": given, "id": "d1", "type": "tool_call"}
    return AIMessage("", tool_calls=[call])


YES = decision(trigger="waiting_for_decision", delay_seconds=600)
NO = decision(follow_up=False)


def is_decision(request: list[BaseMessage]) -> bool:
    return isinstance(request[0], SystemMessage) and "You decide whether" in request[0].text


async def timers(world: World, thread: str) -> list[Timer]:
    return await world.journal.timers.list_of(thread)


async def alive(world: World, thread: str) -> list[Timer]:
    return [timer for timer in await timers(world, thread) if timer.state in ALIVE]


async def plans(world: World, thread: str) -> list[str]:
    """What was decided after each reply, oldest first."""
    found = reversed(await world.journal.decisions.list_of(thread))
    return [f"{d.outcome}: {d.reasons[0]}" for d in found if d.kind == "plan"]


async def test_a_model_decides_after_the_reply(stage: Stage) -> None:
    """The second request is the decision, and its plan is armed: trigger and delay of its own."""
    model = lines(TOLD, YES, then="Well?")
    async with stage.world(eager(decider="model"), models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        assert [is_decision(request) for request in model.seen] == [False, True]
        [timer] = await alive(world, thread)
        assert timer.trigger_type == TriggerType.WAITING_FOR_DECISION
        assert timer.due_at == START + timedelta(minutes=10)
        assert timer.reason == "The deciding model chose waiting_for_decision."
        assert await plans(world, thread) == [f"follow_up: {timer.reason}"]
        [effect] = await world.journal.effects.list_of(thread)
        assert (effect.kind, effect.evidence) == ("decide", "follow_up")


async def test_a_models_words_are_kept_for_operators_alone(stage: Stage) -> None:
    """The record has them; neither the user nor any model gets to read them."""
    model = lines(TOLD, YES, "Well?", NO)
    async with stage.world(eager(decider="model"), models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(minutes=10)
        [_, *_, first] = await world.journal.decisions.list_of(thread)
        assert first.facts["words"] == "She may be lonely."
        shown = [await world.segue.why(thread), await world.segue.list_follow_ups(thread)]
        assert "lonely" not in repr([*shown, model.seen])
        batches = await world.journal.messages.tail(thread, max_tokens=10_000)
        assert "lonely" not in repr(batches)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ValueError("quota"), "The decision failed: unknown (ValueError)."),
        (TimeoutError(), "The decision failed: timeout (TimeoutError)."),
        ("Yes, please!", "answer cannot be used: it is text, not a call."),
        (AIMessage(""), "answer cannot be used: it is empty."),
        (decision(trigger="hug"), "answer cannot be used: it names no trigger that exists."),
        (decision(follow_up="maybe"), "answer cannot be used: follow_up is neither true nor false"),
        (NO, "The deciding model wants no follow-up."),
    ],
)
async def test_whatever_a_model_does_instead_means_no_follow_up(
    sqlite_stage: Stage, answer: Line, reason: str
) -> None:
    """An error costs nothing but the follow-up, is recorded once, and is not tried again."""
    model = lines(TOLD, answer)
    async with sqlite_stage.world(eager(decider="model"), models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=3)
        assert await timers(world, thread) == []
        [plan] = await plans(world, thread)
        assert plan.startswith("nothing: ")
        assert reason in plan
        assert len(model.seen) == 2
        assert await world.heard(thread) == ["Where is Oslo?", TOLD]


async def test_a_user_who_writes_while_the_model_decides_gets_no_old_plan(stage: Stage) -> None:
    """The plan was for a silence that is over; the record says so, and only the new reply counts.

    The model's decision is held back while the user writes and is answered.
    """
    held = Held()

    async def decide_later(messages: list[BaseMessage]) -> AIMessage:
        await held(messages)
        return YES

    model = lines(TOLD, decide_later, "In the south of it.", NO)
    async with stage.world(eager(decider="model"), models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "Where is Oslo?")
        await held.asked.wait()
        accepted = await world.segue.send(thread, "And where in Norway?")
        await world.segue.wait_turn(accepted.turn)
        held.go.set()
        await world.clock.settle()
        assert await timers(world, thread) == []
        # Nobody knows which of the two decisions is made first.
        assert sorted(await plans(world, thread)) == [
            "nothing: The deciding model wants no follow-up.",
            "nothing: The user wrote or cancelled follow-ups while this was decided.",
        ]


@pytest.mark.parametrize("who", ["model", "own decider"])
async def test_a_drop_counts_for_a_plan_that_is_being_decided(stage: Stage, who: str) -> None:
    """Whoever decides, and however late: what the user dropped does not come."""
    held = Held()

    async def decide_later(messages: Any, *_: Any, **__: Any) -> Any:
        await held(messages)
        return YES if who == "model" else deciders.YES

    decider = "model" if who == "model" else decide_later
    model = lines(TOLD, *[decide_later] * (who == "model"))
    async with stage.world(eager(decider=decider), models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "Where is Oslo?")
        await held.asked.wait()
        await world.segue.cancel_follow_ups(thread)
        held.go.set()
        await world.pass_time(days=3)
        assert await timers(world, thread) == []
        assert await plans(world, thread) == [
            "nothing: The user wrote or cancelled follow-ups while this was decided.",
        ]
        assert await world.heard(thread) == ["Where is Oslo?", TOLD]


async def test_a_user_who_writes_between_the_last_look_and_the_arming_gets_no_old_plan(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the narrowest of windows too, nothing stays planned for words before the user's last."""
    model = lines(TOLD, YES, "In the south of it.", NO)
    async with stage.world(eager(decider="model"), models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        arm_timer = world.journal.timers.arm

        async def write_first(timer: NewTimer, **given: Any) -> Timer:
            await world.segue.send(thread, "And where in Norway?")
            return await arm_timer(timer, **given)

        monkeypatch.setattr(world.journal.timers, "arm", write_first)
        await world.say(thread, "Where is Oslo?")
        assert await alive(world, thread) == []
        await world.pass_time(days=3)
        assert (await world.heard(thread))[2:] == ["And where in Norway?", "In the south of it."]


async def no_effects(*_: Any, **__: Any) -> list[Effect]:
    """What a process finds that ends before it looked."""
    return []


async def test_a_decision_outlives_the_process_that_owed_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash right after the reply does not lose the follow-up: the next process decides, and
    silence still counts from the reply.
    """
    model = lines(TOLD, then="Well?")
    async with stage.world(eager(decider="model"), models={"guide": model}) as world:
        monkeypatch.setattr(world.journal.effects, "claim", no_effects)
        monkeypatch.setattr(world.journal.effects, "next_at", never)
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        assert len(model.seen) == 1
    await stage.clock.advance(timedelta(minutes=5))
    model = lines(YES, then="Well?")
    async with stage.world(eager(decider="model"), models={"guide": model}) as world:
        await world.clock.settle()
        assert is_decision(model.seen[0])
        [timer] = await alive(world, thread)
        assert timer.due_at == START + timedelta(minutes=10)


async def never(*_: Any, **__: Any) -> None:
    """When nothing is due."""


async def test_a_decision_that_was_cut_off_is_made_again(stage: Stage) -> None:
    """A process that ends while the model decides leaves it to the next, which asks anew."""
    held = Held()
    model = lines(TOLD, held)
    async with stage.world(eager(decider="model"), models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "Where is Oslo?")
        await held.asked.wait()
    async with stage.world(eager(decider="model"), models={"guide": lines(YES)}) as world:
        await world.pass_time(minutes=2)  # until the lease of the one that was cut off is over
        assert len(await alive(world, thread)) == 1
        assert len(await plans(world, thread)) == 1


async def test_an_agent_that_was_switched_off_meanwhile_decides_nothing(stage: Stage) -> None:
    """What the config says when it is decided counts, and the model is not asked in vain."""
    held = Held()
    async with stage.world(eager(decider="model"), models={"guide": lines(TOLD, held)}) as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "Where is Oslo?")
        await held.asked.wait()
    off, model = eager(decider="model", enabled=False), lines(YES)
    async with stage.world(off, models={"guide": model}) as world:
        await world.pass_time(minutes=2)
        assert model.seen == []
        assert await timers(world, thread) == []
        assert await plans(world, thread) == ["nothing: Follow-ups are disabled for this agent."]


@pytest.mark.parametrize(
    "autonomy",
    [
        {"enabled": False},
        {"policy": {"enabled": False}},
        {"policy": {"max_consecutive": 0}},
        {"policy": {"max_per_day": 0}},
    ],
)
async def test_limits_are_asked_before_any_model(
    sqlite_stage: Stage, autonomy: dict[str, Any]
) -> None:
    """Where no follow-up can be sent, no decision is paid for; the record says why."""
    model = lines(TOLD)
    agent = eager(decider="model", **autonomy)
    async with sqlite_stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=1)
        assert len(model.seen) == 1
        [plan] = await plans(world, thread)
        assert plan.startswith("nothing: ")


async def test_an_agent_that_decides_nothing_pays_for_nothing(sqlite_stage: Stage) -> None:
    """`none` means no plan, no model call and a record that says so."""
    model = lines(TOLD)
    async with sqlite_stage.world(eager(decider="none"), models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=1)
        assert len(model.seen) == 1
        assert await timers(world, thread) == []
        reason = "This agent has no decider for follow-ups."
        assert await plans(world, thread) == [f"nothing: {reason}"]


async def test_nobody_decides_about_what_agents_tell_each_other(sqlite_stage: Stage) -> None:
    """A nested answer leaves no user waiting, so that no model is asked about it."""
    asking = {"name": "ask_agent", "args": {"name": "atlas", "text": "Oslo?"}, "id": "a1"}
    guide = eager(decider="none").model_copy(update={"may_ask": ("atlas",)})
    models = {"guide": lines(AIMessage("", tool_calls=[asking]), TOLD), "atlas": lines("59 north.")}
    async with sqlite_stage.world(guide, eager("atlas", decider="model"), models=models) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        assert len(models["atlas"].seen) == 1
        assert await timers(world, f"{thread}/atlas") == []


@pytest.mark.parametrize("name", ["plain", "waiting", "plan_only", "thoughtful", "callable_object"])
async def test_a_decider_of_ones_own_plans(sqlite_stage: Stage, name: str) -> None:
    """Named in the config, in any shape: its plan is armed, without any model call."""
    model = lines(TOLD)
    agent = eager(decider=f"tests.runtime.deciders:{name}")
    async with sqlite_stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        [timer] = await alive(world, thread)
        assert timer.trigger_type == TriggerType.TASK_INCOMPLETE
        assert timer.due_at == START + deciders.DELAY
        assert len(model.seen) == 1


@pytest.mark.parametrize("name", ["nothing", "raising", "raising_later", "nonsense", "odd_delay"])
async def test_a_decider_of_ones_own_that_fails_costs_only_the_follow_up(
    sqlite_stage: Stage, name: str
) -> None:
    """It is recorded once, without its words, and the conversation goes on."""
    agent = eager(decider=f"tests.runtime.deciders:{name}")
    async with sqlite_stage.world(agent, models={"guide": lines(TOLD, TOLD)}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=1)
        assert await timers(world, thread) == []
        [plan] = await plans(world, thread)
        assert plan.startswith("nothing: The agent's own decider ")
        await world.say(thread, "Thanks.")
        assert await world.heard(thread) == ["Where is Oslo?", TOLD, "Thanks.", TOLD]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tests.runtime.deciders:nobody", "cannot be loaded: AttributeError"),
        ("tests.runtime.nowhere:plain", "cannot be loaded: ModuleNotFoundError"),
        ("tests.runtime.deciders:NO_DECIDER", "expected a function"),
    ],
)
async def test_a_decider_that_is_not_there_is_told_at_the_start(
    sqlite_stage: Stage, name: str, said: str
) -> None:
    """The error names the agent and what it looked for."""
    with pytest.raises(UsageError, match=f"agent 'guide': decider .*{said}"):
        async with sqlite_stage.world(eager(decider=name)):
            raise AssertionError


async def fired_and_left(stage: Stage, agent: AgentConfig) -> str:
    """A thread whose follow-up was fired by a process that ended while its model thought."""
    held = Held("Never seen.")
    models = {"guide": lines(TOLD, held)}
    async with stage.world(agent, models=models, patience=timedelta(0)) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        passing = asyncio.create_task(world.pass_time(SILENCE))
        await held.asked.wait()
    passing.cancel()
    return thread


@pytest.mark.parametrize(
    ("autonomy", "outage", "gate"),
    [
        ({"missed": "skip"}, timedelta(hours=1), "missed"),
        ({"missed": "run_if_within:600"}, timedelta(hours=1), "missed"),
        ({"expires_after": timedelta(minutes=30)}, timedelta(hours=1), "stale"),
        ({"policy": {"enabled": False}}, timedelta(hours=1), "enabled"),
    ],
)
async def test_a_follow_up_that_nobody_began_with_may_come_too_late(
    stage: Stage, autonomy: dict[str, Any], outage: timedelta, gate: str
) -> None:
    """After an outage between the timer and the model, the gates are asked before the model is."""
    thread = await fired_and_left(stage, eager(**(autonomy if gate != "enabled" else {})))
    await stage.clock.advance(outage)
    model = lines("Too late?")
    async with stage.world(eager(**autonomy), models={"guide": model}) as world:
        await world.clock.settle()
        assert model.seen == []
        assert await world.heard(thread) == ["Where is Oslo?", TOLD]
        [turn, _] = await world.journal.turns.list_of(thread)
        assert (turn.kind, turn.state) == (TurnKind.FOLLOW_UP, TurnState.VOID)
        [refused, *_] = await world.journal.decisions.list_of(thread)
        assert (refused.outcome, refused.facts["gate"]) == ("suppress", gate)


async def test_a_follow_up_that_nobody_began_with_is_sent_if_it_may_be(stage: Stage) -> None:
    """The same outage, and a rule that lets it run: it is said, once."""
    agent = eager(missed="run", policy={"max_consecutive": 1})
    thread = await fired_and_left(stage, agent)
    await stage.clock.advance(timedelta(hours=1))
    async with stage.world(agent, models={"guide": lines("Still there?")}) as world:
        await world.pass_time(days=1)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD, "Still there?"]


async def test_a_slow_model_does_not_make_its_timer_late(stage: Stage) -> None:
    """Lateness is when the timer was found; how long the model then thinks is no part of it."""
    held = Held("Still there?")
    agent = eager(missed="skip", policy={"max_consecutive": 1})
    async with stage.world(agent, models={"guide": lines(TOLD, held)}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        passing = asyncio.create_task(world.pass_time(SILENCE))
        await held.asked.wait()
        world.clock._now += timedelta(minutes=10)
        held.go.set()
        await passing
        assert (await world.heard(thread))[-1] == "Still there?"


def asking(state: MessagesState) -> dict[str, Any]:
    """A graph that stops for a person whenever it speaks first."""
    get_stream_writer()({"step": "thinking"})
    if state["messages"][-1].text not in TRIGGER_PROMPTS.values():
        return {"messages": [AIMessage(TOLD)]}
    return {"messages": [AIMessage(f"You said {interrupt('Shall I book it?')}.")]}


def asker(**autonomy: Any) -> AgentConfig:
    builder = StateGraph(MessagesState)
    builder.add_node("asking", asking)
    builder.add_edge(BEGIN, "asking")
    return with_graph(eager(**autonomy), builder.compile())


@contextmanager
def muted_after(world: World, thread: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user mutes the thread as soon as the timer has fired."""
    fire_timer = world.journal.timers.fire

    async def fire_and_mute(*given: Any, **more: Any) -> Any:
        turn = await fire_timer(*given, **more)
        await world.segue.set_thread_preferences(thread, muted=True)
        return turn

    with monkeypatch.context() as patch:
        patch.setattr(world.journal.timers, "fire", fire_and_mute)
        yield


async def test_a_question_of_a_follow_up_is_shown_like_its_words(stage: Stage) -> None:
    """A graph that speaks first by asking is heard, counted, and waits for the answer."""
    async with stage.world(asker(policy={"max_consecutive": 1})) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        async with tab(world.segue, thread) as screen:
            await world.pass_time(SILENCE)
            await screen.until_heard(QuestionAsked)
        [turn, _] = await world.journal.turns.list_of(thread)
        assert turn.shown_at == START + SILENCE
        counts = await world.journal.timers.count_follow_ups(thread, day_began=START)
        assert counts.consecutive == 1
        await world.segue.answer(turn, "yes")
        await world.clock.settle()
        assert (await world.heard(thread))[-1] == "You said yes."


async def test_a_question_of_a_follow_up_meets_the_gates(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who mutes the thread while the graph thinks is not asked anything."""
    async with stage.world(asker()) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        async with tab(world.segue, thread) as screen:
            with muted_after(world, thread, monkeypatch):
                await world.pass_time(SILENCE)
            await world.pass_time(days=1)
        assert screen.count(QuestionAsked) == 0
        [turn, _] = await world.journal.turns.list_of(thread)
        assert (turn.state, turn.error) == (TurnState.VOID, "The thread is muted.")


async def test_what_a_follow_up_reports_is_heard_only_with_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a follow-up that is withdrawn, nobody hears that anything was going on."""
    async with stage.world(asker(policy={"max_consecutive": 2})) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        async with tab(world.segue, thread) as screen:
            with muted_after(world, thread, monkeypatch):
                await world.pass_time(SILENCE)
            assert screen.count(ProgressReported) == 0
            await world.segue.set_thread_preferences(thread, muted=None)
            await world.say(thread, "Hello?")
            assert screen.count(ProgressReported) == 1
            await world.pass_time(SILENCE)
            await screen.until_heard(QuestionAsked)
            assert screen.count(ProgressReported) == 2

"""Stories of graphs with a state of their own, which lives from turn to turn of a thread."""

import json
import logging
import operator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import EphemeralValue, UntrackedValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, MessagesState, StateGraph
from langgraph.graph import START as BEGIN
from langgraph.managed import RemainingSteps
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from segue.agent.checkpoints.store import StrictSerializer
from segue.agent.scripted import ScriptedChatModel
from segue.core.metadata import is_synthetic
from segue.errors import BackendError, UsageError
from segue.runtime.clock import sleep
from segue.settings.agents import AgentConfig, Limits, MemoryConfig
from segue.simulate.world import Stage, World, plain_agent, with_graph
from tests.stories.scenes import PATIENCE, eager_agent, new_thread

pytestmark = pytest.mark.anyio

ALONE = {"enabled": False}


class Tally(MessagesState):
    """A counter, a list with a reducer, middleware's own, and what does not outlive a turn."""

    turns: int
    said: Annotated[list[str], operator.add]
    steps: RemainingSteps
    passing: Annotated[str, EphemeralValue]
    handle: Annotated[str, UntrackedValue]
    own: NotRequired[Annotated[str, PrivateStateAttr]]
    view: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


def count(state: Tally) -> dict[str, Any]:
    """Says what it found, and writes to each channel."""
    word = state["messages"][-1].text
    if word == "fail":
        raise ValueError("This node fails.")
    found = f"{state.get('turns', 0)} {len(state['said'])}"
    found += "".join(f" {name}" for name in ("passing", "handle", "view") if state.get(name))
    once = dict.fromkeys(("passing", "handle"), "here")
    return {
        "messages": [AIMessage(found)],
        "turns": state.get("turns", 0) + 1,
        "said": [word[:20]],
        "own": "kept",
        "view": {"cutoff": 3, "summary": [AIMessage("Long ago …")]},
        **once,
    }


def graph_of(schema: Any, *nodes: Any, **options: Any) -> Any:
    builder = StateGraph(schema, **options)
    builder.add_sequence(nodes)
    builder.add_edge(BEGIN, nodes[0].__name__)
    return builder.compile()


def agent_of(graph: Any, agent: AgentConfig | None = None, **given: Any) -> AgentConfig:
    found = with_graph(agent or plain_agent(autonomy=ALONE), graph)
    return found.model_copy(update=given)


def counter(agent: AgentConfig | None = None, **given: Any) -> AgentConfig:
    return agent_of(graph_of(Tally, count), agent, **given)


async def replies(world: World, thread: str) -> list[str]:
    history = await world.segue.history(thread)
    return [message.text for message in history.messages if message.type == "ai"]


async def last(world: World, thread: str) -> str:
    return (await replies(world, thread))[-1]


async def channels(world: World, thread: str) -> list[str]:
    return [*await world.journal.states.load(thread)]


async def test_state_lives_from_turn_to_turn(stage: Stage) -> None:
    """The counter counts, and a list with a reducer grows by one a turn; over a restart, too.

    A private view of the messages is not kept: the next turn has others.
    """
    async with stage.world(counter()) as world:
        thread = await new_thread(world)
        for turn in range(3):
            await world.say(thread, "Hello.")
            assert await last(world, thread) == f"{turn} {turn}"
    async with stage.world(counter()) as world:
        await world.say(thread, "Again.")
        assert await last(world, thread) == "3 3"
        assert await channels(world, thread) == ["own", "said", "turns"]
        other = await new_thread(world)
        await world.say(other, "Hello.")
        assert await last(world, other) == "0 0"


async def test_the_turn_of_a_follow_up_counts(stage: Stage) -> None:
    async with stage.world(counter(eager_agent(policy={"max_consecutive": 1}))) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.pass_time(PATIENCE)
        assert await replies(world, thread) == ["0 0", "1 1"]
        await world.say(thread, "Hello.")
        assert await last(world, thread) == "2 2"


async def test_a_failed_or_stopped_turn_changes_nothing(stage: Stage) -> None:
    """Also if its node had written to the state before."""

    async def linger(state: Tally) -> dict[str, Any]:
        if state["messages"][-2].text == "linger":
            await sleep(stage.clock, timedelta(minutes=1))
        return {}

    async with stage.world(agent_of(graph_of(Tally, count, linger))) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.say(thread, "fail")
        await world.say(thread, "linger")
        await world.segue.cancel(thread)
        await world.pass_time(minutes=2)
        states = [turn.state for turn in await world.journal.turns.list_of(thread)]
        assert states == ["done", "failed", "done"]
        await world.say(thread, "Hello.")
        assert await last(world, thread) == "1 1"


async def test_a_turn_that_is_tried_again_begins_with_the_same_state(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end could not be stored: the next try finishes it, and nothing is counted twice."""
    async with stage.world(counter()) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        finish = world.journal.turns.finish

        async def away(*_: Any, **__: Any) -> Any:
            monkeypatch.setattr(world.journal.turns, "finish", finish)
            raise BackendError("The database is away.")

        monkeypatch.setattr(world.journal.turns, "finish", away)
        await world.say(thread, "Once more.")
        await world.pass_time(minutes=1)
        assert await last(world, thread) == "1 1"
        await world.say(thread, "And again.")
        assert await last(world, thread) == "2 2"


async def test_state_that_is_too_large_fails_the_turn_and_stays_as_it_was(stage: Stage) -> None:
    """The user gets an error that names the limit; the next turn has the old state."""
    async with stage.world(counter(limits=Limits(state_bytes=20))) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hi.")
        await world.say(thread, "A sentence of more than twenty bytes.")
        [turn, *_] = await world.journal.turns.list_of(thread)
        assert turn.state == "failed"
        assert "limits.state_bytes is 20" in (turn.error or "")
        await world.say(thread, "Yes.")
        assert await last(world, thread) == "1 1"


class Handle(MessagesState):
    handle: Any


class Connection:
    """Such as an open file or a client, which no database takes."""


@pytest.mark.parametrize(("value", "words"), [(Connection(), "Connection"), (2**70, "64-bit")])
async def test_state_that_cannot_be_stored_fails_the_turn_and_is_named(
    stage: Stage, value: Any, words: str
) -> None:
    """The error names the channel and the type, and where such a value belongs."""

    def connect(state: Handle) -> dict[str, Any]:
        del state
        return {"messages": [AIMessage("Connected.")], "handle": value}

    async with stage.world(agent_of(graph_of(Handle, connect))) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hi.")
        [turn] = await world.journal.turns.list_of(thread)
        assert turn.state == "failed"
        for said in ("channel 'handle'", "cannot be stored", words, "UntrackedValue"):
            assert said in (turn.error or "")


@dataclass
class Basket:
    pizzas: int


class Before(MessagesState):
    gone: str
    kept: int
    changed: int
    basket: Basket


class After(MessagesState):
    kept: int
    changed: list[str]
    basket: Any
    new: Annotated[list[str], operator.add]


def fill(state: Before) -> dict[str, Any]:
    del state
    values = {"gone": "x", "kept": 3, "changed": 4, "basket": Basket(2)}
    return {"messages": [AIMessage("Noted.")], **values}


def tell(state: After) -> dict[str, Any]:
    found = {name: state.get(name) for name in ("kept", "changed", "basket", "new", "gone")}
    return {"messages": [AIMessage(str(found))], "changed": ["fine"]}


async def test_a_changed_schema_does_not_break_a_thread(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """What fits is kept; what does not is left out, with one line in the log."""
    async with stage.world(agent_of(graph_of(Before, fill))) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        assert await channels(world, thread) == ["basket", "changed", "gone", "kept"]
    caplog.clear()
    async with stage.world(agent_of(graph_of(After, tell))) as world:
        await world.say(thread, "Hello.")
        expected: dict[str, Any] = {
            "kept": 3,
            "changed": None,
            "basket": None,
            "new": [],
            "gone": None,
        }
        assert await last(world, thread) == str(expected)
        [line] = [r.getMessage() for r in caplog.records if "state of agent" in r.getMessage()]
        assert all(f"{name}: " in line for name in ("gone", "changed", "basket"))
        assert "kept" not in line
        assert await channels(world, thread) == ["changed", "kept", "new"]
        await world.say(thread, "Hello.")
        assert "'changed': ['fine']" in await last(world, thread)


class Asking(MessagesState):
    noted: Annotated[list[str], operator.add]


def note(state: Asking) -> dict[str, Any]:
    return {"noted": [state["messages"][-1].text]}


def ask(state: Asking) -> dict[str, Any]:
    return {"messages": [AIMessage(f"{interrupt('Sure?')}: {state['noted']}")]}


async def test_a_question_keeps_the_state_and_its_answer_goes_on(stage: Stage) -> None:
    """A user who writes something else instead of an answer loses nothing that was noted."""
    async with stage.world(agent_of(graph_of(Asking, note, ask))) as world:
        thread = await new_thread(world)
        await world.say(thread, "one")
        [turn] = await world.journal.turns.list_of(thread, only_waiting=True)
        await world.segue.answer(turn.id, "yes")
        await world.clock.settle()
        assert await last(world, thread) == "yes: ['one']"
        await world.say(thread, "two")
        await world.say(thread, "three")
        [turn] = await world.journal.turns.list_of(thread, only_waiting=True)
        await world.segue.answer(turn.id, "yes")
        await world.clock.settle()
        assert await last(world, thread) == "yes: ['one', 'two', 'three']"


class Trip(MessagesState):
    cost: Annotated[int, operator.add]


def book(state: Trip) -> dict[str, Any]:
    return {} if state["messages"][-1].text == "more" else {"cost": 5}


def agree(state: Trip) -> dict[str, Any]:
    """Two questions beside the booking."""
    if state["messages"][-1].text == "more":
        return {}
    return {"cost": len(f"{interrupt('The train?')}{interrupt('The hotel?')}")}


def add_up(state: Trip) -> dict[str, Any]:
    return {"messages": [AIMessage(f"{state['cost']} in all.")]}


async def test_a_branch_beside_a_question_counts_once(stage: Stage) -> None:
    """It ended before the answer came, and its step ends with the answer."""
    builder = StateGraph(Trip)
    for node in (book, agree, add_up):
        builder.add_node(node)
    builder.add_edge(BEGIN, "book")
    builder.add_edge(BEGIN, "agree")
    builder.add_edge(["book", "agree"], "add_up")
    async with stage.world(agent_of(builder.compile())) as world:
        thread = await new_thread(world)
        await world.say(thread, "A trip, please.")
        for _ in range(2):
            [turn] = await world.journal.turns.list_of(thread, only_waiting=True)
            await world.segue.answer(turn.id, "a")
            await world.clock.settle()
        assert await last(world, thread) == "7 in all."
        await world.say(thread, "more")
        assert await last(world, thread) == "7 in all."


class Shop(MessagesState):
    item: str
    mood: str
    log: Annotated[list[str], operator.add]


def take(state: Shop) -> Command[str]:
    """A follow-up offers something else; a message is an order, to be confirmed."""
    last = state["messages"][-1]
    if is_synthetic(last):
        offer = {"item": "laptop", "mood": "hopeful", "log": ["offered"]}
        return Command(goto=END, update={**offer, "messages": [AIMessage("Or a laptop?")]})
    return Command(goto="confirm", update={"item": last.text, "mood": "calm", "log": ["took"]})


def confirm(state: Shop) -> dict[str, Any]:
    answer = interrupt(f"Order {state['item']}?")
    done = f"{answer}, {state['item']}"
    return {"messages": [AIMessage(done)], "log": [f"ordered {state['item']}"]}


@pytest.mark.parametrize("breaks", ["not at all", "in a step", "at its end"])
async def test_an_answer_is_about_what_was_asked_and_undoes_no_follow_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    """The turn that waited goes on with its own state; what it writes joins the newer one.

    Also if it has to be tried again.
    """
    tries = iter([breaks == "in a step"])

    def deliver(state: Shop) -> dict[str, Any]:
        if next(tries, False):
            raise ConnectionError("The courier is away.")
        return {"log": [f"delivered {state['item']}"]}

    builder = StateGraph(Shop)
    builder.add_node("take", take, destinations=("confirm", END))
    builder.add_sequence([confirm, deliver])
    builder.add_edge(BEGIN, "take")
    agent = agent_of(builder.compile(), eager_agent(policy={"max_consecutive": 1}))
    async with stage.world(agent) as world:
        thread = await new_thread(world)
        await world.say(thread, "pizza")
        await world.pass_time(PATIENCE)
        assert await last(world, thread) == "Or a laptop?"
        finish = world.journal.turns.finish

        async def away(*_: Any, **__: Any) -> Any:
            monkeypatch.setattr(world.journal.turns, "finish", finish)
            raise BackendError("The database is away.")

        if breaks == "at its end":
            monkeypatch.setattr(world.journal.turns, "finish", away)
        [turn] = await world.journal.turns.list_of(thread, only_waiting=True)
        await world.segue.answer(turn.id, "yes")
        await world.pass_time(PATIENCE / 2)
        assert "yes, pizza" in await replies(world, thread)
        stored = await world.journal.states.load(thread)
    found = {
        name: StrictSerializer().loads_typed((value.form, value.value))
        for name, value in stored.items()
    }
    log = ["took", "offered", "ordered pizza", "delivered pizza"]
    assert found == {"item": "laptop", "mood": "hopeful", "log": log}


async def test_limits_of_middleware_count_over_the_turns_of_a_thread(stage: Stage) -> None:
    """Middleware's private state lives on, as it does on LangGraph's own checkpointers."""
    limit = ModelCallLimitMiddleware(thread_limit=2, exit_behavior="end")
    graph = create_agent(ScriptedChatModel(script=lambda _: "Fine."), middleware=[limit])
    async with stage.world(agent_of(graph)) as world:
        thread = await new_thread(world)
        for _ in range(3):
            await world.say(thread, "Hello.")
        first, second, third = await replies(world, thread)
    assert (first, second) == ("Fine.", "Fine.")
    assert "thread limit (2/2)" in third


class Model(BaseModel):
    messages: Annotated[list[Any], operator.add] = []
    turns: int = 0


def add_one(state: Model) -> dict[str, Any]:
    return {
        "messages": [AIMessage(str(state.turns), id=f"m{state.turns}")],
        "turns": state.turns + 1,
    }


async def test_the_state_may_be_a_pydantic_model(stage: Stage) -> None:
    async with stage.world(agent_of(graph_of(Model, add_one))) as world:
        thread = await new_thread(world)
        for _ in range(3):
            await world.say(thread, "Hello.")
        assert await replies(world, thread) == ["0", "1", "2"]


async def test_operators_see_the_state_in_the_context(stage: Stage) -> None:
    """With its size; a value of a type of the graph's own is named, not restored."""
    async with stage.world(agent_of(graph_of(Before, fill))) as world:
        thread = await world.journal.threads.get(await new_thread(world))
        await world.say(thread.id, "Hello.")
        found = await world.segue.inspector.get_context(thread, agent_of(graph_of(Before, fill)))
    shown = {each["channel"]: each["value"] for each in found["state"]}
    own = "(a value of the graph's own type)"
    assert shown == {"basket": own, "changed": "4", "gone": "'x'", "kept": "3"}
    assert all(each["bytes"] > 0 for each in found["state"])


async def test_the_context_leaves_the_room_that_the_graphs_memories_take(stage: Stage) -> None:
    """What operators see is what the graph gets, message for message."""
    given: list[int] = []

    def look(state: MessagesState) -> dict[str, Any]:
        given.append(len(state["messages"]))
        return {"messages": [AIMessage("Fine. " * 50)]}

    memory = MemoryConfig(enabled=True, max_tokens=300, embedder="local")
    agent = agent_of(graph_of(MessagesState, look), memory=memory, context_tokens=1_000)
    async with stage.world(agent) as world:
        thread = await world.journal.threads.get(await new_thread(world))
        for _ in range(12):
            await world.say(thread.id, "Hello. " * 20)
        found = await world.segue.inspector.get_context(thread, agent)
        await world.say(thread.id, "x")
    assert given[-1] == len(found["messages"]) + 1


async def test_deleting_a_thread_or_a_user_deletes_the_state(stage: Stage) -> None:
    async with stage.world(counter()) as world:
        threads = [await new_thread(world) for _ in range(2)]
        for thread in threads:
            await world.say(thread, "Hello.")
        deleted = await world.journal.threads.delete(threads[0])
        assert deleted.rows["states"] == 3
        user = (await world.journal.threads.get(threads[1])).user_id
        assert (await world.journal.removal.delete_user(user)).rows["states"] == 3


async def test_a_users_export_has_no_state(stage: Stage) -> None:
    """A graph may note a trigger there, as this one does, which users must not see."""
    async with stage.world(counter(eager_agent(policy={"max_consecutive": 1}))) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.pass_time(PATIENCE)
        user = (await world.journal.threads.get(thread)).user_id
        own = [json.loads(line)["type"] async for line in world.segue.export(user)]
        full = [json.loads(line)["type"] async for line in world.segue.export_all()]
    assert "message" in own
    assert "state" not in own
    assert "state" in full


# Ids and context


@dataclass
class AsDataclass:
    user_id: str
    thread_id: str
    agent_id: str
    trigger: str | None
    local_time: datetime
    time_zone: str
    tone: str = "warm"
    shop: "OnlyForTypeCheckers | None" = None  # type: ignore[name-defined]  # noqa: F821 - so it is


class AsModel(BaseModel):
    user_id: str
    trigger: str | None
    local_time: datetime


class AsDict(TypedDict):
    user_id: str
    trigger: str | None
    local_time: datetime


@pytest.mark.parametrize("schema", [AsDataclass, AsModel, AsDict])
async def test_the_context_is_filled_by_the_names_of_its_fields(stage: Stage, schema: Any) -> None:
    seen: list[Any] = []

    def look(state: MessagesState, runtime: Runtime[Any]) -> dict[str, Any]:
        del state
        seen.append(runtime.context)
        return {"messages": [AIMessage("Fine.")]}

    graph = graph_of(MessagesState, look, context_schema=schema)
    async with stage.world(agent_of(graph, eager_agent())) as world:
        thread = await new_thread(world)
        user = (await world.journal.threads.get(thread)).user_id
        await world.segue.set_user_preferences(user, time_zone="Asia/Tokyo")
        began = world.clock.now()
        await world.say(thread, "Hello.")
        await world.pass_time(PATIENCE)
    given = [each if schema is AsDict else vars(each) for each in seen[:2]]
    assert [each["user_id"] for each in given] == [user, user]
    assert [each["trigger"] for each in given] == [None, "check_in"]
    assert given[0]["local_time"] - began < timedelta(seconds=5)
    assert given[0]["local_time"].utcoffset() == timedelta(hours=9)
    if schema is AsDataclass:
        assert (seen[0].thread_id, seen[0].agent_id) == (thread, "guide")
        assert (seen[0].time_zone, seen[0].tone) == ("Asia/Tokyo", "warm")


async def test_a_context_that_cannot_be_filled_is_refused_at_the_start(stage: Stage) -> None:
    @dataclass
    class Needy:
        user_id: str
        shop: str

    agent = agent_of(graph_of(MessagesState, note, context_schema=Needy))
    with pytest.raises(UsageError, match=r"context needs 'shop'.*default"):
        async with stage.world(agent):
            pass


async def test_ids_in_the_config_are_those_of_the_thread(stage: Stage) -> None:
    """`thread_id` is the thread in each turn, and a follow-up can be told without Segue."""
    seen: list[dict[str, Any]] = []

    def look(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        del state
        seen.append(config["configurable"])
        return {"messages": [AIMessage("Fine.")]}

    async with stage.world(agent_of(graph_of(MessagesState, look), eager_agent())) as world:
        thread = await new_thread(world)
        user = (await world.journal.threads.get(thread)).user_id
        await world.say(thread, "Hello.")
        await world.pass_time(PATIENCE)
    for given, trigger in zip(seen, (None, "check_in"), strict=False):
        assert given["thread_id"] == thread
        assert (given["user_id"], given["agent_id"]) == (user, "guide")
        assert given["segue_trigger"] == trigger


async def test_a_checkpointer_of_the_graph_gets_a_word_and_its_store_is_kept(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    store, saver = InMemoryStore(), InMemorySaver()

    def look(state: MessagesState, runtime: Runtime[Any]) -> dict[str, Any]:
        del state
        assert runtime.store is not None
        runtime.store.put(("seen",), "it", {"yes": True})
        return {"messages": [AIMessage("Fine.")]}

    builder = StateGraph(MessagesState)
    builder.add_node("look", look)
    builder.add_edge(BEGIN, "look")
    graph = builder.compile(checkpointer=saver, store=store)
    with caplog.at_level(logging.WARNING):
        async with stage.world(agent_of(graph)) as world:
            await world.say(await new_thread(world), "Hello.")
    [line] = [r.getMessage() for r in caplog.records if "checkpointer" in r.getMessage()]
    assert "Agent guide" in line
    assert "InMemorySaver" in line
    assert store.get(("seen",), "it") is not None
    assert not saver.storage

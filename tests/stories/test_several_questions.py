"""Stories of graphs that ask more than once: each answer is for the question it was given to."""

from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

from segue.errors import BackendError, UsageError
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, Stage, World, plain_agent, with_graph
from tests.stories.scenes import new_thread

pytestmark = pytest.mark.anyio

BOOK, PAY = "Shall I book the room?", "Shall I pay 500 euros?"


class Booking(MessagesState):
    """What the person said so far."""

    book: str
    pay: str


def told(state: Booking) -> dict[str, Any]:
    return {"messages": [AIMessage(f"Booked: {state['book']}, paid: {state['pay']}")]}


def one_node(state: MessagesState) -> dict[str, Any]:
    del state
    return {"book": interrupt(BOOK), "pay": interrupt(PAY)}


def in_one_node() -> AgentConfig:
    """Asks twice in one node."""
    builder = StateGraph(Booking)
    builder.add_node("ask", one_node)
    builder.add_node("told", told)
    builder.add_edge(BEGIN, "ask")
    builder.add_edge("ask", "told")
    return with_graph(plain_agent(autonomy={"enabled": False}), builder.compile())


def of_two_nodes(*, at_once: bool) -> AgentConfig:
    """Asks in two nodes, one after the other or both at once."""
    builder = StateGraph(Booking)
    builder.add_node("ask_first", lambda _: {"book": interrupt(BOOK)})
    builder.add_node("ask_second", lambda _: {"pay": interrupt(PAY)})
    builder.add_node("told", told)
    builder.add_edge(BEGIN, "ask_first")
    builder.add_edge(BEGIN if at_once else "ask_first", "ask_second")
    builder.add_edge(["ask_first", "ask_second"] if at_once else "ask_second", "told")
    return with_graph(plain_agent(autonomy={"enabled": False}), builder.compile())


async def open_questions(world: World, thread: str) -> tuple[int, dict[str, str]]:
    """The turn that waits, and the ids of its questions by their words."""
    [turn] = await world.journal.turns.list_of(thread, only_waiting=True)
    assert turn.ending is not None
    return turn.id, {words: key for key, words in turn.ending["questions"].items()}


def fail_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next end of a turn cannot be stored, as if the process died before it."""
    finish = world.journal.turns.finish

    async def away(*_: Any, **__: Any) -> Any:
        monkeypatch.setattr(world.journal.turns, "finish", finish)
        raise BackendError("The database is away.")

    monkeypatch.setattr(world.journal.turns, "finish", away)


@pytest.mark.parametrize("agent", [in_one_node(), of_two_nodes(at_once=False)])
async def test_an_answer_is_never_given_to_the_next_question(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, agent: AgentConfig
) -> None:
    """Broken off after it led to another question: that one is asked, and waits for its own."""
    async with stage.world(agent) as world:
        thread = await new_thread(world)
        await world.say(thread, "A room, please.")
        turn, asked = await open_questions(world, thread)
        assert [*asked] == [BOOK]
        fail_once(world, monkeypatch)
        await world.segue.answer(turn, "yes")
        await world.pass_time(minutes=1)
        turn, asked = await open_questions(world, thread)
        assert [*asked] == [PAY]
        await world.segue.answer(turn, "no")
        await world.clock.settle()
        assert (await world.heard(thread))[-1] == "Booked: yes, paid: no"


async def test_of_two_questions_one_is_answered_and_the_other_goes_on_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the turn with the first answer is tried again."""
    async with stage.world(of_two_nodes(at_once=True)) as world:
        thread = await new_thread(world)
        await world.say(thread, "A room, please.")
        turn, asked = await open_questions(world, thread)
        fail_once(world, monkeypatch)
        await world.segue.answer(turn, {asked[BOOK]: "yes"})
        await world.pass_time(minutes=1)
        turn, asked = await open_questions(world, thread)
        assert [*asked] == [PAY]
        await world.segue.answer(turn, "no")
        await world.clock.settle()
        assert (await world.heard(thread))[-1] == "Booked: yes, paid: no"


async def test_an_answer_that_could_be_for_either_is_refused(stage: Stage) -> None:
    """Nothing is written, and both questions still wait."""
    async with stage.world(of_two_nodes(at_once=True)) as world:
        thread = await new_thread(world)
        await world.say(thread, "A room, please.")
        turn, asked = await open_questions(world, thread)
        with pytest.raises(UsageError, match="2 questions; give the answers by their ids"):
            await world.segue.answer(turn, "yes")
        await world.clock.settle()
        assert await open_questions(world, thread) == (turn, asked)


async def test_answers_count_whatever_the_clock_of_another_host_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One host, whose clock is years ahead, asks; another one gets the answers."""
    ahead = SimpleNamespace(time_ns=lambda: int(START.replace(year=2100).timestamp()) * 10**9)
    async with stage.world(of_two_nodes(at_once=False)) as world:
        monkeypatch.setattr(checkpoint_ids, "time", ahead)
        thread = await new_thread(world)
        await world.say(thread, "A room, please.")
        monkeypatch.undo()
        monkeypatch.setattr(checkpoint_ids, "_last_v6_timestamp", None)
        for words, answer in ((BOOK, "yes"), (PAY, "no")):
            turn, asked = await open_questions(world, thread)
            assert [*asked] == [words]
            await world.segue.answer(turn, answer)
            await world.clock.settle()
        assert (await world.heard(thread))[-1] == "Booked: yes, paid: no"

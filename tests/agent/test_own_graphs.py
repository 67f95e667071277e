"""Custom graphs: their messages come out, in whatever form they return them."""

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import interrupt

from segue import Batch, MessageMetadata, is_synthetic, stamp
from segue.agent.build import load_graph
from segue.agent.checkpoints.store import Checkpoints
from segue.agent.scripted import ScriptedChatModel
from segue.core.messages import continuation_message
from segue.errors import UsageError
from segue.events import ProgressReported
from segue.journal.journal import Journal
from segue.runtime.run import MessageFinished, Question, Run, Token
from tests.agent.session import Session, kinds, streamed

pytestmark = pytest.mark.anyio


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def graph_of(*nodes: Any) -> StateGraph[Any]:
    """Nodes in a row."""
    builder: StateGraph[Any] = StateGraph(State)
    builder.add_sequence([(f"node_{n}", node) for n, node in enumerate(nodes)])
    builder.add_edge(START, "node_0")
    return builder


def saying(*messages: Any) -> Callable[[State], dict[str, Any]]:
    return lambda _: {"messages": list(messages)}


class Speaking:
    """A node with a model that says the same for ever."""

    def __init__(self, words: str) -> None:
        self._model = ScriptedChatModel(script=lambda _: AIMessage(words))

    async def __call__(self, state: State) -> dict[str, Any]:
        return {"messages": [await self._model.ainvoke(state["messages"])]}


async def test_a_constant_id_loses_no_answer_over_turns(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A graph that calls each of its answers the same is heard in every turn."""
    seen: list[list[AnyMessage]] = []

    def answer(state: State) -> dict[str, Any]:
        seen.append(state["messages"])
        return {"messages": [AIMessage(f"Answer {len(seen)}.", id="same")]}

    session = await Session.begin(journal, checkpoints, graph=graph_of(answer))
    for number in range(1, 4):
        events = await session.say(f"Question {number}?")
        [said] = [event.message for event in events if isinstance(event, MessageFinished)]
        assert said.id == (await session.last_batch()).messages[-1].id
    assert (await session.history())[1::2] == ["Answer 1.", "Answer 2.", "Answer 3."]
    assert [m.text for m in seen[-1]][1::2] == ["Answer 1.", "Answer 2."]


@pytest.mark.parametrize(
    "reply",
    [
        {"role": "assistant", "content": "Short."},
        {"role": "assistant", "content": "Short.", "id": "mine"},
        ("assistant", "Short."),
        AIMessage("Short."),
    ],
)
async def test_a_graph_may_clear_its_messages_and_reply(
    journal: Journal, checkpoints: Checkpoints, reply: Any
) -> None:
    """A node that starts afresh is heard, in whatever form it writes its reply."""
    node = saying(RemoveMessage(REMOVE_ALL_MESSAGES), reply)
    session = await Session.begin(journal, checkpoints, graph=graph_of(node))
    await session.say("Is it open?")
    await session.say("And now?")
    assert await session.history() == ["Is it open?", "Short.", "And now?", "Short."]
    assert all(batch.is_complete for batch in await session.batches())


async def test_a_batch_that_goes_on_tells_the_graph_only_what_is_new(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """What a graph has dropped or has said itself is not told to it again."""
    seen: list[list[str]] = []

    def answer(state: State) -> dict[str, Any]:
        seen.append([message.text for message in state["messages"]])
        number = len(seen)
        reply = AIMessage(f"Part {number}.", id=f"part-{number}")
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), reply]}

    session = await Session.begin(journal, checkpoints, graph=graph_of(answer))
    run = Run.of("Tell me.", session.ids, agent_id="guide")
    said = [e.message async for e in session.agent.run(run) if isinstance(e, MessageFinished)]
    more = stamp([*said, continuation_message()], session.ids, run.batch)
    longer = session.run_of(Batch(run.batch.id, [*run.batch.messages, *more]))
    later = [
        e.message.text async for e in session.agent.run(longer) if isinstance(e, MessageFinished)
    ]
    assert later == ["Part 2."]
    assert seen == [["Tell me."], ["Part 1.", more[-1].text]]


async def test_a_note_after_the_reply_does_not_fail_the_turn(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """It has no reader any more, so it is dropped; a note before the reply is kept."""
    graph = graph_of(
        saying(HumanMessage("Think first.")),
        saying(AIMessage("Yes."), HumanMessage("Sounded sad.")),
    )
    session = await Session.begin(journal, checkpoints, graph=graph)
    await session.say("Is it open?")
    batch = await session.last_batch()
    assert batch.is_complete
    assert [m.text for m in batch.messages] == ["Is it open?", "Think first.", "Yes."]
    assert [is_synthetic(m) for m in batch.messages] == [False, True, False]


async def test_a_note_on_its_own_is_no_answer(journal: Journal, checkpoints: Checkpoints) -> None:
    """A graph that only writes in the user's name has not replied."""
    session = await Session.begin(
        journal, checkpoints, graph=graph_of(saying(HumanMessage("Sounded sad.")))
    )
    assert "without an answer" in str(await session.say("Is it open?"))


async def test_marks_that_a_graph_copies_are_not_believed(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A reply with the trigger's own keys is a reply: it is shown, and has its own place."""

    def answer(state: State) -> dict[str, Any]:
        copied = dict(state["messages"][-1].additional_kwargs)
        return {"messages": [AIMessage("By the way...", additional_kwargs=copied)]}

    session = await Session.begin(journal, checkpoints, graph=graph_of(answer))
    await session.nudge()
    assert await session.history() == ["By the way..."]
    [asked, reply] = (await session.last_batch()).messages
    assert MessageMetadata.of(reply).position != MessageMetadata.of(asked).position


async def test_a_subgraph_streams_and_its_reply_comes_once(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """Pieces and progress of a graph inside the graph are heard while it works."""

    def report(_: State) -> dict[str, Any]:
        get_stream_writer()("half")
        return {}

    inner = graph_of(report, Speaking("From deep inside.")).compile()
    session = await Session.begin(journal, checkpoints, graph=graph_of(inner))
    events = await session.say("Is it open?")
    assert streamed(events) == "From deep inside."
    assert [e.value for e in events if isinstance(e, ProgressReported)] == ["half"]
    [message] = [e.message for e in events if isinstance(e, MessageFinished)]
    assert {e.message_id for e in events if isinstance(e, Token)} == {message.id}
    assert await session.history() == ["Is it open?", "From deep inside."]


async def test_what_a_subgraph_keeps_to_itself_is_not_stored(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """Messages of a graph inside the graph are its own until it hands them out."""
    inner = graph_of(saying(AIMessage("Draft.")), saying(AIMessage("Better draft."))).compile()

    async def edit(state: State) -> dict[str, Any]:
        drafts = await inner.ainvoke(state)
        return {"messages": [AIMessage(f"{len(drafts['messages'])} read.")]}

    session = await Session.begin(journal, checkpoints, graph=graph_of(edit))
    await session.say("Write!")
    assert await session.history() == ["Write!", "3 read."]


async def test_a_subgraph_asks_once(journal: Journal, checkpoints: Checkpoints) -> None:
    """A question from inside is one question."""

    def ask(_: State) -> dict[str, Any]:
        return {"messages": [AIMessage(interrupt("Really?"))]}

    session = await Session.begin(journal, checkpoints, graph=graph_of(graph_of(ask).compile()))
    events = await session.say("Order it.")
    assert [e.value for e in events if isinstance(e, Question)] == ["Really?"]


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_graph_that_a_tool_runs_is_silent(
    journal: Journal, checkpoints: Checkpoints, is_own: bool
) -> None:
    """What an agent's tool asks of another agent is not part of the reply."""
    helper: Any = create_agent(ScriptedChatModel(script=["Inner thoughts."]))

    @tool
    async def consult() -> str:
        """Ask the other."""
        return str((await helper.ainvoke({"messages": [HumanMessage("Hm?")]}))["messages"][-1].text)

    calls = [{"name": "consult", "args": {}, "id": "c", "type": "tool_call"}]
    model = ScriptedChatModel(script=[AIMessage("", tool_calls=calls), "Done."])
    if is_own:
        session = await Session.begin(journal, checkpoints, graph=create_agent(model, [consult]))
    else:
        session = await Session.begin(journal, checkpoints, model, tools=[consult])
    assert streamed(await session.say("Ask!")) == "Done."
    assert kinds((await session.last_batch()).messages) == ["human", "ai", "tool", "ai"]


async def test_the_window_is_built_only_where_it_is_told(
    journal: Journal, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that goes on from its checkpoint has its messages there already."""

    def ask(_: State) -> dict[str, Any]:
        return {"messages": [AIMessage(interrupt("Really?"))]}

    session = await Session.begin(journal, checkpoints, graph=graph_of(ask))
    await session.say("Order it.")
    built: list[Any] = []
    monkeypatch.setattr("segue.agent.langgraph_agent.build_context", built.append)
    batch = await session.last_batch()
    run = session.run_of(batch, answer="Ordered.")
    said = [e.message.text async for e in session.agent.run(run) if isinstance(e, MessageFinished)]
    assert said == ["Ordered."]
    assert built == []


def needs_config(config: Any) -> Any:
    return config


def gives_itself() -> Any:
    return gives_itself


async def gives_later() -> Any:
    return graph_of(saying(AIMessage("Yes.")))


def fails() -> Any:
    raise KeyError("MODEL")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (needs_config, "without arguments: missing a required argument: 'config'"),
        (gives_itself, "graph is function; expected a LangGraph graph"),
        (gives_later, "async function"),
        (fails, "failed: KeyError"),
        (lambda: "segue", "graph is str"),
        (StateGraph(State), "cannot be compiled"),
    ],
)
def test_what_makes_no_graph_is_refused_in_words(given: Any, said: str) -> None:
    """The error names the agent and says what was expected."""
    with pytest.raises(UsageError, match=rf"agent 'mine': .*{said}"):
        load_graph(given, "agent 'mine'")


class Asked(TypedDict):
    question: str


def test_a_graph_that_takes_no_messages_is_refused() -> None:
    """LangGraph would drop what the user wrote, and the graph would answer nothing of it."""
    builder: StateGraph[Any, Any, Any] = StateGraph(State, input_schema=Asked)
    nodes: list[Any] = [("answer", saying(AIMessage("Yes.")))]
    builder.add_sequence(nodes).add_edge(START, "answer")
    with pytest.raises(UsageError, match=r"no `messages` as its input.*has: question"):
        load_graph(builder, "agent 'mine'")


@pytest.mark.parametrize("where", ["interrupt_before", "interrupt_after"])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_graph_with_breakpoints_is_refused(where: str, depth: int) -> None:
    """It would stop there for ever, with half of its work as the reply."""
    stop: dict[str, Any] = {where: "*"}
    stops = graph_of(saying(AIMessage("Yes."))).compile(**stop)
    given = graph_of(stops) if depth else stops
    with pytest.raises(UsageError, match="without, and call interrupt"):
        load_graph(given, "agent 'mine'")

"""A run of the agent: what it is told, what comes out, and how it goes on after a break."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

from segue import is_synthetic, synthetic_message
from segue.agent.checkpoints.store import Checkpoints, MemoryCheckpoints
from segue.agent.current import current_run
from segue.agent.scripted import ScriptedChatModel
from segue.compose import find_agent
from segue.core.metadata import KEYS
from segue.core.text import storable
from segue.errors import ConflictError
from segue.events import ProgressReported
from segue.journal.journal import Journal
from segue.journal.records import TurnState
from segue.runtime.run import MessageFinished, Question, Run, Token
from segue.settings.agents import Limits
from segue.testing.providers import request_problems
from tests.agent.session import LEASE, Session, failure, kinds, streamed

pytestmark = pytest.mark.anyio

Begin = Callable[..., Awaitable[Session]]


@pytest.fixture
def begin(journal: Journal, checkpoints: Checkpoints) -> Begin:
    async def begin(model: Any = None, **settings: Any) -> Session:
        return await Session.begin(journal, checkpoints, model, **settings)

    return begin


def call(name: str, id: str = "call_1", /, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": id, "type": "tool_call"}


@tool
async def double(number: int) -> str:
    """Double a number."""
    return str(2 * number)


async def test_a_reply_streams_and_is_stored_once(begin: Begin) -> None:
    """The pieces that a listener gets are the message that the journal keeps."""
    session = await begin(ScriptedChatModel(script=["Yes, until six o'clock."]))
    events = await session.say("Is it open?")
    assert len([e for e in events if isinstance(e, Token)]) > 1
    assert streamed(events) == "Yes, until six o'clock."
    assert await session.history() == ["Is it open?", "Yes, until six o'clock."]
    [message] = [e.message for e in events if isinstance(e, MessageFinished)]
    assert {e.message_id for e in events if isinstance(e, Token)} == {message.id}
    assert (await session.last_batch()).is_complete


async def test_the_model_is_told_what_was_said_before(begin: Begin) -> None:
    """The window goes in at the model call: system prompt with the time, whole batches, then the
    new message.
    """
    model = ScriptedChatModel(script=["Yes.", "At six."])
    session = await begin(model, system_prompt="You know the museum.")
    await session.say("Is it open?")
    await session.say("When does it close?")
    assert kinds(model.seen[-1]) == ["system", "human", "ai", "human"]
    assert model.seen[-1][0].text.startswith("You know the museum.\n\nNow: Friday, 15 January 2027")
    assert [m.text for m in model.seen[-1][1:]] == [
        "Is it open?",
        "Yes.",
        "When does it close?",
    ]


@pytest.mark.parametrize(
    "trigger", ["check_in", "question_unanswered", "task_incomplete", "waiting_for_decision"]
)
async def test_no_metadata_reaches_the_model(begin: Begin, trigger: str) -> None:
    """The model gets a follow-up as a plain human message: no mark, no reason, no id of ours."""
    model = ScriptedChatModel(script=["Yes.", "By the way, it closes at six."])
    session = await begin(model)
    await session.say("Is it open?")
    events = await session.nudge(trigger, reason="silence of 30 s")
    asked = model.seen[-1][-1]
    assert isinstance(asked, HumanMessage)
    assert "silence" not in repr(model.seen)
    assert not [m for seen in model.seen for m in seen if KEYS & m.additional_kwargs.keys()]
    assert streamed(events) == "By the way, it closes at six."
    assert asked.text not in await session.history()


async def test_tools_run_and_their_results_are_told(begin: Begin) -> None:
    """Call, result and reply are one batch, stored in the order in which they came."""
    model = ScriptedChatModel(
        script=[AIMessage("Let me see.", tool_calls=[call("double", number=21)]), "It is 42."]
    )
    session = await begin(model, tools=[double])
    await session.say("What is twice 21?")
    batch = await session.last_batch()
    assert kinds(batch.messages) == ["human", "ai", "tool", "ai"]
    assert batch.is_complete
    assert model.seen[-1][-1].text == "42"


async def test_parallel_tools_run_at_the_same_time(begin: Begin) -> None:
    """Each waits for the other, so one after the other would never end."""
    both = asyncio.Barrier(2)

    @tool
    async def meet(who: str) -> str:
        """Wait for the other."""
        await both.wait()
        return f"{who} is here"

    calls = [call("meet", "a", who="Ada"), call("meet", "b", who="Bo")]
    session = await begin(
        ScriptedChatModel(script=[AIMessage("", tool_calls=calls), "Both are here."]), tools=[meet]
    )
    await session.say("Meet!")
    batch = await session.last_batch()
    assert batch.is_complete
    assert sorted(m.text for m in batch.messages if isinstance(m, ToolMessage)) == [
        "Ada is here",
        "Bo is here",
    ]


async def test_a_result_is_stored_while_its_sibling_still_runs(begin: Begin) -> None:
    """A finished tool's result does not wait for the slow one."""
    stored = asyncio.Event()

    @tool
    async def quick() -> str:
        """Answer at once."""
        return "quick"

    @tool
    async def slow() -> str:
        """Wait until the other result is stored."""
        await stored.wait()
        return "slow"

    calls = [call("slow", "a"), call("quick", "b")]
    session = await begin(
        ScriptedChatModel(script=[AIMessage("", tool_calls=calls), "Done."]), tools=[quick, slow]
    )

    def notice(message: BaseMessage) -> None:
        if message.text == "quick":
            stored.set()

    session.notice = notice
    await session.say("Both, please.")
    assert [m.text for m in (await session.last_batch()).messages[2:4]] == ["quick", "slow"]


async def broken_tool() -> str:
    raise ZeroDivisionError("no such thing")


async def hanging_tool() -> str:
    await asyncio.Event().wait()
    return "never"


@pytest.mark.parametrize(
    ("work", "said"), [(broken_tool, "ZeroDivisionError"), (hanging_tool, "within 0.05 s")]
)
async def test_a_tool_that_fails_is_answered_and_the_reply_goes_on(
    begin: Begin, work: Callable[[], Awaitable[str]], said: str
) -> None:
    """The model is told, and the results of the tools beside it are kept."""
    bad = tool("bad", description="Fail.")(work)
    calls = [call("bad", "a"), call("double", "b", number=2)]
    model = ScriptedChatModel(script=[AIMessage("", tool_calls=calls), "One of them failed."])
    limits = Limits.parse({"tool_time": 0.05}, "limits")
    session = await begin(model, tools=[bad, double], limits=limits)
    await session.say("Try both.")
    batch = await session.last_batch()
    assert batch.is_complete
    results = {m.tool_call_id: m for m in batch.messages if isinstance(m, ToolMessage)}
    assert said in results["a"].text
    assert results["a"].status == "error"
    assert results["b"].text == "4"
    assert await session.history() == ["Try both.", "One of them failed."]


async def test_a_call_that_gives_the_same_again_and_again_is_refused(begin: Begin) -> None:
    """A model that goes round in circles is told so before the limit of steps ends the turn."""
    calls = [AIMessage("", tool_calls=[call("double", f"c{n}", number=2)]) for n in range(3)]
    session = await begin(ScriptedChatModel(script=[*calls, "It is 4."]), tools=[double])
    await session.say("Twice two?")
    results = [m for m in (await session.last_batch()).messages if isinstance(m, ToolMessage)]
    assert [m.status for m in results] == ["success", "success", "error"]


async def test_a_tool_can_ask_whose_run_it_is(begin: Begin) -> None:
    """Tools and nodes find the run, with its user and why it speaks."""
    runs: list[Run | None] = []

    @tool
    async def whoami() -> str:
        """Say whose run it is."""
        runs.append(current_run())
        return "known"

    model = ScriptedChatModel(script=["Hi.", AIMessage("", tool_calls=[call("whoami")]), "Hello?"])
    session = await begin(model, tools=[whoami])
    await session.say("Hello")
    await session.nudge("task_incomplete")
    [run] = runs
    assert run is not None
    assert (run.user_id, run.agent_id, run.thread_id) == ("ada", "guide", "chat")
    assert run.trigger == "task_incomplete"
    assert current_run() is None


def two_node_graph() -> StateGraph[Any]:
    class State(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]
        mood: str

    def feel(state: State) -> dict[str, Any]:
        return {"mood": "cheerful" if "?" in state["messages"][-1].text else "calm"}

    def speak(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"I feel {state['mood']}.")]}

    builder: StateGraph[Any] = StateGraph(State)
    builder.add_node("feel", feel)
    builder.add_node("speak", speak)
    builder.add_edge(START, "feel")
    builder.add_edge("feel", "speak")
    builder.add_edge("speak", END)
    return builder


async def test_a_hand_built_graph_runs_unchanged(begin: Begin) -> None:
    """Context goes in as messages, its own state is kept within the turn, new messages come out."""
    session = await begin(graph=two_node_graph())
    await session.say("How are you?")
    await session.say("Fine.")
    await session.nudge()
    assert await session.history() == [
        "How are you?",
        "I feel cheerful.",
        "Fine.",
        "I feel calm.",
        "I feel calm.",
    ]
    assert all(batch.is_complete for batch in await session.batches())


async def test_a_graph_of_ones_own_sees_the_whole_window_with_its_marks(begin: Begin) -> None:
    """Every node can ask which message is synthetic."""
    seen: list[list[BaseMessage]] = []

    def speak(state: Any) -> dict[str, Any]:
        seen.append(state["messages"])
        return {"messages": [AIMessage("Yes.")]}

    class State(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    builder: StateGraph[Any] = StateGraph(State)
    builder.add_node("speak", speak)
    builder.add_edge(START, "speak")
    session = await begin(graph=builder.compile())
    await session.say("Is it open?")
    await session.nudge()
    assert kinds(seen[-1]) == ["human", "ai", "human"]
    assert [is_synthetic(m) for m in seen[-1]] == [False, False, True]


async def test_somebodys_own_agent_runs_unchanged(begin: Begin) -> None:
    """An agent made with create_agent streams, calls its tools and answers a follow-up."""
    model = ScriptedChatModel(
        script=[AIMessage("", tool_calls=[call("double", number=4)]), "Eight.", "More sums?"]
    )
    session = await begin(graph=create_agent(model, [double], system_prompt="You count."))
    events = await session.say("Twice four?")
    assert streamed(events) == "Eight."
    await session.nudge()
    assert await session.history() == ["Twice four?", "Eight.", "More sums?"]


async def test_a_graphs_own_human_message_is_not_shown_as_the_users(begin: Begin) -> None:
    """What a node says to the model in the user's name stays between the two."""

    def ask(state: Any) -> dict[str, Any]:  # noqa: ARG001 - a node gets the state
        return {"messages": [HumanMessage("Think step by step."), AIMessage("Yes.")]}

    class State(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    builder: StateGraph[Any] = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    session = await begin(graph=builder.compile())
    await session.say("Is it open?")
    assert await session.history() == ["Is it open?", "Yes."]
    assert kinds((await session.last_batch()).messages) == ["human", "human", "ai"]


async def test_progress_of_a_tool_is_passed_on(begin: Begin) -> None:
    """What a tool writes to LangGraph's stream reaches the listeners."""
    from langgraph.config import get_stream_writer  # noqa: PLC0415 - used by this tool alone

    @tool
    async def work() -> str:
        """Work."""
        get_stream_writer()({"done": 0.5})
        return "done"

    model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call("work")]), "Done."])
    session = await begin(model, tools=[work])
    events = await session.say("Work!")
    assert [e.value for e in events if isinstance(e, ProgressReported)] == [{"done": 0.5}]


async def test_a_question_to_a_person_waits_for_the_answer(begin: Begin, journal: Journal) -> None:
    """An interrupt leaves the batch open, is asked again after a restart, and is then resumed."""
    orders: list[str] = []

    @tool
    async def order(what: str) -> str:
        """Order something."""
        if interrupt({"allow": what}) != "yes":
            return "refused"
        orders.append(what)
        return "ordered"

    model = ScriptedChatModel(
        script=[AIMessage("", tool_calls=[call("order", what="pizza")]), "It is on its way."]
    )
    session = await begin(model, tools=[order])
    await session.journal.inbox.accept(
        "chat", HumanMessage("Pizza, please."), ids=session.ids, now=session.now
    )
    lease = await session.claim()
    run = Run("chat", "guide", "ada", await journal.messages.load_batch("chat", lease.turn.batch))
    first = [event async for event in session.agent.run(run)]
    [question] = [e for e in first if isinstance(e, Question)]
    assert question.value == {"allow": "pizza"}
    assert orders == []
    assert [e async for e in session.agent.run(run)][-1] == question
    answered = Run("chat", "guide", "ada", run.batch, answer="yes")
    second = [event async for event in session.agent.run(answered)]
    assert orders == ["pizza"]
    assert [e.message.text for e in second if isinstance(e, MessageFinished)][
        -1
    ] == "It is on its way."


async def test_a_finished_run_leaves_no_checkpoint(begin: Begin, checkpoints: Checkpoints) -> None:
    """Checkpoints hold running turns and nothing else."""
    session = await begin(ScriptedChatModel(script=["Yes.", ValueError("broken")]))
    await session.say("Is it open?")
    await session.say("And tomorrow?")
    assert [c async for c in checkpoints.saver().alist(None)] == []


class RateLimitError(Exception):
    """As the clients of OpenAI and Anthropic name it."""

    status_code = 429


class UnknownModelError(Exception):
    """What a provider answers when the config names a model that it does not have."""

    status_code = 404


FAILURES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a model error": (ValueError("secret words"), {}, "backend"),
    "an empty answer": ("", {}, "backend"),
    "a message that is too long": ("Yes.", {"context_tokens": 20}, "usage"),
    "a rate limit": (RateLimitError(), {}, "backend"),
    "an unknown model name": (UnknownModelError(), {}, "backend"),
    "a model that hangs": (
        "never",
        {"limits": Limits.parse({"model_time": 0.05}, "limits")},
        "backend",
    ),
    "arguments that are no JSON": (
        AIMessage(
            "",
            invalid_tool_calls=[
                {
                    "name": "double",
                    "args": "oops",
                    "id": "call_1",
                    "error": "no JSON",
                    "type": "invalid_tool_call",
                }
            ],
        ),
        {},
        "backend",
    ),
    "words beside a call that nobody can read": (
        AIMessage(
            "I count.",
            invalid_tool_calls=[
                {
                    "name": "double",
                    "args": "oops",
                    "id": "call_1",
                    "error": "no JSON",
                    "type": "invalid_tool_call",
                }
            ],
        ),
        {},
        "backend",
    ),
    "an endless loop": (
        lambda _: AIMessage("", tool_calls=[call("double", number=1)]),
        {"limits": Limits(steps=3)},
        "backend",
    ),
}


# How OpenAI's two APIs, Anthropic and Google say that an answer was cut off.
CUT_OFF: dict[str, dict[str, Any]] = {
    "completions": {"finish_reason": "length"},
    "responses": {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    },
    "filtered": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
    "anthropic": {"stop_reason": "max_tokens"},
    "anthropic's window": {"stop_reason": "model_context_window_exceeded"},
    "google": {"finish_reason": "MAX_TOKENS"},
}


@pytest.mark.parametrize("provider", CUT_OFF)
async def test_a_call_that_was_cut_off_never_runs(begin: Begin, provider: str) -> None:
    """Its arguments look whole, since clients complete their JSON."""
    ran = list[int]()

    @tool
    def pay(number: int) -> str:
        """Pay an amount."""
        ran.append(number)
        return "paid"

    metadata = CUT_OFF[provider]
    cut = AIMessage("", tool_calls=[call("pay", number=1)], response_metadata=metadata)
    session = await begin(ScriptedChatModel(script=[cut]), tools=[pay])
    assert "cut off in the middle of a tool call" in failure(await session.say("Pay.")).reason
    assert ran == []


@pytest.mark.parametrize("case", FAILURES)
async def test_a_turn_that_fails_is_closed_and_the_next_one_works(begin: Begin, case: str) -> None:
    """The user is told, the batch is settled, and the words that failed stay in the history."""
    wrong, settings, code = FAILURES[case]
    if "context_tokens" in settings:
        settings = {**settings, "memory": {"enabled": False}}
    script = [wrong, wrong] if callable(wrong) else [wrong]
    model = ScriptedChatModel(
        script=[*script, "Now it works."], delay=0.2 if wrong == "never" else 0.0
    )
    session = await begin(model, tools=[double], **settings)
    events = await session.say("word " * 400 if case == "a message that is too long" else "Hello?")
    failed = failure(events)
    assert failed.code == code
    assert "secret" not in failed.reason
    assert (await session.last_batch()).is_complete
    if case == "a message that is too long":
        return
    model.delay = 0.0
    await session.say("Again?")
    assert (await session.history())[-2:] == ["Again?", "Now it works."]
    assert request_problems(model.seen[-1]) == []


class CountingModel(ScriptedChatModel):
    """Counts the pieces that it wrote."""

    pieces: int = 0

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in super()._astream(*args, **kwargs):
            self.pieces += 1
            yield piece


class CuttingModel(ScriptedChatModel):
    """Streams given chunks, like a server that counts a character outside the BMP as two."""

    async def _astream(self, *_: Any, **_options: Any) -> AsyncIterator[ChatGenerationChunk]:
        for text in ("Fine \ud83d", "\ude00", "!", " \ud83d", "\0"):
            yield ChatGenerationChunk(message=AIMessageChunk(content=text, id="run-1"))
        last = AIMessageChunk(content="", id="run-1", chunk_position="last")
        yield ChatGenerationChunk(message=last)


async def test_a_character_that_chunks_cut_is_streamed_whole(begin: Begin) -> None:
    """No listener can be sent one half of it."""
    session = await begin(CuttingModel(script=[]))
    events = await session.say("How are you?")
    pieces = [event.text for event in events if isinstance(event, Token)]
    assert pieces == ["Fine ", "\N{GRINNING FACE}", "!", " ", "\ufffd\ufffd"]
    assert storable((await session.history())[-1]) == "".join(pieces)


async def test_closing_a_run_stops_the_model(begin: Begin, journal: Journal) -> None:
    """After a cancel no further piece is written."""
    model = CountingModel(script=["word " * 500], delay=0.01)
    session = await begin(model)
    await session.journal.inbox.accept(
        "chat", HumanMessage("Talk."), ids=session.ids, now=session.now
    )
    lease = await session.claim()
    run = Run("chat", "guide", "ada", await journal.messages.load_batch("chat", lease.turn.batch))
    events = session.agent.run(run)
    async for event in events:
        if isinstance(event, Token):
            break
    await events.aclose()  # type: ignore[attr-defined]  # an async generator
    written = model.pieces
    await asyncio.sleep(0.05)
    assert 0 < written < 20
    assert model.pieces == written


def test_tools_and_graphs_are_found_by_their_path() -> None:
    """A config names them as package.module:attribute."""
    from segue.agent.build import load_graph, load_tool  # noqa: PLC0415 - next to what they load

    assert load_tool("tests.agent.test_langgraph_agent:double", "guide").name == "double"
    graph = load_graph("tests.agent.test_langgraph_agent:two_node_graph", "agent 'guide'")
    assert "messages" in graph.channels
    assert isinstance(double, BaseTool)


@pytest.mark.parametrize("asked", ["Is it open?", HumanMessage("Is it open?", id="m-1")])
async def test_a_text_and_a_message_are_both_answered(
    begin: Begin, asked: str | HumanMessage
) -> None:
    """A text becomes a user's message; a message goes in as it is, with its id."""
    model = ScriptedChatModel(script=["Yes."])
    session = await begin(model)
    run = Run.of(asked, session.ids, agent_id="guide", user_id="ada")
    events = [event async for event in session.agent.run(run)]
    assert streamed(events) == "Yes."
    assert model.seen[-1][-1].text == "Is it open?"
    if isinstance(asked, HumanMessage):
        assert model.seen[-1][-1].id == "m-1"


async def test_a_trigger_can_be_run_without_a_journal(begin: Begin) -> None:
    """A prepared synthetic message keeps its mark in the graph and loses it before the model."""
    model = ScriptedChatModel(script=["By the way..."])
    session = await begin(model)
    run = Run.of(synthetic_message("check_in"), session.ids, agent_id="guide")
    assert run.trigger == "check_in"
    assert streamed([event async for event in session.agent.run(run)]) == "By the way..."
    assert model.seen[-1][-1].additional_kwargs == {}


async def test_arguments_of_the_wrong_shape_are_answered(begin: Begin) -> None:
    """The model is told what was wrong with them, and can call again."""
    model = ScriptedChatModel(
        script=[
            AIMessage("", tool_calls=[call("double", "a", number="many")]),
            AIMessage("", tool_calls=[call("double", "b", number=2)]),
            AIMessage("", tool_calls=[call("triple", "c", number=2)]),
            "Four.",
        ]
    )
    session = await begin(model, tools=[double])
    await session.say("Twice two?")
    batch = await session.last_batch()
    results = {m.tool_call_id: m for m in batch.messages if isinstance(m, ToolMessage)}
    assert {name: result.status for name, result in results.items()} == {
        "a": "error",
        "b": "success",
        "c": "error",
    }
    assert batch.is_complete
    assert (await session.history())[-1] == "Four."


async def test_an_agent_that_is_not_there_is_an_error_the_user_is_told(begin: Begin) -> None:
    """A thread whose agent was taken from the config gets an answer, too."""
    session = await begin(ScriptedChatModel(script=[]))
    nobody: Callable[[str], Any] = partial(find_agent, {})
    await session.journal.inbox.accept(
        "chat", HumanMessage("Hello?"), ids=session.ids, now=session.now
    )
    assert failure(await session.work_with(nobody)).code == "not_found"
    assert (await session.last_batch()).is_complete


async def test_a_turn_that_somebody_else_took_over_writes_nothing(begin: Begin) -> None:
    """A worker that was slow finds out when it stores; the other gives the one answer."""
    session = await begin(ScriptedChatModel(script=["Yes?", "Yes."]))
    await session.journal.inbox.accept(
        "chat", HumanMessage("Hello?"), ids=session.ids, now=session.now
    )
    slow = await session.claim()
    session.now += 2 * LEASE
    fast = await session.claim()
    await session.processor.process(slow)
    assert await session.history() == ["Hello?"]
    await session.processor.process(fast)
    assert await session.history() == ["Hello?", "Yes."]


async def test_a_tool_that_ends_the_loop_gives_the_answer_itself(begin: Begin) -> None:
    """Its result is what the user reads, and no call is left without an answer."""

    @tool(return_direct=True)
    async def price() -> str:
        """Say the price."""
        return "Nine euros."

    calls = [call("price", "a"), call("price", "b")]
    session = await begin(
        ScriptedChatModel(script=[AIMessage("", tool_calls=calls)]), tools=[price]
    )
    await session.say("How much is it?")
    assert await session.history() == ["How much is it?", "Nine euros."]
    assert (await session.last_batch()).is_complete


async def test_an_id_that_a_provider_uses_again_loses_no_answer(begin: Begin) -> None:
    """Two answers with one id are two answers."""
    script = [AIMessage("First.", id="a"), AIMessage("Second.", id="a")]
    session = await begin(ScriptedChatModel(script=script))
    await session.say("One?")
    await session.say("Two?")
    assert await session.history() == ["One?", "First.", "Two?", "Second."]


async def test_a_question_outlives_its_turn(begin: Begin, journal: Journal) -> None:
    """The turn is over and the batch open; an answer can continue it later."""

    @tool
    async def order() -> str:
        """Order it."""
        return f"ordered: {interrupt('Really?')}"

    model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call("order")]), "Done."])
    session = await begin(model, tools=[order])
    events = await session.say("Order it.")
    assert isinstance(events[-1], Question)
    batch = await session.last_batch()
    assert not batch.is_complete
    [turn] = await journal.turns.list_of("chat")
    assert turn.state is TurnState.DONE
    answered = Run("chat", "guide", "ada", batch, answer="yes")
    said = [
        e.message.text async for e in session.agent.run(answered) if isinstance(e, MessageFinished)
    ]
    assert said == ["ordered: yes", "Done."]


def sum_up(messages: list[BaseMessage]) -> AIMessage:
    if isinstance(messages[-1], ToolMessage):
        return AIMessage(f"It is {messages[-1].text}.")
    return AIMessage("", tool_calls=[call("double", number=2)])


async def test_a_turn_that_is_stopped_anywhere_is_answered_by_the_next_attempt(
    journal: Journal,
) -> None:
    """Wherever it stopped, there is one reply in the end, and the batch is whole."""
    session = await Session.begin(
        journal, MemoryCheckpoints(), ScriptedChatModel(script=sum_up), tools=[double]
    )
    for awaits in range(1, 160, 5):
        await journal.inbox.accept(
            "chat", HumanMessage("Twice two?"), ids=session.ids, now=session.tick()
        )
        working = asyncio.create_task(session.processor.process(await session.claim()))
        for _ in range(awaits):
            await asyncio.sleep(0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        session.now += 2 * LEASE
        if (
            lease := await journal.turns.claim_one("b", now=session.now, lease_for=LEASE)
        ) is not None:
            await session.processor.process(lease)
        batch = await session.last_batch()
        assert batch.is_complete, (awaits, batch.reasons)
        assert (await session.history())[-2:] == ["Twice two?", "It is 4."]


async def test_a_lost_checkpoint_leaves_no_call_open(begin: Begin, journal: Journal) -> None:
    """With half a batch in the journal and nothing else, the next attempt still ends it whole."""
    model = ScriptedChatModel(script=["It is 4."])
    session = await begin(model, tools=[double])
    await journal.inbox.accept("chat", HumanMessage("Sums?"), ids=session.ids, now=session.now)
    half = await session.claim()
    calls = AIMessage("", tool_calls=[call("double", "a", number=1), call("double", "b", number=2)])
    result = ToolMessage("2", tool_call_id="a")
    await journal.messages.append(half, [calls, result], ids=session.ids, now=session.now)
    session.now += 2 * LEASE
    await session.work()
    assert (await session.last_batch()).is_complete
    assert (await session.history())[-1] == "It is 4."


async def test_an_error_of_a_tool_is_never_the_answer(begin: Begin) -> None:
    """When the model says nothing after it, the user reads that, and not what a tool ran into."""

    @tool
    async def database() -> str:
        """Look it up."""
        raise OSError("postgres://admin:hunter2@10.0.0.1")

    model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call("database")]), ""])
    session = await begin(model, tools=[database])
    assert "without an answer" in failure(await session.say("Look!")).reason
    assert "hunter2" not in repr(await session.history())


async def test_a_conflict_in_a_graph_is_an_error_of_the_turn(begin: Begin) -> None:
    """A node's own conflict says nothing about the turn's lease."""

    def full(state: Any) -> dict[str, Any]:  # noqa: ARG001 - a node gets the state
        raise ConflictError("There is no room.")

    class State(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    builder: StateGraph[Any] = StateGraph(State)
    builder.add_node("full", full)
    builder.add_edge(START, "full")
    session = await begin(graph=builder)
    told = failure(await session.say("Remember!"))
    assert told.reason == "The agent's own code failed (BackendError)."
    assert (await session.last_batch()).is_complete


async def test_a_void_follow_up_leaves_no_checkpoint(
    begin: Begin, journal: Journal, checkpoints: Checkpoints
) -> None:
    """What the user made void is nowhere kept."""
    session = await begin(ScriptedChatModel(script=[]))

    async def reply_first(messages: list[BaseMessage]) -> AIMessage:  # noqa: ARG001 - a script
        await journal.inbox.accept("chat", HumanMessage("Hi"), ids=session.ids, now=session.now)
        return AIMessage("Too late.")

    session.agent = (
        await Session.begin(journal, checkpoints, ScriptedChatModel(script=[reply_first]))
    ).agent
    await session.nudge()
    assert await session.history() == ["Hi"]
    assert [kept async for kept in checkpoints.saver().alist(None)] == []


async def test_odd_keys_of_a_message_do_not_fail_a_turn(begin: Begin) -> None:
    """A graph's own keys that look like ours are dropped, not believed."""
    odd = AIMessage("Yes.", additional_kwargs={"batch": "b", "priority": "urgent"})
    session = await begin(ScriptedChatModel(script=[odd]))
    await session.say("Is it open?")
    assert await session.history() == ["Is it open?", "Yes."]


async def test_what_a_tools_own_model_thinks_is_not_streamed(begin: Begin) -> None:
    """Only the agent's own words are pieces of a reply."""
    helper = ScriptedChatModel(script=["inner thoughts"])

    @tool
    async def think() -> str:
        """Think."""
        return (await helper.ainvoke("Think!")).text

    model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call("think")]), "Done."])
    session = await begin(model, tools=[think])
    assert streamed(await session.say("Think!")) == "Done."


async def test_a_batch_that_cannot_be_read_is_not_answered_as_another(
    begin: Begin, tmp_path: Path
) -> None:
    """The user is told, and the model is not asked about an older message instead."""
    model = ScriptedChatModel(script=["Yes.", "Now it works."])
    session = await begin(model)
    await session.say("Is it open?")
    await session.journal.inbox.accept(
        "chat", HumanMessage("Damaged?"), ids=session.ids, now=session.tick()
    )
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as db:
        db.execute("UPDATE messages SET body = '{oops' WHERE text = 'Damaged?'")
    assert "cannot be read" in failure(await session.work()).reason
    await session.say("Again?")
    assert await session.history() == ["Is it open?", "Yes.", "Again?", "Now it works."]


@tool
async def endless() -> str:
    """Return more than any model reads."""
    return "word " * 2_000


TOO_LONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "the message": ("word " * 2_000, {}, "is the message. Shorten it"),
    "a result": ("Read!", {"tools": [endless]}, "is the result of tool 'endless'. Let the tool"),
    "the prompt": ("Hi.", {"system_prompt": "word " * 2_000}, "is the system prompt"),
    "the tools": (
        "Hi.",
        {"tools": [tool("wordy", description="word " * 2_000)(broken_tool)]},
        "is the description of its tools",
    ),
    "its own words": ("Write!", {"tools": [double]}, "is what the agent wrote itself"),
}


@pytest.mark.parametrize("case", TOO_LONG)
async def test_what_is_too_long_is_named(begin: Begin, case: str) -> None:
    """The user is not asked to shorten a message of two words because a tool returned too much."""
    asked, settings, said = TOO_LONG[case]
    first = AIMessage("", tool_calls=[call("endless")])
    if case == "its own words":
        first = AIMessage("word " * 2_000, tool_calls=[call("double", number=1)])
    session = await begin(ScriptedChatModel(script=[first]), context_tokens=2_000, **settings)
    failed = failure(await session.say(asked))
    assert failed.code == "usage"
    assert said in failed.reason


@pytest.mark.parametrize(("steps", "answers"), [(1, False), (2, False), (3, True)])
async def test_steps_are_counted_as_the_config_says(
    begin: Begin, steps: int, answers: bool
) -> None:
    """A call, a tool and the reply are three steps; a plain reply is one."""
    model = ScriptedChatModel(script=sum_up)
    session = await begin(model, tools=[double], limits=Limits(steps=steps))
    events = await session.say("Twice two?")
    assert streamed(events) == ("It is 4." if answers else "")
    assert (await session.history())[-1] == ("It is 4." if answers else "Twice two?")
    if not answers:
        assert f"more than {steps} steps" in failure(events).reason


async def test_one_step_is_enough_for_a_plain_reply(begin: Begin) -> None:
    """The lowest limit that a config takes still lets an agent answer."""
    session = await begin(ScriptedChatModel(script=["Yes."]), limits=Limits(steps=1))
    await session.say("Is it open?")
    assert await session.history() == ["Is it open?", "Yes."]

"""What the requirements demand of the agent beyond the stories told in the other tests."""

import asyncio
import itertools
import logging
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import Context
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict, get_type_hints

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from segue import TRIGGER_PROMPTS, MessageMetadata, TriggerType, synthetic_message, user_message
from segue.agent.build import build_graph
from segue.agent.checkpoints.postgres import PostgresCheckpoints
from segue.agent.checkpoints.store import Checkpoints, MemoryCheckpoints, SqliteCheckpoints
from segue.agent.langgraph_agent import LangGraphAgent
from segue.agent.memory import MemoryBook
from segue.agent.retrieval import MemorySource, RetrieveMemories
from segue.agent.scripted import ScriptedChatModel
from segue.core.memory import QuerySource
from segue.core.metadata import KEYS
from segue.core.snowflake import MAX_ID
from segue.errors import UsageError
from segue.events import MemoriesRecalled
from segue.journal.journal import Journal
from segue.journal.memories import FoundMemory, Memory, MemorySearch, NewMemory
from segue.runtime.run import MessageFinished, Question, Run
from segue.settings.agents import AgentConfig, Autonomy, Limits, MemoryConfig
from segue.settings.schema import Config
from segue.telemetry import FIELDS
from segue.testing.journal_contract.fixtures import ticking_ids
from segue.testing.providers import request_problems
from tests.agent.meanings import IDS, NOW, Meanings, book_of
from tests.agent.session import THREAD, Session, failure, kinds, streamed
from tests.providers.clients import PROVIDERS, Provider
from tests.providers.recorder import REPLY, Recorder

pytestmark = pytest.mark.anyio

PROJECT = "The report for the Berlin project is due in May."
TRAVEL = ("Spent the last vacation alone.", "Has a friend in Lisbon.")
SERVER = "The server sends a check when a job is incomplete."


class Listening:
    """A memory search that notes what it is asked and what it finds."""

    def __init__(self, memories: MemorySource) -> None:
        self._memories = memories
        self.asked: list[tuple[str, str, str]] = []
        self.found: list[list[FoundMemory]] = []

    async def search(self, agent_id: str, user_id: str, text: str) -> list[FoundMemory]:
        self.asked.append((agent_id, user_id, text))
        self.found.append(await self._memories.search(agent_id, user_id, text))
        return self.found[-1]


def topics() -> Meanings:
    return Meanings(
        alone="solitude",
        project="work",
        vacation="travel",
        Lisbon="travel",
        check="infrastructure",
        incomplete="infrastructure",
    )


async def knowing(journal: Journal, *facts: str) -> MemoryBook:
    book = book_of(journal, topics())
    for fact in facts:
        await book.remember("guide", "ada", fact)
    return book


def told(request: list[BaseMessage]) -> list[str]:
    """What the system message says about the user."""
    [system] = [m for m in request if isinstance(m, SystemMessage)]
    _, _, rest = system.text.partition("What you remember about the user:")
    memories = rest.partition("\n\nNow: ")[0]
    return [line.removeprefix("- ") for line in memories.strip().splitlines()]


def call(name: str, id: str = "call_1", /, **args: Any) -> ToolCall:
    return ToolCall(name=name, args=args, id=id, type="tool_call")


@tool
async def double(number: int) -> str:
    """Double a number."""
    return str(2 * number)


def results(messages: list[BaseMessage]) -> list[ToolMessage]:
    return [m for m in messages if isinstance(m, ToolMessage)]


# Memories


@pytest.mark.parametrize("trigger", TriggerType)
async def test_a_follow_up_finds_the_talk_and_not_the_words_of_its_prompt(
    journal: Journal, checkpoints: Checkpoints, trigger: TriggerType
) -> None:
    """Whatever fires, the project is found, and no memory that has the prompt's own words."""
    prompts = [f"Once said: {prompt}" for prompt in TRIGGER_PROMPTS.values()]
    source = Listening(await knowing(journal, PROJECT, *prompts))
    model = ScriptedChatModel(script=["Oh.", "How is it going?"])
    session = await Session.begin(journal, checkpoints, model, memories=source)
    await session.say("My work project is late.")
    events = await session.nudge(trigger)
    assert told(model.seen[-1]) == [PROJECT]
    assert source.asked == [("guide", "ada", "My work project is late.")] * 2
    [recalled] = [event for event in events if isinstance(event, MemoriesRecalled)]
    assert recalled.source is QuerySource.LAST_REAL_USER_MESSAGE


async def test_a_vacation_question_brings_travel_and_nothing_else(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """With room for more, two minutes later only the travel memories come to mind."""
    book = await knowing(journal, PROJECT, SERVER, *TRAVEL)
    model = ScriptedChatModel(script=["Sure.", "Still thinking of it?"])
    session = await Session.begin(journal, checkpoints, model, memories=book)
    await session.say("Can you help me with my vacation?")
    session.now += timedelta(minutes=2)
    await session.nudge("check_in")
    assert sorted(told(model.seen[-1])) == sorted(TRAVEL)


@pytest.mark.parametrize("summary", [None, "", " \n"])
async def test_without_words_of_the_user_nothing_is_searched_or_told(
    journal: Journal,
    checkpoints: Checkpoints,
    summary: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A lone trigger with no or an empty summary is one ERROR with its numbers, and a reply."""
    source = Listening(await knowing(journal, PROJECT, *TRAVEL))
    model = ScriptedChatModel(script=["Hello there!"])
    session = await Session.begin(journal, checkpoints, model, memories=source)
    run = Run.of(synthetic_message("check_in"), session.ids, agent_id="guide", thread_id=THREAD)
    events = [event async for event in session.agent.run(replace(run, summary=summary))]
    assert streamed(events) == "Hello there!"
    assert source.asked == []
    assert told(model.seen[-1]) == []
    [error] = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert "with 1 messages" in error.getMessage()
    fields = getattr(error, FIELDS)
    assert (fields["thread_id"], fields["count"]) == (THREAD, 1)


async def test_a_follow_up_scores_memories_as_the_users_own_turn_does(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """The same memories come with exactly the same scores."""
    source = Listening(await knowing(journal, PROJECT, SERVER, *TRAVEL))
    model = ScriptedChatModel(script=["Yes."] * 5)
    session = await Session.begin(journal, checkpoints, model, memories=source)
    await session.say("Does the report on my project fit my vacation in Lisbon?")
    for trigger in TriggerType:
        await session.nudge(trigger)
    scores = [[(f.memory.key, f.score) for f in found] for found in source.found]
    assert len(scores[0]) >= 3
    assert scores == [scores[0]] * 5


class Memories:
    """A journal that notes how its memories are searched."""

    def __init__(self) -> None:
        self.memories = self
        self.queries: list[MemorySearch] = []

    async def search(self, query: MemorySearch) -> list[FoundMemory]:
        self.queries.append(query)
        return []


async def test_a_dinner_question_is_searched_as_the_config_says(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """The search gets the namespace, the user's words, and every option of the config."""
    config = MemoryConfig(limit=3, threshold=0.4, text_weight=0.7)
    memories: Any = Memories()
    book = MemoryBook(memories, Meanings(), ids=IDS, clock=lambda: NOW, config=config)
    session = await Session.begin(
        journal, checkpoints, ScriptedChatModel(script=["Soup."]), memories=book, memory=config
    )
    await session.say("What should I eat for dinner?")
    [query] = memories.queries
    assert (query.agent_id, query.user_id) == ("guide", "ada")
    assert query.text == "What should I eat for dinner?"
    assert query.embedding is not None
    assert (query.limit, query.threshold, query.text_weight) == (3, 0.4, 0.7)


def found(content: str, score: float) -> FoundMemory:
    memory = Memory(1, "guide", "ada", content[:1], content, {}, None, NOW, NOW)
    return FoundMemory(memory, score, score, None)


class Fixed:
    """A memory search that always finds the same."""

    def __init__(self, *finds: FoundMemory) -> None:
        self._finds = list(finds)

    async def search(self, agent_id: str, user_id: str, text: str) -> list[FoundMemory]:
        del agent_id, user_id, text
        return self._finds


async def test_of_two_long_memories_the_better_one_is_told(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A budget of 1000 has room for one of two memories of 3000 characters."""
    source = Fixed(found("a" * 3_000, 0.95), found("b" * 3_000, 0.85))
    model = ScriptedChatModel(script=["Sure."])
    session = await Session.begin(
        journal, checkpoints, model, memories=source, memory=MemoryConfig(max_tokens=1_000)
    )
    await session.say("Do you remember?")
    assert told(model.seen[-1]) == ["a" * 3_000]


@pytest.mark.parametrize("whose", [None, lambda _: None])
async def test_where_it_is_not_known_whose_nothing_is_searched(
    journal: Journal, whose: Callable[[Any], None] | None
) -> None:
    """Without a user and an agent there is a reply without memories."""
    source = Listening(await knowing(journal, PROJECT))
    model = ScriptedChatModel(script=["Fine."])
    agent: Any = create_agent(model, middleware=[RetrieveMemories(source, whose=whose)])
    reply = await agent.ainvoke({"messages": [HumanMessage("How is the project?")]})
    assert reply["messages"][-1].text == "Fine."
    assert source.asked == []
    assert kinds(model.seen[-1]) == ["human"]


async def test_a_failed_turn_leaves_none_of_its_memories_behind(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """What was told in a turn that failed is in no store and in no later request."""
    book = await knowing(journal, PROJECT, *TRAVEL)
    model = ScriptedChatModel(script=[ValueError("away"), "Sure."])
    session = await Session.begin(journal, checkpoints, model, memories=book)
    failure(await session.say("My project!"))
    assert told(model.seen[0]) == [PROJECT]
    await session.say("My vacation!")
    assert sorted(told(model.seen[1])) == sorted(TRAVEL)
    assert PROJECT not in repr(model.seen[1])
    assert PROJECT not in repr(await session.batches())
    assert [kept async for kept in checkpoints.saver().alist(None)] == []


class WaitingForBob:
    """A memory search that lets everybody wait until Bob was answered."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.over = asyncio.Event()

    async def search(self, agent_id: str, user_id: str, text: str) -> list[FoundMemory]:
        del agent_id, text
        if user_id != "bob":
            self.begun.set()
            await self.over.wait()
        return [found(f"Is called {user_id}.", 1.0)]


async def test_a_search_that_waits_holds_up_nobody_else(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """While one run looks for its memories, another gets its own and is answered."""
    model = ScriptedChatModel(script=["Hello, Bob.", "Hello."])
    source = WaitingForBob()
    patient = MemoryConfig(time_limit=timedelta(minutes=5))
    session = await Session.begin(journal, checkpoints, model, memories=source, memory=patient)

    async def ask(user_id: str) -> str:
        run = Run.of("Hi!", session.ids, agent_id="guide", user_id=user_id)
        return streamed([event async for event in session.agent.run(run)])

    waiting = asyncio.create_task(ask("ada"))
    await source.begun.wait()
    assert await ask("bob") == "Hello, Bob."
    source.over.set()
    assert await waiting == "Hello."
    assert [told(request) for request in model.seen] == [["Is called bob."], ["Is called ada."]]


async def test_a_thousand_memories_are_searched_in_time(journal: Journal) -> None:
    """At the 95th percentile a search takes less than two seconds."""
    embedder = topics()
    for n in range(1_000):
        fact = f"Fact {n}: saw {n % 97} birds on the way to town {n % 89}."
        vector = [float(place == n % 128) for place in range(128)]
        new = NewMemory("guide", "ada", f"{n}", fact, {}, vector, embedder.name)
        await journal.memories.put(new, ids=IDS, now=NOW)
    book = book_of(journal, embedder)
    seconds = []
    for n in range(40):
        begun = time.perf_counter()
        assert await book.search("guide", "ada", f"How many birds near town {n}?")
        seconds.append(time.perf_counter() - begun)
    assert statistics.quantiles(seconds, n=20)[-1] < 2


# Messages in and out of the graph


def test_an_agent_takes_a_text_or_a_message() -> None:
    """The type of what is asked says so."""
    assert get_type_hints(Run.of)["message"] == str | HumanMessage


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


RICH = MessageMetadata(
    synthetic=True,
    trigger_type=TriggerType.CHECK_IN,
    trigger_reason="30 s of silence: ünïcode",
    source_agent_id="planner",
    tool_triggered=True,
    retry_count=2,
    priority="high",
    parent_batch=MAX_ID,
).onto(
    HumanMessage(
        [
            {"type": "text", "text": "Grüße, 世界 😀"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        ],
        id="m-1",
        additional_kwargs={"foreign": {"nested": [1, 2.5, None, True]}},
    )
)
ASKED = [RICH, HumanMessage("Is it open?"), *map(synthetic_message, TriggerType)]


@pytest.mark.parametrize("asked", [*ASKED, "Is it open?"])
async def test_a_message_enters_the_graph_as_it_was_given(
    journal: Journal, checkpoints: Checkpoints, asked: HumanMessage | str
) -> None:
    """Each node sees the message itself, with nothing added but its place in the batch."""
    seen: list[BaseMessage] = []

    def look(state: State) -> dict[str, Any]:
        seen.append(state["messages"][0])
        return {}

    def speak(state: State) -> dict[str, Any]:
        seen.append(state["messages"][0])
        return {"messages": [AIMessage("Yes.")]}

    builder: StateGraph[Any] = StateGraph(State)
    builder.add_node("look", look)
    builder.add_node("speak", speak)
    builder.add_edge(START, "look")
    builder.add_edge("look", "speak")
    session = await Session.begin(journal, checkpoints, graph=builder)
    run = Run.of(asked, session.ids, agent_id="guide")
    said = [e.message async for e in session.agent.run(run) if isinstance(e, MessageFinished)]
    assert [m.text for m in said] == ["Yes."]
    assert seen == [run.batch.messages[0]] * 2
    given = HumanMessage(asked) if isinstance(asked, str) else asked
    place = {"position", "batch", "sequence_num", "batch_type"}
    for message in seen:
        assert type(message) is HumanMessage
        assert message.content == given.content
        assert message.id == given.id or given.id is None
        kwargs = message.additional_kwargs
        assert {k: v for k, v in kwargs.items() if k not in place} == given.additional_kwargs
        assert place <= kwargs.keys()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def any_checkpoints(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Checkpoints]:
    made: Checkpoints
    if request.param == "memory":
        made = MemoryCheckpoints()
    elif request.param == "sqlite":
        made = SqliteCheckpoints(tmp_path / "any.db")
    else:
        made = PostgresCheckpoints(request.getfixturevalue("server").create_database())
    await made.open()
    yield made
    await made.close()


@tool
async def order(what: str) -> str:
    """Order something."""
    return f"{what}: {interrupt('Really?')}"


async def test_the_checkpoint_of_a_running_turn_keeps_all_metadata(
    any_checkpoints: Checkpoints,
) -> None:
    """What the saver gives back of a run that waits is, field by field, what went in."""
    ids = ticking_ids()
    for asked in ASKED:
        model = ScriptedChatModel(
            script=[AIMessage("", tool_calls=[call("order", what="pizza")]), "On its way."]
        )
        config = AgentConfig(id="guide")
        agent = LangGraphAgent(
            config, build_graph(config, model=model, tools=[order]), any_checkpoints
        )
        run = Run.of(asked, ids, agent_id="guide")
        assert [type(event) async for event in agent.run(run)][-1] is Question
        stored = await any_checkpoints.saver().aget_tuple(
            {"configurable": {"thread_id": str(run.batch.id), "checkpoint_ns": ""}}
        )
        assert stored is not None
        messages = stored.checkpoint["channel_values"]["messages"]
        assert kinds(messages) == ["human", "ai"]
        assert type(messages[0]) is HumanMessage
        assert messages[0] == run.batch.messages[0]
        going_on = replace(run, answer="yes", is_new=False)
        assert streamed([event async for event in agent.run(going_on)]) == "On its way."
        assert not [m for seen in model.seen for m in seen if KEYS & m.additional_kwargs.keys()]


async def test_checkpoints_are_written_by_langgraph_alone(any_checkpoints: Checkpoints) -> None:
    """Savers and their serialisation are LangGraph's own; ours is only what may come to life."""
    saver = any_checkpoints.saver()
    assert type(saver).__module__.startswith("langgraph.checkpoint.")
    assert type(saver.serde).dumps_typed is JsonPlusSerializer.dumps_typed


async def test_what_a_tool_says_to_the_model_is_tagged(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A message that a tool adds in the user's name is synthetic, named as a tool's, and hidden."""

    @tool
    async def hint(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Give a hint."""
        words = [ToolMessage("Done.", tool_call_id=tool_call_id), HumanMessage("Be brief.")]
        return Command(update={"messages": words})

    model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call("hint")]), "Yes."])
    session = await Session.begin(journal, checkpoints, model, tools=[hint])
    await session.say("Is it open?")
    batch = await session.last_batch()
    assert kinds(batch.messages) == ["human", "ai", "tool", "human", "ai"]
    assert [MessageMetadata.of(m).tool_triggered for m in batch.messages] == [
        *[False] * 3,
        True,
        False,
    ]
    assert MessageMetadata.of(batch.messages[3]).synthetic
    assert await session.history() == ["Is it open?", "Yes."]
    assert model.seen[-1][-1].text == "Be brief."
    assert request_problems(model.seen[-1]) == []


# Tools


@pytest.mark.parametrize("finish", list(itertools.permutations("abc")))
async def test_tools_that_finish_in_any_order_give_valid_requests(
    journal: Journal, checkpoints: Checkpoints, finish: tuple[str, ...]
) -> None:
    """Whichever tool is last, this request and the next turn's keep the order of the calls."""
    done = {name: asyncio.Event() for name in finish}

    def waiting_tool(name: str) -> BaseTool:
        before = finish[: finish.index(name)]

        async def work() -> str:
            for other in before:
                await done[other].wait()
            return name.upper()

        return tool(name, description=f"Do {name}.")(work)

    model = ScriptedChatModel(
        script=[AIMessage("", tool_calls=[call(n, n) for n in "abc"]), "All done.", "Bye."]
    )
    session = await Session.begin(
        journal, checkpoints, model, tools=[waiting_tool(n) for n in "abc"]
    )

    def notice(message: BaseMessage) -> None:
        if isinstance(message, ToolMessage):
            done[message.tool_call_id].set()

    session.notice = notice
    await session.say("Go!")
    batch = await session.last_batch()
    assert [m.tool_call_id for m in results(batch.messages)] == list(finish)
    assert batch.is_complete
    await session.say("Thanks.")
    for request in model.seen:
        assert request_problems(request) == []
    for request in model.seen[1:]:
        assert [m.text for m in results(request)] == ["A", "B", "C"]


async def test_a_model_that_repeats_call_ids_is_followed_to_the_end(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """An id used twice in a message, a turn and a thread: every call gets its own result."""
    model = ScriptedChatModel(
        script=[
            AIMessage(
                "", tool_calls=[call("double", "c", number=1), call("double", "c", number=2)]
            ),
            AIMessage("", tool_calls=[call("double", "c", number=3)]),
            "Done.",
            AIMessage("", tool_calls=[call("double", "c", number=4)]),
            "Done again.",
        ]
    )
    session = await Session.begin(journal, checkpoints, model, tools=[double])
    await session.say("Go!")
    await session.say("Go on!")
    assert await session.history() == ["Go!", "Done.", "Go on!", "Done again."]
    assert all(batch.is_complete for batch in await session.batches())
    assert [request_problems(request) for request in model.seen] == [[]] * 5
    assert [m.text for m in results(model.seen[-1])] == ["2", "4", "6", "8"]


async def test_calls_in_content_blocks_are_run_and_stored(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """A call that stands among blocks, as a client gives it, runs once and has its place."""
    blocks: list[str | dict[str, Any]] = [
        {"type": "text", "text": "I count."},
        {"type": "tool_use", "id": "toolu_1", "name": "double", "input": {"number": 2}},
    ]
    calls = [call("double", "toolu_1", number=2)]
    reply: list[str | dict[str, Any]] = [{"type": "text", "text": "Four."}]
    model = ScriptedChatModel(script=[AIMessage(blocks, tool_calls=calls), AIMessage(reply)])
    session = await Session.begin(journal, checkpoints, model, tools=[double])
    await session.say("Twice two?")
    batch = await session.last_batch()
    assert batch.is_complete
    assert kinds(batch.messages) == ["human", "ai", "tool", "ai"]
    assert [m.text for m in results(batch.messages)] == ["4"]
    assert [MessageMetadata.of(m).sequence_num for m in batch.messages] == [0, 1, 2, 3]
    assert all(MessageMetadata.of(m).batch == batch.id for m in batch.messages)
    assert await session.history() == ["Twice two?", "I count.", "Four."]


async def test_text_and_calls_of_one_reply_are_both_stored(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """What the model says while it calls is kept with the call."""
    model = ScriptedChatModel(
        script=[AIMessage("Let me see.", tool_calls=[call("double", number=21)]), "It is 42."]
    )
    session = await Session.begin(journal, checkpoints, model, tools=[double])
    await session.say("What is twice 21?")
    calling = (await session.last_batch()).messages[1]
    assert isinstance(calling, AIMessage)
    assert calling.text == "Let me see."
    assert calling.tool_calls == [call("double", number=21)]


async def test_a_tool_that_ends_the_loop_leaves_no_call_open(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """The tools called beside it are answered too, and the next request is valid."""

    @tool(return_direct=True)
    async def price() -> str:
        """Say the price."""
        return "Nine euros."

    calls = [call("price", "a"), call("double", "b", number=2)]
    model = ScriptedChatModel(
        script=lambda seen: AIMessage("", tool_calls=calls) if len(seen) < 3 else "Yes."
    )
    session = await Session.begin(journal, checkpoints, model, tools=[price, double])
    await session.say("How much is it?")
    batch = await session.last_batch()
    assert batch.is_complete
    assert sorted(m.tool_call_id for m in results(batch.messages)) == ["a", "b"]
    await session.say("Is it?")
    assert [request_problems(request) for request in model.seen] == [[]] * len(model.seen)


# Providers

ANTHROPICS: list[str | dict[str, Any]] = [
    {"type": "thinking", "thinking": "Twice two.", "signature": "c2ln"},
    {"type": "text", "text": "I count."},
    {"type": "tool_use", "id": "call_1", "name": "double", "input": {"number": 2}},
]
OPENAIS: list[str | dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "text", "text": "I count.", "id": "msg_1"},
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "double",
        "arguments": '{"number": 2}',
    },
]
SIGNED = {"__gemini_function_call_thought_signatures__": {"call_1": "c2ln"}}
CALLS = [call("double", number=2)]
FORMER = {
    "anthropic": AIMessage(ANTHROPICS, tool_calls=CALLS),
    "openai": AIMessage(OPENAIS, tool_calls=CALLS),
    "google": AIMessage("I count.", tool_calls=CALLS, additional_kwargs=SIGNED),
}


Asking = Callable[[list[BaseMessage]], AIMessage]


@pytest.fixture(scope="module", params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Provider:
    return PROVIDERS[request.param]


@pytest.fixture(scope="module")
def ask(provider: Provider, recorder: Recorder) -> Iterator[Asking]:
    """A line of a script that is said by a provider's real client."""
    with provider.connect(recorder.url) as model:
        # In a context of its own: inside of a graph a client would stream.
        yield lambda messages: Context().run(model.invoke, messages)


@pytest.mark.parametrize("former", FORMER)
async def test_a_thread_goes_on_with_another_provider(
    journal: Journal,
    checkpoints: Checkpoints,
    provider: Provider,
    recorder: Recorder,
    ask: Asking,
    former: str,
) -> None:
    """What one provider wrote, thoughts and calls included, is a valid request for every other."""
    first = ScriptedChatModel(script=[FORMER[former], "It is four."])
    session = await Session.begin(journal, checkpoints, first, tools=[double])
    await session.say("Twice two?")
    config = AgentConfig(id="guide")
    graph = build_graph(config, model=ScriptedChatModel(script=ask), tools=[double])
    session.agent = LangGraphAgent(config, graph, checkpoints)
    recorder.take()
    await session.say("Thanks.")
    [request] = recorder.take()
    assert provider.problems(request.body) == []
    assert b"It is four." in request.raw
    assert await session.history() == ["Twice two?", "I count.", "It is four.", "Thanks.", REPLY]


async def test_an_empty_result_reaches_the_provider(
    journal: Journal,
    checkpoints: Checkpoints,
    provider: Provider,
    recorder: Recorder,
    ask: Asking,
) -> None:
    """A tool that has nothing to say has answered all the same."""

    @tool
    async def quiet() -> str:
        """Say nothing."""
        return ""

    model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call("quiet")]), ask])
    session = await Session.begin(journal, checkpoints, model, tools=[quiet])
    recorder.take()
    await session.say("Hush!")
    [request] = recorder.take()
    # A call without a result is one of these problems.
    assert provider.problems(request.body) == []
    assert b'"quiet"' in request.raw
    assert [m.text for m in results(model.seen[-1])] == [""]
    assert await session.history() == ["Hush!", REPLY]


async def test_no_cache_marker_of_a_client_is_sent(
    journal: Journal,
    checkpoints: Checkpoints,
    recorder: Recorder,
    ask: Asking,
) -> None:
    """Markers are limited and cost money: Segue sets none, and those of a client are dropped."""
    marker = {"cache_control": {"type": "ephemeral"}}
    texts: list[Any] = [{"type": "text", "text": f"Part {n}.", **marker} for n in range(6)]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    book = await knowing(journal, PROJECT)
    session = await Session.begin(
        journal, checkpoints, ScriptedChatModel(script=ask), memories=book, tools=[double]
    )
    sent = user_message([*texts, {**image, **marker}])
    await journal.inbox.accept(THREAD, sent, ids=session.ids, now=session.tick())
    recorder.take()
    await session.work()
    await session.nudge()
    requests = recorder.take()
    assert len(requests) == 2
    assert not [r for r in requests if b"cache_control" in r.raw or b"ephemeral" in r.raw]


async def test_no_cache_marker_of_a_tool_is_sent(
    journal: Journal,
    checkpoints: Checkpoints,
    provider: Provider,
    recorder: Recorder,
    ask: Asking,
) -> None:
    """Nor are those that stand in a result or in what a model said, however many there are."""
    marker = {"cache_control": {"type": "ephemeral"}}

    @tool
    async def pages() -> list[dict[str, Any]]:
        """Read six pages."""
        return [{"type": "text", "text": f"Page {n}.", **marker} for n in range(6)]

    words: list[Any] = [{"type": "text", "text": "I look.", **marker}]
    model = ScriptedChatModel(script=[AIMessage(words, tool_calls=[call("pages")]), ask, ask])
    session = await Session.begin(journal, checkpoints, model, tools=[pages])
    recorder.take()
    await session.say("Read!")
    await session.nudge()
    requests = recorder.take()
    assert len(requests) == 2
    for request in requests:
        assert provider.problems(request.body) == []
        assert b"Page 5." in request.raw
        assert b"I look." in request.raw
        assert b"cache_control" not in request.raw
        assert b"ephemeral" not in request.raw


# Settings

SHARE = ((0, 1), (-0.01, 1.01))
COUNT = ((1, 2), (0, -1))
SPAN = ((0.001, 3_600), (0, -1))
BOUNDS: dict[str, tuple[type[Config], tuple[Any, ...], tuple[Any, ...]]] = {
    "memory.limit": (MemoryConfig, *COUNT),
    "memory.max_tokens": (MemoryConfig, *COUNT),
    "memory.threshold": (MemoryConfig, *SHARE),
    "memory.text_weight": (MemoryConfig, *SHARE),
    "memory.time_limit": (MemoryConfig, *SPAN),
    "memory.duplicate_at": (MemoryConfig, *SHARE),
    "memory.capacity": (MemoryConfig, *COUNT),
    "limits.steps": (Limits, *COUNT),
    "limits.state_bytes": (Limits, *COUNT),
    "limits.model_time": (Limits, *SPAN),
    "limits.tool_time": (Limits, *SPAN),
    "autonomy.holdout": (Autonomy, *SHARE),
    "autonomy.expires_after": (Autonomy, *SPAN),
    "agent.id": (AgentConfig, ("a", "a" * 200, "ünï 1"), ("", "a" * 201, " ", "a ", "a\0b", "a\n")),
    "agent.context_tokens": (AgentConfig, *COUNT),
    "agent.continuations": (AgentConfig, (0, 1), (-1,)),
}


@pytest.mark.parametrize("setting", BOUNDS)
def test_a_setting_is_taken_within_its_bounds_and_refused_outside(setting: str) -> None:
    """The least and the greatest value pass; one step beyond is refused with the setting's name."""
    kind, inside, outside = BOUNDS[setting]
    whole, _, name = setting.partition(".")
    others = {"id": "guide"} if kind is AgentConfig else {}
    for value in inside:
        kind.parse(others | {name: value}, whole)
    for value in outside:
        with pytest.raises(UsageError, match=setting):
            kind.parse(others | {name: value}, whole)


@pytest.mark.parametrize(
    ("kind", "whole"),
    [
        (MemoryConfig, "memory"),
        (Limits, "limits"),
        (Autonomy, "autonomy"),
        (AgentConfig, "agent"),
    ],
)
def test_no_bounded_setting_is_untested(kind: type[Config], whole: str) -> None:
    """Every number and every span of a config is in the list above."""
    hints = get_type_hints(kind)
    numbers = [int, float, timedelta, float | None, int | None, timedelta | None]
    bounded = {name for name, hint in hints.items() if hint in numbers}
    assert bounded
    assert {f"{whole}.{name}" for name in bounded} - BOUNDS.keys() == set()

"""The local model: what it is asked, and with its real weights, what comes back."""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from pydantic import BaseModel

from segue.agent import local
from segue.agent.local import CONTEXT_TOKENS, ENGINE, EngineEvent, Generation, LocalChatModel
from segue.core.autonomy.local_time import LocalClock
from segue.core.context import with_last_part
from segue.core.messages import synthetic_message
from segue.core.speech.guard import find_machinery
from segue.core.triggers import TriggerType
from segue.errors import UsageError

pytestmark = pytest.mark.anyio

PIZZA: list[BaseMessage] = [
    SystemMessage("You are a friendly companion. Answer naturally, in one or two short sentences."),
    HumanMessage("I'm planning a pizza night with three friends on Friday."),
    AIMessage("That sounds like fun! What do your friends like on their pizza?"),
    HumanMessage("Two like mushrooms, and Sam wants pepperoni."),
    AIMessage("Then half mushrooms, half pepperoni could make everybody happy."),
]
CLOCK = LocalClock(
    datetime(2026, 11, 23, 8, 5, tzinfo=UTC),
    "Europe/Berlin",
    may_write_first=True,
    silent_for=timedelta(hours=2, minutes=5),
)
STORY: list[BaseMessage] = [HumanMessage("Tell me a very long story about a dragon.")]


@pytest.fixture(scope="module", autouse=True)
def _give_the_memory_back() -> Iterator[None]:
    yield
    ENGINE.close()


@tool
def remember(fact: str) -> str:
    """Keep a fact."""
    return fact


def request_of(*messages: BaseMessage, **settings: Any) -> dict[str, Any]:
    return LocalChatModel(**settings)._request(list(messages), None, {})


def whole(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    return reduce(add, chunks)


async def test_only_text_is_told() -> None:
    """Tool traffic, pictures and empty messages are nothing to a model that knows only words."""
    calling = AIMessage("", tool_calls=[{"name": "remember", "args": {}, "id": "c"}])
    picture = {"type": "image", "url": "https://example.org/a.png"}
    told = request_of(
        SystemMessage("Be kind."),
        HumanMessage([{"type": "text", "text": "Look:"}, picture]),
        calling,
        ToolMessage("done", tool_call_id="c"),
        AIMessage("Nice."),
    )["messages"]
    assert told == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Look:"},
        {"role": "assistant", "content": "Nice."},
    ]


async def test_no_metadata_is_told() -> None:
    """What the model gets of a trigger is its words."""
    told = request_of(synthetic_message("check_in", reason="30 s of silence"))["messages"]
    assert told == [{"role": "user", "content": "Continue our conversation naturally."}]


async def test_settings_reach_the_engine() -> None:
    """What is set for all replies, or bound for one, is what the engine is asked for."""
    model = LocalChatModel(max_tokens=7, temperature=0, seed=3)
    assert model._request(STORY, ["END"], {"max_tokens": 9}) | {"messages": []} == {
        "messages": [],
        "stop": ["END"],
        "max_tokens": 9,
        "temperature": 0,
        "seed": 3,
        "repeat_penalty": 1.1,
        "top_p": 0.9,
    }
    assert "seed" not in LocalChatModel()._request(STORY, None, {})


async def test_tools_are_taken_and_not_called(caplog: pytest.LogCaptureFixture) -> None:
    """Agents bind tools at every call; that they are ignored is said once."""
    local._log_that_tools_are_ignored.cache_clear()
    model = LocalChatModel()
    with caplog.at_level(logging.INFO):
        assert model.bind_tools([remember]) is model
        assert model.bind_tools([remember], tool_choice="auto") is model
    assert [record.getMessage() for record in caplog.records] == [
        "The local model is a tiny model for trying out; it does not call tools."
    ]


async def test_a_call_that_is_demanded_is_refused() -> None:
    """A caller that needs structured output gets an error that says that this model has none."""

    class Plan(BaseModel):
        later: bool

    with pytest.raises(UsageError, match="does not call tools"):
        LocalChatModel().with_structured_output(Plan)


@pytest.mark.local
@pytest.mark.parametrize("trigger", TriggerType)
async def test_a_follow_up_sounds_natural(trigger: TriggerType) -> None:
    """After a talk about pizza each trigger is answered in a stream of words without a leak, with
    the clock that an agent's requests have.
    """
    model = LocalChatModel(temperature=0, max_tokens=40)
    request = [*with_last_part(PIZZA, CLOCK.text), synthetic_message(trigger)]
    chunks = [chunk async for chunk in model.astream(request)]
    reply = whole(chunks)
    assert len([chunk for chunk in chunks if chunk.text]) > 3
    assert reply.text.strip()
    assert find_machinery(reply.text) is None


@pytest.mark.local
async def test_a_reply_counts_its_tokens_and_says_why_it_ended() -> None:
    """Usage, reason and position are those that providers give."""
    chunks = [chunk async for chunk in LocalChatModel(max_tokens=5).astream(PIZZA[:2])]
    reply, usage = whole(chunks), whole(chunks).usage_metadata
    assert usage is not None
    assert usage["output_tokens"] == 5
    assert usage["input_tokens"] > 20
    assert usage["total_tokens"] == usage["input_tokens"] + 5
    assert reply.response_metadata["finish_reason"] == "length"
    assert [chunk.chunk_position for chunk in chunks][-1] == "last"
    assert {chunk.id for chunk in chunks} == {reply.id}


@pytest.mark.local
async def test_it_stops_at_the_end_of_its_turn() -> None:
    """A short answer ends by itself, and no mark of the template is left in it."""
    model = LocalChatModel(temperature=0, max_tokens=200)
    reply = await model.ainvoke([*PIZZA[:1], HumanMessage("Say hello.")])
    assert reply.response_metadata["finish_reason"] == "stop"
    assert "<|" not in reply.text


@pytest.mark.local
async def test_a_seed_makes_a_reply_repeatable() -> None:
    """The same prompt, settings and seed give the same words, streamed or not."""
    model = LocalChatModel(temperature=0.9, seed=7, max_tokens=12)
    replies = [await model.ainvoke(PIZZA[:2]) for _ in range(2)]
    streamed = whole([chunk async for chunk in model.astream(PIZZA[:2])])
    in_a_thread = await asyncio.to_thread(model.invoke, PIZZA[:2])
    assert len({m.text for m in (*replies, streamed, in_a_thread)}) == 1


@pytest.mark.local
async def test_a_prompt_that_is_too_long_is_refused_with_both_numbers() -> None:
    """A full window is a clear error, found before anything is read."""
    with pytest.raises(UsageError, match=rf"tokens and the local model reads {CONTEXT_TOKENS}"):
        await LocalChatModel().ainvoke("word " * 9_000)


@pytest.mark.local
async def test_cancelling_a_reply_stops_the_engine() -> None:
    """A reply that was cancelled makes at most a few words more."""
    begun = asyncio.Event()

    async def listen() -> None:
        async for chunk in LocalChatModel(max_tokens=2_000).astream(STORY):
            if chunk.text:
                begun.set()

    task = asyncio.create_task(listen())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await assert_engine_is_free()


@pytest.mark.local
async def test_walking_away_from_a_stream_stops_the_engine() -> None:
    """A generator that is closed early stops as a cancelled task does."""
    stream: Any = LocalChatModel(max_tokens=2_000).astream(STORY)
    async with aclosing(stream) as pieces:
        async for _ in pieces:
            break
    await assert_engine_is_free()


@pytest.mark.local
async def test_a_long_prompt_can_be_cancelled_while_it_is_read() -> None:
    """Reading thousands of tokens takes long; a cancelled request does not hold up the next."""
    told: list[EngineEvent] = []
    generation = ENGINE.submit(request_of(HumanMessage("a word " * 3_000)), told.append)
    await asyncio.to_thread(wait_until_taken)
    ENGINE.cancel(generation)
    await assert_engine_is_free()
    assert told == []


def wait_until_taken() -> None:
    while ENGINE._queue:
        time.sleep(0.001)


async def assert_engine_is_free() -> None:
    """The next reply gets its turn, and hardly a token was made for the one that is gone."""
    made: list[EngineEvent] = []
    tell = local._notify

    def counted(generation: Generation, outcome: EngineEvent) -> None:
        made.append(outcome)
        tell(generation, outcome)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_notify", counted)
        assert (await LocalChatModel(max_tokens=3).ainvoke("Hi")).text
    # Three of its own, and whatever was on its way when the other one was cancelled.
    assert (
        sum(isinstance(outcome, AIMessageChunk) and bool(outcome.text) for outcome in made) <= 3 + 2
    )


@pytest.mark.local
async def test_replies_wait_for_each_other_in_order() -> None:
    """Several conversations share the model: each gets a whole reply, first come first served."""
    order: list[int] = []

    async def ask(number: int) -> None:
        async for _ in LocalChatModel(max_tokens=4).astream(f"Count to {number}"):
            order.append(number)  # noqa: PERF401  # in the order of arrival, not of asking

    await asyncio.gather(*(ask(number) for number in range(4)))
    assert order == sorted(order)
    assert set(order) == set(range(4))


@pytest.mark.local
async def test_an_agent_with_tools_streams_through_it() -> None:
    """A LangGraph agent on the local model streams words whose ids are their message's."""
    agent: Any = create_agent(LocalChatModel(max_tokens=8), [remember])
    chunks: list[AIMessageChunk] = []
    messages: list[BaseMessage] = []
    async for mode, data in agent.astream(
        {"messages": PIZZA[1:2]}, stream_mode=["messages", "updates"]
    ):
        if mode == "messages":
            chunks.append(data[0])
        else:
            messages += data["model"]["messages"]
    (reply,) = messages
    assert len(chunks) > 3
    assert {chunk.id for chunk in chunks} == {reply.id}
    assert whole(chunks).content == reply.content


PROGRAM = """
import asyncio, sys
from segue.agent.local import LocalChatModel

async def main(tokens, leave_early):
    async for chunk in LocalChatModel(max_tokens=tokens).astream("Tell me a long story."):
        print(chunk.text, end="", flush=True)
        if chunk.text and leave_early:
            sys.exit(0)

asyncio.run(main(int(sys.argv[1]), sys.argv[2] == "early"))
"""


@pytest.mark.local
@pytest.mark.parametrize(("tokens", "when"), [("4", "late"), ("4000", "early")])
def test_a_program_ends_cleanly(tokens: str, when: str) -> None:
    """A process that used the model, or is in the middle of a reply, exits soon and with 0."""
    ended = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", PROGRAM, tokens, when],
        capture_output=True,
        text=True,
        timeout=60,  # the reply alone would take longer
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip()


@pytest.mark.local
def test_nothing_listens_on_the_network() -> None:
    """The engine's own server is on a socket that no longer has a name."""
    LocalChatModel(max_tokens=1).invoke("Hi")
    address = ENGINE._server.listening_address
    assert address.startswith("unix://")
    assert not Path(address.removeprefix("unix://")).exists()

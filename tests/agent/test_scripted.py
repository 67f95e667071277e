"""The scripted model: it streams like a provider, keeps what it saw, and says when it is done."""

import asyncio
from functools import reduce
from operator import add
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.tools import tool

from segue.agent.scripted import ScriptedChatModel
from segue.core.tokens import estimate_tokens
from segue.errors import UsageError

pytestmark = pytest.mark.anyio

HELLO = HumanMessage("Hello")


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


def call(id: str = "c1", **args: Any) -> ToolCall:
    return ToolCall(name="weather", args=args or {"city": "Oslo"}, id=id, type="tool_call")


async def stream(
    model: ScriptedChatModel, messages: list[BaseMessage] | None = None
) -> list[AIMessageChunk]:
    return [chunk async for chunk in model.astream(messages or [HELLO])]


def whole(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    return reduce(add, chunks)


async def test_a_script_is_spoken_line_by_line() -> None:
    """Texts, messages and functions of the messages answer in their order."""
    model = ScriptedChatModel(
        script=["one", AIMessage("two"), lambda messages: f"you said {messages[-1].text}"]
    )
    assert [(await model.ainvoke([HELLO])).text for _ in range(3)] == [
        "one",
        "two",
        "you said Hello",
    ]


def test_it_answers_without_an_event_loop() -> None:
    """The sync calls say the same as the async ones."""
    model = ScriptedChatModel(script=["one two", "three four"])
    assert model.invoke([HELLO]).text == "one two"
    assert [chunk.text for chunk in model.stream([HELLO])] == ["three ", "four", ""]


async def test_an_error_in_the_script_is_raised() -> None:
    """A line that is an error fails the call, and the next line goes on."""
    model = ScriptedChatModel(script=[ConnectionError("gone"), "back"])
    with pytest.raises(ConnectionError, match="gone"):
        await model.ainvoke([HELLO])
    assert (await model.ainvoke([HELLO])).text == "back"


async def test_a_function_may_fail_a_call() -> None:
    """A function can give back an error instead of a reply."""
    with pytest.raises(TimeoutError):
        await ScriptedChatModel(script=lambda _: TimeoutError()).ainvoke([HELLO])


async def test_a_function_as_the_script_answers_for_ever() -> None:
    """A demo never runs out of words."""
    model = ScriptedChatModel(script=lambda messages: f"{len(messages)} so far")
    replies = [(await model.ainvoke([HELLO] * n)).text for n in (1, 2, 3)]
    assert replies == ["1 so far", "2 so far", "3 so far"]


async def test_a_script_that_is_over_says_so() -> None:
    """One request too many is a fault of the test, and is told as one."""
    model = ScriptedChatModel(script=["only"])
    await model.ainvoke([HELLO])
    with pytest.raises(UsageError, match="script has 1 lines and all are used"):
        await model.ainvoke([HELLO])


async def test_a_line_that_is_no_reply_is_refused() -> None:
    """What a function gives back is checked, so a slip is found where it is."""
    wrong: Any = HELLO
    with pytest.raises(UsageError, match="is HumanMessage; expected an AIMessage"):
        await ScriptedChatModel(script=lambda _: wrong).ainvoke([HELLO])


@pytest.mark.parametrize("wrong", [{"script": "text"}, {"script": [3]}, {"script": [], "speed": 1}])
def test_a_wrong_script_is_refused_at_once(wrong: dict[str, Any]) -> None:
    """A text for a list and a misspelled setting are found before the first request."""
    with pytest.raises(ValueError, match=r"A script is|A line of a script|Extra inputs"):
        ScriptedChatModel(**wrong)


async def test_text_streams_in_words() -> None:
    """The pieces put together are the text, spaces and line breaks included."""
    text = " Half and half,\n\nmushrooms  and pepperoni. "
    chunks = await stream(ScriptedChatModel(script=[text]))
    assert len(chunks) > 5
    assert whole(chunks).content == text
    assert [chunk.chunk_position for chunk in chunks] == [None] * (len(chunks) - 1) + ["last"]


async def test_an_empty_reply_streams_one_closing_piece() -> None:
    """A model may say nothing at all."""
    chunks = await stream(ScriptedChatModel(script=[""]))
    assert [(c.content, c.chunk_position) for c in chunks] == [("", "last")]


async def test_blocks_survive_streaming() -> None:
    """Content that is a list stays the list it was."""
    content: list[str | dict[str, Any]] = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "url": "https://example.org/a.png"},
    ]
    assert whole(await stream(ScriptedChatModel(script=[AIMessage(content)]))).content == content


async def test_everything_in_a_message_survives_streaming() -> None:
    """Calls, metadata, usage and id of a scripted message come out as they went in."""
    scripted = AIMessage(
        "Let me look.",
        id="m1",
        tool_calls=[call("a", city="Oslo"), call("b", city="Rome")],
        invalid_tool_calls=[
            {
                "type": "invalid_tool_call",
                "name": "weather",
                "args": "Oslo",
                "id": "x",
                "error": None,
            }
        ],
        additional_kwargs={"mood": "cloudy"},
        response_metadata={"finish_reason": "length"},
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    )
    model = ScriptedChatModel(script=[scripted, scripted])
    streamed, invoked = whole(await stream(model)), await model.ainvoke([HELLO])
    for message in (streamed, invoked):
        assert message.content == scripted.content
        assert message.id == "m1"
        assert message.tool_calls == scripted.tool_calls
        assert message.invalid_tool_calls == scripted.invalid_tool_calls
        assert message.additional_kwargs == {"mood": "cloudy"}
        assert message.response_metadata["finish_reason"] == "length"
        assert message.usage_metadata == scripted.usage_metadata


async def test_usage_is_counted() -> None:
    """Where the script names no usage, it is estimated as the context builder estimates."""
    messages: list[BaseMessage] = [HELLO, AIMessage("Hi!"), HumanMessage("How are you?")]
    chunks = await stream(ScriptedChatModel(script=["I'm well."]), messages)
    read, written = sum(map(estimate_tokens, messages)), estimate_tokens(AIMessage("I'm well."))
    usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    assert whole(chunks).usage_metadata == usage


async def test_a_message_can_be_spoken_twice() -> None:
    """The script's own message is left alone, so each reply has an id of its own."""
    line = AIMessage("Again.")
    model = ScriptedChatModel(script=[line, line])
    first, second = [await model.ainvoke([HELLO]) for _ in range(2)]
    assert line.id is None
    assert first.id != second.id


async def test_what_the_model_saw_is_kept() -> None:
    """Each request is kept as it was, even if its list is changed afterwards."""
    model = ScriptedChatModel(script=["one", "two"])
    messages: list[BaseMessage] = [HELLO]
    await model.ainvoke(messages)
    messages.append(AIMessage("one"))
    await stream(model, messages)
    assert model.seen == [[HELLO], [HELLO, AIMessage("one")]]


async def test_a_demo_keeps_nothing() -> None:
    """A model that runs for weeks can forget what it saw."""
    model = ScriptedChatModel(script=lambda _: "ok", keep=0)
    await model.ainvoke([HELLO])
    assert model.seen == []


async def test_parallel_requests_take_a_line_each() -> None:
    """Parallel requests get each line once, and no line is lost."""
    lines = [str(n) for n in range(50)]
    model = ScriptedChatModel(script=lines)
    inputs = [[HumanMessage(line)] for line in lines]
    replies = await asyncio.gather(*(model.ainvoke(given) for given in inputs))
    assert sorted(reply.text for reply in replies) == sorted(lines)
    assert [seen[0].text for seen in model.seen] == [reply.text for reply in replies]


async def test_a_line_can_wait_for_something() -> None:
    """An async function holds its reply back until a test lets it go."""
    asked, free = asyncio.Event(), asyncio.Event()

    async def hesitate(_: list[BaseMessage]) -> str:
        asked.set()
        await free.wait()
        return "finally"

    model = ScriptedChatModel(script=[hesitate, "at once", hesitate])
    slow = asyncio.create_task(model.ainvoke([HELLO]))
    await asked.wait()
    assert (await model.ainvoke([HELLO])).text == "at once"
    free.set()
    assert (await slow).text == "finally"


def test_a_line_that_waits_needs_an_event_loop() -> None:
    """A sync call cannot wait for an async function, and says so."""

    async def never(_: list[BaseMessage]) -> str:
        return "never"

    def unawaited(messages: list[BaseMessage]) -> Any:
        made = never(messages)
        made.close()
        return made

    with pytest.raises(UsageError, match="needs ainvoke or astream"):
        ScriptedChatModel(script=[unawaited]).invoke([HELLO])


async def test_a_slow_reply_can_be_cancelled() -> None:
    """A reply that is cancelled between two words says no more."""
    heard: list[str] = []
    first = asyncio.Event()

    async def listen() -> None:
        async for chunk in ScriptedChatModel(script=["one two three"], delay=0.01).astream("Hi"):
            heard.append(chunk.text)
            first.set()

    task = asyncio.create_task(listen())
    await first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["one "]


async def test_an_agent_streams_its_tool_calls_and_its_words() -> None:
    """In a LangGraph agent calls survive streaming, and chunks have their message's id."""
    model = ScriptedChatModel(
        script=[AIMessage("A look.", tool_calls=[call()]), "It rains, sorry."]
    )
    agent: Any = create_agent(model, [weather])
    chunks: dict[str, list[AIMessageChunk]] = {}
    messages: list[BaseMessage] = []
    async for mode, data in agent.astream(
        {"messages": [HELLO]}, stream_mode=["messages", "updates"]
    ):
        if mode == "messages" and isinstance(data[0], AIMessageChunk):
            chunks.setdefault(data[0].id or "", []).append(data[0])
        elif mode == "updates":
            messages += [m for update in data.values() for m in update["messages"]]
    calling, result, reply = messages
    assert isinstance(calling, AIMessage)
    assert calling.tool_calls == [call()]
    assert isinstance(result, ToolMessage)
    assert result.content == "It rains in Oslo."
    assert list(chunks) == [calling.id, reply.id]
    assert whole(chunks[calling.id or ""]).tool_calls == [call()]
    assert whole(chunks[reply.id or ""]).content == reply.content == "It rains, sorry."
    assert len(chunks[reply.id or ""]) > 3
    assert [t.name for t in model.tools] == ["weather"]
    assert [m.type for m in model.seen[1]] == ["human", "ai", "tool"]

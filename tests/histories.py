"""Conversations for tests: short builders, and hypothesis strategies for hostile histories."""

from itertools import count
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from segue import Batch, BatchType, SnowflakeGenerator, stamp, synthetic_message
from segue.core.calls import calls_of
from segue.core.messages import CONTINUATION_PROMPT, continuation_message
from segue.core.metadata import MessageMetadata

START_MILLIS = 1_800_000_000_000


def ticking_generator(node: int = 1) -> SnowflakeGenerator:
    """A generator whose clock moves one millisecond per id, so that tests repeat exactly."""
    ticks = count(START_MILLIS)
    return SnowflakeGenerator(node=node, clock=lambda: next(ticks))


def calling(*ids: str, text: str = "", name: str = "look_up") -> AIMessage:
    calls = [{"name": name, "args": {"n": n}, "id": call_id} for n, call_id in enumerate(ids)]
    return AIMessage(text, tool_calls=calls)


def malformed(*ids: str) -> AIMessage:
    calls = [
        {"name": "find", "args": "{not json", "id": i, "error": "bad", "type": "invalid_tool_call"}
        for i in ids
    ]
    return AIMessage("", invalid_tool_calls=calls)


def result(call_id: str, content: str = "done", **fields: Any) -> ToolMessage:
    return ToolMessage(content, tool_call_id=call_id, **fields)


def exchange(question: str = "Is it open?", answer: str = "Yes, until six.") -> list[BaseMessage]:
    return [HumanMessage(question), AIMessage(answer)]


def tool_exchange(*ids: str) -> list[BaseMessage]:
    return [
        HumanMessage("Please look that up."),
        calling(*ids),
        *(result(call_id, f"found by {call_id}") for call_id in ids),
        AIMessage("Here is what I found."),
    ]


def positions(messages: list[BaseMessage]) -> list[int]:
    return [m.additional_kwargs["position"] for m in messages]


_words = st.text("abc äß漢?! ", min_size=1, max_size=12).filter(str.strip)
# Few ids, so that they repeat inside a message, inside a batch and across batches.
_call_ids = st.sampled_from(["call_1", "call_2", "call_3", "functions.find:0"])


@st.composite
def _assistant_calls(draw: st.DrawFn) -> AIMessage:
    ids = draw(st.lists(_call_ids, min_size=1, max_size=3))
    text = draw(st.sampled_from(["", "Let me see."]))
    style = draw(st.sampled_from(["parsed", "blocks", "both", "malformed", "no_id"]))
    parsed = [{"name": "find", "args": {"n": n}, "id": i} for n, i in enumerate(ids)]
    blocks: list[str | dict[Any, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_use", "name": "find", "input": {}, "id": i} for i in ids]
    if style == "blocks":
        return AIMessage(blocks)
    if style == "both":
        return AIMessage(blocks, tool_calls=parsed)
    if style == "malformed":
        broken = [
            {"name": "find", "args": "{oops", "id": i, "error": None, "type": "invalid_tool_call"}
            for i in ids
        ]
        return AIMessage(text, invalid_tool_calls=broken)
    if style == "no_id":
        return AIMessage(text, tool_calls=[{"name": "find", "args": {}, "id": None}])
    return AIMessage(text, tool_calls=parsed)


@st.composite
def _results(draw: st.DrawFn, message: AIMessage) -> list[BaseMessage]:
    results: list[BaseMessage] = [
        result(call.id, draw(st.sampled_from(["", "42", "error: no"])))
        for call in draw(st.permutations(calls_of(message)))
    ]
    if draw(st.booleans()):
        results[0] = MessageMetadata(continue_requested=draw(st.booleans())).onto(results[0])
    return results


@st.composite
def cycle(draw: st.DrawFn) -> list[BaseMessage]:
    """The messages of one processing cycle, in the order in which they happen."""
    opening = draw(st.sampled_from(["user", "user", "trigger", "greeting", "system", "several"]))
    messages: list[BaseMessage] = []
    if opening in ("user", "several"):
        messages.append(HumanMessage(draw(_words)))
    if opening == "several":
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        messages.append(HumanMessage([{"type": "text", "text": "and this"}, picture]))
    if opening == "trigger":
        messages.append(synthetic_message("check_in", "quiet for a while"))
    if opening == "system":
        messages.append(SystemMessage("The office closes early today."))
    for _ in range(draw(st.integers(0, 2))):
        if draw(st.integers(0, 3)) == 0:
            messages.append(AIMessage("One moment."))
        call = draw(_assistant_calls())
        messages += [call, *draw(_results(call))]
        if draw(st.integers(0, 4)) == 0:
            messages.append(HumanMessage("Hurry, please."))
    if draw(st.integers(0, 4)) == 0:
        messages.append(continuation_message("more to do"))
    messages.append(AIMessage(draw(st.sampled_from(["Done.", "Here you are.", ""]))))
    return messages


@st.composite
def threads(draw: st.DrawFn, max_batches: int = 4) -> list[BaseMessage]:
    """A thread of stamped messages, each batch whole."""
    generator = ticking_generator()
    stamped: list[BaseMessage] = []
    for messages in draw(st.lists(cycle(), min_size=1, max_size=max_batches)):
        stamped += stamped_cycle(messages, generator)
    return stamped


def stamped_cycle(messages: list[BaseMessage], generator: SnowflakeGenerator) -> list[BaseMessage]:
    """One batch, appended message by message as a journal does it."""
    stored: list[BaseMessage] = []
    for message in messages:
        batch = Batch(stored[0].additional_kwargs["batch"], stored) if stored else None
        goes_on = batch is not None and message.content == CONTINUATION_PROMPT
        kind = BatchType.CONTINUATION if goes_on else None
        stored = [*stored, *stamp([message], generator, batch, kind)]
    return stored


@st.composite
def broken_threads(draw: st.DrawFn) -> list[BaseMessage]:
    """A thread after crashes, losses, repeats and arrivals in any order."""
    stamped = draw(threads())
    kept = stamped[: draw(st.integers(1, len(stamped)))]
    lost = draw(st.sets(st.integers(0, len(kept) - 1), max_size=3))
    survivors = [m for index, m in enumerate(kept) if index not in lost] or kept[:1]
    repeats = draw(st.lists(st.sampled_from(survivors), max_size=3))
    again = [_stored_again(m, n) for n, m in enumerate(repeats) if isinstance(m, ToolMessage)]
    return draw(st.permutations([*survivors, *repeats, *again]))


@st.composite
def long_threads(draw: st.DrawFn) -> list[BaseMessage]:
    """A thread, whole or broken, in which some texts are longer than most windows."""
    messages = draw(st.one_of(threads(), broken_threads()))
    times = {m.id: draw(st.sampled_from([1, 1, 100, 3_000])) for m in messages}
    return [
        message.model_copy(update={"content": message.content * times[message.id]})
        if isinstance(message.content, str)
        else message
        for message in messages
    ]


def _stored_again(message: ToolMessage, n: int) -> ToolMessage:
    """The same result delivered twice: a row of its own, at a later place."""
    stamped = MessageMetadata.of(message)
    assert stamped.position is not None
    metadata = MessageMetadata(
        position=stamped.position + 1_000 + n,
        batch=stamped.batch,
        sequence_num=(stamped.sequence_num or 0) + 50 + n,
        batch_type=stamped.batch_type,
    )
    return metadata.onto(message.model_copy(update={"id": f"{message.id}-again-{n}"}))

"""What real clients of three providers send: our metadata never, a valid request always.

Each case is a stored conversation. Its context is sent through each client to a recorder on this
machine, stripped as we do it and unstripped, since the converters must not leak either. The raw
bytes are searched for anything only our metadata holds, and the body is held against the
provider's rules in `tests.providers.wire`.
"""

import base64
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
    message_to_dict,
)
from langchain_openai import ChatOpenAI

from segue import (
    TRIGGER_PROMPTS,
    BatchType,
    MessageMetadata,
    SnowflakeGenerator,
    TriggerType,
    build_context,
    group_batches,
    settle,
    stamp,
    strip_metadata,
    synthetic_message,
    user_message,
)
from segue.core.memory import text_of
from segue.core.metadata import KEYS
from tests.histories import broken_threads, threads
from tests.providers.clients import PROVIDERS, Client, openai
from tests.providers.recorder import Recorder
from tests.providers.wire import (
    openai_problems,
)

REASON: Final = "quiet for 26 hours after the invoice"
AGENT: Final = "agent-of-the-billing-desk"
# Noon, 2 March 2026: a fixed clock makes the same ids in every run.
NOON_MILLIS: Final = 1_772_452_800_000
# Ids that `build_context` makes for repeated or missing ones; they hold a position on purpose.
OUR_CALL_ID: Final = re.compile(rb'"call_\d+_\d+"')


TOOL_USE: Final = {
    "type": "tool_use",
    "id": "toolu_1",
    "name": "weather",
    "input": {"city": "Oslo"},
}
TOOL_CALL: Final = {"type": "tool_call", "id": "c1", "name": "weather", "args": {"city": "Oslo"}}
INVALID_CALL: Final = {
    "type": "invalid_tool_call",
    "id": "c2",
    "name": "weather",
    "args": '{"city": "Os',
    "error": "cut off",
}
FUNCTION_CALL: Final = {
    "type": "function_call",
    "call_id": "c3",
    "name": "weather",
    "arguments": '{"city": "Oslo"}',
}
CUSTOM_CALL: Final = {
    "type": "custom_tool_call",
    "call_id": "c4",
    "name": "weather",
    "input": "Oslo",
}


@dataclass(frozen=True)
class Case:
    """A stored conversation and the batch that runs now, if one does."""

    messages: list[BaseMessage]
    current: int | None = None

    @property
    def context(self) -> list[BaseMessage]:
        return build_context(self.messages, self.current, system="Be kind.").messages


class Thread:
    """Stamps batches one after the other, as a journal does."""

    def __init__(self) -> None:
        self._ids = SnowflakeGenerator(node=7, clock=lambda: NOON_MILLIS)
        self.messages: list[BaseMessage] = []
        self.last = 0

    def add(self, *messages: BaseMessage, **how: Any) -> "Thread":
        self._store(stamp(messages, self._ids, **how))
        return self

    def add_settled(self, *messages: BaseMessage) -> "Thread":
        (batch,) = group_batches(stamp(messages, self._ids))
        self._store(settle(batch, self._ids).messages)
        return self

    def done(self) -> Case:
        return Case(self.messages)

    def running(self) -> Case:
        return Case(self.messages, self.last)

    def _store(self, stamped: list[BaseMessage]) -> None:
        self.messages += stamped
        (batch,) = group_batches(stamped)
        self.last = batch.id


def human(content: str | list[str | dict[str, Any]] = "What is the weather?") -> HumanMessage:
    return HumanMessage(content)


def call(call_id: str | None = "toolu_1", name: str = "weather", **args: Any) -> ToolCall:
    return ToolCall(name=name, args=args or {"city": "Oslo"}, id=call_id, type="tool_call")


def calling(*calls: ToolCall, content: str | list[str | dict[str, Any]] = "") -> AIMessage:
    return AIMessage(content, tool_calls=list(calls))


def result(call_id: str = "toolu_1", text: str = "4 degrees, rain") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


def reply(text: str = "It rains in Oslo.") -> AIMessage:
    return AIMessage(text)


def png() -> str:
    """One grey pixel, encoded: the smallest picture a provider would accept."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\x00\x80"))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + pixel + chunk(b"IEND", b"")).decode()


def triggered(trigger: TriggerType) -> Case:
    thread = Thread().add(human("Remind me of the invoice."), reply("I will."))
    return thread.add(synthetic_message(trigger, reason=REASON)).running()


def finished_follow_up() -> Case:
    thread = Thread().add(human(), reply())
    thread.add(synthetic_message(TriggerType.CHECK_IN, reason=REASON), reply("How did it go?"))
    return thread.add(human("Well, thanks.")).running()


def tool_batch() -> Case:
    thread = Thread().add(
        human(),
        calling(call("toolu_1"), call("toolu_2", city="Rome"), content="I look it up."),
        result("toolu_2", "21 degrees"),
        result("toolu_1"),
        reply(),
    )
    return thread.add(human("Thanks!")).running()


def settled_batch() -> Case:
    thread = Thread().add_settled(human(), calling(call("toolu_1"), call("toolu_2")), result())
    return thread.add(human("Are you there?")).running()


def settled_trigger() -> Case:
    thread = Thread().add(human(), reply())
    thread.add_settled(synthetic_message(TriggerType.TASK_INCOMPLETE, reason=REASON))
    return thread.add(human("Hello?")).running()


def open_calls() -> Case:
    thread = Thread().add(human("Hello."), reply("Hi."))
    calls = calling(call("toolu_1"), call("toolu_2"), call("toolu_3"))
    return thread.add(human(), calls, result("toolu_2")).running()


def nested_batch() -> Case:
    thread = Thread().add(human("Ask the billing desk."), calling(call("toolu_9")))
    outer = thread.last
    inner = MessageMetadata(
        source_agent_id=AGENT, tool_triggered=True, retry_count=2, priority="high"
    )
    thread.add(
        inner.onto(human("Is invoice 12 paid?")),
        reply("It is paid."),
        batch_type=BatchType.AGENT_TO_AGENT,
        parent_batch=outer,
    )
    # The outer batch is unfinished and has to stay out; the nested one is whole.
    return thread.add(human("And?"), reply("It is paid.")).done()


def continuation() -> Case:
    asked = MessageMetadata(continue_requested=True).onto(result())
    thread = Thread().add(human(), calling(call()), asked)
    (batch,) = group_batches(thread.messages)
    trigger = synthetic_message(TriggerType.TASK_INCOMPLETE, reason=REASON)
    return thread.add(trigger, batch=batch, batch_type=BatchType.CONTINUATION).running()


def waiting_for_a_continuation() -> Case:
    asked = MessageMetadata(continue_requested=True).onto(result())
    thread = Thread().add(human(), calling(call()), asked, reply("I will look again."))
    return thread.add(human("And now?")).running()


def picture() -> Case:
    block = {"type": "image", "base64": png(), "mime_type": "image/png"}
    thread = Thread().add(human([{"type": "text", "text": "What is this?"}, block]), reply("Grey."))
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png()}"}}
    return thread.add(human([{"type": "text", "text": "And this?"}, url])).running()


def picture_without_a_word() -> Case:
    block = {"type": "image", "base64": png(), "mime_type": "image/png"}
    return Thread().add(human([{"type": "text", "text": ""}, block])).running()


def bare_strings() -> Case:
    block = {"type": "image", "base64": png(), "mime_type": "image/png"}
    return Thread().add(user_message(["What is this?", block])).running()


def half_an_emoji() -> Case:
    # What a client's JSON holds that cut a text inside a surrogate pair.
    return Thread().add(user_message(json.loads('"Good morning \\ud83d"'))).running()


def half_an_emoji_from_a_tool() -> Case:
    text = json.loads('"4 degrees \\ud83d"')
    return Thread().add(human(), calling(call()), result(text=text), reply()).done()


def bare_strings_from_a_model() -> Case:
    """What merging streamed chunks gives where one has text and the next has blocks."""
    message = calling(call(), content=["I look", {"type": "text", "text": " it up."}])
    return Thread().add(human(), message, result(), reply()).done()


def ids_reused_across_batches() -> Case:
    thread = Thread()
    for city in ("Oslo", "Rome", "Lima"):
        calls = calling(call("call_0", city=city), call("call_1", "tides", city=city))
        results = result("call_1", f"tide of {city}"), result("call_0", f"sky of {city}")
        thread.add(human(f"And {city}?"), calls, *results, reply(f"That is {city}."))
    return thread.done()


def ids_reused_in_one_message() -> Case:
    calls = calling(call("call_0", city="Oslo"), call("call_0", "tides"), call("", "clock"))
    results = result("call_0", "rain"), result("call_0", "low"), result("", "noon")
    return Thread().add(human(), calls, *results, reply()).done()


def call_id_from_elsewhere() -> Case:
    """An id as other models write them: with signs and longer than some APIs take."""
    call_id = "functions.weather:0:" + "0123456789" * 4
    return Thread().add(human(), calling(call(call_id)), result(call_id), reply()).done()


def tool_name_no_api_takes() -> Case:
    """A name that models invent, though the API refuses it when it comes back."""
    name = "multi_tool_use.parallel"
    error = ToolMessage("There is no such tool.", tool_call_id="toolu_1", name=name, status="error")
    thread = Thread().add(human(), calling(call(name=name)), error, reply())
    return thread.add_settled(human("Again."), calling(call("toolu_2", name))).done()


def invalid_calls() -> Case:
    broken = InvalidToolCall(
        type="invalid_tool_call", id="toolu_2", name="tides", args='{"city": "Os', error="cut off"
    )
    nameless = InvalidToolCall(
        type="invalid_tool_call", id=None, name=None, args=None, error="nothing to parse"
    )
    message = AIMessage("", tool_calls=[call()], invalid_tool_calls=[broken, nameless])
    error = ToolMessage("The arguments are no JSON.", tool_call_id="toolu_2", status="error")
    again = calling(call("toolu_2", "tides"))
    thread = Thread().add(
        human(), message, result(), error, result("", "No such tool."), again, result("toolu_2")
    )
    return thread.running()


def calls_in_blocks(*blocks: dict[str, Any]) -> Case:
    """An assistant message whose calls stand in its content alone, answered and asked again."""
    thread = Thread()
    for _ in range(2):
        message = AIMessage([{"type": "text", "text": "I look it up."}, *blocks])
        message = message.model_copy(update={"tool_calls": []})
        results = [result(block.get("call_id") or block["id"]) for block in blocks]
        thread.add(human(), message, *results, reply())
    return thread.done()


def calls_in_blocks_and_parsed(*blocks: dict[str, Any]) -> Case:
    """The same call written twice, as clients store it: parsed, and as a block."""
    thread = Thread()
    for _ in range(2):
        calls = [call(block.get("call_id") or block["id"]) for block in blocks]
        message = calling(*calls, content=[{"type": "text", "text": "I look."}, *blocks])
        thread.add(human(), message, *(result(str(c["id"])) for c in calls), reply())
    return thread.done()


def custom_call_settled() -> Case:
    calls = calling(call("c4"), content=[{"type": "text", "text": "I look."}, CUSTOM_CALL])
    return Thread().add_settled(human(), calls).done()


def greeting() -> Case:
    thread = Thread().add(reply("Hello, I am your assistant."))
    return thread.add(human("Hello.")).running()


def greeting_that_calls() -> Case:
    thread = Thread().add(calling(call()), result(), reply("Good morning. It rains."))
    return thread.add(human("Thanks.")).running()


def stored_system_message() -> Case:
    instruction = SystemMessage("Answer in one sentence.")
    thread = Thread().add(instruction, human(), reply())
    return thread.add(SystemMessage("Call the user Ada."), human("And tomorrow?")).running()


def two_assistants_in_a_row() -> Case:
    thread = Thread().add(
        human(), reply("I ask the expert."), calling(call(), content="On it."), result(), reply()
    )
    return thread.add(human(), reply("One moment."), calling(call("toolu_2"))).running()


def blank_text_beside_a_call() -> Case:
    return Thread().add(human(), calling(call(), content="\n\n"), result(), reply()).done()


CASES: Final[Mapping[str, Callable[[], Case]]] = MappingProxyType(
    {
        **{f"trigger {trigger.value}": partial(triggered, trigger) for trigger in TriggerType},
        "a finished follow-up": finished_follow_up,
        "a tool batch": tool_batch,
        "a settled batch": settled_batch,
        "a settled trigger": settled_trigger,
        "open calls": open_calls,
        "a nested batch": nested_batch,
        "a continuation": continuation,
        "a batch that waits for its continuation": waiting_for_a_continuation,
        "a picture": picture,
        "a picture without a word": picture_without_a_word,
        "bare strings from a client": bare_strings,
        "bare strings from a model": bare_strings_from_a_model,
        "half an emoji from a client": half_an_emoji,
        "half an emoji from a tool": half_an_emoji_from_a_tool,
        "ids reused across batches": ids_reused_across_batches,
        "ids reused in one message": ids_reused_in_one_message,
        "a call id from elsewhere": call_id_from_elsewhere,
        "a tool name no API takes": tool_name_no_api_takes,
        "invalid calls": invalid_calls,
        "tool_use blocks alone": partial(calls_in_blocks, TOOL_USE),
        "tool_use blocks and parsed": partial(calls_in_blocks_and_parsed, TOOL_USE),
        "tool_call blocks alone": partial(calls_in_blocks, TOOL_CALL, INVALID_CALL),
        "tool_call blocks and parsed": partial(calls_in_blocks_and_parsed, TOOL_CALL),
        "function_call blocks alone": partial(calls_in_blocks, FUNCTION_CALL),
        "function_call blocks and parsed": partial(calls_in_blocks_and_parsed, FUNCTION_CALL),
        "custom_tool_call blocks alone": partial(calls_in_blocks, CUSTOM_CALL),
        "a custom_tool_call, settled": custom_call_settled,
        "a greeting": greeting,
        "a greeting that calls": greeting_that_calls,
        "a stored system message": stored_system_message,
        "two assistants in a row": two_assistants_in_a_row,
        "blank text beside a call": blank_text_beside_a_call,
    }
)


@pytest.fixture(scope="module", params=PROVIDERS)
def client(request: pytest.FixtureRequest, recorder: Recorder) -> Iterator[Client]:
    provider = PROVIDERS[request.param]
    with provider.connect(recorder.url) as model:
        yield Client(model, recorder, provider.problems)


def leaks(raw: bytes, messages: Iterable[BaseMessage]) -> list[str]:
    """Everything in the bytes of a request that only the messages' metadata can have put there."""
    seen = OUR_CALL_ID.sub(b'""', raw)
    # A key may stand inside JSON that is itself text, where its quotes are escaped.
    keys = [key for key in KEYS if re.search(rb'"' + key.encode() + rb'\\*"\s*:', seen)]
    words: set[str] = {*TriggerType, *BatchType}
    for message in messages:
        metadata = MessageMetadata.of(message)
        words |= {metadata.trigger_reason or "", metadata.source_agent_id or ""}
        numbers = metadata.position, metadata.batch, metadata.parent_batch
        words |= {str(number) for number in numbers if number is not None}
    return sorted(keys) + sorted(word for word in words if word and word.encode() in seen)


def strings(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def unsaid(body: dict[str, Any], messages: Iterable[BaseMessage]) -> list[str]:
    """The words of people and of the assistant that did not reach the request."""
    sent = "\n".join(strings(body))
    spoken = (m for m in messages if not isinstance(m, ToolMessage))
    return [line for m in spoken for line in text_of(m).splitlines() if line not in sent]


def answers(body: dict[str, Any], messages: Iterable[BaseMessage]) -> list[str]:
    """The results in a request, in their order."""
    results = {m.text for m in messages if isinstance(m, ToolMessage)}
    return [text for text in strings(body) if text in results]


@pytest.mark.parametrize("prepare", [strip_metadata, list], ids=["stripped", "as it is"])
@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_a_request_holds_the_conversation_and_no_metadata(
    client: Client,
    make: Callable[[], Case],
    prepare: Callable[[list[BaseMessage]], list[BaseMessage]],
) -> None:
    """Every client sends all words and results in order, nothing of ours, and a valid body."""
    case = make()
    context = case.context
    request = client.send(prepare(context))
    assert leaks(request.raw, [*case.messages, *context]) == []
    assert unsaid(request.body, context) == []
    assert answers(request.body, context) == [m.text for m in context if m.type == "tool"]
    assert client.problems(request.body) == []


@given(st.one_of(threads(), broken_threads()), st.data())
def test_any_broken_history_reaches_every_provider_well_formed(
    client: Client, messages: list[BaseMessage], data: st.DataObject
) -> None:
    """What was cut, lost, doubled and permuted at random is a valid body for every API."""
    current = data.draw(st.sampled_from([None, *(b.id for b in group_batches(messages))]))
    context = build_context(messages, current_batch=current).messages
    assume(context)
    request = client.send(strip_metadata(context))
    assert client.problems(request.body) == []
    assert leaks(request.raw, context) == []


@pytest.mark.parametrize("trigger", TriggerType)
def test_a_trigger_asks_in_its_own_words(client: Client, trigger: TriggerType) -> None:
    """The last thing the model reads is the trigger's prompt, as if the user had said it."""
    body = client.send(strip_metadata(triggered(trigger).context)).body
    (turns,) = (body[key] for key in ("messages", "input", "contents") if key in body)
    turn = turns[-1]
    assert turn["role"] == "user"
    assert TRIGGER_PROMPTS[trigger] in list(strings(turn))


@pytest.mark.parametrize(
    "leak",
    [
        "This is a check_in.",
        f"I write because: {REASON}.",
        "Your batch is BATCH.",
        '{"synthetic": true}',
        "system_trigger",
    ],
)
def test_a_leak_in_content_is_found(client: Client, leak: str) -> None:
    """Words of the metadata that do stand in a message's content are reported."""
    case = triggered(TriggerType.CHECK_IN)
    batch = MessageMetadata.of(case.messages[0]).batch
    told = HumanMessage(leak.replace("BATCH", str(batch)))
    request = client.send([*strip_metadata(case.context), told])
    assert leaks(request.raw, case.messages) != []


def test_words_that_are_missing_are_found(client: Client) -> None:
    """A message that was not sent is noticed."""
    context = tool_batch().context
    request = client.send(strip_metadata(context))
    assert unsaid(request.body, [*context, HumanMessage("And Lima?")]) == ["And Lima?"]


class GossipingChat(ChatOpenAI):
    """A client whose converter hands on all it is given; ours must not depend on the others."""

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        messages = self._convert_input(input_).to_messages()
        for sent, message in zip(payload["messages"], messages, strict=True):
            sent.update(message.additional_kwargs)
        return payload


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_a_converter_that_sends_everything_gets_nothing(
    recorder: Recorder, make: Callable[[], Case]
) -> None:
    """Stripping does not lean on the clients: one that forwards all kwargs has none to forward."""
    case = make()
    with openai(recorder.url, GossipingChat) as model:
        gossip = Client(model, recorder, openai_problems)
        stripped = gossip.send(strip_metadata(case.context))
        unstripped = gossip.send(case.context)
    everything = [*case.messages, *case.context]
    assert leaks(stripped.raw, everything) == []
    assert {"position", "batch", "sequence_num"} <= set(leaks(unstripped.raw, everything))


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_stripped_messages_hold_no_key_in_any_field(make: Callable[[], Case]) -> None:
    """Written out whole, stripped messages have none of our keys, and the originals still do."""
    context = make().context
    stripped = json.dumps([message_to_dict(m) for m in strip_metadata(context)]).encode()
    whole = json.dumps([message_to_dict(m) for m in context]).encode()
    assert KEYS.isdisjoint(leaks(stripped, context))
    assert {"position", "batch", "sequence_num"} <= set(leaks(whole, context))

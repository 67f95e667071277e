"""Messages come back from the journal as they went in, whatever is in them."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from pydantic import BaseModel

from segue.core.messages import synthetic_message, user_message
from segue.core.metadata import MessageMetadata
from segue.core.triggers import TriggerType
from segue.journal.journal import Journal
from segue.testing.journal_contract.chat import Chat
from segue.testing.journal_contract.fixtures import OpenJournal

BIG = 2**63 - 1
NESTED: dict[str, Any] = {
    "list": [1, [2, [3, {}]], []],
    "none": None,
    "no": False,
    "zero": 0,
    "small": -0.1,
    "large": 1e300,
    "": {"empty key": ""},
}
TEXTS = {
    "emoji": "🙂 👩‍👩‍👧‍👦 🏴‍☠️",
    "scripts": "漢字 العربية हिन्दी Ελληνικά",
    "accents apart": "e\u0301 and é",
    "half an emoji": "half \ud83d of it",
    "a NUL": "before\x00after",
    "controls": "\x01\x1b[31m\x7f\u2028\ufeff",
    "white space": "  \r\n\tindented\n\n",
    "quotes": "it's \"so\" \\ \\u0041 % _ ; -- $1 ? :x {} 'null'",
    "nothing": "",
    "a lot": "word " * 20_000,
}
USAGE = {
    "input_tokens": BIG,
    "output_tokens": 2,
    "total_tokens": BIG,
    "input_token_details": {"cache_read": 1},
}
CALL = {"name": "find", "args": {"id": BIG, "deep": NESTED, "text": "🙂"}, "id": "call_1"}
BROKEN = {"name": "find", "args": "{not json", "id": "call_2", "error": "bad"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

MESSAGES: dict[str, BaseMessage] = {
    "64-bit numbers": AIMessage("Yes.", additional_kwargs={"n": BIG, "minus": -(2**63)}),
    "numbers beyond 64 bits": AIMessage("Yes.", additional_kwargs={"n": 10**30}),
    "nested values": AIMessage("Yes.", response_metadata=NESTED, additional_kwargs={"x": NESTED}),
    "odd texts in metadata": AIMessage("Yes.", additional_kwargs={"texts": TEXTS}),
    "pictures": AIMessage([{"type": "text", "text": "Look:"}, PICTURE]),
    "bare strings in a list": AIMessage(["Look:", {"type": "text", "text": "🙂"}]),
    "thinking": AIMessage([{"type": "thinking", "thinking": "hm", "signature": "s=="}, "Yes."]),
    "tool calls": AIMessage("", tool_calls=[CALL, {**CALL, "id": None}]),
    "invalid tool calls": AIMessage("Hm.", invalid_tool_calls=[BROKEN]),
    "usage": AIMessage("Yes.", usage_metadata=USAGE, response_metadata={"model_name": "m"}),
    "a name and an id": AIMessage("Yes.", name="guide", id="run-1"),
    "a failed result": ToolMessage("no such file", tool_call_id="call_1", status="error"),
    "a named result": ToolMessage("found", tool_call_id="call_1", name="find"),
    "a result of blocks": ToolMessage([PICTURE], tool_call_id="call_1"),
    "an artifact": ToolMessage("found", tool_call_id="call_1", artifact={"rows": [1, NESTED]}),
    "a system message": SystemMessage("Be brief."),
}


class Colour(Enum):
    RED = "red"


class Place(BaseModel):
    name: str = "mill"


@dataclass
class Point:
    x: int = 1


class Shy:
    def __repr__(self) -> str:
        raise NotImplementedError


def looped() -> dict[str, Any]:
    value: dict[str, Any] = {"rows": [1]}
    value["rows"].append(value)
    return value


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


ODD_ARTIFACTS: dict[str, Any] = {
    "a set": {1, 2},
    "bytes": b"\x00\xff",
    "a moment": datetime(2027, 1, 15, tzinfo=UTC),
    "a day": date(2027, 1, 15),
    "a decimal": Decimal("0.10"),
    "an enum": Colour.RED,
    "a path": PurePosixPath("/srv"),
    "a model": Place(),
    "a dataclass": Point(),
    "an error": ValueError("half \ud83d"),
    "a class": Place,
    "an object": object(),
    "a generator": (n for n in range(3)),
    "not a number": float("nan"),
    "an array": np.arange(3),
    "keys that are no text": {(1, 2): "a pair", None: "nothing", Colour.RED: "an enum"},
    "deep inside": {"rows": [{"at": datetime(2027, 1, 15, tzinfo=UTC), "raw": b"x"}]},
    "a value that holds itself": looped(),
    "a very deep list": deep(5_000),
    "an object that cannot say what it is": Shy(),
}


async def stored_and_read(
    chat: Chat, reader: Journal, message: BaseMessage
) -> tuple[BaseMessage, BaseMessage]:
    """The message as the writer got it back, and as another process reads it."""
    [stored] = await chat.finish(await chat.running_reply(), message)
    [batch] = await reader.messages.tail("chat", max_tokens=1)
    return stored, batch.messages[-1]


async def test_a_message_survives_storage(open_journal: OpenJournal, chat: Chat) -> None:
    """Content, calls, usage and foreign metadata are equal after reading."""
    reader = await open_journal()
    for kind, message in MESSAGES.items():
        stored, read = await stored_and_read(chat, reader, message)
        assert read == stored, kind
        assert type(read) is type(message), kind
        placed = {"id": read.id, "additional_kwargs": read.additional_kwargs}
        assert message.model_copy(update=placed) == read, kind
        assert message.additional_kwargs.items() <= read.additional_kwargs.items(), kind


async def test_text_survives_storage(open_journal: OpenJournal, chat: Chat) -> None:
    """Every text that Python can hold reads back as the same text."""
    await chat.write(await chat.running_reply(), *(AIMessage(text) for text in TEXTS.values()))
    reader = Chat(await open_journal(), chat.ids, chat.now)
    assert [m.content for m in (await reader.messages())[1:]] == list(TEXTS.values())


async def test_a_users_text_survives_storage(open_journal: OpenJournal, chat: Chat) -> None:
    """What a person says is in the journal to the letter, also where a list shows it shortened."""
    for text in TEXTS.values():
        message = user_message("Is it open?").model_copy(update={"content": text})
        await chat.say(message)
    reader = await open_journal()
    page = await reader.messages.history("chat")
    assert [m.content for m in page.messages] == list(TEXTS.values())
    [thread] = await reader.threads.list_of("ada")
    assert thread.message_count == len(TEXTS)


async def test_a_triggers_metadata_survives_storage(open_journal: OpenJournal, chat: Chat) -> None:
    """That a message is synthetic, and why, is never lost on the way to the store and back."""
    turn = await chat.follow_up()
    batch = await (await open_journal()).messages.load_batch("chat", turn.batch)
    metadata = MessageMetadata.of(batch.messages[0])
    assert metadata.synthetic
    assert metadata.trigger_type is TriggerType.CHECK_IN
    assert metadata.trigger_reason == "quiet for a while"
    assert batch.messages[0].content == synthetic_message("check_in").content


async def test_a_message_with_every_field_of_ours_survives_storage(
    open_journal: OpenJournal, chat: Chat
) -> None:
    """Each piece of metadata that Segue knows is equal after reading."""
    metadata = MessageMetadata(
        continue_requested=True,
        source_agent_id="tutor",
        tool_triggered=True,
        retry_count=2,
        priority="high",
    )
    message = metadata.onto(ToolMessage("found", tool_call_id="call_1"))
    stored, read = await stored_and_read(chat, await open_journal(), message)
    assert MessageMetadata.of(read) == MessageMetadata.of(stored)
    assert metadata.to_kwargs().items() <= read.additional_kwargs.items()


async def test_a_plain_artifact_survives_storage(open_journal: OpenJournal, chat: Chat) -> None:
    """What JSON can say of a tool's artifact reads back the same, an empty value too."""
    reader = await open_journal()
    plain: list[Any] = [0, False, "", [], {}, 1.5, [None], {"": 0}]
    for artifact in plain:
        message = ToolMessage("found", tool_call_id="call_1", artifact=artifact)
        _, read = await stored_and_read(chat, reader, message)
        assert isinstance(read, ToolMessage)
        assert read.artifact == artifact
        assert type(read.artifact) is type(artifact)


async def test_an_odd_artifact_does_not_stop_a_turn(open_journal: OpenJournal, chat: Chat) -> None:
    """Tools put anything into an artifact; the result is stored, and something of the artifact."""
    reader = await open_journal()
    for kind, artifact in ODD_ARTIFACTS.items():
        message = ToolMessage("found", tool_call_id="call_1", artifact=artifact)
        _, read = await stored_and_read(chat, reader, message)
        assert isinstance(read, ToolMessage), kind
        assert (read.content, read.tool_call_id) == ("found", "call_1"), kind
        assert read.artifact is not None, kind


async def test_an_odd_artifact_leaves_the_rest_of_its_message_alone(
    open_journal: OpenJournal, chat: Chat
) -> None:
    """What cannot be stored of an artifact costs neither the content nor other values a letter."""
    content = "half \ud83d\x00"
    message = ToolMessage(
        content,
        tool_call_id="call_1",
        artifact={(1, 2): "a pair"},
        additional_kwargs={"n": 0.1, "text": content, "deep": NESTED},
    )
    _, read = await stored_and_read(chat, await open_journal(), message)
    # In ASCII, since a failure that shows half an emoji cannot be sent between test processes.
    assert ascii(read.content) == ascii(content)
    assert message.additional_kwargs.items() <= read.additional_kwargs.items()

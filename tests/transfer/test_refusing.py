"""Files that are refused: with the line that is wrong, and with nothing written."""

import io
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from segue.errors import ConflictError, UsageError
from segue.transfer.export import Scope
from segue.transfer.imports import ImportOptions, import_file
from segue.transfer.lines import FormatError
from tests.transfer.conftest import NewJournal
from tests.transfer.files import Lines, full, of_user, sealed, take_in
from tests.transfer.tales import EVERYTHING, START, Tale

pytestmark = pytest.mark.anyio


def first(lines: Lines, type: str) -> int:
    return next(n for n, line in enumerate(lines) if line["type"] == type)


def _set(type: str, /, **fields: Any) -> Callable[[Lines], int]:
    def change(lines: Lines) -> int:
        place = first(lines, type)
        lines[place].update(fields)
        return place + 1

    return change


def _drop(type: str, name: str) -> Callable[[Lines], int]:
    def change(lines: Lines) -> int:
        del lines[first(lines, type)][name]
        return first(lines, type) + 1

    return change


def _repeat(type: str) -> Callable[[Lines], int]:
    def change(lines: Lines) -> int:
        lines.insert(first(lines, type), lines[first(lines, type)])
        return first(lines, type) + 2

    return change


def _message_twice(lines: Lines) -> int:
    place = first(lines, "batch")
    lines[place]["messages"] *= 2
    return place + 1


def _message_of_another_batch(lines: Lines) -> int:
    place = first(lines, "batch")
    lines[place]["messages"][0]["message"]["data"]["additional_kwargs"]["batch"] += 1
    return place + 1


def _half_archived(lines: Lines) -> int:
    place = next(n for n, line in enumerate(lines) if len(line.get("messages", ())) > 1)
    lines[place]["messages"][0]["archived"] = not lines[place]["messages"][0]["archived"]
    return place + 1


def _no_message(lines: Lines) -> int:
    place = first(lines, "batch")
    lines[place]["messages"][0]["message"] = {"type": "human", "data": {}}
    return place + 1


def _unstamped(lines: Lines) -> int:
    place = first(lines, "batch")
    del lines[place]["messages"][0]["message"]["data"]["additional_kwargs"]["position"]
    return place + 1


def _timer_before_turn(lines: Lines) -> int:
    turn, timer = first(lines, "turn"), first(lines, "timer")
    lines.insert(turn, lines.pop(timer))
    return turn + 2


def _orphan(lines: Lines) -> int:
    lines.insert(1, lines[first(lines, "turn")])
    return 2


def _set_message(kind: str, /, **fields: Any) -> Callable[[Lines], int]:
    """Change a message of a kind: its `data`, or what stands beside it."""

    def change(lines: Lines) -> int:
        for number, line in enumerate(lines, 1):
            for message in line.get("messages", ()):
                if message["message"]["type"] == kind:
                    for name, value in fields.items():
                        place = message if name in message else message["message"]["data"]
                        place[name] = value
                    return number
        raise AssertionError(f"There is no message of type {kind}.")

    return change


def _as_system(lines: Lines) -> int:
    place = first(lines, "batch")
    message = lines[place]["messages"][0]["message"]
    message["type"] = message["data"]["type"] = "system"
    return place + 1


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


PICTURE = {"type": "image_url", "image_url": {"url": "https://10.0.0.1/secret.png"}}
FILE = {"type": "file", "file": {"file_id": "file-abc"}}
DEEP = [{"type": "text", "text": "Hi", "extra": nested(400)}]
NAME = "1 to 200 characters on one line"
# What could be stored, and what no other way in takes.
FORGED: dict[str, tuple[Callable[[Lines], int], str]] = {
    "content of 400 levels": (_set_message("human", content=DEEP), "nested too deeply"),
    "settings of 400 levels": (_set("thread", settings={"a": nested(400)}), "nested too deeply"),
    "a thread id with a line break": (_set("thread", id="a\nb"), f"'id'.*{NAME}"),
    "an empty thread id": (_set("thread", id=""), f"'id'.*{NAME}"),
    "a thread nested in nothing": (_set("thread", id="/cook"), f"'id'.*{NAME}"),
    "a long agent id": (_set("thread", agent_id="x" * 100_000), f"'agent_id'.*{NAME}"),
    "a user id with NUL": (_set("thread", user_id="a\0b"), "'user_id'.*without NUL"),
    "an empty user id": (_set("preferences", user_id=""), f"'user_id'.*{NAME}"),
    "a long title": (_set("thread", title="x" * 201), "'title'.*at most 200"),
    "a long preview": (_set("thread", preview="x" * 101), "'preview'.*at most 100"),
    "a long client id": (
        _set_message("human", client_message_id="x" * 201),
        f"'client_message_id'.*{NAME}",
    ),
    "an empty client id": (_set_message("human", client_message_id=""), f"client_.*{NAME}"),
    "a message id with a line break": (_set_message("ai", id="a\nb"), r"its id is 'a\\nb'"),
    "a long message id": (_set_message("ai", id="x" * 100_000), "its id is"),
    "an empty message id": (_set_message("ai", id=""), "its id is ''"),
    "a message without an id": (_set_message("ai", id=None), "its id is None"),
    "a memory key with a line break": (_set("memory", key="a\r\nb"), f"'key'.*{NAME}"),
    "a memory's key of blanks": (_set("memory", key="  "), f"'key'.*{NAME}"),
    "a reason with NUL": (_set("timer", reason="a\0b"), "'reason'.*without NUL"),
}
# What only a file that is trusted may hold.
UNTRUSTED: dict[str, tuple[Callable[[Lines], int], str]] = {
    "a system message": (_as_system, "a system message"),
    "a user's picture by address": (_set_message("human", content=[PICTURE]), "address in 'url'"),
    "a user's provider file": (_set_message("human", content=[FILE]), "file of a provider"),
    "an agent's picture by address": (_set_message("ai", content=[PICTURE]), "address in 'url'"),
    "a tool's picture, nested": (
        _set_message("tool", content=[{"type": "custom", "parts": [PICTURE]}]),
        "address in 'url'",
    ),
}
WRONG: dict[str, tuple[Callable[[Lines], int], str]] = {
    "a newer version": (_set("header", version=2), "version 2.*newer"),
    "no version": (_set("header", version=None), "version None"),
    "another format": (_set("header", format="zip"), "not the header"),
    "an unknown kind": (_set("header", kind="half"), "kind 'half'"),
    "an unknown type": (_set("turn", type="spell"), "'spell'"),
    "an unknown thread": (_set("turn", thread_id="red"), "'red'.*does not follow"),
    "a row before its thread": (_orphan, "does not follow"),
    "a running turn": (_set("turn", state="running"), "'running'.*queued"),
    "a claimed timer": (_set("timer", state="claimed"), "'claimed'"),
    "a claimed effect": (_set("effect", state="claimed"), "'claimed'"),
    "an id that is a number": (_set("turn", id=12), "19 digits"),
    "an id at the end of the range": (_set("timer", id=f"{2**63 - 1:019d}"), "19 digits"),
    "a time without a zone": (_set("turn", queued_at="2027-01-15 08:00"), "a time such as"),
    "a flag that is a number": (_set("turn", left_open=1), "true or false"),
    "a vector that is none": (_set("memory", embedding="!"), "base64"),
    "a column that is missing": (_drop("turn", "epoch"), "no 'epoch'"),
    "a thread twice": (_repeat("thread"), "repeats 'blue'"),
    "a turn twice": (_repeat("turn"), "repeats"),
    "a batch twice": (_repeat("batch"), "repeats"),
    "a message twice": (_message_twice, "twice"),
    "a message of another batch": (_message_of_another_batch, "another batch"),
    "a message that is none": (_no_message, "cannot be read"),
    "a message without a place": (_unstamped, "cannot be read"),
    "no messages": (_set("batch", messages=[]), "no messages"),
    "another order": (_timer_before_turn, "out of order"),
    "half of a batch archived": (_half_archived, "archived in part"),
    "facts that are a list": (_set("decision", facts=[1]), "an object"),
    "facts with half a character": (_set("decision", facts={"variant": "\ud800"}), "whole char"),
    "reasons that are no list": (_set("decision", reasons="so"), "a list of texts"),
    "wishes that are a number": (_set("thread", settings=3), "an object"),
    "an ending that is a text": (_set("turn", ending="x"), "an object"),
}


async def told(new_journal: NewJournal, kind: str = "sqlite") -> bytes:
    async with new_journal(kind) as source:
        await (await Tale(source).begin()).tell(EVERYTHING)
        return await full(source)


async def assert_nothing_came_in(
    new_journal: NewJournal, kind: str, data: bytes, expected: str
) -> None:
    async with new_journal(kind) as target:
        empty = await full(target)
        with pytest.raises(FormatError, match=rf"(?s){expected}.*Nothing was imported"):
            await take_in(target, data)
        assert await full(target) == empty


@pytest.mark.parametrize("wrong", WRONG | FORGED | UNTRUSTED)
async def test_a_file_that_cannot_be_right_is_refused(new_journal: NewJournal, wrong: str) -> None:
    """By the line that is wrong, in words that say what was expected."""
    lines = [json.loads(line) for line in (await told(new_journal)).splitlines()]
    change, words = (WRONG | FORGED | UNTRUSTED)[wrong]
    expected = f"Line {change(lines)} .*{words}"
    await assert_nothing_came_in(new_journal, "sqlite", sealed(lines), expected)


@pytest.mark.parametrize("held", UNTRUSTED)
async def test_a_trusted_file_may_hold_what_no_user_could_send(
    new_journal: NewJournal, held: str
) -> None:
    """Such as that of a server that allows addresses; it comes back byte by byte."""
    lines = [json.loads(line) for line in (await told(new_journal)).splitlines()]
    UNTRUSTED[held][0](lines)
    async with new_journal("sqlite") as target, new_journal("sqlite") as other:
        await take_in(target, sealed(lines), ImportOptions(trusted=True))
        written = await full(target)
        await take_in(other, written, ImportOptions(trusted=True))
        assert await full(other) == written


@pytest.mark.parametrize("wrong", FORGED)
async def test_a_trusted_file_is_checked_all_the_same(new_journal: NewJournal, wrong: str) -> None:
    """What nothing could show or find again is not taken from anywhere."""
    lines = [json.loads(line) for line in (await told(new_journal)).splitlines()]
    FORGED[wrong][0](lines)
    async with new_journal("sqlite") as target:
        with pytest.raises(FormatError):
            await take_in(target, sealed(lines), ImportOptions(trusted=True))


async def test_an_agent_and_a_tool_may_name_their_sources(new_journal: NewJournal) -> None:
    """A citation and the argument of a call are words, which no client fetches."""
    lines = [json.loads(line) for line in (await told(new_journal)).splitlines()]
    source = {"type": "url_citation", "url": "https://example.org"}
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {"url": "https://example.org"}}
    cited = [{"type": "text", "text": "Rain.", "annotations": [source]}, call]
    _set_message("ai", content=cited)(lines)
    _set_message("tool", content=[{"type": "text", "text": "See https://example.org"}])(lines)
    async with new_journal("sqlite") as target:
        assert (await take_in(target, sealed(lines))).rows["threads"] == 5


async def test_a_value_that_is_nested_too_deeply_is_refused(new_journal: NewJournal) -> None:
    """In words, and not by an error of Python's."""
    lines = [json.loads(line) for line in (await told(new_journal)).splitlines()]
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    lines[first(lines, "turn")]["payload"] = {"answer": deep}
    expected = r"(nested too deeply|Line \d+ is not JSON)"
    await assert_nothing_came_in(new_journal, "sqlite", sealed(lines), expected)


async def test_a_damaged_file_is_refused(new_journal: NewJournal, kind: str) -> None:
    """Cut anywhere, with a byte changed, with lines lost or added: nothing of it comes in."""
    good = await told(new_journal)
    lines = good.splitlines(keepends=True)
    last = len(lines)
    half = len(good) // 2
    letter = good.index(b"They talked")
    damaged = {
        b"": "ends after line 0",
        b"\x1f\x8b\x08zip": "Line 1 is cut off",
        b"".join(lines[:-1]): f"ends after line {last - 1} without a footer",
        good[:half]: "is cut off",
        good[:-1]: f"Line {last} is cut off",
        good[:letter] + b"X" + good[letter + 1 :]: f"Line {last} .*sha256",
        b"".join([*lines[:9], *lines[10:]]): "Line",
        good + lines[3]: f"Line {last + 1} comes after the footer",
        b"".join([*lines[:4], b"{broken\n", *lines[4:]]): "Line 5 is not JSON",
        b"".join([*lines[:4], b"[]\n", *lines[4:]]): "Line 5 is not an object",
        good.replace(b'"counts":{"batch":', b'"counts":{"batch":1', 1): f"Line {last} .*counts",
    }
    for data, words in damaged.items():
        await assert_nothing_came_in(new_journal, kind, data, words)


async def test_a_file_is_read_whole_before_anything_is_written(
    new_journal: NewJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is wrong in its last line does not even keep others from writing."""
    data = await told(new_journal)
    async with new_journal("sqlite") as target:
        begun: list[object] = []
        monkeypatch.setattr(
            target.transfer, "restore", lambda *rows, **how: begun.append((rows, how))
        )
        with pytest.raises(FormatError, match="cut off"):
            await take_in(target, data[:-1])
        assert begun == []


async def test_a_users_export_is_not_imported(new_journal: NewJournal) -> None:
    """It holds what a person sees, which is not enough to go on from."""
    async with new_journal("sqlite") as source:
        await (await Tale(source).begin()).tell(EVERYTHING)
        data = await of_user(source, Scope(user_id="ada"))
    await assert_nothing_came_in(new_journal, "sqlite", data, "Line 1 .*user's export")


async def test_no_file_can_show_a_trigger(new_journal: NewJournal, kind: str) -> None:
    """What is visible is decided by the message itself, and not by what a line says of it."""
    lines = [json.loads(line) for line in (await told(new_journal)).splitlines()]
    for line in lines:
        for message in line.get("messages", ()):
            message |= {"visible": True, "synthetic": False}
    async with new_journal(kind) as target:
        await take_in(target, sealed(lines))
        for thread in await target.threads.list_of("ada"):
            page = await target.messages.history(thread.id, limit=1_000)
            assert not [m for m in page.messages if m.additional_kwargs.get("synthetic")]
            assert len(page.messages) == thread.message_count


async def test_what_is_here_is_not_overwritten(new_journal: NewJournal, kind: str) -> None:
    """Refused as a whole, or left alone while the rest comes in."""
    async with new_journal(kind) as source, new_journal(kind) as target:
        tale = await (await Tale(source).begin()).tell(["say", "answer", "wish", "remember"])
        early = await full(source)
        await tale.tell(["say", "change_thread", "wish", "say", "answer", "remember"])
        late = await full(source)
        await take_in(target, early)
        with pytest.raises(ConflictError, match=r"line 2: Thread 'blue' exists already"):
            await take_in(target, late)
        assert await full(target) == early
        imported = await take_in(target, late, ImportOptions(skip_existing=True))
        assert imported.skipped == ("blue",)
        assert imported.rows["threads"] == imported.rows["users"] == imported.rows["memories"] == 1
        both = await full(target)
        assert [t.id for t in await target.threads.list_of("Bö")] == ["blue sky"]
        assert len((await target.messages.history("blue")).messages) == 2
        await take_in(target, late, ImportOptions(skip_existing=True))
        assert await full(target) == both


async def test_a_file_from_the_future_is_refused(new_journal: NewJournal, kind: str) -> None:
    """With the line up to which it was read; else one position would date all later messages."""
    data = await told(new_journal)
    async with new_journal(kind) as target:
        empty = await full(target)
        with pytest.raises(UsageError, match=r"line 2: A row of threads .* more than a day"):
            await import_file(
                target, io.BytesIO(data), ImportOptions(), now=START - timedelta(days=2)
            )
        assert await full(target) == empty


async def test_the_same_message_in_two_batches_is_refused(
    new_journal: NewJournal, kind: str
) -> None:
    """An id that is there twice in a thread is found at the latest by the database."""
    lines = [json.loads(line) for line in (await told(new_journal)).splitlines()]
    one, two = [line["messages"][0]["message"]["data"] for line in lines if "messages" in line][:2]
    two["id"] = one["id"]
    async with new_journal(kind) as target:
        empty = await full(target)
        with pytest.raises(ConflictError, match="Up to line"):
            await take_in(target, sealed(lines))
        assert await full(target) == empty


async def test_a_batch_of_another_thread_is_not_taken_over(
    new_journal: NewJournal, kind: str
) -> None:
    """What is here keeps its ids; a copy of it needs others."""
    lines = [json.loads(line) for line in (await told(new_journal)).splitlines()]
    renamed = json.loads(json.dumps(lines).replace('"blue', '"red'))
    async with new_journal(kind) as target:
        await take_in(target, sealed(lines))
        before = await full(target)
        with pytest.raises(ConflictError, match=r"Batch .* another thread"):
            await take_in(target, sealed(renamed))
        assert await full(target) == before


async def test_a_dry_run_says_what_would_happen_and_writes_nothing(
    new_journal: NewJournal, kind: str
) -> None:
    """The same counts and the same refusals as in earnest."""
    data = await told(new_journal)
    async with new_journal(kind) as target:
        empty = await full(target)
        tried = await take_in(target, data, ImportOptions(dry_run=True))
        assert await full(target) == empty
        assert tried == await take_in(target, data)
        with pytest.raises(ConflictError):
            await take_in(target, data, ImportOptions(dry_run=True))

"""Files that are refused: with the line that is wrong, and with nothing written."""

import hashlib
import io
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from segue.core.errors import ConflictError, UsageError
from segue.transfer.importing import Manner, import_file
from segue.transfer.lines import FormatError
from segue.transfer.writing import Scope
from tests.transfer.conftest import NewJournal
from tests.transfer.files import full, of_user, take_in
from tests.transfer.tales import EVERYTHING, START, Tale

pytestmark = pytest.mark.anyio
Lines = list[dict[str, Any]]


def sealed(lines: Lines) -> bytes:
    """The lines with a footer that fits them: wrong in itself, and nowhere damaged."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
    counts: dict[str, int] = {}
    for line in lines[1:-1]:
        counts[line["type"]] = counts.get(line["type"], 0) + 1
        if line["type"] == "batch":
            counts["message"] = counts.get("message", 0) + len(line["messages"])
    footer = {"type": "footer", "counts": counts, "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(footer).encode() + b"\n"


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


WRONG: dict[str, tuple[Callable[[Lines], int], str]] = {
    "a newer version": (_set("header", version=2), "version 2.*newer"),
    "no version": (_set("header", version=None), "version None"),
    "another format": (_set("header", format="zip"), "no header"),
    "an unknown kind": (_set("header", kind="half"), "kind 'half'"),
    "an unknown type": (_set("turn", type="spell"), "'spell'"),
    "an unknown thread": (_set("turn", thread_id="red"), "'red'.*unknown"),
    "a row before its thread": (_orphan, "unknown"),
    "a running turn": (_set("turn", state="running"), "'running'.*queued"),
    "a claimed timer": (_set("timer", state="claimed"), "'claimed'"),
    "a claimed effect": (_set("effect", state="claimed"), "'claimed'"),
    "an id that is a number": (_set("turn", id=12), "19 digits"),
    "an id at the end of the range": (_set("timer", id=f"{2**63 - 1:019d}"), "19 digits"),
    "a time without a zone": (_set("turn", queued_at="2027-01-15 08:00"), "a time such as"),
    "a flag that is a number": (_set("turn", left_open=1), "true or false"),
    "a vector that is none": (_set("memory", embedding="!"), "base64"),
    "a column that is missing": (_drop("turn", "epoch"), "no 'epoch'"),
    "a thread twice": (_repeat("thread"), "second 'blue'"),
    "a turn twice": (_repeat("turn"), "second"),
    "a batch twice": (_repeat("batch"), "second"),
    "a message twice": (_message_twice, "twice"),
    "a message of another batch": (_message_of_another_batch, "another batch"),
    "a message that is none": (_no_message, "cannot be read"),
    "a message without a place": (_unstamped, "cannot be read"),
    "no messages": (_set("batch", messages=[]), "no messages"),
    "another order": (_timer_before_turn, "out of order"),
    "half of a batch archived": (_half_archived, "a part of its batch"),
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


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_file_that_cannot_be_right_is_refused(new_journal: NewJournal, wrong: str) -> None:
    """By the line that is wrong, in words that say what was expected."""
    lines = [json.loads(line) for line in (await told(new_journal)).splitlines()]
    change, words = WRONG[wrong]
    expected = f"Line {change(lines)} .*{words}"
    await assert_nothing_came_in(new_journal, "sqlite", sealed(lines), expected)


async def test_a_value_that_is_nested_too_deeply_is_refused(new_journal: NewJournal) -> None:
    """In words, and not by an error of Python's."""
    lines = [json.loads(line) for line in (await told(new_journal)).splitlines()]
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    lines[first(lines, "turn")]["payload"] = {"answer": deep}
    expected = r"(nested too deeply|Line \d+ is no JSON)"
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
        b"".join([*lines[:4], b"{broken\n", *lines[4:]]): "Line 5 is no JSON",
        b"".join([*lines[:4], b"[]\n", *lines[4:]]): "Line 5 is no object",
        good.replace(b'"counts":{"batch":', b'"counts":{"batch":1', 1): f"Line {last} counts",
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
        monkeypatch.setattr(target, "restore", lambda *rows, **how: begun.append((rows, how)))
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
        for thread in await target.list_threads("ada"):
            page = await target.history(thread.id, limit=1_000)
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
        with pytest.raises(ConflictError, match=r"line 2: Thread 'blue' is here already"):
            await take_in(target, late)
        assert await full(target) == early
        imported = await take_in(target, late, Manner(skip_existing=True))
        assert imported.skipped == ("blue",)
        assert imported.rows["threads"] == imported.rows["users"] == imported.rows["memories"] == 1
        both = await full(target)
        assert [t.id for t in await target.list_threads("Bö")] == ["blue sky"]
        assert len((await target.history("blue")).messages) == 2
        await take_in(target, late, Manner(skip_existing=True))
        assert await full(target) == both


async def test_a_file_from_the_future_is_refused(new_journal: NewJournal, kind: str) -> None:
    """With the line up to which it was read; else one position would date all later messages."""
    data = await told(new_journal)
    async with new_journal(kind) as target:
        empty = await full(target)
        with pytest.raises(UsageError, match=r"line 2: A row of threads .* more than a day"):
            await import_file(target, io.BytesIO(data), Manner(), now=START - timedelta(days=2))
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
    """A batch is looked for by its id alone, so no two threads of an agent may have the same."""
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
        tried = await take_in(target, data, Manner(dry_run=True))
        assert await full(target) == empty
        assert tried == await take_in(target, data)
        with pytest.raises(ConflictError):
            await take_in(target, data, Manner(dry_run=True))

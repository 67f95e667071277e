"""Out of one journal, into another, and out again: the same bytes, and the same conversations."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from segue import stamp, user_message
from segue.journal.memories import MemorySearch
from segue.journal.records import NewTimer, TimerState, TurnState
from segue.journal.tables import MEMORIES, OF_THREAD
from segue.transfer.export import Scope
from segue.transfer.imports import ImportOptions
from segue.transfer.lines import NAMES, TYPES
from tests.journal.stores import ask
from tests.transfer.conftest import NewJournal
from tests.transfer.files import MADE_AT, full, take_in
from tests.transfer.tales import EVERYTHING, LEASE, MOVES, START, Tale, ticking_ids

pytestmark = pytest.mark.anyio


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def lines_without_header(data: bytes) -> list[dict[str, Any]]:
    return lines_of(data)[1:-1]


async def tour(new_journal: NewJournal, moves: list[str], kinds: tuple[str, ...]) -> list[bytes]:
    """Tell a tale in a journal of the first kind, and take it through the others; all exports."""
    exports: list[bytes] = []
    for kind in kinds:
        async with new_journal(kind) as journal:
            if exports:
                await take_in(journal, exports[-1])
            else:
                await (await Tale(journal).begin()).tell(moves)
            exports.append(await full(journal))
    return exports


@pytest.mark.parametrize("kinds", [("sqlite", "postgres", "sqlite"), ("postgres", "sqlite")])
async def test_everything_comes_back_byte_by_byte(
    new_journal: NewJournal, kinds: tuple[str, ...]
) -> None:
    """A tale with something of every kind, through both databases."""
    first, *later = await tour(new_journal, EVERYTHING, kinds)
    assert later == [first] * (len(kinds) - 1)


async def test_the_tale_holds_something_of_every_kind(new_journal: NewJournal, kind: str) -> None:
    """So the tests that take it around would miss whatever an export leaves out."""
    async with new_journal(kind) as journal:
        await (await Tale(journal).begin()).tell(EVERYTHING)
        lines = lines_without_header(await full(journal))
    assert {line["type"] for line in lines} == set(TYPES)
    for table in (*OF_THREAD[1:], MEMORIES):
        for column in table.read:
            values = [li[column.name] for li in lines if li["type"] == NAMES[table.name]]
            assert any(value is not None for value in values), (table.name, column.name)


@pytest.mark.parametrize("kinds", [("sqlite", "postgres", "sqlite"), ("postgres", "sqlite")])
@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(moves=st.lists(st.sampled_from(sorted(MOVES)), min_size=3, max_size=30))
def test_any_history_comes_back_byte_by_byte(
    new_journal: NewJournal, kinds: tuple[str, ...], moves: list[str]
) -> None:
    """Whatever happened, in whatever order, through both databases."""
    first, *later = asyncio.run(tour(new_journal, moves, kinds))
    assert later == [first] * (len(kinds) - 1)


async def test_what_waited_waits_and_what_ran_is_queued(new_journal: NewJournal, kind: str) -> None:
    """Timers come due at their own time, turns are taken up again, and nobody holds anything."""
    async with new_journal(kind) as source, new_journal(kind) as target:
        tale = await (await Tale(source).begin()).tell(["say", "answer", "claim_effects"])
        [armed] = await source.timers.list_of(tale.thread)
        await tale.tell(["change_thread", "say", "take"])
        leased = await source.timers.claim_due("t", now=armed.due_at, lease_for=LEASE)
        assert [lease.timer.id for lease in leased] == [armed.id]
        await take_in(target, await full(source))
        [timer] = await target.timers.list_of("blue")
        assert (timer.state, timer.missed) == (TimerState.PENDING, armed.missed)
        assert await target.timers.next_at() == armed.due_at
        [turn] = await target.turns.list_of(tale.thread)
        assert turn.state is TurnState.QUEUED
        lease = await target.turns.claim_one("other", now=tale.now, lease_for=LEASE)
        assert lease is not None
        assert lease.turn.id == turn.id
        [due] = await target.timers.claim_due("other", now=armed.due_at, lease_for=LEASE)
        assert due.timer.id == armed.id
        [effect] = await target.effects.claim(
            "other", kind="webhook", now=tale.now, lease_for=LEASE
        )
        assert effect.effect.dedupe_key.startswith("reply")


async def test_what_came_in_is_read_found_and_gone_on_with(
    new_journal: NewJournal, kind: str
) -> None:
    """History, search, context, memories and new messages are as they were before."""
    async with new_journal(kind) as source, new_journal(kind) as target:
        tale = await (await Tale(source).begin()).tell(EVERYTHING)
        await take_in(target, await full(source))
        for thread in await source.threads.list_of("ada", with_nested=True):
            assert await target.threads.get(thread.id) == thread
            page = await source.messages.history(thread.id, limit=1_000)
            assert await target.messages.history(thread.id, limit=1_000) == page
            window = await source.messages.window(thread.id, max_tokens=100_000)
            assert await target.messages.window(thread.id, max_tokens=100_000) == window
        found = await source.search.find("ada", "half")
        assert found
        assert await target.search.find("ada", "half") == found
        memories = await source.memories.list_of("guide", "ada")
        assert memories
        assert await target.memories.list_of("guide", "ada") == memories
        sought = MemorySearch("guide", "ada", "pizzas", [0.1, 1 / 3, 1.0], "m")
        known = await source.memories.search(sought)
        assert any(each.text_score for each in known)
        assert any(each.vector_score for each in known)
        assert await target.memories.search(sought) == known
        went_on = Tale(target, ids=ticking_ids(2), now=tale.now, thread=tale.thread)
        await went_on.tell(["say"])
        [newest, *_] = await target.turns.list_of(tale.thread)
        assert newest.id > (await source.threads.get(tale.thread)).last_position


async def test_a_copy_under_new_ids_is_the_same_conversation(
    new_journal: NewJournal, kind: str
) -> None:
    """Beside the original, twice: other ids throughout, in the same order, at the same times."""
    async with new_journal(kind) as journal:
        await (await Tale(journal).begin()).tell(EVERYTHING)
        data = await full(journal)
        options = ImportOptions(ids=ticking_ids(3, MADE_AT), skip_existing=True)
        copies = [(await take_in(journal, data, options)).renamed for _ in range(2)]
        assert not set(copies[0].values()) & set(copies[1].values())
        for renamed in copies:
            assert set(renamed) == {"blue", "blue sky", "blue!", "ölig"}
            for old, new in renamed.items():
                await _assert_same(journal, old, new)
        every = await full(journal, Scope())
        used = [(line["type"], line["id"]) for line in lines_without_header(every) if "id" in line]
        assert len(set(used)) == len(used)
        batches = [li["batch"] for li in lines_without_header(every) if li["type"] == "batch"]
        assert len(set(batches)) == len(batches)


async def test_a_copy_keeps_what_was_given_to_a_follow_up(
    new_journal: NewJournal, kind: str
) -> None:
    """The number of an order, or of a post elsewhere, can look like an id."""
    given = {"data": {"order": "1790000000000000000", "posts": [1790000000000000000]}}
    async with new_journal(kind) as journal:
        tale = await (await Tale(journal).begin()).tell(["say"])
        request = NewTimer("blue", tale.now, "check_in", payload=given, key="program:a")
        await journal.timers.arm(request, ids=tale.ids, now=tale.now)
        options = ImportOptions(ids=ticking_ids(3, MADE_AT))
        copy = await take_in(journal, await full(journal), options)
        [copied] = await journal.timers.list_of(copy.renamed["blue"])
        assert copied.payload == given


async def test_threads_with_equal_ids_come_back(new_journal: NewJournal, kind: str) -> None:
    """Chats that were migrated without times have the ids of one moment."""
    old = stamp([user_message("Hello."), AIMessage("Hi.")], ticking_ids())
    async with new_journal(kind) as source, new_journal(kind) as target:
        for name in ("blue", "red"):
            await source.threads.create(name, agent_id="guide", user_id="ada", now=START)
            await source.messages.import_messages(name, old)
        data = await full(source)
        await take_in(target, data)
        assert await full(target) == data
        copy = await take_in(target, data, ImportOptions(ids=ticking_ids(3, MADE_AT)))
        assert copy.rows["messages"] == 4
        for name in copy.renamed.values():
            assert len((await target.messages.history(name)).messages) == 2


async def _assert_same(journal: Any, old: str, new: str) -> None:
    first, second = [await journal.messages.history(thread, limit=1_000) for thread in (old, new)]
    assert [m.content for m in first.messages] == [m.content for m in second.messages]
    before, after = [
        [m.additional_kwargs["position"] for m in page.messages] for page in (first, second)
    ]
    assert not set(before) & set(after)
    assert sorted(after) == after
    assert all(0 < (b - a) < 1 << 22 for a, b in zip(before, after, strict=True))
    turns, copied = [await journal.turns.list_of(thread) for thread in (old, new)]
    assert [(t.kind, t.epoch) for t in turns] == [(t.kind, t.epoch) for t in copied]
    for turn in copied:
        assert (await journal.messages.load_batch(new, turn.batch)).id == turn.batch
        if turn.ending and "turn" in turn.ending:
            assert turn.ending["turn"] == turn.id
    for decision in await journal.decisions.list_of(new):
        assert decision.facts.get("turn") == decision.turn_id
    assert await journal.effects.list_of(new) == []


async def test_threads_that_are_named_come_with_those_nested_in_them(
    new_journal: NewJournal, kind: str
) -> None:
    """And nothing else: neither other threads nor what belongs to the user."""
    async with new_journal(kind) as source, new_journal(kind) as target:
        await (await Tale(source).begin()).tell(["say", "answer", "ask_agent", *EVERYTHING])
        data = await full(source, Scope(threads=["blue"]))
        lines = lines_without_header(data)
        assert [li["id"] for li in lines if li["type"] == "thread"] == ["blue", "blue/cook"]
        assert not [li for li in lines if li["type"] in {"memory", "preferences"}]
        await take_in(target, data)
        assert await full(target) == data


async def test_one_users_export_holds_no_other_user(new_journal: NewJournal, kind: str) -> None:
    """A full export of one user has their threads, memories and wishes, and nobody else's."""
    async with new_journal(kind) as source:
        await (await Tale(source).begin()).tell(EVERYTHING)
        lines = lines_without_header(await full(source, Scope(user_id="Bö")))
    named = {li["user_id"] for li in lines if "user_id" in li}
    assert named == {"Bö"}
    assert {"thread", "memory", "preferences"} <= {li["type"] for li in lines}


async def test_an_export_is_of_one_moment(new_journal: NewJournal, kind: str) -> None:
    """What is written while it is read is not in it, not even in part."""
    async with new_journal(kind) as journal:
        tale = await (await Tale(journal).begin()).tell(EVERYTHING)
        before = await full(journal)
        async with journal.transfer.snapshot() as rows:
            for table in TYPES.values():
                await rows.read_rows(table, limit=1)
            await tale.tell(["say", "answer", "change_thread", "say", "remember"])
            old = [len(await rows.read_rows(table, limit=10_000)) for table in TYPES.values()]
        new = [
            len(await journal.transfer.read_rows(table, limit=10_000)) for table in TYPES.values()
        ]
        assert sum(old) == len(_rows(before)) < sum(new)


def _rows(data: bytes) -> list[Any]:
    return [
        each
        for line in lines_without_header(data)
        for each in (line["messages"] if line["type"] == "batch" else [line])
    ]


# Only means something where it runs, or follows from the rest.
LEFT_OUT = {
    "threads": {"served_at", "typing_at"},
    "messages": {"id", "rowid", "words", "word_count"},
    "turns": {"owner", "token", "wake_at", "held_at", "partial_id", "partial_text"}
    | {"faults", "worked", "begun_at"},
    "timers": {"owner", "token"},
    "effects": {"owner", "token", "held_at"},
}
COLUMNS = {
    "sqlite": "SELECT name FROM pragma_table_info('{}')",
    # Those that the database makes of others are not in SQLite's answer either.
    "postgres": "SELECT column_name FROM information_schema.columns WHERE table_name = '{}' "
    "AND is_generated = 'NEVER'",
}


async def test_no_column_is_forgotten(new_address: Callable[[str], str], kind: str) -> None:
    """Each column of each table that is transferred comes along, or is left out on purpose."""
    address = new_address(kind)
    for table in TYPES.values():
        known = {column.name for column in table.columns}
        known |= LEFT_OUT.get(table.name, set()) | ({"thread_id"} if table.of_thread else set())
        stored = {name for (name,) in ask(address, COLUMNS[kind].format(table.name))}
        assert stored
        assert stored - known == set(), table.name

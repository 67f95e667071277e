"""Rows as they are: read page by page, as of one moment, and taken in as a whole."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from langchain_core.messages import AIMessage

from segue.errors import ConflictError, NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.journal.memories import MemorySearch, NewMemory
from segue.journal.records import ApiKey, TurnState
from segue.journal.rows import columns_of, decode_message
from segue.journal.tables import (
    MEMORIES,
    MESSAGES,
    OF_THREAD,
    THREADS,
    TURNS,
    USERS,
    Key,
    Row,
    Rows,
    Table,
    Whose,
    all_rows,
    at_rest,
)
from segue.testing.journal_contract.chat import AGENT, HOUR, LEASE, NOW, USER, Chat


async def _all(rows: Rows, table: Table, whose: Whose | None = None) -> list[Row]:
    return [row async for row in all_rows(rows, table, whose or Whose())]


async def _keys(rows: Rows, table: Table, whose: Whose | None = None) -> list[Key]:
    return [table.key_of(row) for row in await _all(rows, table, whose)]


async def _copied(journal: Journal, thread_id: str) -> list[tuple[Table, Row]]:
    """A thread's rows, as they are taken in elsewhere: under another id, after it is gone here."""
    whose = Whose(thread_id=thread_id)
    [thread] = await journal.transfer.read_rows(THREADS, whose)
    copied: list[tuple[Table, Row]] = [(THREADS, thread)]
    for table in OF_THREAD:
        copied += [
            (table, {**_with_columns(table, at_rest(table, row)), "thread_id": thread_id})
            for row in await _all(journal.transfer, table, whose)
        ]
    return copied


def _with_columns(table: Table, row: Row) -> Row:
    """What follows from a message's body is told with it by who restores it."""
    return {**columns_of(decode_message(row["body"])), **row} if table is MESSAGES else row


async def test_rows_come_in_order_whatever_the_page(journal: Journal, chat: Chat) -> None:
    """Each once and none left out, by thread or by user, also in the middle of a batch."""
    for number in range(4):
        await chat.exchange(f"Question {number}?", f"Answer {number}.")
    other = await chat.another("Chat", user_id="bo")
    await other.exchange()
    whose = Whose(thread_id=chat.thread_id)
    every = await _all(journal.transfer, MESSAGES, whose)
    assert [row["sequence_num"] for row in every] == [0, 1] * 4
    paged: list[Row] = []
    while page := await journal.transfer.read_rows(
        MESSAGES, whose, after=MESSAGES.key_of(paged[-1]) if paged else None, limit=3
    ):
        paged += page
    assert paged == every
    assert [row["id"] for row in await _all(journal.transfer, THREADS)] == ["Chat", "chat"]
    assert [row["id"] for row in await _all(journal.transfer, THREADS, Whose(user_id="bo"))] == [
        "Chat"
    ]
    assert len(await _all(journal.transfer, TURNS)) == 5


async def test_a_snapshot_shows_nothing_newer(journal: Journal, chat: Chat) -> None:
    """What is written while a snapshot is read is visible to others, not in the snapshot."""
    await chat.exchange()
    async with journal.transfer.snapshot() as rows:
        before = await _all(rows, MESSAGES)
        await chat.exchange("And tomorrow?", "No.")
        assert await _all(rows, MESSAGES) == before
        assert len(await _all(journal.transfer, MESSAGES)) == len(before) + 2


async def test_rows_are_restored_as_they_were(journal: Journal, chat: Chat) -> None:
    """What was done is done, what waited waits, and what was in hand can be taken up."""
    await chat.exchange("Is it open?", "Yes, until six.")
    await chat.arm(HOUR)
    turn = (await chat.say("And then?")).turn
    await chat.arm(HOUR)
    await chat.take_turn()
    thread = await chat.thread()
    page = await journal.messages.history(chat.thread_id)
    copied = await _copied(journal, chat.thread_id)
    await journal.threads.delete(chat.thread_id)
    restored = await journal.transfer.restore(lambda: copied, now=NOW)
    assert restored.rows == {"threads": 1, "messages": 3, "turns": 2, "timers": 2}
    assert await _copied(journal, chat.thread_id) == copied
    assert await chat.thread() == thread
    assert await journal.messages.history(chat.thread_id) == page
    assert (await journal.search.find(USER, "six"))[0].thread_id == chat.thread_id
    assert (await chat.turn(turn.id)).state is TurnState.QUEUED
    assert (await chat.take_turn()).turn.id == turn.id
    assert await journal.timers.next_at() == NOW + HOUR


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "open"])
async def test_a_message_without_its_turn_is_accepted_once(chat: Chat, answered: bool) -> None:
    """Sent again, it gets a turn: done if it was answered, else one that answers it."""
    first = await chat.say("Is it open?", "m-1")
    if answered:
        await chat.finish(await chat.take_turn(), AIMessage("Yes."))
    copied = [pair for pair in await _copied(chat.journal, chat.thread_id) if pair[0] is not TURNS]
    await chat.journal.threads.delete(chat.thread_id)
    await chat.journal.transfer.restore(lambda: copied, now=NOW)
    again = await chat.say("Is it open?", "m-1")
    assert (again.is_new, again.message) == (False, first.message)
    assert again.turn.batch == first.turn.batch
    assert again.turn.state is (TurnState.DONE if answered else TurnState.QUEUED)
    assert (await chat.say("Is it open?", "m-1")).turn == again.turn
    taken = await chat.next_turn()
    assert (taken and taken.turn.id) == (None if answered else again.turn.id)


async def test_what_is_there_is_refused_or_left_alone(journal: Journal, chat: Chat) -> None:
    """A thread is restored whole or not touched at all."""
    await chat.exchange()
    copied = await _copied(journal, chat.thread_id)
    await chat.say("Something newer.")
    before = [await _all(journal.transfer, table) for table in (THREADS, *OF_THREAD)]
    with pytest.raises(ConflictError, match=chat.thread_id):
        await journal.transfer.restore(lambda: copied, now=NOW)
    restored = await journal.transfer.restore(lambda: copied, now=NOW, skip_existing=True)
    assert restored.skipped == (chat.thread_id,)
    assert restored.rows == {}
    assert [await _all(journal.transfer, table) for table in (THREADS, *OF_THREAD)] == before


@pytest.mark.parametrize("dry_run", [True, False])
async def test_rows_that_end_badly_leave_nothing(chat: Chat, dry_run: bool) -> None:
    """All or nothing, also when it is the last row that cannot be had, or all is but a trial."""
    await chat.exchange()
    copied = await _copied(chat.journal, chat.thread_id)
    await chat.journal.threads.delete(chat.thread_id)

    def rows() -> Iterator[tuple[Table, Row]]:
        yield from copied
        if not dry_run:
            raise NotFoundError("There is no more.")

    if dry_run:
        tried = await chat.journal.transfer.restore(rows, now=NOW, dry_run=True)
        assert tried.rows["messages"] == 2
    else:
        with pytest.raises(NotFoundError, match="no more"):
            await chat.journal.transfer.restore(rows, now=NOW)
    for table in (THREADS, *OF_THREAD):
        assert await _all(chat.journal.transfer, table) == []


async def test_rows_from_the_future_are_refused(journal: Journal, chat: Chat) -> None:
    """An id of another year would date all that its thread gets later; one of today is taken."""
    await chat.exchange()
    copied = await _copied(journal, chat.thread_id)
    await journal.threads.delete(chat.thread_id)
    with pytest.raises(UsageError, match="more than a day from now"):
        await journal.transfer.restore(lambda: copied, now=NOW - timedelta(days=2))
    assert await _all(journal.transfer, THREADS) == []
    restored = await journal.transfer.restore(lambda: copied, now=NOW - timedelta(hours=23))
    assert restored.rows["messages"] == 2


async def test_of_a_deleted_user_nothing_is_left(journal: Journal, chat: Chat) -> None:
    """Threads, nested ones too, memories and wishes are gone; another user's are untouched."""
    other = await chat.another("other", user_id="bo")
    for talk, user in ((chat, USER), (other, "bo")):
        await talk.exchange()
        nested = await talk.another(f"{talk.thread_id}/cook", agent_id="cook", user_id=user)
        await nested.say()
        await journal.turns.claim_one("w", now=NOW, lease_for=LEASE)
        await journal.users.update_settings(user, {"muted": True}, now=NOW)
        fact = NewMemory(AGENT, user, "diet", "No meat.", {}, [1.0, 0.0], "m")
        await journal.memories.put(fact, ids=chat.ids, now=NOW)
        await journal.keys.add(ApiKey(f"key {user}", f"{user}'s", user, True, b"1", NOW))
    tables = (THREADS, USERS, MEMORIES)
    kept = [await _keys(journal.transfer, table, Whose(user_id="bo")) for table in tables]
    deleted = await journal.removal.delete_user(USER)
    counted = {name: count for name, count in deleted.rows.items() if count}
    assert counted == {
        "messages": 3,
        "turns": 2,
        "threads": 2,
        "memories": 1,
        "users": 1,
        "api_keys": 1,
    }
    assert [await _keys(journal.transfer, table) for table in tables] == kept
    assert len((await journal.messages.history("other")).messages) == 2
    # The key is still one, since a server without any would let everyone in; it opens nothing.
    key = await journal.keys.find(f"key {USER}")
    assert key is not None
    assert (key.user_id, key.is_operator, key.digest) == ("", False, b"")
    assert USER not in key.name
    assert sum((await journal.removal.delete_user(USER)).rows.values()) == 0


async def test_a_user_who_comes_back_is_a_new_one(journal: Journal, chat: Chat) -> None:
    """What was remembered before is not found by what is remembered after."""
    for words, vector in (("No meat.", [1.0, 0.0]), ("No fish.", [0.0, 1.0])):
        fact = NewMemory(AGENT, USER, "diet", words, {}, vector, "m")
        stored = await journal.memories.put(fact, ids=chat.ids, now=NOW)
        sought = MemorySearch(AGENT, USER, "", vector, "m", threshold=0.5)
        [found] = await journal.memories.search(sought)
        assert found.memory == stored
        assert found.vector_score == pytest.approx(1.0)
        await journal.removal.delete_user(USER)
    assert await journal.memories.search(sought) == []

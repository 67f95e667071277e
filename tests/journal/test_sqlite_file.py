"""What is special about a journal in a SQLite file: several processes, locks, and no warning."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage

from segue.errors import BackendError
from segue.journal.sqlite import SqliteJournal, database
from segue.testing.journal_contract.chat import Chat, texts
from segue.testing.journal_contract.fixtures import START, anyio_backend, ticking_ids

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SqliteJournal]:
    opened = SqliteJournal(path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def chat(journal: SqliteJournal) -> Chat:
    return await Chat(journal, ticking_ids(), START).begin()


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def ask(path: Path, sql: str, *values: object) -> list[tuple[object, ...]]:
    with raw(path) as connection:
        return connection.execute(sql, values).fetchall()


def content_of(path: Path) -> bytes:
    return path.read_bytes()


async def test_a_file_holds_everything_when_it_is_opened_again(
    path: Path, journal: SqliteJournal, chat: Chat
) -> None:
    """Closing leaves one file, which another process can open or somebody can copy."""
    await chat.exchange("Is it open?", "Yes.")
    await journal.close()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    again = SqliteJournal(path)
    await again.open()
    assert texts((await again.messages.history("chat")).messages) == ["Is it open?", "Yes."]
    await again.close()


async def test_opening_a_file_that_is_up_to_date_changes_nothing(
    path: Path, journal: SqliteJournal
) -> None:
    """A restart is not a migration."""
    await journal.close()
    before = content_of(path)
    again = SqliteJournal(path)
    await again.open()
    await again.close()
    assert content_of(path) == before


@pytest.mark.parametrize("mode", ["wal", "delete"])
async def test_a_newer_schema_is_refused_and_left_alone(
    path: Path, journal: SqliteJournal, mode: str
) -> None:
    """An old program does not touch a file that a newer one wrote."""
    await journal.close()
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute(f"PRAGMA journal_mode = {mode}")
    before = content_of(path)
    old_program = SqliteJournal(path)
    with pytest.raises(BackendError, match=r"schema 99.*nothing was changed"):
        await old_program.open()
    await old_program.close()
    assert content_of(path) == before
    assert ask(path, "PRAGMA user_version") == [(99,)]


@pytest.fixture
def diary(path: Path) -> bytes:
    path.write_bytes(b"Dear diary, " * 500)
    return path.read_bytes()


async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    path: Path, diary: bytes
) -> None:
    """Somebody's notes are not overwritten by a wrong path in the settings."""
    journal = SqliteJournal(path)
    with pytest.raises(BackendError, match="not a database"):
        await journal.open()
    await journal.close()
    assert content_of(path) == diary


LOOKS: dict[str, tuple[Callable[[SqliteJournal], Awaitable[object]], set[str]]] = {
    "events": (
        lambda journal: journal.feed.read("chat"),
        {"messages_visible", "turns_by_end", "turns_one_running"},
    ),
    "count_follow_ups": (
        lambda journal: journal.timers.count_follow_ups("chat", day_began=START),
        {"turns_counted_by_thread", "turns_counted_by_user"},
    ),
    "list_effects": (lambda journal: journal.effects.list_of("chat"), {"effects_by_thread"}),
    "next_effect_at": (
        lambda journal: journal.effects.next_at("webhook", now=START),
        {"effects_by_kind", "effects_claimed"},
    ),
}


@pytest.mark.parametrize("step", LOOKS)
async def test_a_look_costs_what_it_finds(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What listeners and workers ask all the time is found by an index, and not sorted."""
    said: list[str] = []
    monkeypatch.setattr(database, "_READERS", 1)
    journal = SqliteJournal(path)
    await journal.open()
    await Chat(journal, ticking_ids(), START).begin()
    look, indices = LOOKS[step]
    for single in (False, True):
        await journal.db.read(lambda db: db.set_trace_callback(said.append), single=single)
    await look(journal)
    await journal.close()
    looks = [sql for sql in said if sql.startswith("SELECT")]
    plan = [str(row[-1]) for sql in looks for row in ask(path, f"EXPLAIN QUERY PLAN {sql}")]
    # A list that is asked for is scanned, but no table is.
    scans = [line for line in plan if "SCAN" in line and "CONSTANT" not in line]
    assert not [line for line in scans if "json_each" not in line]
    assert not [line for line in plan if "TEMP" in line]
    assert {index for index in indices if any(index in line for line in plan)} == indices


async def test_looking_up_a_caller_does_not_wait_for_long_reads(
    journal: SqliteJournal, chat: Chat
) -> None:
    """However many pages of pictures others read at that time."""
    end = threading.Event()
    long = [asyncio.create_task(journal.db.read(lambda _: end.wait())) for _ in range(20)]
    try:
        async with asyncio.timeout(20):
            await journal.users.get_settings("ann")
            await journal.keys.find("none")
            assert (await journal.threads.get(chat.thread_id)).id == chat.thread_id
        assert not any(task.done() for task in long)
    finally:
        end.set()
        await asyncio.gather(*long)


async def test_a_locked_file_is_a_backend_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits too long for another writer is told so, has written nothing, and can read."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    journal = SqliteJournal(path)
    await journal.open()
    chat = await Chat(journal, ticking_ids(), START).begin()
    with raw(path) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendError, match=r"locked.*Nothing was written"):
            await chat.say()
        assert await chat.messages() == []
    await chat.say()
    assert texts(await chat.messages()) == ["Is it open?"]
    await journal.close()


async def test_a_writer_waits_for_another_process(path: Path, chat: Chat) -> None:
    """A lock that is given back in time is no error."""
    with raw(path) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(chat.say())
        await chat.messages()
        assert not waiting.done()
        blocker.execute("ROLLBACK")
        assert (await waiting).is_new


async def test_a_full_disk_leaves_nothing_half_written(journal: SqliteJournal, chat: Chat) -> None:
    """A step that finds no room is undone whole, and works again when there is room."""
    await chat.exchange("Is it open?", "Yes.")
    timer = await chat.arm()
    before = await journal.threads.get("chat")
    await journal.db.write(lambda db: db.execute("PRAGMA max_page_count = 1").fetchone())
    with pytest.raises(BackendError, match=r"full.*Nothing was written"):
        await chat.say("word " * 100_000)
    assert await journal.threads.get("chat") == before
    assert await journal.timers.list_of("chat") == [timer]
    assert texts(await chat.messages()) == ["Is it open?", "Yes."]
    assert len(await journal.turns.list_of("chat")) == 1
    await journal.db.write(lambda db: db.execute("PRAGMA max_page_count = 100000").fetchone())
    assert (await chat.say("word " * 100_000)).cancelled_timers == (timer.id,)


async def test_a_step_is_undone_if_its_process_fails_inside(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in our own code leaves no half of a step either, and the next step works."""
    await chat.say()
    lease = await chat.take_turn()

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("segue.journal.turns.effect_inserts", broken)
        with pytest.raises(ZeroDivisionError):
            await chat.finish(lease, AIMessage("Yes."))
    assert texts(await chat.messages()) == ["Is it open?"]
    await chat.finish(lease, AIMessage("Yes."))

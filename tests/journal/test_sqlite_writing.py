"""The writer of a SQLite file: steps that wait at the same time share a transaction."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path

import pytest

from segue.errors import BackendError, ConflictError, UsageError
from segue.journal.sqlite.database import Database, Step

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "segue.db")
    await database.open()
    await database.write(lambda db: db.execute("CREATE TABLE notes (word TEXT UNIQUE)"))
    yield database
    await database.close()


def adding(word: str, then: Callable[[], None] = lambda: None) -> Step[str]:
    def step(db: sqlite3.Connection) -> str:
        db.execute("INSERT INTO notes VALUES (?)", (word,))
        then()
        return word

    return step


def words(database: Database) -> list[str]:
    with closing(sqlite3.connect(database.path)) as db:
        return [word for (word,) in db.execute("SELECT word FROM notes ORDER BY rowid")]


async def test_steps_that_wait_together_are_committed_together(database: Database) -> None:
    """Until the last of them is done, nobody else sees the first; each gets its own result."""
    seen: list[list[str]] = []
    names = [f"word-{number}" for number in range(10)]
    steps = [adding(name, lambda: seen.append(words(database))) for name in names]
    assert await asyncio.gather(*map(database.write, steps)) == names
    assert seen == [[]] * 10
    assert words(database) == names


async def test_a_step_that_fails_takes_no_other_with_it(database: Database) -> None:
    """The others are written, and only its own caller hears of it."""
    steps = [adding("one"), adding("two"), adding("one"), adding("three")]
    results = await asyncio.gather(*map(database.write, steps), return_exceptions=True)
    assert [results[0], results[1], results[3]] == ["one", "two", "three"]
    assert isinstance(results[2], ConflictError)
    assert words(database) == ["one", "two", "three"]


async def test_nothing_is_left_of_a_step_that_fails_late(database: Database) -> None:
    """What it wrote before is taken back, also where others shared its transaction."""

    def fail() -> None:
        raise ConflictError("No.")

    steps = [adding("one"), adding("half", fail), adding("two")]
    await asyncio.gather(*map(database.write, steps), return_exceptions=True)
    assert words(database) == ["one", "two"]


async def test_a_locked_file_fails_all_that_wait_at_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not wait for the lock one after the other."""
    begun: list[str] = []
    together = Database._in_transaction

    def counted(self: Database, mode: str, step: Step[object]) -> object:
        begun.append(mode)
        return together(self, mode, step)

    await database.write(lambda db: db.execute("PRAGMA busy_timeout = 20"))
    monkeypatch.setattr(Database, "_in_transaction", counted)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        steps = [adding(f"word-{number}") for number in range(5)]
        results = await asyncio.gather(*map(database.write, steps), return_exceptions=True)
    assert [type(result) for result in results] == [BackendError] * 5
    assert begun == ["IMMEDIATE"]


@pytest.mark.parametrize(
    "error", [GeneratorExit, StopIteration, asyncio.CancelledError, SystemExit]
)
async def test_whatever_a_step_raises_stops_nobody_else(
    database: Database, error: type[BaseException]
) -> None:
    """Its caller is told, the others are written, and the writer goes on."""

    def fail() -> None:
        raise error

    steps = [adding("one"), adding("half", fail), adding("two")]
    results = await asyncio.gather(*map(database.write, steps), return_exceptions=True)
    assert [results[0], type(results[1]), results[2]] == ["one", BackendError, "two"]
    assert await database.write(adding("three")) == "three"
    assert words(database) == ["one", "two", "three"]


async def test_a_step_runs_in_the_context_of_who_asked_for_it(database: Database) -> None:
    """Also if another one's step takes it along, so that its log lines say for whom they are."""
    name: ContextVar[str] = ContextVar("name")

    async def asked_by(who: str) -> str:
        name.set(who)
        return await database.write(lambda _: name.get())

    assert await asyncio.gather(*map(asked_by, ("ada", "bob", "eve"))) == ["ada", "bob", "eve"]


async def test_a_step_that_nobody_waits_for_any_more_is_not_begun(database: Database) -> None:
    """It was cancelled while it waited for the writer."""
    task = asyncio.create_task(database.write(adding("cancelled")))
    await asyncio.sleep(0)
    task.cancel()
    await database.write(adding("kept"))
    assert words(database) == ["kept"]


async def test_closing_lets_what_waits_be_written(database: Database) -> None:
    """Closing refuses new steps, not those that were accepted."""
    writing = asyncio.create_task(database.write(adding("last")))
    await asyncio.sleep(0)
    await database.close()
    assert await writing == "last"
    assert words(database) == ["last"]


@pytest.mark.parametrize(
    "use",
    [
        lambda database: database.write(adding("elsewhere")),
        lambda database: database.read(lambda _: None),
        Database.changes_by_others,
        Database.open,
        Database.close,
    ],
)
async def test_a_second_event_loop_is_refused(
    database: Database, use: Callable[[Database], Coroutine[None, None, object]]
) -> None:
    """It is told to open a journal of its own; the first one goes on as if nothing had been."""
    with pytest.raises(UsageError, match="belongs to another event loop; open one for each"):
        await asyncio.to_thread(lambda: asyncio.run(use(database)))
    assert await database.write(adding("here")) == "here"
    assert words(database) == ["here"]


def test_event_loops_one_after_the_other_may_share_a_file(tmp_path: Path) -> None:
    """A script that calls `asyncio.run` for each of its steps is not refused."""
    database = Database(tmp_path / "segue.db")
    asyncio.run(database.open())
    asyncio.run(database.write(lambda db: db.execute("CREATE TABLE notes (word TEXT UNIQUE)")))
    assert asyncio.run(database.write(adding("later"))) == "later"
    asyncio.run(database.close())
    assert words(database) == ["later"]

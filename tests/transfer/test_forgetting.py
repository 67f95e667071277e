"""A user who is deleted: nothing of them is left in any table, and others have all of theirs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from segue.events import QuestionAsked
from segue.journal.memories import NewMemory
from segue.journal.registry import PushSubscription
from segue.server.auth import new_key
from segue.simulate.world import Stage, World
from tests.journal.stores import change
from tests.runtime.scenes import Held, lines
from tests.stories.scenes import PATIENCE, listening
from tests.stories.test_questions import ask_for_a_table, waiter

pytestmark = pytest.mark.anyio

# One word, so that an index of words holds it as it is.
CANARY = "xylocanary"
CHECKPOINTS = {"checkpoints", "writes", "checkpoint_blobs", "checkpoint_writes"}


def everything_in(database: str) -> Iterator[tuple[str, Any]]:
    """Every value of every table, checkpoints' too, with the table that it is in."""
    if not database.startswith("postgres") and Path(database).is_dir():
        for path in Path(database).glob("*.db"):
            with closing(sqlite3.connect(path)) as connection:
                names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                for (name,) in names.fetchall():
                    yield from _values(name, connection.execute(f"SELECT * FROM {name}"))  # noqa: S608 - ours
        return
    listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    with psycopg.connect(database) as connected:
        for (name,) in connected.execute(listed).fetchall():
            rows = connected.execute(f"SELECT * FROM {name}".encode())  # noqa: S608 - same
            yield from _values(name, rows)


def journal_of(database: str) -> str:
    """The journal's file or server."""
    file = Path(database) / "journal.db"
    return str(file) if file.exists() else database


def _values(name: str, rows: Any) -> Iterator[tuple[str, Any]]:
    return ((name, value) for row in rows for value in row if value is not None)


def tables_with(database: str, word: str) -> set[str]:
    """Which tables hold a word, as text or in bytes."""
    return {
        name
        for name, value in everything_in(database)
        if word.encode() in (value if isinstance(value, bytes) else str(value).encode())
    }


def files_with(database: str, word: str) -> list[str]:
    """Which files of a SQLite folder hold a word, be it in what is free to be overwritten."""
    folder = Path(database)
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path.name for path in files if word.encode() in path.read_bytes()]


async def live(world: World, user: str, word: str) -> str:
    """A user with a thread, a follow-up, a question that waits, a memory, wishes and a key."""
    thread = (await world.segue.create_thread(user)).id
    await world.say(thread, f"My {word} is blue.")
    await world.pass_time(PATIENCE)
    async with listening(world, thread) as listener:
        await ask_for_a_table(world, listener, thread)
    assert [event for event in listener.events if isinstance(event, QuestionAsked)]
    parts = world.system.deps
    now = world.clock.now()
    fact = NewMemory("guide", user, word, f"Has a {word}.", {"of": word}, [1.0, 0.5], "m")
    await parts.journal.memories.put(fact, ids=parts.ids, now=now)
    await world.segue.set_user_preferences(user, time_zone="Europe/Oslo")
    await world.segue.set_thread_preferences(thread, muted=True)
    await parts.journal.keys.add(new_key(f"{user}'s phone", user, now)[0])
    endpoint = f"https://push.example.org/{word}"
    phone = PushSubscription(parts.ids.next(), user, endpoint, word.encode(), b"auth", now)
    await parts.journal.push.subscribe(phone, limit=5)
    return thread


async def test_of_a_deleted_user_no_word_is_left_anywhere(stage: Stage) -> None:
    """In no column of any table, be it text or bytes; what another said stays."""
    async with stage.world(waiter()) as world:
        await live(world, f"user-{CANARY}", CANARY)
        kept = await live(world, "bob", "marimba")
        before = await world.heard(kept)
        deleted = await world.segue.delete_user(f"user-{CANARY}")
        # At once, and not when the last process lets go of the file.
        assert files_with(stage.database, CANARY) == []
        assert {name for name, count in deleted.rows.items() if count} >= {
            *("threads", "messages", "turns", "memories", "users", "api_keys"),
            "push_subscriptions",
        }
        assert await world.heard(kept) == before
        with pytest.raises(LookupError):
            [_ async for _ in world.segue.listen(kept + "0")]
    assert tables_with(stage.database, CANARY) == set()
    assert files_with(stage.database, CANARY) == []
    assert tables_with(stage.database, "marimba") > {"messages", "memories"}


async def test_of_a_deleted_thread_no_word_is_left_anywhere(stage: Stage) -> None:
    """In no table and in no file, while the server still runs; memories are the user's."""
    async with stage.world(waiter()) as world:
        thread = await live(world, "ann", "marimba")
        await world.say(thread, f"A table for my {CANARY}, please.")  # a question waits again
        assert tables_with(stage.database, CANARY) & CHECKPOINTS
        await world.segue.delete_thread(thread)
        assert files_with(stage.database, CANARY) == []
        assert tables_with(stage.database, CANARY) == set()
        assert tables_with(stage.database, "marimba") >= {"memories"}


async def test_the_search_for_what_is_left_would_find_it(stage: Stage) -> None:
    """The canary is in all places that hold something of a user, checkpoints too."""
    async with stage.world(waiter()) as world:
        await live(world, f"user-{CANARY}", CANARY)
    found = tables_with(stage.database, CANARY)
    assert found >= {
        *("threads", "messages", "turns", "timers", "memories", "memory_words", "users"),
        *("api_keys", "push_subscriptions"),
    }
    assert found & CHECKPOINTS


async def test_a_user_with_damaged_rows_can_be_deleted(stage: Stage) -> None:
    """What cannot be read is counted and deleted like the rest."""
    async with stage.world() as world:
        thread = (await world.segue.create_thread("ann")).id
        await world.say(thread, f"My {CANARY} is blue.")
        damage = "UPDATE threads SET settings = '{'; UPDATE messages SET body = '{'"
        change(journal_of(stage.database), damage)
        counted = await world.journal.removal.count_user("ann")
        deleted = await world.segue.delete_user("ann")
        assert deleted == counted
        assert (deleted.rows["threads"], deleted.rows["messages"]) == (1, 2)
    assert tables_with(stage.database, CANARY) == set()


async def test_what_the_agent_does_for_a_deleted_user_comes_to_nothing(stage: Stage) -> None:
    """No follow-up comes any more, and who was deleted can begin anew."""
    async with stage.world(waiter()) as world:
        thread = (await world.segue.create_thread("ann")).id
        await world.say(thread, "Hello.")
        assert [timer.state.value for timer in await world.segue.list_follow_ups(thread)] == [
            "pending"
        ]
        await world.segue.delete_user("ann")
        await world.pass_time(PATIENCE * 3)
        assert await world.segue.list_threads("ann") == []
        again = (await world.segue.create_thread("ann")).id
        await world.say(again, "Hello again.")
        assert await world.heard(again) == ["Hello again.", "You said: Hello again."]


async def test_a_user_can_be_deleted_while_the_agent_writes_to_them(stage: Stage) -> None:
    """What it was about to say is not stored any more, in no table."""
    held = Held(f"Your {CANARY} is safe with me.")
    async with stage.world(models={"guide": lines(held)}) as world:
        thread = (await world.segue.create_thread("ann")).id
        await world.segue.send(thread, f"Here is my {CANARY}.")
        await held.asked.wait()
        await world.segue.delete_user("ann")
        held.go.set()
        await world.clock.settle()
        assert await world.segue.list_threads("ann") == []
    assert tables_with(stage.database, CANARY) == set()

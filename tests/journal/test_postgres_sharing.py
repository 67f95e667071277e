"""What is special about a PostgreSQL that processes share: locks, and words between them."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress

import pytest
from psycopg.conninfo import make_conninfo

from segue.core.messages import synthetic_message
from segue.errors import BackendError, ConflictError
from segue.insight.stats import build_query, stats
from segue.journal import postgres
from segue.journal.postgres import Listeners, PostgresJournal, database
from segue.journal.records import Hint, Turn, nested_id
from segue.testing.journal_contract.chat import LEASE, USER, Chat, texts
from segue.testing.journal_contract.fixtures import START, anyio_backend, ticking_ids
from segue.testing.postgres import PostgresServer
from tests.journal.stores import ask, change
from tests.journal.test_postgres_server import holding, until

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

PATIENCE = 60.0
THIS_THREAD = "SELECT * FROM threads WHERE id = 'chat' FOR UPDATE"
THE_FEED = "SELECT * FROM feeds FOR UPDATE"
LISTENING = "FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"


@pytest.fixture
def dsn(server: PostgresServer) -> str:
    return server.create_database()


@pytest.fixture
async def chat(dsn: str) -> AsyncIterator[Chat]:
    async with opened(dsn) as journal:
        yield await Chat(journal, ticking_ids(), START).begin()


@pytest.fixture
async def elsewhere(dsn: str) -> AsyncIterator[PostgresJournal]:
    """The same store in another process."""
    async with opened(dsn) as journal:
        yield journal


@asynccontextmanager
async def opened(dsn: str, pool_size: int = 4) -> AsyncIterator[PostgresJournal]:
    journal = PostgresJournal(dsn, pool_size=pool_size)
    await journal.open()
    yield journal
    await journal.close()


async def counted_fires(*chats: Chat) -> list[Coroutine[None, None, Turn | None]]:
    """Steps that fire a follow-up in each thread, each on what was counted before all of them."""
    steps = []
    for own in chats:
        counted = await own.journal.timers.count_follow_ups(own.thread_id, day_began=START)
        await own.arm()
        lease = await own.take_timer()
        message = synthetic_message("check_in")
        steps.append(
            own.journal.timers.fire(lease, message, ids=own.ids, now=START, counted=counted)
        )
    return steps


async def test_of_two_follow_ups_on_one_count_one_gets_through(
    dsn: str, chat: Chat, elsewhere: PostgresJournal
) -> None:
    """Two processes that fire timers of two threads of a user cannot both be within the limit."""
    other = await Chat(elsewhere, ticking_ids(node=2), START, "second").begin()
    steps = await counted_fires(chat, other)
    with holding(dsn, THE_FEED) as blocker:
        firing = asyncio.gather(*steps, return_exceptions=True)
        await until(dsn, "count(*) = 2 FROM pg_locks WHERE NOT granted")
        blocker.rollback()
        results = await firing
    fired = [result for result in results if isinstance(result, Turn)]
    [refused] = [result for result in results if isinstance(result, ConflictError)]
    assert len(fired) == 1
    assert "got another follow-up" in str(refused)
    assert ask(dsn, "SELECT count(*) FROM turns") == [(1,)]


async def test_users_do_not_wait_for_each_other(chat: Chat, elsewhere: PostgresJournal) -> None:
    """Follow-ups of two users are counted apart, and fire at once."""
    grace = Chat(elsewhere, ticking_ids(node=2), START, "second")
    other = await grace.begin(user_id="grace")
    results = await asyncio.gather(*await counted_fires(chat, other))
    assert [type(result) for result in results] == [Turn, Turn]


async def test_a_thread_that_is_begun_while_its_user_is_deleted_can_be_written_to(
    dsn: str, chat: Chat, elsewhere: PostgresJournal
) -> None:
    """It was begun after the deletion had looked for threads, so it stays, with its feed."""
    await chat.say()
    with holding(dsn, "SELECT * FROM messages FOR UPDATE") as blocker:
        deleting = asyncio.create_task(chat.journal.removal.delete_user(USER))
        await until(dsn, "count(*) > 0 FROM pg_locks WHERE NOT granted")
        late = await Chat(elsewhere, ticking_ids(node=2), START, "late").begin()
        blocker.rollback()
        await deleting
    assert (await late.say()).is_new
    page = await elsewhere.feed.read_user(USER)
    assert {event.thread_id for event in page.events} == {"late"}


async def test_retention_waits_for_a_thread_in_which_agents_ask(dsn: str, chat: Chat) -> None:
    """Its entry follows what is there once nobody else writes to it."""
    asking = await chat.exchange()
    await chat.exchange()
    clerk = await chat.another(nested_id("chat", "clerk"), agent_id="clerk")
    for parent in (asking, None):
        await clerk.say(parent_batch=parent, source_agent_id="guide")
        await clerk.reply()
    with holding(dsn, "SELECT * FROM threads WHERE id = 'chat/clerk' FOR UPDATE") as blocker:
        removing = asyncio.create_task(chat.journal.removal.remove_batches("chat", [asking]))
        await until(dsn, "count(*) = 1 FROM pg_locks WHERE NOT granted")
        blocker.execute("UPDATE messages SET visible = false WHERE role = 'ai'")
        blocker.commit()
        await removing
    assert (await clerk.thread()).message_count == 1


async def test_wishes_with_a_reason_wait_for_the_thread_first(dsn: str, chat: Chat) -> None:
    """A message that changes them holds the thread, and would wait for the user in a deadlock."""
    users = chat.journal.users
    await users.update_settings(USER, {"muted": False}, now=START)
    with holding(dsn, THIS_THREAD) as blocker:
        changing = asyncio.create_task(
            users.update_settings(USER, {"muted": True}, now=START, decisions=[chat.decision()])
        )
        await until(dsn, "count(*) = 1 FROM pg_locks WHERE NOT granted")
        blocker.execute("SELECT * FROM users FOR UPDATE NOWAIT")
        blocker.rollback()
        assert await changing == {"muted": True}


async def test_a_partial_text_waits_for_nobody(dsn: str, chat: Chat) -> None:
    """While another step holds the thread, the text so far goes on reaching listeners."""
    await chat.say()
    lease = await chat.take_turn()
    with holding(dsn, THIS_THREAD):
        async with asyncio.timeout(PATIENCE):
            await chat.journal.turns.save_draft(lease, "reply-1", "Until s")
            partial = (await chat.journal.feed.read("chat")).drafts.get("chat")
    assert partial is not None
    assert partial.text == "Until s"


async def test_writers_of_a_held_thread_do_not_stop_all_others(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They give up and say so, and their connections serve other threads before those give up."""
    monkeypatch.delenv("PGOPTIONS")  # its own lock_timeout would be kept
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.2)
    async with opened(dsn, pool_size=2) as journal:
        chat = await Chat(journal, ticking_ids(), START).begin()
        other = await chat.another("second")
        with holding(dsn, THIS_THREAD):
            waiting = [asyncio.create_task(chat.say()) for _ in range(4)]
            await asyncio.sleep(0)  # they ask for a connection before the other thread does
            assert (await other.say()).is_new
            for refused in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(refused, BackendError)
                assert "lock_timeout. Nothing was written" in str(refused)
        assert texts(await chat.messages()) == []
        assert (await chat.say()).is_new


async def test_counting_outcomes_leaves_connections_to_users(dsn: str) -> None:
    """However long it takes, it uses one at a time."""
    async with opened(dsn, pool_size=2) as journal:
        await Chat(journal, ticking_ids(), START).begin()
        with holding(dsn, "LOCK TABLE turns IN ACCESS EXCLUSIVE MODE"):
            counting = asyncio.create_task(stats(journal, build_query(START)))
            await until(dsn, "count(*) > 0 FROM pg_locks WHERE NOT granted")
            assert await journal.users.get_settings(USER) == {}
            assert not counting.done()
        assert (await counting).outcomes == ()


async def test_what_one_process_writes_another_hears(
    chat: Chat, elsewhere: PostgresJournal
) -> None:
    """A watcher is told of the thread, and first that something may have been before."""
    async with asyncio.timeout(PATIENCE), aclosing(elsewhere.watch()) as words:
        assert await anext(words) == Hint()
        await chat.say()
        assert await anext(words) == Hint("chat", USER)
        lease = await chat.take_turn()
        await chat.journal.turns.save_draft(lease, "reply-1", "Until s")
        assert await anext(words) == Hint("chat", USER)


async def test_a_step_that_fails_is_not_heard(chat: Chat, elsewhere: PostgresJournal) -> None:
    """What was not written is nothing to look for."""
    second = await chat.another("second")
    stale = await second.say()
    lease = await chat.journal.turns.claim_one("worker-a", now=START, lease_for=LEASE)
    assert lease is not None
    await chat.journal.turns.release(lease, now=START)
    async with asyncio.timeout(PATIENCE), aclosing(elsewhere.watch()) as words:
        assert await anext(words) == Hint()
        with pytest.raises(ConflictError, match=str(stale.turn.id)):
            await chat.journal.turns.release(lease, now=START)
        await chat.say()
        assert await anext(words) == Hint("chat", USER)


async def test_a_thread_with_a_very_long_name_is_heard_as_any(
    chat: Chat, elsewhere: PostgresJournal
) -> None:
    """A notification holds 8000 bytes; a longer name must not keep a message from being stored."""
    async with asyncio.timeout(PATIENCE), aclosing(elsewhere.watch()) as words:
        assert await anext(words) == Hint()
        assert (await (await chat.another("x" * 9000)).say()).is_new
        assert await anext(words) == Hint()


async def test_a_watcher_comes_back_after_its_connection_broke(
    dsn: str, chat: Chat, elsewhere: PostgresJournal
) -> None:
    """It says that something may have been missed, and hears again."""
    async with asyncio.timeout(PATIENCE), aclosing(elsewhere.watch()) as words:
        assert await anext(words) == Hint()
        change(dsn, f"SELECT pg_terminate_backend(pid) {LISTENING}")
        assert await anext(words) == Hint()
        await chat.say()
        assert await anext(words) == Hint("chat", USER)


async def test_closing_the_journal_ends_all_watching(dsn: str) -> None:
    """One who waits is sent away, one who looks elsewhere finds the end, and no trace is left."""
    tasks = asyncio.all_tasks()
    async with asyncio.timeout(PATIENCE), opened(dsn) as journal:
        waiting, idle = journal.watch(), journal.watch()
        assert [await anext(waiting), await anext(idle)] == [Hint(), Hint()]
        wait = asyncio.create_task(anext(waiting, "the end"))
        await asyncio.sleep(0.05)
        await journal.close()
        assert await wait == "the end"
        assert ask(dsn, f"SELECT count(*) {LISTENING}") == [(0,)]
        assert await anext(idle, "the end") == "the end"
        assert await anext(journal.watch(), "the end") == "the end"
    assert asyncio.all_tasks() == tasks


@pytest.mark.parametrize("waits", [True, False])
async def test_a_watcher_that_stops_leaves_nothing_behind(dsn: str, waits: bool) -> None:
    """Its connection and its tasks go with it, whether it was cancelled or closed."""
    async with asyncio.timeout(PATIENCE), opened(dsn) as journal:
        words = journal.watch()
        assert await anext(words) == Hint()
        if waits:
            wait = asyncio.create_task(anext(words, None))
            await asyncio.sleep(0.05)
            assert "_heard" in names_of_tasks()
            wait.cancel()
            with suppress(asyncio.CancelledError):
                await wait
        await words.aclose()
        await until(dsn, f"count(*) = 0 {LISTENING}")
        assert "_heard" not in names_of_tasks()


def names_of_tasks() -> set[str]:
    return {getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()}


async def test_a_watcher_without_a_server_can_be_closed(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two tries to connect it still hears that the journal is closed."""
    monkeypatch.setattr(postgres, "_FIRST_PAUSE", 10 * PATIENCE)
    listeners = Listeners(make_conninfo(dsn, port=1))
    listeners.open()
    wait = asyncio.create_task(anext(listeners.watch(), "the end"))
    await asyncio.sleep(0.05)
    await listeners.close()
    async with asyncio.timeout(PATIENCE):
        assert await wait == "the end"

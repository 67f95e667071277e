"""What is special about a journal on a PostgreSQL server: it can go away, say no, or be full."""

import asyncio
import logging
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from segue.errors import BackendError
from segue.journal.postgres import PostgresJournal, database
from segue.testing.journal_contract.chat import Chat, texts
from segue.testing.journal_contract.fixtures import START, anyio_backend, ticking_ids
from segue.testing.postgres import PostgresServer
from tests.journal.stores import ask, change

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

PATIENCE = 60.0
QUESTION = "Is it open?"
PASSWORD = "s3cret-words"  # noqa: S105 - of a role that lives for one test


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that may be killed, and that wants a password of the role `app`."""
    data = tmp_path_factory.mktemp("postgres") / "data"
    with PostgresServer.start(data) as server:
        if server.pid is None:
            pytest.skip("This server is not ours to kill.")
        rules = data / "pg_hba.conf"
        rules.write_text(f"host all app all scram-sha-256\n{rules.read_text()}")
        server.restart()
        yield server


@pytest.fixture
def dsn(request: pytest.FixtureRequest) -> str:
    """A new database, on the mortal server if the test has one."""
    name = "mortal" if "mortal" in request.fixturenames else "server"
    server: PostgresServer = request.getfixturevalue(name)
    return server.create_database()


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[PostgresJournal]:
    async with opened(dsn) as journal:
        yield journal


@pytest.fixture
async def chat(journal: PostgresJournal) -> Chat:
    return await Chat(journal, ticking_ids(), START).begin()


@asynccontextmanager
async def opened(dsn: str, pool_size: int = 2) -> AsyncIterator[PostgresJournal]:
    journal = PostgresJournal(dsn, pool_size=pool_size)
    await journal.open()
    yield journal
    await journal.close()


def content_of(dsn: str) -> dict[str, list[Any]]:
    """Every row of every table."""
    tables = ask(
        dsn, "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname !~ '^(pg|sql)_'"
    )
    return {name: ask(dsn, f"SELECT t::text FROM {name} AS t ORDER BY 1") for (name,) in tables}  # noqa: S608 - our own names


async def until(dsn: str, fact: str) -> None:
    """Wait until the server says that it is so."""
    for _ in range(3_000):
        if ask(dsn, f"SELECT {fact}")[0][0]:
            return
        await asyncio.sleep(0.01)
    raise TimeoutError(fact)


@contextmanager
def holding(dsn: str, lock: str) -> Iterator[psycopg.Connection]:
    """Another session that holds a lock until the end, or until it is rolled back."""
    with closing(psycopg.connect(dsn)) as session:
        session.execute(lock)
        yield session


THE_THREAD = "SELECT * FROM threads FOR UPDATE"
THE_TURNS = "LOCK TABLE turns IN ACCESS EXCLUSIVE MODE"
WAITS_FOR_A_LOCK = "count(*) > 0 FROM pg_locks WHERE NOT granted"
WAITS_IN_ITS_COMMIT = "count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


async def test_a_server_that_is_away_is_a_backend_error(
    mortal: PostgresServer, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step says that nothing was written, and the same journal goes on when it is back."""
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.2)
    async with opened(dsn) as journal:
        chat = await Chat(journal, ticking_ids(), START).begin()
        mortal.kill()
        for step in (chat.say(), chat.messages()):
            with pytest.raises(BackendError, match=r"no connection within .* Nothing was written"):
                await step
        mortal.restart()
        journal.db._pool.timeout = PATIENCE
        assert (await chat.say()).is_new
        assert texts(await chat.messages()) == [QUESTION]


async def test_a_restart_between_two_steps_is_not_noticed(
    mortal: PostgresServer, chat: Chat
) -> None:
    """Connections that it broke are not handed to a step."""
    mortal.restart()
    assert (await chat.say()).is_new


async def test_a_server_killed_in_the_middle_of_a_step_has_written_nothing(
    mortal: PostgresServer, dsn: str, chat: Chat
) -> None:
    """The step says so, and can be repeated as soon as the server is back."""
    before = content_of(dsn)
    with holding(dsn, THE_THREAD):
        step = asyncio.create_task(chat.say())
        await until(dsn, WAITS_FOR_A_LOCK)
        mortal.kill()
        with pytest.raises(BackendError, match="Nothing was written"):
            await step
        mortal.restart()
    assert content_of(dsn) == before
    assert (await chat.say()).is_new


async def test_a_server_killed_at_the_commit_leaves_a_question(
    mortal: PostgresServer, dsn: str, chat: Chat
) -> None:
    """The step says that it is not known; here it was written, and repeating it changes nothing."""
    # A commit that waits for a standby which never comes is on disk already.
    change(dsn, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    mortal.restart()
    step = asyncio.create_task(chat.say(client_message_id="question-1"))
    await until(dsn, WAITS_IN_ITS_COMMIT)
    change(dsn, "ALTER SYSTEM RESET synchronous_standby_names")
    mortal.kill()
    with pytest.raises(BackendError, match=r"not known .* Look before you repeat it"):
        await step
    mortal.restart()
    assert texts(await chat.messages()) == [QUESTION]
    assert not (await chat.say(client_message_id="question-1")).is_new
    assert texts(await chat.messages()) == [QUESTION]


async def test_a_connection_ended_in_the_middle_of_a_step_has_written_nothing(
    dsn: str, chat: Chat
) -> None:
    """An operator may end a connection that hangs; the next step takes another one."""
    before = content_of(dsn)
    with holding(dsn, THE_THREAD):
        step = asyncio.create_task(chat.say())
        await until(dsn, WAITS_FOR_A_LOCK)
        change(dsn, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted")
        with pytest.raises(BackendError, match=r"administrator.*Nothing was written"):
            await step
    assert content_of(dsn) == before
    assert (await chat.say()).is_new


async def test_a_newer_schema_is_refused_and_left_alone(dsn: str, journal: PostgresJournal) -> None:
    """An old program does not touch a database that a newer one wrote."""
    await journal.close()
    change(dsn, "INSERT INTO segue_schema VALUES (99)")
    before = content_of(dsn)
    old_program = PostgresJournal(dsn)
    with pytest.raises(BackendError, match=r"schema 99.*nothing was changed"):
        await old_program.open()
    with pytest.raises(BackendError):
        await Chat(old_program, ticking_ids(), START).begin()
    await old_program.close()
    assert content_of(dsn) == before


async def test_opening_a_database_that_is_up_to_date_changes_nothing(
    dsn: str, journal: PostgresJournal
) -> None:
    """Neither a restart nor a second call is a migration."""
    before = content_of(dsn)
    await journal.open()
    async with opened(dsn) as other:
        await other.open()
    assert content_of(dsn) == before


async def test_steps_before_opening_and_after_closing_are_refused(dsn: str) -> None:
    """They are errors that say so, and closing twice is none."""
    journal = PostgresJournal(dsn)
    chat = Chat(journal, ticking_ids(), START)
    with pytest.raises(BackendError, match=r"not open.*Nothing was written"):
        await chat.begin()
    await journal.open()
    await chat.begin()
    await journal.close()
    await journal.close()
    for step in (chat.say(), chat.messages()):
        with pytest.raises(BackendError, match=r"closed.*Nothing was written"):
            await step


FULL = """
    CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'could not extend file: No space left' USING ERRCODE = 'disk_full';
    END $$;
"""
NO_ROOM = {
    "in the middle of the step": "CREATE TRIGGER no_room AFTER INSERT ON turns",
    "at its commit": "CREATE CONSTRAINT TRIGGER no_room AFTER INSERT ON turns INITIALLY DEFERRED",
}


@pytest.mark.parametrize("moment", NO_ROOM)
async def test_a_full_disk_leaves_nothing_half_written(
    dsn: str, journal: PostgresJournal, chat: Chat, moment: str
) -> None:
    """A step that finds no room is undone whole, and works again when there is room."""
    await chat.exchange()
    timer = await chat.arm()
    change(dsn, f"{FULL} {NO_ROOM[moment]} FOR EACH ROW EXECUTE FUNCTION no_room()")
    before = content_of(dsn)
    with pytest.raises(BackendError, match=r"No space left.*Nothing was written"):
        await chat.say()
    assert content_of(dsn) == before
    assert await journal.timers.list_of("chat") == [timer]
    change(dsn, "DROP TRIGGER no_room ON turns")
    assert (await chat.say()).cancelled_timers == (timer.id,)


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
async def test_a_locked_table_is_a_backend_error(dsn: str, chat: Chat, limit: str) -> None:
    """Whoever waits longer than the address allows is told so, and has written nothing."""
    before = content_of(dsn)
    async with opened(make_conninfo(dsn, options=f"-c {limit}=50ms")) as journal:
        hasty = Chat(journal, chat.ids, START)
        refused = pytest.raises(BackendError, match=r"timeout.*Nothing was written")
        with holding(dsn, THE_TURNS), refused:
            await hasty.say()
        assert content_of(dsn) == before
        assert (await hasty.say()).is_new


async def test_a_writer_waits_for_another_session(dsn: str, chat: Chat) -> None:
    """A lock that is given back in time is no error."""
    with holding(dsn, THE_TURNS) as blocker:
        waiting = asyncio.create_task(chat.say())
        await until(dsn, WAITS_FOR_A_LOCK)
        assert not waiting.done()
        blocker.rollback()
        assert (await waiting).is_new


async def test_a_step_that_gets_no_connection_is_a_backend_error(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all connections of the journal are busy for too long, the step has not begun."""
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.1)
    async with opened(dsn, pool_size=1) as journal:
        chat = await Chat(journal, ticking_ids(), START).begin()
        with holding(dsn, THE_THREAD) as blocker:
            busy = asyncio.create_task(chat.say())
            await until(dsn, WAITS_FOR_A_LOCK)
            with pytest.raises(BackendError, match=r"all 1 connections are in use.*Nothing was"):
                await chat.say("Hello?")
            blocker.rollback()
        await busy
        assert texts(await chat.messages()) == [QUESTION]


@pytest.fixture
def app(mortal: PostgresServer, dsn: str) -> Iterator[str]:
    """The address of the database for a role that has a password, with that password."""
    change(mortal.dsn, f"CREATE ROLE app LOGIN PASSWORD '{PASSWORD}'")
    change(dsn, "GRANT ALL ON SCHEMA public TO app")
    yield make_conninfo(dsn, user="app", password=PASSWORD)
    change(dsn, "DROP OWNED BY app; DROP ROLE app")


async def test_too_many_connections_are_a_backend_error(
    dsn: str, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said when the journal is opened, and a step waits until the server has room again."""
    change(dsn, "ALTER ROLE app CONNECTION LIMIT 0")
    with pytest.raises(BackendError, match=r'too many connections for role "app"'):
        await PostgresJournal(app).open()
    change(dsn, "ALTER ROLE app CONNECTION LIMIT -1")
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.2)
    async with opened(app) as journal:
        chat = await Chat(journal, ticking_ids(), START).begin()
        change(dsn, "ALTER ROLE app CONNECTION LIMIT 0")
        change(dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
        with pytest.raises(BackendError, match=r"no connection within .* Nothing was written"):
            await chat.say()
        change(dsn, "ALTER ROLE app CONNECTION LIMIT -1")
        journal.db._pool.timeout = PATIENCE
        assert (await chat.say()).is_new


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "password": ({"password": f"not-{PASSWORD}"}, r"127\.0\.0\.1.*authentication failed.*app"),
    "database": ({"dbname": "nowhere"}, r"127\.0\.0\.1.*nowhere.*does not exist"),
    "host": ({"host": "nobody.invalid"}, r"nobody\.invalid"),
    "port": ({"port": 1}, r"127\.0\.0\.1.*port 1.*refused"),
}


@pytest.mark.parametrize("part", WRONG)
async def test_a_wrong_address_is_named_without_its_password(
    app: str, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Opening says what is wrong with it, and neither errors nor logs hold the password."""
    wrong, expected = WRONG[part]
    caplog.set_level(logging.DEBUG)
    journal = PostgresJournal(make_conninfo(app, **wrong))
    said = await refusal(journal.open()) + await refusal(journal.threads.get("chat"))
    await journal.close()
    assert re.search(expected, said)
    assert PASSWORD not in said + caplog.text


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://app:{}@127.0.0.1:{}/nowhere",
        "postgresql://app:{}%zz@127.0.0.1:{}/{}",
        "postgresql://app:pass@{}@127.0.0.1:{}/{}",
        "host=127.0.0.1 password=pass {} port={}",
    ],
)
async def test_an_address_that_cannot_be_read_keeps_its_password(app: str, uri: str) -> None:
    """A password that was not quoted as an address demands is not shown by the error either."""
    parts = conninfo_to_dict(app)
    journal = PostgresJournal(uri.format(PASSWORD, parts["port"], parts["dbname"]))
    assert PASSWORD not in await refusal(journal.open())


async def refusal(step: Awaitable[object]) -> str:
    """All that the error of a step says, and the errors behind it."""
    with pytest.raises(BackendError) as caught:
        await step
    return "".join(traceback.format_exception(caught.value))

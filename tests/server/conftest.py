"""The stage of the server's tests: a whole Segue behind real HTTP, over both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.testing.postgres import PostgresServer
from segue.testing.world import Stage


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new, empty database is."""
    if request.param == "sqlite":
        return str(tmp_path)
    server: PostgresServer = request.getfixturevalue("server")
    return server.create_database()


@pytest.fixture
def stage(database: str) -> Stage:
    """A new, empty database, on a virtual clock."""
    return Stage(database)


@pytest.fixture
def sqlite_stage(tmp_path: Path) -> Stage:
    """The same on SQLite alone, for what no database has a part in."""
    return Stage(str(tmp_path))

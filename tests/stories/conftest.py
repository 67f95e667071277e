"""The stage of the stories: a whole Segue on a virtual clock, over both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

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
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """A new, empty database, at eight in the morning of a Friday in January."""
    if request.param == "sqlite":
        return Stage(str(tmp_path))
    server: PostgresServer = request.getfixturevalue("server")
    return Stage(_as_url(server.create_database()))


def _as_url(conninfo: str) -> str:
    """Settings know a PostgreSQL address by its beginning."""
    named = conninfo_to_dict(conninfo)
    secret = f":{named['password']}" if "password" in named else ""
    place = f"{named['host']}:{named['port']}/{named['dbname']}"
    return f"postgresql://{named['user']}{secret}@{place}"

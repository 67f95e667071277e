"""Stores for tests that run over both databases."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from segue.testing.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def new_address(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Where the next new, empty store is to be."""
    if request.param == "sqlite":
        numbers = count(1)
        return lambda: str(tmp_path / f"journal-{next(numbers)}.db")
    server: PostgresServer = request.getfixturevalue("server")
    return server.create_database


@pytest.fixture
def address(new_address: Callable[[], str]) -> str:
    return new_address()

"""New, empty journals of both kinds, as many as a test wants."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from segue.journal.journal import Journal
from segue.journal.postgres import PostgresJournal
from segue.journal.sqlite import SqliteJournal
from segue.testing.postgres import PostgresServer

NewJournal = Callable[[str], AbstractAsyncContextManager[Journal]]
KINDS = ("sqlite", "postgres")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs on both."""
    return str(request.param)


@pytest.fixture
def new_address(
    tmp_path: Path, empty_files: Path, server: PostgresServer, empty_tables: str
) -> Callable[[str], str]:
    """Where the next new, empty journal of a kind is."""
    numbers = count(1)

    def make(kind: str) -> str:
        if kind == "sqlite":
            path = tmp_path / f"{next(numbers)}.db"
            return str(shutil.copy(empty_files / "journal.db", path))
        return server.create_database(like=empty_tables)

    return make


@pytest.fixture
def new_journal(new_address: Callable[[str], str]) -> NewJournal:
    """Opens a new journal of a kind until the block is left."""

    @asynccontextmanager
    async def opened(kind: str) -> AsyncIterator[Journal]:
        address = new_address(kind)
        journal: Journal = (
            SqliteJournal(address) if kind == "sqlite" else PostgresJournal(address, pool_size=2)
        )
        await journal.open()
        try:
            yield journal
        finally:
            await journal.close()

    return opened

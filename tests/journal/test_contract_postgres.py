"""The journal's contract on a real PostgreSQL, with handles that stay open between tests."""

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from segue.journal.journal import Journal
from segue.testing.journal_contract import *  # noqa: F403 - brings every behaviour, new ones too
from segue.testing.journal_contract import OpenJournal
from segue.testing.postgres import PostgresServer


@pytest.fixture(scope="module")
def dsn(server: PostgresServer) -> str:
    return server.create_database()


@pytest.fixture(scope="module")
async def handles(dsn: str) -> AsyncIterator[list[Journal]]:
    from segue.journal.postgres import PostgresJournal  # noqa: PLC0415 - its absence is an error

    journals = [PostgresJournal(dsn), PostgresJournal(dsn)]
    for journal in journals:
        await journal.open()
    yield [*journals]
    for journal in journals:
        await journal.close()


@pytest.fixture(scope="module")
def broom(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def open_journal(handles: list[Journal], broom: psycopg.Connection) -> Iterator[OpenJournal]:
    unused = iter(handles)

    async def open_another() -> Journal:
        return next(unused)

    yield open_another
    # Sweeping out a few rows is ten times faster than TRUNCATE, and than a new database. What
    # belongs to a thread goes with it.
    broom.execute("DELETE FROM threads")
    broom.execute("DELETE FROM feeds")
    broom.execute("DELETE FROM users")
    broom.execute("DELETE FROM memories")
    broom.execute("DELETE FROM api_keys")
    broom.execute("DELETE FROM nodes")
    broom.execute("DELETE FROM push_subscriptions")
    broom.execute("DELETE FROM push_keys")

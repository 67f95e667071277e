"""What a search of memories reads on PostgreSQL, with pgvector and without it."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from segue.journal.memories import FoundMemory, MemorySearch, NewMemory
from segue.journal.postgres import PostgresJournal
from segue.journal.postgres.tx import SCORE_WORDS
from segue.journal.tx import for_postgres
from segue.testing.journal_contract.fixtures import START, anyio_backend, ticking_ids
from segue.testing.postgres import PostgresServer

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

FACTS = {"tea": [1.0, 0.0], "coffee": [0.8, 0.6], "jazz": [0.0, 1.0], "nothing": [0.0, 0.0]}


@pytest.fixture
def dsn(server: PostgresServer) -> str:
    return server.create_database()


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[PostgresJournal]:
    journal = PostgresJournal(dsn)
    await journal.open()
    yield journal
    await journal.close()


async def know(journal: PostgresJournal) -> None:
    ids = ticking_ids()
    for word, vector in FACTS.items():
        fact = NewMemory("guide", "ada", word, f"Likes {word}.", {}, vector, "m")
        await journal.memories.put(fact, ids=ids, now=START)


async def found(journal: PostgresJournal) -> list[tuple[str, float | None, float | None]]:
    query = MemorySearch("guide", "ada", "tea?", embedding=[1.0, 0.1], embedding_model="m")

    def parts(hit: FoundMemory) -> tuple[str, float | None, float | None]:
        near = None if hit.vector_score is None else round(hit.vector_score, 6)
        return hit.memory.key, hit.text_score, near

    return [parts(hit) for hit in await journal.memories.search(query)]


async def test_the_extension_may_come_and_go(dsn: str, journal: PostgresJournal) -> None:
    """With pgvector or by numpy, the same memories are found with the same scores."""
    await know(journal)
    assert journal.db.has_pgvector
    by_server = await found(journal)
    assert [key for key, _, _ in by_server][:2] == ["tea", "coffee"]
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP EXTENSION vector CASCADE")
    journal.db.has_pgvector = False  # as for a server that does not have it
    assert await found(journal) == by_server
    again = PostgresJournal(dsn)
    await again.open()
    assert again.db.has_pgvector
    assert await found(again) == by_server
    await again.close()


def nodes_of(plan: Any) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes_of(inner)


async def test_only_the_words_of_a_query_are_read(dsn: str, journal: PostgresJournal) -> None:
    """Of all words of a namespace, also while the server has no statistics; without decimals."""
    await know(journal)
    values = {"agent": "guide", "user": "ada", "words": ["tea"], "weights": [1.0]}
    with psycopg.connect(dsn) as connection:
        explained = connection.execute(
            f"EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) {for_postgres(SCORE_WORDS).decode()}",
            values | {"average": 2.0, "limit": 10},
        ).fetchone()
    assert explained is not None
    [whole] = explained[0]
    read = [node for node in nodes_of(whole["Plan"]) if node.get("Alias") == "memory_words"]
    assert [node["Actual Rows"] * node["Actual Loops"] for node in read] == [1]
    assert "numeric" not in json.dumps(whole)

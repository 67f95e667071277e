"""What a search of memories costs: `python -m bench.memory`.

All memories are in one namespace. Embedding is timed apart, with the local embedder; the searches
get their vectors for nothing, ours by words and meaning, the peers' by meaning alone. The peers are
LangGraph's stores with exact search: in memory next to our SQLite, and PostgreSQL next to ours.
LangGraph's store on SQLite needs a `sqlite3` that loads extensions, so it is not a peer here.
With OPENBLAS_NUM_THREADS=1 the threads of the peer in memory do not keep the cores busy between two
searches, which on a small machine doubles the time of both.
"""

import asyncio
import gc
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg import AsyncConnection

from bench.stores import AGENT, PostgresStore, SqliteStore, Store, Writer, now
from bench.table import medians, print_columns, progress, scaled
from segue import SnowflakeGenerator
from segue.agent.embedders import load_embedder
from segue.agent.memory import MemoryBook
from segue.journal.memories import NewMemory
from segue.settings.agents import MemoryConfig
from segue.testing.postgres import PostgresServer

SIZES = (1_000, 10_000)
WORDS_OF_A_FACT = 20
WORDS_OF_A_QUERY = 12
USER = "ada"
QUERY = "Which of the two museums near the station did I like best?"
FACT = "Went to the museum of natural history near the station with two children in May. "
HEADER = ("database", "memories", "ours", "peer", "ratio", "ours after a write", "remember")


class Free:
    """An embedder that costs nothing: a vector per text, drawn beforehand."""

    name = "free"
    dimension = 384
    threshold = 0.0

    def __init__(self) -> None:
        self._vectors = np.random.default_rng(7).normal(size=(16_384, self.dimension))

    def vector(self, text: str) -> list[float]:
        vector: list[float] = self._vectors[crc32(text.encode()) % len(self._vectors)].tolist()
        return vector

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.vector(text) for text in texts]

    async def embed_query(self, text: str) -> list[float]:
        return self.vector(text)

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        return self.vectors(texts)


async def embedding() -> None:
    local = load_embedder("local")
    await local.embed_query("the first text loads the weights")
    texts = {"a query": QUERY, "a fact": FACT, "a page": FACT * 50}
    works = [partial(local.embed_query, text) for text in texts.values()]
    rows = [
        (what, f"{len(text.split()):,}", f"{millis:.1f}")
        for (what, text), millis in zip(texts.items(), await medians(*works), strict=True)
    ]
    print_columns(f"Embedding one text with {local.name}", ("text", "words", "ms"), rows)


async def fill(store: Store, peer: BaseStore, free: Free, writer: Writer, size: int) -> None:
    ids = SnowflakeGenerator(node=1)
    for n in range(size):
        fact = writer.text(WORDS_OF_A_FACT)
        new = NewMemory(AGENT, USER, f"{n}", fact, {}, free.vector(fact), free.name)
        await store.journal.memories.put(new, ids=ids, now=now())
        await peer.aput((AGENT, USER), f"{n}", {"text": fact})
    await store.rest()
    # A peer that keeps millions of numbers as objects must not make us wait for the collector.
    gc.freeze()


async def costs(store: Store, peer: BaseStore, free: Free, size: int) -> list[float]:
    """Milliseconds: a search, the peer's, keeping a fact, and a search right after it."""
    writer = Writer()
    await fill(store, peer, free, writer, size)
    config = MemoryConfig(capacity=2 * size)
    book = MemoryBook(
        store.journal.memories, free, ids=SnowflakeGenerator(node=2), clock=now, config=config
    )

    async def search() -> None:
        await book.search(AGENT, USER, writer.text(WORDS_OF_A_QUERY))

    async def peers_search() -> None:
        await peer.asearch((AGENT, USER), query=writer.text(WORDS_OF_A_QUERY), limit=config.limit)

    async def remember() -> None:
        await book.remember(AGENT, USER, writer.text(WORDS_OF_A_FACT))

    return [*await medians(search, peers_search), *await medians(remember, search)]


def cells(name: str, size: int, peer: str, measured: list[float]) -> tuple[str, ...]:
    own, others, remembering, after = measured
    return (
        name,
        f"{size:,}",
        f"{own:.1f}",
        f"{peer}: {others:.1f}",
        f"{own / others:.3f}",
        f"{after:.1f}",
        f"{remembering:.1f}",
    )


async def main() -> None:
    await embedding()
    free, rows = Free(), []
    index: Any = {"dims": free.dimension, "embed": free.vectors, "fields": ["text"]}
    with tempfile.TemporaryDirectory() as folder, PostgresServer.start() as server:
        for size in (scaled(size, 100) for size in SIZES):
            progress(f"{size:,} memories on SQLite")
            async with opened(SqliteStore(Path(folder) / f"{size}")) as store:
                measured = await costs(store, InMemoryStore(index=index), free, size)
            rows.append(cells("SQLite", size, "InMemoryStore", measured))
            progress(f"{size:,} memories on PostgreSQL")
            address = server.create_database()
            async with (
                opened(PostgresStore(server)) as store,
                AsyncPostgresStore.from_conn_string(address, index=index) as peer,
            ):
                await peer.setup()
                # With it, a search of one namespace among several leaves out good matches.
                async with await AsyncConnection.connect(address) as connection:
                    await connection.execute("DROP INDEX store_vectors_embedding_idx")
                measured = await costs(store, peer, free, size)
            rows.append(cells("PostgreSQL", size, "AsyncPostgresStore", measured))
    print_columns("One search, in ms, without embedding", HEADER, rows)


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())

"""Memories on SQLite: words in an index of our own, vectors as blobs compared with numpy."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from segue.core.plain import storable
from segue.core.ranking import (
    TEXT_CANDIDATES,
    best_matches,
    full_score,
    relevances,
    word_weights,
)
from segue.core.snowflake import SnowflakeSource
from segue.core.words import asked_words, indexed_words
from segue.journal.inputs import check_room, embedding_of, vector_of
from segue.journal.records import FoundMemory, KeptMemory, Memory, MemorySearch, NewMemory
from segue.journal.rows import from_json, from_micros, to_json, to_micros
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.vectors import VectorCache

_IN_NAMESPACE = "FROM memories WHERE agent_id = ? AND user_id = ?"
_TO_EMBED = "FROM memories WHERE embedding_model IS NOT ? AND (? IS NULL OR agent_id = ?)"
_INSERT = """
    INSERT INTO memories (content, metadata, word_count, embedding, embedding_model, updated_at,
        created_at, id, agent_id, user_id, key)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, ?10)
"""
# A vector belongs to a content: it stays with it, and goes with it.
_UPDATE = """
    UPDATE memories SET content = ?1, metadata = ?2, word_count = ?3, updated_at = ?6,
        embedding = coalesce(?4, CASE content WHEN ?1 THEN embedding END),
        embedding_model = coalesce(?5, CASE content WHEN ?1 THEN embedding_model END)
    WHERE id = ?7
"""

_SCOPE = f"SELECT count(*), avg(word_count) {_IN_NAMESPACE}"
_SPREAD = """
    SELECT word, count(*) FROM memory_words
    WHERE word IN (SELECT value FROM json_each(?1)) AND agent_id = ?2 AND user_id = ?3
    GROUP BY word
"""
# BM25: a word that is repeated soon counts no more, and a text that is long counts less.
_BY_TEXT = """
    SELECT memory_id, sum(
        asked.value * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * word_count / ?4))) AS score
    FROM json_each(?1) AS asked CROSS JOIN memory_words ON word = asked.key
    WHERE agent_id = ?2 AND user_id = ?3 GROUP BY memory_id ORDER BY score DESC, memory_id LIMIT ?5
"""


class MemorySteps:
    _db: Database

    @cached_property
    def _vectors(self) -> VectorCache:
        return VectorCache()

    async def put_memory(self, memory: NewMemory, *, ids: SnowflakeSource, now: datetime) -> Memory:
        row = _row_of(memory, now)

        def step(db: sqlite3.Connection) -> Memory:
            return _store(db, memory, row, _find_by(db, memory, "key", memory.key), ids)

        return await self._db.write(step)

    async def keep_memory(
        self,
        memory: NewMemory,
        *,
        duplicate_at: float,
        capacity: int,
        ids: SnowflakeSource,
        now: datetime,
    ) -> KeptMemory:
        row = _row_of(memory, now)

        def step(db: sqlite3.Connection) -> KeptMemory:
            known = self._find_duplicate(db, memory, row.content, duplicate_at)
            count = _count(db, memory.agent_id, memory.user_id)
            if known is None:
                check_room(memory, count, capacity)
                count += 1
            return KeptMemory(_store(db, memory, row, known, ids), known is None, count)

        return await self._db.write(step)

    async def delete_memory(self, agent_id: str, user_id: str, key: str) -> bool:
        def step(db: sqlite3.Connection) -> bool:
            deleted = db.execute(f"DELETE {_IN_NAMESPACE} AND key = ?", (agent_id, user_id, key))
            return deleted.rowcount > 0

        was_there = await self._db.write(step)
        if was_there:
            await self._db.fold_log()  # it holds what the file does not any more
        return was_there

    async def list_memories(
        self, agent_id: str, user_id: str, *, limit: int = 100, before: int | None = None
    ) -> list[Memory]:
        sql = f"SELECT * {_IN_NAMESPACE} AND (? IS NULL OR id < ?) ORDER BY id DESC LIMIT ?"
        values = (agent_id, user_id, before, before, limit)
        return await self._db.read(lambda db: [_to_memory(row) for row in db.execute(sql, values)])

    async def count_memories(self, agent_id: str, user_id: str) -> int:
        return await self._db.read(lambda db: _count(db, agent_id, user_id))

    async def search_memories(self, query: MemorySearch) -> list[FoundMemory]:
        words = asked_words(query.text)

        def step(db: sqlite3.Connection) -> list[FoundMemory]:
            by_text, full = _text_scores(db, query, words)
            by_vector = self._similarities(db, query)
            best = best_matches(
                by_text,
                by_vector,
                text_weight=query.text_weight,
                threshold=query.threshold,
                limit=query.limit,
            )
            scores = relevances(best, by_text, by_vector, full=full)
            return [
                FoundMemory(_memory_of(db, i), score, by_text.get(i), by_vector.get(i))
                for i, score in scores.items()
            ]

        return await self._db.read(step)

    async def count_memories_to_embed(self, model: str, *, agent_id: str | None = None) -> int:
        sql = f"SELECT count(*) {_TO_EMBED}"
        values = (model, agent_id, agent_id)
        return await self._db.read(lambda db: int(db.execute(sql, values).fetchone()[0]))

    async def list_memories_to_embed(
        self, model: str, *, agent_id: str | None = None, limit: int = 100, after: int = 0
    ) -> list[Memory]:
        sql = f"SELECT * {_TO_EMBED} AND id > ? ORDER BY id LIMIT ?"
        values = (model, agent_id, agent_id, after, limit)
        return await self._db.read(lambda db: [_to_memory(row) for row in db.execute(sql, values)])

    async def set_embedding(self, memory: Memory, embedding: Sequence[float], model: str) -> bool:
        blob = vector_of(embedding, model).tobytes()

        def step(db: sqlite3.Connection) -> bool:
            changed = db.execute(
                "UPDATE memories SET embedding = ?, embedding_model = ? "
                "WHERE id = ? AND content = ? AND embedding_model IS ?",
                (blob, model, memory.id, memory.content, memory.embedding_model),
            )
            return changed.rowcount > 0

        return await self._db.write(step)

    def _similarities(
        self, db: sqlite3.Connection, sought: MemorySearch | NewMemory
    ) -> dict[int, float]:
        if sought.embedding is None:
            return {}
        wanted = vector_of(sought.embedding, sought.embedding_model)
        return self._vectors.similarities(
            db, sought.agent_id, sought.user_id, wanted, sought.embedding_model
        )

    def _find_duplicate(
        self, db: sqlite3.Connection, memory: NewMemory, content: str, duplicate_at: float
    ) -> int | None:
        for column, value in (("key", memory.key), ("content", content)):
            if (known := _find_by(db, memory, column, value)) is not None:
                return known
        near = {i: n for i, n in self._similarities(db, memory).items() if n >= duplicate_at}
        return max(near, key=lambda i: (near[i], -i), default=None)


class _Row(NamedTuple):
    """What a write sets, in the order of the statements above, and the words to index."""

    content: str
    metadata: str
    word_count: int
    embedding: bytes | None
    embedding_model: str | None
    updated_at: int
    words: Counter[str]


def _row_of(memory: NewMemory, now: datetime) -> _Row:
    content = storable(memory.content)
    words = indexed_words(content)
    vector = embedding_of(memory)
    return _Row(
        content,
        to_json(dict(memory.metadata)),
        len(words),
        None if vector is None else vector.tobytes(),
        memory.embedding_model,
        to_micros(now),
        Counter(words),
    )


def _store(
    db: sqlite3.Connection, memory: NewMemory, row: _Row, known: int | None, ids: SnowflakeSource
) -> Memory:
    """Write a row in the place of a known one, or as a new one."""
    if known is None:
        # Memories have no thread that keeps their ids rising when a clock is set back.
        (newest,) = db.execute("SELECT coalesce(max(id), 0) FROM memories").fetchone()
        stored = ids.next(after=newest)
        names = (memory.agent_id, memory.user_id, memory.key)
        db.execute(_INSERT, (*row[:-1], stored, *names))
    else:
        stored = known
        db.execute(_UPDATE, (*row[:-1], known))
        db.execute("DELETE FROM memory_words WHERE memory_id = ?", (known,))
    db.executemany(
        "INSERT INTO memory_words (agent_id, user_id, word, memory_id, times, word_count) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        [
            (memory.agent_id, memory.user_id, word, stored, times, row.word_count)
            for word, times in row.words.items()
        ],
    )
    return _memory_of(db, stored)


def _find_by(db: sqlite3.Connection, memory: NewMemory, column: str, value: str) -> int | None:
    row = db.execute(
        f"SELECT id {_IN_NAMESPACE} AND {column} = ? ORDER BY id LIMIT 1",
        (memory.agent_id, memory.user_id, value),
    ).fetchone()
    return None if row is None else int(row["id"])


def _count(db: sqlite3.Connection, agent_id: str, user_id: str) -> int:
    (count,) = db.execute(f"SELECT count(*) {_IN_NAMESPACE}", (agent_id, user_id)).fetchone()
    return int(count)


def _text_scores(
    db: sqlite3.Connection, query: MemorySearch, words: Sequence[str]
) -> tuple[dict[int, float], float]:
    """BM25 of the best, and what an average memory with all the words would have."""
    namespace = (query.agent_id, query.user_id)
    spread = dict(db.execute(_SPREAD, (to_json(words), *namespace)).fetchall())
    if not spread:
        return {}, 0.0
    total, average = db.execute(_SCOPE, namespace).fetchone()
    weights = to_json(word_weights(words, spread, total))
    values = (weights, *namespace, average, TEXT_CANDIDATES)
    scores = dict(db.execute(_BY_TEXT, values).fetchall())
    return scores, full_score(words, spread, total)


def _memory_of(db: sqlite3.Connection, memory_id: int) -> Memory:
    return _to_memory(db.execute("SELECT * FROM memories WHERE id = ?", (memory_id,)).fetchone())


def _to_memory(row: sqlite3.Row) -> Memory:
    return Memory(
        id=row["id"],
        agent_id=row["agent_id"],
        user_id=row["user_id"],
        key=row["key"],
        content=row["content"],
        metadata=from_json(row["metadata"]),
        embedding_model=row["embedding_model"],
        created_at=from_micros(row["created_at"]),
        updated_at=from_micros(row["updated_at"]),
    )

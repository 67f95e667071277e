"""Memories on PostgreSQL: words in an index of our own, vectors in arrays."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString

from psycopg.rows import DictRow

from segue.core.plain import storable
from segue.core.ranking import (
    TEXT_CANDIDATES,
    best_matches,
    full_score,
    relevances,
    word_weights,
)
from segue.core.snowflake import MAX_ID, SnowflakeSource
from segue.core.words import asked_words, indexed_words
from segue.journal.inputs import check_room, embedding_of, vector_of
from segue.journal.postgres.database import Connection, Database, fetch_all, fetch_one, fetch_row
from segue.journal.postgres.vectors import similarities
from segue.journal.records import FoundMemory, KeptMemory, Memory, MemorySearch, NewMemory
from segue.journal.rows import from_json, to_json

_NAMESPACE_LOCK = 0x5E6D

# Without the vectors, which are large and of no use outside.
_FIELDS: LiteralString = (
    "id, agent_id, user_id, key, content, metadata, embedding_model, created_at, updated_at"
)
_IN_NAMESPACE: LiteralString = (
    "FROM memories WHERE agent_id = %(agent_id)s AND user_id = %(user_id)s"
)
_TO_EMBED: LiteralString = (
    "FROM memories WHERE embedding_model IS DISTINCT FROM %s::text "
    "AND (%s::text IS NULL OR agent_id = %s)"
)
# BM25: a word that is repeated soon counts no more, and a text that is long counts less. A bare
# 0.75 would be a numeric, with which the sum takes ten times as long. OFFSET keeps the planner from
# reading all words of the namespace, which it prefers while it knows nothing of a new table.
_BY_TEXT: LiteralString = """
    SELECT memory_id, sum(weight * times * 2.2
        / (times + 1.2 * (0.25 + 0.75::float8 * word_count / %(average)s::float8))) AS score
    FROM unnest(%(words)s::text[], %(weights)s::float8[]) AS asked (word, weight)
    CROSS JOIN LATERAL (
        SELECT memory_id, times, word_count FROM memory_words
        WHERE agent_id = %(agent_id)s AND user_id = %(user_id)s AND word = asked.word OFFSET 0
    ) AS found
    GROUP BY memory_id ORDER BY score DESC, memory_id LIMIT %(limit)s
"""
# How many memories have each word; and once, how many there are, and how long.
_SPREAD: LiteralString = f"""
    WITH scope AS MATERIALIZED (
        SELECT count(*) AS total, avg(word_count)::float8 AS average {_IN_NAMESPACE})
    SELECT word, memories, total, average FROM scope, (
        SELECT word, count(*) AS memories FROM memory_words
        WHERE agent_id = %(agent_id)s AND user_id = %(user_id)s AND word = ANY(%(words)s)
        GROUP BY word) AS spread
"""  # noqa: S608 - our own words
_COUNT: LiteralString = f"SELECT count(*) AS count {_IN_NAMESPACE}"
_INSERT: LiteralString = (
    "INSERT INTO memories (id, agent_id, user_id, key, content, metadata, embedding, "  # noqa: S608 - our own words
    "embedding_model, word_count, created_at, updated_at) "
    "VALUES (%(id)s, %(agent_id)s, %(user_id)s, %(key)s, %(content)s, %(metadata)s, "
    "%(embedding)s::real[], %(model)s, %(word_count)s, %(now)s, %(now)s) "
    f"RETURNING {_FIELDS}"
)
# A vector belongs to a content: it stays with it, and goes with it.
_UPDATE: LiteralString = (
    "UPDATE memories SET content = %(content)s, metadata = %(metadata)s, "  # noqa: S608 - our own words
    "embedding = coalesce("
    "%(embedding)s::real[], CASE content WHEN %(content)s THEN embedding END), "
    "embedding_model = coalesce("
    "%(model)s, CASE content WHEN %(content)s THEN embedding_model END), "
    "word_count = %(word_count)s, updated_at = %(now)s "
    f"WHERE id = %(id)s RETURNING {_FIELDS}"
)
_INSERT_WORDS: LiteralString = (
    "INSERT INTO memory_words (agent_id, user_id, word, memory_id, times, word_count) "
    "SELECT %(agent_id)s, %(user_id)s, word, %(id)s, times, %(word_count)s "
    "FROM unnest(%(words)s::text[], %(times)s::integer[]) AS counted (word, times)"
)


class MemorySteps:
    _db: Database

    async def put_memory(self, memory: NewMemory, *, ids: SnowflakeSource, now: datetime) -> Memory:
        row = _row_of(memory, now)

        async def step(db: Connection) -> Memory:
            await _lock_namespace(db, memory.agent_id, memory.user_id)
            return await _store(db, row, await _find_by_key(db, row), ids)

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

        async def step(db: Connection) -> KeptMemory:
            await _lock_namespace(db, memory.agent_id, memory.user_id)
            known = await _find_by_key(db, row) or await _find_by_content(db, row)
            if known is None:
                scores = await self._similarities(db, memory)
                near = {i: score for i, score in scores.items() if score >= duplicate_at}
                known = max(near, key=lambda i: (near[i], -i), default=None)
            count: int = (await fetch_row(db, _COUNT, row))["count"]
            if known is None:
                check_room(memory, count, capacity)
                count += 1
            return KeptMemory(await _store(db, row, known, ids), known is None, count)

        return await self._db.write(step)

    async def delete_memory(self, agent_id: str, user_id: str, key: str) -> bool:
        async def step(db: Connection) -> bool:
            await _lock_namespace(db, agent_id, user_id)
            deleted = await db.execute(
                "DELETE FROM memories WHERE agent_id = %s AND user_id = %s AND key = %s",
                (agent_id, user_id, key),
            )
            return deleted.rowcount > 0

        return await self._db.write(step)

    async def list_memories(
        self, agent_id: str, user_id: str, *, limit: int = 100, before: int | None = None
    ) -> list[Memory]:
        sql: LiteralString = (
            f"SELECT {_FIELDS} FROM memories WHERE agent_id = %s AND user_id = %s AND id < %s "  # noqa: S608 - our own words
            "ORDER BY id DESC LIMIT %s"
        )
        values = (agent_id, user_id, MAX_ID if before is None else before, limit)
        return await self._list(sql, values)

    async def count_memories(self, agent_id: str, user_id: str) -> int:
        values = {"agent_id": agent_id, "user_id": user_id}

        async def step(db: Connection) -> int:
            return int((await fetch_row(db, _COUNT, values))["count"])

        return await self._db.read(step)

    async def search_memories(self, query: MemorySearch) -> list[FoundMemory]:
        words = asked_words(query.text)

        async def step(db: Connection) -> list[FoundMemory]:
            by_text, full = await _text_scores(db, query, words)
            by_vector = await self._similarities(db, query)
            best = best_matches(
                by_text,
                by_vector,
                text_weight=query.text_weight,
                threshold=query.threshold,
                limit=query.limit,
            )
            scores = relevances(best, by_text, by_vector, full=full)
            sql = f"SELECT {_FIELDS} FROM memories WHERE id = ANY(%s)"  # noqa: S608 - our own words
            found = {row["id"]: _to_memory(row) for row in await fetch_all(db, sql, (list(best),))}
            return [
                FoundMemory(found[i], score, by_text.get(i), by_vector.get(i))
                for i, score in scores.items()
            ]

        return await self._db.read(step)

    async def count_memories_to_embed(self, model: str, *, agent_id: str | None = None) -> int:
        async def step(db: Connection) -> int:
            sql: LiteralString = f"SELECT count(*) AS count {_TO_EMBED}"
            return int((await fetch_row(db, sql, (model, agent_id, agent_id)))["count"])

        return await self._db.read(step)

    async def list_memories_to_embed(
        self, model: str, *, agent_id: str | None = None, limit: int = 100, after: int = 0
    ) -> list[Memory]:
        sql: LiteralString = f"SELECT {_FIELDS} {_TO_EMBED} AND id > %s ORDER BY id LIMIT %s"
        return await self._list(sql, (model, agent_id, agent_id, after, limit))

    async def set_embedding(self, memory: Memory, embedding: Sequence[float], model: str) -> bool:
        vector = vector_of(embedding, model).tolist()

        async def step(db: Connection) -> bool:
            changed = await db.execute(
                "UPDATE memories SET embedding = %s::real[], embedding_model = %s WHERE id = %s "
                "AND content = %s AND embedding_model IS NOT DISTINCT FROM %s::text",
                (vector, model, memory.id, memory.content, memory.embedding_model),
            )
            return changed.rowcount > 0

        return await self._db.write(step)

    async def _list(self, sql: LiteralString, values: Sequence[Any]) -> list[Memory]:
        async def step(db: Connection) -> list[Memory]:
            return [_to_memory(row) for row in await fetch_all(db, sql, values)]

        return await self._db.read(step)

    async def _similarities(
        self, db: Connection, sought: MemorySearch | NewMemory
    ) -> dict[int, float]:
        if sought.embedding is None:
            return {}
        wanted = vector_of(sought.embedding, sought.embedding_model)
        names = {
            "agent_id": sought.agent_id,
            "user_id": sought.user_id,
            "model": sought.embedding_model,
        }
        return await similarities(db, names, wanted, has_pgvector=self._db.has_pgvector)


def _row_of(memory: NewMemory, now: datetime) -> dict[str, Any]:
    """The columns that a write sets, by name."""
    content = storable(memory.content)
    words = indexed_words(content)
    counted = Counter(words)
    vector = embedding_of(memory)
    return {
        "agent_id": memory.agent_id,
        "user_id": memory.user_id,
        "key": memory.key,
        "content": content,
        "metadata": to_json(dict(memory.metadata)),
        "embedding": None if vector is None else vector.tolist(),
        "model": memory.embedding_model,
        "words": list(counted),
        "times": list(counted.values()),
        "word_count": len(words),
        "now": now,
    }


async def _lock_namespace(db: Connection, agent_id: str, user_id: str) -> None:
    """Wait for other writers of the namespace; two of the same number only wait needlessly."""
    namespace = to_json([agent_id, user_id])
    await db.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_NAMESPACE_LOCK, namespace))


async def _store(
    db: Connection, row: dict[str, Any], known: int | None, ids: SnowflakeSource
) -> Memory:
    """Write a row in the place of a known one, or as a new one."""
    if known is None:
        # Memories have no thread that keeps their ids rising when a clock is set back.
        last = await fetch_row(db, "SELECT coalesce(max(id), 0) AS id FROM memories")
        row = row | {"id": ids.next(after=last["id"])}
        stored = await fetch_row(db, _INSERT, row)
    else:
        row = row | {"id": known}
        stored = await fetch_row(db, _UPDATE, row)
        await db.execute("DELETE FROM memory_words WHERE memory_id = %(id)s", row)
    await db.execute(_INSERT_WORDS, row)
    return _to_memory(stored)


async def _find_by_key(db: Connection, row: dict[str, Any]) -> int | None:
    found = await fetch_one(db, f"SELECT id {_IN_NAMESPACE} AND key = %(key)s", row)
    return None if found is None else int(found["id"])


async def _find_by_content(db: Connection, row: dict[str, Any]) -> int | None:
    sql: LiteralString = f"SELECT id {_IN_NAMESPACE} AND content = %(content)s ORDER BY id LIMIT 1"
    found = await fetch_one(db, sql, row)
    return None if found is None else int(found["id"])


async def _text_scores(
    db: Connection, query: MemorySearch, words: Sequence[str]
) -> tuple[dict[int, float], float]:
    """BM25 of the best, and what an average memory with all the words would have."""
    values: dict[str, Any] = {"agent_id": query.agent_id, "user_id": query.user_id}
    values["words"] = list(set(words))
    found = await fetch_all(db, _SPREAD, values)
    if not found:
        return {}, 0.0
    spread = {row["word"]: row["memories"] for row in found}
    weights = word_weights(words, spread, found[0]["total"])
    values |= {"words": list(weights), "weights": list(weights.values()), "limit": TEXT_CANDIDATES}
    scored = await fetch_all(db, _BY_TEXT, values | {"average": found[0]["average"]})
    scores = {row["memory_id"]: row["score"] for row in scored}
    return scores, full_score(words, spread, found[0]["total"])


def _to_memory(row: DictRow) -> Memory:
    return Memory(
        id=row["id"],
        agent_id=row["agent_id"],
        user_id=row["user_id"],
        key=row["key"],
        content=row["content"],
        metadata=from_json(row["metadata"]),
        embedding_model=row["embedding_model"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )

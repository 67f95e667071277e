"""Memories on PostgreSQL: full text by BM25, vectors by pgvector, or by numpy where it is missing.

Every vector of the namespace is compared, without an index: the scores are normalised over all of
them, and an approximate index combined with a namespace leaves out good matches.
"""

from datetime import datetime
from typing import LiteralString

import numpy as np
from psycopg.rows import DictRow

from segue.core.plain import storable
from segue.core.ranking import fuse_scores
from segue.core.snowflake import MAX_ID, SnowflakeSource
from segue.journal.inputs import vector_of
from segue.journal.postgres.database import Connection, Database, fetch_all, fetch_row
from segue.journal.postgres.words import asked_words, ranked, to_query, to_vector, words_of
from segue.journal.records import FoundMemory, Memory, MemorySearch, NewMemory
from segue.journal.rows import from_json, to_json

# Words are ranked this far down before the two rankings are fused.
_TEXT_CANDIDATES = 200
_PGVECTOR_DIMENSIONS = 16_000
# PostgreSQL sends an array as five numbers about it, then every element after its length.
_ARRAY_HEAD = 20
_ARRAY_ELEMENT = np.dtype([("length", ">i4"), ("value", ">f4")])

# Without the vectors, which are large and of no use outside.
_FIELDS: LiteralString = (
    "id, agent_id, user_id, key, content, metadata, embedding_model, created_at, updated_at"
)
_BY_TEXT: LiteralString = ranked(
    hits="SELECT id, words, word_count FROM memories WHERE agent_id = %(agent_id)s "
    "AND user_id = %(user_id)s AND words @@ %(query)s::tsquery",
    scope="SELECT count(*) AS total, avg(word_count) AS average FROM memories "
    "WHERE agent_id = %(agent_id)s AND user_id = %(user_id)s",
)
_VECTORS: LiteralString = (
    "SELECT id, array_send(embedding) AS array FROM memories "
    "WHERE agent_id = %(agent_id)s AND user_id = %(user_id)s "
    "AND embedding_model IS NOT DISTINCT FROM %(model)s::text "
    "AND cardinality(embedding) = %(size)s"
)
# A vector of zeros points nowhere: pgvector calls its similarity NaN, we call it 0.
_BY_VECTOR: LiteralString = _VECTORS.replace(
    "array_send(embedding) AS array",
    "coalesce(nullif(1 - (embedding::vector <=> %(embedding)s::real[]::vector), 'NaN'), 0) "
    "AS score",
)


class MemorySteps:
    _db: Database

    async def put_memory(self, memory: NewMemory, *, ids: SnowflakeSource, now: datetime) -> Memory:
        embedding = None
        if memory.embedding is not None:
            embedding = vector_of(memory.embedding, memory.embedding_model).tolist()
        content = storable(memory.content)
        words = words_of(content)

        async def step(db: Connection) -> Memory:
            # Memories have no thread that keeps their ids rising when a clock is set back.
            last = await fetch_row(db, "SELECT coalesce(max(id), 0) AS id FROM memories")
            row = await fetch_row(
                db,
                "INSERT INTO memories (id, agent_id, user_id, key, content, metadata, embedding, "  # noqa: S608 - our own words
                "embedding_model, words, word_count, created_at, updated_at) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s::real[], %s, %s::tsvector, %s, %s, %s) "
                "ON CONFLICT (agent_id, user_id, key) DO UPDATE SET content = excluded.content, "
                "metadata = excluded.metadata, embedding = excluded.embedding, "
                "embedding_model = excluded.embedding_model, words = excluded.words, "
                "word_count = excluded.word_count, updated_at = excluded.updated_at "
                f"RETURNING {_FIELDS}",
                (
                    ids.next(after=last["id"]),
                    memory.agent_id,
                    memory.user_id,
                    memory.key,
                    content,
                    to_json(dict(memory.metadata)),
                    embedding,
                    memory.embedding_model,
                    to_vector(words),
                    len(words),
                    now,
                    now,
                ),
            )
            return _to_memory(row)

        return await self._db.write(step)

    async def delete_memory(self, agent_id: str, user_id: str, key: str) -> bool:
        async def step(db: Connection) -> bool:
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

        async def step(db: Connection) -> list[Memory]:
            return [_to_memory(row) for row in await fetch_all(db, sql, values)]

        return await self._db.read(step)

    async def count_memories(self, agent_id: str, user_id: str) -> int:
        async def step(db: Connection) -> int:
            row = await fetch_row(
                db,
                "SELECT count(*) AS count FROM memories WHERE agent_id = %s AND user_id = %s",
                (agent_id, user_id),
            )
            return int(row["count"])

        return await self._db.read(step)

    async def search_memories(self, query: MemorySearch) -> list[FoundMemory]:
        async def step(db: Connection) -> list[FoundMemory]:
            by_text = await _text_scores(db, query)
            by_vector = await _vector_scores(db, query, has_pgvector=self._db.has_pgvector)
            fused = fuse_scores(by_text, by_vector, query.text_weight if by_vector else 1.0)
            best = sorted(fused, key=lambda i: (-fused[i], i))[: query.limit]
            sql = f"SELECT {_FIELDS} FROM memories WHERE id = ANY(%s)"  # noqa: S608 - our own words
            found = {row["id"]: _to_memory(row) for row in await fetch_all(db, sql, (best,))}
            return [FoundMemory(found[i], fused[i], by_text.get(i), by_vector.get(i)) for i in best]

        return await self._db.read(step)


async def _text_scores(db: Connection, query: MemorySearch) -> dict[int, float]:
    words = asked_words(query.text)
    if not words:
        return {}
    values = {
        "agent_id": query.agent_id,
        "user_id": query.user_id,
        "words": words,
        "query": to_query(words),
        "limit": _TEXT_CANDIDATES,
    }
    return {row["id"]: row["score"] for row in await fetch_all(db, _BY_TEXT, values)}


async def _vector_scores(
    db: Connection, query: MemorySearch, *, has_pgvector: bool
) -> dict[int, float]:
    """Cosine similarity with every vector of the same model and size."""
    if query.embedding is None:
        return {}
    wanted = vector_of(query.embedding, query.embedding_model)
    values = {
        "agent_id": query.agent_id,
        "user_id": query.user_id,
        "model": query.embedding_model,
        "size": len(wanted),
        "embedding": wanted.tolist(),
    }
    if has_pgvector and len(wanted) <= _PGVECTOR_DIMENSIONS:
        return {row["id"]: row["score"] for row in await fetch_all(db, _BY_VECTOR, values)}
    rows = await (await db.execute(_VECTORS, values, binary=True)).fetchall()
    if not rows:
        return {}
    sent = [np.frombuffer(row["array"], _ARRAY_ELEMENT, offset=_ARRAY_HEAD) for row in rows]
    matrix = np.stack(sent)["value"].astype(np.float32)
    norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(wanted)
    scores = matrix @ wanted / np.where(norms == 0, 1, norms)
    return {row["id"]: float(score) for row, score in zip(rows, scores, strict=True)}


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

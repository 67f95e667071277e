"""Memories on SQLite: full text by FTS5, vectors as float32 blobs searched with numpy."""

import sqlite3
from datetime import datetime

import numpy as np

from segue.core.plain import storable
from segue.core.ranking import fuse_scores
from segue.core.snowflake import SnowflakeSource
from segue.journal.inputs import vector_of
from segue.journal.records import FoundMemory, Memory, MemorySearch, NewMemory
from segue.journal.rows import from_json, from_micros, to_json, to_micros
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.messages import match_any

# Words are ranked this far down before the two rankings are fused.
_TEXT_CANDIDATES = 200


class MemorySteps:
    _db: Database

    async def put_memory(self, memory: NewMemory, *, ids: SnowflakeSource, now: datetime) -> Memory:
        blob = None
        if memory.embedding is not None:
            blob = vector_of(memory.embedding, memory.embedding_model).tobytes()

        def step(db: sqlite3.Connection) -> Memory:
            at = to_micros(now)
            (newest,) = db.execute("SELECT coalesce(max(id), 0) FROM memories").fetchone()
            row = db.execute(
                "INSERT INTO memories (id, agent_id, user_id, key, content, metadata, embedding, "
                "embedding_model, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (agent_id, user_id, key) DO UPDATE SET content = excluded.content, "
                "metadata = excluded.metadata, embedding = excluded.embedding, "
                "embedding_model = excluded.embedding_model, updated_at = excluded.updated_at "
                "RETURNING *",
                (
                    ids.next(after=newest),
                    memory.agent_id,
                    memory.user_id,
                    memory.key,
                    storable(memory.content),
                    to_json(dict(memory.metadata)),
                    blob,
                    memory.embedding_model,
                    at,
                    at,
                ),
            ).fetchone()
            return _to_memory(row)

        return await self._db.write(step)

    async def delete_memory(self, agent_id: str, user_id: str, key: str) -> bool:
        def step(db: sqlite3.Connection) -> bool:
            deleted = db.execute(
                "DELETE FROM memories WHERE agent_id = ? AND user_id = ? AND key = ?",
                (agent_id, user_id, key),
            )
            return deleted.rowcount > 0

        return await self._db.write(step)

    async def list_memories(
        self, agent_id: str, user_id: str, *, limit: int = 100, before: int | None = None
    ) -> list[Memory]:
        sql = (
            "SELECT * FROM memories WHERE agent_id = ? AND user_id = ? AND (? IS NULL OR id < ?) "
            "ORDER BY id DESC LIMIT ?"
        )
        values = (agent_id, user_id, before, before, limit)
        return await self._db.read(lambda db: [_to_memory(row) for row in db.execute(sql, values)])

    async def count_memories(self, agent_id: str, user_id: str) -> int:
        def step(db: sqlite3.Connection) -> int:
            (count,) = db.execute(
                "SELECT count(*) FROM memories WHERE agent_id = ? AND user_id = ?",
                (agent_id, user_id),
            ).fetchone()
            return int(count)

        return await self._db.read(step)

    async def search_memories(self, query: MemorySearch) -> list[FoundMemory]:
        def step(db: sqlite3.Connection) -> list[FoundMemory]:
            by_text = _text_scores(db, query)
            by_vector = _vector_scores(db, query)
            fused = fuse_scores(by_text, by_vector, query.text_weight if by_vector else 1.0)
            best = sorted(fused, key=lambda i: (-fused[i], i))[: query.limit]
            return [
                FoundMemory(_memory_of(db, i), fused[i], by_text.get(i), by_vector.get(i))
                for i in best
            ]

        return await self._db.read(step)


def _text_scores(db: sqlite3.Connection, query: MemorySearch) -> dict[int, float]:
    words = match_any(query.text)
    if not words:
        return {}
    rows = db.execute(
        "SELECT memories.id, -bm25(memories_words) AS score FROM memories_words "
        "JOIN memories ON memories.id = memories_words.rowid "
        "WHERE memories_words MATCH ? AND memories.agent_id = ? AND memories.user_id = ? "
        "ORDER BY score DESC LIMIT ?",
        (words, query.agent_id, query.user_id, _TEXT_CANDIDATES),
    )
    return {row["id"]: row["score"] for row in rows}


def _vector_scores(db: sqlite3.Connection, query: MemorySearch) -> dict[int, float]:
    """Cosine similarity with every vector of the same model and size."""
    if query.embedding is None:
        return {}
    wanted = vector_of(query.embedding, query.embedding_model)
    rows = db.execute(
        "SELECT id, embedding FROM memories WHERE agent_id = ? AND user_id = ? "
        "AND embedding_model IS ? AND length(embedding) = ?",
        (query.agent_id, query.user_id, query.embedding_model, wanted.nbytes),
    ).fetchall()
    if not rows:
        return {}
    matrix = np.frombuffer(b"".join(row["embedding"] for row in rows), dtype=np.float32)
    matrix = matrix.reshape(len(rows), -1)
    norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(wanted)
    scores = matrix @ wanted / np.where(norms == 0, 1, norms)
    return {row["id"]: float(score) for row, score in zip(rows, scores, strict=True)}


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

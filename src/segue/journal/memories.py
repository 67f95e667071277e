"""Memories: long-term facts, searched by words and by meaning.

Words are in an index of our own, so that a search reads and counts only its own namespace. How
vectors are compared is up to the database.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from segue.core.memory import (
    TEXT_CANDIDATES,
    best_matches,
    full_score,
    indexed_words,
    query_words,
    relevances,
    word_weights,
)
from segue.core.snowflake import MAX_ID, SnowflakeSource
from segue.core.text import storable
from segue.errors import ConflictError, UsageError
from segue.journal.rows import Record, to_json
from segue.journal.tx import Part, Tx, insertion, reads, single_read, writes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Without the vectors, which are large and of no use outside.
_FIELDS: Final = (
    "id, agent_id, user_id, key, content, metadata, embedding_model, created_at, updated_at"
)
_IN_NAMESPACE: Final = "FROM memories WHERE agent_id = :agent AND user_id = :user"
_TO_EMBED: Final = (
    "FROM memories WHERE coalesce(embedding_model, '') <> :model "
    "AND agent_id = coalesce(:agent, agent_id)"
)
# A vector belongs to its content: another content without a vector removes it.
_UPDATE: Final = (
    "UPDATE memories SET content = :content, metadata = :metadata, word_count = :word_count, "
    "updated_at = :updated_at, "
    "embedding = coalesce(:embedding, CASE content WHEN :content THEN embedding END), "
    "embedding_model = coalesce(:embedding_model, "
    "CASE content WHEN :content THEN embedding_model END) "
    f"WHERE id = :id RETURNING {_FIELDS}"
)
# How many memories have each word; and with each, how many there are, and how long.
_SPREAD: Final = f"""
    SELECT word, memories, total, average FROM (
        SELECT count(*) AS total, CAST(avg(word_count) AS double precision) AS average
        {_IN_NAMESPACE}) AS scope, (
        SELECT word, count(*) AS memories FROM memory_words
        WHERE agent_id = :agent AND user_id = :user AND word = ANY(:words) GROUP BY word) AS spread
"""

Vector: TypeAlias = "npt.NDArray[np.float32]"


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A fact to store; an embedding comes with the name of its model."""

    agent_id: str
    user_id: str
    key: str
    content: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    embedding: Sequence[float] | None = None
    embedding_model: str | None = None


@dataclass(frozen=True, slots=True)
class MemorySearch:
    """A search of one namespace; `text_weight` is the share of words against meaning.

    A memory that shares no word with the text is found if its similarity reaches `threshold`.
    """

    agent_id: str
    user_id: str
    text: str
    embedding: Sequence[float] | None = None
    embedding_model: str | None = None
    limit: int = 10
    text_weight: float = 0.5
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Memory(Record):
    """A long-term fact about a user, in the namespace of one agent and one user."""

    id: int
    agent_id: str
    user_id: str
    key: str
    content: str
    metadata: Mapping[str, Any]
    embedding_model: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """A stored memory, whether it is new or replaced one, and the size of its namespace now."""

    memory: Memory
    added: bool
    count: int


@dataclass(frozen=True, slots=True)
class FoundMemory:
    """A memory with its relevance from 0 to 1, its BM25 score and its cosine similarity."""

    memory: Memory
    score: float
    text_score: float | None
    vector_score: float | None


class Memories(Part):
    """A namespace is what one agent knows of one user; one step at a time writes to it."""

    @writes
    async def put(
        self, tx: Tx, memory: NewMemory, *, ids: SnowflakeSource, now: datetime
    ) -> Memory:
        """Store a fact, or replace the one with that key.

        A fact with the content of the one it replaces and without a vector keeps the vector.
        """
        row = _row_of(tx, memory, now)
        await _lock_namespace(tx, memory.agent_id, memory.user_id)
        return await _store(tx, row, await _find_by(tx, row, "key"), ids)

    @writes
    async def keep(
        self,
        tx: Tx,
        memory: NewMemory,
        *,
        duplicate_at: float,
        capacity: int,
        ids: SnowflakeSource,
        now: datetime,
    ) -> KeptMemory:
        """Store a fact, or replace the equal one, which keeps its id and its key.

        That is the one with the same key; else with the same content; else the nearest one of the
        same embedding model, if its similarity reaches `duplicate_at`. `ConflictError` if it is new
        and the namespace holds `capacity` memories; nothing is ever evicted.
        """
        row = _row_of(tx, memory, now)
        await _lock_namespace(tx, memory.agent_id, memory.user_id)
        known = await _find_by(tx, row, "key") or await _find_by(tx, row, "content")
        if known is None:
            scores = await _similarities(tx, memory)
            near = {i: score for i, score in scores.items() if score >= duplicate_at}
            known = max(near, key=lambda i: (near[i], -i), default=None)
        count = await _count(tx, memory.agent_id, memory.user_id)
        if known is None:
            _check_room(memory, count, capacity)
            count += 1
        return KeptMemory(await _store(tx, row, known, ids), known is None, count)

    async def delete(self, agent_id: str, user_id: str, key: str) -> bool:
        was_there = await self._delete_memory(agent_id, user_id, key)
        if was_there:
            await self.db.wipe_log()
        return was_there

    @writes
    async def _delete_memory(self, tx: Tx, agent_id: str, user_id: str, key: str) -> bool:
        await _lock_namespace(tx, agent_id, user_id)
        sql = f"DELETE {_IN_NAMESPACE} AND key = :key"
        return await tx.run(sql, agent=agent_id, user=user_id, key=key) > 0

    @single_read
    async def find(self, tx: Tx, agent_id: str, user_id: str, key: str) -> Memory | None:
        sql = f"SELECT {_FIELDS} {_IN_NAMESPACE} AND key = :key"
        row = await tx.find(sql, agent=agent_id, user=user_id, key=key)
        return None if row is None else Memory.of(row)

    @single_read
    async def list_of(
        self, tx: Tx, agent_id: str, user_id: str, *, limit: int = 100, before: int | None = None
    ) -> list[Memory]:
        """Newest first."""
        sql = f"SELECT {_FIELDS} {_IN_NAMESPACE} AND id < :before ORDER BY id DESC LIMIT :limit"
        page = {"before": MAX_ID if before is None else before, "limit": limit}
        return [*map(Memory.of, await tx.all(sql, agent=agent_id, user=user_id, **page))]

    @single_read
    async def count(self, tx: Tx, agent_id: str, user_id: str) -> int:
        return await _count(tx, agent_id, user_id)

    @reads
    async def search(self, tx: Tx, query: MemorySearch) -> list[FoundMemory]:
        """The best matches of one namespace, ranked by a weighted sum of normalised scores.

        Vectors of another model or dimension are never compared. Any text is a valid query.
        """
        by_text, full = await _text_scores(tx, query, query_words(query.text))
        by_vector = await _similarities(tx, query)
        best = best_matches(
            by_text,
            by_vector,
            text_weight=query.text_weight,
            threshold=query.threshold,
            limit=query.limit,
        )
        scores = relevances(best, by_text, by_vector, full=full)
        sql = f"SELECT {_FIELDS} FROM memories WHERE id = ANY(:ids)"
        found = {row["id"]: Memory.of(row) for row in await tx.all(sql, ids=[*best])}
        return [
            FoundMemory(found[i], score, by_text.get(i), by_vector.get(i))
            for i, score in scores.items()
        ]

    @single_read
    async def count_to_embed(self, tx: Tx, model: str, *, agent_id: str | None = None) -> int:
        """The number of memories, of all agents or of one, without a vector of that model."""
        sql = f"SELECT count(*) AS count {_TO_EMBED}"
        return int((await tx.get(sql, model=model, agent=agent_id))["count"])

    @single_read
    async def list_to_embed(
        self, tx: Tx, model: str, *, agent_id: str | None = None, limit: int = 100, after: int = 0
    ) -> list[Memory]:
        """Memories, of all agents or of one, without a vector of that model, by rising id."""
        sql = f"SELECT {_FIELDS} {_TO_EMBED} AND id > :after ORDER BY id LIMIT :limit"
        rows = await tx.all(sql, model=model, agent=agent_id, after=after, limit=limit)
        return [*map(Memory.of, rows)]

    @writes
    async def set_embedding(
        self, tx: Tx, memory: Memory, embedding: Sequence[float], model: str
    ) -> bool:
        """Give a memory the vector of its content; False if it changed since it was read."""
        sql = (
            "UPDATE memories SET embedding = :embedding, embedding_model = :model WHERE id = :id "
            "AND content = :content AND coalesce(embedding_model, '') = :before"
        )
        new = {"embedding": tx.vector(vector_of(embedding, model)), "model": model}
        read = {"content": memory.content, "before": memory.embedding_model or ""}
        return await tx.run(sql, **new, **read, id=memory.id) > 0


def memory_words(memory: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of the index for a memory, in the order of `MEMORY_WORDS`."""
    words = indexed_words(memory["content"])
    return [
        (memory["agent_id"], memory["user_id"], word, memory["id"], times, len(words))
        for word, times in Counter(words).items()
    ]


MEMORY_WORDS: Final = ("agent_id", "user_id", "word", "memory_id", "times", "word_count")


def _row_of(tx: Tx, memory: NewMemory, now: datetime) -> dict[str, Any]:
    """The columns that a write sets."""
    content = storable(memory.content)
    vector = _embedding_of(memory)
    return {
        "agent_id": memory.agent_id,
        "user_id": memory.user_id,
        "key": memory.key,
        "content": content,
        "metadata": to_json(dict(memory.metadata)),
        "embedding": None if vector is None else tx.vector(vector),
        "embedding_model": memory.embedding_model,
        "word_count": len(indexed_words(content)),
        "updated_at": now,
    }


async def _lock_namespace(tx: Tx, agent_id: str, user_id: str) -> None:
    await tx.lock(to_json([agent_id, user_id]))


async def _store(tx: Tx, row: dict[str, Any], known: int | None, ids: SnowflakeSource) -> Memory:
    """Insert the row, or update the known one."""
    if known is None:
        # Memories have no thread that keeps their ids rising when a clock is set back.
        last = await tx.get("SELECT coalesce(max(id), 0) AS id FROM memories")
        new = {**row, "id": ids.next(after=last["id"]), "created_at": row["updated_at"]}
        [stored] = await tx.together(insertion("memories", f"RETURNING {_FIELDS}", **new))
    else:
        changed = {k: v for k, v in row.items() if k not in {"agent_id", "user_id", "key"}}
        stored = await tx.get(_UPDATE, **changed, id=known)
        await tx.run("DELETE FROM memory_words WHERE memory_id = :id", id=known)
    await tx.insert("memory_words", MEMORY_WORDS, memory_words(stored))
    return Memory.of(stored)


async def _find_by(tx: Tx, row: dict[str, Any], column: str) -> int | None:
    sql = f"SELECT id {_IN_NAMESPACE} AND {column} = :value ORDER BY id LIMIT 1"
    found = await tx.find(sql, agent=row["agent_id"], user=row["user_id"], value=row[column])
    return None if found is None else int(found["id"])


async def _count(tx: Tx, agent_id: str, user_id: str) -> int:
    sql = f"SELECT count(*) AS count {_IN_NAMESPACE}"
    return int((await tx.get(sql, agent=agent_id, user=user_id))["count"])


async def _text_scores(
    tx: Tx, query: MemorySearch, words: Sequence[str]
) -> tuple[dict[int, float], float]:
    """BM25 of the best, and what an average memory with all the words would have."""
    namespace = {"agent": query.agent_id, "user": query.user_id}
    found = await tx.all(_SPREAD, **namespace, words=[*set(words)])
    if not found:
        return {}, 0.0
    total, average = found[0]["total"], found[0]["average"]
    spread = {row["word"]: row["memories"] for row in found}
    weights = word_weights(words, spread, total)
    scores = await tx.score_words(weights, **namespace, average=average, limit=TEXT_CANDIDATES)
    return scores, full_score(words, spread, total)


async def _similarities(tx: Tx, sought: MemorySearch | NewMemory) -> dict[int, float]:
    if sought.embedding is None:
        return {}
    wanted = vector_of(sought.embedding, sought.embedding_model)
    return await tx.similarities(sought.agent_id, sought.user_id, sought.embedding_model, wanted)


def _embedding_of(memory: NewMemory) -> "Vector | None":
    if memory.embedding is not None:
        return vector_of(memory.embedding, memory.embedding_model)
    if memory.embedding_model is not None:
        raise UsageError("An embedding_model without an embedding; give both or neither.")
    return None


def vector_of(embedding: Sequence[float], model: str | None) -> Vector:
    """The numbers as float32; `UsageError` unless all are finite and the model is named."""
    # It takes 0.3 s to import, and most commands store no embedding.
    import numpy as np  # noqa: PLC0415

    if not model:
        raise UsageError("An embedding needs the name of the model that made it.")
    with np.errstate(over="ignore"):
        vector = np.asarray(embedding, dtype=np.float32)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise UsageError("An embedding is a list of finite numbers, at least one.")
    return vector


def _check_room(memory: NewMemory, count: int, capacity: int) -> None:
    if count >= capacity:
        raise ConflictError(
            f"Agent {memory.agent_id!r} knows {count:,} facts about user {memory.user_id!r}, and "
            f"its memory.capacity is {capacity:,}. Forget some or raise it. Nothing was written."
        )

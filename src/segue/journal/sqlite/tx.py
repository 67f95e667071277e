"""A transaction on SQLite: statements, full-text search, and the vectors of memories."""

import sqlite3
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nlargest
from itertools import chain
from math import log
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from segue.journal.memories import Vector
from segue.journal.records import PAGE_BYTES
from segue.journal.rows import MICROSECOND, body_size, to_json, to_micros
from segue.journal.search import EXCERPT_SIZES, excerpt_words, owner_mark, query_words
from segue.journal.tx import Row, Statement, Tx, for_sqlite

if TYPE_CHECKING:
    import numpy.typing as npt

# Rows of one statement; few sizes, since SQLite caches each prepared statement.
_INSERTED_AT_ONCE: Final = (64, 8, 1)
# BM25: further repetitions of a word add little, and a word in a long text counts less.
_SCORE_WORDS: Final = """
    SELECT memory_id, sum(
        asked.value * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * word_count / ?4))) AS score
    FROM json_each(?1) AS asked CROSS JOIN memory_words ON word = asked.key
    WHERE agent_id = ?2 AND user_id = ?3 GROUP BY memory_id ORDER BY score DESC, memory_id LIMIT ?5
"""
# Each occurrence of the words in a user's messages, with the message and its number of words.
HITS: Final = """
    SELECT asked.key, doc, word_count
    FROM json_each(:terms) AS asked CROSS JOIN messages_terms ON term = asked.value
    JOIN indexed_messages INDEXED BY indexed_threads ON indexed_messages.message = doc
    JOIN threads ON threads.id = indexed_messages.thread_id
    WHERE threads.user_id = :user AND CASE WHEN :thread IS NULL
        THEN instr(threads.id, '/') = 0 ELSE threads.id = :thread END
"""
# Only columns that are stored before the body: to reach those behind it, SQLite reads all of it.
# LIMIT keeps SQLite from looking for the words again wherever `start` is used.
_EXCERPTS: Final = """
    SELECT thread_id, message_id, position, role, batch_type, score, start,
        substr(text, start, :longest) AS excerpt, length(text) AS length
    FROM (
        SELECT messages.rowid AS found, best.value AS score, max(1, coalesce((
            SELECT min(nullif(instr(lower(text), value), 0)) FROM json_each(:words)), 1) - :lead
        ) AS start
        FROM json_each(:scores) AS best CROSS JOIN messages ON messages.rowid = best.key + 0
        LIMIT -1
    ) CROSS JOIN messages ON messages.rowid = found ORDER BY score DESC, position DESC
"""
_PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
# About forty namespaces of a thousand memories each.
_CACHE_BYTES: Final = 64 * 2**20

# Agent, user, embedding model, and bytes of a vector.
Namespace = tuple[str, str, str | None, int]
# The number of changes, which restarts for a deleted user, and the newest memory.
Version = tuple[int, int]


class SqliteTx(Tx):
    """A transaction on a connection that this thread has to itself; no method suspends."""

    def __init__(self, connection: sqlite3.Connection, vectors: "VectorCache") -> None:
        self._connection = connection
        self._vectors = vectors

    async def all(self, sql: str, /, **values: Any) -> list[Row]:
        return self._execute(sql, values).fetchall()

    async def bounded(self, sql: str, /, **values: Any) -> list[Row]:
        rows: list[Row] = []
        room = PAGE_BYTES
        # Closed, since a cursor that was not read to its end holds on to its snapshot.
        with closing(self._execute(sql, values)) as cursor:
            for row in cursor:
                rows.append(row)
                room -= body_size(row["body"])
                if room <= 0:
                    break
        return rows

    async def run(self, sql: str, /, **values: Any) -> int:
        return self._execute(sql, values).rowcount

    async def together(self, *statements: Statement) -> list[Row]:
        rows: list[Row] = []
        for each in statements:
            rows = self._execute(each.sql, each.values).fetchall()
        return rows

    async def lock(self, name: str) -> None:
        """A writer has the whole file to itself."""

    async def insert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Many rows per statement: at the end of each, the full-text index is written out."""
        place, start = f"({', '.join('?' for _ in columns)})", 0
        for size in _INSERTED_AT_ONCE:
            end = start + (len(rows) - start) // size * size
            values = [[_stored(value) for value in row] for row in rows[start:end]]
            places = ", ".join([place] * size)
            self._connection.executemany(
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES {places}",
                [[*chain(*values[at : at + size])] for at in range(0, len(values), size)],
            )
            start = end

    def words_of(self, user_id: str, text: str | None) -> dict[str, Any]:
        """None: a trigger indexes the text."""
        del user_id, text
        return {}

    def vector(self, numbers: "npt.ArrayLike") -> bytes:
        import numpy as np  # noqa: PLC0415 - see `_unit`

        return np.asarray(numbers, dtype=np.float32).tobytes()

    async def search(self, user_id: str, text: str, thread_id: str | None, limit: int) -> list[Row]:
        scores = to_json(self._rank(user_id, text, thread_id, limit))
        return await self.all(_EXCERPTS, scores=scores, words=excerpt_words(text), **EXCERPT_SIZES)

    async def score_words(
        self, weights: Mapping[str, float], *, agent: str, user: str, average: float, limit: int
    ) -> dict[int, float]:
        values = (to_json(dict(weights)), agent, user, average, limit)
        return dict(self._connection.execute(_SCORE_WORDS, values).fetchall())

    async def similarities(
        self, agent_id: str, user_id: str, model: str | None, wanted: Vector
    ) -> dict[int, float]:
        namespace = (agent_id, user_id, model, wanted.nbytes)
        return self._vectors.similarities(self._connection, namespace, wanted)

    async def forget_user(self, user_id: str) -> None:
        self._connection.execute("DELETE FROM memory_changes WHERE user_id = ?", (user_id,))

    def _execute(self, sql: str, values: dict[str, Any]) -> sqlite3.Cursor:
        return self._connection.execute(for_sqlite(sql), stored(values))

    def _rank(self, user_id: str, text: str, thread_id: str | None, limit: int) -> dict[int, float]:
        """Row ids of a user's best messages for a query, with their scores.

        BM25 within the user's messages, as on PostgreSQL. FTS5's own would read the messages of all
        users, and weigh a word by how often others use it.
        """
        asked, mark = Counter(query_words(text)), owner_mark(user_id)
        terms = to_json({word: f"{mark}{word}" for word in asked})
        found = self._execute(HITS, {"terms": terms, "user": user_id, "thread": thread_id})
        found.row_factory = None  # tuples
        hits = Counter(found)  # GROUP BY would sort them
        if not hits:
            return {}
        sql = "SELECT sum(message_count) FROM threads WHERE user_id = ?"
        (total,) = self._connection.execute(sql, (user_id,)).fetchone()
        scores = _bm25(hits, asked, total)
        best = nlargest(limit, zip(scores.values(), scores, strict=True))
        return {message: score for score, message in best}


def stored(values: dict[str, Any]) -> dict[str, Any]:
    """Values as SQLite holds them."""
    return {
        name: value if type(value) in _PLAIN else _stored(value) for name, value in values.items()
    }


def _stored(value: Any) -> Any:
    """Times and durations in microseconds, lists as JSON."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, timedelta):
        return value // MICROSECOND
    return to_json([*value]) if isinstance(value, list | tuple | set | frozenset) else value


def _bm25(
    hits: Mapping[tuple[Any, ...], int], asked: Mapping[str, int], total: int
) -> dict[int, float]:
    """The scores of messages, from how often a word occurs in a message of a length."""
    lengths = dict(map(itemgetter(1, 2), hits))
    average = sum(lengths.values()) / len(lengths)
    spread = Counter(map(itemgetter(0), hits))
    weights = {word: asked[word] * _rarity(count, total) for word, count in spread.items()}
    scores = dict.fromkeys(lengths, 0.0)
    for (word, message, length), times in hits.items():
        share = times * 2.2 / (times + 1.2 * (0.25 + 0.75 * length / average))
        scores[message] += weights[word] * share
    return scores


def _rarity(count: int, total: int) -> float:
    return max(1e-6, log((max(total, count) - count + 0.5) / (count + 0.5)))


@dataclass(frozen=True, slots=True)
class Vectors:
    """Unit vectors as the rows of a matrix, and the memories that they belong to."""

    version: Version
    ids: list[int]
    matrix: Vector


class VectorCache:
    """The vectors of namespaces in memory: reading ten thousand from the file takes longer than
    comparing them.

    Every change in a namespace, by any process, raises its number in `memory_changes`; an entry is
    valid while that is the same. Safe for several threads; each call brings its own transaction.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Namespace, Vectors] = OrderedDict()
        self._lock = threading.Lock()

    def similarities(
        self, db: sqlite3.Connection, namespace: Namespace, wanted: Vector
    ) -> dict[int, float]:
        """Cosine similarity with every vector of the same model and size.

        Call it before the transaction writes: what it reads is cached.
        """
        import numpy as np  # noqa: PLC0415 - see `_unit`

        version = _version(db, namespace)
        vectors = self._find(namespace, version) or self._read(db, namespace, version)
        # Not by `@`: for so little work its threads wait for each other longer than they compute.
        scores = np.einsum("ij,j->i", vectors.matrix, _unit(wanted))
        return dict(zip(vectors.ids, scores.tolist(), strict=True))

    def _find(self, namespace: Namespace, version: Version) -> Vectors | None:
        with self._lock:
            found = self._entries.get(namespace)
            if found is None or found.version != version:
                return None
            self._entries.move_to_end(namespace)
            return found

    def _read(self, db: sqlite3.Connection, namespace: Namespace, version: Version) -> Vectors:
        import numpy as np  # noqa: PLC0415 - see `_unit`

        rows = db.execute(
            "SELECT id, embedding FROM memories WHERE agent_id = ? AND user_id = ? "
            "AND embedding_model IS ? AND length(embedding) = ?",
            namespace,
        ).fetchall()
        joined = np.frombuffer(b"".join(row["embedding"] for row in rows), dtype=np.float32)
        matrix = _unit(joined.reshape(len(rows), namespace[3] // joined.itemsize))
        vectors = Vectors(version, [row["id"] for row in rows], matrix)
        with self._lock:
            self._entries[namespace] = vectors
            self._entries.move_to_end(namespace)
            size = sum(entry.matrix.nbytes for entry in self._entries.values())
            while size > _CACHE_BYTES:
                size -= self._entries.popitem(last=False)[1].matrix.nbytes
        return vectors


def _version(db: sqlite3.Connection, namespace: Namespace) -> Version:
    row = db.execute(
        "SELECT changes, (SELECT coalesce(max(id), 0) FROM memories "
        "WHERE agent_id = ?1 AND user_id = ?2) AS newest "
        "FROM memory_changes WHERE agent_id = ?1 AND user_id = ?2",
        namespace[:2],
    ).fetchone()
    return (int(row["changes"]), int(row["newest"])) if row else (0, 0)


def _unit(vectors: Vector) -> Vector:
    """Vectors of length 1; one of zeros stays as it is."""
    # It takes 0.3 s to import, and most commands compare no vectors.
    import numpy as np  # noqa: PLC0415

    squares = np.einsum("...i,...i->...", vectors, vectors, dtype=np.float64)
    lengths = np.sqrt(np.where(squares == 0, 1, squares))[..., np.newaxis]
    return (vectors / lengths).astype(np.float32)

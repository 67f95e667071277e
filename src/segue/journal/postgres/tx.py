"""A transaction on PostgreSQL: statements, full-text search, and the vectors of memories.

Every vector of a namespace is compared, without an index: the scores are normalised over all of
them, and an approximate index combined with a namespace leaves out good matches.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, LiteralString

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.abc import Buffer
from psycopg.adapt import Transformer
from psycopg.rows import DictRow, dict_row
from psycopg.sql import SQL, Identifier
from psycopg.types.datetime import TimestamptzLoader

from segue.journal.memories import Vector
from segue.journal.records import PAGE_BYTES
from segue.journal.search import EXCERPT_SIZES, excerpt_words, owner_mark, query_words, words_of
from segue.journal.tx import Row, Statement, Tx, for_postgres, merged, merged_values

Connection = AsyncConnection[DictRow]

NAME_LOCK: Final = 0x5E6C
_LOCK_NAME: LiteralString = "SELECT pg_advisory_xact_lock(%s, hashtext(%s))"
_BOUNDED: Final = """
    SELECT * FROM (SELECT *, sum(octet_length(body)) OVER (
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM ({}) AS nearest) AS counted WHERE coalesce(bytes_before, 0) < :page_bytes
"""
# BM25: further repetitions of a word add little, and a word in a long text counts less. A bare
# 0.75 would be a numeric, with which the sum takes ten times as long. OFFSET keeps the planner from
# reading all words of the namespace, which it prefers while it has no statistics of a new table.
SCORE_WORDS: Final = """
    SELECT memory_id, sum(weight * times * 2.2
        / (times + 1.2 * (0.25 + 0.75::float8 * word_count / :average::float8))) AS score
    FROM unnest(:words::text[], :weights::float8[]) AS asked (word, weight)
    CROSS JOIN LATERAL (
        SELECT memory_id, times, word_count FROM memory_words
        WHERE agent_id = :agent AND user_id = :user AND word = asked.word OFFSET 0
    ) AS found
    GROUP BY memory_id ORDER BY score DESC, memory_id LIMIT :limit
"""
# Full text: BM25 as on SQLite, because `ts_rank` makes "the" count as much as a name. The best
# matches first, then their excerpts. The matches are materialised before the join with threads: the
# planner expects few of these, and would read the index again for each.
FOUND: Final = """
    WITH matches AS MATERIALIZED (
        SELECT id, thread_id, words, word_count FROM messages WHERE words @@ :query::tsquery
    ), hits AS NOT MATERIALIZED (
        SELECT matches.id, words, word_count FROM matches JOIN threads ON threads.id = thread_id
        WHERE threads.user_id = :user
        AND CASE WHEN :thread::text IS NULL THEN strpos(threads.id, '/') = 0
            ELSE threads.id = :thread END
    ), scope AS (
        SELECT (SELECT sum(message_count) FROM threads WHERE user_id = :user) AS total,
            avg(word_count) AS average FROM hits
    ), terms AS (
        SELECT hits.id, hits.word_count, term.lexeme, cardinality(term.positions) AS times
        FROM hits, unnest(hits.words) AS term WHERE term.lexeme = ANY(:words)
    ), rarity AS (
        SELECT lexeme, greatest(1e-6, ln(
            (greatest(max(total), count(*)) - count(*) + 0.5)::float8 / (count(*) + 0.5))) AS weight
        FROM terms, scope GROUP BY lexeme
    ), best AS (
        SELECT id, sum(weight * times * 2.2
            / (times + 1.2 * (0.25 + 0.75::float8 * word_count / average::float8))) AS score
        FROM unnest(:words::text[]) AS lexeme
        JOIN rarity USING (lexeme) JOIN terms USING (lexeme) CROSS JOIN scope
        GROUP BY id ORDER BY score DESC, id DESC LIMIT :limit
    )
    SELECT thread_id, message_id, position, role, batch_type, score, start,
        substr(text, start, :longest) AS excerpt, length(text) AS length
    FROM best JOIN messages USING (id) CROSS JOIN LATERAL (
        SELECT greatest(1, coalesce(min(nullif(strpos(lower(text), word), 0)), 1) - :lead)
            AS start FROM unnest(:excerpt_words::text[]) AS word
    ) AS place ORDER BY score DESC, position DESC
"""
_PGVECTOR_DIMENSIONS: Final = 16_000
# PostgreSQL sends an array as five numbers about it, then every element after its length.
_ARRAY_HEAD: Final = 20
_OF_MODEL: LiteralString = (
    "FROM memories WHERE agent_id = %(agent_id)s AND user_id = %(user_id)s "
    "AND embedding_model IS NOT DISTINCT FROM %(model)s::text"
)
_VECTORS: LiteralString = (
    f"SELECT id, array_send(embedding) AS vector {_OF_MODEL} AND cardinality(embedding) = %(size)s"
)
# pgvector's similarity with a vector of zeros is NaN, ours 0. Two arrays, since one row per vector
# takes longer to read than to compare; and the wanted vector in a subquery, since a prepared
# statement would parse it again for every row.
_SCORES: LiteralString = f"""
    SELECT array_send(array_agg(id)) AS ids, array_send(array_agg(score)) AS scores FROM (
        SELECT id, coalesce(
            nullif(1 - (near <=> (SELECT %(embedding)s::text::vector)), 'NaN'), 0
        ) AS score
        {_OF_MODEL} AND vector_dims(near) = %(size)s)
"""


class PostgresTx(Tx):
    """A transaction on a connection."""

    def __init__(self, connection: Connection, *, has_pgvector: bool = False) -> None:
        self._connection = connection
        self._has_pgvector = has_pgvector

    async def all(self, sql: str, /, **values: Any) -> list[Row]:
        return await _rows_of(await self._connection.execute(for_postgres(sql), values))

    async def bounded(self, sql: str, /, **values: Any) -> list[Row]:
        """`octet_length` reads only the head of a large value."""
        return await self.all(_BOUNDED.format(sql), **values, page_bytes=PAGE_BYTES)

    async def run(self, sql: str, /, **values: Any) -> int:
        return (await self._connection.execute(for_postgres(sql), values)).rowcount

    async def together(self, *statements: Statement) -> list[Row]:
        query = for_postgres(merged(tuple(each.sql for each in statements)))
        done = await self._connection.execute(query, merged_values(statements))
        return await _rows_of(done) if done.description else []

    async def lock(self, name: str) -> None:
        """Two names with the same hash only wait needlessly."""
        await self._connection.execute(_LOCK_NAME, (NAME_LOCK, name))

    async def insert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        query = SQL("COPY {} ({}) FROM STDIN").format(
            Identifier(table), SQL(", ").join(map(Identifier, columns))
        )
        async with self._connection.cursor().copy(query) as copy:
            for row in rows:
                await copy.write_row(row)

    def words_of(self, user_id: str, text: str | None) -> dict[str, Any]:
        if text is None:
            return {"words": None, "word_count": None}
        words = words_of(text)
        return {"words": to_tsvector(words, owner_mark(user_id)), "word_count": len(words)}

    def vector(self, numbers: Any) -> str:
        """As text: a list of floats takes the driver longer than the server takes to read it."""
        return "{" + ",".join(map(str, numbers.tolist())) + "}"

    async def search(self, user_id: str, text: str, thread_id: str | None, limit: int) -> list[Row]:
        mark = owner_mark(user_id)
        words = [f"{mark}{word}" for word in query_words(text)]
        if not words:
            return []
        values = {"words": words, "query": " | ".join(words), "user": user_id, "thread": thread_id}
        sizes = {**EXCERPT_SIZES, "excerpt_words": excerpt_words(text), "limit": limit}
        return await self.all(FOUND, **values, **sizes)

    async def score_words(
        self, weights: Mapping[str, float], *, agent: str, user: str, average: float, limit: int
    ) -> dict[int, float]:
        values = {"words": [*weights], "weights": [*weights.values()], "average": average}
        rows = await self.all(SCORE_WORDS, **values, agent=agent, user=user, limit=limit)
        return {row["memory_id"]: row["score"] for row in rows}

    async def similarities(
        self, agent_id: str, user_id: str, model: str | None, wanted: Vector
    ) -> dict[int, float]:
        """By pgvector, or by numpy where it is missing."""
        values = {"agent_id": agent_id, "user_id": user_id, "model": model, "size": len(wanted)}
        if self._has_pgvector and len(wanted) <= _PGVECTOR_DIMENSIONS:
            # As text, as above.
            values["embedding"] = f"[{','.join(map(str, wanted.tolist()))}]"
            row = await (await self._connection.execute(_SCORES, values, binary=True)).fetchone()
            if row is None or row["ids"] is None:
                return {}
            ids, scores = _array(row["ids"], ">i8"), _array(row["scores"], ">f8")
            return dict(zip(ids.tolist(), scores.tolist(), strict=True))
        rows = await (await self._connection.execute(_VECTORS, values, binary=True)).fetchall()
        if not rows:
            return {}
        matrix = np.stack([_array(row["vector"], ">f4") for row in rows]).astype(np.float64)
        lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(wanted)
        near = matrix @ wanted / np.where(lengths == 0, 1, lengths)
        return dict(zip((row["id"] for row in rows), near.tolist(), strict=True))

    async def forget_user(self, user_id: str) -> None:
        """Nothing is stored besides the memories."""


async def _rows_of(cursor: AsyncCursor[DictRow]) -> list[Row]:
    """The rows of a result; a time that Python cannot hold is text, so that one damaged row does
    not hide the others.
    """
    try:
        return await cursor.fetchall()
    except psycopg.DataError:
        result = cursor.pgresult
        assert result is not None  # noqa: S101 - there were rows
        lenient = Transformer(cursor)
        lenient.adapters.register_loader("timestamptz", _LenientLoader)
        lenient.set_pgresult(result)
        return lenient.load_rows(0, result.ntuples, dict_row(cursor))


class _LenientLoader(TimestamptzLoader):
    def load(self, data: Buffer) -> Any:
        try:
            return super().load(data)
        except psycopg.DataError:
            return bytes(data).decode()


def to_tsvector(words: Sequence[str], mark: str) -> str:
    """Words behind a mark; they are letters and digits, so nothing needs quoting."""
    return " ".join(f"{mark}{word}:{place}" for place, word in enumerate(words, 1))


def _array(sent: bytes, kind: str) -> npt.NDArray[Any]:
    element = np.dtype([("length", ">i4"), ("value", kind)])
    values: npt.NDArray[Any] = np.frombuffer(sent, element, offset=_ARRAY_HEAD)["value"]
    return values

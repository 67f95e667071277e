"""How near the vectors of a namespace are, by pgvector, or by numpy where it is missing.

Every vector is compared, without an index: the scores are normalised over all of them, and an
approximate index combined with a namespace leaves out good matches.
"""

from typing import Any, LiteralString

import numpy as np
import numpy.typing as npt

from segue.journal.inputs import Vector
from segue.journal.postgres.database import Connection

_PGVECTOR_DIMENSIONS = 16_000
# PostgreSQL sends an array as five numbers about it, then every element after its length.
_ARRAY_HEAD = 20

_OF_MODEL: LiteralString = (
    "FROM memories WHERE agent_id = %(agent_id)s AND user_id = %(user_id)s "
    "AND embedding_model IS NOT DISTINCT FROM %(model)s::text"
)
_VECTORS: LiteralString = (
    f"SELECT id, array_send(embedding) AS vector {_OF_MODEL} AND cardinality(embedding) = %(size)s"
)
# A vector of zeros points nowhere: pgvector calls its similarity NaN, we call it 0. As two arrays,
# since a row for each takes longer to read than to compare; and what is asked for in a query of its
# own, since in a prepared statement it would be read anew for every row.
_SCORES: LiteralString = f"""
    SELECT array_send(array_agg(id)) AS ids, array_send(array_agg(score)) AS scores FROM (
        SELECT id, coalesce(
            nullif(1 - (near <=> (SELECT %(embedding)s::text::vector)), 'NaN'), 0
        ) AS score
        {_OF_MODEL} AND vector_dims(near) = %(size)s)
"""  # noqa: S608 - our own words


async def similarities(
    db: Connection, names: dict[str, Any], wanted: Vector, *, has_pgvector: bool
) -> dict[int, float]:
    """Cosine similarity with every vector of the same model and size.

    `names` are the namespace's `agent_id` and `user_id`, and the `model`.
    """
    values = names | {"size": len(wanted)}
    if has_pgvector and len(wanted) <= _PGVECTOR_DIMENSIONS:
        # As text: a list of floats takes the driver longer than the server takes to compare.
        values["embedding"] = f"[{','.join(map(str, wanted.tolist()))}]"
        row = await (await db.execute(_SCORES, values, binary=True)).fetchone()
        if row is None or row["ids"] is None:
            return {}
        ids, scores = _array(row["ids"], ">i8"), _array(row["scores"], ">f8")
        return dict(zip(ids.tolist(), scores.tolist(), strict=True))
    rows = await (await db.execute(_VECTORS, values, binary=True)).fetchall()
    if not rows:
        return {}
    matrix = np.stack([_array(row["vector"], ">f4") for row in rows]).astype(np.float64)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(wanted)
    near = matrix @ wanted / np.where(lengths == 0, 1, lengths)
    return dict(zip((row["id"] for row in rows), near.tolist(), strict=True))


def _array(sent: bytes, kind: str) -> npt.NDArray[Any]:
    element = np.dtype([("length", ">i4"), ("value", kind)])
    values: npt.NDArray[Any] = np.frombuffer(sent, element, offset=_ARRAY_HEAD)["value"]
    return values

"""The vectors of a namespace, kept in memory for as long as nobody changed them.

Reading ten thousand vectors from the file takes longer than comparing them. Every change in a
namespace raises its number in `memory_changes`, so what is kept here is right if it was read under
the same number; who wrote it, and from which process, does not matter.
"""

import sqlite3
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from segue.journal.inputs import Vector

# Some forty namespaces of a thousand memories each; more are read anew.
_MOST_BYTES = 64 * 2**20

Place = tuple[str, str, str | None, int]
# The number of changes, which begins anew for a user who was deleted, and the newest memory.
Changes = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Vectors:
    """Unit vectors as the rows of a matrix, and the memories that they belong to."""

    changes: Changes
    ids: list[int]
    matrix: npt.NDArray[np.float32]


class VectorCache:
    """Safe for several threads; each call brings a transaction of its own."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Place, Vectors] = OrderedDict()
        self._lock = threading.Lock()

    def similarities(
        self, db: sqlite3.Connection, agent_id: str, user_id: str, wanted: Vector, model: str | None
    ) -> dict[int, float]:
        """Cosine similarity with every vector of the namespace of the same model and size.

        Call it before the transaction writes: what it reads is kept.
        """
        place = (agent_id, user_id, model, wanted.nbytes)
        vectors = self._find(place, _changes(db, agent_id, user_id)) or self._read(db, place)
        # Not by `@`: for so little work its threads wait for each other longer than they compute.
        scores = np.einsum("ij,j->i", vectors.matrix, _unit(wanted))
        return dict(zip(vectors.ids, scores.tolist(), strict=True))

    def _find(self, place: Place, changes: Changes) -> Vectors | None:
        with self._lock:
            kept = self._kept.get(place)
            if kept is None or kept.changes != changes:
                return None
            self._kept.move_to_end(place)
            return kept

    def _read(self, db: sqlite3.Connection, place: Place) -> Vectors:
        agent_id, user_id, _, size = place
        rows = db.execute(
            "SELECT id, embedding FROM memories WHERE agent_id = ? AND user_id = ? "
            "AND embedding_model IS ? AND length(embedding) = ?",
            place,
        ).fetchall()
        joined = np.frombuffer(b"".join(row["embedding"] for row in rows), dtype=np.float32)
        matrix = _unit(joined.reshape(len(rows), size // joined.itemsize))
        vectors = Vectors(_changes(db, agent_id, user_id), [row["id"] for row in rows], matrix)
        self._keep(place, vectors)
        return vectors

    def _keep(self, place: Place, vectors: Vectors) -> None:
        with self._lock:
            self._kept[place] = vectors
            self._kept.move_to_end(place)
            size = sum(kept.matrix.nbytes for kept in self._kept.values())
            while size > self._most_bytes:
                size -= self._kept.popitem(last=False)[1].matrix.nbytes


def _changes(db: sqlite3.Connection, agent_id: str, user_id: str) -> Changes:
    row = db.execute(
        "SELECT changes, (SELECT coalesce(max(id), 0) FROM memories "
        "WHERE agent_id = ?1 AND user_id = ?2) AS newest "
        "FROM memory_changes WHERE agent_id = ?1 AND user_id = ?2",
        (agent_id, user_id),
    ).fetchone()
    return (int(row["changes"]), int(row["newest"])) if row else (0, 0)


def _unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Vectors of length 1; one of zeros points nowhere and stays as it is."""
    squares = np.einsum("...i,...i->...", vectors, vectors, dtype=np.float64)
    lengths = np.sqrt(np.where(squares == 0, 1, squares))[..., np.newaxis]
    return (vectors / lengths).astype(np.float32)

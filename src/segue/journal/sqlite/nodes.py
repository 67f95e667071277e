"""Leased node numbers on SQLite."""

import sqlite3
from datetime import datetime, timedelta

from segue.core.errors import ConflictError
from segue.core.snowflake import MAX_ID, MAX_NODE
from segue.journal.inputs import lease_end
from segue.journal.rows import to_micros
from segue.journal.sqlite.database import Database


class NodeSteps:
    _db: Database

    async def lease_node(self, owner: str, *, now: datetime, lease_for: timedelta) -> int:
        def step(db: sqlite3.Connection) -> int:
            at = to_micros(now)
            taken = {
                row["node"]
                for row in db.execute("SELECT node FROM nodes WHERE lease_until > ?", (at,))
            }
            free = next((node for node in range(MAX_NODE + 1) if node not in taken), None)
            if free is None:
                raise ConflictError(f"All {MAX_NODE + 1} node numbers are taken.")
            db.execute(
                "INSERT INTO nodes VALUES (?, ?, ?) ON CONFLICT (node) DO UPDATE "
                "SET owner = excluded.owner, lease_until = excluded.lease_until",
                (free, owner, to_micros(lease_end(now, lease_for))),
            )
            return free

        return await self._db.write(step)

    async def extend_node(
        self, node: int, owner: str, *, now: datetime, lease_for: timedelta
    ) -> None:
        def step(db: sqlite3.Connection) -> None:
            changed = db.execute(
                "UPDATE nodes SET lease_until = ? WHERE node = ? AND owner = ?",
                (to_micros(lease_end(now, lease_for)), node, owner),
            )
            if changed.rowcount == 0:
                raise ConflictError(f"Node {node} no longer belongs to {owner!r}; lease a new one.")

        await self._db.write(step)

    async def release_node(self, node: int, owner: str) -> None:
        def step(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM nodes WHERE node = ? AND owner = ?", (node, owner))

        await self._db.write(step)

    async def last_position(self, *, latest: int = MAX_ID) -> int:
        def step(db: sqlite3.Connection) -> int:
            # Decisions bring their ids with them, so their thread does not know them.
            (last,) = db.execute(
                "SELECT max("
                "coalesce((SELECT max(last_position) FROM threads WHERE last_position <= ?), 0), "
                "coalesce((SELECT max(id) FROM decisions WHERE id <= ?), 0))",
                (latest, latest),
            ).fetchone()
            return int(last)

        return await self._db.read(step)

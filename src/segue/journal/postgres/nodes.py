"""Leased node numbers on PostgreSQL."""

from datetime import datetime, timedelta

from segue.core.errors import ConflictError
from segue.core.snowflake import MAX_ID, MAX_NODE
from segue.journal.inputs import lease_end
from segue.journal.postgres.database import Connection, Database, fetch_all, fetch_row


class NodeSteps:
    _db: Database

    async def lease_node(self, owner: str, *, now: datetime, lease_for: timedelta) -> int:
        async def step(db: Connection) -> int:
            # Two processes that start together would find the same number free.
            await db.execute("LOCK TABLE nodes IN SHARE ROW EXCLUSIVE MODE")
            rows = await fetch_all(db, "SELECT node FROM nodes WHERE lease_until > %s", (now,))
            taken = {row["node"] for row in rows}
            free = next((node for node in range(MAX_NODE + 1) if node not in taken), None)
            if free is None:
                raise ConflictError(f"All {MAX_NODE + 1} node numbers are taken.")
            await db.execute(
                "INSERT INTO nodes (node, owner, lease_until) VALUES (%s, %s, %s) "
                "ON CONFLICT (node) DO UPDATE "
                "SET owner = excluded.owner, lease_until = excluded.lease_until",
                (free, owner, lease_end(now, lease_for)),
            )
            return free

        return await self._db.write(step)

    async def extend_node(
        self, node: int, owner: str, *, now: datetime, lease_for: timedelta
    ) -> None:
        async def step(db: Connection) -> None:
            changed = await db.execute(
                "UPDATE nodes SET lease_until = %s WHERE node = %s AND owner = %s",
                (lease_end(now, lease_for), node, owner),
            )
            if changed.rowcount == 0:
                raise ConflictError(f"Node {node} no longer belongs to {owner!r}; lease a new one.")

        await self._db.write(step)

    async def release_node(self, node: int, owner: str) -> None:
        async def step(db: Connection) -> None:
            await db.execute("DELETE FROM nodes WHERE node = %s AND owner = %s", (node, owner))

        await self._db.write(step)

    async def last_position(self, *, latest: int = MAX_ID) -> int:
        async def step(db: Connection) -> int:
            # Decisions bring their ids with them, so their thread does not know them.
            row = await fetch_row(
                db,
                "SELECT greatest(0, "
                "(SELECT max(last_position) FROM threads WHERE last_position <= %(latest)s), "
                "(SELECT max(id) FROM decisions WHERE id <= %(latest)s)) AS last",
                {"latest": latest},
            )
            return int(row["last"])

        return await self._db.read(step)

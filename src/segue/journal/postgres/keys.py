"""Keys of the server's callers on PostgreSQL."""

from datetime import datetime

from psycopg.rows import DictRow

from segue.core.errors import ConflictError, NotFoundError
from segue.journal.postgres.database import Connection, Database, fetch_all, fetch_one
from segue.journal.records import ApiKey
from segue.journal.rows import aware


class KeySteps:
    _db: Database

    async def add_key(self, key: ApiKey) -> None:
        values = (
            *(key.id, key.name, key.user_id, key.is_operator, key.digest),
            aware(key.created_at),
        )

        async def step(db: Connection) -> None:
            row = await fetch_one(
                db,
                "INSERT INTO api_keys (id, name, user_id, is_operator, digest, created_at) "
                "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO NOTHING RETURNING id",
                values,
            )
            if row is None:
                raise ConflictError(f"There is a key {key.id!r} already.")

        await self._db.act(step)

    async def find_key(self, key_id: str) -> ApiKey | None:
        async def step(db: Connection) -> ApiKey | None:
            row = await fetch_one(db, "SELECT * FROM api_keys WHERE id = %s", (key_id,))
            return None if row is None else _to_key(row)

        return await self._db.look(step)

    async def list_keys(self) -> list[ApiKey]:
        async def step(db: Connection) -> list[ApiKey]:
            rows = await fetch_all(db, "SELECT * FROM api_keys ORDER BY created_at, id")
            return [*map(_to_key, rows)]

        return await self._db.look(step)

    async def revoke_key(self, key_id: str, *, now: datetime) -> ApiKey:
        async def step(db: Connection) -> ApiKey:
            row = await fetch_one(
                db,
                "UPDATE api_keys SET revoked_at = coalesce(revoked_at, %s) WHERE id = %s "
                "RETURNING *",
                (aware(now), key_id),
            )
            if row is None:
                raise NotFoundError(f"There is no key {key_id!r:.60}.")
            return _to_key(row)

        return await self._db.act(step)


def _to_key(row: DictRow) -> ApiKey:
    return ApiKey(
        id=row["id"],
        name=row["name"],
        user_id=row["user_id"],
        is_operator=row["is_operator"],
        digest=bytes(row["digest"]),
        created_at=row["created_at"],
        revoked_at=row["revoked_at"],
    )

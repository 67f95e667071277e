"""Keys of the server's callers on SQLite."""

import sqlite3
from datetime import datetime

from segue.core.errors import ConflictError, NotFoundError
from segue.journal.records import ApiKey
from segue.journal.rows import from_micros, to_micros
from segue.journal.sqlite.database import Database

_FIND = "SELECT * FROM api_keys WHERE id = ?"


class KeySteps:
    _db: Database

    async def add_key(self, key: ApiKey) -> None:
        values = (
            *(key.id, key.name, key.user_id, key.is_operator, key.digest),
            *(to_micros(key.created_at), None),
        )

        def step(db: sqlite3.Connection) -> None:
            if db.execute(_FIND, (key.id,)).fetchone() is not None:
                raise ConflictError(f"There is a key {key.id!r} already.")
            db.execute("INSERT INTO api_keys VALUES (?, ?, ?, ?, ?, ?, ?)", values)

        await self._db.write(step)

    async def find_key(self, key_id: str) -> ApiKey | None:
        def step(db: sqlite3.Connection) -> ApiKey | None:
            row = db.execute(_FIND, (key_id,)).fetchone()
            return None if row is None else _to_key(row)

        return await self._db.read(step)

    async def list_keys(self) -> list[ApiKey]:
        sql = "SELECT * FROM api_keys ORDER BY created_at, id"
        return await self._db.read(lambda db: [_to_key(row) for row in db.execute(sql)])

    async def revoke_key(self, key_id: str, *, now: datetime) -> ApiKey:
        sql = "UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ? RETURNING *"

        def step(db: sqlite3.Connection) -> ApiKey:
            row = db.execute(sql, (to_micros(now), key_id)).fetchone()
            if row is None:
                raise NotFoundError(f"There is no key {key_id!r:.60}.")
            return _to_key(row)

        return await self._db.write(step)


def _to_key(row: sqlite3.Row) -> ApiKey:
    return ApiKey(
        id=row["id"],
        name=row["name"],
        user_id=row["user_id"],
        is_operator=bool(row["is_operator"]),
        digest=row["digest"],
        created_at=from_micros(row["created_at"]),
        revoked_at=None if row["revoked_at"] is None else from_micros(row["revoked_at"]),
    )

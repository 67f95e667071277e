"""Users' settings on SQLite."""

import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from segue.journal.rows import merged_settings, settings_of, to_json, to_micros
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.threads import wake_put_off


class UserSteps:
    _db: Database

    async def get_user_settings(self, user_id: str) -> Mapping[str, Any]:
        return await self._db.read(lambda db: _settings_of(db, user_id))

    async def update_user_settings(
        self,
        user_id: str,
        settings: Mapping[str, Any],
        *,
        now: datetime,
        reconsider_at: datetime | None = None,
    ) -> Mapping[str, Any]:
        def step(db: sqlite3.Connection) -> Mapping[str, Any]:
            merged = merged_settings(_settings_of(db, user_id), settings)
            db.execute(
                "INSERT INTO users VALUES (?, ?, ?) ON CONFLICT (user_id) DO UPDATE "
                "SET settings = excluded.settings, updated_at = excluded.updated_at",
                (user_id, to_json(merged), to_micros(now)),
            )
            if reconsider_at is not None:
                rows = db.execute("SELECT id FROM threads WHERE user_id = ?", (user_id,)).fetchall()
                wake_put_off(db, [row["id"] for row in rows], reconsider_at)
            return _settings_of(db, user_id)

        return await self._db.write(step)


def _settings_of(db: sqlite3.Connection, user_id: str) -> dict[str, Any]:
    row = db.execute("SELECT settings FROM users WHERE user_id = ?", (user_id,)).fetchone()
    return {} if row is None else settings_of(row["settings"])

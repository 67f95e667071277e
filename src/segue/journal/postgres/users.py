"""Users' settings on PostgreSQL."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from segue.journal.postgres.database import Connection, Database, fetch_one, fetch_row
from segue.journal.postgres.threads import wake_put_off
from segue.journal.rows import merged_settings, settings_of, to_json


class UserSteps:
    _db: Database

    async def get_user_settings(self, user_id: str) -> Mapping[str, Any]:
        async def step(db: Connection) -> Mapping[str, Any]:
            row = await fetch_one(db, "SELECT settings FROM users WHERE user_id = %s", (user_id,))
            return {} if row is None else settings_of(row["settings"])

        return await self._db.look(step)

    async def update_user_settings(
        self,
        user_id: str,
        settings: Mapping[str, Any],
        *,
        now: datetime,
        reconsider_at: datetime | None = None,
    ) -> Mapping[str, Any]:
        async def step(db: Connection) -> Mapping[str, Any]:
            # Locks the row, a new one too: of two that merge at once, one waits.
            row = await fetch_row(
                db,
                "INSERT INTO users (user_id, updated_at) VALUES (%s, %s) ON CONFLICT (user_id) "
                "DO UPDATE SET updated_at = excluded.updated_at RETURNING settings",
                (user_id, now),
            )
            merged = to_json(merged_settings(settings_of(row["settings"]), settings))
            await db.execute("UPDATE users SET settings = %s WHERE user_id = %s", (merged, user_id))
            if reconsider_at is not None:
                await wake_put_off(
                    db,
                    "thread_id IN (SELECT id FROM threads WHERE user_id = %s)",
                    user_id,
                    reconsider_at,
                )
            return settings_of(merged)

        return await self._db.write(step)

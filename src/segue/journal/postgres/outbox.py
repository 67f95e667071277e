"""Effects and decisions on PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import LiteralString

from psycopg.rows import DictRow

from segue.core.errors import ConflictError, NotFoundError
from segue.core.plain import storable
from segue.core.snowflake import SnowflakeSource
from segue.journal.inputs import lease_end
from segue.journal.postgres.batches import next_id
from segue.journal.postgres.database import (
    Connection,
    Database,
    fetch_all,
    fetch_one,
    fetch_row,
    wake,
)
from segue.journal.postgres.threads import thread_of
from segue.journal.records import Decision, Effect, EffectLease, EffectState, NewEffect
from segue.journal.rows import from_json, readable, to_json


class OutboxSteps:
    _db: Database

    async def claim_effects(
        self, owner: str, *, now: datetime, lease_for: timedelta, limit: int = 20
    ) -> list[EffectLease]:
        async def step(db: Connection) -> list[EffectLease]:
            due = await fetch_all(
                db,
                "SELECT * FROM effects WHERE wake_at <= %s ORDER BY wake_at, id LIMIT %s "
                "FOR UPDATE SKIP LOCKED",
                (now, limit),
            )
            sound = [row["id"] for row in due if readable(to_effect, [row])]
            # A row that cannot be read holds up nobody.
            await db.execute(
                "UPDATE effects SET state = 'dead', error = 'The row cannot be read.', "
                "owner = NULL, wake_at = NULL WHERE id = ANY(%s)",
                ([row["id"] for row in due if row["id"] not in sound],),
            )
            rows = await fetch_all(
                db,
                "UPDATE effects SET state = 'claimed', owner = %s, token = token + 1, "
                "attempts = attempts + 1, wake_at = %s WHERE id = ANY(%s) RETURNING *",
                (owner, lease_end(now, lease_for), sound),
            )
            leases = {row["id"]: _to_lease(row) for row in rows}
            return [leases[effect_id] for effect_id in sound]

        return await self._db.write(step)

    async def complete_effect(self, lease: EffectLease) -> None:
        async def step(db: Connection) -> None:
            await _check_effect(db, lease)
            await db.execute(
                "UPDATE effects SET state = 'done', owner = NULL, wake_at = NULL WHERE id = %s",
                (lease.effect.id,),
            )

        await self._db.write(step)

    async def retry_effect(
        self, lease: EffectLease, error: str, *, retry_at: datetime | None
    ) -> Effect:
        async def step(db: Connection) -> Effect:
            await _check_effect(db, lease)
            state = EffectState.DEAD if retry_at is None else EffectState.PENDING
            row = await fetch_row(
                db,
                "UPDATE effects SET state = %s, error = %s, owner = NULL, wake_at = %s, "
                "due_at = coalesce(%s, due_at) WHERE id = %s RETURNING *",
                (state, storable(error), retry_at, retry_at, lease.effect.id),
            )
            if retry_at is not None:
                await wake(db, row["thread_id"])
            return to_effect(row)

        return await self._db.write(step)

    async def list_dead_effects(self, *, limit: int = 100) -> list[Effect]:
        sql: LiteralString = "SELECT * FROM effects WHERE state = 'dead' ORDER BY id LIMIT %s"

        async def step(db: Connection) -> list[Effect]:
            return readable(to_effect, await fetch_all(db, sql, (limit,)))

        return await self._db.read(step)

    async def revive_effect(self, effect_id: int, *, now: datetime) -> Effect:
        async def step(db: Connection) -> Effect:
            sql: LiteralString = "SELECT state FROM effects WHERE id = %s FOR UPDATE"
            row = await fetch_one(db, sql, (effect_id,))
            if row is None:
                raise NotFoundError(f"There is no effect {effect_id}.")
            if row["state"] != EffectState.DEAD:
                raise ConflictError(f"Effect {effect_id} is {row['state']}, not dead.")
            row = await fetch_row(
                db,
                "UPDATE effects SET state = 'pending', attempts = 0, due_at = %s, wake_at = %s "
                "WHERE id = %s RETURNING *",
                (now, now, effect_id),
            )
            await wake(db, row["thread_id"])
            return to_effect(row)

        return await self._db.write(step)

    async def record_decision(self, decision: Decision) -> None:
        async def step(db: Connection) -> None:
            await db.execute(
                "INSERT INTO decisions (id, thread_id, kind, outcome, reasons, facts, timer_id, "
                "turn_id, decided_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    decision.id,
                    decision.thread_id,
                    decision.kind,
                    decision.outcome,
                    to_json(list(decision.reasons)),
                    to_json(dict(decision.facts)),
                    decision.timer_id,
                    decision.turn_id,
                    decision.decided_at,
                ),
            )

        await self._db.write(step)

    async def list_decisions(self, thread_id: str, *, limit: int = 50) -> list[Decision]:
        sql: LiteralString = (
            "SELECT * FROM decisions WHERE thread_id = %s ORDER BY id DESC LIMIT %s"
        )

        async def step(db: Connection) -> list[Decision]:
            await thread_of(db, thread_id)
            return [_to_decision(row) for row in await fetch_all(db, sql, (thread_id, limit))]

        return await self._db.read(step)


async def queue_effects(
    db: Connection,
    thread_id: str,
    effects: Sequence[NewEffect],
    ids: SnowflakeSource,
    now: datetime,
) -> None:
    for effect in effects:
        effect_id = await next_id(db, thread_id, ids)
        payload = to_json(dict(effect.payload))
        await db.execute(
            "INSERT INTO effects (id, thread_id, kind, payload, dedupe_key, state, due_at, "
            "wake_at, created_at) VALUES (%s, %s, %s, %s, %s, 'pending', %s, %s, %s) "
            "ON CONFLICT (dedupe_key) DO NOTHING",
            (effect_id, thread_id, effect.kind, payload, effect.dedupe_key, now, now, now),
        )
    if effects:
        await wake(db, thread_id)


def to_effect(row: DictRow) -> Effect:
    return Effect(
        id=row["id"],
        thread_id=row["thread_id"],
        kind=row["kind"],
        payload=from_json(row["payload"]),
        dedupe_key=row["dedupe_key"],
        state=EffectState(row["state"]),
        attempts=row["attempts"],
        due_at=row["due_at"],
        error=row["error"],
        created_at=row["created_at"],
    )


def _to_lease(row: DictRow) -> EffectLease:
    return EffectLease(to_effect(row), row["owner"], row["token"], row["wake_at"])


async def _check_effect(db: Connection, lease: EffectLease) -> None:
    """Raise unless the lease is still the one that counts; then it counts until the commit."""
    row = await fetch_one(
        db, "SELECT state, token FROM effects WHERE id = %s FOR UPDATE", (lease.effect.id,)
    )
    if row is None:
        raise NotFoundError(f"There is no effect {lease.effect.id}. Nothing was written.")
    if row["state"] != EffectState.CLAIMED or row["token"] != lease.token:
        raise ConflictError(f"The lease of effect {lease.effect.id} is over. Nothing was written.")


def _to_decision(row: DictRow) -> Decision:
    return Decision(
        id=row["id"],
        thread_id=row["thread_id"],
        kind=row["kind"],
        outcome=row["outcome"],
        reasons=tuple(from_json(row["reasons"])),
        facts=from_json(row["facts"]),
        timer_id=row["timer_id"],
        turn_id=row["turn_id"],
        decided_at=row["decided_at"],
    )

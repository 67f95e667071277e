"""Effects and decisions on PostgreSQL."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, LiteralString

from psycopg.rows import DictRow

from segue.core.errors import ConflictError, NotFoundError
from segue.core.plain import storable
from segue.journal.inputs import CLOCK_SKEW, lease_end
from segue.journal.postgres.database import (
    TELL,
    Connection,
    Database,
    fetch_all,
    fetch_one,
    fetch_row,
)
from segue.journal.postgres.threads import thread_of
from segue.journal.records import Decision, Effect, EffectLease, EffectState, NewEffect
from segue.journal.rows import LATEST, from_json, readable, to_json

_LOCK: LiteralString = f"SELECT state, token, {TELL} FROM effects WHERE id = %s FOR UPDATE"  # noqa: S608 - our own words

_OF_KIND: LiteralString = (
    "FROM effects JOIN threads ON threads.id = effects.thread_id "
    "WHERE effects.kind = %(kind)s AND threads.agent_id <> ALL(%(not_of)s)"
)
_DUE: LiteralString = f"""
    SELECT effects.*, threads.agent_id {_OF_KIND} AND wake_at <= %(now)s
    ORDER BY wake_at, effects.id LIMIT %(limit)s FOR UPDATE OF effects SKIP LOCKED
"""
# Leases of a clock that was ahead last from now on.
_AHEAD: LiteralString = "kind = %(kind)s AND state = 'claimed' AND held_at > %(ahead)s"
_PULL_BACK: LiteralString = f"""
    UPDATE effects SET wake_at = %(now)s + (wake_at - held_at), held_at = %(now)s
    WHERE id IN (SELECT id FROM effects WHERE {_AHEAD} FOR UPDATE SKIP LOCKED)
"""  # noqa: S608 - our own words
_NEXT_AT: LiteralString = f"""
    SELECT least((SELECT %(now)s FROM effects WHERE {_AHEAD} LIMIT 1), (
        SELECT least(greatest(wake_at, 'epoch'), %(latest)s) {_OF_KIND} AND wake_at IS NOT NULL
        ORDER BY wake_at LIMIT 1)) AS at
"""  # noqa: S608 - our own words
_EFFECT: LiteralString = "(%s, %s, %s, %s, %s, 'pending', %s, %s, %s)"
_QUEUE_EFFECTS: LiteralString = (
    "INSERT INTO effects (id, thread_id, kind, payload, dedupe_key, state, due_at, wake_at, "
    "created_at) VALUES {} ON CONFLICT (dedupe_key) DO NOTHING"
)
_RECORD: LiteralString = """
    INSERT INTO decisions (id, thread_id, kind, outcome, reasons, facts, timer_id, turn_id,
        decided_at)
    VALUES (%(decision_id)s, %(decision_thread)s, %(decision_kind)s, %(outcome)s, %(reasons)s,
        %(facts)s, %(decision_timer)s, %(decision_turn)s, %(decided_at)s)
"""
# A part of a statement, to stand after its WITH.
RECORD_DECISION: LiteralString = f"decided AS ({_RECORD})"


class OutboxSteps:
    _db: Database

    async def claim_effects(
        self,
        owner: str,
        *,
        kind: str,
        now: datetime,
        lease_for: timedelta,
        limit: int = 20,
        not_of: Collection[str] = (),
    ) -> list[EffectLease]:
        values = {"limit": limit, "not_of": [*not_of], **_moments(kind, now)}

        async def step(db: Connection) -> list[EffectLease]:
            await db.execute(_PULL_BACK, values)
            due = await fetch_all(db, _DUE, values)
            sound = {row["id"]: row["agent_id"] for row in due if readable(to_effect, [row])}
            # A row that cannot be read holds up nobody.
            await db.execute(
                "UPDATE effects SET state = 'dead', error = 'The row cannot be read.', "
                "owner = NULL, wake_at = NULL WHERE id = ANY(%s)",
                ([row["id"] for row in due if row["id"] not in sound],),
            )
            rows = await fetch_all(
                db,
                "UPDATE effects SET state = 'claimed', owner = %s, token = token + 1, "
                "attempts = attempts + 1, wake_at = %s, held_at = %s WHERE id = ANY(%s) "
                "RETURNING *",
                (owner, lease_end(now, lease_for), now, [*sound]),
            )
            leases = {row["id"]: _to_lease(row, sound[row["id"]]) for row in rows}
            return [leases[effect_id] for effect_id in sound]

        return await self._db.write(step)

    async def next_effect_at(
        self, kind: str, *, now: datetime, not_of: Collection[str] = ()
    ) -> datetime | None:
        values = {"latest": LATEST, "not_of": [*not_of], **_moments(kind, now)}

        async def step(db: Connection) -> datetime | None:
            at: datetime | None = (await fetch_row(db, _NEXT_AT, values))["at"]
            return at

        return await self._db.look(step)

    async def complete_effect(self, lease: EffectLease, evidence: str | None = None) -> None:
        async def step(db: Connection) -> None:
            await _check_effect(db, lease)
            await db.execute(
                "UPDATE effects SET state = 'done', evidence = %s, owner = NULL, wake_at = NULL "
                "WHERE id = %s",
                (None if evidence is None else storable(evidence), lease.effect.id),
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
            return to_effect(row)

        return await self._db.write(step)

    async def list_effects(self, thread_id: str, *, limit: int = 50) -> list[Effect]:
        sql: LiteralString = "SELECT * FROM effects WHERE thread_id = %s ORDER BY id DESC LIMIT %s"

        async def step(db: Connection) -> list[Effect]:
            await thread_of(db, thread_id)
            return readable(to_effect, await fetch_all(db, sql, (thread_id, limit)))

        return await self._db.read(step)

    async def list_dead_effects(self, *, limit: int = 100) -> list[Effect]:
        sql: LiteralString = "SELECT * FROM effects WHERE state = 'dead' ORDER BY id LIMIT %s"

        async def step(db: Connection) -> list[Effect]:
            return readable(to_effect, await fetch_all(db, sql, (limit,)))

        return await self._db.read(step)

    async def revive_effect(self, effect_id: int, *, now: datetime) -> Effect:
        async def step(db: Connection) -> Effect:
            row = await fetch_one(db, _LOCK, (effect_id,))
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
            return to_effect(row)

        return await self._db.write(step)

    async def record_decision(self, decision: Decision) -> None:
        await self._db.write(lambda db: record_decisions(db, [decision]))

    async def list_decisions(self, thread_id: str, *, limit: int = 50) -> list[Decision]:
        sql: LiteralString = (
            "SELECT * FROM decisions WHERE thread_id = %s ORDER BY id DESC LIMIT %s"
        )

        async def step(db: Connection) -> list[Decision]:
            await thread_of(db, thread_id)
            return [_to_decision(row) for row in await fetch_all(db, sql, (thread_id, limit))]

        return await self._db.read(step)


def _moments(kind: str, now: datetime) -> dict[str, Any]:
    return {"kind": kind, "now": now, "ahead": now + CLOCK_SKEW}


async def queue_effects(
    db: Connection, thread_id: str, effects: Sequence[tuple[int, NewEffect]], now: datetime
) -> None:
    """Queue what follows from a step, which gives and notes the ids."""
    if not effects:
        return
    rows = [
        (new_id, thread_id, e.kind, to_json(dict(e.payload)), e.dedupe_key, now, now, now)
        for new_id, e in effects
    ]
    # Not executemany: its pipeline costs more round trips than a few rows are worth.
    places = ", ".join([_EFFECT] * len(rows))
    await db.execute(_QUEUE_EFFECTS.format(places), [value for row in rows for value in row])


async def record_decisions(db: Connection, decisions: Sequence[Decision]) -> None:
    for decision in decisions:
        await db.execute(_RECORD, decision_values(decision))


def decision_values(decision: Decision) -> dict[str, Any]:
    return {
        "decision_id": decision.id,
        "decision_thread": decision.thread_id,
        "decision_kind": decision.kind,
        "outcome": decision.outcome,
        "reasons": to_json(list(decision.reasons)),
        "facts": to_json(dict(decision.facts)),
        "decision_timer": decision.timer_id,
        "decision_turn": decision.turn_id,
        "decided_at": decision.decided_at,
    }


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
        evidence=row["evidence"],
    )


def _to_lease(row: DictRow, agent_id: str) -> EffectLease:
    return EffectLease(to_effect(row), row["owner"], row["token"], row["wake_at"], agent_id)


async def _check_effect(db: Connection, lease: EffectLease) -> None:
    """Raise unless the lease is still the one that counts; then it counts until the commit."""
    row = await fetch_one(db, _LOCK, (lease.effect.id,))
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

"""Effects and decisions on SQLite."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from segue.core.errors import ConflictError, NotFoundError
from segue.core.plain import storable
from segue.journal.inputs import CLOCK_SKEW, lease_end
from segue.journal.places import RisingIds
from segue.journal.records import Decision, Effect, EffectLease, EffectState, NewEffect
from segue.journal.rows import LATEST, aware, from_json, from_micros, readable, to_json, to_micros
from segue.journal.sqlite.batches import next_id
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.threads import thread_of

# Crossed, so that the effects are walked in the order of their index.
_OF_KIND = (
    "FROM effects CROSS JOIN threads ON threads.id = effects.thread_id WHERE effects.kind = ?"
)
# Leases of a clock that was ahead last from now on.
_AHEAD = "effects.kind = :kind AND state = 'claimed' AND held_at > :latest"
_FIND_AHEAD = f"SELECT 1 FROM effects INDEXED BY effects_claimed WHERE {_AHEAD} LIMIT 1"  # noqa: S608 - our own words
_PULL_BACK = f"""
    UPDATE effects INDEXED BY effects_claimed
    SET wake_at = :now + wake_at - held_at, held_at = :now WHERE {_AHEAD}
"""  # noqa: S608 - our own words


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
        sql = (
            f"SELECT effects.* {_OF_KIND} AND wake_at <= ? AND {_leaving_out(not_of)} "
            "ORDER BY wake_at, effects.id LIMIT ?"
        )

        def step(db: sqlite3.Connection) -> list[EffectLease]:
            db.execute(_PULL_BACK, _moments(kind, now))
            due = db.execute(sql, (kind, to_micros(now), *not_of, limit)).fetchall()
            until = lease_end(now, lease_for)
            sound = [row for row in due if readable(to_effect, [row])]
            for row in due:
                if row not in sound:
                    _set_aside(db, row["id"])
            for row in sound:
                db.execute(
                    "UPDATE effects SET state = 'claimed', owner = ?, token = token + 1, "
                    "attempts = attempts + 1, wake_at = ?, held_at = ? WHERE id = ?",
                    (owner, to_micros(until), to_micros(now), row["id"]),
                )
            return [_lease_of(db, row["id"]) for row in sound]

        return await self._db.write(step)

    async def next_effect_at(
        self, kind: str, *, now: datetime, not_of: Collection[str] = ()
    ) -> datetime | None:
        sql = (
            f"SELECT wake_at {_OF_KIND} AND wake_at IS NOT NULL AND {_leaving_out(not_of)} "
            "ORDER BY wake_at LIMIT 1"
        )

        def step(db: sqlite3.Connection) -> datetime | None:
            if db.execute(_FIND_AHEAD, _moments(kind, now)).fetchone() is not None:
                return aware(now)
            row = db.execute(sql, (kind, *not_of)).fetchone()
            return None if row is None else from_micros(min(row["wake_at"], to_micros(LATEST)))

        return await self._db.read(step)

    async def complete_effect(self, lease: EffectLease, evidence: str | None = None) -> None:
        def step(db: sqlite3.Connection) -> None:
            _check_effect(db, lease)
            db.execute(
                "UPDATE effects SET state = 'done', evidence = ?, owner = NULL, wake_at = NULL "
                "WHERE id = ?",
                (evidence and storable(evidence), lease.effect.id),
            )

        await self._db.write(step)

    async def retry_effect(
        self, lease: EffectLease, error: str, *, retry_at: datetime | None
    ) -> Effect:
        def step(db: sqlite3.Connection) -> Effect:
            _check_effect(db, lease)
            state = EffectState.DEAD if retry_at is None else EffectState.PENDING
            wake_at = None if retry_at is None else to_micros(retry_at)
            db.execute(
                "UPDATE effects SET state = ?, error = ?, owner = NULL, wake_at = ?, "
                "due_at = coalesce(?, due_at) WHERE id = ?",
                (state, storable(error), wake_at, wake_at, lease.effect.id),
            )
            return _effect_of(db, lease.effect.id)

        return await self._db.write(step)

    async def list_effects(self, thread_id: str, *, limit: int = 50) -> list[Effect]:
        sql = "SELECT * FROM effects WHERE thread_id = ? ORDER BY id DESC LIMIT ?"

        def step(db: sqlite3.Connection) -> list[Effect]:
            thread_of(db, thread_id)
            return readable(to_effect, db.execute(sql, (thread_id, limit)))

        return await self._db.read(step)

    async def list_dead_effects(self, *, limit: int = 100) -> list[Effect]:
        sql = "SELECT * FROM effects WHERE state = 'dead' ORDER BY id LIMIT ?"
        return await self._db.read(lambda db: readable(to_effect, db.execute(sql, (limit,))))

    async def revive_effect(self, effect_id: int, *, now: datetime) -> Effect:
        def step(db: sqlite3.Connection) -> Effect:
            effect = _effect_of(db, effect_id)
            if effect.state is not EffectState.DEAD:
                raise ConflictError(f"Effect {effect_id} is {effect.state}, not dead.")
            at = to_micros(now)
            db.execute(
                "UPDATE effects SET state = 'pending', attempts = 0, due_at = ?, wake_at = ? "
                "WHERE id = ?",
                (at, at, effect_id),
            )
            return _effect_of(db, effect_id)

        return await self._db.write(step)

    async def record_decision(self, decision: Decision) -> None:
        await self._db.write(lambda db: record_decisions(db, [decision]))

    async def list_decisions(self, thread_id: str, *, limit: int = 50) -> list[Decision]:
        sql = "SELECT * FROM decisions WHERE thread_id = ? ORDER BY id DESC LIMIT ?"

        def step(db: sqlite3.Connection) -> list[Decision]:
            thread_of(db, thread_id)
            return [_to_decision(row) for row in db.execute(sql, (thread_id, limit))]

        return await self._db.read(step)


def queue_effects(
    db: sqlite3.Connection,
    thread_id: str,
    effects: Sequence[NewEffect],
    ids: RisingIds,
    now: datetime,
) -> None:
    at = to_micros(now)
    for effect in effects:
        db.execute(
            "INSERT INTO effects (id, thread_id, kind, payload, dedupe_key, state, due_at, "
            "wake_at, created_at) VALUES (?, ?, ?, ?, ?, 'pending', ?, ?, ?) "
            "ON CONFLICT (dedupe_key) DO NOTHING",
            (
                next_id(db, thread_id, ids),
                thread_id,
                effect.kind,
                to_json(dict(effect.payload)),
                effect.dedupe_key,
                at,
                at,
                at,
            ),
        )


def record_decisions(db: sqlite3.Connection, decisions: Sequence[Decision]) -> None:
    for decision in decisions:
        thread_of(db, decision.thread_id)
        db.execute(
            "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                decision.id,
                decision.thread_id,
                decision.kind,
                decision.outcome,
                to_json(list(decision.reasons)),
                to_json(dict(decision.facts)),
                decision.timer_id,
                decision.turn_id,
                to_micros(decision.decided_at),
            ),
        )


def to_effect(row: sqlite3.Row) -> Effect:
    return Effect(
        id=row["id"],
        thread_id=row["thread_id"],
        kind=row["kind"],
        payload=from_json(row["payload"]),
        dedupe_key=row["dedupe_key"],
        state=EffectState(row["state"]),
        attempts=row["attempts"],
        due_at=from_micros(row["due_at"]),
        error=row["error"],
        created_at=from_micros(row["created_at"]),
        evidence=row["evidence"],
    )


def _effect_of(db: sqlite3.Connection, effect_id: int) -> Effect:
    row = db.execute("SELECT * FROM effects WHERE id = ?", (effect_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"There is no effect {effect_id}.")
    return to_effect(row)


def _moments(kind: str, now: datetime) -> dict[str, str | int]:
    return {"kind": kind, "now": to_micros(now), "latest": to_micros(now + CLOCK_SKEW)}


def _leaving_out(agents: Collection[str]) -> str:
    return f"threads.agent_id NOT IN ({', '.join('?' * len(agents))})"


def _lease_of(db: sqlite3.Connection, effect_id: int) -> EffectLease:
    sql = (
        "SELECT effects.*, threads.agent_id FROM effects "
        "JOIN threads ON threads.id = effects.thread_id WHERE effects.id = ?"
    )
    row = db.execute(sql, (effect_id,)).fetchone()
    until = from_micros(row["wake_at"])
    return EffectLease(to_effect(row), row["owner"], row["token"], until, row["agent_id"])


def _set_aside(db: sqlite3.Connection, effect_id: int) -> None:
    """A row that cannot be read holds up nobody."""
    db.execute(
        "UPDATE effects SET state = 'dead', error = 'The row cannot be read.', owner = NULL, "
        "wake_at = NULL WHERE id = ?",
        (effect_id,),
    )


def _check_effect(db: sqlite3.Connection, lease: EffectLease) -> None:
    row = db.execute("SELECT * FROM effects WHERE id = ?", (lease.effect.id,)).fetchone()
    if row is None:
        raise NotFoundError(f"There is no effect {lease.effect.id}. Nothing was written.")
    if row["state"] != EffectState.CLAIMED or row["token"] != lease.token:
        raise ConflictError(f"The lease of effect {lease.effect.id} is over. Nothing was written.")


def _to_decision(row: sqlite3.Row) -> Decision:
    return Decision(
        id=row["id"],
        thread_id=row["thread_id"],
        kind=row["kind"],
        outcome=row["outcome"],
        reasons=tuple(from_json(row["reasons"])),
        facts=from_json(row["facts"]),
        timer_id=row["timer_id"],
        turn_id=row["turn_id"],
        decided_at=from_micros(row["decided_at"]),
    )

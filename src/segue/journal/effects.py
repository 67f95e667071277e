"""Effects: the outbox of work to do outside after a commit, such as webhooks."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from segue.core.text import storable
from segue.errors import ConflictError
from segue.journal.records import EffectState, NewEffect
from segue.journal.rows import (
    CLOCK_SKEW,
    EARLIEST,
    LATEST,
    Record,
    lease_end,
    read_time_or_none,
    readable,
    to_json,
)
from segue.journal.threads import newest_of_thread
from segue.journal.tx import (
    Part,
    Statement,
    Tx,
    check_lease,
    insertion,
    reads,
    single_read,
    single_write,
    writes,
)

_AGENT: Final = "(SELECT agent_id FROM threads WHERE threads.id = effects.thread_id)"
# Leases taken by a clock that was ahead start now.
_AHEAD: Final = "kind = :kind AND state = 'claimed' AND held_at > :ahead"
_PULL_BACK: Final = f"""
    UPDATE effects SET wake_at = :now + (wake_at - held_at), held_at = :now WHERE id IN (
        SELECT id FROM effects INDEXED BY effects_claimed WHERE {_AHEAD} FOR UPDATE SKIP LOCKED)
"""
_DUE: Final = f"""
    SELECT *, {_AGENT} AS agent_id FROM effects INDEXED BY effects_by_kind
    WHERE kind = :kind AND wake_at <= :now AND {_AGENT} <> ALL(:not_of)
    ORDER BY wake_at, id LIMIT :limit FOR UPDATE SKIP LOCKED
"""
_TAKE: Final = """
    UPDATE effects SET state = 'claimed', owner = :owner, token = token + 1,
        attempts = attempts + 1, wake_at = :until, held_at = :now
    WHERE id = ANY(:ids) RETURNING *
"""
_NEXT_AT: Final = f"""
    SELECT CASE WHEN EXISTS (SELECT 1 FROM effects INDEXED BY effects_claimed WHERE {_AHEAD})
        THEN :now ELSE (
            SELECT least(greatest(wake_at, :earliest), :latest)
            FROM effects INDEXED BY effects_by_kind
            WHERE kind = :kind AND wake_at IS NOT NULL AND {_AGENT} <> ALL(:not_of)
            ORDER BY effects.wake_at LIMIT 1) END AS at
"""


@dataclass(frozen=True, slots=True)
class Effect(Record):
    id: int
    thread_id: str
    kind: str
    payload: Mapping[str, Any]
    dedupe_key: str
    state: EffectState
    attempts: int
    due_at: datetime
    error: str | None
    created_at: datetime
    # What the receiver answered.
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class EffectLease:
    """The right to run an effect until a time."""

    effect: Effect
    owner: str
    token: int
    until: datetime
    agent_id: str


class Effects(Part):
    """Effects run at least once."""

    @writes
    async def claim(
        self,
        tx: Tx,
        owner: str,
        *,
        kind: str,
        now: datetime,
        lease_for: timedelta,
        limit: int = 20,
        not_of: Collection[str] = (),
    ) -> list[EffectLease]:
        """Take effects of one kind that are due, those that wait longest first.

        Those of the agents in `not_of` are skipped. A row that cannot be read is dead.
        """
        until = lease_end(now, lease_for)
        await tx.run(_PULL_BACK, kind=kind, now=now, ahead=now + CLOCK_SKEW)
        due = await tx.all(_DUE, kind=kind, now=now, limit=limit, not_of=[*not_of])
        agents = {row["id"]: row["agent_id"] for row in due if readable(Effect.of, [row])}
        if damaged := [row["id"] for row in due if row["id"] not in agents]:
            sql = (
                "UPDATE effects SET state = 'dead', error = 'The row cannot be read.', "
                "owner = NULL, wake_at = NULL WHERE id = ANY(:ids)"
            )
            await tx.run(sql, ids=damaged)
        rows = await tx.all(_TAKE, owner=owner, until=until, now=now, ids=[*agents])
        leases = {
            row["id"]: EffectLease(Effect.of(row), owner, row["token"], until, agents[row["id"]])
            for row in rows
        }
        return [leases[effect_id] for effect_id in agents]

    @single_read
    async def next_at(
        self, tx: Tx, kind: str, *, now: datetime, not_of: Collection[str] = ()
    ) -> datetime | None:
        """When the next effect of a kind is due or a lease ends."""
        clock = {"now": now, "ahead": now + CLOCK_SKEW, "earliest": EARLIEST, "latest": LATEST}
        row = await tx.get(_NEXT_AT, kind=kind, not_of=[*not_of], **clock)
        return read_time_or_none(row["at"])

    @writes
    async def complete(self, tx: Tx, lease: EffectLease, evidence: str | None = None) -> None:
        await _check_lease(tx, lease)
        evidence = None if evidence is None else storable(evidence)
        done = EffectState.DONE
        await tx.change(
            "effects", lease.effect.id, state=done, evidence=evidence, owner=None, wake_at=None
        )

    @writes
    async def retry(
        self, tx: Tx, lease: EffectLease, error: str, *, retry_at: datetime | None
    ) -> Effect:
        """Try again at a time, or give up (`retry_at` None): the effect is kept as dead."""
        await _check_lease(tx, lease)
        row = await tx.change(
            "effects",
            lease.effect.id,
            state=EffectState.DEAD if retry_at is None else EffectState.PENDING,
            error=storable(error),
            owner=None,
            wake_at=retry_at,
            due_at=retry_at or lease.effect.due_at,
        )
        return Effect.of(row)

    @reads
    async def list_of(self, tx: Tx, thread_id: str, *, limit: int = 50) -> list[Effect]:
        """A thread's effects in any state, newest first."""
        return readable(Effect.of, await newest_of_thread(tx, "effects", thread_id, limit))

    @single_read
    async def list_dead(self, tx: Tx, *, limit: int = 100) -> list[Effect]:
        sql = "SELECT * FROM effects WHERE state = 'dead' ORDER BY id LIMIT :limit"
        return readable(Effect.of, await tx.all(sql, limit=limit))

    @single_write
    async def revive(self, tx: Tx, effect_id: int, *, now: datetime) -> Effect:
        sql = (
            "UPDATE effects SET state = 'pending', attempts = 0, due_at = :now, wake_at = :now "
            "WHERE id = :id AND state = 'dead' RETURNING *, NOTIFY(thread_id)"
        )
        row = await tx.find(sql, now=now, id=effect_id)
        if row is not None:
            return Effect.of(row)
        sql = "SELECT state FROM effects WHERE id = :id"
        row = await tx.get(sql, f"There is no effect {effect_id}.", id=effect_id)
        raise ConflictError(f"Effect {effect_id} is {row['state']}, not dead.")


def effect_inserts(
    thread_id: str, effects: Sequence[tuple[int, NewEffect]], now: datetime
) -> list[Statement]:
    return [
        insertion(
            "effects",
            "ON CONFLICT (dedupe_key) DO NOTHING",
            id=effect_id,
            thread_id=thread_id,
            kind=effect.kind,
            payload=to_json(dict(effect.payload)),
            dedupe_key=effect.dedupe_key,
            state=EffectState.PENDING,
            due_at=now + effect.delay,
            wake_at=now + effect.delay,
            created_at=now,
        )
        for effect_id, effect in effects
    ]


async def _check_lease(tx: Tx, lease: EffectLease) -> None:
    """Raise unless the lease is valid; the lock keeps it valid until the commit."""
    sql = "SELECT state, token, owner, NOTIFY(thread_id) FROM effects WHERE id = :id FOR UPDATE"
    row = await tx.find(sql, id=lease.effect.id)
    check_lease(f"effect {lease.effect.id}", row, lease.token, EffectState.CLAIMED)

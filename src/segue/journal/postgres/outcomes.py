"""What became of follow-ups, counted on PostgreSQL.

`_FIRED` are the turns of follow-ups, `_ENDED` the timers that ended without one; each with the
facts that its outcome follows from.
"""

from typing import Any, LiteralString

from psycopg.rows import DictRow

from segue.journal.outcomes import (
    ArmTally,
    OutcomeCount,
    OutcomeQuery,
    SearchCount,
    arm_tally,
    in_order,
    outcome_counts,
    search_count,
)
from segue.journal.postgres.database import Connection, Database, fetch_all

_NEXT_REPLY: LiteralString = (
    "(SELECT later.queued_at FROM turns AS later WHERE later.thread_id = {0}.thread_id "
    "AND later.id > {0}.id AND later.kind = 'reply' ORDER BY later.id LIMIT 1)"
)
# All facts at once: each that is taken by itself reads the whole text again.
_KNOWN: LiteralString = (
    "json_to_record(gates.facts::json) AS known"
    "(trigger text, variant text, consecutive bigint, gate text, held_out boolean)"
)
# The conditions on kinds are those of the indices.
_FIRED: LiteralString = f"""
fired AS (
    SELECT turns.id, turns.agent_id, turns.thread_id, turns.state, turns.shown_at,
        turns.queued_at AS moment, turns.batch,
        coalesce(known.trigger, (SELECT messages.trigger_type FROM messages
            WHERE messages.thread_id = turns.thread_id AND messages.batch = turns.batch
            AND messages.sequence_num = 0)) AS trigger_type,
        known.variant, known.consecutive,
        CASE WHEN turns.state = 'void' THEN (SELECT second.id FROM decisions AS second
            WHERE second.turn_id = turns.id AND second.kind = 'gates_before_showing'
            AND second.kind <> 'plan' LIMIT 1) END AS second_id,
        {_NEXT_REPLY.format("turns")} AS wrote_at,
        (SELECT later.id FROM turns AS later WHERE later.thread_id = turns.thread_id
            AND later.id > turns.id AND (later.kind = 'reply'
                OR (later.kind = 'follow_up' AND later.shown_at IS NOT NULL))
            ORDER BY later.id LIMIT 1) AS next_id
    FROM turns
    LEFT JOIN decisions AS gates ON gates.turn_id = turns.id AND gates.kind = 'gates'
        AND gates.kind <> 'plan'
    LEFT JOIN LATERAL {_KNOWN} ON true
    WHERE turns.kind = 'follow_up' AND turns.queued_at >= %(since)s AND turns.queued_at < %(until)s
        AND turns.agent_id = coalesce(%(agent)s::text, turns.agent_id)
)"""  # noqa: S608 - our own words
_ENDED: LiteralString = f"""
decided AS (
    SELECT timers.id, timers.agent_id, timers.thread_id, timers.state, timers.trigger_type,
        timers.updated_at AS moment,
        CASE WHEN timers.state <> 'cancelled' THEN (SELECT gates.id FROM decisions AS gates
            WHERE gates.timer_id = timers.id AND gates.kind = 'gates'
            AND gates.outcome <> 'postpone' LIMIT 1) END AS gates_id
    FROM timers
    WHERE timers.kind = 'follow_up'
        AND timers.state IN ('cancelled', 'suppressed', 'expired', 'missed')
        AND timers.state_reason IS DISTINCT FROM 'Replaced by a newer timer.'
        AND timers.updated_at >= %(since)s AND timers.updated_at < %(until)s
        AND timers.agent_id = coalesce(%(agent)s::text, timers.agent_id)
), ended AS (
    SELECT decided.*, known.gate, known.consecutive, coalesce(known.held_out, false) AS held_out,
        CASE WHEN known.held_out THEN {_NEXT_REPLY.format("decided")} END AS wrote_at
    FROM decided LEFT JOIN decisions AS gates ON gates.id = decided.gates_id
    LEFT JOIN LATERAL {_KNOWN} ON true
)"""  # noqa: S608 - same
_OUTCOMES: LiteralString = f"""
WITH {_FIRED}, {_ENDED}, outcomes AS (
    SELECT fired.agent_id, trigger_type, variant,
        CASE
            WHEN fired.state = 'failed' THEN 'failed'
            WHEN fired.shown_at IS NULL THEN CASE
                WHEN fired.state IN ('queued', 'running') THEN 'pending'
                WHEN second.outcome = 'suppress' THEN 'suppressed'
                WHEN second.outcome = 'postpone' THEN 'postponed'
                ELSE 'stopped' END
            WHEN next.kind = 'reply' AND next.queued_at - fired.shown_at <= %(window)s
                THEN 'replied'
            WHEN next.id IS NOT NULL OR %(now)s - fired.shown_at > %(window)s THEN 'ignored'
            ELSE 'pending' END AS outcome,
        second.facts::json ->> 'gate' AS gate, NULL AS wrote,
        greatest(extract(epoch FROM next.queued_at - fired.shown_at), 0) AS latency
    FROM fired LEFT JOIN turns AS next ON next.id = fired.next_id
    LEFT JOIN decisions AS second ON second.id = fired.second_id
    UNION ALL
    SELECT agent_id, trigger_type, NULL,
        CASE WHEN held_out THEN 'held_out' WHEN state = 'cancelled' THEN 'stopped'
            ELSE 'suppressed' END,
        gate,
        CASE WHEN NOT held_out THEN NULL WHEN wrote_at - moment <= %(window)s THEN 1
            WHEN %(now)s - moment > %(window)s THEN 0 END,
        NULL
    FROM ended
), counted AS (
    SELECT agent_id, trigger_type, variant, outcome, wrote,
        CASE WHEN outcome = 'suppressed' THEN gate END AS gate,
        CASE WHEN outcome <> 'replied' THEN NULL WHEN latency < 600
            THEN floor(latency) ELSE floor(latency / 60) * 60 END AS seconds
    FROM outcomes
    WHERE outcome <> 'postponed' AND (%(trigger)s::text IS NULL OR trigger_type = %(trigger)s)
)
SELECT agent_id, trigger_type, variant, outcome, gate, wrote, seconds, count(*) AS count
FROM counted
GROUP BY agent_id, trigger_type, variant, outcome, gate, wrote, seconds"""  # noqa: S608 - same
# Of moments that are long enough ago, so that those who write at once do not count for more.
_ARMS: LiteralString = f"""
WITH {_FIRED}, {_ENDED}, moments AS (
    SELECT agent_id, trigger_type, variant, fired.thread_id, moment, wrote_at FROM fired
    LEFT JOIN decisions AS second ON second.id = fired.second_id
    WHERE consecutive = 0 AND variant IS NOT NULL AND second.outcome IS DISTINCT FROM 'postpone'
    UNION ALL
    SELECT agent_id, trigger_type, NULL, thread_id, moment, wrote_at FROM ended
    WHERE state = 'suppressed' AND held_out AND consecutive = 0
), threads_of_arms AS (
    SELECT agent_id, trigger_type, variant, count(*) AS moments,
        avg(CASE WHEN wrote_at - moment <= %(window)s THEN 1.0 ELSE 0.0 END) AS share
    FROM moments
    WHERE %(now)s - moment > %(window)s
        AND (%(trigger)s::text IS NULL OR trigger_type = %(trigger)s)
    GROUP BY agent_id, trigger_type, variant, thread_id
)
SELECT agent_id, trigger_type, variant, count(*) AS threads, sum(moments) AS moments,
    sum(share) AS total, sum(share * share) AS squares
FROM threads_of_arms
GROUP BY agent_id, trigger_type, variant"""  # noqa: S608 - same
_SEARCHES: LiteralString = f"""
WITH {_FIRED}
SELECT agent_id, trigger_type, searched.outcome AS source, count(*) AS count,
    count(*) FILTER (WHERE (searched.facts::json ->> 'failed')::boolean) AS failed
FROM fired JOIN decisions AS searched ON searched.turn_id = fired.id
    AND searched.kind = 'memory_query' AND searched.kind <> 'plan'
WHERE (%(trigger)s::text IS NULL OR trigger_type = %(trigger)s)
GROUP BY agent_id, trigger_type, searched.outcome"""  # noqa: S608 - same
_UNMARKED: LiteralString = f"""
WITH {_FIRED}
SELECT count(*) AS count FROM fired
JOIN messages ON messages.thread_id = fired.thread_id AND messages.batch = fired.batch
    AND messages.sequence_num = 0
WHERE (NOT messages.synthetic OR messages.trigger_type IS NULL)
    AND (%(trigger)s::text IS NULL OR fired.trigger_type = %(trigger)s)"""  # noqa: S608 - same


class OutcomeSteps:
    _db: Database

    async def count_outcomes(self, query: OutcomeQuery) -> list[OutcomeCount]:
        async def step(db: Connection) -> list[OutcomeCount]:
            return outcome_counts(await _fetch(db, _OUTCOMES, query))

        return await self._db.read(step)

    async def tally_arms(self, query: OutcomeQuery) -> list[ArmTally]:
        async def step(db: Connection) -> list[ArmTally]:
            return in_order(map(arm_tally, await _fetch(db, _ARMS, query)))

        return await self._db.read(step)

    async def count_searches(self, query: OutcomeQuery) -> list[SearchCount]:
        async def step(db: Connection) -> list[SearchCount]:
            return in_order(map(search_count, await _fetch(db, _SEARCHES, query)))

        return await self._db.read(step)

    async def count_unmarked(self, query: OutcomeQuery) -> int:
        async def step(db: Connection) -> int:
            [row] = await _fetch(db, _UNMARKED, query)
            return int(row["count"])

        return await self._db.read(step)


async def _fetch(db: Connection, sql: LiteralString, query: OutcomeQuery) -> list[DictRow]:
    # Compiling these takes longer than running them.
    await db.execute("SET LOCAL jit = off")
    return await fetch_all(db, sql, _values(query))


def _values(query: OutcomeQuery) -> dict[str, Any]:
    return {
        "now": query.now,
        "since": query.since,
        "until": query.until,
        "window": query.window,
        "agent": query.agent_id,
        "trigger": query.trigger_type,
    }

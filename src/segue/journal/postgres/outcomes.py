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
from segue.journal.postgres.database import Connection, Database

# The conditions on kinds are those of the indices.
_FIRED: LiteralString = """
fired AS (
    SELECT turns.id, turns.agent_id, turns.thread_id, turns.state, turns.shown_at,
        turns.queued_at AS moment, turns.batch,
        coalesce(gates.trigger_type, (SELECT messages.trigger_type FROM messages
            WHERE messages.thread_id = turns.thread_id AND messages.batch = turns.batch
            AND messages.sequence_num = 0)) AS trigger_type,
        gates.variant, gates.consecutive
    FROM turns
    LEFT JOIN decisions AS gates ON gates.turn_id = turns.id AND gates.kind = 'gates'
        AND gates.kind <> 'plan'
    WHERE turns.kind = 'follow_up' AND turns.queued_at >= %(since)s AND turns.queued_at < %(until)s
        AND (%(agent)s::text IS NULL OR turns.agent_id = %(agent)s)
)"""
# What the gates said at the last moment, of those that were withdrawn.
_SECOND: LiteralString = """
    LEFT JOIN LATERAL (SELECT decisions.outcome, decisions.gate FROM decisions
        WHERE fired.state = 'void' AND decisions.turn_id = fired.id
        AND decisions.kind = 'gates_before_showing' AND decisions.kind <> 'plan'
        LIMIT 1) AS second ON true"""
_ENDED: LiteralString = """
ended AS (
    SELECT timers.id, timers.agent_id, timers.thread_id, timers.state, timers.trigger_type,
        timers.updated_at AS moment, gates.gate, gates.consecutive,
        coalesce(gates.held_out = 'true', false) AS held_out
    FROM timers
    LEFT JOIN LATERAL (SELECT * FROM decisions WHERE timers.state <> 'cancelled'
        AND decisions.timer_id = timers.id AND decisions.kind = 'gates'
        AND decisions.outcome <> 'postpone' LIMIT 1) AS gates ON true
    WHERE timers.kind = 'follow_up'
        AND timers.state IN ('cancelled', 'suppressed', 'expired', 'missed')
        AND timers.state_reason IS DISTINCT FROM 'Replaced by a newer timer.'
        AND timers.updated_at >= %(since)s AND timers.updated_at < %(until)s
        AND (%(agent)s::text IS NULL OR timers.agent_id = %(agent)s)
)"""
_WROTE: LiteralString = """
    LEFT JOIN LATERAL (SELECT later.queued_at AS wrote_at FROM turns AS later
        WHERE later.thread_id = {0}.thread_id AND later.id > {0}.id AND later.kind = 'reply'
        {1} ORDER BY later.id LIMIT 1) AS wrote ON true"""
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
            WHEN next.kind IS NOT NULL OR %(now)s - fired.shown_at > %(window)s THEN 'ignored'
            ELSE 'pending' END AS outcome,
        second.gate, NULL AS wrote,
        greatest(extract(epoch FROM next.queued_at - fired.shown_at), 0) AS latency,
        %(now)s - fired.shown_at > %(window)s AS is_over
    FROM fired
    LEFT JOIN LATERAL (SELECT later.kind, later.queued_at FROM turns AS later
        WHERE fired.shown_at IS NOT NULL AND later.thread_id = fired.thread_id
        AND later.id > fired.id AND (later.kind = 'reply'
            OR (later.kind = 'follow_up' AND later.shown_at IS NOT NULL))
        ORDER BY later.id LIMIT 1) AS next ON true
    {_SECOND}
    UNION ALL
    SELECT agent_id, trigger_type, NULL,
        CASE WHEN held_out THEN 'held_out' WHEN state = 'cancelled' THEN 'stopped'
            ELSE 'suppressed' END,
        gate,
        CASE WHEN NOT held_out THEN NULL WHEN wrote_at - moment <= %(window)s THEN 1
            WHEN %(now)s - moment > %(window)s THEN 0 END,
        NULL, held_out AND %(now)s - moment > %(window)s
    FROM ended {_WROTE.format("ended", "AND ended.held_out")}
), counted AS (
    SELECT agent_id, trigger_type, variant, outcome, wrote,
        outcome IN ('replied', 'ignored', 'held_out') AND coalesce(is_over, false) AS is_over,
        CASE WHEN outcome = 'suppressed' THEN gate END AS gate,
        CASE WHEN outcome <> 'replied' THEN NULL WHEN latency < 600
            THEN floor(latency) ELSE floor(latency / 60) * 60 END AS seconds
    FROM outcomes
    WHERE outcome <> 'postponed' AND (%(trigger)s::text IS NULL OR trigger_type = %(trigger)s)
)
SELECT agent_id, trigger_type, variant, outcome, gate, wrote, is_over, seconds, count(*) AS count
FROM counted
GROUP BY agent_id, trigger_type, variant, outcome, gate, wrote, is_over, seconds"""  # noqa: S608 - our own words
# Of moments that are long enough ago, so that those who write at once do not count for more.
_ARMS: LiteralString = f"""
WITH {_FIRED}, {_ENDED}, moments AS (
    SELECT agent_id, trigger_type, variant, thread_id, moment, wrote_at
    FROM fired {_SECOND} {_WROTE.format("fired", "")}
    WHERE consecutive = '0' AND variant IS NOT NULL AND second.outcome IS DISTINCT FROM 'postpone'
    UNION ALL
    SELECT agent_id, trigger_type, NULL, thread_id, moment, wrote_at
    FROM ended {_WROTE.format("ended", "")}
    WHERE state = 'suppressed' AND held_out AND consecutive = '0'
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
SELECT agent_id, fired.trigger_type, searched.outcome AS source, count(*) AS count,
    count(*) FILTER (WHERE searched.failed = 'true') AS failed
FROM fired JOIN decisions AS searched ON searched.turn_id = fired.id
    AND searched.kind = 'memory_query' AND searched.kind <> 'plan'
WHERE (%(trigger)s::text IS NULL OR fired.trigger_type = %(trigger)s)
GROUP BY agent_id, fired.trigger_type, searched.outcome"""  # noqa: S608 - same
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
    # Not prepared: a plan for any span of time is the one for a short span.
    found = await db.execute(sql, _values(query), prepare=False)
    return await found.fetchall()


def _values(query: OutcomeQuery) -> dict[str, Any]:
    return {
        "now": query.now,
        "since": query.since,
        "until": query.until,
        "window": query.window,
        "agent": query.agent_id,
        "trigger": query.trigger_type,
    }

"""What became of follow-ups, counted on SQLite.

`_FIRED` are the turns of follow-ups, `_ENDED` the timers that ended without one; each with the
facts that its outcome follows from. Times are whole microseconds.
"""

import sqlite3
from datetime import timedelta
from typing import Any, Final

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
from segue.journal.rows import to_micros
from segue.journal.sqlite.database import Database

_MICROSECOND: Final = timedelta(microseconds=1)
# When a follow-up is answered that another one was shown after.
_NEVER: Final = 2**63 - 1
_NEXT_REPLY: Final = (
    "(SELECT later.queued_at FROM turns AS later WHERE later.thread_id = {0}.thread_id "
    "AND later.id > {0}.id AND later.kind = 'reply' ORDER BY later.id LIMIT 1)"
)
# The conditions on kinds are those of the indices, word for word: else they are not used.
_FIRED: Final = f"""
fired AS (
    SELECT turns.id, turns.agent_id, turns.thread_id, turns.state, turns.shown_at,
        turns.queued_at AS moment, turns.batch,
        coalesce(gates.trigger_type, (SELECT messages.trigger_type FROM messages
            WHERE messages.thread_id = turns.thread_id AND messages.batch = turns.batch
            AND messages.sequence_num = 0)) AS trigger_type,
        gates.variant, gates.consecutive,
        CASE WHEN turns.state = 'void' THEN (SELECT min(second.id) FROM decisions AS second
            WHERE second.turn_id = turns.id AND second.kind = 'gates_before_showing'
            AND second.kind <> 'plan') END AS second_id,
        {_NEXT_REPLY.format("turns")} AS wrote_at,
        CASE WHEN turns.shown_at IS NOT NULL THEN (
            SELECT CASE later.kind WHEN 'reply' THEN later.queued_at ELSE {_NEVER} END
            FROM turns AS later WHERE later.thread_id = turns.thread_id
            AND later.id > turns.id AND (later.kind = 'reply'
                OR (later.kind = 'follow_up' AND later.shown_at IS NOT NULL))
            ORDER BY later.id LIMIT 1) END AS next_at
    FROM turns
    LEFT JOIN decisions AS gates ON gates.turn_id = turns.id AND gates.kind = 'gates'
        AND gates.kind <> 'plan'
    WHERE turns.kind = 'follow_up' AND turns.queued_at >= :since AND turns.queued_at < :until
        AND turns.agent_id = coalesce(:agent, turns.agent_id)
)"""  # noqa: S608 - our own words
# The plus keeps it on the index, which has all that is read here; by its id it reads the table.
_ENDED: Final = f"""
decided AS (
    SELECT timers.id, timers.agent_id, timers.thread_id, timers.state, timers.trigger_type,
        timers.updated_at AS moment,
        CASE WHEN timers.state <> 'cancelled' THEN (SELECT min(gates.id) FROM decisions AS gates
            WHERE gates.timer_id = timers.id AND gates.kind = 'gates'
            AND gates.outcome <> 'postpone') END AS gates_id
    FROM timers
    WHERE timers.kind = 'follow_up'
        AND timers.state IN ('cancelled', 'suppressed', 'expired', 'missed')
        AND timers.state_reason IS NOT 'Replaced by a newer timer.'
        AND timers.updated_at >= :since AND timers.updated_at < :until
        AND timers.agent_id = coalesce(:agent, timers.agent_id)
), ended AS (
    SELECT decided.*, gates.gate, gates.consecutive, coalesce(gates.held_out, 0) AS held_out,
        CASE WHEN gates.held_out THEN {_NEXT_REPLY.format("decided")} END AS wrote_at
    FROM decided
    LEFT JOIN decisions AS gates ON gates.timer_id = decided.id AND gates.kind = 'gates'
        AND +gates.id = decided.gates_id
)"""  # noqa: S608 - same
_OUTCOMES: Final = f"""
WITH {_FIRED}, {_ENDED}, outcomes AS (
    SELECT fired.agent_id, fired.trigger_type, fired.variant,
        CASE
            WHEN fired.state = 'failed' THEN 'failed'
            WHEN fired.shown_at IS NULL THEN CASE
                WHEN fired.state IN ('queued', 'running') THEN 'pending'
                WHEN second.outcome = 'suppress' THEN 'suppressed'
                WHEN second.outcome = 'postpone' THEN 'postponed'
                ELSE 'stopped' END
            ELSE 'shown' END AS outcome,
        second.gate, NULL AS wrote, fired.shown_at, fired.next_at,
        :now - fired.shown_at > :window AS is_over
    FROM fired LEFT JOIN decisions AS second ON second.id = fired.second_id
    UNION ALL
    SELECT agent_id, trigger_type, NULL,
        CASE WHEN held_out THEN 'held_out' WHEN state = 'cancelled' THEN 'stopped'
            ELSE 'suppressed' END,
        gate,
        CASE WHEN NOT held_out THEN NULL WHEN wrote_at - moment <= :window THEN 1
            WHEN :now - moment > :window THEN 0 END,
        NULL, NULL, held_out AND :now - moment > :window
    FROM ended
), told AS (
    SELECT agent_id, trigger_type, variant, gate, wrote, is_over,
        max(next_at - shown_at, 0) AS latency,
        CASE
            WHEN outcome <> 'shown' THEN outcome
            WHEN next_at - shown_at <= :window THEN 'replied'
            WHEN next_at IS NOT NULL OR :now - shown_at > :window THEN 'ignored'
            ELSE 'pending' END AS outcome
    FROM outcomes
    WHERE outcome <> 'postponed' AND (:trigger IS NULL OR trigger_type = :trigger)
), counted AS (
    SELECT agent_id, trigger_type, variant, outcome, wrote,
        outcome IN ('replied', 'ignored', 'held_out') AND coalesce(is_over, 0) AS is_over,
        CASE WHEN outcome = 'suppressed' THEN gate END AS gate,
        CASE WHEN outcome <> 'replied' THEN NULL WHEN latency < 600000000
            THEN latency / 1000000 ELSE latency / 60000000 * 60 END AS seconds
    FROM told
)
SELECT agent_id, trigger_type, variant, outcome, gate, wrote, is_over, seconds, count(*) AS count
FROM counted
GROUP BY seconds, agent_id, trigger_type, variant, outcome, gate, wrote, is_over"""  # noqa: S608 - same
# Of moments that are long enough ago, so that those who write at once do not count for more.
_ARMS: Final = f"""
WITH {_FIRED}, {_ENDED}, moments AS (
    SELECT fired.agent_id, fired.trigger_type, fired.variant, fired.thread_id, moment, wrote_at
    FROM fired LEFT JOIN decisions AS second ON second.id = fired.second_id
    WHERE fired.consecutive = 0 AND fired.variant IS NOT NULL
        AND second.outcome IS NOT 'postpone' AND :now - moment > :window
    UNION ALL
    SELECT agent_id, trigger_type, NULL, thread_id, moment, wrote_at FROM ended
    WHERE state = 'suppressed' AND held_out AND consecutive = 0 AND :now - moment > :window
), threads_of_arms AS (
    SELECT agent_id, trigger_type, variant, count(*) AS moments,
        avg(coalesce(wrote_at - moment <= :window, 0)) AS share
    FROM moments
    WHERE :trigger IS NULL OR trigger_type = :trigger
    GROUP BY thread_id, agent_id, trigger_type, variant
)
SELECT agent_id, trigger_type, variant, count(*) AS threads, sum(moments) AS moments,
    sum(share) AS total, sum(share * share) AS squares
FROM threads_of_arms
GROUP BY agent_id, trigger_type, variant"""  # noqa: S608 - same
_SEARCHES: Final = f"""
WITH {_FIRED}
SELECT agent_id, fired.trigger_type, searched.outcome AS source, count(*) AS count,
    sum(searched.failed) AS failed
FROM fired JOIN decisions AS searched ON searched.turn_id = fired.id
    AND searched.kind = 'memory_query' AND searched.kind <> 'plan'
WHERE (:trigger IS NULL OR fired.trigger_type = :trigger)
GROUP BY agent_id, fired.trigger_type, searched.outcome"""  # noqa: S608 - same
_UNMARKED: Final = f"""
WITH {_FIRED}
SELECT count(*) FROM fired
JOIN messages ON messages.thread_id = fired.thread_id AND messages.batch = fired.batch
    AND messages.sequence_num = 0
WHERE (messages.synthetic = 0 OR messages.trigger_type IS NULL)
    AND (:trigger IS NULL OR fired.trigger_type = :trigger)"""  # noqa: S608 - same


class OutcomeSteps:
    _db: Database

    async def count_outcomes(self, query: OutcomeQuery) -> list[OutcomeCount]:
        def step(db: sqlite3.Connection) -> list[OutcomeCount]:
            return outcome_counts(db.execute(_OUTCOMES, _values(query)))

        return await self._db.read(step)

    async def tally_arms(self, query: OutcomeQuery) -> list[ArmTally]:
        def step(db: sqlite3.Connection) -> list[ArmTally]:
            return in_order(map(arm_tally, db.execute(_ARMS, _values(query))))

        return await self._db.read(step)

    async def count_searches(self, query: OutcomeQuery) -> list[SearchCount]:
        def step(db: sqlite3.Connection) -> list[SearchCount]:
            return in_order(map(search_count, db.execute(_SEARCHES, _values(query))))

        return await self._db.read(step)

    async def count_unmarked(self, query: OutcomeQuery) -> int:
        def step(db: sqlite3.Connection) -> int:
            (count,) = db.execute(_UNMARKED, _values(query)).fetchone()
            return int(count)

        return await self._db.read(step)


def _values(query: OutcomeQuery) -> dict[str, Any]:
    return {
        "now": to_micros(query.now),
        "since": to_micros(query.since),
        "until": to_micros(query.until),
        "window": query.window // _MICROSECOND,
        "agent": query.agent_id,
        "trigger": query.trigger_type,
    }

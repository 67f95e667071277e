"""Outcomes of follow-ups, counted by the database from stored rows.

A follow-up is the turn of a timer that fired (`_FIRED`), or a timer that ended without firing
(`_ENDED`); its outcome follows from the stored facts. Nothing is written for this.
"""

from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from segue.journal.rows import Record
from segue.journal.tx import Part, Tx, reads

# How long after a follow-up a message counts as its answer.
WINDOW: Final = timedelta(hours=24)


class FollowUpOutcome(StrEnum):
    """The outcome of a follow-up."""

    REPLIED = "replied"
    IGNORED = "ignored"
    # Its window is still open, or it is still being written.
    PENDING = "pending"
    # The user wrote first, it was cancelled before it was shown, or the reply is a stop.
    STOPPED = "stopped"
    SUPPRESSED = "suppressed"
    # The guard found machinery instead of a message.
    WITHHELD = "withheld"
    HELD_OUT = "held_out"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeQuery:
    """Follow-ups that were fired or ended from `since` on and before `until`, as seen at `now`."""

    now: datetime
    since: datetime
    until: datetime
    window: timedelta = WINDOW
    agent_id: str | None = None
    trigger_type: str | None = None


def _seconds(average: Any) -> timedelta | None:
    return None if average is None else timedelta(seconds=float(average))


@dataclass(frozen=True, slots=True)
class OutcomeCount(Record):
    """Number of follow-ups of one agent, trigger and variant that had an outcome.

    `variant` is None if no prompt was chosen. `gate` is the one that suppressed them. `latency` is
    the median time to reply. `is_over`: they were shown and their window is over; only those
    belong in a rate, because users who reply at once are counted before the silent ones.
    """

    agent_id: str
    trigger_type: str | None
    variant: str | None
    outcome: FollowUpOutcome
    count: int
    gate: str | None = None
    latency: timedelta | None = field(default=None, metadata={"read": _seconds})
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class ArmCount(Record):
    """The threads of one variant, or those held out (`variant` None).

    `wrote` sums, over the threads, the share of moments after which the user wrote.
    """

    agent_id: str
    trigger_type: str | None
    variant: str | None
    threads: int
    wrote: float = field(metadata={"read": float})


@dataclass(frozen=True, slots=True)
class SearchCount(Record):
    """Number of follow-ups that searched memories with the text of a source (`none`: no text to
    search with), and how many of these searches failed.
    """

    source: str
    count: int
    failed: int = field(metadata={"read": int})


@dataclass(frozen=True, slots=True)
class ReminderCount(Record):
    """Number of reminders that were shown, and of those with the stored text."""

    sent: int
    plainly: int


_IS_STOP: Final = (
    "EXISTS (SELECT 1 FROM decisions AS wish WHERE wish.turn_id = {0}.id "
    "AND wish.kind = 'request' AND wish.kind <> 'plan' AND wish.outcome = 'stop')"
)
# None if it is a stop, which is no success of what was sent.
_NEXT_REPLY: Final = (
    f"(SELECT CASE WHEN {_IS_STOP.format('later')} THEN NULL ELSE later.queued_at END "
    "FROM turns AS later WHERE later.thread_id = {0}.thread_id "
    "AND later.id > {0}.id AND later.kind = 'reply' ORDER BY later.id LIMIT 1)"
)
# The conditions on kinds repeat those of the partial indices exactly: else these are not used.
_FIRED: Final = f"""
fired AS (
    SELECT turns.id, turns.agent_id, turns.thread_id, turns.state, turns.shown_at,
        turns.queued_at AS moment, turns.batch,
        coalesce(gates.trigger_type, (SELECT messages.trigger_type FROM messages
            WHERE messages.thread_id = turns.thread_id AND messages.batch = turns.batch
            AND messages.sequence_num = 0)) AS trigger_type,
        gates.variant, CAST(gates.consecutive AS text) AS consecutive,
        CASE WHEN turns.state = 'void' THEN (SELECT min(second.id) FROM decisions AS second
            WHERE second.turn_id = turns.id AND second.kind IN ('gates_before_showing', 'guard')
            AND second.kind <> 'plan') END AS second_id,
        {_NEXT_REPLY.format("turns")} AS wrote_at,
        CASE WHEN turns.shown_at IS NOT NULL THEN (SELECT min(later.id) FROM turns AS later
            WHERE later.thread_id = turns.thread_id AND later.id > turns.id
            AND (later.kind = 'reply'
                OR (later.kind = 'follow_up' AND later.shown_at IS NOT NULL))) END AS next_id
    FROM turns
    LEFT JOIN decisions AS gates ON gates.turn_id = turns.id AND gates.kind = 'gates'
        AND gates.kind <> 'plan'
    WHERE turns.kind = 'follow_up' AND turns.queued_at >= :since AND turns.queued_at < :until
        AND turns.agent_id = coalesce(:agent_id, turns.agent_id)
)"""
# The plus keeps SQLite on the covering index instead of reading the table by id.
_ENDED: Final = f"""
decided AS (
    SELECT timers.id, timers.agent_id, timers.thread_id, timers.state, timers.trigger_type,
        timers.updated_at AS moment,
        CASE WHEN timers.state <> 'cancelled' THEN (SELECT min(gates.id) FROM decisions AS gates
            WHERE gates.timer_id = timers.id AND gates.kind = 'gates'
            AND gates.outcome <> 'postpone') END AS gates_id
    FROM timers
    WHERE timers.kind IN ('follow_up', 'event')
        AND timers.state IN ('cancelled', 'suppressed', 'expired', 'missed')
        AND coalesce(timers.state_reason, '') <> 'Replaced by a newer timer.'
        AND timers.updated_at >= :since AND timers.updated_at < :until
        AND timers.agent_id = coalesce(:agent_id, timers.agent_id)
), ended AS (
    SELECT decided.*, gates.gate, CAST(gates.consecutive AS text) AS consecutive,
        coalesce(CAST(gates.held_out AS text), '') IN ('true', '1') AS held_out,
        CASE WHEN CAST(gates.held_out AS text) IN ('true', '1')
            THEN {_NEXT_REPLY.format("decided")} END AS wrote_at
    FROM decided LEFT JOIN decisions AS gates ON gates.timer_id = decided.id
        AND gates.kind = 'gates' AND +gates.id = decided.gates_id
)"""
_OUTCOMES: Final = f"""
WITH {_FIRED}, {_ENDED}, outcomes AS (
    SELECT fired.agent_id, fired.trigger_type, fired.variant,
        CASE
            WHEN fired.state = 'failed' THEN 'failed'
            WHEN fired.shown_at IS NULL THEN CASE
                WHEN fired.state IN ('queued', 'running') THEN 'pending'
                WHEN second.outcome = 'suppress' THEN 'suppressed'
                WHEN second.outcome = 'postpone' THEN 'postponed'
                WHEN second.outcome = 'withheld' THEN 'withheld'
                ELSE 'stopped' END
            WHEN next.kind = 'reply' AND next.queued_at - fired.shown_at <= :window
                THEN CASE WHEN {_IS_STOP.format("next")} THEN 'stopped' ELSE 'replied' END
            WHEN next.kind IS NOT NULL OR :now - fired.shown_at > :window THEN 'ignored'
            ELSE 'pending' END AS outcome,
        second.gate, SECONDS(next.queued_at - fired.shown_at) AS latency,
        :now - fired.shown_at > :window AS is_over
    FROM fired
    LEFT JOIN decisions AS second ON second.id = fired.second_id
    LEFT JOIN turns AS next ON next.id = fired.next_id
    UNION ALL
    SELECT agent_id, trigger_type, NULL,
        CASE WHEN held_out THEN 'held_out' WHEN state = 'cancelled' THEN 'stopped'
            ELSE 'suppressed' END,
        gate, NULL, false
    FROM ended
), kinds AS (
    SELECT agent_id, trigger_type, variant, outcome,
        outcome IN ('replied', 'ignored', 'stopped') AND coalesce(is_over, false) AS is_over,
        CASE WHEN outcome = 'suppressed' THEN gate END AS gate,
        CASE WHEN outcome = 'replied' THEN greatest(latency, 0) END AS latency
    FROM outcomes
    WHERE outcome <> 'postponed' AND (:trigger_type::text IS NULL OR trigger_type = :trigger_type)
), ranked AS (
    SELECT *, row_number() OVER (kind ORDER BY latency) AS place, count(*) OVER kind AS total
    FROM kinds
    WINDOW kind AS (PARTITION BY agent_id, trigger_type, variant, outcome, gate, is_over)
)
SELECT agent_id, trigger_type, variant, outcome, gate, is_over, count(*) AS count,
    avg(CASE WHEN place IN ((total + 1) / 2, (total + 2) / 2) THEN latency END) AS latency
FROM ranked
GROUP BY agent_id, trigger_type, variant, outcome, gate, is_over"""
# Only moments whose window is over: otherwise users who write at once would count for more. And
# only what silence brings: what was requested is never held out.
_ARMS: Final = f"""
WITH {_FIRED}, {_ENDED}, moments AS (
    SELECT fired.agent_id, fired.trigger_type, fired.variant, fired.thread_id, moment, wrote_at
    FROM fired LEFT JOIN decisions AS second ON second.id = fired.second_id
    WHERE fired.consecutive = '0' AND fired.variant IS NOT NULL
        AND coalesce(second.outcome, '') <> 'postpone' AND :now - moment > :window
        AND NOT EXISTS (SELECT 1 FROM timers WHERE timers.turn_id = fired.id
            AND (timers.key IS NOT NULL OR timers.kind <> 'follow_up'))
    UNION ALL
    SELECT agent_id, trigger_type, NULL, thread_id, moment, wrote_at FROM ended
    WHERE state = 'suppressed' AND held_out AND consecutive = '0' AND :now - moment > :window
), threads_of_arms AS (
    SELECT agent_id, trigger_type, variant,
        avg(CASE WHEN wrote_at - moment <= :window THEN 1.0 ELSE 0.0 END) AS share
    FROM moments
    WHERE :trigger_type::text IS NULL OR trigger_type = :trigger_type
    GROUP BY thread_id, agent_id, trigger_type, variant
)
SELECT agent_id, trigger_type, variant, count(*) AS threads, sum(share) AS wrote
FROM threads_of_arms
GROUP BY agent_id, trigger_type, variant"""
_SEARCHES: Final = f"""
WITH {_FIRED}
SELECT searched.outcome AS source, count(*) AS count,
    sum(CASE WHEN CAST(searched.failed AS text) IN ('true', '1') THEN 1 ELSE 0 END) AS failed
FROM fired JOIN decisions AS searched ON searched.turn_id = fired.id
    AND searched.kind = 'memory_query' AND searched.kind <> 'plan'
WHERE :trigger_type::text IS NULL OR fired.trigger_type = :trigger_type
GROUP BY searched.outcome"""
_UNMARKED: Final = f"""
WITH {_FIRED}
SELECT count(*) AS count FROM fired
JOIN messages ON messages.thread_id = fired.thread_id AND messages.batch = fired.batch
    AND messages.sequence_num = 0
WHERE (messages.synthetic = false OR messages.trigger_type IS NULL)
    AND (:trigger_type::text IS NULL OR fired.trigger_type = :trigger_type)"""

_REMINDERS: Final = """
SELECT count(*) AS sent, count(plain.id) AS plainly FROM turns
LEFT JOIN decisions AS plain ON plain.turn_id = turns.id AND plain.kind = 'reminder'
    AND plain.kind <> 'plan'
WHERE turns.kind = 'reminder' AND turns.queued_at >= :since AND turns.queued_at < :until
    AND turns.shown_at IS NOT NULL AND turns.agent_id = coalesce(:agent_id, turns.agent_id)
    AND :trigger_type::text IS NULL"""


class Stats(Part):
    """Outcomes of follow-ups. The cost grows with the number of counted follow-ups.

    Lists are sorted by agent, trigger and the rest.
    """

    @reads
    async def count_outcomes(self, tx: Tx, query: OutcomeQuery) -> list[OutcomeCount]:
        """Count the follow-ups of each agent, trigger and variant by outcome.

        A shown follow-up is replied to if the user's next message or answer came within the window
        and before the next shown follow-up, and stopped if that message is a stop; it is ignored
        once either is past. One that was postponed, or replaced by a newer one, is not counted.
        """
        return sorted(map(OutcomeCount.of, await tx.all(_OUTCOMES, **asdict(query))), key=str)

    @reads
    async def count_arms(self, tx: Tx, query: OutcomeQuery) -> list[ArmCount]:
        """Count in each arm the threads, and the share of moments after which users wrote, other
        than to stop follow-ups.

        A moment with a sent follow-up counts regardless of its outcome; its window must be over.
        Only follow-ups that a decider planned have arms.
        """
        return sorted(map(ArmCount.of, await tx.all(_ARMS, **asdict(query))), key=str)

    @reads
    async def count_searches(self, tx: Tx, query: OutcomeQuery) -> list[SearchCount]:
        """Count the memory searches of follow-ups by the source of their text."""
        return sorted(map(SearchCount.of, await tx.all(_SEARCHES, **asdict(query))), key=str)

    @reads
    async def count_unmarked(self, tx: Tx, query: OutcomeQuery) -> int:
        """Follow-ups whose stored trigger has lost its metadata; 0 unless a store loses data."""
        [row] = await tx.all(_UNMARKED, **asdict(query))
        return int(row["count"])

    @reads
    async def count_reminders(self, tx: Tx, query: OutcomeQuery) -> ReminderCount:
        """Count the reminders that were shown; none if the query names a trigger."""
        [row] = await tx.all(_REMINDERS, **asdict(query))
        return ReminderCount.of(row)

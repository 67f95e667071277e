"""The recorded past of a user's threads, as a replay needs it.

Read page by page from one snapshot; nothing is written. Messages are read only if no recorded
decision tells which follow-up they called for.
"""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from langchain_core.messages import AIMessage, messages_from_dict

from segue.core.autonomy.decide import LOOKED_BACK, judge
from segue.core.autonomy.policy import Preferences
from segue.core.batch import Batch
from segue.core.messages import visible_messages
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.triggers import check_trigger_name
from segue.errors import SegueError
from segue.journal import tables
from segue.journal.records import DROPPED, NESTING, TimerState, TurnKind
from segue.journal.rows import UNREADABLE
from segue.journal.tables import Row, Rows, Whose, all_batches, all_rows

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PastPlan:
    """What a reply called for. `delay` is the decider's own; None means that of the settings, which
    only the four fixed triggers have.
    """

    trigger: str
    delay: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTurn:
    """One answer or follow-up: when it began, was first shown and ended, and what it called for."""

    batch: int
    is_follow_up: bool
    began_at: datetime
    shown_at: datetime | None = None
    ended_at: datetime | None = None
    plan: PastPlan | None = None
    trigger: str | None = None
    # Of a follow-up that the gates postponed just before it was shown.
    postponed_until: datetime | None = None
    # Whether its messages must be read to know the plan.
    needs_judging: bool = False
    is_interrupted: bool = False

    def continued_by(self, later: "PastTurn") -> "PastTurn":
        """The turn with the end of its continuation."""
        return replace(
            later,
            is_follow_up=self.is_follow_up,
            began_at=self.began_at,
            shown_at=self.shown_at or later.shown_at,
            trigger=self.trigger,
            postponed_until=self.postponed_until,
        )


@dataclass(frozen=True, slots=True)
class PastCheck:
    """A time at which the gates were asked, with the preferences and typing of that time."""

    at: datetime
    due_at: datetime
    preferences: Preferences
    typing_at: datetime | None


@dataclass(frozen=True, slots=True)
class PastThread:
    """The events of a thread, oldest first, and the current preferences."""

    id: str
    agent_id: str
    turns: tuple[PastTurn, ...]
    checks: tuple[PastCheck, ...]
    # When a pending follow-up was cancelled by a call, not by a message.
    cancelled_at: tuple[datetime, ...]
    # Spans in which a timer was due and no process looked at it.
    unattended: tuple[tuple[datetime, datetime], ...]
    preferences: Preferences
    # Whether there are messages without a recorded turn.
    is_imported: bool
    # When messages were shown that programs, events and users asked for; they are not replayed.
    requested_at: tuple[datetime, ...] = ()


async def past_of(
    rows: Rows, user_id: str | None = None, zone: str | None = None
) -> AsyncIterator[list[PastThread | None]]:
    """The threads of each user, or of one user. A thread that cannot be read is None; threads in
    which agents ask each other have no follow-ups and are left out. `zone` is that of users who
    have not set theirs.
    """
    by_user: dict[str, list[Row]] = defaultdict(list)
    async for row in all_rows(rows, tables.THREADS, Whose(user_id=user_id)):
        if NESTING not in row["id"]:
            by_user[row["user_id"]].append({n: row[n] for n in ("id", "agent_id", "settings")})
    for user, threads in by_user.items():
        page = await rows.read_rows(tables.USERS, Whose(user_id=user), limit=1)
        settings = page[0]["settings"] if page else {}
        yield [await _read_thread(rows, thread, settings, zone) for thread in threads]


async def _read_thread(
    rows: Rows, thread: Row, settings: Mapping[str, Any], zone: str | None
) -> PastThread | None:
    try:
        return await _thread(rows, thread, Preferences.of(settings, thread["settings"], zone))
    except (*UNREADABLE, SegueError) as error:
        logger.warning("The past of thread %s cannot be read: %s", thread["id"], error)
        return None


async def _thread(rows: Rows, thread: Row, preferences: Preferences) -> PastThread:
    whose = Whose(thread_id=thread["id"])
    timers, decided, found = [
        [row async for row in all_rows(rows, table, whose)]
        for table in (tables.TIMERS, tables.DECISIONS, tables.TURNS)
    ]
    # Requested messages do not depend on the policy; only follow-ups after silence are replayed.
    requested = _requested(timers, decided)
    decisions = [row for row in decided if not {row["timer_id"], row["turn_id"]} & requested]
    known = {row["batch"] for row in found}
    timers = [row for row in timers if row["key"] is None]
    turns = _turns((row for row in found if row["id"] not in requested), decisions)
    # Not by their ids: the clocks of several processes may differ.
    checks = sorted((_check(d) for d in decisions if d["kind"] == "gates"), key=lambda c: c.at)
    oldest = await rows.read_rows(tables.MESSAGES, whose, limit=1)
    is_imported = any(row["batch"] not in known for row in oldest)
    if is_imported or any(turn.needs_judging for turn in turns):
        left_out = {row["batch"] for row in found if row["id"] in requested}
        turns = await _judge_turns(rows, thread["id"], turns, left_out)
    return PastThread(
        thread["id"],
        thread["agent_id"],
        tuple(turns),
        tuple(checks),
        tuple(row["updated_at"] for row in timers if row["state_reason"] == DROPPED),
        tuple(_unattended(checks, timers)),
        preferences,
        is_imported,
        tuple(row["shown_at"] for row in found if row["id"] in requested and row["shown_at"]),
    )


def _requested(timers: Iterable[Row], decisions: Iterable[Row]) -> set[int]:
    """Ids of timers of programs, events and reminders, and of all turns that they queued."""
    asked = {row["id"] for row in timers if row["key"]}
    queued = {row["turn_id"] for row in timers if row["key"]}
    queued |= {row["turn_id"] for row in decisions if row["timer_id"] in asked}
    return asked | queued - {None}


def _unattended(
    checks: Iterable[PastCheck], timers: Iterable[Row]
) -> Iterator[tuple[datetime, datetime]]:
    yield from ((check.due_at, check.at) for check in checks if check.due_at < check.at)
    for timer in timers:
        # The user wrote before a process had claimed it.
        if timer["state"] == TimerState.CANCELLED and timer["due_at"] < timer["updated_at"]:
            yield timer["due_at"], timer["updated_at"]


def _turns(rows: Iterable[Row], decisions: Iterable[Row]) -> list[PastTurn]:
    by_turn: dict[int | None, dict[str, Row]] = defaultdict(dict)
    for decision in decisions:
        by_turn[decision["turn_id"]][decision["kind"]] = decision
    turns: list[PastTurn] = []
    for row in rows:
        turn = _turn(row, by_turn[row["id"]])
        if row["kind"] != TurnKind.CONTINUATION:
            turns.append(turn)
        elif turns and turns[-1].batch == turn.batch:
            turns[-1] = turns[-1].continued_by(turn)
    return turns


def _turn(row: Row, decisions: Mapping[str, Row]) -> PastTurn:
    planned = decisions.get("plan")
    plan_facts = planned["facts"] if planned else {}
    gates_facts = decisions["gates"]["facts"] if "gates" in decisions else {}
    withdrawn = decisions.get("gates_before_showing")
    return PastTurn(
        batch=row["batch"],
        is_follow_up=row["kind"] == TurnKind.FOLLOW_UP,
        began_at=row["queued_at"],
        shown_at=row["shown_at"],
        ended_at=(_time(plan_facts, "answered_at") or planned["decided_at"]) if planned else None,
        plan=_plan(plan_facts),
        trigger=gates_facts.get("trigger"),
        postponed_until=_time(withdrawn["facts"], "until") if withdrawn else None,
        needs_judging=bool(plan_facts.get("refused")),
        is_interrupted=(row["ending"] or {}).get("kind") == "question",
    )


def _plan(facts: Mapping[str, Any]) -> PastPlan | None:
    if facts.get("trigger") is None:
        return None
    # Records of earlier versions have the chosen delay alone.
    chosen = facts.get("chosen_delay", facts.get("delay"))
    seconds = None if facts.get("decider") == "rules" else chosen
    delay = None if seconds is None else timedelta(seconds=seconds)
    # A custom decider may have chosen a trigger of the owner's.
    return PastPlan(check_trigger_name(facts["trigger"]), delay)


def _check(decision: Row) -> PastCheck:
    at, facts = decision["decided_at"], decision["facts"]
    preferences = Preferences.of({**facts, "time_zone": facts.get("zone")}, {})
    return PastCheck(at, _time(facts, "due_at") or at, preferences, _time(facts, "typing_at"))


def _time(facts: Mapping[str, Any], name: str) -> datetime | None:
    text = facts.get(name)
    return datetime.fromisoformat(text) if text else None


async def _judge_turns(
    rows: Rows, thread_id: str, turns: Iterable[PastTurn], left_out: Container[int]
) -> list[PastTurn]:
    """The turns with the plan that their messages call for, and turns made of messages alone; none
    of the batches `left_out`.
    """
    by_batch: dict[int, list[PastTurn]] = defaultdict(list)
    for turn in turns:
        by_batch[turn.batch].append(turn)
    found: list[PastTurn] = []
    earlier: list[Batch] = []
    async for batch_rows in all_batches(rows, thread_id):
        batch = _read_batch(batch_rows)
        if batch is None:
            continue
        found_here = by_batch.pop(batch.id, None) or _turn_of(batch)
        for turn in () if batch.id in left_out else found_here:
            plan = turn.plan
            if turn.needs_judging:
                trigger = judge(batch, earlier, interrupted=turn.is_interrupted).trigger
                plan = None if trigger is None else PastPlan(trigger.value)
            found.append(replace(turn, plan=plan))
        earlier = [*earlier, batch][-LOOKED_BACK:]
    # The messages of the others were removed.
    found += (turn for removed in by_batch.values() for turn in removed)
    return sorted(found, key=lambda turn: turn.began_at)


def _read_batch(rows: Sequence[Row]) -> Batch | None:
    """None for a batch that cannot be read: it is left out."""
    try:
        batch = Batch(rows[0]["batch"], messages_from_dict([row["body"] for row in rows]))
        batch.state  # noqa: B018 - raises here, not later
    except (*UNREADABLE, SegueError):
        return None
    return batch


def _turn_of(batch: Batch) -> Iterator[PastTurn]:
    """The turn of a batch without a record; a question between agents is not a turn."""
    if batch.type is BatchType.AGENT_TO_AGENT:
        return
    is_follow_up = batch.type is BatchType.SYSTEM_TRIGGER
    ended_at = batch.last_activity_at
    spoke = any(isinstance(message, AIMessage) for message in visible_messages(batch.messages))
    yield PastTurn(
        batch=batch.id,
        is_follow_up=is_follow_up,
        began_at=batch.started_at,
        shown_at=ended_at if spoke else None,
        ended_at=ended_at,
        trigger=MessageMetadata.of(batch.messages[0]).trigger_type if is_follow_up else None,
        needs_judging=True,
    )

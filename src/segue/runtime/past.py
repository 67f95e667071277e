"""The past of a user's threads as the journal has recorded it, for whoever goes through it again.

Read page by page from one snapshot, and nothing is written. What was said is looked at only where
no decision was recorded that says what it called for.
"""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from langchain_core.messages import AIMessage, messages_from_dict

from segue.core.batch import Batch
from segue.core.decide import LOOKED_BACK, judge
from segue.core.errors import SegueError
from segue.core.messages import visible_messages
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.preferences import Preferences
from segue.core.triggers import TriggerType, parse_trigger
from segue.journal.records import DROPPED, NESTING, TimerState, TurnKind
from segue.journal.rows import UNREADABLE
from segue.journal.tables import (
    DECISIONS,
    MESSAGES,
    THREADS,
    TIMERS,
    TURNS,
    USERS,
    Row,
    Rows,
    Whose,
    all_rows,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a reply called for. A delay is the decider's own; without one, the settings say it."""

    trigger: TriggerType
    delay: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """One answer or follow-up: when it began, was first seen and ended, and what it called for.

    `put_off_until` is of a follow-up that the gates held back in the last moment.
    """

    batch: int
    is_follow_up: bool
    began_at: datetime
    shown_at: datetime | None = None
    ended_at: datetime | None = None
    plan: Plan | None = None
    trigger: str | None = None
    put_off_until: datetime | None = None
    # Whether what it called for is still to be read from its words.
    is_unjudged: bool = False
    is_interrupted: bool = False

    def gone_on(self, later: Self) -> Self:
        """The cycle with how it ended, after its agent had gone on by itself."""
        return replace(
            self,
            shown_at=self.shown_at or later.shown_at,
            ended_at=later.ended_at,
            plan=later.plan,
            is_unjudged=later.is_unjudged,
            is_interrupted=later.is_interrupted,
        )


@dataclass(frozen=True, slots=True)
class Check:
    """A moment at which the gates were asked, and what held then."""

    at: datetime
    due_at: datetime
    wishes: Preferences
    typing_at: datetime | None


@dataclass(frozen=True, slots=True)
class PastThread:
    """What happened in a thread, in order, and the wishes that hold today."""

    id: str
    agent_id: str
    user_id: str
    cycles: tuple[Cycle, ...]
    checks: tuple[Check, ...]
    # When what was planned was taken back by somebody who did not write.
    dropped_at: tuple[datetime, ...]
    # From when to when something was due and nobody looked at it.
    unattended: tuple[tuple[datetime, datetime], ...]
    wishes: Preferences
    # Whether there are messages that no turn is recorded of: it was brought in from elsewhere.
    is_brought_in: bool


@dataclass(frozen=True, slots=True)
class _Name:
    thread_id: str
    agent_id: str
    settings: Mapping[str, Any]


async def past_of(rows: Rows, user_id: str | None = None) -> AsyncIterator[list[PastThread | None]]:
    """The threads of one user after the other; of one user alone, if one is named.

    A thread that holds something unreadable is None. Threads in which agents ask each other are
    left out: nobody is followed up in them.
    """
    by_user: dict[str, list[_Name]] = defaultdict(list)
    async for row in all_rows(rows, THREADS, Whose(user_id=user_id)):
        if NESTING not in row["id"]:
            by_user[row["user_id"]].append(_Name(row["id"], row["agent_id"], row["settings"]))
    for user, names in by_user.items():
        page = await rows.read_rows(USERS, Whose(user_id=user), limit=1)
        settings = page[0]["settings"] if page else {}
        yield [await _readable_thread(rows, user, name, settings) for name in names]


async def _readable_thread(
    rows: Rows, user: str, name: _Name, settings: Mapping[str, Any]
) -> PastThread | None:
    try:
        return await _thread(rows, user, name, settings)
    except (*UNREADABLE, SegueError) as error:
        logger.warning("The past of thread %s cannot be read: %s", name.thread_id, error)
        return None


async def _thread(rows: Rows, user: str, name: _Name, settings: Mapping[str, Any]) -> PastThread:
    whose = Whose(thread_id=name.thread_id)
    decided = [_Decided(row) async for row in all_rows(rows, DECISIONS, whose)]
    cycles = _cycles([row async for row in all_rows(rows, TURNS, whose)], decided)
    asked = (each.check for each in decided if each.kind == "gates")
    # Not by their ids: the clocks of several processes may differ.
    checks = tuple(sorted(asked, key=lambda check: check.at))
    timers = [row async for row in all_rows(rows, TIMERS, whose)]
    oldest = await rows.read_rows(MESSAGES, whose, limit=1)
    known = {cycle.batch for cycle in cycles}
    is_brought_in = any(row["batch"] not in known for row in oldest)
    if is_brought_in or any(cycle.is_unjudged for cycle in cycles):
        cycles = await _judged(rows, whose, cycles)
    return PastThread(
        name.thread_id,
        name.agent_id,
        user,
        tuple(cycles),
        checks,
        tuple(row["updated_at"] for row in timers if row["state_reason"] == DROPPED),
        tuple(_unattended(checks, timers)),
        Preferences.of(settings, name.settings),
        is_brought_in,
    )


def _unattended(
    checks: Iterable[Check], timers: Iterable[Row]
) -> Iterator[tuple[datetime, datetime]]:
    yield from ((check.due_at, check.at) for check in checks if check.due_at < check.at)
    for timer in timers:
        # The user wrote before anybody had found it.
        if timer["state"] == TimerState.CANCELLED and timer["due_at"] < timer["updated_at"]:
            yield timer["due_at"], timer["updated_at"]


class _Decided:
    """A recorded decision."""

    def __init__(self, row: Row) -> None:
        self.kind: str = row["kind"]
        self.turn_id: int | None = row["turn_id"]
        self.at: datetime = row["decided_at"]
        self._facts: Mapping[str, Any] = row["facts"]

    @property
    def is_refused(self) -> bool:
        return bool(self._facts.get("refused"))

    @property
    def trigger(self) -> str | None:
        return self._facts.get("trigger")

    @property
    def answered_at(self) -> datetime:
        return self._moment("answered_at") or self.at

    @property
    def until(self) -> datetime | None:
        return self._moment("until")

    @property
    def plan(self) -> Plan | None:
        if self.trigger is None:
            return None
        facts = self._facts
        # Records of earlier versions have the chosen delay alone.
        chosen = facts.get("chosen_delay", facts.get("delay"))
        seconds = None if facts.get("decider") == "rules" else chosen
        delay = None if seconds is None else timedelta(seconds=seconds)
        return Plan(parse_trigger(self.trigger), delay)

    @property
    def check(self) -> Check:
        facts = self._facts
        wishes = Preferences.of({**facts, "time_zone": facts.get("zone")}, {})
        due_at = self._moment("due_at") or self.at
        return Check(self.at, due_at, wishes, self._moment("typing_at"))

    def _moment(self, name: str) -> datetime | None:
        text = self._facts.get(name)
        return datetime.fromisoformat(text) if text else None


def _cycles(turns: Iterable[Row], decided: Iterable[_Decided]) -> list[Cycle]:
    by_turn: dict[int | None, dict[str, _Decided]] = defaultdict(dict)
    for each in decided:
        by_turn[each.turn_id][each.kind] = each
    cycles: list[Cycle] = []
    for row in turns:
        cycle = _cycle(row, by_turn[row["id"]])
        # An agent that goes on by itself has ended only then.
        if row["kind"] == TurnKind.CONTINUATION and cycles and cycles[-1].batch == cycle.batch:
            cycles[-1] = cycles[-1].gone_on(cycle)
        elif row["kind"] != TurnKind.CONTINUATION:
            cycles.append(cycle)
    return cycles


def _cycle(row: Row, decided: Mapping[str, _Decided]) -> Cycle:
    planned, fired = decided.get("plan"), decided.get("gates")
    held_back = decided.get("gates_before_showing")
    ending = row["ending"] or {}
    return Cycle(
        batch=row["batch"],
        is_follow_up=row["kind"] == TurnKind.FOLLOW_UP,
        began_at=row["queued_at"],
        shown_at=row["shown_at"],
        ended_at=planned.answered_at if planned else None,
        plan=planned.plan if planned else None,
        trigger=fired.trigger if fired else None,
        put_off_until=held_back.until if held_back else None,
        is_unjudged=planned is not None and planned.is_refused,
        is_interrupted=ending.get("kind") == "question",
    )


async def _judged(rows: Rows, whose: Whose, cycles: Iterable[Cycle]) -> list[Cycle]:
    """The cycles with what their words called for, and those of which there are only words."""
    known: dict[int, list[Cycle]] = defaultdict(list)
    for cycle in cycles:
        known[cycle.batch].append(cycle)
    found: list[Cycle] = []
    earlier: list[Batch] = []
    async for batch in _batches(rows, whose):
        for cycle in known.pop(batch.id, None) or _told(batch):
            plan = _called_for(batch, earlier, cycle) if cycle.is_unjudged else cycle.plan
            found.append(replace(cycle, plan=plan))
        earlier = [*earlier, batch][-LOOKED_BACK:]
    # Of some the words are gone.
    found += (cycle for gone in known.values() for cycle in gone)
    return sorted(found, key=lambda cycle: cycle.began_at)


async def _batches(rows: Rows, whose: Whose) -> AsyncIterator[Batch]:
    """The batches of a thread that can be read, the oldest first."""
    held: list[Row] = []
    async for row in all_rows(rows, MESSAGES, whose):
        if held and held[0]["batch"] != row["batch"]:
            for batch in _readable(held):
                yield batch
            held = []
        held.append(row)
    for batch in _readable(held):
        yield batch


def _readable(rows: Sequence[Row]) -> Iterator[Batch]:
    try:
        batch = Batch(rows[0]["batch"], messages_from_dict([row["body"] for row in rows]))
        batch.state  # noqa: B018 - judged here, where what is damaged can be left out
    except (*UNREADABLE, SegueError):
        return
    yield batch


def _told(batch: Batch) -> Iterator[Cycle]:
    """A cycle as its messages tell it. What agents ask each other is nobody's turn."""
    if batch.type is BatchType.AGENT_TO_AGENT:
        return
    is_follow_up = batch.type is BatchType.SYSTEM_TRIGGER
    ended_at = batch.last_activity_at
    spoke = any(isinstance(message, AIMessage) for message in visible_messages(batch.messages))
    yield Cycle(
        batch=batch.id,
        is_follow_up=is_follow_up,
        began_at=batch.started_at,
        shown_at=ended_at if spoke else None,
        ended_at=ended_at,
        trigger=MessageMetadata.of(batch.messages[0]).trigger_type if is_follow_up else None,
        is_unjudged=True,
    )


def _called_for(batch: Batch, earlier: Iterable[Batch], cycle: Cycle) -> Plan | None:
    trigger = judge(batch, earlier, interrupted=cycle.is_interrupted).trigger
    return None if trigger is None else Plan(trigger)

"""The journal's values: plain, made of rows and safe to keep.

Times are aware UTC datetimes, ids of messages, batches, turns and timers are snowflakes, ids of
threads, agents and users are the caller's text. Values of a single part are in its module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.journal.rows import Record, read_settings


class TurnKind(StrEnum):
    REPLY = "reply"
    FOLLOW_UP = "follow_up"
    REMINDER = "reminder"
    CONTINUATION = "continuation"

    @property
    def speaks_first(self) -> bool:
        """Whether the agent writes first, not in reply to a message."""
        return self in (TurnKind.FOLLOW_UP, TurnKind.REMINDER)


class TimerKind(StrEnum):
    """The user's next message voids a follow-up; an event waits for a pause; a reminder stays."""

    FOLLOW_UP = "follow_up"
    EVENT = "event"
    REMINDER = "reminder"
    CONTINUATION = "continuation"

    @property
    def turn_kind(self) -> TurnKind:
        """The kind of the turn that it queues: an event becomes a follow-up."""
        return TurnKind.FOLLOW_UP if self is TimerKind.EVENT else TurnKind(self.value)


class TurnState(StrEnum):
    """The last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    VOID = "void"


class TimerState(StrEnum):
    """The first three are alive."""

    PENDING = "pending"
    POSTPONED = "postponed"
    CLAIMED = "claimed"
    FIRED = "fired"
    CANCELLED = "cancelled"
    SUPPRESSED = "suppressed"
    EXPIRED = "expired"
    MISSED = "missed"


# Why a follow-up was cancelled or voided.
WROTE: Final = "The user wrote."
SETTLED: Final = "An operator settled the batch."
ANSWERED: Final = "The user answered the agent's question."
DROPPED: Final = "The user did not want it."
# Why turns were stopped.
STOPPED: Final = "The user stopped it."
OVERTAKEN: Final = "The user wrote again, and the new message replaced it."
CUT_SHORT: Final = "The user wrote while the agent was speaking first."
HURRIED: Final = "The user wrote and waits for a reply, so it was sent with its stored text."
NOT_AWAITED: Final = "The agent that asked does not wait for it any more."


class EffectState(StrEnum):
    """Dead: failed for good, and kept for an operator."""

    PENDING = "pending"
    CLAIMED = "claimed"
    DONE = "done"
    DEAD = "dead"


# A page of messages ends when its stored bodies reach this size: a message may have 10 MB.
PAGE_BYTES: Final = 1_000_000
# A model's context ends before the batch that would exceed this size: providers refuse requests of
# 20 to 50 MB.
WINDOW_BYTES: Final = 20_000_000
# Characters of a message's text in a search result.
EXCERPT: Final = 300

# The first setting of a thread that is deleted once no turn of it is left to run.
TEMPORARY: Final = "temporary"
# A nested thread, in which an agent asks another, is named after the thread that it works for.
NESTING: Final = "/"
# Agents ask each other at most this deep.
MAX_DEPTH: Final = 3


def nested_id(thread_id: str, agent_id: str) -> str:
    return f"{thread_id}{NESTING}{agent_id}"


@dataclass(frozen=True, slots=True)
class ThreadPlace:
    """A place in a list of threads, even if its thread was deleted."""

    updated_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class Thread(Record):
    """One conversation; title, preview and count follow its visible messages."""

    id: str
    agent_id: str
    user_id: str
    title: str | None
    preview: str | None
    preview_role: str | None
    message_count: int
    epoch: int
    last_position: int
    settings: Mapping[str, Any] = field(metadata={"read": read_settings})
    created_at: datetime
    updated_at: datetime
    typing_at: datetime | None = None
    # The user has read everything up to here; `unread` counts the agent's messages after it.
    read_position: int = 0
    unread: int = 0
    # Of the last event or change that its user may see.
    changed_position: int = 0

    @property
    def place(self) -> ThreadPlace:
        return ThreadPlace(self.updated_at, self.id)


@dataclass(frozen=True, slots=True)
class LockedThread(Thread):
    """A thread that a step has locked, and the highest position among all threads of its user."""

    feed_position: int = 0


@dataclass(frozen=True, slots=True)
class Turn(Record):
    """The durable work item that processes one batch.

    `payload` is what it was queued with, such as a person's answer. `ending` is what listeners get
    of its end besides messages; `end_position` is its place among them.
    """

    id: int
    thread_id: str
    agent_id: str
    user_id: str
    batch: int
    kind: TurnKind
    state: TurnState
    epoch: int
    attempts: int
    queued_at: datetime
    available_at: datetime
    shown_at: datetime | None = None
    error: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    # Its worker must end it; until then `error` is the reason.
    cancel_requested: bool = False
    # It ended with a question, and waits for the answer.
    is_waiting: bool = False
    ending: Mapping[str, Any] | None = None
    end_position: int | None = None
    # Tries that failed by themselves.
    faults: int = 0
    # When the present try began, and how long the earlier ones took.
    begun_at: datetime | None = None
    worked: timedelta = timedelta(0)

    @property
    def is_live(self) -> bool:
        return self.state in (TurnState.QUEUED, TurnState.RUNNING)

    @property
    def interruptions(self) -> int:
        """Earlier tries that ended by a shutdown, a crash or an outage."""
        return max(self.attempts - 1 - self.faults, 0)


@dataclass(frozen=True, slots=True)
class TurnLease:
    """The right to work on a turn until a time; the `token` fences off earlier owners."""

    turn: Turn
    owner: str
    token: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Claimed:
    """Turns that were taken, and when the next one can be."""

    leases: list[TurnLease]
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A stored user message, the turn that answers it, and what it ended.

    `shown_turn` is a follow-up that the user is already reading, so it continues, and
    `reminder_turn` a running reminder that the user has not seen. `stopped_turns` are those whose
    cancellation an interrupting message requested.
    """

    message: BaseMessage
    turn: Turn
    is_new: bool
    cancelled_timers: tuple[int, ...] = ()
    voided_turns: tuple[int, ...] = ()
    shown_turn: int | None = None
    reminder_turn: int | None = None
    stopped_turns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StateValue(Record):
    """An encoded value of a channel of a graph's state: how it is encoded, and the channel's type
    as the graph declared it at that time.
    """

    form: str
    declared: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Ending:
    """What is recorded with a turn's end and its last messages.

    A follow-up of `timers` is armed only if the user has not written since the turn was queued.
    `says` is for listeners and gets a place among the messages. `is_waiting` leaves the batch open
    for a person's answer. `postponed_until` lets the timers of a withdrawn or failed turn wait
    again. `preferences` are merged into the user's settings. `state` has the new values of channels
    of the graph's state; None removes one. Only a turn that is done changes it.
    """

    effects: Sequence["NewEffect"] = ()
    timers: Sequence["NewTimer"] = ()
    decisions: Sequence["Decision"] = ()
    says: Mapping[str, Any] | None = None
    is_waiting: bool = False
    postponed_until: datetime | None = None
    preferences: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, StateValue | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveTurn:
    """A turn in the queue, or with the worker `owner`; `wake_at` is when it can be taken: the end
    of its lease, or the time of its next try.
    """

    turn: Turn
    owner: str | None
    wake_at: datetime


@dataclass(frozen=True, slots=True)
class Hint:
    """Something was written in a thread of a user; both are empty if it may be any thread."""

    thread_id: str = ""
    user_id: str = ""


@dataclass(frozen=True, slots=True)
class NewTimer:
    """A timer to arm. `missed` says what to do if it is found late: run, skip, or run_if_within.

    Only a follow-up that silence brings has no `key`; a thread has at most one of these.
    """

    thread_id: str
    due_at: datetime
    trigger_type: str | None = None
    reason: str | None = None
    kind: TimerKind = TimerKind.FOLLOW_UP
    batch: int | None = None
    expires_at: datetime | None = None
    missed: str = "run"
    payload: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Timer(Record):
    """A durable promise to consider a follow-up at a time.

    `turn_id` is the turn that it queued; a recurring reminder has the last one. `is_new` if the
    step that returns it armed it, and did not find an equal one.
    """

    id: int
    thread_id: str
    agent_id: str
    user_id: str
    kind: TimerKind
    state: TimerState
    trigger_type: str | None
    reason: str | None
    batch: int | None
    epoch: int
    due_at: datetime
    expires_at: datetime | None
    missed: str
    payload: Mapping[str, Any]
    state_reason: str | None
    created_at: datetime
    updated_at: datetime
    key: str | None = None
    turn_id: int | None = None
    is_new: bool = field(default=False, compare=False, metadata={"is_stored": False})

    @property
    def is_from_silence(self) -> bool:
        """Whether a decider planned it; others were requested."""
        return self.kind is TimerKind.FOLLOW_UP and self.key is None


@dataclass(frozen=True, slots=True)
class NextTime:
    """When a timer that just fired is due again, and its payload until then."""

    due_at: datetime
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TimerLease:
    """The right to decide about a due timer until a time."""

    timer: Timer
    owner: str
    token: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Page:
    """Visible messages, oldest first, and the cursors of the pages around them; None: no more."""

    messages: list[BaseMessage]
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """A visible message that a search found; `text` is an excerpt around the first match."""

    thread_id: str
    message_id: str
    position: int
    role: str
    batch_type: str
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Deleted:
    """The number of deleted rows by table."""

    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NewEffect:
    """Work to do outside after the commit. A `dedupe_key` used before is not queued again."""

    kind: str
    payload: Mapping[str, Any]
    dedupe_key: str
    # How long it waits after the commit.
    delay: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Decision(Record):
    """The recorded outcome of the decider or of the gates, with reasons."""

    id: int
    thread_id: str
    kind: str
    outcome: str
    reasons: tuple[str, ...]
    facts: Mapping[str, Any]
    timer_id: int | None
    turn_id: int | None
    decided_at: datetime


@dataclass(frozen=True, slots=True)
class Summary(Record):
    """The text that replaces archived batches in the context."""

    id: int
    thread_id: str
    text: str
    first_batch: int
    last_batch: int
    batches: tuple[int, ...]
    previous_id: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ApiKey(Record):
    """A key of the server's caller, stored as a digest of its secret.

    A key without a user is a program's: it acts for the user that each request names.
    """

    id: str
    name: str
    user_id: str | None
    is_operator: bool
    digest: bytes = field(repr=False)
    created_at: datetime
    revoked_at: datetime | None = None

"""What the journal hands out: plain values, made of rows and safe to keep.

Times are aware UTC datetimes, ids of messages, batches, turns and timers are snowflakes, ids of
threads, agents and users are the caller's text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.batch import Batch
from segue.core.compression import cut_at_sentence
from segue.journal.rows import Record, read_settings


class TurnKind(StrEnum):
    """Why a turn was queued; follow-ups are void once the user writes."""

    REPLY = "reply"
    FOLLOW_UP = "follow_up"
    CONTINUATION = "continuation"


class TurnState(StrEnum):
    """Where a turn is in its life; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    VOID = "void"


class TimerState(StrEnum):
    """Where a timer is in its life; the first three are alive."""

    PENDING = "pending"
    POSTPONED = "postponed"
    CLAIMED = "claimed"
    FIRED = "fired"
    CANCELLED = "cancelled"
    SUPPRESSED = "suppressed"
    EXPIRED = "expired"
    MISSED = "missed"


# Why follow-ups ended that were forestalled or taken back.
WROTE: Final = "The user wrote."
ANSWERED: Final = "The user answered the agent's question."
DROPPED: Final = "The user did not want it."
# A follow-up counts as seen once something of it was on the screen for this long.
SEEN_AFTER: Final = timedelta(seconds=1)
# Why turns were stopped.
STOPPED: Final = "The user stopped it."
OVERTAKEN: Final = "The user wrote again, and the new message took its place."
CUT_SHORT: Final = "The user wrote while the agent was speaking first."
NOT_AWAITED: Final = "The agent that asked does not wait for it any more."


class EffectState(StrEnum):
    """Where an effect is in the outbox; dead means: given up, kept for an operator."""

    PENDING = "pending"
    CLAIMED = "claimed"
    DONE = "done"
    DEAD = "dead"


# A page of messages ends with the message that brings its stored bodies to this size. A message may
# have 10 MB, so a number of messages alone would not limit what a page takes in memory.
PAGE_BYTES: Final = 1_000_000
# What is read for a model's context ends with the batch that brings it to this size. Providers
# refuse requests of 20 to 50 MB.
WINDOW_BYTES: Final = 20_000_000
# Characters of a message's text in a search result.
EXCERPT: Final = 300

# A thread in which agents ask each other is named after the one that they answer in.
NESTING: Final = "/"


def nested_id(thread_id: str, agent_id: str) -> str:
    """The thread on which an agent is asked something for another thread."""
    return f"{thread_id}{NESTING}{agent_id}"


@dataclass(frozen=True, slots=True)
class ThreadPlace:
    """A place in a list of threads, also of one that is not there any more."""

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
    # When the user was last seen typing.
    typing_at: datetime | None = None

    @property
    def place(self) -> ThreadPlace:
        """Where it stands in the list of its user's threads."""
        return ThreadPlace(self.updated_at, self.id)


@dataclass(frozen=True, slots=True)
class Turn(Record):
    """The durable work item that processes one batch.

    `payload` is what it was queued with, such as a person's answer. `ending` is what a listener
    has to know of how it ended, beyond its messages; it has a place among them, `end_position`.
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
    # Somebody asked for it to be stopped; whoever runs it, ends it. `error` says why meanwhile.
    cancel_requested: bool = False
    # It ended with a question, and waits for the answer.
    is_waiting: bool = False
    ending: Mapping[str, Any] | None = None
    end_position: int | None = None
    # How many tries its own run broke; when the present try began, and how long workers have had it
    # in those before.
    faults: int = 0
    begun_at: datetime | None = None
    worked: timedelta = timedelta(0)

    @property
    def is_live(self) -> bool:
        return self.state in (TurnState.QUEUED, TurnState.RUNNING)

    @property
    def interruptions(self) -> int:
        """How many earlier tries ended without a fault of the turn: by a shutdown, a crash, an
        outage.
        """
        return max(self.attempts - 1 - self.faults, 0)


@dataclass(frozen=True, slots=True)
class TurnLease:
    """The right to work on a turn until a time; `token` fences off everyone who had it before."""

    turn: Turn
    owner: str
    token: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Claimed:
    """Turns that were taken, and when the next one can be: in the past means at once."""

    leases: list[TurnLease]
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A user's message in the journal, the turn that answers it, and what it made void.

    `shown_turn` is a follow-up that the user has seen the beginning of: it goes on for now. One
    that was shown only a moment ago is void: nobody has read it yet. `stopped_turns` are those that
    an interrupting message marked as to be stopped.
    """

    message: BaseMessage
    turn: Turn
    is_new: bool
    cancelled_timers: tuple[int, ...] = ()
    voided_turns: tuple[int, ...] = ()
    shown_turn: int | None = None
    stopped_turns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a message comes in. The default is a user's message that waits for its turn.

    `collect` holds the turn back for a moment, so that what follows within it joins the batch.
    `only_if_idle` refuses it while an answer is being written. `interrupts` stops the answer that
    is being written; messages that only wait keep their turns. `parent_batch` and
    `source_agent_id` make it another agent's question. `payload` goes to the turn.
    """

    collect: timedelta | None = None
    only_if_idle: bool = False
    interrupts: bool = False
    parent_batch: int | None = None
    source_agent_id: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FollowUpCounts:
    """What a user got of follow-ups, of those that were sent or are on their way.

    `consecutive` since the user last wrote in the thread, `sent_today` of all agents since
    `day_began`, the latest of all at `last_at`. `leaving_out` is a turn that was not counted.
    """

    thread_id: str
    day_began: datetime
    consecutive: int
    sent_today: int
    last_at: datetime | None
    leaving_out: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """What is recorded of a turn's end, together with its last messages.

    `timers` are armed, a follow-up only if the user has not written since the turn was queued.
    `says` is for listeners and gets a place among the messages. `is_waiting` leaves the batch
    open for a person's answer.
    """

    effects: Sequence["NewEffect"] = ()
    timers: Sequence["NewTimer"] = ()
    decisions: Sequence["Decision"] = ()
    says: Mapping[str, Any] | None = None
    is_waiting: bool = False


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Something a listener sees: a visible message, or the end of a turn that says something.

    `size` is the number of bytes that a message has where it is stored.
    """

    position: int
    message: BaseMessage | None = None
    turn: Turn | None = None
    size: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Partial:
    """The text so far of a message that a running turn writes."""

    turn_id: int
    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class FeedPage:
    """What a thread's listeners have missed, in order, and the message being written.

    `running` is the turn at work after these events, with the token of its lease. `is_cut` if more
    events are stored after these.
    """

    events: list[StoredEvent]
    partial: Partial | None
    running: tuple[int, int] | None = None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class NewTimer:
    """A timer to arm. `missed` says what to do if it is found late: run, skip, or run_if_within."""

    thread_id: str
    due_at: datetime
    trigger_type: str | None = None
    reason: str | None = None
    kind: TurnKind = TurnKind.FOLLOW_UP
    batch: int | None = None
    expires_at: datetime | None = None
    missed: str = "run"
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timer(Record):
    """A durable promise to consider a follow-up at a time."""

    id: int
    thread_id: str
    agent_id: str
    user_id: str
    kind: TurnKind
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


@dataclass(frozen=True, slots=True)
class TimerLease:
    """The right to decide about a due timer until a time."""

    timer: Timer
    owner: str
    token: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Page:
    """Visible messages, oldest first, and the cursors of the pages around them.

    A cursor is None where there is nothing more; ask for what comes later with the position of
    the last message.
    """

    messages: list[BaseMessage]
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """One visible message that a search found. `text` is an excerpt around the first match, of at
    most `EXCERPT` characters and two ellipses; pictures and files are not part of it.
    """

    thread_id: str
    message_id: str
    position: int
    role: str
    batch_type: str
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a deletion took with it, by table."""

    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NewEffect:
    """Something to do outside after the commit. A `dedupe_key` used before is not queued again."""

    kind: str
    payload: Mapping[str, Any]
    dedupe_key: str


@dataclass(frozen=True, slots=True)
class Effect(Record):
    """An effect in the outbox."""

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
    # What the outside answered; the evidence that it was done.
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class EffectLease:
    """The right to carry out an effect until a time."""

    effect: Effect
    owner: str
    token: int
    until: datetime
    # Whose thread it comes from.
    agent_id: str


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
    """The words that stand for archived batches, with the batches they cover."""

    id: int
    thread_id: str
    text: str
    first_batch: int
    last_batch: int
    batches: tuple[int, ...]
    previous_id: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Window:
    """What a model is told of a thread: its newest batches, newest first, and the summary of
    those before them.
    """

    batches: list[Batch]
    summary: Summary | None

    def told(self, max_tokens: int) -> str | None:
        """The summary's words for a model of that window, of which they take a third at most.

        One that was made for a larger window would leave no room for the conversation.
        """
        if self.summary is None:
            return None
        return cut_at_sentence(self.summary.text, max_tokens // 3)


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A fact to keep. The embedding, if there is one, names the model that made it."""

    agent_id: str
    user_id: str
    key: str
    content: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    embedding: Sequence[float] | None = None
    embedding_model: str | None = None


@dataclass(frozen=True, slots=True)
class MemorySearch:
    """What to look for in one namespace. `text_weight` is the share of words against meaning.

    A memory that shares no word with the text is found if its similarity reaches `threshold`.
    """

    agent_id: str
    user_id: str
    text: str
    embedding: Sequence[float] | None = None
    embedding_model: str | None = None
    limit: int = 10
    text_weight: float = 0.5
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Memory(Record):
    """A long-term fact about a user, in the namespace of one agent and one user."""

    id: int
    agent_id: str
    user_id: str
    key: str
    content: str
    metadata: Mapping[str, Any]
    embedding_model: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """A memory as it is stored, and how many its namespace holds now.

    `added` is false where it took the place of one that said the same.
    """

    memory: Memory
    added: bool
    count: int


@dataclass(frozen=True, slots=True)
class FoundMemory:
    """A memory that fits a query, and how well, from 0 to 1: `segue.core.memory.relevances`.

    `text_score` is BM25 and `vector_score` the cosine similarity, of which the rank is made.
    """

    memory: Memory
    score: float
    text_score: float | None
    vector_score: float | None


@dataclass(frozen=True, slots=True)
class ApiKey(Record):
    """A key of the server's caller. Of its secret only a digest is kept.

    Without a user it speaks for whichever user a request names: the key of a program that serves
    many people.
    """

    id: str
    name: str
    user_id: str | None
    is_operator: bool
    digest: bytes = field(repr=False)
    created_at: datetime
    revoked_at: datetime | None = None

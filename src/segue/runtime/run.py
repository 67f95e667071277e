"""`Run`: the batch that an agent answers, and its history; the events that it answers with, and
`TurnOutput`, which collects them.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, Self

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue.core.autonomy.local_time import LocalClock
from segue.core.autonomy.policy import Preferences
from segue.core.batch import Batch, group_batches
from segue.core.context import Context
from segue.core.messages import user_message, visible_messages
from segue.core.metadata import BatchType, MessageMetadata, is_synthetic
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.speech.sentences import is_quote
from segue.core.stamp import stamp
from segue.core.triggers import TriggerType
from segue.core.window import has_exchange
from segue.errors import UsageError
from segue.events import MemoriesRecalled, ProgressReported, ToolActivity
from segue.journal.journal import Journal
from segue.journal.records import StateValue, Turn, TurnLease
from segue.journal.summaries import Window
from segue.settings.agents import Autonomy
from segue.telemetry import log_event

logger = logging.getLogger(__name__)

# Key of `Run.notes`: which text memories were searched with, and whether the search failed.
SEARCHED: Final = "memory_search"
# Key of `Run.notes`: the memories that were found.
RECALLED: Final = "recalled"
_SHORTENED: Final = "shortened"


@dataclass(frozen=True, slots=True)
class Run:
    """The batch to answer, and the batches before it.

    `history` may be given in any order and may hold the batch itself; it is kept newest first.
    `answer` is the user's answer to the questions `asked`, by id; None if the ids are not known.
    """

    thread_id: str
    agent_id: str
    user_id: str
    batch: Batch
    history: Sequence[Batch] = ()
    summary: str | None = None
    # The user's clock when the run began: the same for all its model calls, so that caches hit.
    clock: LocalClock | None = None
    answer: Any = None
    asked: Sequence[str] | None = None
    # It is the first attempt, so there is no checkpoint to look for.
    is_new: bool = False
    # Orders the tries of a batch: a later try has a higher value.
    attempt: tuple[int, ...] = ()
    # The encoded state of the agent's own graph, by channel, as the last turn left it.
    state: Mapping[str, StateValue] = field(default_factory=dict)
    # Values that this run keeps from one model call to the next.
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for batch in (self.batch, *self.history):
            if not isinstance(batch, Batch):
                raise UsageError(f"A run is made of batches, not of {type(batch).__name__}.")
        earlier = [batch for batch in self.history if batch.id != self.batch.id]
        object.__setattr__(self, "history", sorted(earlier, key=lambda b: b.id, reverse=True))

    @classmethod
    def of(
        cls,
        message: str | HumanMessage,
        ids: SnowflakeSource,
        *,
        agent_id: str,
        user_id: str = "user",
        thread_id: str = "thread",
        history: Sequence[Batch] = (),
        clock: LocalClock | None = None,
    ) -> Self:
        """A run without a journal: a text becomes a user's message, a message is taken as it is."""
        asked = user_message(message) if isinstance(message, str) else message
        [batch] = group_batches(stamp([asked], ids))
        return cls(thread_id, agent_id, user_id, batch, history, clock=clock, is_new=True)

    @property
    def batches(self) -> list[Batch]:
        """The batch and its history, newest first."""
        return [self.batch, *self.history]

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages of all batches, oldest first."""
        return [message for batch in reversed(self.batches) for message in batch.messages]

    @property
    def memories(self) -> tuple[str, ...]:
        return tuple(self.notes.get(RECALLED, ()))

    @property
    def trigger(self) -> TriggerType | str | None:
        """Why the agent speaks first; None for a reply or a continuation."""
        for message in reversed(self.batch.messages):
            if isinstance(message, HumanMessage) and is_synthetic(message):
                return MessageMetadata.of(message).trigger_type
        return None

    def quotes_trigger(self, text: str) -> bool:
        """Whether a text repeats a trigger that users must not see."""
        asked = [message for message in self.messages if isinstance(message, HumanMessage)]
        hidden = [message.text for message in asked if is_synthetic(message)]
        return is_quote(text, hidden, [m.text for m in asked if not is_synthetic(m)])


@dataclass(frozen=True, slots=True)
class Token:
    """The next text of a message that is being written."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class MessageFinished:
    """A whole message of the batch, to be stored before the next event is read."""

    message: BaseMessage


@dataclass(frozen=True, slots=True)
class Question:
    """The graph waits with an interrupt; a run with `answer` resumes it."""

    id: str
    value: Any


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The state of the graph at the end of the run: what is stored with the end of the turn."""

    changes: Mapping[str, StateValue | None]


AgentEvent = Token | MessageFinished | Question | StateChanged | MemoriesRecalled | ProgressReported


@dataclass
class TurnOutput:
    """The output of a running turn: stored messages, and those still to be stored."""

    lease: TurnLease
    run: Run
    is_shown: bool
    # When the draft of the message that is being written is saved next, by the event loop's time.
    save_at: float = 0
    stored: list[BaseMessage] = field(default_factory=list)
    # The newest message, held back while it may be the reply: that is stored with the turn's end.
    held_reply: list[BaseMessage] = field(default_factory=list)
    questions: dict[str, Any] = field(default_factory=dict)
    # Channels of the graph's state that are stored with the end of the turn.
    state: Mapping[str, StateValue | None] = field(default_factory=dict)
    first_token_at: datetime | None = None
    # The text that is being written, held back until the guard has read the opening of a follow-up.
    opening: list[Token] = field(default_factory=list)
    # Reports of the agent that listeners get once a follow-up is shown.
    reports: list[MemoriesRecalled | ProgressReported | ToolActivity] = field(default_factory=list)

    @property
    def turn(self) -> Turn:
        return self.lease.turn

    @cached_property
    def batch(self) -> Batch:
        """The whole batch; to be read once nothing is added any more."""
        return self.run.batch.with_messages([*self.stored, *self.held_reply])


def visible_replies(turn: Turn, batch: Batch) -> list[AIMessage]:
    """The agent's messages of a turn that the user sees, including those of earlier tries."""
    seen = (m for m in visible_messages(batch.messages) if isinstance(m, AIMessage))
    # Positions after the turn's id belong to the turn; its last message has no position yet.
    return [m for m in seen if (MessageMetadata.of(m).position or turn.id) >= turn.id]


def trigger_name(message: BaseMessage | None) -> str | None:
    """A synthetic message's name in a log; None for a user's message."""
    if message is None or not is_synthetic(message):
        return None
    return str(message.additional_kwargs.get("trigger_type") or "continuation")


def log_if_empty(messages: Sequence[BaseMessage], summary: str | None, **where: str) -> None:
    """Log an ERROR for a trigger in a thread without a user's message: a misconfigured timer.

    Not if a request let the agent open the conversation.
    """
    humans = [message for message in messages if isinstance(message, HumanMessage)]
    if not humans or not all(map(is_synthetic, humans)) or (summary and summary.strip()):
        return
    if any(message.additional_kwargs.get("initiative") for message in humans):
        return
    log_event(
        logger,
        "empty_thread",
        "Autonomous message triggered on an empty thread: a misconfiguration, memory retrieval "
        "is skipped: thread {thread_id} of agent {agent_id}, {trigger_type}, with {count} messages",
        logging.ERROR,
        **{"trigger_type": trigger_name(humans[-1]), **where},
        message_id=humans[-1].id,
        count=len(messages),
    )


def log_shortened(run: Run, context: Context) -> None:
    """Log, once per run, that the last exchange is cut."""
    if not context.shortened or _SHORTENED in run.notes:
        return
    run.notes[_SHORTENED] = True
    log_event(
        logger,
        "context_shortened",
        "The last exchange of thread {thread_id} does not fit; the model gets it in part",
        thread_id=run.thread_id,
        agent_id=run.agent_id,
        batch=run.batch.id,
        shortened=[to_text(each.batch) for each in context.shortened],
        tokens=context.tokens,
    )


# A message larger than the window hides the exchange before it: read a window 4 times as large.
_GROWTH: Final = 4
_READS: Final = 4


async def read_window(
    journal: Journal, thread_id: str, *, max_tokens: int, current_batch: int | None = None
) -> Window:
    """The journal's window of this size; a larger one if the last exchange is not in it."""
    for _ in range(_READS):
        window = await journal.messages.window(
            thread_id, max_tokens=max_tokens, current_batch=current_batch
        )
        earlier = [batch for batch in window.batches if batch.id != current_batch]
        if has_exchange(earlier) or sum(b.tokens for b in window.batches) < max_tokens:
            break
        max_tokens *= _GROWTH
    return window


def clock_of(
    window: Window, autonomy: Autonomy, now: datetime, zone: str, batch: Batch | None = None
) -> LocalClock:
    """The user's clock in a thread; `zone` is that of users who have not set theirs.

    With a follow-up's batch it also says how long the thread was silent. An agent that another one
    asks does not write to the user.
    """
    preferences = Preferences.of(window.user_settings, window.thread_settings, zone)
    kind = None if batch is None else batch.type
    may_write = autonomy.is_on and not (preferences.opted_out or preferences.muted)
    silent_for = None
    if batch is not None and kind is BatchType.SYSTEM_TRIGGER:
        seen = [m for b in window.batches if b.id != batch.id for m in visible_messages(b.messages)]
        times = [at for m in seen if (at := MessageMetadata.of(m).created_at)]
        silent_for = max(now - max(times), timedelta()) if times else None
    return LocalClock(
        now,
        preferences.time_zone or zone,
        may_write_first=may_write and kind is not BatchType.AGENT_TO_AGENT,
        silent_for=silent_for,
    )

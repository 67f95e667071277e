"""One run of an agent: what it is asked, and what it says while it works.

A run answers one batch. The runtime makes a `Run` from the journal and stores what comes out;
tools and middleware find it with `current_run`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config

from segue.core.batch import Batch, group_batches
from segue.core.context import Context
from segue.core.errors import UsageError
from segue.core.messages import user_message
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.query import QuerySource
from segue.core.quoting import is_quote
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.stamp import stamp
from segue.core.triggers import TriggerType
from segue.noting import note

logger = logging.getLogger(__name__)

# LangGraph keeps what begins with underscores out of its checkpoints.
RUN_KEY: Final = "__segue_run"
NOTEBOOK_KEY: Final = "__segue_notebook"
# Where a run notes whose words it searched memories with, and whether the search failed.
SEARCHED: Final = "memory_search"
# Where it notes what it found.
RECALLED: Final = "recalled"
_SHORTENED: Final = "shortened"


@dataclass(frozen=True, slots=True)
class Run:
    """The batch to answer, and what came before it.

    `history` may come in any order and with the batch itself in it, as a journal's tail does; it
    is kept newest first. `answer` is what a person said to the question that the batch waits with.
    """

    thread_id: str
    agent_id: str
    user_id: str
    batch: Batch
    # As many as may be told.
    history: Sequence[Batch] = ()
    summary: str | None = None
    answer: Any = None
    # The ids of the questions that it is for; None where nobody knows them.
    asked: Sequence[str] | None = None
    # Nothing of it ran before, so there is no checkpoint to look for.
    is_new: bool = False
    # Of those that work on the batch one after the other; later ones come later in order.
    attempt: tuple[int, ...] = ()
    # What this run found out once and uses again at its next model call.
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
    ) -> Self:
        """A run without a journal. Text becomes a user's message; a message, such as a synthetic
        one, is taken as it is and gets its place in a new batch.
        """
        asked = user_message(message) if isinstance(message, str) else message
        [batch] = group_batches(stamp([asked], ids))
        return cls(thread_id, agent_id, user_id, batch, history, is_new=True)

    @property
    def batches(self) -> list[Batch]:
        """All of it, newest first."""
        return [self.batch, *self.history]

    @property
    def messages(self) -> list[BaseMessage]:
        """All of it, oldest first."""
        return [message for batch in reversed(self.batches) for message in batch.messages]

    @property
    def memories(self) -> tuple[str, ...]:
        """What the agent remembers of the user that has to do with this run, the best first."""
        return tuple(self.notes.get(RECALLED, ()))

    @property
    def trigger(self) -> TriggerType | None:
        """Why the agent speaks first; None if it answers a person or goes on."""
        for message in reversed(self.batch.messages):
            if isinstance(message, HumanMessage) and is_synthetic(message):
                return MessageMetadata.of(message).trigger_type
        return None

    def quotes_trigger(self, text: str) -> bool:
        """Whether a text that is to leave the run repeats words that only the agent was told."""
        asked = [message for message in self.messages if isinstance(message, HumanMessage)]
        hidden = [message.text for message in asked if is_synthetic(message)]
        return is_quote(text, hidden, [m.text for m in asked if not is_synthetic(m)])


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a message that is being written."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A finished message of the batch, to be stored before the next one is asked for."""

    message: BaseMessage


@dataclass(frozen=True, slots=True)
class Question:
    """The graph waits for a person: an interrupt, to be answered by a run with `answer`."""

    id: str
    value: Any


@dataclass(frozen=True, slots=True)
class Recalled:
    """Memories that were told to the model, by key, and whose words found them."""

    keys: tuple[str, ...]
    source: QuerySource


@dataclass(frozen=True, slots=True)
class Progress:
    """Whatever a node or tool of the graph reports about its work."""

    value: Any


AgentEvent = Token | NewMessage | Question | Recalled | Progress


def current_run(config: RunnableConfig | None = None) -> Run | None:
    """The run that a node, tool or middleware works for; None outside of Segue."""
    try:
        found = (config or get_config()).get("configurable", {}).get(RUN_KEY)
    except RuntimeError:  # not inside of a graph
        return None
    return found if isinstance(found, Run) else None


def trigger_name(message: BaseMessage | None) -> str | None:
    """What to call a synthetic message in a log; None for a person's."""
    if message is None or not is_synthetic(message):
        return None
    return str(message.additional_kwargs.get("trigger_type") or "continuation")


def note_if_empty(messages: Sequence[BaseMessage], summary: str | None, **where: str) -> None:
    """Log an ERROR if a trigger speaks where no person ever did: something armed a wrong timer."""
    humans = [message for message in messages if isinstance(message, HumanMessage)]
    if not humans or not all(map(is_synthetic, humans)) or (summary and summary.strip()):
        return
    note(
        logger,
        "empty_thread",
        "Autonomous message triggered on an empty thread: a misconfiguration, memory retrieval "
        "is skipped: thread {thread_id} of agent {agent_id}, {trigger_type}, with {count} messages",
        logging.ERROR,
        **{"trigger_type": trigger_name(humans[-1]), **where},
        message_id=humans[-1].id,
        count=len(messages),
    )


def note_shortened(run: Run, context: Context) -> None:
    """Log, once in a run, that the model gets the last exchange in part."""
    if not context.shortened or _SHORTENED in run.notes:
        return
    run.notes[_SHORTENED] = True
    note(
        logger,
        "context_shortened",
        "The last exchange of thread {thread_id} does not fit; the model gets it in part",
        thread_id=run.thread_id,
        agent_id=run.agent_id,
        batch=run.batch.id,
        shortened=[to_text(each.batch) for each in context.shortened],
        tokens=context.tokens,
    )

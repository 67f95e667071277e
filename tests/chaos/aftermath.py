"""The aftermath: all that a storm has left, in one value that rules can look at."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from segue.core.batch import Batch, group_batches
from segue.core.calls import calls_of
from segue.core.messages import visible_messages
from segue.core.metadata import MessageMetadata
from segue.journal.records import Decision, Thread, Timer, Turn, TurnState
from tests.chaos.driver import Spoken
from tests.chaos.ledger import Life, ToolRun


@dataclass(frozen=True)
class Aftermath:
    """All that is left, read once and then only looked at."""

    now: datetime
    threads: list[Thread]
    # With the moment that was noted when they were stored, in the order of their positions.
    messages: list[tuple[str, datetime, BaseMessage]]
    turns: list[Turn]
    timers: list[Timer]
    decisions: list[Decision]
    # What a person is shown, by thread.
    history: Mapping[str, list[BaseMessage]]
    spoken: Spoken = field(default_factory=Spoken)
    tools: list[ToolRun] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)

    @cached_property
    def batches(self) -> dict[int, Batch]:
        return {batch.id: batch for batch in group_batches(m for _, _, m in self.messages)}

    @cached_property
    def turns_of(self) -> Mapping[int, list[Turn]]:
        """The turns of each batch, oldest first."""
        found: dict[int, list[Turn]] = defaultdict(list)
        for turn in sorted(self.turns, key=lambda turn: turn.id):
            found[turn.batch].append(turn)
        return found

    @cached_property
    def in_thread(self) -> Mapping[str, list[Batch]]:
        """The batches of each thread, oldest first."""
        threads = {self._batch_id(m): thread_id for thread_id, _, m in self.messages}
        found: dict[str, list[Batch]] = defaultdict(list)
        for batch in sorted(self.batches.values(), key=lambda batch: batch.id):
            found[threads[batch.id]].append(batch)
        return found

    @cached_property
    def results(self) -> Mapping[str, list[datetime]]:
        """When results were stored, by call id."""
        found: dict[str, list[datetime]] = defaultdict(list)
        for _, stored_at, message in self.messages:
            if isinstance(message, ToolMessage):
                found[message.tool_call_id].append(stored_at)
        return found

    @cached_property
    def calls(self) -> Mapping[str, tuple[int, str]]:
        """The batch of each call, and the tool's name."""
        return {
            call.id: (batch.id, call.name)
            for batch in self.batches.values()
            for message in batch.messages
            for call in calls_of(message)
        }

    def is_void(self, batch: Batch) -> bool:
        return any(turn.state is TurnState.VOID for turn in self.turns_of[batch.id])

    @staticmethod
    def _batch_id(message: BaseMessage) -> int | None:
        return MessageMetadata.of(message).batch


def is_cancelled(turn: Turn) -> bool:
    return turn.ending is not None and turn.ending.get("kind") == "cancelled"


def is_final(message: BaseMessage) -> bool:
    """A reply that a person sees and after which nothing is called."""
    if not isinstance(message, AIMessage) or calls_of(message):
        return False
    return bool(visible_messages([message]))


def segments_of(batch: Batch) -> list[list[BaseMessage]]:
    """What was said to each human message of a batch, with it."""
    segments: list[list[BaseMessage]] = []
    for message in batch.messages:
        if isinstance(message, HumanMessage) or not segments:
            segments.append([])
        segments[-1].append(message)
    return segments

"""Batches: the messages of one processing cycle, read from the messages themselves.

There is no batch table. `group_batches` rebuilds batches from metadata in any order of input,
and a batch's state is a pure function of its messages, with reasons in plain text. `settle` closes
an abandoned batch so that it is complete and valid; `segue.core.stamp` gives messages their batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    FunctionMessage,
    ToolMessage,
)

from segue.core.calls import Pairing, has_content, pair
from segue.core.metadata import BatchType, MessageMetadata, check_messages, is_synthetic
from segue.core.snowflake import (
    SnowflakeSource,
    check_snowflake,
    millis_of,
    next_snowflake,
    node_of,
    time_of,
    to_text,
)
from segue.core.tokens import estimate_tokens
from segue.errors import MetadataError, UsageError

BATCH_TIMEOUT: Final = timedelta(minutes=10)


class BatchState(StrEnum):
    OPEN = "open"
    AWAITING_TOOLS = "awaiting_tools"
    AWAITING_CONTINUATION = "awaiting_continuation"
    COMPLETE = "complete"


@dataclass(frozen=True)
class Batch:
    """One batch, its messages in the order of their sequence numbers."""

    id: int
    messages: list[BaseMessage]

    def __post_init__(self) -> None:
        check_snowflake(self.id, "batch id")
        if not self.messages:
            raise UsageError(f"Batch {self.id} has no messages; a batch is made of at least one.")

    @property
    def type(self) -> BatchType:
        """The type of its first message; a continuation does not change it."""
        return self._metadata[0].batch_type or BatchType.USER_REQUEST

    @property
    def parent(self) -> int | None:
        return self._metadata[0].parent_batch

    @property
    def state(self) -> BatchState:
        return self._state_and_reasons[0]

    @property
    def reasons(self) -> list[str]:
        """Why the batch is in its state, one sentence each; empty if it is complete."""
        return list(self._state_and_reasons[1])

    @property
    def is_complete(self) -> bool:
        return self.state is BatchState.COMPLETE

    @cached_property
    def is_whole(self) -> bool:
        """Whether other turns may read it: complete, or with a reply and only waiting for its
        continuation.
        """
        is_waiting = self.state is BatchState.AWAITING_CONTINUATION
        return self.is_complete or (is_waiting and not (self._missing_head or self._missing_reply))

    @property
    def started_at(self) -> datetime:
        first = (m.created_at for m in self._metadata if m.position == self.id)
        return next(first, None) or time_of(self.id)

    @property
    def last_activity_at(self) -> datetime:
        return max(m.created_at or self.started_at for m in self._metadata)

    @property
    def last_position(self) -> int:
        return max(m.position or self.id for m in self._metadata)

    @property
    def next_sequence_num(self) -> int:
        return max(m.sequence_num or 0 for m in self._metadata) + 1

    def with_messages(
        self, messages: Iterable[BaseMessage], metadata: Iterable[MessageMetadata] | None = None
    ) -> "Batch":
        """The batch with messages at its end; known metadata is not read again."""
        more = list(messages)
        known = map(MessageMetadata.of, more) if metadata is None else metadata
        longer = Batch(self.id, [*self.messages, *more])
        # The place in which `cached_property` looks.
        longer.__dict__["_metadata"] = [*self._metadata, *known]
        return longer

    def is_expired(self, now: datetime, timeout: timedelta = BATCH_TIMEOUT) -> bool:
        """Whether the batch is unfinished and has had no message for `timeout`."""
        millis_of(now)  # raises if it has no time zone
        return not self.is_complete and now - self.last_activity_at > timeout

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """Values that readers derived from the batch, by their type; a batch never changes."""
        return {}

    @cached_property
    def tokens(self) -> int:
        return sum(map(estimate_tokens, self.messages))

    @cached_property
    def pairing(self) -> Pairing:
        return pair(self.messages)

    @cached_property
    def arranged(self) -> list[BaseMessage]:
        """The messages in the order a model needs: each call followed by its results.

        Results are in the order of the calls, whatever order they came in. Left out are duplicate
        and orphan results, empty messages, and a settling reply that a real one followed.
        """
        results: dict[int, list[ToolMessage]] = {}
        for exchange in self.pairing.exchanges:
            own = results.setdefault(id(exchange.message), [])
            if exchange.result is not None:
                own.append(exchange.result)
        arranged: list[BaseMessage] = []
        for message in self.messages:
            if id(message) in results:
                arranged += [message, *results[id(message)]]
            elif not isinstance(message, ToolMessage | FunctionMessage) and has_content(message):
                arranged.append(message)
        replies = [n for n, m in enumerate(arranged) if isinstance(m, AIMessage)]
        outdated = {n for n in replies[:-1] if is_synthetic(arranged[n])}
        return [m for n, m in enumerate(arranged) if n not in outdated] if outdated else arranged

    @cached_property
    def _metadata(self) -> list[MessageMetadata]:
        return [MessageMetadata.of(message) for message in self.messages]

    @cached_property
    def _state_and_reasons(self) -> tuple[BatchState, list[str]]:
        if unanswered := self.pairing.unanswered:
            return BatchState.AWAITING_TOOLS, [
                f"Call {e.call.id!r} to {e.call.name!r} has no result." for e in unanswered
            ]
        if self._continuation_pending:
            return BatchState.AWAITING_CONTINUATION, ["A requested continuation has not started."]
        if reason := self._missing_head or self._missing_reply:
            return BatchState.OPEN, [reason]
        return BatchState.COMPLETE, []

    @property
    def _continuation_pending(self) -> bool:
        """Whether a requested continuation is still pending; settling also ends the wait.

        Duplicate and orphan results request nothing.
        """
        counted = {id(exchange.result) for exchange in self.pairing.exchanges}
        for message, metadata in zip(
            reversed(self.messages), reversed(self._metadata), strict=True
        ):
            if metadata.settled or metadata.batch_type is BatchType.CONTINUATION:
                return False
            if metadata.continue_requested and id(message) in counted:
                return True
        return False

    @property
    def _missing_head(self) -> str | None:
        """A batch whose beginning is missing, such as after a row limit, is open until it is
        settled.
        """
        if any(m.sequence_num == 0 or m.settled for m in self._metadata):
            return None
        return "The first message is missing."

    @property
    def _missing_reply(self) -> str | None:
        last = self.arranged[-1] if self.arranged else self.messages[-1]
        if isinstance(last, ToolMessage):
            return "The results are in, but no reply followed."
        if not isinstance(last, AIMessage):
            whose = "a trigger" if is_synthetic(last) else f"a {last.type} message"
            return f"The last message is {whose}; no reply followed."
        if isinstance(last, AIMessageChunk) and last.chunk_position != "last":
            return "The reply is still streaming."
        if not has_content(last):
            return "The reply is empty."
        return None


def group_batches(messages: Iterable[BaseMessage]) -> list[Batch]:
    """The batches of stamped messages, oldest first, whatever order the messages come in.

    A message given twice counts once. `MetadataError` for a message without a batch, and for two
    different messages at one position, since dropping one would lose it.
    """
    members: dict[int, dict[int, tuple[int, BaseMessage]]] = {}
    for message in check_messages(messages):
        metadata = MessageMetadata.of(message)
        if metadata.batch is None or metadata.position is None or metadata.sequence_num is None:
            raise MetadataError(
                f"Message {message.id!r} ({message.type}) has no batch; "
                "give it one with stamp(), or assign_batches() for an old conversation."
            )
        batch = members.setdefault(metadata.batch, {})
        _, known = batch.setdefault(metadata.position, (metadata.sequence_num, message))
        if not _same(known, message):
            raise MetadataError(
                f"Messages {known.id!r} and {message.id!r} both claim position "
                f"{metadata.position} in batch {metadata.batch}; a position is one message's."
            )
    return [Batch(batch_id, _in_sequence(members[batch_id])) for batch_id in sorted(members)]


def _in_sequence(members: dict[int, tuple[int, BaseMessage]]) -> list[BaseMessage]:
    """By sequence number; if a number repeats, by position, which never does."""
    numbers = {sequence_num for sequence_num, _ in members.values()}
    by_position = len(numbers) < len(members)
    order = sorted(members, key=lambda p: (0 if by_position else members[p][0], p))
    return [members[position][1] for position in order]


def _same(one: BaseMessage, other: BaseMessage) -> bool:
    # NaN in a tool's arguments is unequal to itself, but serialises to the same text.
    return one is other or one == other or one.model_dump_json() == other.model_dump_json()


INTERRUPTED_RESULT: Final = (
    "Interrupted: this call did not finish, and it is not known whether it took effect."
)
CUT_OFF_REPLY: Final = "My reply was cut off here before I could finish it."
# Closes a batch that has a reply, but whose continuation was cancelled.
NOT_CONTINUED: Final = "I meant to continue this later, but that was cancelled."


def settle(batch: Batch, generator: SnowflakeSource | None = None) -> Batch:
    """The complete batch: itself if it is complete, else with closing messages appended.

    It only appends, so a journal stores `settled.messages[len(batch.messages):]`. Without a
    generator the new positions follow the batch's own, which is right for a view but may collide
    with another batch's; pass a generator for messages to store. Settling twice changes nothing.
    """
    if batch.is_complete:
        return batch
    last = AIMessage(NOT_CONTINUED if batch.is_whole else CUT_OFF_REPLY)
    closing = [*interrupted_results(batch), last]
    return _extended(batch, closing, generator)


def with_open_calls_answered(batch: Batch) -> Batch:
    """The batch with its open calls answered, so that a model can continue it."""
    results = interrupted_results(batch)
    return _extended(batch, results, None) if results else batch


def interrupted_results(batch: Batch) -> list[BaseMessage]:
    return [
        ToolMessage(
            INTERRUPTED_RESULT,
            tool_call_id=exchange.call.id,
            name=exchange.call.name or None,
            status="error",
        )
        for exchange in batch.pairing.unanswered
    ]


def _extended(
    batch: Batch, messages: list[BaseMessage], generator: SnowflakeSource | None
) -> Batch:
    position = batch.last_position
    template = MessageMetadata(
        synthetic=True,
        settled=True,
        batch=batch.id,
        batch_type=batch.type,
        parent_batch=batch.parent,
    )
    added: list[BaseMessage] = []
    known: list[MessageMetadata] = []
    for sequence_num, message in enumerate(messages, batch.next_sequence_num):
        if generator is None:
            position = next_snowflake(position, 0, node_of(position))
        else:
            position = generator.next(after=position)
        metadata = template.with_fields(position=position, sequence_num=sequence_num)
        known.append(metadata)
        added.append(metadata.onto(message, id=to_text(position)))
    return batch.with_messages(added, known)

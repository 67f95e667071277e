"""Places in a thread, for both databases: ids that rise, and messages that get a new place."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.errors import ConflictError, MetadataError, UsageError
from segue.core.metadata import BatchType, MessageMetadata, check_messages
from segue.core.snowflake import MAX_ID, SnowflakeSource, latest_id, time_of, to_text
from segue.core.stamp import stamp
from segue.journal.inputs import CLOCK_SKEW
from segue.journal.records import Arrival, Thread, TurnKind
from segue.journal.rows import aware

# Half of all there are: decades from now.
_LATEST_IMPORT: Final = MAX_ID // 2


class RisingIds:
    """Ids of one thread: each above all that the thread has, whatever this process's clock says."""

    def __init__(self, ids: SnowflakeSource, last: int, now: datetime) -> None:
        self._ids = ids
        self.last = last
        self.now = now

    @property
    def node(self) -> int:
        return self._ids.node

    def next(self, after: int = 0) -> int:
        self.last = self._ids.next(after=max(after, self.last))
        return self.last


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn to queue, to be taken at once or not before a time."""

    batch: int
    kind: TurnKind
    payload: Mapping[str, Any] = field(default_factory=dict)
    available_at: datetime | None = None


def ids_above(thread: Thread, ids: SnowflakeSource, now: datetime) -> RisingIds:
    """The ids of one step. The thread is locked, so nobody else takes any before the commit."""
    return RisingIds(ids, thread.last_position, now)


def stamp_now(
    messages: Iterable[BaseMessage], ids: RisingIds, *place: Any, **more: Any
) -> list[BaseMessage]:
    """Messages with their places, as `stamp` gives them, and with the time where theirs is wrong.

    Above the ids of a clock that was ahead, a position says a later time than now.
    """
    return [_dated(message, ids.now) for message in stamp(messages, ids, *place, **more)]


def _dated(message: BaseMessage, now: datetime) -> BaseMessage:
    if time_of(place_of(message)) <= aware(now) + CLOCK_SKEW:
        return message
    stored_at = aware(now).isoformat()
    return replace(MessageMetadata.of(message), stored_at=stored_at).onto(message)


def without_place(message: BaseMessage, batch: int) -> BaseMessage:
    """A message that got a place in this batch outside, as from `settle`, ready for a new one.

    Only the store knows which positions and sequence numbers are free.
    """
    metadata = MessageMetadata.of(message)
    if metadata.position is None or metadata.batch != batch:
        return message
    return replace(metadata, position=None, sequence_num=None).onto(message)


def stamp_arrival(message: BaseMessage, arrival: Arrival, ids: RisingIds) -> BaseMessage:
    """A message that begins a batch: a user's, or another agent's question."""
    [stamped] = stamp_now(
        [with_sender(message, arrival)],
        ids,
        batch_type=_type_of(arrival),
        parent_batch=arrival.parent_batch,
    )
    return stamped


def with_sender(message: BaseMessage, arrival: Arrival) -> BaseMessage:
    if arrival.source_agent_id is None:
        return message
    metadata = MessageMetadata.of(message)
    return replace(metadata, source_agent_id=arrival.source_agent_id).onto(message)


def _type_of(arrival: Arrival) -> BatchType | None:
    if arrival.parent_batch is None and arrival.source_agent_id is None:
        return None
    return BatchType.AGENT_TO_AGENT


def importable(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Stamped messages in order, each once, and each with an id.

    In order, so that title and preview do not depend on that of a file. `ConflictError` for two
    different messages under one id: storing one of them would lose the other.
    """
    known: dict[str, BaseMessage] = {}
    for message in sorted(check_messages(messages), key=place_of):
        _refuse_far_future(message)
        named = message.model_copy(update={"id": message.id or to_text(place_of(message))})
        if known.setdefault(named.id or "", named) != named:
            raise ConflictError(
                f"Two different messages have the id {named.id!r}. Nothing was written."
            )
    return list(known.values())


def is_of_batch(message: BaseMessage, batch: int) -> bool:
    return MessageMetadata.of(message).batch == batch


def batches_of(messages: Iterable[BaseMessage]) -> set[int]:
    return {batch for message in messages if (batch := MessageMetadata.of(message).batch)}


def place_of(message: BaseMessage) -> int:
    """The position of a message; `MetadataError` if it has none."""
    position = MessageMetadata.of(message).position
    if position is None:
        raise MetadataError(f"Message {message.id!r} has no place in a batch; stamp it first.")
    return position


def _refuse_far_future(message: BaseMessage) -> None:
    """Later ids are above all that are there: one near the end of the range would be the last."""
    if place_of(message) > _LATEST_IMPORT:
        raise UsageError(
            f"Message {message.id!r} has a position in {time_of(place_of(message)).year}; that is "
            "no real message's. Nothing was written."
        )


def edges_of(seen: Sequence[int], *, before: int | None, after: int | None) -> tuple[int, int]:
    """The first and the last position of a page of history; of an empty one, those of the gap."""
    if seen:
        return seen[0], seen[-1]
    return min((after or 0) + 1, MAX_ID), MAX_ID if before is None else before - 1


def check_past(new_id: int, now: datetime, what: str) -> None:
    """Later ids of a thread are above all that it has: one from the future would date them all."""
    if new_id > latest_id(now):
        raise UsageError(
            f"{what} has an id of {time_of(new_id):%Y-%m-%d}, more than a day from now "
            f"({now:%Y-%m-%d}). Correct its time or this machine's clock. Nothing was written."
        )


def span_of(
    seen: Sequence[int], limit: int, *, before: int | None, after: int | None
) -> tuple[int, int]:
    """The first and the last position that a page of history looked at, to say what it hid."""
    first = 0 if after is None else min(after + 1, MAX_ID)
    last = MAX_ID if before is None else before - 1
    if len(seen) < limit or not seen:
        return first, last
    return (seen[0], last) if after is None else (first, seen[-1])

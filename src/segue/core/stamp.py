"""Stamping: giving finished messages their position, batch and sequence number."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    message_chunk_to_message,
)

from segue.core.batch import Batch
from segue.core.metadata import BatchType, MessageMetadata, check_messages, is_synthetic
from segue.core.snowflake import SnowflakeSource, check_snowflake, to_text
from segue.core.triggers import check_trigger_name, parse_trigger
from segue.errors import ConflictError, UsageError


def stamp(
    messages: Iterable[BaseMessage],
    generator: SnowflakeSource,
    batch: Batch | int | None = None,
    batch_type: BatchType | str | None = None,
    *,
    start: int | None = None,
    parent_batch: int | None = None,
) -> list[BaseMessage]:
    """Copies of the messages with position, batch and sequence number.

    Without `batch` they form a new one, whose id is the position of its first message, unless the
    messages name a batch themselves. With a `Batch` they continue it; with a bare id, `start` is
    the next sequence number. A message without an id gets its position as id. It refuses messages
    that have a position, name another batch, or have an unknown trigger.
    """
    found = places(messages, generator, batch, batch_type, start=start, parent_batch=parent_batch)
    return [with_place(message, metadata) for message, metadata in found]


def places(
    messages: Iterable[BaseMessage],
    generator: SnowflakeSource,
    batch: Batch | int | None = None,
    batch_type: BatchType | str | None = None,
    *,
    start: int | None = None,
    parent_batch: int | None = None,
) -> list[tuple[BaseMessage, MessageMetadata]]:
    """The messages as plain types, and the metadata that `stamp` gives them."""
    pending = [_checked(message) for message in check_messages(messages)]
    if not pending:
        return []
    known = [MessageMetadata.of(message) for message in pending]
    kind = _stamp_type(pending[0], batch, batch_type)
    first = _first_sequence_num(batch, start, known[0])
    batch_id = batch.id if isinstance(batch, Batch) else batch
    if batch_id is None:
        batch_id = known[0].batch
    if batch_id is not None:
        check_snowflake(batch_id, "batch id")
    elif start:
        raise UsageError(f"start is {start}, but a new batch starts at 0; pass the batch, too.")
    floor = batch.last_position if isinstance(batch, Batch) else batch_id or 0
    for message, metadata in zip(pending, known, strict=True):
        _check_unplaced(message, metadata, batch_id)
    found = []
    for offset, (message, metadata) in enumerate(zip(pending, known, strict=True)):
        position = floor = generator.next(after=floor)
        batch_id = batch_id or position
        complete = metadata.with_fields(
            position=position,
            batch=batch_id,
            sequence_num=first + offset,
            batch_type=kind,
            parent_batch=parent_batch if parent_batch is not None else metadata.parent_batch,
        )
        found.append((message, complete))
    return found


def with_place(message: BaseMessage, metadata: MessageMetadata) -> BaseMessage:
    """A copy of the message with this metadata; its position is its id if it has none."""
    return metadata.onto(message, id=message.id or to_text(metadata.position or 0))


def _checked(message: BaseMessage) -> BaseMessage:
    stored = message.additional_kwargs
    trigger = stored.get("trigger_type")
    if trigger is not None and is_synthetic(message):
        (parse_trigger if stored.get("initiative") is None else check_trigger_name)(trigger)
    return plain_type(message)


def plain_type(message: BaseMessage) -> BaseMessage:
    """The message as one of the plain types; `UsageError` if none fits."""
    if isinstance(message, BaseMessageChunk):
        # Merging chunks adds up the numbers in their metadata.
        message = message_chunk_to_message(message)
    if isinstance(message, ChatMessage):
        message = _by_role(message)
    if isinstance(message, RemoveMessage):
        raise UsageError("A RemoveMessage is a command to LangGraph and cannot be stored.")
    return _unshared(message)


def _unshared(message: BaseMessage) -> BaseMessage:
    """The message with its own containers, so that later changes by the caller do not reach it."""
    copies: dict[str, Any] = {}
    if isinstance(message.content, list):
        copies["content"] = deepcopy(message.content)
    if isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
        copies["tool_calls"] = deepcopy(message.tool_calls)
        copies["invalid_tool_calls"] = deepcopy(message.invalid_tool_calls)
    # The dictionary itself is copied when metadata is written; nested values are not.
    if any(isinstance(value, list | dict) for value in message.additional_kwargs.values()):
        copies["additional_kwargs"] = deepcopy(message.additional_kwargs)
    return message.model_copy(update=copies) if copies else message


def _by_role(message: ChatMessage) -> BaseMessage:
    roles: dict[str, type[HumanMessage | AIMessage | SystemMessage]] = {
        "user": HumanMessage,
        "human": HumanMessage,
        "assistant": AIMessage,
        "ai": AIMessage,
        "system": SystemMessage,
        "developer": SystemMessage,
    }
    kind = roles.get(message.role.lower())
    if kind is None:
        raise UsageError(
            f"A ChatMessage has the unknown role {message.role!r}; known are: {', '.join(roles)}."
        )
    return kind(message.content, id=message.id, additional_kwargs=message.additional_kwargs)


def _check_unplaced(message: BaseMessage, metadata: MessageMetadata, batch_id: int | None) -> None:
    stored = metadata.position is not None
    if stored or (metadata.batch is not None and metadata.batch != batch_id):
        raise ConflictError(
            f"Message {message.id!r} already belongs to batch {metadata.batch}; "
            "a message never moves."
        )


def _stamp_type(
    first: BaseMessage, batch: Batch | int | None, batch_type: BatchType | str | None
) -> BatchType:
    if batch_type is not None:
        try:
            return BatchType(batch_type)
        except ValueError:
            valid = ", ".join(BatchType)
            raise UsageError(f"Unknown batch type {batch_type!r}; valid are: {valid}.") from None
    if isinstance(batch, Batch):
        return batch.type
    return BatchType.SYSTEM_TRIGGER if is_synthetic(first) else BatchType.USER_REQUEST


def _first_sequence_num(
    batch: Batch | int | None, start: int | None, first: MessageMetadata
) -> int:
    if start is None:
        return batch.next_sequence_num if isinstance(batch, Batch) else first.sequence_num or 0
    if type(start) is not int or start < 0:
        raise UsageError(f"start is {start!r}; expected an int of 0 or more.")
    return start

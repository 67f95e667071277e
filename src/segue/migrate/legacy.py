"""Batch borders for messages of old conversations.

Used by migrations only. It is the only code that reads a message's text to find out what it is: old
systems wrote `[AUTONOMOUS_FOLLOWUP: check_in]` as the user's text.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from segue.core.calls import calls_of
from segue.core.messages import synthetic_message
from segue.core.metadata import BatchType, MessageMetadata, check_messages, is_synthetic
from segue.core.snowflake import EPOCH, SnowflakeSource, millis_of, next_snowflake, to_text
from segue.core.stamp import plain_type
from segue.core.triggers import TriggerType
from segue.errors import ConflictError

_MARKER: Final = re.compile(r"\[AUTONOMOUS_FOLLOWUP:\s*([\w-]+)\s*\]")
_TRIGGERS: Final = frozenset(TriggerType)
_TIME_KEYS: Final = ("created_at", "timestamp")

TimeOf = Callable[[BaseMessage], datetime | None]


def created_at(message: BaseMessage) -> datetime | None:
    """Its `created_at` or `timestamp`, in `additional_kwargs` or `response_metadata`, if any."""
    for holder in (message.additional_kwargs, message.response_metadata):
        for key in _TIME_KEYS:
            if (moment := parse_moment(holder.get(key))) is not None:
                return moment
    return None


def convert_legacy_trigger(message: BaseMessage) -> BaseMessage:
    """Convert a message whose whole text is the old marker into a synthetic message.

    An unknown trigger type, in the marker or in metadata, becomes a check-in; the reason keeps the
    old name. A marker with other text around it is a message of the user, and stays as it is.
    """
    if not isinstance(message, HumanMessage):
        return message
    if is_synthetic(message):
        name = message.additional_kwargs.get("trigger_type")
        return message if name is None or str(name) in _TRIGGERS else _as_trigger(message, name)
    # With a picture beside the text it is a message of the user, too.
    texts_only = isinstance(message.content, str) or all(
        isinstance(block, str) or block.get("type") == "text" for block in message.content
    )
    marker = _MARKER.fullmatch(message.text.strip()) if texts_only else None
    return message if marker is None else _as_trigger(message, marker[1])


def assign_batches(
    messages: Iterable[BaseMessage],
    generator: SnowflakeSource,
    *,
    time_of: TimeOf = created_at,
) -> list[BaseMessage]:
    """Copies of an old conversation's messages, in order, each with a batch and a position.

    A batch begins with the first message, with a human message after a reply, with a trigger,
    and with a system message after a reply, which belongs to the human message after it if
    there is one; a tool result joins the batch of its call, even late.

    A message's own time is kept in its id, so the same input gives the same ids; one without a
    time takes its neighbour's, and a conversation without any takes new ids from the
    generator. Ids made of old times are unique in their thread, not across threads.

    Messages that have a batch already stay as they are, and new ones continue after them;
    `ConflictError` for new messages before them.
    """
    old = [_prepared(message) for message in check_messages(messages)]
    times = [time_of(message) for message in old]
    clock = _Clock(generator, next((t for t in times if t is not None), None))
    borders = _Borders()
    assigned = []
    for message, moment, speaker in zip(old, times, _speakers(old), strict=True):
        known = MessageMetadata.of(message)
        if known.batch is not None:
            clock.pass_by(known.position or 0, message)
            borders.follow(message, known.batch, known)
            assigned.append(message)
        else:
            position = clock.position(moment)
            batch = borders.batch_for(message, position, speaker)
            assigned.append(batch.adopt(message, position))
    return assigned


def _prepared(message: BaseMessage) -> BaseMessage:
    if MessageMetadata.of(message).batch is not None:
        return message
    return convert_legacy_trigger(plain_type(message))


def _as_trigger(message: HumanMessage, name: object) -> HumanMessage:
    known = str(name).lower().replace("-", "_")
    old_reason = message.additional_kwargs.get("trigger_reason")
    suffix = f": {old_reason}" if old_reason else ""
    reason = f"converted from the old trigger {name!r}{suffix}"
    trigger = synthetic_message(known if known in _TRIGGERS else TriggerType.CHECK_IN, reason)
    content = message.content if is_synthetic(message) else trigger.content
    kwargs = message.additional_kwargs | trigger.additional_kwargs
    return message.model_copy(update={"content": content, "additional_kwargs": kwargs})


@dataclass
class _OpenBatch:
    id: int
    type: BatchType
    size: int = 0
    open_calls: Counter[str] = field(default_factory=Counter)

    def adopt(self, message: BaseMessage, position: int) -> BaseMessage:
        metadata = replace(
            MessageMetadata.of(message),
            position=position,
            batch=self.id,
            sequence_num=self.size,
            batch_type=self.type,
        )
        self.count(message, self.size)
        return metadata.onto(message, id=message.id or to_text(position))

    def count(self, message: BaseMessage, sequence_num: int) -> None:
        self.size = max(self.size, sequence_num + 1)
        if isinstance(message, ToolMessage) and self.open_calls[message.tool_call_id]:
            self.open_calls[message.tool_call_id] -= 1
        self.open_calls.update(call.id for call in calls_of(message))


class _Borders:
    """Where one batch ends and the next begins."""

    def __init__(self) -> None:
        self._batches: dict[int, _OpenBatch] = {}
        # Per call id, the batches that asked for it, newest last.
        self._callers: defaultdict[str, list[_OpenBatch]] = defaultdict(list)
        self._current: _OpenBatch | None = None
        # The last message of the current batch that is not a system message.
        self._last: BaseMessage | None = None

    def batch_for(
        self, message: BaseMessage, position: int, speaker: BaseMessage | None
    ) -> _OpenBatch:
        """The batch of a message; `speaker` is it or the next one that is not a system message."""
        batch = self._owner(message) or self._current
        if batch is None or self._begins(message):
            batch = self._batches[position] = _OpenBatch(position, _type_of(message, speaker))
        self._go_on(batch, message)
        return batch

    def follow(self, message: BaseMessage, batch_id: int, known: MessageMetadata) -> None:
        """Continue after a message that has its batch already."""
        kind = known.batch_type or BatchType.USER_REQUEST
        batch = self._batches.setdefault(batch_id, _OpenBatch(batch_id, kind))
        batch.count(message, known.sequence_num or 0)
        self._go_on(batch, message)

    def _go_on(self, batch: _OpenBatch, message: BaseMessage) -> None:
        for call in calls_of(message):
            self._callers[call.id].append(batch)
        if batch is not self._current:
            if self._current is not None and isinstance(message, ToolMessage):
                return  # a late result does not reopen its batch
            self._current, self._last = batch, None
        if not isinstance(message, SystemMessage):
            self._last = message

    def _begins(self, message: BaseMessage) -> bool:
        if isinstance(message, HumanMessage):
            if is_synthetic(message) or self._last is None:
                return is_synthetic(message)
            # Several user messages in a row are one batch, unless the first is a trigger.
            return not isinstance(self._last, HumanMessage) or is_synthetic(self._last)
        answered = isinstance(self._last, AIMessage) and not calls_of(self._last)
        return isinstance(message, SystemMessage) and answered

    def _owner(self, message: BaseMessage) -> _OpenBatch | None:
        """The newest batch with an open call that this message answers; ids repeat."""
        if not isinstance(message, ToolMessage):
            return None
        callers = self._callers[message.tool_call_id]
        while callers and not callers[-1].open_calls[message.tool_call_id]:
            callers.pop()
        return callers[-1] if callers else None


def _speakers(messages: list[BaseMessage]) -> list[BaseMessage | None]:
    """For each message, it or the next one that is not a system message."""
    speakers: list[BaseMessage | None] = []
    speaker: BaseMessage | None = None
    for message in reversed(messages):
        speaker = speaker if isinstance(message, SystemMessage) else message
        speakers.append(speaker)
    return speakers[::-1]


def _type_of(first: BaseMessage, speaker: BaseMessage | None) -> BatchType:
    """A system message before a user message belongs to the user's request."""
    by_system = isinstance(first, SystemMessage) and not isinstance(speaker, HumanMessage)
    if by_system or (speaker is not None and is_synthetic(speaker)):
        return BatchType.SYSTEM_TRIGGER
    return BatchType.USER_REQUEST


class _Clock:
    """Positions that keep the messages' own times and still rise."""

    def __init__(self, generator: SnowflakeSource, first: datetime | None) -> None:
        self._generator = generator
        self._latest = first
        self._assigned = False
        self.last = 0

    def pass_by(self, position: int, message: BaseMessage) -> None:
        """Continue above a position that is assigned already."""
        if self._assigned and position <= self.last:
            raise ConflictError(
                f"Message {message.id!r} has a position already, below that of the messages before "
                "it; older messages cannot be put before a conversation that has batches."
            )
        self.last = max(self.last, position)

    def position(self, moment: datetime | None) -> int:
        self._assigned = True
        self._latest = moment or self._latest
        if self._latest is None:
            self.last = self._generator.next(after=self.last)
        else:
            millis = millis_of(self._latest)
            self.last = next_snowflake(self.last, millis, self._generator.node)
        return self.last


def parse_moment(value: object) -> datetime | None:
    """A time as ISO text, or as seconds or milliseconds since 1970; None if it is neither."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) > 8:
        value = int(value)
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            # Seconds reach 10**11 in the year 5138; anything above is milliseconds.
            value = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    if not isinstance(value, datetime) or value.year >= EPOCH.year + 69:
        return None  # later times do not fit an id
    return value if value.tzinfo else value.replace(tzinfo=UTC)

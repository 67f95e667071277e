"""Bringing old conversations in: batch borders for messages that have none.

A migration's tool, on no runtime path. It is the only code that looks at what a message says to
learn what it is: old systems wrote `[AUTONOMOUS_FOLLOWUP: check_in]` as the user's text.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from langchain_core.messages import (
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from segue.core.calls import calls_of
from segue.core.messages import synthetic_message
from segue.core.metadata import BatchType, MessageMetadata, is_synthetic
from segue.core.snowflake import SnowflakeSource, millis_of, next_snowflake, to_text
from segue.core.triggers import TriggerType

_MARKER: Final = re.compile(r"\[AUTONOMOUS_FOLLOWUP:\s*([A-Za-z_-]+)\s*\]")
_TRIGGERS: Final = frozenset(TriggerType)
_TIME_KEYS: Final = ("created_at", "timestamp")

TimeOf = Callable[[BaseMessage], datetime | None]


def created_at(message: BaseMessage) -> datetime | None:
    """The time an old message says it was made, where it says so.

    Looks for `created_at` or `timestamp` in `additional_kwargs` and `response_metadata`: ISO text,
    or seconds or milliseconds since 1970. Anything else is no time.
    """
    for holder in (message.additional_kwargs, message.response_metadata):
        for key in _TIME_KEYS:
            if (moment := _moment(holder.get(key))) is not None:
                return moment
    return None


def convert_legacy_trigger(message: BaseMessage) -> BaseMessage:
    """A message whose whole text is the old marker, as the synthetic message it stands for.

    A trigger type that does not exist, in the marker or in metadata, becomes a check-in; the
    reason keeps what it was. Text around the marker makes it a person's message, which stays
    as it is.
    """
    if not isinstance(message, HumanMessage):
        return message
    if is_synthetic(message):
        name = message.additional_kwargs.get("trigger_type")
        return message if name is None or str(name) in _TRIGGERS else _as_trigger(message, name)
    marker = _MARKER.fullmatch(message.text.strip())
    return message if marker is None else _as_trigger(message, marker[1])


def assign_batches(
    messages: Iterable[BaseMessage],
    generator: SnowflakeSource,
    *,
    time_of: TimeOf = created_at,
) -> list[BaseMessage]:
    """Copies of an old conversation's messages, in order, each with a batch and a position.

    A batch begins with the first message, with a human message after anything else, with a
    trigger and with a system message; a result joins the batch of the call it answers, even
    late. A message's own time is kept in its id, so the same input gives the same ids; one
    without a time takes its neighbour's, and a conversation without any takes new ids from
    the generator. Messages that have a batch already stay as they are.
    """
    old = [convert_legacy_trigger(message) for message in messages]
    times = [time_of(message) for message in old]
    clock = _Clock(generator, next((t for t in times if t is not None), None))
    batches = _Borders()
    assigned = []
    for message, moment in zip(old, times, strict=True):
        stamped = MessageMetadata.of(message)
        if stamped.batch is not None:
            clock.last = max(clock.last, stamped.position or 0)
            batches.current = None
            assigned.append(message)
            continue
        position = clock.position(moment)
        batch = batches.batch_for(message, position)
        assigned.append(batch.adopt(message, position))
    return assigned


def _as_trigger(message: HumanMessage, name: object) -> HumanMessage:
    known = str(name).lower().replace("-", "_")
    trigger = synthetic_message(
        known if known in _TRIGGERS else TriggerType.CHECK_IN,
        reason=f"converted from the old trigger {name!r}",
    )
    content = message.content if is_synthetic(message) else trigger.content
    kwargs = message.additional_kwargs | trigger.additional_kwargs
    return message.model_copy(update={"content": content, "additional_kwargs": kwargs})


@dataclass
class _OpenBatch:
    id: int
    type: BatchType
    size: int = 0
    open_calls: list[str] = field(default_factory=list)

    def adopt(self, message: BaseMessage, position: int) -> BaseMessage:
        if isinstance(message, ToolMessage) and message.tool_call_id in self.open_calls:
            self.open_calls.remove(message.tool_call_id)
        self.open_calls += [call.id for call in calls_of(message)]
        own = MessageMetadata.of(message)
        metadata = MessageMetadata(
            synthetic=own.synthetic,
            trigger_type=own.trigger_type,
            trigger_reason=own.trigger_reason,
            position=position,
            batch=self.id,
            sequence_num=self.size,
            batch_type=self.type,
        )
        self.size += 1
        return metadata.onto(message, id=message.id or to_text(position))


@dataclass
class _Borders:
    """Where one batch ends and the next begins."""

    current: _OpenBatch | None = None
    last: BaseMessage | None = None
    waiting: list[_OpenBatch] = field(default_factory=list)

    def batch_for(self, message: BaseMessage, position: int) -> _OpenBatch:
        if isinstance(message, ToolMessage) and (owner := self._owner(message)):
            return owner
        if self.current is None or self._begins(message):
            if self.current is not None and self.current.open_calls:
                self.waiting.append(self.current)
            system = isinstance(message, SystemMessage) or is_synthetic(message)
            kind = BatchType.SYSTEM_TRIGGER if system else BatchType.USER_REQUEST
            self.current = _OpenBatch(position, kind)
        self.last = message
        return self.current

    def _begins(self, message: BaseMessage) -> bool:
        if isinstance(message, SystemMessage) or is_synthetic(message):
            return True
        if not isinstance(message, HumanMessage):
            return False
        # People write several messages in a row; a trigger before them was not theirs.
        return not isinstance(self.last, HumanMessage) or is_synthetic(self.last)

    def _owner(self, result: ToolMessage) -> _OpenBatch | None:
        candidates = [self.current] if self.current else []
        candidates += reversed(self.waiting)
        return next((b for b in candidates if result.tool_call_id in b.open_calls), None)


class _Clock:
    """Positions that keep the messages' own times and still rise."""

    def __init__(self, generator: SnowflakeSource, first: datetime | None) -> None:
        self._generator = generator
        self._latest = first
        self.last = 0

    def position(self, moment: datetime | None) -> int:
        self._latest = moment or self._latest
        if self._latest is None:
            self.last = self._generator.next(after=self.last)
        else:
            millis = millis_of(self._latest)
            self.last = next_snowflake(self.last, millis, self._generator.node)
        return self.last


def _moment(value: object) -> datetime | None:
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            # Seconds reach 10**11 in the year 5138; anything above is milliseconds.
            moment = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        except (OverflowError, ValueError, OSError):
            return None
    else:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

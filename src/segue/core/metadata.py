"""The metadata of a message: what Segue knows about it, in `additional_kwargs` and nowhere else.

Content is never looked at here. `is_synthetic` is the only place that asks whether a message is
synthetic; everything else goes through it.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum, StrEnum
from typing import Any, Final, Literal, TypeVar, get_args

from langchain_core.messages import BaseMessage

from segue.core.errors import MetadataError, UsageError
from segue.core.snowflake import check_snowflake
from segue.core.triggers import TriggerType

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseMessage)
Priority = Literal["low", "medium", "high"]


class BatchType(StrEnum):
    USER_REQUEST = "user_request"
    AGENT_TO_AGENT = "agent_to_agent"
    SYSTEM_TRIGGER = "system_trigger"
    CONTINUATION = "continuation"


def is_synthetic(message: BaseMessage) -> bool:
    """Whether Segue wrote this message itself.

    Strictly `True`: the text "true", 1, null or nothing at all is a real message.
    """
    return message.additional_kwargs.get("synthetic") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageMetadata:
    """Everything Segue stores on one message. Absent fields are not written."""

    synthetic: bool = False
    trigger_type: TriggerType | None = None
    trigger_reason: str | None = None

    position: int | None = None
    batch: int | None = None
    sequence_num: int | None = None
    batch_type: BatchType | None = None
    parent_batch: int | None = None

    # Set on a tool result whose tool asked to go on later; the batch then waits for it.
    continue_requested: bool = False
    # Set on what `settle` adds, so that a closed batch is known as one.
    settled: bool = False

    source_agent_id: str | None = None
    tool_triggered: bool = False
    retry_count: int | None = None
    priority: Priority | None = None

    def __post_init__(self) -> None:
        for name in _FLAGS:
            _expect(type(getattr(self, name)) is bool, name, getattr(self, name), "a boolean")
        for name in _IDS:
            value = getattr(self, name)
            if value is not None:
                _check_id(name, value)
        for name in _COUNTS:
            value = getattr(self, name)
            ok = value is None or (type(value) is int and value >= 0)
            _expect(ok, name, value, "an int of 0 or more")
        for name in _TEXTS:
            value = getattr(self, name)
            _expect(value is None or isinstance(value, str), name, value, "a string")
        for name, kind in (("trigger_type", TriggerType), ("batch_type", BatchType)):
            value = getattr(self, name)
            ok = value is None or isinstance(value, kind)
            _expect(ok, name, value, f"one of: {', '.join(kind)}")
        ok = self.priority is None or self.priority in get_args(Priority)
        _expect(ok, "priority", self.priority, f"one of: {', '.join(get_args(Priority))}")

    @classmethod
    def of(cls, message: BaseMessage) -> "MessageMetadata":
        """Read a message's metadata.

        An unknown trigger type is logged and read as none: the message stays synthetic. Any
        other value of the wrong type raises `MetadataError`, since guessing would hide a
        message or show a trigger.
        """
        stored = message.additional_kwargs
        values = {name: stored[name] for name in KEYS & stored.keys() if stored[name] is not None}
        values["synthetic"] = is_synthetic(message)
        trigger = values.pop("trigger_type", None)
        try:
            if values["synthetic"] and trigger is not None:
                values["trigger_type"] = _known_trigger(trigger, message)
            if "batch_type" in values:
                values["batch_type"] = _batch_type(values["batch_type"])
            return cls(**values)
        except MetadataError as error:
            raise MetadataError(f"Message {message.id!r} ({message.type}): {error}") from None

    def to_kwargs(self) -> dict[str, Any]:
        """Plain JSON values, as they are written into `additional_kwargs`."""
        written = {}
        for name in _ORDER:
            value = getattr(self, name)
            if value is not None and value is not False:
                written[name] = value.value if isinstance(value, Enum) else value
        return written

    def onto(self, message: M) -> M:
        """A copy of `message` that carries exactly this metadata; the original is untouched."""
        foreign = {k: v for k, v in message.additional_kwargs.items() if k not in KEYS}
        return message.model_copy(update={"additional_kwargs": foreign | self.to_kwargs()})


_ORDER: Final = tuple(field.name for field in fields(MessageMetadata))
KEYS: Final = frozenset(_ORDER)
_FLAGS: Final = ("synthetic", "continue_requested", "settled", "tool_triggered")
_IDS: Final = ("position", "batch", "parent_batch")
_COUNTS: Final = ("sequence_num", "retry_count")
_TEXTS: Final = ("trigger_reason", "source_agent_id")


def strip_metadata(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages as a model provider may see them: without any key of ours.

    Today's converters drop unknown keys, but that is their choice; this makes it ours.
    """
    return [
        MessageMetadata().onto(m) if not KEYS.isdisjoint(m.additional_kwargs) else m
        for m in messages
    ]


def _expect(ok: bool, name: str, value: object, expected: str) -> None:
    if not ok:
        raise MetadataError(f"metadata {name!r} is {value!r}; expected {expected}.")


def _check_id(name: str, value: object) -> None:
    try:
        check_snowflake(value, f"metadata {name!r}")
    except UsageError as error:
        raise MetadataError(str(error)) from None


def _known_trigger(value: object, message: BaseMessage) -> TriggerType | None:
    try:
        return TriggerType(value)  # type: ignore[arg-type]  # the enum itself is the validator
    except ValueError:
        logger.warning(
            "Unknown trigger type %r on synthetic message %r; the message stays synthetic.",
            value,
            message.id,
        )
        return None


def _batch_type(value: object) -> BatchType:
    try:
        return BatchType(value)  # type: ignore[arg-type]  # the enum itself is the validator
    except ValueError:
        raise MetadataError(
            f"metadata 'batch_type' is {value!r}; expected one of: {', '.join(BatchType)}."
        ) from None

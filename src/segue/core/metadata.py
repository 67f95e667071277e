"""The metadata of a message: what Segue stores about it, in `additional_kwargs` alone.

Content is never read here. Only `is_synthetic` decides whether a message is synthetic.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, TypeVar, get_args

from langchain_core.messages import BaseMessage

from segue.core.snowflake import MAX_ID, is_snowflake, time_of
from segue.core.triggers import TriggerType, check_trigger_name, parse_trigger
from segue.errors import MetadataError, UnknownTrigger, UsageError

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseMessage)
Priority = Literal["low", "medium", "high"]
PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
# What lets the agent speak first besides silence.
Initiative = Literal["user", "program", "event"]
INITIATIVES: Final[tuple[Initiative, ...]] = get_args(Initiative)


class BatchType(StrEnum):
    """What started a processing cycle."""

    USER_REQUEST = "user_request"
    AGENT_TO_AGENT = "agent_to_agent"
    SYSTEM_TRIGGER = "system_trigger"
    CONTINUATION = "continuation"


def is_synthetic(message: BaseMessage) -> bool:
    """Whether Segue wrote this message itself.

    Strictly `True`: with "true", 1, null or no value the message is a real one.
    """
    return message.additional_kwargs.get("synthetic") is True


def is_settled(message: BaseMessage) -> bool:
    return message.additional_kwargs.get("settled") is True


def has_place(message: BaseMessage) -> bool:
    """Whether a message names a batch or a position of its own."""
    stored = message.additional_kwargs
    return stored.get("batch") is not None or stored.get("position") is not None


# Without slots: what is read from a message sets only its own fields; the class has the defaults.
@dataclass(frozen=True, kw_only=True)
class MessageMetadata:
    """All that Segue stores on one message. Fields at their default are not written."""

    synthetic: bool = False
    # One of the four unless `initiative` is set: only silence has these alone.
    trigger_type: TriggerType | str | None = None
    trigger_reason: str | None = None
    initiative: Initiative | None = None

    position: int | None = None
    batch: int | None = None
    sequence_num: int | None = None
    batch_type: BatchType | None = None
    parent_batch: int | None = None
    # When it was stored, in ISO 8601; set only if the position shows a later time.
    stored_at: str | None = None
    # The id that the client gave to its message, if any.
    client_message_id: str | None = None

    # Set on a tool result whose tool requested a continuation; the batch then waits for it.
    continue_requested: bool = False
    # Set on the messages that `settle` adds.
    settled: bool = False

    source_agent_id: str | None = None
    tool_triggered: bool = False
    retry_count: int | None = None
    priority: Priority | None = None

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            default, is_valid, expected = _RULES[name]
            if value is not default and not is_valid(value):
                raise MetadataError(f"metadata {name!r} is {value!r}; expected {expected}.")
        if self.trigger_type is None:
            return
        if not self.synthetic:
            raise MetadataError(
                "metadata 'trigger_type' is set on a message that is not synthetic."
            )
        if self.initiative is None and not isinstance(self.trigger_type, TriggerType):
            raise MetadataError(
                f"metadata 'trigger_type' is {self.trigger_type!r}; expected one of: "
                f"{', '.join(TriggerType)}."
            )

    @property
    def created_at(self) -> datetime | None:
        """When the message was stored; None if it was not."""
        if self.stored_at is not None:
            return datetime.fromisoformat(self.stored_at)
        return None if self.position is None else time_of(self.position)

    @classmethod
    def of(cls, message: BaseMessage) -> "MessageMetadata":
        """Read a message's metadata.

        An unknown trigger type is logged and read as None: the message stays synthetic. Any other
        wrong value raises `MetadataError`, since a guess could hide a message or show a trigger.
        """
        given = message.additional_kwargs.items()
        values = {name: value for name, value in given if name in _RULES and value is not None}
        values["synthetic"] = is_synthetic(message)
        trigger = values.pop("trigger_type", None)
        try:
            if values["synthetic"] and trigger is not None:
                values["trigger_type"] = _known_trigger(trigger, message, "initiative" in values)
            if isinstance(kind := values.get("batch_type"), str):
                values["batch_type"] = _BATCH_TYPES.get(kind, kind)
            return cls.of_values(values)
        except MetadataError as error:
            raise MetadataError(f"Message {message.id!r} ({message.type}): {error}") from None

    def to_kwargs(self) -> dict[str, Any]:
        """The plain JSON values to write into `additional_kwargs`."""
        return {
            name: str(value) if isinstance(value, StrEnum) else value
            for name, value in self.__dict__.items()
            if value is not _RULES[name][0]
        }

    def with_fields(self, **fields: Any) -> "MessageMetadata":
        """A copy with other values in these fields; `dataclasses.replace` is slower."""
        return self.of_values(self.__dict__ | fields)

    def onto(self, message: M, **fields: Any) -> M:
        """A copy of `message` with exactly this metadata, and other `fields` such as its id."""
        foreign = {k: v for k, v in message.additional_kwargs.items() if k not in KEYS}
        fields["additional_kwargs"] = foreign | self.to_kwargs()
        return message.model_copy(update=fields)

    @classmethod
    def of_values(cls, values: dict[str, Any]) -> "MessageMetadata":
        """Metadata with these fields set; the constructor writes all of them, which is slower."""
        made = object.__new__(cls)
        made.__dict__.update(values)
        made.__post_init__()
        return made


_BATCH_TYPES: Final[Mapping[str, BatchType]] = {kind.value: kind for kind in BatchType}


def _is_moment(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


# Each rule: default, check, and the expected value for the text of an error.
_Rule = tuple[bool | None, Callable[[Any], bool], str]
_FLAG: Final[_Rule] = (False, lambda value: type(value) is bool, "true or false")
_ID: Final[_Rule] = (None, is_snowflake, f"an int in 1..{MAX_ID}")
_COUNT: Final[_Rule] = (None, lambda v: type(v) is int and v >= 0, "an int of 0 or more")
_TEXT: Final[_Rule] = (None, lambda value: isinstance(value, str), "a string")
_RULES: Final[Mapping[str, _Rule]] = {
    "synthetic": _FLAG,
    "trigger_type": _TEXT,
    "trigger_reason": _TEXT,
    "initiative": (None, INITIATIVES.__contains__, f"one of: {', '.join(INITIATIVES)}"),
    "position": _ID,
    "batch": _ID,
    "sequence_num": _COUNT,
    "batch_type": (None, lambda v: isinstance(v, BatchType), f"one of: {', '.join(BatchType)}"),
    "parent_batch": _ID,
    "stored_at": (None, _is_moment, "a time with its zone, in ISO 8601"),
    "client_message_id": _TEXT,
    "continue_requested": _FLAG,
    "settled": _FLAG,
    "source_agent_id": _TEXT,
    "tool_triggered": _FLAG,
    "retry_count": _COUNT,
    "priority": (None, PRIORITIES.__contains__, f"one of: {', '.join(PRIORITIES)}"),
}
KEYS: Final = frozenset(_RULES)
NO_METADATA: Final = MessageMetadata.of_values({})


def check_messages(messages: Iterable[BaseMessage]) -> Iterator[BaseMessage]:
    """Yield the messages; `UsageError` for anything that is not a LangChain message."""
    if isinstance(messages, BaseMessage):
        raise UsageError("Expected a list of messages, got one message; put it into a list.")
    for place, message in enumerate(messages):
        if not isinstance(message, BaseMessage):
            raise UsageError(
                f"Expected LangChain messages, got {type(message).__name__} at place {place}; "
                "langchain_core.messages.convert_to_messages() makes messages of other shapes."
            )
        yield message


def strip_metadata(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages without our keys. Today's converters drop these, too, but may stop doing so."""
    return [
        message if KEYS.isdisjoint(message.additional_kwargs) else NO_METADATA.onto(message)
        for message in check_messages(messages)
    ]


def _known_trigger(
    value: object, message: BaseMessage, is_requested: bool
) -> TriggerType | str | None:
    try:
        return check_trigger_name(value) if is_requested else parse_trigger(value)
    except UnknownTrigger:
        logger.warning(
            "Unknown trigger type %r on synthetic message %r; the message stays synthetic.",
            value,
            message.id,
        )
        return None

"""The content of rows: values as both databases store them, records, messages and batches.

A message is stored as JSON in `body`; the columns beside it are written from the same message, so
that no query has to look into the body. The databases differ in how they return times and flags;
the readers here take both forms.
"""

import base64
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from itertools import chain
from types import NoneType, UnionType
from typing import Any, Final, Self, TypeVar, get_args, get_origin, get_type_hints

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage, messages_from_dict
from pydantic import BaseModel
from pydantic_core import from_json
from pydantic_core import to_json as fast_json

from segue.core.batch import Batch
from segue.core.memory import text_of
from segue.core.messages import visible_messages
from segue.core.metadata import MessageMetadata
from segue.core.text import plain_json, storable
from segue.core.tokens import estimate_tokens
from segue.errors import BackendError, MetadataError, UsageError

R = TypeVar("R")
T = TypeVar("T")
Reader = Callable[[Any], Any]

logger = logging.getLogger(__name__)

TITLE_LENGTH: Final = 50
PREVIEW_LENGTH: Final = 100
LONGEST_LEASE: Final = timedelta(days=366)
# How far the clocks of two healthy hosts may differ. A lease taken later than now + this comes from
# a clock that was ahead: it is shortened to start now, and a living owner extends it.
CLOCK_SKEW: Final = timedelta(seconds=10)
# The range of times that may be written; a damaged row may hold one that Python cannot.
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
# Errors of decoding a damaged row.
UNREADABLE: Final = (
    ValueError,
    TypeError,
    OverflowError,
    LookupError,
    AttributeError,
    RecursionError,
)
_KINDS: Final = frozenset({"human", "ai", "tool", "system", "function"})
# Fields that are left out of the body while empty: that halves the row of a short message.
_OPTIONAL: Final = {
    "additional_kwargs",
    "response_metadata",
    "name",
    "tool_calls",
    "invalid_tool_calls",
    "usage_metadata",
}
# Characters from which on a body takes long to write.
_LARGE: Final = 100_000
# Decoded complete batches, by their stored form: what another process added makes another key.
_MAX_SHARED: Final = 4_096
_MAX_SHARED_SIZE: Final = 20_000
_shared: dict[tuple[int, tuple[str, ...]], Batch] = {}


class DamagedError(BackendError):
    """Stored data cannot be read; a retry does not help."""


class Record:
    """A dataclass that reads itself from a row: each field from the column of its name, by its
    type, or by the function in its metadata's `read`; not one whose `is_stored` is false.
    """

    __slots__ = ()

    @classmethod
    def of(cls, row: Any) -> Self:
        """`DamagedError` if a value cannot be read."""
        columns: Any = _columns(cls)  # type: ignore[arg-type]  # a class is hashable
        try:
            return cls(*[row[name] if read is None else read(row[name]) for name, read in columns])
        except UNREADABLE as error:
            raise DamagedError(f"A stored {cls.__name__} cannot be read: {error}.") from error


def values_of(record: Any) -> dict[str, Any]:
    """The fields of a dataclass as the values of their columns; what holds several is JSON."""
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return values | {
        name: to_json(dict(value) if isinstance(value, Mapping) else list(value))
        for name, value in values.items()
        if isinstance(value, Mapping | tuple | list)
    }


@cache
def _columns(cls: Any) -> list[tuple[str, Reader | None]]:
    hints = get_type_hints(cls)
    return [
        (each.name, each.metadata.get("read") or _reader(hints[each.name]))
        for each in fields(cls)
        if each.metadata.get("is_stored", True)
    ]


def _reader(hint: Any) -> Reader | None:
    """The function that converts a column's value to the type; None if it needs no conversion."""
    if get_origin(hint) is UnionType:
        [inner] = [arg for arg in get_args(hint) if arg is not NoneType]
        read = _reader(inner)
        return None if read is None else lambda value: None if value is None else read(value)
    kind = get_origin(hint) or hint
    readers: Mapping[Any, Reader] = {
        datetime: read_time,
        timedelta: lambda value: value * MICROSECOND if isinstance(value, int) else value,
        bool: bool,
        tuple: lambda text: tuple(json.loads(text)),
        Mapping: json.loads,
    }
    return kind if issubclass(kind, StrEnum) else readers.get(kind)


def read_time(value: datetime | int) -> datetime:
    if isinstance(value, int):
        return EARLIEST + value * MICROSECOND
    if not isinstance(value, datetime):
        raise TypeError(f"{type(value).__name__} is not a time")
    return value


def read_time_or_none(value: datetime | int | None) -> datetime | None:
    return None if value is None else read_time(value)


def read_settings(text: str) -> dict[str, Any]:
    """A thread's or user's settings; damaged ones count as empty, so that messages still work."""
    if text == "{}":  # most often, and a list of threads reads many
        return {}
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        logger.error("The settings of a thread or user cannot be read and are left out.")
        return {}
    return settings


def merge_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The old settings, overridden by the new ones; null removes one."""
    return {k: v for k, v in {**old, **new}.items() if v is not None}


def aware(moment: datetime) -> datetime:
    """The moment itself; `UsageError` without a time zone or beyond what every database holds."""
    if moment.tzinfo is None:
        raise UsageError(f"The time {moment} has no time zone. Nothing was written.")
    if not EARLIEST <= moment <= LATEST:
        raise UsageError(f"The time {moment} is before 1970 or after 9998. Nothing was written.")
    return moment


def to_micros(moment: datetime) -> int:
    return (aware(moment) - EARLIEST) // MICROSECOND


def lease_end(now: datetime, lease_for: timedelta) -> datetime:
    """When a lease ends. A lease without an end could never be claimed from a dead worker."""
    if not timedelta(0) < lease_for <= LONGEST_LEASE:
        raise UsageError(f"lease_for is {lease_for}; expected more than 0 and at most a year.")
    return aware(now) + lease_for


@dataclass(frozen=True, slots=True)
class MessageRow:
    """The columns of one stored message, in the order in which they are inserted."""

    position: int
    message_id: str
    batch: int
    sequence_num: int
    batch_type: str
    parent_batch: int | None
    role: str
    synthetic: bool
    trigger_type: str | None
    visible: bool
    tokens: int
    text: str
    body: str


def body_size(body: str) -> int:
    """The number of bytes that a body has in the database."""
    return len(body) if body.isascii() else len(body.encode())


def columns_of(message: BaseMessage, known: MessageMetadata | None = None) -> dict[str, Any]:
    """The columns beside the body of a stamped message; `MetadataError` if it is not stamped.

    `known` is its metadata, if the caller has read it.
    """
    metadata = known or MessageMetadata.of(message)
    if metadata.position is None or metadata.batch is None or metadata.sequence_num is None:
        raise MetadataError(f"Message {message.id!r} has no place in a batch; stamp it first.")
    if message.type not in _KINDS:
        raise UsageError(
            f"A message of type {message.type!r} cannot be read again; known are: "
            f"{', '.join(sorted(_KINDS))}. Nothing was written."
        )
    return {
        "position": metadata.position,
        "message_id": message.id or "",
        "batch": metadata.batch,
        "sequence_num": metadata.sequence_num,
        "batch_type": str(metadata.batch_type or "user_request"),
        "parent_batch": metadata.parent_batch,
        "role": message.type,
        "synthetic": metadata.synthetic,
        "trigger_type": (
            message.additional_kwargs.get("trigger_type") if metadata.synthetic else None
        ),
        "visible": bool(visible_messages([message])),
        "tokens": estimate_tokens(message),
        "text": storable(text_of(message)),
    }


def encode_message(message: BaseMessage, known: MessageMetadata | None = None) -> MessageRow:
    columns = columns_of(message, known)
    # Separately: dumping the artifact with the rest would walk into whatever it holds.
    dumped = message.model_dump(exclude={"artifact"})
    if isinstance(message, ToolMessage) and message.artifact is not None:
        dumped["artifact"] = _storable_artifact(message.artifact)
    data = {k: v for k, v in dumped.items() if v is not None and (k not in _OPTIONAL or v)}
    data["content"] = message.content
    return MessageRow(**columns, body=_write_json(message, {"type": message.type, "data": data}))


def decode_message(body: str | dict[str, Any]) -> BaseMessage:
    """The message of a body, as text or parsed; `DamagedError`, which does not quote the body."""
    try:
        read = read_json(body) if isinstance(body, str) else body
        [message] = messages_from_dict([read])
    except UNREADABLE as error:
        raise DamagedError(f"A stored message cannot be read: {type(error).__name__}.") from error
    return message


def decode_batch(batch: int, bodies: Iterable[str], *, keep: bool = True) -> Batch:
    """A whole batch with sound metadata; `DamagedError` if any of it cannot be read.

    A complete batch is cached and shared, since the next turn reads most of what the last one read:
    treat its messages as read-only. Without `keep` a walk through a long thread evicts nothing.
    """
    stored = batch, tuple(bodies)
    # Looking up a picture of 10 MB would read all of it.
    keep = keep and sum(map(len, stored[1])) <= _MAX_SHARED_SIZE
    if keep and (shared := _shared.get(stored)) is not None:
        return shared
    try:
        decoded = Batch(batch, [decode_message(body) for body in stored[1]])
        decoded.state  # noqa: B018 - judged here, where a damaged row can be named
    except (MetadataError, BackendError) as error:
        raise DamagedError(f"Batch {batch} cannot be read: {error}") from error
    if keep and decoded.is_complete:
        if len(_shared) >= _MAX_SHARED:
            _shared.clear()
        _shared[stored] = decoded
    return decoded


def readable(decode: Callable[[R], T], rows: Iterable[R]) -> list[T]:
    """The decoded rows; one that cannot be read is logged and does not hide the others."""
    decoded = []
    for row in rows:
        try:
            decoded.append(decode(row))
        except DamagedError as error:
            logger.error("A row cannot be read and is left out: %s", error)  # noqa: TRY400 - the row is the fault
    return decoded


def read_json(text: str | bytes) -> Any:
    """With a parser three times as fast as Python's, which reads what the fast one refuses: half an
    emoji, deep nesting.
    """
    try:
        return from_json(text, cache_strings="keys")
    except ValueError:
        return json.loads(text)


def _write_json(message: BaseMessage, value: Any) -> str:
    """`to_json`; four times as fast for a user's large picture or file."""
    if isinstance(message, HumanMessage) and not isinstance(message.content, str):
        blocks = (b.values() if isinstance(b, dict) else [b] for b in message.content)
        texts = [text for text in chain.from_iterable(blocks) if isinstance(text, str)]
        if sum(map(len, texts)) > _LARGE:
            return parsed_to_json(value)
    return to_json(value)


def parsed_to_json(value: Any) -> str:
    """`to_json` for a value that was read from JSON, several times as fast."""
    try:
        return fast_json(value, inf_nan_mode="constants").decode()
    except ValueError:  # half an emoji, deep nesting
        return to_json(value)


def to_json(value: Any) -> str:
    """JSON that any database takes as text and that reads back the same."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
        text.encode()
    except UnicodeEncodeError:  # half an emoji
        return json.dumps(value, separators=(",", ":"), default=_plain)
    except TypeError:  # a key that is not text, in something that a tool made
        return json.dumps(plain_json(value), ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError) as error:
        raise UsageError(
            "A value is nested too deeply, holds itself, or has a number of thousands of digits. "
            "Nothing was written."
        ) from error
    return text


def _storable_artifact(artifact: Any) -> Any:
    """A tool's artifact as JSON can hold it. It may hold anything, and must not stop a turn."""
    try:
        json.dumps(artifact, default=_plain)
    except Exception as first:  # noqa: BLE001  # code of the object itself runs here
        logger.warning("An artifact is stored in a plain form: %s", type(first).__name__)
        try:
            return plain_json(artifact)
        except Exception:  # noqa: BLE001  # same
            return f"<{type(artifact).__name__}>"
    return artifact


def _plain(value: Any) -> Any:
    """A JSON form of a value that JSON has none for."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    logger.warning("A %s in a message is stored as its text.", type(value).__name__)
    return storable(repr(value))

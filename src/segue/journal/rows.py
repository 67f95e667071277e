"""The codec between messages and rows, shared by both databases.

A row holds the whole message as JSON in `body`; the columns beside it are written from the same
message, so that no query has to look into the body.
"""

import base64
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final, TypeVar

from langchain_core.messages import BaseMessage, ToolMessage, messages_from_dict
from pydantic import BaseModel

from segue.core.batch import Batch
from segue.core.errors import BackendError, MetadataError, UsageError
from segue.core.messages import visible_messages
from segue.core.metadata import MessageMetadata
from segue.core.plain import plain_json, storable
from segue.core.query import text_of
from segue.core.tokens import estimate_tokens
from segue.noting import note

logger = logging.getLogger(__name__)

TITLE_LENGTH: Final = 50
PREVIEW_LENGTH: Final = 100
# How the threads are called that a start tests its stores with.
SELF_TEST: Final = "segue-self-test-"

# What decoding a row raises that holds something it cannot.
UNREADABLE: Final = (
    ValueError,
    TypeError,
    OverflowError,
    LookupError,
    AttributeError,
    RecursionError,
)

R = TypeVar("R")
T = TypeVar("T")


class DamagedError(BackendError):
    """What is stored cannot be read, and will not be at the next look either."""


# The last moment that may be written; a damaged row may hold one that Python cannot.
LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
_UNIX: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_KINDS: Final = frozenset({"human", "ai", "tool", "system", "function"})
# A message says these of itself in every case; leaving them out where they say nothing halves a
# short message's row.
_OPTIONAL: Final = frozenset(
    {
        "additional_kwargs",
        "response_metadata",
        "name",
        "tool_calls",
        "invalid_tool_calls",
        "usage_metadata",
    }
)


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


def note_hidden(
    logger: logging.Logger, thread_id: str, agent_id: str, hidden: Sequence[Mapping[str, Any]]
) -> None:
    """Log what a page of history left out: a line for each message, one for all of them."""
    if not hidden:
        return
    where = {"thread_id": thread_id, "agent_id": agent_id}
    for row in hidden:
        note(
            logger,
            "synthetic_message_hidden",
            "Left message {message_id} (trigger {trigger_type}) out of the history of thread "
            "{thread_id}",
            logging.DEBUG,
            message_id=row["message_id"],
            trigger_type=row["trigger_type"],
            **where,
        )
    # The self-test at each start is no news.
    level = logging.DEBUG if thread_id.startswith(SELF_TEST) else logging.INFO
    note(
        logger,
        "synthetic_messages_filtered",
        "Filtered {count} synthetic messages from the history of thread {thread_id} of agent "
        "{agent_id}",
        level,
        count=len(hidden),
        **where,
    )


def columns_of(message: BaseMessage) -> dict[str, Any]:
    """The columns beside the body of a stamped message; `MetadataError` if it is not stamped."""
    metadata = MessageMetadata.of(message)
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


def encode_message(message: BaseMessage) -> MessageRow:
    """A stamped message as a row; `MetadataError` if it is not stamped."""
    columns = columns_of(message)
    # Taken by itself: dumping it with the rest would walk into whatever it holds.
    dumped = message.model_dump(exclude={"artifact"})
    if isinstance(message, ToolMessage):
        dumped["artifact"] = message.artifact
    fields = {k: v for k, v in dumped.items() if v is not None}
    fields = {k: v for k, v in fields.items() if k not in _OPTIONAL or v}
    fields["content"] = message.content
    if "artifact" in fields:
        fields["artifact"] = _storable_artifact(fields["artifact"])
    return MessageRow(**columns, body=to_json({"type": message.type, "data": fields}))


def decode_message(body: str | dict[str, Any]) -> BaseMessage:
    """The message of a row; `DamagedError` if it holds none, without quoting what it holds.

    A body that somebody has read already is taken as it is.
    """
    try:
        read = json.loads(body) if isinstance(body, str) else body
        [message] = messages_from_dict([read])
    except UNREADABLE as error:
        raise DamagedError(f"A stored message cannot be read: {type(error).__name__}.") from error
    return message


def decode_batch(batch: int, bodies: Iterable[str], *, keep: bool = True) -> Batch:
    """A whole batch with sound metadata; `DamagedError` if any of it cannot be read.

    The next turn reads most of what the last one read, and a complete batch hardly ever changes:
    it is made once, and is the same object for everyone. Treat its messages as read-only. Without
    `keep` it is for one look: who walks through a long thread would drive out what turns need.
    """
    # By its stored form, so that what another process added makes another batch of it.
    stored = batch, tuple(bodies)
    shared = _shared.get(stored)
    if shared is None:
        shared = _decoded(*stored)
        # One that is still being worked on belongs to whoever works on it.
        if keep and shared.is_complete and sum(map(len, stored[1])) <= _MAX_SHARED_SIZE:
            if len(_shared) >= _MAX_SHARED:
                _shared.clear()
            _shared[stored] = shared
    return shared


def decode_batches(rows: Iterable[Any]) -> list[Batch]:
    """Batches for one look, of rows with `batch` and `body`, in order; what cannot be read is left
    out and logged.
    """
    groups = [(batch, [*of_it]) for batch, of_it in groupby(rows, key=lambda row: row["batch"])]
    return readable(
        lambda group: decode_batch(group[0], (row["body"] for row in group[1]), keep=False), groups
    )


_MAX_SHARED: Final = 4_096
_MAX_SHARED_SIZE: Final = 20_000
_shared: dict[tuple[int, tuple[str, ...]], Batch] = {}


def _decoded(batch: int, bodies: Iterable[str]) -> Batch:
    try:
        decoded = Batch(batch, [decode_message(body) for body in bodies])
        decoded.state  # noqa: B018 - judged here, where a damaged row can be named
    except (MetadataError, BackendError) as error:
        raise DamagedError(f"Batch {batch} cannot be read: {error}") from error
    return decoded


def to_json(value: Any) -> str:
    """JSON that any database takes as text and that reads back the same."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
        text.encode()
    except UnicodeEncodeError:  # half an emoji
        return json.dumps(value, separators=(",", ":"), default=_plain)
    except TypeError:  # a key that is no text, in something a tool made
        return json.dumps(plain_json(value), ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError) as error:
        raise UsageError(
            "A value is nested too deeply, holds itself, or has a number of thousands of digits. "
            "Nothing was written."
        ) from error
    return text


def from_json(text: str) -> Any:
    return json.loads(text)


def settings_of(text: str) -> dict[str, Any]:
    """A thread's or user's settings; none if they are damaged, since messages must not suffer."""
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        logger.error("The settings of a thread or user cannot be read and are left out.")
        return {}
    return settings


def readable(decode: Callable[[R], T], rows: Iterable[R]) -> list[T]:
    """What can be read of the rows; one that cannot is logged and does not hide the others."""
    decoded = []
    for row in rows:
        try:
            decoded.append(decode(row))
        except (*UNREADABLE, BackendError) as error:
            logger.error("A row cannot be read and is left out: %s", error)  # noqa: TRY400 - the row is the fault
    return decoded


def title_of(text: str) -> str:
    return _shortened(text, TITLE_LENGTH)


def preview_of(text: str) -> str:
    return _shortened(text, PREVIEW_LENGTH)


def aware(moment: datetime) -> datetime:
    """A moment with a time zone, and one that every database can hold; else `UsageError`."""
    if moment.tzinfo is None:
        raise UsageError(f"The time {moment} has no time zone. Nothing was written.")
    if not _UNIX <= moment <= LATEST:
        raise UsageError(f"The time {moment} is before 1970 or after 9998. Nothing was written.")
    return moment


def to_micros(moment: datetime) -> int:
    return (aware(moment) - _UNIX) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _UNIX + micros * _MICROSECOND


def merged_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the new ones laid over them; null takes one away."""
    return {k: v for k, v in {**old, **new}.items() if v is not None}


def _shortened(text: str, length: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def _storable_artifact(artifact: Any) -> Any:
    """A tool's artifact as JSON can hold it. Anything may be in it, and it must not stop a turn."""
    try:
        json.dumps(artifact, default=_plain)
    except Exception as first:  # noqa: BLE001  # code of the object itself runs here
        logger.warning("An artifact is stored as what can be said of it: %s", type(first).__name__)
        try:
            return plain_json(artifact)
        except Exception:  # noqa: BLE001  # same
            return f"<{type(artifact).__name__}>"
    return artifact


def _plain(value: Any) -> Any:
    """What JSON cannot say. Tools put anything into an artifact; it must not stop a turn."""
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

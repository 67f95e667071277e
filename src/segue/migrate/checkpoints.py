"""Conversations in LangGraph's checkpoints, as the official savers keep them.

Owns the content of a checkpoint and how messages are dated; the modules of the two databases own
the tables. Objects of other channels are never constructed, and of the messages only types that
LangGraph itself calls safe.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

import ormsgpack
from langchain_core.messages import (
    BaseMessage,
    ToolMessage,
    convert_to_messages,
    messages_from_dict,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from segue.migrate.legacy import created_at
from segue.migrate.sources import SourceThread, ThreadRef, UnreadableError

CHANNEL: Final = "messages"
# A saver stores the whole conversation with each step. Of more bytes than this, only some
# checkpoints are read; a message between two of them is dated by the later one.
PAST_BYTES: Final = 512 * 2**20

TypedBytes = tuple[str, bytes]

_SAFE: Final = JsonPlusSerializer(allowed_msgpack_modules=None)
_DELTA: Final = 7  # LangGraph's number for a snapshot of a DeltaChannel
_BROKEN: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    NotImplementedError,
    RecursionError,
)


class _Packed(NamedTuple):
    """An object as it is stored, not constructed."""

    tag: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LatestCheckpoint:
    """A thread's newest checkpoint: its messages, and what a step that was cut off had written."""

    ts: str
    metadata: Mapping[str, Any]
    messages: Any
    writes: Sequence[TypedBytes]


class Tables(Protocol):
    """The rows of a saver in one kind of database, of root graphs only."""

    def heads(self) -> list[ThreadRef]: ...

    def newest(self, thread_id: str) -> LatestCheckpoint: ...

    def past(self, thread_id: str) -> Iterator[tuple[str, Any]]:
        """Times and packed messages of checkpoints, oldest first."""
        ...

    def close(self) -> None: ...


class CheckpointSource:
    """A LangGraph app's threads: of each, the newest checkpoint of the root graph."""

    user_from = "metadata.user_id"
    is_live = True

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def heads(self) -> list[ThreadRef]:
        return self.tables.heads()

    def load(self, head: ThreadRef) -> SourceThread:
        try:
            return self._conversation(head.id)
        except _BROKEN as error:
            if isinstance(error, UnreadableError):
                raise
            raise UnreadableError(
                f"Its newest checkpoint cannot be read ({type(error).__name__})."
            ) from error

    def close(self) -> None:
        self.tables.close()

    def _conversation(self, thread_id: str) -> SourceThread:
        newest = self.tables.newest(thread_id)
        messages = load_messages(newest.messages)
        keys = [_key(each) for each in _listed(newest.messages)]
        written = [message for write in newest.writes for message in load_messages(unpack(write))]
        pending = [m for m in written if isinstance(m, ToolMessage) and m.id not in keys]
        if newest.messages is None:
            delta = "counters_since_delta_snapshot" in newest.metadata
            why = "keeps them in a DeltaChannel, which is not read" if delta else "has none"
            raise UnreadableError(f"It {why}: its newest checkpoint holds no {CHANNEL!r}.")
        seen = _first_seen(self.tables.past(thread_id))
        last = _moment(newest.ts)
        times = [
            created_at(message) or seen.get(key, last)
            for message, key in zip(messages, keys, strict=True)
        ]
        facts = {"metadata": newest.metadata, "thread_id": thread_id}
        return SourceThread(messages, times, facts, pending)


def unpack(typed: TypedBytes) -> Any:
    """What a saver stored, with objects still packed; `UnreadableError` for a format that only its
    app can read.
    """
    kind, data = typed
    if "+" in kind:
        raise UnreadableError(encryption_error(kind))
    if kind == "msgpack":
        return ormsgpack.unpackb(data, ext_hook=_Packed, option=ormsgpack.OPT_NON_STR_KEYS)
    if kind in ("json", "null"):
        return _SAFE.loads_typed(typed)
    raise UnreadableError(
        f"It is stored as {kind!r} by its app's own serializer; 'msgpack' and 'json' can be read."
    )


def encryption_error(kind: str) -> str:
    return (
        f"It is encrypted ({kind.partition('+')[2]}) with a key of its app. Let the app store its "
        "threads again with a saver that does not encrypt, and migrate from there."
    )


def messages_in(checkpoint: Any) -> Any:
    """The messages of a checkpoint that is stored as a whole; None if it has no such channel."""
    return checkpoint["channel_values"].get(CHANNEL)


def sample(sizes: Sequence[tuple[str, int]]) -> list[str]:
    """The names to read, evenly spread, so that their sizes stay within `PAST_BYTES`."""
    stride = 1 + sum(size for _, size in sizes) // PAST_BYTES
    return [name for name, _ in sizes[::-stride]][::-1]


def _first_seen(past: Iterable[tuple[str, Any]]) -> dict[Any, datetime]:
    """When each message was first stored."""
    seen: dict[Any, datetime] = {}
    names: dict[Any, Any] = {}  # all later checkpoints hold the same bytes
    for ts, messages in past:
        moment = _moment(ts)
        for each in _listed(messages) if moment else ():
            name = names.get(each) if isinstance(each, _Packed) else _key(each)
            if name is None:
                name = names[each] = _key(each)
            if moment is not None:
                seen.setdefault(name, moment)
    return seen


def _listed(messages: Any) -> list[Any]:
    if isinstance(messages, _Packed) and messages.tag == _DELTA:
        return _listed(unpack(("msgpack", messages.data)))
    if messages is None:
        return []
    # A tuple of two is a message, too: ("user", "Hello!").
    return [*messages] if isinstance(messages, list) else [messages]


def load_messages(messages: Any) -> list[BaseMessage]:
    """Stored messages as objects; for classes that are not known to be safe, as far as possible."""
    return [_message(each) for each in _listed(messages)]


def _message(stored: Any) -> BaseMessage:
    if isinstance(stored, _Packed):
        packed = ormsgpack.packb(ormsgpack.Ext(*stored))
        stored = _SAFE.loads_typed(("msgpack", packed))
    if isinstance(stored, dict) and "role" not in stored:  # an unknown class
        [message] = messages_from_dict([{"type": stored["type"], "data": stored}])
        return message
    [message] = convert_to_messages([stored])
    return message


def _key(stored: Any) -> Any:
    """The identity of a message in its thread: its id, or all of it."""
    if isinstance(stored, BaseMessage):
        return stored.id or stored.model_dump_json()
    if isinstance(stored, _Packed):
        fields = ormsgpack.unpackb(
            stored.data, ext_hook=_Packed, option=ormsgpack.OPT_NON_STR_KEYS
        )[2]
        return (isinstance(fields, dict) and fields.get("id")) or stored
    return repr(stored)


def _moment(ts: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(ts) if isinstance(ts, str) else None
    except ValueError:
        return None
    return moment if moment and moment.tzinfo else None

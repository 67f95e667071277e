"""Conversations in LangGraph's checkpoints, as the official savers keep them.

Owns the content of a checkpoint, how messages are dated, and the tables of the SQLite savers;
`postgres_checkpoints` has those of PostgreSQL. Objects of other channels are never constructed, and
of the messages only types that LangGraph itself calls safe.
"""

import json
import sqlite3
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import ormsgpack
from langchain_core.messages import (
    BaseMessage,
    ToolMessage,
    convert_to_messages,
    messages_from_dict,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from segue.errors import BackendError, UsageError
from segue.migrate.legacy import created_at, parse_moment
from segue.migrate.sources import Source, SourceThread, ThreadRef, UnreadableError

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
_BUSY_SECONDS: Final = 30.0


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


class CheckpointSource(Source):
    """A LangGraph app's threads: of each, the newest checkpoint of the root graph."""

    user_from = "metadata.user_id"
    is_live = True

    def load(self, head: ThreadRef) -> SourceThread:
        try:
            return self._conversation(head.id)
        except UnreadableError:
            raise
        except _BROKEN as error:
            raise UnreadableError(
                f"Its newest checkpoint cannot be read ({type(error).__name__})."
            ) from error

    def _conversation(self, thread_id: str) -> SourceThread:
        newest = self._newest(thread_id)
        messages = load_messages(newest.messages)
        keys = [_key(each) for each in _listed(newest.messages)]
        written = [message for write in newest.writes for message in load_messages(unpack(write))]
        pending = [m for m in written if isinstance(m, ToolMessage) and m.id not in keys]
        if newest.messages is None:
            delta = "counters_since_delta_snapshot" in newest.metadata
            why = "keeps them in a DeltaChannel, which is not read" if delta else "has none"
            raise UnreadableError(f"It {why}: its newest checkpoint holds no {CHANNEL!r}.")
        seen = _first_seen(self._past(thread_id))
        last = parse_moment(newest.ts)
        times = [
            created_at(message) or seen.get(key, last)
            for message, key in zip(messages, keys, strict=True)
        ]
        facts = {"metadata": newest.metadata, "thread_id": thread_id}
        return SourceThread(messages, times, facts, pending)

    def _past(self, thread_id: str) -> Iterator[tuple[str, Any]]:
        """Times and packed messages of readable checkpoints, oldest first, within `PAST_BYTES`."""
        versions = self._versions(thread_id)
        stride = 1 + sum(version[1] for version in versions) // PAST_BYTES
        for version in versions[::-stride][::-1]:
            with suppress(*_BROKEN):  # it only dates messages
                yield self._stored(thread_id, version)

    @abstractmethod
    def _newest(self, thread_id: str) -> LatestCheckpoint: ...

    @abstractmethod
    def _versions(self, thread_id: str) -> list[Any]:
        """Rows with the name and the size of each version of the messages, oldest first."""

    @abstractmethod
    def _stored(self, thread_id: str, version: Any) -> tuple[str, Any]:
        """The time and the packed messages of a row of `_versions`."""


class SqliteSource(CheckpointSource):
    """A file of `SqliteSaver` or `AsyncSqliteSaver`, opened read-only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A log that exists already belongs to an app that runs or was killed: keep it.
        self._log = Path(f"{path.absolute()}-wal")
        self._is_log_ours = not self._log.exists()
        self._db = self._connect("ro")
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def heads(self) -> list[ThreadRef]:
        rows = self._rows(
            "SELECT thread_id, id, (SELECT count(*) FROM writes WHERE writes.thread_id = "
            "newest.thread_id AND checkpoint_ns = '' AND checkpoint_id = id AND channel = ?) "
            "FROM (SELECT thread_id, max(checkpoint_id) AS id FROM checkpoints "
            "WHERE checkpoint_ns = '' GROUP BY thread_id) AS newest ORDER BY thread_id",
            CHANNEL,
        )
        return [ThreadRef(thread, f"{checkpoint}+{writes}") for thread, checkpoint, writes in rows]

    def close(self) -> None:
        """Also removes the log that SQLite creates for reading, if there was none before."""
        self._db.close()
        if not self._is_log_ours or not self._log.exists():
            return
        # A read-only connection leaves the log. One that may write removes it if no other is open;
        # SQLite's own locks decide, so an app that started meanwhile loses nothing.
        with suppress(sqlite3.Error), closing(self._connect("rw")) as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def _newest(self, thread_id: str) -> LatestCheckpoint:
        [(checkpoint_id, kind, data, metadata)] = self._rows(
            "SELECT checkpoint_id, type, checkpoint, metadata FROM checkpoints "
            "WHERE thread_id = ? AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1",
            thread_id,
        )
        writes = self._rows(
            "SELECT type, value FROM writes WHERE thread_id = ? AND checkpoint_ns = '' "
            "AND checkpoint_id = ? AND channel = ? ORDER BY task_id, idx",
            thread_id,
            checkpoint_id,
            CHANNEL,
        )
        ts, messages = _content(unpack((kind, data)))
        return LatestCheckpoint(ts, json.loads(metadata) if metadata else {}, messages, writes)

    def _versions(self, thread_id: str) -> list[Any]:
        return self._rows(
            "SELECT checkpoint_id, length(checkpoint) FROM checkpoints "
            "WHERE thread_id = ? AND checkpoint_ns = '' ORDER BY checkpoint_id",
            thread_id,
        )

    def _stored(self, thread_id: str, version: Any) -> tuple[str, Any]:
        [typed] = self._rows(
            "SELECT type, checkpoint FROM checkpoints "
            "WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ?",
            thread_id,
            version[0],
        )
        return _content(unpack(typed))

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            check_same_thread=False,
        )

    def _check(self) -> None:
        try:
            writes = self._db.execute("PRAGMA table_info(writes)").fetchall()
            columns = {row[1] for row in self._db.execute("PRAGMA table_info(checkpoints)")}
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{str(self._path)!r} cannot be read as SQLite: {error}.") from error
        if not writes or not {"thread_id", "checkpoint_ns", "checkpoint"} <= columns:
            raise UsageError(
                f"{str(self._path)!r} is a SQLite file, but has no checkpoints of LangGraph: it "
                "was not made by SqliteSaver or AsyncSqliteSaver."
            )
        for (kind,) in self._rows("SELECT type FROM checkpoints LIMIT 1"):
            check_encryption(kind, repr(str(self._path)))

    def _rows(self, sql: str, *values: str) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise BackendError(f"SQLite file {str(self._path)!r}: {error}.") from error


def unpack(typed: TypedBytes) -> Any:
    """What a saver stored, objects still packed; `UnreadableError` if only its app can read it."""
    kind, data = typed
    check_encryption(kind)
    if kind == "msgpack":
        return _unpacked(data)
    if kind in ("json", "null"):
        return _SAFE.loads_typed(typed)
    raise UnreadableError(
        f"It is stored as {kind!r} by its app's own serializer; 'msgpack' and 'json' can be read."
    )


def _unpacked(data: bytes) -> Any:
    return ormsgpack.unpackb(data, ext_hook=_Packed, option=ormsgpack.OPT_NON_STR_KEYS)


def check_encryption(kind: str, source: str = "") -> None:
    """`UnreadableError` for what is stored encrypted; it names the source, if one is given."""
    if "+" in kind:
        raise UnreadableError(
            f"{source}{': ' if source else ''}It is encrypted ({kind.partition('+')[2]}) with a "
            "key of its app. Let the app store its threads again with a saver that does not "
            "encrypt, and migrate from there."
        )


def _content(checkpoint: Any) -> tuple[str, Any]:
    """The time and the messages of a whole checkpoint; None if it has no such channel."""
    return checkpoint["ts"], checkpoint["channel_values"].get(CHANNEL)


def _first_seen(past: Iterable[tuple[str, Any]]) -> dict[Any, datetime]:
    """When each message was first stored."""
    seen: dict[Any, datetime] = {}
    names: dict[Any, Any] = {}  # all later checkpoints hold the same bytes
    for ts, messages in past:
        moment = parse_moment(ts)
        if moment is None:
            continue
        for each in _listed(messages):
            name = names.get(each) if isinstance(each, _Packed) else _key(each)
            if name is None:
                name = names[each] = _key(each)
            seen.setdefault(name, moment)
    return seen


def _listed(messages: Any) -> list[Any]:
    if isinstance(messages, _Packed) and messages.tag == _DELTA:
        return _listed(_unpacked(messages.data))
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
        fields = _unpacked(stored.data)[2]
        return (isinstance(fields, dict) and fields.get("id")) or stored
    return repr(stored)

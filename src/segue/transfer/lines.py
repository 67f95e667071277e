"""The lines of an export: pure, from a row to its line and back.

A line is one JSON object with a `type`. The same rows give the same bytes, from every database.
Invalid data raises `FormatError`; the reader adds the line number to its text.
"""

import base64
import binascii
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, cast

from segue.core.snowflake import MAX_ID, TEXT_WIDTH
from segue.core.text import is_deeper, is_name, name_rule
from segue.errors import UsageError
from segue.journal.records import NESTING, EffectState, TimerKind, TimerState, TurnKind, TurnState
from segue.journal.rows import PREVIEW_LENGTH, aware, read_json, to_json
from segue.journal.tables import (
    DECISIONS,
    EFFECTS,
    MEMORIES,
    MESSAGES,
    STATES,
    SUMMARIES,
    THREADS,
    TIMERS,
    TURNS,
    USERS,
    Column,
    Form,
    Row,
    Table,
)

FORMAT: Final = "segue-export"
VERSION: Final = 1
ExportKind = Literal["user", "full"]
Line = dict[str, Any]

# The type of a table's lines; a line of messages holds a batch.
TYPES: Final[Mapping[str, Table]] = {
    "thread": THREADS,
    "batch": MESSAGES,
    "summary": SUMMARIES,
    "turn": TURNS,
    "timer": TIMERS,
    "decision": DECISIONS,
    "effect": EFFECTS,
    "state": STATES,
    "preferences": USERS,
    "memory": MEMORIES,
}
NAMES: Final[Mapping[str, str]] = {table.name: name for name, table in TYPES.items()}

# Columns beside the message itself, which has its own place.
_IN_MESSAGE: Final = frozenset({"position", "batch", "sequence_num", "body"})
BESIDE_MESSAGE: Final = tuple(c for c in MESSAGES.read if c.name not in _IN_MESSAGE)
# The API takes 64 levels; a stored message adds a few of its own.
DEEPEST: Final = 100
_LONGEST_TITLE: Final = 200
_LONGEST_THREAD: Final = 1_000
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?!24)[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")


class FormatError(UsageError):
    """A file that is not an export, is damaged, or has a newer version."""

    code = "export_format"


class _Rule(NamedTuple):
    """Which values a column takes beyond its form; names and texts have the API's limits."""

    allows: Callable[[str], bool]
    expected: str


def _is_thread(text: str) -> bool:
    """A name, or the names of a thread and of the agents that were asked in it."""
    return len(text) <= _LONGEST_THREAD and all(map(is_name, text.split(NESTING)))


def _at_most(longest: int) -> _Rule:
    return _Rule(lambda text: len(text) <= longest, f"at most {longest} characters")


def _one_of(values: Iterable[str]) -> _Rule:
    allowed = frozenset(values)
    return _Rule(allowed.__contains__, f"one of: {', '.join(sorted(allowed))}")


_NAME: Final = _Rule(is_name, name_rule())
_RULES: Final[Mapping[tuple[str, str], _Rule]] = {
    ("threads", "id"): _Rule(_is_thread, name_rule()),
    ("threads", "agent_id"): _NAME,
    ("threads", "user_id"): _NAME,
    ("threads", "title"): _at_most(_LONGEST_TITLE),
    ("threads", "preview"): _at_most(PREVIEW_LENGTH),
    ("messages", "client_message_id"): _NAME,
    ("users", "user_id"): _NAME,
    ("memories", "agent_id"): _NAME,
    ("memories", "user_id"): _NAME,
    ("memories", "key"): _NAME,
    # Leases are not exported, so no row of a file is claimed.
    ("turns", "kind"): _one_of(TurnKind),
    ("turns", "state"): _one_of({*TurnState} - {TurnState.RUNNING}),
    ("timers", "kind"): _one_of(TimerKind),
    ("timers", "state"): _one_of({*TimerState} - {TimerState.CLAIMED}),
    ("effects", "state"): _one_of({*EffectState} - {EffectState.CLAIMED}),
}


class ExportWriter:
    """Writes the lines of one export, and counts and digests them."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(sorted(self._counts.items()))

    def header(self, kind: ExportKind, created_at: datetime) -> bytes:
        version = {"format": FORMAT, "version": VERSION}
        return self._write("header", {**version, "kind": kind, "created_at": to_time(created_at)})

    def line(self, type: str, fields: Mapping[str, Any]) -> bytes:
        self._counts[type] += 1
        return self._write(type, fields)

    def batch(self, thread_id: str, rows: Sequence[Row]) -> bytes:
        """A whole batch in one line, so that no batch can be cut in two."""
        self._counts["message"] += len(rows)
        place = {"thread_id": thread_id, "batch": to_id(rows[0]["batch"])}
        messages = [{**encoded(BESIDE_MESSAGE, row), "message": row["body"]} for row in rows]
        return self.line("batch", {**place, "messages": messages})

    def row(self, table: Table, row: Row, thread_id: str | None = None) -> bytes:
        place = {} if thread_id is None else {"thread_id": thread_id}
        return self.line(NAMES[table.name], {**place, **encoded(table.read, row)})

    def footer(self) -> bytes:
        """The last line: counts by type, and the digest of all lines before."""
        digest = self._digest.hexdigest()
        return self._write("footer", {"counts": self.counts, "sha256": digest})

    def _write(self, type: str, fields: Mapping[str, Any]) -> bytes:
        line = to_json({"type": type, **fields}).encode() + b"\n"
        self._digest.update(line)
        return line


def encoded(columns: Sequence[Column], row: Row) -> Line:
    return {column.name: _encoded(column, row[column.name]) for column in columns}


def decoded(table: Table, line: Line, columns: Sequence[Column] | None = None) -> dict[str, Any]:
    """The row of a line; each column must be there and have its form."""
    return {column.name: _decoded(table, column, line) for column in (columns or table.read)}


def to_id(number: int) -> str:
    """An id as text, since JavaScript rounds large numbers; 0 means none yet."""
    return f"{number:0{TEXT_WIDTH}d}"


def to_time(moment: datetime) -> str:
    return f"{aware(moment).astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z"


def parse_line(raw: bytes) -> Line:
    """The object of a line, or `FormatError`."""
    if not raw.endswith(b"\n"):
        raise FormatError("is cut off; the file is not complete.")
    try:
        line = read_json(raw)
    except (ValueError, RecursionError):
        raise FormatError("is not JSON.") from None
    if not isinstance(line, dict) or not isinstance(line.get("type"), str):
        raise FormatError("is not an object with a type.")
    return line


def check_header(line: Line) -> ExportKind:
    """The kind of an export by its first line."""
    if line["type"] != "header" or line.get("format") != FORMAT:
        raise FormatError(f"is not the header of a {FORMAT}; is it another file?")
    version, kind = line.get("version"), line.get("kind")
    if type(version) is not int or version < 1:
        raise FormatError(f"has version {version!r:.40}; expected a whole number.")
    if version > VERSION:
        raise FormatError(
            f"has version {version}, and this version of Segue reads up to {VERSION}. Install a "
            "newer one."
        )
    if kind not in ("user", "full"):
        raise FormatError(f"has kind {kind!r:.40}; expected user or full.")
    return cast("ExportKind", kind)


def _encoded(column: Column, value: Any) -> Any:
    return None if value is None else _CODECS[column.form].encode(value)


def _decoded(table: Table, column: Column, line: Line) -> Any:
    if column.name not in line:
        raise FormatError(f"has no {column.name!r}.")
    value = line[column.name]
    if value is None and column.nullable:
        return None
    if isinstance(value, dict | list) and is_deeper(value, DEEPEST):
        raise FormatError(
            f"has a value as {column.name!r} that is nested too deeply; expected at most {DEEPEST} "
            "levels."
        )
    codec = _REASONS if column.name == "reasons" else _CODECS[column.form]
    try:
        found = codec.decode(value)
    except (ValueError, TypeError, OverflowError):
        raise FormatError(
            f"has {value!r:.60} as {column.name!r}; expected {codec.expected}."
        ) from None
    rule = _RULES.get((table.name, column.name))
    if rule is not None and not rule.allows(found):
        raise FormatError(f"has {found!r:.60} as {column.name!r}; expected {rule.expected}.")
    return found


def _text(value: Any) -> str:
    """Text that every database takes: without NUL and lone surrogates."""
    found: str = _of(str)(value)
    if "\0" in found:
        raise ValueError
    found.encode()  # raises a ValueError
    return found


def _object(value: Any) -> dict[str, Any]:
    """A JSON object without lone surrogates, which databases refuse."""
    found: dict[str, Any] = _of(dict)(value)
    for text in found.values():
        if isinstance(text, str):
            text.encode()  # raises a ValueError
    return found


def _of(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        return value

    return check


def _from_id(value: Any) -> int:
    is_one = isinstance(value, str) and len(value) == TEXT_WIDTH and value.isascii()
    # At most half of the range: a larger id would leave no room for later ones.
    if not is_one or not value.isdigit() or int(value) > MAX_ID // 2:
        raise ValueError
    return int(value)


def _from_time(value: Any) -> datetime:
    # In one form only, so that it is exported again as it was read.
    if not _TIME.fullmatch(value):
        raise ValueError
    return aware(datetime.fromisoformat(value))


def _from_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError from None


def _to_vector(vector: Any) -> str:
    import numpy as np  # noqa: PLC0415 - slow to import, and only memories have vectors

    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


def _from_vector(value: Any) -> Any:
    import numpy as np  # noqa: PLC0415 - see `_to_vector`

    vector = np.frombuffer(_from_base64(value), dtype="<f4")
    if not vector.size or not np.isfinite(vector).all():
        raise ValueError
    return vector


class _Codec(NamedTuple):
    """How a column is written to a line and read from it; `decode` raises for a wrong value."""

    expected: str
    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any] = lambda value: value


_CODECS: Final[Mapping[Form, _Codec]] = {
    Form.TEXT: _Codec("text of whole characters, without NUL", _text),
    Form.ID: _Codec(f"{TEXT_WIDTH} digits", _from_id, to_id),
    Form.IDS: _Codec(
        f"a list of {TEXT_WIDTH} digits each",
        lambda ids: [*map(_from_id, _of(list)(ids))],
        lambda ids: [*map(to_id, ids)],
    ),
    Form.NUMBER: _Codec("a whole number", _of(int)),
    Form.FLAG: _Codec("true or false", _of(bool)),
    Form.TIME: _Codec("a time such as 2027-01-15T08:00:00.000000Z", _from_time, to_time),
    Form.JSON: _Codec("an object of whole characters", _object),
    Form.BYTES: _Codec("base64", _from_base64, lambda value: base64.b64encode(value).decode()),
    Form.VECTOR: _Codec("32-bit numbers in base64", _from_vector, _to_vector),
}
_REASONS: Final = _Codec("a list of texts", lambda value: [*map(_of(str), _of(list)(value))])

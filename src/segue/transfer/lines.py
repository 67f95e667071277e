"""The lines of an export: pure, from a row to its line and back.

A line is one JSON object with a `type`. The same rows are the same bytes, whatever database they
come from. What cannot be right raises `FormatError`, whose words are completed by who knows which
line it is.
"""

import base64
import binascii
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import numpy as np

from segue.core.errors import UsageError
from segue.core.snowflake import MAX_ID, TEXT_WIDTH
from segue.journal.records import EffectState, TimerState, TurnKind, TurnState
from segue.journal.rows import aware, to_json
from segue.journal.tables import (
    DECISIONS,
    EFFECTS,
    MEMORIES,
    MESSAGES,
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
Kind = Literal["user", "full"]
Line = dict[str, Any]

# What a line of a table is called; messages come by the batch.
TYPES: Final[Mapping[str, Table]] = {
    "thread": THREADS,
    "batch": MESSAGES,
    "summary": SUMMARIES,
    "turn": TURNS,
    "timer": TIMERS,
    "decision": DECISIONS,
    "effect": EFFECTS,
    "preferences": USERS,
    "memory": MEMORIES,
}
NAMES: Final[Mapping[str, str]] = {table.name: name for name, table in TYPES.items()}

# What a line says of a message beside the message, in which its place stands.
_IN_MESSAGE: Final = frozenset({"position", "batch", "sequence_num", "body"})
BESIDE_MESSAGE: Final = tuple(c for c in MESSAGES.read if c.name not in _IN_MESSAGE)
_KINDS: Final = frozenset(TurnKind) - {TurnKind.REPLY}
# Nothing is in anybody's hands in a file.
_WORDS: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("turns", "kind"): frozenset(TurnKind),
    ("turns", "state"): frozenset(TurnState) - {TurnState.RUNNING},
    ("timers", "kind"): _KINDS,
    ("timers", "state"): frozenset(TimerState) - {TimerState.CLAIMED},
    ("effects", "state"): frozenset(EffectState) - {EffectState.CLAIMED},
}


class FormatError(UsageError):
    """A file that is no export, is damaged, or is of a newer version."""

    code = "export_format"


class Writing:
    """Makes the lines of one export, and counts and digests what it made."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(sorted(self._counts.items()))

    def header(self, kind: Kind, created_at: datetime) -> bytes:
        version = {"format": FORMAT, "version": VERSION}
        return self._made("header", {**version, "kind": kind, "created_at": to_time(created_at)})

    def line(self, type: str, fields: Mapping[str, Any]) -> bytes:
        self._counts[type] += 1
        return self._made(type, fields)

    def batch(self, thread_id: str, rows: Sequence[Row]) -> bytes:
        """A whole batch in one line, so that none can be cut in two."""
        self._counts["message"] += len(rows)
        place = {"thread_id": thread_id, "batch": to_id(rows[0]["batch"])}
        return self.line("batch", {**place, "messages": [_message(row) for row in rows]})

    def row(self, table: Table, row: Row, thread_id: str | None = None) -> bytes:
        place = {} if thread_id is None else {"thread_id": thread_id}
        return self.line(NAMES[table.name], {**place, **encoded(table.read, row)})

    def footer(self) -> bytes:
        """The last line: how many there are of each type, and the digest of all before."""
        sum_of_all = self._digest.hexdigest()
        return self._made("footer", {"counts": self.counts, "sha256": sum_of_all})

    def _made(self, type: str, fields: Mapping[str, Any]) -> bytes:
        made = to_json({"type": type, **fields}).encode() + b"\n"
        self._digest.update(made)
        return made


def _message(row: Row) -> Line:
    return {**encoded(BESIDE_MESSAGE, row), "message": row["body"]}


def encoded(columns: Sequence[Column], row: Row) -> Line:
    return {column.name: _encoded(column, row[column.name]) for column in columns}


def decoded(table: Table, line: Line, columns: Sequence[Column] | None = None) -> dict[str, Any]:
    """The row of a line; each column has to be there and of its form."""
    return {column.name: _decoded(table, column, line) for column in (columns or table.read)}


def to_id(number: int) -> str:
    """Ids as text, since JavaScript rounds them; 0 stands for none yet."""
    return f"{number:0{TEXT_WIDTH}d}"


def to_time(moment: datetime) -> str:
    return f"{aware(moment).astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z"


def parse_line(raw: bytes) -> Line:
    """The object of a line, or `FormatError`."""
    if not raw.endswith(b"\n"):
        raise FormatError("is cut off; the file is not whole.")
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        raise FormatError("is no JSON.") from None
    if not isinstance(line, dict) or not isinstance(line.get("type"), str):
        raise FormatError("is no object with a type.")
    return line


def check_header(line: Line) -> Kind:
    """The kind of an export by its first line."""
    if line["type"] != "header" or line.get("format") != FORMAT:
        raise FormatError(f"is no header of a {FORMAT}; is it another file?")
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
    of_kind: Kind = kind
    return of_kind


def _encoded(column: Column, value: Any) -> Any:
    return None if value is None else _TO_LINE.get(column.form, _same)(value)


def _decoded(table: Table, column: Column, line: Line) -> Any:
    if column.name not in line:
        raise FormatError(f"has no {column.name!r}.")
    value = line[column.name]
    if value is None and column.nullable:
        return None
    are_texts = column.name == "reasons"
    try:
        found = _texts(value) if are_texts else _FROM_LINE[column.form](value)
    except (ValueError, TypeError, OverflowError):
        expected = "a list of texts" if are_texts else _EXPECTED[column.form]
        raise FormatError(f"has {value!r:.60} as {column.name!r}; expected {expected}.") from None
    words = _WORDS.get((table.name, column.name))
    if words is not None and found not in words:
        raise FormatError(
            f"has {found!r:.60} as {column.name!r}; expected one of: {', '.join(sorted(words))}."
        )
    return found


def _same(value: Any) -> Any:
    return value


def _texts(value: Any) -> list[str]:
    return [_of(str)(text) for text in _of(list)(value)]


def _object(value: Any) -> dict[str, Any]:
    """A JSON object without half characters: a database that looks into it cannot read on."""
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
    # Half of all there are: a later one would be the last that fits.
    if not is_one or not value.isdigit() or int(value) > MAX_ID // 2:
        raise ValueError
    return int(value)


def _from_time(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    # In one way only, so that it is written again as it was read.
    if to_time(moment) != value:
        raise ValueError
    return moment


def _to_vector(vector: Any) -> str:
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


def _from_vector(value: Any) -> Any:
    try:
        vector = np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
    except binascii.Error:
        raise ValueError from None
    if not vector.size or not np.isfinite(vector).all():
        raise ValueError
    return vector


_TO_LINE: Final[Mapping[Form, Callable[[Any], Any]]] = {
    Form.ID: to_id,
    Form.IDS: lambda ids: [*map(to_id, ids)],
    Form.TIME: to_time,
    Form.VECTOR: _to_vector,
}
_FROM_LINE: Final[Mapping[Form, Callable[[Any], Any]]] = {
    Form.TEXT: _of(str),
    Form.ID: _from_id,
    Form.IDS: lambda ids: [*map(_from_id, _of(list)(ids))],
    Form.NUMBER: _of(int),
    Form.FLAG: _of(bool),
    Form.TIME: _from_time,
    Form.JSON: _object,
    Form.VECTOR: _from_vector,
}
_EXPECTED: Final[Mapping[Form, str]] = {
    Form.TEXT: "text",
    Form.ID: f"{TEXT_WIDTH} digits",
    Form.IDS: f"a list of {TEXT_WIDTH} digits each",
    Form.NUMBER: "a whole number",
    Form.FLAG: "true or false",
    Form.TIME: "a time such as 2027-01-15T08:00:00.000000Z",
    Form.JSON: "an object of whole characters",
    Form.VECTOR: "32-bit numbers in base64",
}

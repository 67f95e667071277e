"""What both databases do alike while they take in rows of an export."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, islice
from typing import Any, Final

from segue.core.errors import ConflictError
from segue.journal.places import check_past
from segue.journal.rows import to_json
from segue.journal.tables import (
    MEMORIES,
    THREADS,
    USERS,
    Column,
    Form,
    Restored,
    Row,
    Table,
    is_live_turn,
    whole,
)

_TOGETHER: Final = 512
Encode = Callable[[Any], Any]


class BatchTaken(ConflictError):
    """An id of the export is in use here."""

    code = "id_taken"


class DryRunOver(Exception):
    """All went well; nothing of it is to stay."""

    def __init__(self, restored: Restored) -> None:
        super().__init__("dry run")
        self.restored = restored


class Restoring:
    """Which thread is being written, and what was written and left alone so far."""

    def __init__(self, now: datetime, *, skip_existing: bool) -> None:
        self._now = now
        self.skip_existing = skip_existing
        self.live: dict[str, None] = {}
        self._thread: Row | None = None
        self._rows: Counter[str] = Counter()
        self._skipped: list[str] = []

    def taken(self, table: Table, chunk: Sequence[Row]) -> list[Row]:
        """The rows that are written, whole; of a thread that is left alone, none."""
        if table is THREADS:
            self._thread = chunk[0] if chunk else None
        if table.of_thread and self._thread is None:
            return []
        self._rows[table.name] += len(chunk)
        ids = [column.name for column in table.columns if column.form is Form.ID]
        for row in chunk:
            highest = max((row[name] or 0 for name in ids if name in row), default=0)
            check_past(highest, self._now, f"A row of {table.name}")
            if is_live_turn(table, row):
                self.live[row["thread_id"]] = None
        return [whole(table, row, self._thread) for row in chunk]

    def skip(self, thread_id: str) -> None:
        self._skipped.append(thread_id)

    def end(self, *, dry_run: bool) -> None:
        if dry_run:
            raise DryRunOver(self.restored)

    @property
    def restored(self) -> Restored:
        rows = {name: count for name, count in self._rows.items() if count}
        return Restored(rows, tuple(self._skipped))


def is_there(table: Table, row: Row, restoring: Restoring) -> bool:
    """Note that a row is there already; `ConflictError` unless such rows are left alone."""
    names = {
        THREADS.name: f"Thread {row.get('id')!r:.60} is",
        USERS.name: f"Preferences of user {row.get('user_id')!r:.60} are",
        MEMORIES.name: f"Memory {row.get('key')!r:.60} of user {row.get('user_id')!r:.60} is",
    }
    if not restoring.skip_existing:
        raise ConflictError(
            f"{names[table.name]} here already; skip what is here, or import under new ids. "
            "Nothing was imported."
        )
    if table is THREADS:
        restoring.skip(row["id"])
    return True


def batch_taken(batch: int) -> BatchTaken:
    return BatchTaken(
        f"Batch {batch} is here already, in another thread; import under new ids. "
        "Nothing was imported."
    )


def chunks(rows: Iterable[tuple[Table, Row]]) -> Iterator[tuple[Table, list[Row]]]:
    """Rows that are written at once: of one table, and threads one by one."""
    for _, group in groupby(rows, key=lambda pair: (pair[0].name, pair[1].get("thread_id"))):
        pairs = iter(group)
        for table, first in pairs:
            more = 0 if table is THREADS else _TOGETHER - 1
            yield table, [first, *(row for _, row in islice(pairs, more))]


def encoders_of(table: Table, forms: Mapping[Form, Encode]) -> list[tuple[str, Encode | None]]:
    """The columns that are written, and what makes their values those of the database.

    `forms` are those that only one database has; JSON is the same text in all of them.
    """
    known: Mapping[Form, Encode] = {
        Form.JSON: to_json,
        Form.IDS: to_json,
        Form.BODY: _body,
        **forms,
    }
    owner = [("thread_id", None)] if table.of_thread else []
    return owner + [(c.name, _or_none(c, known.get(c.form))) for c in table.columns]


def encoded(encoders: Iterable[tuple[str, Encode | None]], row: Row) -> list[Any]:
    return [row[name] if encode is None else encode(row[name]) for name, encode in encoders]


def _or_none(column: Column, encode: Encode | None) -> Encode | None:
    # A value of JSON may be null in itself.
    if encode is None or (column.form is Form.JSON and not column.nullable):
        return encode
    return lambda value: None if value is None else encode(value)


def _body(message: Any) -> str:
    return message if isinstance(message, str) else to_json(message)

"""Imports an export into a journal: all of it, or nothing."""

import asyncio
import json
import pickle
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, BinaryIO, Final

from segue.core.snowflake import (
    MAX_NODE,
    NODE_BITS,
    SEQUENCE_BITS,
    TEXT_WIDTH,
    SnowflakeSource,
    to_text,
)
from segue.errors import BackendError, ConflictError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import NESTING
from segue.journal.tables import (
    DECISIONS,
    EFFECTS,
    MESSAGES,
    THREADS,
    TIMERS,
    TURNS,
    Form,
    Restored,
    Row,
    Table,
)
from segue.journal.transfer import BatchTaken as BatchTaken  # noqa: PLC0414 - also for commands
from segue.transfer.lines import to_id
from segue.transfer.reader import ORDER, ExportReader

# Rows that are pickled at a time.
_CHUNK: Final = 256
_NUMBERS: Final = {table.name: number for number, table in enumerate(ORDER)}


class StagedFile:
    """All rows of a checked file, on the disk. `line` is the line number of the last row."""

    def __init__(self) -> None:
        with _disk_errors():
            self._rows = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self.line = 0

    def fill(self, file: BinaryIO, *, trusted: bool = False) -> None:
        """Check the whole file and keep its rows; `FormatError` at the line that is wrong."""
        reader = ExportReader(file, trusted=trusted)
        rows = ((reader.line, _NUMBERS[table.name], row) for table, row in reader.rows())
        while chunk := [*islice(rows, _CHUNK)]:
            self._keep(chunk)
        self._keep(None)  # the end

    def rows(self) -> Iterator[tuple[Table, Row]]:
        """All rows in their order, from the first one on."""
        self._rows.seek(0)
        while chunk := pickle.load(self._rows):  # noqa: S301 - written by this object alone
            for self.line, number, row in chunk:
                yield ORDER[number], row

    def close(self) -> None:
        with suppress(OSError):  # the disk was full
            self._rows.close()

    def _keep(self, chunk: list[tuple[int, int, Row]] | None) -> None:
        with _disk_errors():
            pickle.dump(chunk, self._rows, pickle.HIGHEST_PROTOCOL)
            if chunk is None:
                self._rows.flush()


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendError(
            f"The checked rows cannot be stored in {tempfile.gettempdir()!r}: {error.strerror}. "
            "Set TMPDIR to another folder. Nothing was imported."
        ) from error


# An id of 2012. In the JSON of these tables, a number from it to its thread's last id is an id.
_OLDEST: Final = 1 << 58
_WITH_IDS: Final = frozenset({TURNS.name, TIMERS.name, DECISIONS.name})
_PLACE: Final = ("position", "batch", "parent_batch")
# What users, programs and graphs gave: a number there is not an id of ours.
_GIVEN: Final = frozenset({"answer", "data", "questions", "text"})


class IdRemapper:
    """Gives threads new names and shifts all other ids by the same amount.

    An id is a time, a node and a sequence number. Moved by a few nodes' width, all ids differ, keep
    their order, and are less than a millisecond later, without a table of old and new ids.
    """

    def __init__(self, ids: SnowflakeSource) -> None:
        self._ids = ids
        # By the millisecond, so that copies of one thread rarely choose the same distance.
        nodes = 1 + (ids.next() >> (NODE_BITS + SEQUENCE_BITS)) % MAX_NODE
        self._distance = nodes << SEQUENCE_BITS
        self._last = 0
        self.names: dict[str, str] = {}

    def move_further(self) -> None:
        """Take the next distance, since some id at this one is in use."""
        self._distance += 1 << SEQUENCE_BITS

    def row(self, table: Table, row: Row) -> Row:
        if table is THREADS:
            self._last = row["last_position"]
        moved = {c.name: self._value(c.form, row[c.name]) for c in table.columns if c.name in row}
        if table is THREADS:
            moved["id"] = self._name(row["id"])
        if table.of_thread:
            moved["thread_id"] = self._name(row["thread_id"])
        if table is MESSAGES:
            moved["body"] = self._body(row["body"])
        if table.name in _WITH_IDS:
            moved |= {c.name: self._moved(row[c.name]) for c in table.read if c.form is Form.JSON}
        return moved

    def _value(self, form: Form, value: Any) -> Any:
        if form is Form.ID and value:
            return value + self._distance
        if form is Form.IDS:
            return [each + self._distance for each in value]
        return value

    def _name(self, thread_id: str) -> str:
        root, *nested = thread_id.split(NESTING)
        if root not in self.names:
            self.names[root] = to_text(self._ids.next())
        return NESTING.join([self.names[root], *nested])

    def _body(self, stored: str) -> Mapping[str, Any]:
        body = json.loads(stored)
        data = body["data"]
        kwargs = data["additional_kwargs"]
        places = {name: kwargs[name] + self._distance for name in _PLACE if kwargs.get(name)}
        return {**body, "data": {**data, "additional_kwargs": {**kwargs, **places}}}

    def _moved(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v if k in _GIVEN else self._moved(v) for k, v in value.items()}
        if isinstance(value, list):
            return [*map(self._moved, value)]
        if isinstance(value, str) and len(value) == TEXT_WIDTH and value.isascii():
            return to_id(self._moved(int(value))) if value.isdigit() else value
        if type(value) is int and _OLDEST <= value <= self._last:
            return value + self._distance
        return value


# How often the same file can be imported under new ids.
_TRIES: Final = 1_000


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to import. With `ids`, threads and all rows get new ids. A `trusted` file may contain
    what no user could send: system messages, URLs in content, and provider file ids.
    """

    ids: SnowflakeSource | None = None
    skip_existing: bool = False
    dry_run: bool = False
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Imported rows by table, the threads that were skipped, and the new names of the others, if
    they have new ids.
    """

    rows: Mapping[str, int]
    skipped: tuple[str, ...]
    renamed: Mapping[str, str]


async def import_file(
    journal: Journal, file: BinaryIO, options: ImportOptions, *, now: datetime
) -> ImportResult:
    """Check the whole file, then write all of it in one transaction.

    `FormatError` names the wrong line, `ConflictError` the data that exists already, `UsageError`
    an id in the future.
    """
    async with stage_file(file, trusted=options.trusted) as staged:
        return await import_staged(journal, staged, options, now=now)


@asynccontextmanager
async def stage_file(file: BinaryIO, *, trusted: bool = False) -> AsyncIterator[StagedFile]:
    """A checked file, for a caller that opens its journal only then."""
    with closing(StagedFile()) as staged:
        await asyncio.to_thread(staged.fill, file, trusted=trusted)
        yield staged


async def import_staged(
    journal: Journal, staged: StagedFile, options: ImportOptions, *, now: datetime
) -> ImportResult:
    """Write all of a checked file in one transaction; raises as `import_file` does."""
    remapper = None if options.ids is None else IdRemapper(options.ids)
    for _ in range(_TRIES):
        try:
            restored = await _restore(journal, staged, options, remapper, now)
        except BatchTaken:
            if remapper is None:
                raise
            remapper.move_further()
        else:
            names = {} if remapper is None else remapper.names
            return ImportResult(restored.rows, restored.skipped, names)
    raise ConflictError(f"This file was imported {_TRIES} times. Nothing was imported.")


async def _restore(
    journal: Journal,
    staged: StagedFile,
    options: ImportOptions,
    remapper: IdRemapper | None,
    now: datetime,
) -> Restored:
    def rows() -> Iterator[tuple[Table, Row]]:
        for table, row in staged.rows():  # from the first row on, since a step may be retried
            if remapper is None:
                yield table, row
            # A copy delivers nothing: the original does.
            elif table is not EFFECTS:
                yield table, remapper.row(table, row)

    try:
        return await journal.transfer.restore(
            rows, now=now, skip_existing=options.skip_existing, dry_run=options.dry_run
        )
    except (ConflictError, UsageError) as error:
        raise type(error)(f"Up to line {staged.line}: {error}") from error

"""Reads an export and refuses what is wrong with it, naming the line.

Rows come in the order of the file, one line in memory at a time. That the file is whole is known
at its end only: who writes rows commits after the last one.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from segue.core.errors import BackendError, UsageError
from segue.journal.rows import columns_of, decode_message, to_json
from segue.journal.tables import MEMORIES, MESSAGES, OF_THREAD, THREADS, USERS, Key, Row, Table
from segue.transfer.lines import (
    BESIDE_MESSAGE,
    TYPES,
    FormatError,
    Line,
    check_header,
    decoded,
    parse_line,
    to_id,
)

# Tables in the order of the file: threads with what belongs to them, then the rest.
ORDER: Final = (THREADS, *OF_THREAD, USERS, MEMORIES)


class Reading:
    """One pass over a file, from its beginning. `line` is the number of the one it is at."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._counts: Counter[str] = Counter()
        self._thread: str | None = None
        self._last: dict[str, Key] = {}
        self._stage = 0
        self.line = 0

    def rows(self) -> Iterator[tuple[Table, Row]]:
        """All rows, those of a thread with its id. `FormatError` at the line that is wrong."""
        self._file.seek(0)
        is_over = False
        for raw in self._file:
            self.line += 1
            try:
                if is_over:
                    raise FormatError("comes after the footer; expected nothing.")
                line = parse_line(raw)
                if line["type"] == "footer":
                    self._check_footer(line)
                    is_over = True
                    continue
                found = self._read(line)
            except UsageError as error:
                raise self._named(error) from error
            self._digest.update(raw)
            yield from found
        if not is_over:
            raise FormatError(
                f"The file ends after line {self.line} without a footer; it is not whole. "
                "Nothing was imported."
            )

    def _named(self, error: UsageError) -> FormatError:
        return FormatError(f"Line {self.line} {error} Nothing was imported.")

    def _read(self, line: Line) -> list[tuple[Table, Row]]:
        if self.line == 1:
            if check_header(line) != "full":
                raise FormatError(
                    "says that it is a user's export, which is for the user to keep; only a full "
                    "export holds what an import needs."
                )
            return []
        table = TYPES.get(line["type"])
        if table is None:
            raise FormatError(f"has the type {line['type']!r:.40}, which is not known.")
        self._counts[line["type"]] += 1
        self._check_stage(table)
        if table.of_thread:
            self._check_thread(line)
        rows = self._messages(line) if table is MESSAGES else [decoded(table, line)]
        for row in rows:
            self._check_rising(table, row)
        if table is THREADS:
            self._thread = rows[0]["id"]
        return [
            (table, {**row, "thread_id": self._thread} if table.of_thread else row) for row in rows
        ]

    def _messages(self, line: Line) -> list[dict[str, Any]]:
        told = line.get("messages")
        if not isinstance(told, list) or not told:
            raise FormatError("has no messages.")
        self._counts["message"] += len(told)
        rows = [_message_row(each) for each in told]
        if any(to_id(row["batch"]) != line.get("batch") for row in rows):
            raise FormatError("holds a message of another batch.")
        if len({row["message_id"] for row in rows}) < len(rows):
            raise FormatError("holds a message twice.")
        if len({row["archived"] for row in rows}) > 1:
            raise FormatError("says that a part of its batch has left the window.")
        return rows

    def _check_stage(self, table: Table) -> None:
        """Tables come in order; with a thread they begin anew."""
        stage = ORDER.index(table)
        if stage < self._stage and not (table is THREADS and self._stage <= len(OF_THREAD)):
            raise FormatError("is out of order.")
        self._stage = stage
        if table is THREADS:
            self._last = {k: v for k, v in self._last.items() if k == THREADS.name}

    def _check_thread(self, line: Line) -> None:
        named = line.get("thread_id")
        if self._thread is None or named != self._thread:
            raise FormatError(
                f"belongs to thread {named!r:.60}, which is unknown here; what belongs to a thread "
                "comes right after it."
            )

    def _check_rising(self, table: Table, row: Row) -> None:
        key = table.key_of(row)
        if key <= self._last.get(table.name, ()):
            raise FormatError(f"is a second {'/'.join(map(str, key))!r:.60}, or out of order.")
        self._last[table.name] = key

    def _check_footer(self, line: Line) -> None:
        if self.line == 1:
            raise FormatError("is a footer; expected a header.")
        if line.get("sha256") != self._digest.hexdigest():
            raise FormatError("has another sha256 than the lines before; the file was changed.")
        if line.get("counts") != dict(sorted(self._counts.items())):
            raise FormatError("counts other lines than those before; the file was changed.")


def _message_row(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict) or not isinstance(told.get("message"), dict):
        raise FormatError("holds a message that is none.")
    beside = decoded(MESSAGES, told, BESIDE_MESSAGE)
    body = told["message"]
    try:
        stored = to_json(body)
        # What follows from a message is not told: no file can say that a trigger is visible.
        columns = columns_of(decode_message(body))
    except (BackendError, UsageError) as error:
        raise FormatError(f"holds a message that cannot be read: {error}") from error
    return {**beside, **columns, "body": stored}

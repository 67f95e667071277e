"""Reads an export; an error names the line.

Rows come in the order of the file, one line in memory at a time. Only the end shows that the file
is complete, so an import commits after the last row. Messages that the API would refuse are
refused, too; a trusted file may hold system messages, addresses and provider file ids.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from segue.core.media import ReferenceKind, find_reference, media_in
from segue.core.text import LONGEST_MESSAGE_ID, is_deeper, is_name, name_rule
from segue.errors import BackendError, UsageError
from segue.journal.rows import columns_of, decode_message, parsed_to_json
from segue.journal.tables import MEMORIES, MESSAGES, OF_THREAD, THREADS, USERS, Key, Row, Table
from segue.transfer.lines import (
    BESIDE_MESSAGE,
    DEEPEST,
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
_REFERENCES: Final[Mapping[ReferenceKind, str]] = {
    ReferenceKind.ADDRESS: "has an address",
    ReferenceKind.FILE: "names a file of a provider",
}
_IF_TRUSTED: Final = "Only a trusted import (--trusted, or ?trusted=true) takes it."


class ExportReader:
    """One pass over a file. `line` is the number of the current line."""

    def __init__(self, file: BinaryIO, *, trusted: bool = False) -> None:
        self._file = file
        self._trusted = trusted
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
                text = f"Line {self.line} {error} Nothing was imported."
                raise FormatError(text) from error
            self._digest.update(raw)
            yield from found
        if not is_over:
            raise FormatError(
                f"The file ends after line {self.line} without a footer; it is not complete. "
                "Nothing was imported."
            )

    def _read(self, line: Line) -> list[tuple[Table, Row]]:
        if self.line == 1:
            if check_header(line) != "full":
                raise FormatError(
                    "is the header of a user's export; only a full export can be imported."
                )
            return []
        table = TYPES.get(line["type"])
        if table is None:
            raise FormatError(f"has the unknown type {line['type']!r:.40}.")
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
        messages = line.get("messages")
        if not isinstance(messages, list) or not messages:
            raise FormatError("has no messages.")
        self._counts["message"] += len(messages)
        rows = [_message_row(each, trusted=self._trusted) for each in messages]
        if any(to_id(row["batch"]) != line.get("batch") for row in rows):
            raise FormatError("contains a message of another batch.")
        if len({row["message_id"] for row in rows}) < len(rows):
            raise FormatError("contains a message twice.")
        if len({row["archived"] for row in rows}) > 1:
            raise FormatError("has a batch that is archived in part.")
        return rows

    def _check_stage(self, table: Table) -> None:
        """Tables come in order; each thread starts the order again."""
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
                f"belongs to thread {named!r:.60}, but does not follow that thread's line."
            )

    def _check_rising(self, table: Table, row: Row) -> None:
        key = table.key_of(row)
        if key <= self._last.get(table.name, ()):
            raise FormatError(f"repeats {'/'.join(map(str, key))!r:.60}, or is out of order.")
        self._last[table.name] = key

    def _check_footer(self, line: Line) -> None:
        if self.line == 1:
            raise FormatError("is a footer; expected a header.")
        if line.get("sha256") != self._digest.hexdigest():
            raise FormatError(
                "does not match the sha256 of the lines before; the file was changed."
            )
        if line.get("counts") != dict(sorted(self._counts.items())):
            raise FormatError(
                "does not match the counts of the lines before; the file was changed."
            )


def _message_row(given: Any, *, trusted: bool) -> dict[str, Any]:
    if not isinstance(given, dict) or not isinstance(given.get("message"), dict):
        raise FormatError("contains something that is not a message.")
    beside = decoded(MESSAGES, given, BESIDE_MESSAGE)
    body = given["message"]
    try:
        stored = parsed_to_json(body)
        # Most have fewer brackets than levels are allowed.
        if stored.count("{") + stored.count("[") > DEEPEST:
            _check_depth(body)
        # These columns follow from the message: no file can declare a trigger visible.
        message = decode_message(body)
        columns = columns_of(message)
    except (BackendError, UsageError) as error:
        raise FormatError(f"holds a message that cannot be read: {error}") from error
    try:
        _check_message(message, trusted=trusted)
    except UsageError as error:
        raise FormatError(f"holds a message that is refused: {error}") from error
    return {**beside, **columns, "body": stored}


def _check_depth(body: Mapping[str, Any]) -> None:
    """`UsageError` for a stored message that is nested too deeply to be shown."""
    data = body.get("data")
    # A tool may put anything into an artifact, which is never shown.
    shown = {**data, "artifact": None} if isinstance(data, dict) else data
    if is_deeper({**body, "data": shown}, DEEPEST):
        raise UsageError(f"it is nested too deeply; expected at most {DEEPEST} levels.")


def _check_message(message: BaseMessage, *, trusted: bool) -> None:
    """`UsageError` for a message that the API would refuse."""
    if not is_name(message.id, LONGEST_MESSAGE_ID):
        raise UsageError(f"its id is {message.id!r:.60}; expected {name_rule(LONGEST_MESSAGE_ID)}.")
    if not trusted:
        _check_content(message)


def _check_content(message: BaseMessage) -> None:
    if isinstance(message, SystemMessage):
        raise UsageError(
            f"it is a system message, which would join the agent's instructions. {_IF_TRUSTED}"
        )
    content = message.content
    # A model and a tool may contain URLs, such as their sources; a user's message may not.
    shown = content if isinstance(message, HumanMessage) else media_in(content)
    if (found := find_reference(shown)) is not None:
        raise UsageError(
            f"its content {_REFERENCES[found.kind]} in {found.name!r:.60}. {_IF_TRUSTED}"
        )

"""A file is checked once, and what was checked is what is written, as often as it takes."""

import io
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest

from segue.errors import BackendError
from segue.journal.journal import Journal
from segue.journal.tables import USERS, Restored, Row, Table
from segue.transfer.imports import ImportOptions, StagedFile, import_file
from segue.transfer.lines import ExportWriter, FormatError
from segue.transfer.reader import ExportReader
from tests.transfer.conftest import NewJournal
from tests.transfer.files import MADE_AT, full
from tests.transfer.tales import EVERYTHING, Tale

pytestmark = pytest.mark.anyio


class Faltering:
    """A journal whose first try fails in the middle, as where two wait for each other."""

    def __init__(self, between: Callable[[], object]) -> None:
        self._between = between
        self.transfer = self
        self.tries: list[list[tuple[Table, Row]]] = []

    async def restore(
        self, rows: Callable[[], Iterable[tuple[Table, Row]]], *, now: datetime, **options: bool
    ) -> Restored:
        del now, options
        first = iter(rows())
        self.tries.append([next(first) for _ in range(3)])
        self._between()
        self.tries.append([*rows()])
        return Restored({})


@pytest.fixture
async def data(new_journal: NewJournal) -> bytes:
    """An export in which there is something of every kind."""
    async with new_journal("sqlite") as journal:
        await (await Tale(journal).begin()).tell(EVERYTHING)
        return await full(journal)


def rows_of(data: bytes) -> list[tuple[int, str, Row]]:
    reading = ExportReader(io.BytesIO(data))
    return [(reading.line, table.name, row) for table, row in reading.rows()]


def plain(row: Row) -> dict[str, Any]:
    """A row whose vector can be compared."""
    return {name: str(value) if name == "embedding" else value for name, value in row.items()}


async def test_a_draft_has_every_row_with_its_line(data: bytes) -> None:
    """Of all tables, in their order, as they were read; a second look finds the same."""
    with closing(StagedFile()) as draft:
        draft.fill(io.BytesIO(data))
        for _ in range(2):
            found = [(draft.line, table.name, plain(row)) for table, row in draft.rows()]
            assert found == [(line, name, plain(row)) for line, name, row in rows_of(data)]


async def test_what_is_written_is_what_was_checked(data: bytes) -> None:
    """A step that is tried again begins anew, and a file that changes meanwhile changes nothing."""
    file = io.BytesIO(data)
    journal = Faltering(lambda: file.truncate(100))
    await import_file(cast("Journal", journal), file, ImportOptions(), now=MADE_AT)
    expected = [(name, plain(row)) for _, name, row in rows_of(data)]
    broken_off, whole = ([(t.name, plain(row)) for t, row in each] for each in journal.tries)
    assert broken_off == expected[:3]
    assert whole == expected


async def test_a_wrong_file_is_never_tried(data: bytes) -> None:
    """Its last line may be the one that is wrong; no row is given to the journal before."""
    journal = Faltering(lambda: None)
    cut = b"".join(data.splitlines(keepends=True)[:-1])
    with pytest.raises(FormatError, match="without a footer"):
        await import_file(cast("Journal", journal), io.BytesIO(cut), ImportOptions(), now=MADE_AT)
    assert journal.tries == []


async def test_without_room_for_what_was_checked_it_says_where(
    data: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The folder for temporary files is named, and how to name another."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    journal = Faltering(lambda: None)
    with pytest.raises(BackendError, match=r"gone.*TMPDIR"):
        await import_file(cast("Journal", journal), io.BytesIO(data), ImportOptions(), now=MADE_AT)
    assert journal.tries == []


def test_a_draft_needs_memory_for_some_rows() -> None:
    """Eight times the rows need no more of it, neither to be checked nor to be read."""
    few, many = (_peak(count) for count in (500, 4_000))
    assert many < few * 1.5


def _peak(count: int) -> int:
    """The most memory that a draft of so many rows had, without the file itself."""
    writing = ExportWriter()
    lines = [writing.header("full", MADE_AT)]
    for number in range(count):
        wishes = {"user_id": f"{number:09}", "settings": {"note": f"{number}" * 100}}
        lines.append(writing.row(USERS, {**wishes, "updated_at": MADE_AT}))
    file = io.BytesIO(b"".join([*lines, writing.footer()]))
    tracemalloc.start()
    try:
        with closing(StagedFile()) as draft:
            draft.fill(file)
            assert sum(1 for _ in draft.rows()) == count
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

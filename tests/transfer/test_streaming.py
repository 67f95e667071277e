"""However long a conversation is, a line or a page of it is in memory, and no batch is cut."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from segue.journal.journal import Journal
from segue.journal.tables import ALL, MESSAGES, Key, Row, Rows, Table, Whose
from segue.transfer.export import Scope, export_all
from segue.transfer.lines import ExportWriter
from segue.transfer.reader import ExportReader
from tests.transfer.conftest import NewJournal
from tests.transfer.files import MADE_AT, full, take_in
from tests.transfer.tales import Tale

pytestmark = pytest.mark.anyio

# A batch of two and then batches of four: a page of 500 ends in the middle of one.
LONG = ["say", "answer", *["say", "use_a_tool"] * 130]


class Counted:
    """A journal that counts the pages of messages that are read of it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.transfer = self
        self.pages = 0

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Rows]:
        async with self._journal.transfer.snapshot() as self._rows:
            yield cast("Rows", self)

    async def read_rows(
        self, table: Table, whose: Whose = ALL, *, after: Key | None = None, limit: int = 500
    ) -> Sequence[Row]:
        self.pages += table is MESSAGES
        return await self._rows.read_rows(table, whose, after=after, limit=limit)


class Tape:
    """A file of which one knows how far it was read."""

    def __init__(self, data: bytes) -> None:
        self._lines = data.splitlines(keepends=True)
        self.read = 0

    def seek(self, place: int) -> None:
        assert place == 0
        self.read = 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.read += 1
            yield line


async def test_an_export_reads_no_page_before_it_is_wanted(
    new_journal: NewJournal, kind: str
) -> None:
    """Its first lines are there after one page, and its batches are whole where a page ends."""
    async with new_journal(kind) as journal:
        await (await Tale(journal).begin()).tell(LONG)
        counted = Counted(journal)
        exported = export_all(cast("Journal", counted), Scope(), ExportWriter(), created_at=MADE_AT)
        lines = [json.loads(await anext(exported)) for _ in range(100)]
        assert counted.pages == 1
        lines += [json.loads(line) async for line in exported]
        assert counted.pages == 3  # the last one is empty
        batches = [line for line in lines if line["type"] == "batch"]
        assert [len(batch["messages"]) for batch in batches] == [2, *[4] * 130]
        for batch in (batches[0], batches[125], batches[-1]):
            stored = await journal.messages.load_batch("blue", int(batch["batch"]))
            told = [each["message"]["data"]["id"] for each in batch["messages"]]
            assert told == [message.id for message in stored.messages]


async def test_an_import_reads_no_line_before_it_is_wanted(new_journal: NewJournal) -> None:
    """One line is in memory, however many there are."""
    async with new_journal("sqlite") as journal:
        await (await Tale(journal).begin()).tell(LONG)
        tape = Tape(await full(journal))
    rows = ExportReader(cast("Any", tape)).rows()
    for expected in (2, 3, 3, 4):  # the thread, two messages of a batch, one of the next
        next(rows)
        assert tape.read == expected


async def test_a_long_thread_comes_back_byte_by_byte(new_journal: NewJournal, kind: str) -> None:
    """Also where what is read or written together ends in the middle of a batch."""
    async with new_journal(kind) as source, new_journal(kind) as target:
        await (await Tale(source).begin()).tell(LONG)
        data = await full(source)
        await take_in(target, data)
        assert await full(target) == data

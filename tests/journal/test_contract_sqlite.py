"""The journal's contract on a SQLite file."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from segue.journal.journal import Journal
from segue.journal.sqlite import SqliteJournal
from segue.stores import JOURNAL_FILE
from segue.testing.journal_contract import *  # noqa: F403 - brings every behaviour, new ones too
from segue.testing.journal_contract import OpenJournal


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is watched by looking at it, and a test need not wait half a second each time."""
    monkeypatch.setattr("segue.journal.sqlite._POLL_SECONDS", 0.02)


@pytest.fixture
async def open_journal(folder: str) -> AsyncIterator[OpenJournal]:
    async with AsyncExitStack() as opened:

        async def open_another() -> Journal:
            journal = SqliteJournal(Path(folder) / JOURNAL_FILE)
            await journal.open()
            opened.push_async_callback(journal.close)
            return journal

        yield open_another

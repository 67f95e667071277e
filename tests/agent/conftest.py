"""Stores for the agent's tests: real files."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from segue.agent.checkpoints.store import Checkpoints, SqliteCheckpoints
from segue.journal.journal import Journal
from segue.journal.sqlite import SqliteJournal


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.open()
    yield journal
    await journal.close()


@pytest.fixture
async def checkpoints(tmp_path: Path) -> AsyncIterator[Checkpoints]:
    opened = await SqliteCheckpoints(tmp_path / "runs.db").open()
    yield opened
    await opened.close()

"""The test a system makes of itself before it starts."""

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from segue.agent.checkpoints.selftest import check_integrity
from segue.core.batch import Batch
from segue.errors import BackendError
from segue.journal.messages import Messages
from segue.journal.sqlite import SqliteJournal
from tests.histories import ticking_generator
from tests.journal.stores import journal_at

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.open()
    yield journal
    await journal.close()


class ForgetfulSaver(InMemorySaver):
    """A saver that loses what it does not know."""

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        stored = await super().aget_tuple(config)
        assert stored is not None
        [message] = stored.checkpoint["channel_values"]["messages"]
        stored.checkpoint["channel_values"]["messages"] = [HumanMessage(message.content)]
        return stored


class RoundingMessages(Messages):
    """Keeps numbers as floats, as a careless JSON column would."""

    async def load_batch(self, thread_id: str, batch: int) -> Batch:
        loaded = await super().load_batch(thread_id, batch)
        kwargs = loaded.messages[0].additional_kwargs
        kwargs["large"] = int(float(kwargs["large"]))
        return loaded


async def test_sound_stores_pass_and_nothing_is_left(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    """With the real journal and the real saver a start goes on, and no trace remains."""
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        await check_integrity(journal, saver, ids=ticking_generator(), now=NOW)
        assert [stored async for stored in saver.alist(None)] == []
    assert await journal.nodes.last_position() == 0


async def test_a_test_that_passes_is_no_news(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What it hides in its own thread is not told to operators at each start."""
    journal = journal_at(address)
    await journal.open()
    try:
        with caplog.at_level(logging.DEBUG, logger="segue"):
            await check_integrity(journal, InMemorySaver(), ids=ticking_generator(), now=NOW)
    finally:
        await journal.close()
    [told] = [r for r in caplog.records if r.getMessage().startswith("Filtered 1 synthetic")]
    assert told.levelno == logging.DEBUG


async def test_a_saver_that_loses_metadata_stops_the_start(
    journal: SqliteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """A lost flag is an error in the log and an exception, not a trigger in the chat."""
    saver = ForgetfulSaver()
    with caplog.at_level(logging.ERROR), pytest.raises(BackendError, match="checkpointer changed"):
        await check_integrity(journal, saver, ids=ticking_generator(), now=NOW)
    assert "Checkpoint metadata integrity test failed" in caplog.text
    assert saver.storage == {}


async def test_a_journal_that_rounds_numbers_stops_the_start(tmp_path: Path) -> None:
    """A 64-bit number that comes back changed is found, and the thread is removed again."""
    journal = SqliteJournal(tmp_path / "journal.db")
    journal.messages = RoundingMessages(journal.db)
    await journal.open()
    try:
        with pytest.raises(BackendError, match="journal changed a message"):
            await check_integrity(journal, InMemorySaver(), ids=ticking_generator(), now=NOW)
        assert await journal.nodes.last_position() == 0
    finally:
        await journal.close()

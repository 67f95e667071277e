"""The promises about finding memories, held against real questions of real length."""

from pathlib import Path

import pytest

from evals.retrieval import DEPTHS, evaluate, find_data, load_data, opened
from segue.agent.embedders import load_embedder
from segue.errors import UsageError
from segue.journal.sqlite import SqliteJournal

pytestmark = pytest.mark.anyio


async def test_memories_are_found_with_and_without_a_trigger(tmp_path: Path) -> None:
    """Of 155 questions 95 % find their memory among five; no trigger changes a find, and nobody
    finds another person's memory.
    """
    folder = find_data()
    if folder is None:
        pytest.skip("the data of the eval are not here; SEGUE_DATA names their folder")
    try:
        embedder = load_embedder("local")
    except UsageError as error:
        pytest.skip(str(error))
    async with opened(SqliteJournal(tmp_path / "journal.db")) as journal:
        report = await evaluate(journal, embedder, load_data(folder), weights=())
    assert report.recalls["words and meaning"][DEPTHS.index(5)] >= 0.95
    assert report.same == 1.0
    assert report.foreign == 0.0

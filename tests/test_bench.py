"""The benchmarks write rows and files by hand; these must fit what the journal reads."""

from pathlib import Path

import pytest

from bench.stores import SqliteStore
from bench.threads import filled
from bench.transfer import measured

pytestmark = pytest.mark.anyio


async def test_a_thread_that_a_benchmark_fills_is_read_and_searched(tmp_path: Path) -> None:
    """As if its messages had come one by one."""
    store = SqliteStore(tmp_path / "store")
    await store.open()
    async with store.indexing_later():
        place = await filled(store, "ann", 100)
    page = await store.journal.messages.history(place.thread, limit=10)
    found = await store.journal.search.find("ann", "everyday")
    await store.close()
    assert (len(page.messages), bool(found)) == (10, True)


def test_the_export_of_a_benchmark_is_imported_whole() -> None:
    """It is written by hand, so each new column of an export has to be in it."""
    assert measured("", 400).size > 0

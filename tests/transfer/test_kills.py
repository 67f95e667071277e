"""Killed in the middle of an import: nothing of it is there, and it can be done again."""

from collections.abc import Callable

import pytest

from tests.journal.stores import ask, journal_at
from tests.transfer.conftest import NewJournal
from tests.transfer.files import full, take_in
from tests.transfer.importer import Importer
from tests.transfer.tales import EVERYTHING, Tale

pytestmark = pytest.mark.anyio
TABLES = ("threads", "messages", "turns", "timers", "decisions", "summaries", "memories", "users")


@pytest.mark.parametrize("share", [0.3, 0.95])
async def test_a_killed_import_leaves_nothing(
    new_journal: NewJournal, new_address: Callable[[str], str], kind: str, share: float
) -> None:
    """Wherever it was, all tables are empty, and the next import brings everything."""
    async with new_journal(kind) as source:
        await (await Tale(source).begin()).tell(EVERYTHING * 3)
        data = await full(source)
    address = new_address(kind)
    Importer(address, data, int(data.count(b"\n") * share)).kill()
    for table in TABLES:
        assert ask(address, f"SELECT count(*) FROM {table}") == [(0,)]  # noqa: S608 - ours
    journal = journal_at(address)
    await journal.open()
    await take_in(journal, data)
    assert await full(journal) == data
    await journal.close()

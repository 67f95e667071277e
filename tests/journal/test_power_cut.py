"""A power cut: what was acknowledged is on the disk, not only in the system's memory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from segue.journal.sqlite import SqliteJournal
from segue.journal.sqlite.database import Database

pytestmark = pytest.mark.anyio

FULL = 2
LIBRARY = Path(__file__).with_name("power_cut.c")
# Long enough that SQLite writes its log back into the file meanwhile.
WRITER = """
import asyncio, os, sys
from datetime import UTC, datetime
from segue import SnowflakeGenerator, user_message
from segue.journal.sqlite import SqliteJournal

async def write(path):
    journal, ids, now = SqliteJournal(path), SnowflakeGenerator(node=1), datetime.now(UTC)
    await journal.open()
    await journal.threads.create("chat", agent_id="guide", user_id="ada", now=now)
    for number in range(60):
        text = f"message {number} " + f"{number} " * 20_000
        accepted = await journal.inbox.accept("chat", user_message(text), ids=ids, now=now)
        print(accepted.message.id, flush=True)
    os._exit(0)

asyncio.run(write(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def power_cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that keeps what a program synced, and nothing else."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("The simulated power cut needs Linux and a C compiler (`cc`).")
    built = tmp_path_factory.mktemp("library") / "power_cut.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, LIBRARY], check=True)  # noqa: S603 - ours
    return built


async def test_the_writer_of_a_file_waits_for_the_disk(tmp_path: Path) -> None:
    """SQLite's own name for it: `synchronous` is FULL, with a write-ahead log."""
    database = Database(tmp_path / "journal.db")
    await database.open()
    waits = await database.write(lambda db: db.execute("PRAGMA synchronous").fetchone()[0])
    log = await database.write(lambda db: db.execute("PRAGMA journal_mode").fetchone()[0])
    await database.close()
    assert (waits, log) == (FULL, "wal")


def written_until_the_cut(power_cut: Path, folder: Path) -> tuple[list[str], Path]:
    """The messages that were acknowledged, and the file that survives."""
    lost, synced, unlisted = folders = [folder / name for name in ("lost", "synced", "unlisted")]
    for each in folders:
        each.mkdir()
    surroundings = {"LD_PRELOAD": power_cut, "SYNCED": synced, "UNLISTED": unlisted}
    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", WRITER, lost / "journal.db"],
        env=os.environ | {name: str(path) for name, path in surroundings.items()},
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.split(), synced / "journal.db"


async def test_a_power_cut_loses_no_message_that_was_accepted(
    power_cut: Path, tmp_path: Path
) -> None:
    """Each message whose acceptance returned is in what was synced, whatever else is lost."""
    accepted, file = written_until_the_cut(power_cut, tmp_path)
    journal = SqliteJournal(file)
    await journal.open()
    found: list[str | None] = []
    after: int | None = 0
    while after is not None:  # a page has a number of bytes
        page = await journal.messages.history("chat", limit=len(accepted), after=after)
        found += [message.id for message in page.messages]
        after = page.after
    await journal.close()
    assert len(accepted) == 60
    assert found == accepted

"""A process that dies between a call and its result, and the one that comes after it."""

import sqlite3
import time
from collections import Counter
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from langchain_core.messages import BaseMessage, ToolMessage

from segue import group_batches
from segue.journal.rows import decode_message
from tests.agent import crasher
from tests.processes import PROCESSES


def start(folder: Path, life: int, cut: int | None = None) -> BaseProcess:
    process = PROCESSES.Process(target=crasher.main, args=(folder, life, cut), daemon=True)
    process.start()
    return process


def end(folder: Path, life: int, cut: int | None = None) -> int | None:
    """Live a life to its end; the exit code."""
    process = start(folder, life, cut)
    process.join(60)
    return process.exitcode


def stored(folder: Path) -> list[BaseMessage]:
    try:
        with closing(sqlite3.connect(folder / "journal.db")) as db:
            rows = db.execute("SELECT body FROM messages ORDER BY position").fetchall()
    except sqlite3.OperationalError:  # not there yet
        return []
    return [decode_message(body) for (body,) in rows]


def results(folder: Path) -> list[ToolMessage]:
    return [message for message in stored(folder) if isinstance(message, ToolMessage)]


def test_finished_tools_do_not_run_again_after_a_crash(tmp_path: Path) -> None:
    """Killed after two of three parallel tools: the third runs again, and there is one reply."""
    first = start(tmp_path, 0)
    deadline = time.monotonic() + 60
    while len(results(tmp_path)) < 2:
        assert first.is_alive(), "The process ended by itself."
        assert time.monotonic() < deadline, "Two tools should be done by now."
        time.sleep(0.05)
    first.kill()
    first.join()
    assert sorted(message.name or "" for message in results(tmp_path)) == ["one", "two"]

    assert end(tmp_path, 1) == 0
    ran = Counter((tmp_path / "tools.log").read_text().split())
    assert ran == {"one": 1, "two": 1, "three": 2}
    [batch] = group_batches(stored(tmp_path))
    assert batch.is_complete
    assert [message.type for message in batch.messages].count("ai") == 2
    assert batch.messages[-1].text == "All 3 are done."


@pytest.mark.parametrize("checkpoints", [1, 2, 3])
def test_a_run_goes_on_from_what_was_written_after_its_last_checkpoint(
    tmp_path: Path, checkpoints: int
) -> None:
    """Dead between a step's writes and the checkpoint that follows: the reply still comes, once.

    No tool runs again whose result the journal had by then.
    """
    assert end(tmp_path, 0, checkpoints) == 1
    done = {message.name for message in results(tmp_path)}
    assert end(tmp_path, 1) == 0
    [batch] = group_batches(stored(tmp_path))
    assert batch.is_complete, batch.reasons
    assert batch.messages[-1].text == "All 3 are done."
    replies = [m for m in batch.messages if m.text == "All 3 are done."]
    assert len(replies) == 1
    ran = Counter((tmp_path / "tools.log").read_text().split())
    assert {name: ran[name or ""] for name in done} == dict.fromkeys(done, 1)

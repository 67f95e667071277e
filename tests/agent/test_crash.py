"""A process that dies between a call and its result, and the one that comes after it."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from langchain_core.messages import BaseMessage, ToolMessage

from segue import group_batches
from segue.journal.rows import decode_message
from tests.agent import crasher


def start(folder: Path, life: int, *cut: int) -> subprocess.Popen[bytes]:
    command = (sys.executable, "-m", crasher.__name__, str(folder), str(life), *map(str, cut))
    return subprocess.Popen(command, cwd=Path(crasher.__file__).parents[2])  # noqa: S603 - our own module


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
        assert first.poll() is None, "The process ended by itself."
        assert time.monotonic() < deadline, "Two tools should be done by now."
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert sorted(message.name or "" for message in results(tmp_path)) == ["one", "two"]

    assert start(tmp_path, 1).wait(timeout=60) == 0
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
    assert start(tmp_path, 0, checkpoints).wait(timeout=60) == 1
    done = {message.name for message in results(tmp_path)}
    assert start(tmp_path, 1).wait(timeout=60) == 0
    [batch] = group_batches(stored(tmp_path))
    assert batch.is_complete, batch.reasons
    assert batch.messages[-1].text == "All 3 are done."
    replies = [m for m in batch.messages if m.text == "All 3 are done."]
    assert len(replies) == 1
    ran = Counter((tmp_path / "tools.log").read_text().split())
    assert {name: ran[name or ""] for name in done} == dict.fromkeys(done, 1)

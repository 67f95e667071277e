"""Graphs of others, killed without warning in the middle of a turn."""

import json
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.processes import PROCESSES
from tests.stories import killed_graph
from tests.stories.graphs import HANGS

# What each says to: one, a trigger, two, three.
SAID = {
    "deep_agent": ["flour", "flour", "oil", "oil"],
    "supervisor": [
        *("served 0", "served 0"),
        *("cooked held", "Transferring back to supervisor", "served 2"),
        "served 0",
    ],
    "swarm": ["bob", "bob", "bob", "bob"],
    "workflow": ["turn 1", "turn 2", "turn 3", "turn 4"],
}


def start(*args: object) -> BaseProcess:
    process = PROCESSES.Process(target=killed_graph.main, args=args, daemon=True)
    process.start()
    return process


def wait_until(condition: Callable[[], bool], process: BaseProcess) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert process.is_alive(), "The process ended by itself."
        assert time.monotonic() < deadline, "It takes too long."
        time.sleep(0.05)


@pytest.mark.parametrize("name", SAID)
def test_a_killed_turn_goes_on_with_its_state(database: str, name: str, tmp_path: Path) -> None:
    """Killed in its second turn, after a follow-up: what was done is not done again, and the state
    is that of four turns.
    """
    log = tmp_path / "held.log"
    first = start(database, name, tmp_path, 0)
    # The file is there before its line is.
    wait_until(lambda: log.exists() and bool(log.read_text()), first)
    wait_until((tmp_path / HANGS).exists, first)
    first.kill()
    first.join()
    (tmp_path / HANGS).unlink()
    second = start(database, name, tmp_path, 1)
    second.join(120)
    assert second.exitcode == 0
    assert json.loads((tmp_path / "said.json").read_text()) == SAID[name]
    assert log.read_text().split() == ["held", "held"]

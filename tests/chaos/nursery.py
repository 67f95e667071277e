"""The nursery: a process that has imported everything, and forks workers off itself.

A worker starts within milliseconds, which a new interpreter would spend seconds on. The nursery
also kills and buries: it is the parent, so it alone knows whether a worker ended by itself.
"""

import gc
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

# What a worker would import when it opens its database.
import segue.agent.checkpoints.postgres
import segue.journal.postgres  # noqa: F401
from tests.chaos.worker import Orders, live

_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that works."""

    pid: int
    life: int
    log: Path


class Nursery:
    """Starts and ends workers; those that are left end with it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            (sys.executable, "-m", __name__),
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the tests
        )

    def start(self, orders: Orders) -> Worker:
        return Worker(self._ask("start", **asdict(orders)), orders.life, orders.log)

    def signal(self, worker: Worker, number: int) -> None:
        """Does nothing to one that is no more."""
        self._ask("signal", pid=worker.pid, number=number)

    def find_end(self, worker: Worker, *, wait: bool = False) -> int | None:
        """How a worker ended: its exit code, or minus the signal; None if it lives."""
        found: int | None = self._ask("end", pid=worker.pid, wait=wait)
        return found

    def kill(self, worker: Worker) -> int | None:
        """Kill -9; how the worker ended."""
        self.signal(worker, signal.SIGKILL)
        return self.find_end(worker, wait=True)

    def _ask(self, what: str, **how: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, **how}).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        self._ask("ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=60)


class _Parent:
    """The nursery's own side."""

    def __init__(self) -> None:
        # None while it lives.
        self._ends: dict[int, int | None] = {}

    def run(self) -> None:
        # What is shared with the children is not touched by every collection.
        gc.collect()
        gc.freeze()
        for line in sys.stdin.buffer:
            sys.stdout.write(json.dumps(self._answer(**json.loads(line))) + "\n")
            sys.stdout.flush()
        for pid in self._ends:
            self._signal(pid, signal.SIGKILL)
            self._end(pid, wait=True)

    def _answer(self, what: str, **how: Any) -> Any:
        if what == "start":
            return self._start(Orders(**how))
        if what == "signal":
            return self._signal(**how)
        return self._end(**how) if what == "end" else None

    def _start(self, orders: Orders) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        pid = os.fork()
        if pid == 0:
            _become(orders)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._ends[pid] = None
        return pid

    def _signal(self, pid: int, number: int) -> None:
        # Not buried yet, so the number is still this worker's.
        if self._end(pid, wait=False) is None:
            os.kill(pid, number)

    def _end(self, pid: int, *, wait: bool) -> int | None:
        if self._ends[pid] is None:
            gone, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
            if gone:
                self._ends[pid] = os.waitstatus_to_exitcode(status)
        return self._ends[pid]


def _become(orders: Orders) -> None:
    """Be a worker from here on, and never come back."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(orders.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for given, wanted in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(given, wanted)
        live(orders)
        code = 0
    except BaseException:  # noqa: BLE001 - it is told, and the process ends
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _Parent().run()

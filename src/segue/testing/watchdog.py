"""A watchdog for the event loop: fails a test in which one callback blocked all others.

It counts the CPU time of the loop's thread, not wall time: a machine that is busy with other
programs raises no alarm, and a garbage collection does. It does not see a call that holds the
interpreter's lock in another thread, unless it is a collection.
"""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

# Seconds of CPU time that one callback may take.
LIMIT: Final = 0.25
# Seconds between two beats of the loop, and between two looks at it.
_BEAT: Final = 0.02
_LOOK: Final = 0.01
# Frames of a stack that are kept, from the innermost.
_DEPTH: Final = 25
_UNSEEN: Final = "  a place that was not seen"


@dataclass(frozen=True, slots=True)
class Stall:
    """One callback that took too long: seconds of CPU time, and its stack."""

    seconds: float
    stack: str

    def __str__(self) -> str:
        return f"The event loop was held for {self.seconds * 1_000:.0f} ms, in\n{self.stack}"


class Watchdog:
    """Watches the loop that it is started in."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._stopped = threading.Event()
        self._looker = threading.Thread(target=self._look, name="watchdog", daemon=True)
        self._last_beat = time.thread_time()
        self._next_beat: asyncio.TimerHandle | None = None
        # The stack that was sampled after the most CPU time since the last beat.
        self._seen: tuple[float, str] = (0.0, _UNSEEN)
        # Seconds of garbage collection in other threads since the last beat; the loop waits for it.
        self._collected = 0.0
        self._collecting_since = 0.0
        self.held: list[Stall] = []

    def start(self) -> None:
        gc.callbacks.append(self._collecting)
        self._beat()
        self._looker.start()

    def stop(self) -> None:
        self._note_beat()
        if self._next_beat is not None:
            self._next_beat.cancel()
        gc.callbacks.remove(self._collecting)
        self._stopped.set()
        self._looker.join()

    def _beat(self) -> None:
        self._note_beat()
        self._next_beat = self._loop.call_later(_BEAT, self._beat)

    def _note_beat(self) -> None:
        now = time.thread_time()
        seconds = now - self._last_beat + self._collected
        if seconds > self._limit:
            elsewhere = "  a garbage collection in another thread"
            is_elsewhere = self._collected > seconds / 2
            self.held.append(Stall(seconds, elsewhere if is_elsewhere else self._seen[1]))
        self._last_beat, self._collected, self._seen = now, 0.0, (0.0, _UNSEEN)

    def _look(self) -> None:
        """In a thread of its own: sample the stack of the loop's thread."""
        clock = time.pthread_getcpuclockid(self._thread)
        while not self._stopped.wait(_LOOK):
            used = time.clock_gettime(clock) - self._last_beat
            frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - made for this
            # A callback that exceeds the limit is still running between half of it and all of it.
            if frame is not None and used > self._limit / 2 and self._seen[0] < self._limit:
                self._seen = (used, _stack(frame))

    def _collecting(self, phase: str, _: dict[str, Any]) -> None:
        if threading.get_ident() == self._thread:  # counted by its clock
            return
        if phase == "start":
            self._collecting_since = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting_since


@asynccontextmanager
async def watched_loop(limit: float = LIMIT) -> AsyncIterator[Watchdog]:
    """Fail at the end of the block if the loop was held for more seconds of CPU time than this."""
    watchdog = Watchdog(limit)
    watchdog.start()
    try:
        yield watchdog
    finally:
        watchdog.stop()
    assert not watchdog.held, "\n".join(map(str, watchdog.held[:5]))  # noqa: S101 - for tests


def _stack(innermost: FrameType) -> str:
    """The lines of a stack, outermost first."""
    lines: list[str] = []
    frame: FrameType | None = innermost
    while frame is not None and len(lines) < _DEPTH:
        code = frame.f_code
        lines.append(f"  {code.co_filename}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return "\n".join(reversed(lines))

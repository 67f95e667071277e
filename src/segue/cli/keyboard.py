"""The keyboard: lines and Ctrl-C, read beside the loop, from a terminal or a pipe.

A thread reads, since a terminal can be edited only by a reader that blocks. It is left alone when
the program ends; so it must hold no lock that Python wants then, and not `sys.stdin`'s.
"""

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, Final

try:
    import readline
    import termios
except ImportError:  # not on every system; lines can be read without
    readline = termios = None  # type: ignore[assignment]  # what is not there is None

PROMPT: Final = "you> "


class _Sign(Enum):
    INTERRUPT = "interrupt"
    END = "end"


INTERRUPT: Final = _Sign.INTERRUPT
END: Final = _Sign.END
Typed = str | _Sign


class Keyboard:
    """What the user types. On a pipe, a line is read when the one before is answered."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._typed: asyncio.Queue[Typed] = asyncio.Queue()
        # Whether the prompt is on the screen, or none will be.
        self.prompted = asyncio.Event()
        if not self.is_terminal:
            self.prompted.set()
        self._is_taken = False

    async def next(self) -> Typed:
        """The next line or sign; who asks for it has done with the one before."""
        if self._is_taken:
            self._typed.task_done()
        self._is_taken = True
        return await self._typed.get()

    def interrupt(self) -> None:
        self._typed.put_nowait(INTERRUPT)

    def end(self) -> None:
        self._typed.put_nowait(END)

    def typed(self) -> str:
        """What is on the line that is not finished yet."""
        return readline.get_line_buffer() if self.is_terminal and readline is not None else ""

    @contextmanager
    def reading(self, *, until_idle: asyncio.Event) -> Iterator[None]:
        """Read lines until the block is left, and leave the terminal as it was."""
        loop = asyncio.get_running_loop()
        read = self._read_terminal if self.is_terminal else self._read_pipe
        with _terminal_kept(is_terminal=self.is_terminal):
            threading.Thread(target=read, args=(loop, until_idle), daemon=True).start()
            yield

    def _read_terminal(self, loop: asyncio.AbstractEventLoop, _: asyncio.Event) -> None:
        def show() -> None:
            _tell(loop, self.prompted.set)

        hook = getattr(readline, "set_pre_input_hook", None)
        if hook is not None:
            hook(show)
        while True:
            if hook is None:
                show()
            try:
                line: Typed = input(PROMPT)
            except (EOFError, OSError):
                line = END
            _tell(loop, self._take, line)
            if line is END:
                return

    def _take(self, line: Typed) -> None:
        if line is not END:  # after which no prompt comes
            self.prompted.clear()
        self._typed.put_nowait(line)

    def _read_pipe(self, loop: asyncio.AbstractEventLoop, idle: asyncio.Event) -> None:
        async def offer(line: Typed) -> None:
            await idle.wait()
            self._typed.put_nowait(line)
            await self._typed.join()

        with suppress(RuntimeError, CancelledError):  # the program ends
            with open(0, encoding="utf-8", errors="replace", closefd=False) as lines:
                for line in lines:
                    asyncio.run_coroutine_threadsafe(offer(line), loop).result()
            asyncio.run_coroutine_threadsafe(offer(END), loop).result()


def _tell(loop: asyncio.AbstractEventLoop, what: Any, *args: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: the program ends
        loop.call_soon_threadsafe(what, *args)


@contextmanager
def _terminal_kept(*, is_terminal: bool) -> Iterator[None]:
    """A reader that is left alone leaves the terminal as it edits in it: without an echo."""
    if not is_terminal or termios is None:
        yield
        return
    before = termios.tcgetattr(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)

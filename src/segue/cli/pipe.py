"""Standard input and output of a chat where one of them is not a terminal: plain lines.

A thread reads, since a file cannot be read beside the loop. It is left alone when the program ends;
so it must not hold a lock that Python needs then, such as that of `sys.stdin`.
"""

import asyncio
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from segue.cli.chatting import Chat


class Pipe:
    """One line for each message, no prompt, no colour, no status."""

    is_live: Final = False
    typed: Final = ""

    def add(self, text: str, style: str = "") -> None:
        del style
        sys.stdout.write(text)
        sys.stdout.flush()

    def announce(self, text: str) -> None:
        """Something about the chat, which is not among its messages."""
        typer.echo(text, err=True)

    def status(self, text: str) -> None:
        pass

    async def read(self, chat: "Chat") -> None:
        """Say each line when the one before is answered, up to the end of the input."""
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, chat.interrupt)
        threading.Thread(target=_read, args=(loop, lines), daemon=True).start()
        try:
            while (line := await lines.get()) is not None:
                chat.say(line)
                await chat.idle.wait()
        finally:
            loop.remove_signal_handler(signal.SIGINT)


def _read(loop: asyncio.AbstractEventLoop, lines: "asyncio.Queue[str | None]") -> None:
    with suppress(RuntimeError):  # the loop is closed: the program ends
        with open(0, encoding="utf-8", errors="replace", closefd=False) as stdin:
            for line in stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, None)

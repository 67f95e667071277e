"""The terminal of a chat: a prompt, and the messages above it; or a pipe.

Whole lines are printed above the prompt, wrapped at words. The unfinished line and the status are
part of the prompt, so they change in place and never mix with what the user types.
"""

import asyncio
import signal
import sys
import threading
from contextlib import suppress
from typing import Final, Protocol

import typer
from prompt_toolkit import ANSI, PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console
from rich.text import Text


class Keyboard(Protocol):
    """What a terminal calls."""

    idle: asyncio.Event

    def say(self, text: str) -> None: ...

    def interrupt(self) -> None: ...

    def report_typing(self) -> None: ...


class Pipe:
    """One line for each message, no prompt, no colour, no status."""

    is_live: Final = False
    typed: Final = ""

    def add(self, text: str, style: str = "") -> None:
        del style
        sys.stdout.write(text)
        sys.stdout.flush()

    def announce(self, text: str) -> None:
        """Print a line about the chat on stderr."""
        typer.echo(text, err=True)

    def status(self, text: str) -> None:
        pass

    async def read(self, chat: Keyboard) -> None:
        """Send each line when the one before is answered, up to the end of the input."""
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


PROMPT: Final = "you> "
_TAB: Final = 4


class Terminal:
    """A person at a terminal."""

    is_live: Final = True

    def __init__(self) -> None:
        # The stdout before prompt_toolkit patches it.
        self._console = Console(file=sys.stdout)
        self._session: PromptSession[None] = PromptSession(
            self._prompt, erase_when_done=True, enable_suspend=True
        )
        self._line = Text()
        self._status = ""

    @property
    def typed(self) -> str:
        """The text of the line that is not sent yet."""
        return self._session.default_buffer.text

    def add(self, text: str, style: str = "") -> None:
        """Append text; complete lines go above the prompt."""
        first, *more = text.expandtabs(_TAB).split("\n")
        self._line.append(first, style)
        for part in more:
            self._print(self._line)
            self._line = Text().append(part, style)  # the next text may have another style
        # Not the console's width, which COLUMNS of the environment overrides.
        width = self._session.output.get_size().columns
        *full, last = self._line.wrap(self._console, width) or [Text()]
        for line in full:
            self._print(line)
        if full:
            # From the line itself: wrapping drops trailing spaces that the next word needs.
            self._line = self._line[len(self._line.plain.rstrip()) - len(last.plain.rstrip()) :]
        self._session.app.invalidate()

    def announce(self, text: str) -> None:
        """Print a line about the chat; not wrapped, since users copy commands from it."""
        self._console.print(Text(text, "dim"), soft_wrap=True)

    def status(self, text: str) -> None:
        """Set the line above the prompt."""
        self._status = text
        self._session.app.invalidate()

    async def read(self, chat: Keyboard) -> None:
        """Send each line that is typed, until the user leaves."""
        buffer = self._session.default_buffer
        buffer.on_text_changed += lambda _: chat.report_typing() if buffer.text else None
        try:
            await self._session.prompt_async(key_bindings=_keys(chat))
        except EOFError:
            pass
        finally:
            self._session.app.renderer.erase()

    def _print(self, line: Text) -> None:
        if self._session.app.is_running:
            self._session.app.renderer.erase()
        line.rstrip()
        self._console.print(line)

    def _prompt(self) -> ANSI:
        above = (self._line, Text(self._status, "dim"))
        with self._console.capture() as captured:
            for line in above:
                if line.plain.strip():
                    self._console.print(line)
            self._console.print(PROMPT, end="", markup=False, highlight=False)
        return ANSI(captured.get())


def _keys(chat: Keyboard) -> KeyBindings:
    """Enter sends and keeps the prompt; Ctrl-C stops the answer and keeps what is typed."""
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def _(event: KeyPressEvent) -> None:
        text = event.current_buffer.text
        event.current_buffer.reset(append_to_history=True)
        chat.say(text)

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(_: KeyPressEvent) -> None:
        chat.interrupt()

    return keys


# Where the user reads and writes.
Front = Pipe | Terminal

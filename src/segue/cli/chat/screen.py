"""What a chat shows, and where: a terminal with a prompt below the messages, or a pipe.

On a terminal, whole lines are printed above the prompt, wrapped at words. The unfinished line and
the status are part of the prompt, so they change in place and never mix with what the user types.
"""

import asyncio
import signal
import sys
import threading
from collections import Counter
from contextlib import suppress
from typing import Final, Protocol, assert_never

import typer
from prompt_toolkit import ANSI, PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console
from rich.text import Text

from segue.cli.chat.threads import ChatEvent, ChatMessage, Connection
from segue.core.text import harmless, storable
from segue.events import MessageDelta, MessageRetracted, QuestionAsked, TurnCancelled, TurnFailed

_NAME: Final = "bold cyan"
_DIM: Final = "dim"
_LOST: Final = "The connection to the server is lost; trying again."
_RESTORED: Final = "The server is back."
PROMPT: Final = "you> "
_TAB: Final = 4


class Keyboard(Protocol):
    """What a terminal calls."""

    idle: asyncio.Event

    def say(self, text: str) -> None: ...

    def interrupt(self) -> None: ...

    def report_typing(self) -> None: ...


# Both write only what is `harmless`: texts and names come from a server that may be hostile.
class Pipe:
    """One line for each message, no prompt, no colour, no status."""

    is_live: Final = False
    typed: Final = ""

    def add(self, text: str, style: str = "") -> None:
        del style
        sys.stdout.write(harmless(text))
        sys.stdout.flush()

    def announce(self, text: str) -> None:
        """Print a line about the chat on stderr."""
        typer.echo(harmless(text), err=True)

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
        first, *more = harmless(text).expandtabs(_TAB).split("\n")
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
        self._console.print(Text(harmless(text), _DIM), soft_wrap=True)

    def status(self, text: str) -> None:
        """Set the line above the prompt."""
        self._status = harmless(text)
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
        above = (self._line, Text(self._status, _DIM))
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


class Screen:
    """Shows a conversation with one agent."""

    def __init__(self, agent: str, front: Front) -> None:
        self._agent = agent
        self._front = front
        # The id of the message that the current line shows, and the shown text of unfinished ones.
        self._draft: str | None = None
        self._shown: dict[str, str] = {}
        # A note for the line below the unfinished one.
        self._below = ""
        self._is_waiting = False
        self._is_lost = False
        # Messages that the user typed here are on the screen already.
        self._expected: Counter[str] = Counter()

    @property
    def is_writing(self) -> bool:
        return self._draft is not None

    def show_earlier(self, message: ChatMessage) -> None:
        self._print("you: " if message.is_user else f"{self._agent}: ", message.text)

    def echo(self, text: str) -> None:
        """Print a line that the user typed."""
        self._print("you> ", text)

    def expect(self, text: str) -> None:
        self._expected[storable(text)] += 1

    def show(self, event: ChatEvent) -> None:
        match event:
            case ChatMessage():
                self._show_message(event)
            case MessageDelta():
                self._show_piece(event)
            case MessageRetracted():
                if self._shown.pop(event.message_id, "").strip():
                    self.note("This message was retracted.")
            case TurnFailed():
                self.note(event.reason)
            case TurnCancelled():
                self.note("Stopped.")
            case Connection():
                self._is_lost = not event.is_up
                self.note(_RESTORED if event.is_up else _LOST)
            case QuestionAsked():
                pass  # `Chat` prints the questions
            case _:
                assert_never(event)
        self._show_status()

    def note(self, text: str) -> None:
        """Print a line that is not a message."""
        self.end_draft()
        self._front.add(f"({text})\n", _DIM)

    def note_below(self, text: str) -> None:
        """Print a line that is not a message; if one is being written, below it when it ends."""
        if self._draft is None:
            self.note(text)
            return
        self._below = text
        self._show_status()

    def wait(self, *, is_waiting: bool) -> None:
        """Set whether a reply is expected."""
        self._is_waiting = is_waiting
        self._show_status()

    def end_draft(self) -> None:
        if self._draft is not None:
            self._draft = None
            self._front.add("\n")
        if self._below:
            below, self._below = self._below, ""
            self.note(below)

    def _show_status(self) -> None:
        if self._is_lost:
            self._front.status("Reconnecting to the server…")
        elif self._below:
            self._front.status(f"({self._below})")
        elif self._is_waiting and self._draft is None:
            self._front.status(f"{self._agent} is writing…")
        else:
            self._front.status("")

    def _show_message(self, message: ChatMessage) -> None:
        if message.is_user:
            if self._expected[message.text]:
                self._expected[message.text] -= 1
            else:
                self._print("you: ", message.text)
            return
        shown = self._shown.pop(message.message_id, "")
        if not message.text.startswith(shown.rstrip()):  # the stored text counts
            shown = ""
            self.end_draft()
        self._write(message.message_id, shown, message.text[len(shown) :])
        self.end_draft()

    def _show_piece(self, piece: MessageDelta) -> None:
        shown = self._shown.get(piece.message_id, "")
        new = piece.text[max(len(shown) - piece.offset, 0) :]
        self._shown[piece.message_id] = shown + new
        self._write(piece.message_id, shown, new)

    def _write(self, message_id: str, before: str, new: str) -> None:
        """Continue a message, or start it on a new line."""
        if message_id != self._draft:
            if not before.strip():
                # Models write a line break before a tool call: that is not a message yet.
                new = (before + new).lstrip()
            if not new:
                return
            self.end_draft()
            self._front.add(f"{self._agent}: ", _NAME)
            self._draft = message_id
        self._front.add(new)

    def _print(self, name: str, text: str) -> None:
        self.end_draft()
        self._front.add(name, _NAME)
        self._front.add(f"{text}\n")

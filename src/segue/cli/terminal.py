"""The terminal of a chat: a prompt to type on, and above it what is said.

Whole lines are printed above the prompt, wrapped at words. The line that is still being written,
and who is writing, are part of the prompt, so that they change in place and never mix with what
the user types.
"""

import sys
from typing import TYPE_CHECKING, Final

from prompt_toolkit import ANSI, PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from segue.cli.chatting import Chat

PROMPT: Final = "you> "
_TAB: Final = 4


class Terminal:
    """A person at a terminal."""

    is_live: Final = True

    def __init__(self) -> None:
        # The real stdout: what others print is patched to go around the prompt.
        self._console = Console(file=sys.stdout)
        self._session: PromptSession[None] = PromptSession(
            self._prompt, erase_when_done=True, enable_suspend=True
        )
        self._line = Text()
        self._status = ""

    @property
    def typed(self) -> str:
        """What is on the line that is not sent yet."""
        return self._session.default_buffer.text

    def add(self, text: str, style: str = "") -> None:
        """Go on with what is written; what fills a line or ends one goes above the prompt."""
        first, *more = text.expandtabs(_TAB).split("\n")
        self._line.append(first, style)
        for part in more:
            self._print(self._line)
            self._line = Text().append(part, style)  # not as its style: what follows has another
        # Not the console's width, for which COLUMNS of the environment counts more.
        width = self._session.output.get_size().columns
        *full, last = self._line.wrap(self._console, width) or [Text()]
        for line in full:
            self._print(line)
        if full:
            # From the line itself: wrapping drops spaces that the next word needs before it.
            self._line = self._line[len(self._line.plain.rstrip()) - len(last.plain.rstrip()) :]
        self._session.app.invalidate()

    def announce(self, text: str) -> None:
        """Something about the chat; not wrapped, since a command in it may be copied."""
        self._console.print(Text(text, "dim"), soft_wrap=True)

    def status(self, text: str) -> None:
        """What happens now, above the prompt until it is over."""
        self._status = text
        self._session.app.invalidate()

    async def read(self, chat: "Chat") -> None:
        """Say each line that is typed, until the user leaves."""
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


def _keys(chat: "Chat") -> KeyBindings:
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

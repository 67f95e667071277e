"""The screen of a chat: words as they are written, above the line that the user types on.

On a terminal the prompt is taken away while something is printed, and put back with what the user
had typed. In a pipe there is neither prompt nor colour: one line for each message.
"""

import shutil
import sys
from collections import Counter
from typing import Final, assert_never

from segue.cli.keyboard import PROMPT, Keyboard
from segue.cli.talks import Notice, Spoken, TalkEvent
from segue.runtime.events import Asked, Cancelled, Failed, Retracted, Writing

_CLEAR: Final = "\r\x1b[K"
_UP: Final = "\x1b[A"
_NAME: Final = "\x1b[1;36m{}\x1b[0m"
_DIM: Final = "\x1b[2m{}\x1b[0m"


class Screen:
    """Shows a conversation with one agent."""

    def __init__(self, agent: str, keyboard: Keyboard) -> None:
        self._agent = agent
        self._keyboard = keyboard
        self._is_live = keyboard.is_terminal
        # The message that is being written, and what is shown of messages that are not finished.
        self._draft: str | None = None
        self._shown: dict[str, str] = {}
        self._has_status = False
        # What the user typed here is on the screen already.
        self._expected: Counter[str] = Counter()

    @property
    def is_writing(self) -> bool:
        return self._draft is not None

    def announce(self, text: str) -> None:
        """Something about the chat, at its beginning and end; not among a pipe's messages."""
        self._end_draft()
        self._take_away()
        print(self._dim(text), file=sys.stdout if self._is_live else sys.stderr, flush=True)

    def recall(self, said: Spoken) -> None:
        """Something that was said before."""
        name = "you" if said.is_user else self._agent
        self._write(f"{self._named(name)}{_harmless(said.text)}\n")

    def expect(self, text: str) -> None:
        self._expected[text] += 1

    def see(self, event: TalkEvent) -> None:
        match event:
            case Spoken():
                self._see_message(event)
            case Writing():
                self._see_piece(event)
            case Retracted():
                if self._shown.pop(event.message_id, None):
                    self.note("That was taken back.")
            case Failed():
                self.note(event.reason)
            case Cancelled():
                self.note("Stopped.")
            case Notice():
                self.note(event.text)
            case Asked():
                pass  # the chat asks it
            case _:
                assert_never(event)

    def note(self, text: str) -> None:
        """A line that nobody said."""
        self._end_draft()
        self._take_away()
        self._write(f"{self._dim(f'({_harmless(text)})')}\n")
        self._put_back()

    def wait(self) -> None:
        """The agent has something to answer."""
        if self._is_live and self._draft is None and self._keyboard.prompted.is_set():
            self._take_away()
            self._write(self._dim(f"{self._agent} is writing…"))
            self._has_status = True

    def wait_no_more(self) -> None:
        if self._has_status:
            self._take_away()
            self._put_back()

    def _see_message(self, said: Spoken) -> None:
        if said.is_user:
            self._see_user(said.text)
            return
        shown = self._shown.pop(said.message_id, "")
        if not said.text.startswith(shown.rstrip()):  # what is stored counts
            shown = ""
            self._end_draft()
        if left := said.text[len(shown) :]:
            self._begin_draft(said.message_id)
            self._write(_harmless(left))
        self._end_draft()

    def _see_user(self, text: str) -> None:
        if self._expected[text]:
            self._expected[text] -= 1
            self.wait()
            return
        self._end_draft()
        self._take_away()
        self._write(f"{self._named('you')}{_harmless(text)}\n")
        self._put_back()

    def _see_piece(self, piece: Writing) -> None:
        shown = self._shown.get(piece.message_id, "")
        if new := piece.text[max(len(shown) - piece.offset, 0) :]:
            self._begin_draft(piece.message_id)
            self._shown[piece.message_id] = shown + new
            self._write(_harmless(new))

    def _begin_draft(self, message_id: str) -> None:
        """Go on with a message, or begin it on a new line."""
        if message_id != self._draft:
            self._end_draft()
            self._take_away()
            self._write(self._named(self._agent))
            self._draft = message_id

    def _end_draft(self) -> None:
        if self._draft is not None:
            self._draft = None
            self._write("\n")
            self._put_back()

    def _take_away(self) -> None:
        """The prompt or the status, off the screen."""
        if not self._is_live or self._draft is not None:
            return
        on_line = 0 if self._has_status else len(PROMPT + self._keyboard.typed())
        rows = on_line // shutil.get_terminal_size().columns
        self._has_status = False
        self._write(_CLEAR + (_UP + _CLEAR) * rows)

    def _put_back(self) -> None:
        if self._is_live and self._keyboard.prompted.is_set():
            self._write(PROMPT + self._keyboard.typed())

    def _named(self, name: str) -> str:
        return _NAME.format(f"{name}: ") if self._is_live else f"{name}: "

    def _dim(self, text: str) -> str:
        return _DIM.format(text) if self._is_live else text

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _harmless(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(each for each in text if each.isprintable() or each in "\n\t")

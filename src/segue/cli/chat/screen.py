"""What a chat shows: messages while they are written, notes, and a status line."""

from collections import Counter
from typing import Final, assert_never

from segue.cli.chat.terminal import Front
from segue.cli.chat.threads import ChatEvent, ChatMessage, Connection
from segue.core.text import harmless, storable
from segue.events import MessageDelta, MessageRetracted, QuestionAsked, TurnCancelled, TurnFailed

_NAME: Final = "bold cyan"
_DIM: Final = "dim"
_LOST: Final = "The connection to the server is lost; trying again."
_RESTORED: Final = "The server is back."


class Screen:
    """Shows a conversation with one agent."""

    def __init__(self, agent: str, front: Front) -> None:
        self._agent = agent
        self._front = front
        # The id of the message that the current line shows, and the shown text of unfinished ones.
        self._draft: str | None = None
        self._shown: dict[str, str] = {}
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
        self._front.add(f"({harmless(text)})\n", _DIM)

    def wait(self, *, is_waiting: bool) -> None:
        """Set whether a reply is expected."""
        self._is_waiting = is_waiting
        self._show_status()

    def end_draft(self) -> None:
        if self._draft is not None:
            self._draft = None
            self._front.add("\n")

    def _show_status(self) -> None:
        if self._is_lost:
            self._front.status("Reconnecting to the server…")
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
        self._front.add(harmless(new))

    def _print(self, name: str, text: str) -> None:
        self.end_draft()
        self._front.add(name, _NAME)
        self._front.add(f"{harmless(text)}\n")

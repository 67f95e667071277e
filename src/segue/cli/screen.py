"""What a chat shows of a conversation: words as they are written, notes, and who is writing."""

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from segue.cli.pipe import Pipe
from segue.cli.talks import Connection, Spoken, TalkEvent
from segue.core.plain import harmless, storable
from segue.runtime.events import Asked, Cancelled, Failed, Retracted, Writing

if TYPE_CHECKING:
    from segue.cli.terminal import Terminal

# Where the user reads and writes.
Front: TypeAlias = "Pipe | Terminal"
_NAME: Final = "bold cyan"
_DIM: Final = "dim"
_CONNECTION: Final = {
    False: "The connection to the server is lost; trying again.",
    True: "The server is back.",
}


class Screen:
    """Shows a conversation with one agent."""

    def __init__(self, agent: str, front: Front) -> None:
        self._agent = agent
        self._front = front
        # The message that is being written, and what came of messages that are not finished.
        self._draft: str | None = None
        self._shown: dict[str, str] = {}
        self._is_waiting = False
        self._is_lost = False
        # What the user typed here is on the screen already.
        self._expected: Counter[str] = Counter()

    @property
    def is_writing(self) -> bool:
        return self._draft is not None

    def recall(self, said: Spoken) -> None:
        """Something that was said before."""
        self._say("you: " if said.is_user else f"{self._agent}: ", said.text)

    def echo(self, text: str) -> None:
        """A line that the user typed."""
        self._say("you> ", text)

    def expect(self, text: str) -> None:
        self._expected[storable(text)] += 1

    def see(self, event: TalkEvent) -> None:
        match event:
            case Spoken():
                self._see_message(event)
            case Writing():
                self._see_piece(event)
            case Retracted():
                if self._shown.pop(event.message_id, "").strip():
                    self.note("That was taken back.")
            case Failed():
                self.note(event.reason)
            case Cancelled():
                self.note("Stopped.")
            case Connection():
                self._is_lost = not event.is_up
                self.note(_CONNECTION[event.is_up])
            case Asked():
                pass  # the chat asks it
            case _:
                assert_never(event)
        self._show_status()

    def note(self, text: str) -> None:
        """A line that nobody said."""
        self.end_draft()
        self._front.add(f"({harmless(text)})\n", _DIM)

    def wait(self, *, is_waiting: bool) -> None:
        """Whether the agent has something to answer."""
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

    def _see_message(self, said: Spoken) -> None:
        if said.is_user:
            if self._expected[said.text]:
                self._expected[said.text] -= 1
            else:
                self._say("you: ", said.text)
            return
        shown = self._shown.pop(said.message_id, "")
        if not said.text.startswith(shown.rstrip()):  # what is stored counts
            shown = ""
            self.end_draft()
        self._write(said.message_id, shown, said.text[len(shown) :])
        self.end_draft()

    def _see_piece(self, piece: Writing) -> None:
        shown = self._shown.get(piece.message_id, "")
        new = piece.text[max(len(shown) - piece.offset, 0) :]
        self._shown[piece.message_id] = shown + new
        self._write(piece.message_id, shown, new)

    def _write(self, message_id: str, before: str, new: str) -> None:
        """Go on with a message, or begin it on a new line."""
        if message_id != self._draft:
            if not before.strip():
                # Models write a line break before they call a tool: that is not a message yet.
                new = (before + new).lstrip()
            if not new:
                return
            self.end_draft()
            self._front.add(f"{self._agent}: ", _NAME)
            self._draft = message_id
        self._front.add(harmless(new))

    def _say(self, name: str, text: str) -> None:
        self.end_draft()
        self._front.add(name, _NAME)
        self._front.add(f"{harmless(text)}\n")

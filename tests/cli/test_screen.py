"""What a chat shows, event by event, where it is no terminal."""

from typing import cast

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.output import DummyOutput

from segue.cli.chat.screen import Pipe, Screen, Terminal
from segue.cli.chat.threads import ChatMessage, Connection
from segue.events import MessageDelta, MessageRetracted, TurnCancelled, TurnFailed


@pytest.fixture
def screen() -> Screen:
    return Screen("Ada", Pipe())


def said(text: str, number: str = "1") -> ChatMessage:
    return ChatMessage(number, is_user=False, text=text, cursor="0")


def test_a_message_is_on_one_line_however_it_comes(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    """In pieces, in pieces that overlap, in part, or at once."""
    for event in (
        MessageDelta("1", 0, "Half "),
        MessageDelta("1", 5, "and "),
        MessageDelta("1", 0, "Half and half"),
        said("Half and half?"),
        said("Or not?", "2"),
    ):
        screen.show(event)
    assert capsys.readouterr().out == "Ada: Half and half?\nAda: Or not?\n"


def test_a_note_between_the_words_repeats_none(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was shown of a message that is stopped is not shown again."""
    screen.show(MessageDelta("1", 0, "Half "))
    screen.note("Ctrl-C again leaves.")
    screen.show(said("Half "))
    screen.show(TurnCancelled(7))
    assert capsys.readouterr().out == "Ada: Half \n(Ctrl-C again leaves.)\n(Stopped.)\n"


def test_a_stop_leaves_the_reply_on_its_line(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    """What still comes after Ctrl-C continues the line; the note is below it."""
    screen.show(MessageDelta("1", 0, "Half "))
    screen.note_below("Ctrl-C again leaves.")
    screen.show(MessageDelta("1", 5, "and "))
    screen.show(said("Half and half"))
    screen.show(TurnCancelled(7))
    assert capsys.readouterr().out == "Ada: Half and half\n(Ctrl-C again leaves.)\n(Stopped.)\n"


def test_what_is_stored_counts(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    """A message that became another one is shown again, and one that was taken back is told."""
    screen.show(MessageDelta("1", 0, "Hlaf"))
    screen.show(said("Half."))
    screen.show(MessageDelta("2", 0, "And"))
    screen.show(MessageRetracted("2"))
    screen.show(MessageDelta("3", 0, "Or?"))
    screen.show(said("Or?", "3"))
    printed = capsys.readouterr().out
    assert printed == "Ada: Hlaf\nAda: Half.\nAda: And\n(This message was retracted.)\nAda: Or?\n"


def test_own_words_are_not_repeated_and_those_of_another_screen_are_shown(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who typed them sees them already."""
    screen.expect("Hi")
    for _ in range(2):
        screen.show(ChatMessage("1", is_user=True, text="Hi", cursor="0"))
    assert capsys.readouterr().out == "you: Hi\n"


def test_own_words_are_not_repeated_if_the_store_changed_them(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as a NUL, which no database takes."""
    screen.expect("nul \x00 here")
    screen.show(ChatMessage("1", is_user=True, text="nul \ufffd here", cursor="0"))
    assert capsys.readouterr().out == ""


def test_what_a_terminal_would_obey_is_left_out(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model's words cannot clear the screen or rename the window."""
    screen.show(MessageDelta("1", 0, "\x1b[2J\x1b]0;x\x07Hi,\t"))
    screen.show(said("\x1b[2J\x1b]0;x\x07Hi,\tyou\x9b\n."))
    screen.show(TurnFailed("x", "It \x1b[31mfailed."))
    assert capsys.readouterr().out == "Ada: [2J]0;xHi,\tyou\n.\n(It [31mfailed.)\n"


@pytest.mark.parametrize("kind", [Pipe, Terminal])
def test_a_name_of_a_hostile_server_is_shown_without_control_characters(
    kind: type[Pipe | Terminal], capsys: pytest.CaptureFixture[str]
) -> None:
    """In a message, in the first line and in the status."""
    name = "A\x1b]0;x\x07d\x9b2Ja"
    with create_app_session(output=DummyOutput()):
        front = kind()
        front.announce(f"You are chatting with {name}.")
        shown = Screen(name, front)
        shown.wait(is_waiting=True)
        shown.show(said("Hi"))
    printed = capsys.readouterr()
    assert not {"\x1b", "\x07", "\x9b"} & {*printed.out, *printed.err}
    assert "A]0;xd2Ja: Hi" in printed.out
    assert "You are chatting with A]0;xd2Ja." in printed.out + printed.err


def test_white_space_before_a_tool_call_shows_nothing(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither where it is taken back or another message follows, nor before the text."""
    screen.show(MessageDelta("1", 0, "\n"))
    screen.show(MessageDelta("1", 1, "\n"))
    screen.show(MessageRetracted("1"))
    screen.show(MessageDelta("2", 0, " \n"))
    screen.show(said("It is ", "3"))
    screen.show(MessageDelta("4", 0, "\n"))
    screen.show(MessageDelta("4", 1, "12 degrees."))
    screen.show(said("\n12 degrees.", "4"))
    assert capsys.readouterr().out == "Ada: It is \nAda: 12 degrees.\n"


class Slate:
    """A terminal that notes what its status line says."""

    is_live = True
    typed = ""

    def __init__(self) -> None:
        self.now = ""

    def add(self, text: str, style: str = "") -> None:
        pass

    def status(self, text: str) -> None:
        self.now = text


def test_nobody_is_writing_while_the_server_is_away() -> None:
    """The status says that it is looked for; then who is writing, until there are words."""
    slate = Slate()
    screen = Screen("Ada", cast("Terminal", slate))
    screen.wait(is_waiting=True)
    assert slate.now == "Ada is writing…"
    screen.show(Connection(is_up=False))
    screen.wait(is_waiting=True)
    assert slate.now == "Reconnecting to the server…"
    screen.show(Connection(is_up=True))
    assert slate.now == "Ada is writing…"
    screen.show(MessageDelta("1", 0, "Half"))
    assert slate.now == ""
    screen.note_below("Ctrl-C again leaves.")
    assert slate.now == "(Ctrl-C again leaves.)"
    screen.show(said("Half."))
    assert slate.now == "Ada is writing…"
    screen.wait(is_waiting=False)
    assert slate.now == ""

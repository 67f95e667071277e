"""What commands print of what users said: words, and nothing that a terminal obeys."""

import sys
import time

import pytest

from segue.cli.output import (
    counted,
    print_error,
    print_json,
    print_lines,
    print_table,
    when_of_user,
)

# Clear the screen, write to the clipboard, hide a link, C1's way to begin the same, and turn the
# text around.
TRICKS = "\x1b[2J\x1b]52;c;bHM=\x07\x1b]8;;http://x\x1b\\\x9b31m\x7f\u202e\u2066"
LEFT = "[2J]52;c;bHM=]8;;http://x\\31m"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_table_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """Neither for a person nor in a pipe, whose reader may be a terminal in the end."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")  # no styles of our own
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    print_table(("who", "what"), [(f"ann{TRICKS}", f"Hi{TRICKS} 👩‍👧 می‌خواهم")], nothing="")
    shown = capsys.readouterr().out
    assert f"ann{LEFT}" in shown
    assert f"Hi{LEFT} 👩‍👧 می‌خواهم" in shown
    assert not set("\x1b\x07\x9b\x7f\u202e\u2066") & set(shown)


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Europe/Berlin", "2026-11-20 09:00:00 Europe/Berlin"),
        ("America/Lima", "2026-11-20 03:00:00 America/Lima"),
        (None, "2026-11-20 17:00:00 JST"),
    ],
)
def test_a_users_time_names_its_zone(
    monkeypatch: pytest.MonkeyPatch, zone: str | None, shown: str
) -> None:
    """It is on the user's clock, or on this machine's if the user has set no zone."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert when_of_user("2026-11-20T08:00:00Z", {"time_zone": zone}) == shown
    finally:
        monkeypatch.undo()
        time.tzset()


def test_one_thing_is_not_many() -> None:
    """A count agrees with its noun."""
    counts = [(1, "batch"), (2, "batch"), (0, "message"), (1, "token"), (1_000, "token")]
    assert [counted(*given) for given in counts] == [
        *("1 batch", "2 batches", "0 messages", "1 token", "1,000 tokens")
    ]


def test_lines_json_and_errors_cannot_either(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON writes what is below a space as \\u…; the rest it would let through."""
    print_lines([f"ann{TRICKS}"])
    print_json({"who": f"ann{TRICKS}"})
    print_error(f"There is no thread ann{TRICKS}.")
    shown = capsys.readouterr()
    assert not set("\x1b\x07\x9b\x7f\u202e\u2066") & set(shown.out + shown.err)
    assert f"ann{LEFT}" in shown.out
    assert f"ann{LEFT}" in shown.err


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_terminal_is_too_narrow_for_an_id(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """What is shown is copied into the next command, and a reason that is cut explains nothing."""
    monkeypatch.setenv("COLUMNS", f"{width}")
    monkeypatch.setenv("TERM", "xterm")  # a dumb one has 80 columns
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    row = ("2233558261007646720", "2233558261007646721", "on 20 November 2026 at 09:05", "", "Why?")
    print_table(("id", "thread", "when", "became", "text"), [row, row])
    shown = capsys.readouterr().out
    assert all(shown.count(cell) == 2 for cell in row if cell)
    assert shown.count("became") == (width == 200)

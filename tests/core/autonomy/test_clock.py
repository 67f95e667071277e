"""The clock at the end of a system message, word for word."""

import locale
from datetime import UTC, datetime, timedelta

import pytest

from segue.core.autonomy.local_time import LocalClock
from segue.core.durations import say_duration

MONDAY = datetime(2026, 11, 23, 8, 5, 59, tzinfo=UTC)


def test_the_clock_states_the_users_date_time_weekday_and_zone() -> None:
    """The model reads the local minute, not UTC, and nothing more unless it is given."""
    assert LocalClock(MONDAY, "Europe/Berlin").text == (
        "Now: Monday, 23 November 2026, 09:05 (Europe/Berlin)."
    )


def test_the_clock_states_all_it_knows_one_fact_per_line() -> None:
    """A follow-up's request says that the agent may write first, and how long it was silent."""
    silence = timedelta(hours=2, minutes=5, seconds=59)
    clock = LocalClock(MONDAY, "Europe/Berlin", may_write_first=True, silent_for=silence)
    assert clock.text.splitlines() == [
        "Now: Monday, 23 November 2026, 09:05 (Europe/Berlin).",
        "You may write to the user first; such messages reach them without a question of theirs.",
        "The user has been silent for 2 hours and 5 minutes.",
    ]


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "localtime"])
def test_an_unknown_zone_is_read_as_utc_and_named_so(zone: str) -> None:
    """A wrong zone must not be stated beside a time that is not its own."""
    assert LocalClock(MONDAY, zone).text == "Now: Monday, 23 November 2026, 08:05 (UTC)."


def test_the_date_is_that_of_the_users_day() -> None:
    """In Auckland it is Tuesday already."""
    text = LocalClock(MONDAY + timedelta(hours=6), "Pacific/Auckland").text
    assert text == "Now: Tuesday, 24 November 2026, 03:05 (Pacific/Auckland)."


def test_the_language_of_the_process_changes_nothing() -> None:
    """A host program may set a locale; the names of days and months stay English."""
    before = locale.setlocale(locale.LC_TIME)
    try:
        for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"):
            try:
                locale.setlocale(locale.LC_TIME, name)
            except locale.Error:
                continue
            assert "Monday, 23 November" in LocalClock(MONDAY, "UTC").text
    finally:
        locale.setlocale(locale.LC_TIME, before)


@pytest.mark.parametrize(
    ("silence", "words"),
    [
        (timedelta(seconds=60), "1 minute"),
        (timedelta(minutes=59, seconds=59), "59 minutes"),
        (timedelta(hours=1), "1 hour"),
        (timedelta(hours=1, minutes=1), "1 hour and 1 minute"),
        (timedelta(days=1, minutes=5), "1 day"),
        (timedelta(days=3, hours=4, minutes=5), "3 days and 4 hours"),
    ],
)
def test_silence_is_stated_in_whole_minutes(silence: timedelta, words: str) -> None:
    """Two units at most, and seconds never: they would change the text from call to call."""
    text = LocalClock(MONDAY, "UTC", silent_for=silence).text
    assert text.endswith(f"The user has been silent for {words}.")


@pytest.mark.parametrize("seconds", [-5, 0, 59])
def test_silence_of_less_than_a_minute_is_not_stated(seconds: int) -> None:
    """The demo follows up after half a minute, and small models would comment on the remark."""
    text = LocalClock(MONDAY, "UTC", silent_for=timedelta(seconds=seconds)).text
    assert "silent" not in text


@pytest.mark.parametrize(
    ("delay", "words"),
    [
        (timedelta(minutes=20), "09:25 (Europe/Berlin)"),
        (timedelta(days=1), "09:05 on Tuesday, 24 November 2026 (Europe/Berlin)"),
        (timedelta(hours=15), "00:05 on Tuesday, 24 November 2026 (Europe/Berlin)"),
    ],
)
def test_another_time_has_its_date_on_another_local_day(delay: timedelta, words: str) -> None:
    """The model would take a bare time for one of today."""
    assert LocalClock(MONDAY, "Europe/Berlin").describe(MONDAY + delay) == words


def test_a_clock_change_moves_the_shown_time() -> None:
    """From 01:59 in Berlin one minute leads to 03:00 in spring, and to a second 02:00 in autumn."""
    spring = datetime(2027, 3, 28, 0, 59, tzinfo=UTC)
    clock = LocalClock(spring, "Europe/Berlin")
    minute = timedelta(minutes=1)
    assert clock.text == "Now: Sunday, 28 March 2027, 01:59 (Europe/Berlin)."
    assert clock.describe(spring + minute) == "03:00 (Europe/Berlin)"
    autumn = datetime(2026, 10, 25, 0, 59, tzinfo=UTC)
    clock = LocalClock(autumn, "Europe/Berlin")
    assert clock.describe(autumn) == "02:59 (Europe/Berlin)"
    assert clock.describe(autumn + minute) == "02:00 (Europe/Berlin)"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 seconds"),
        (0.4, "0 seconds"),
        (1, "1 second"),
        (90, "1 minute and 30 seconds"),
        (3_600, "1 hour"),
        (3_605, "1 hour"),
        (86_400 * 7, "7 days"),
        (-1, "0 seconds"),
    ],
)
def test_a_duration_is_said_in_at_most_two_adjacent_units(seconds: float, words: str) -> None:
    """As a person says it, rounded down."""
    assert say_duration(timedelta(seconds=seconds)) == words

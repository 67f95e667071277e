"""Lengths of time as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.durations import parse_duration, show_duration
from segue.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("10m", 600),
        ("2h30m", 9_000),
        ("2h 30m", 9_000),
        ("1.5h", 5_400),
        ("3 days", 259_200),
        ("1 day", 86_400),
        ("1 week", 604_800),
        ("1 Week, 2 Days", 777_600),
        ("5 min", 300),
        ("1 hour 1 minute 1 second", 3_661),
        (" 0s ", 0),
    ],
)
def test_people_can_write_it_their_way(text: str, seconds: float) -> None:
    """Short and long units, with and without blanks, alone and together."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", " ", "2", "h", "2x", "2h30", "-2h", "1 month", "2 h ago", "٣h", "2h;3m", "soon"]
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    """Nothing is guessed: the error quotes what was written and shows how to write it."""
    with pytest.raises(UsageError) as error:
        parse_duration(text)
    assert repr(text) in str(error.value)
    assert "'2h30m'" in str(error.value)


def test_a_time_beyond_all_bounds_is_refused() -> None:
    """A number with too many digits is an error of the same kind as any other."""
    with pytest.raises(UsageError, match="is too long"):
        parse_duration("9" * 400 + " weeks")
    with pytest.raises(UsageError, match="is too long"):
        parse_duration("999999999999 weeks")


@given(st.timedeltas(min_value=timedelta(), max_value=timedelta(days=10_000)))
def test_what_is_shown_can_be_read(span: timedelta) -> None:
    """To the second."""
    whole = timedelta(seconds=int(span.total_seconds()))
    assert parse_duration(show_duration(span)) == whole


def test_what_is_shown_is_short() -> None:
    """Units that are zero are left out."""
    assert show_duration(timedelta(days=3, minutes=30)) == "3d 30m"
    assert show_duration(timedelta()) == "0s"
    assert show_duration(-timedelta(hours=1)) == "-1h"

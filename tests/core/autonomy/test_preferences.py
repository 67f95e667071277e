"""What a user wants of follow-ups: checked when it is set, read leniently ever after."""

from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.autonomy.local_time import QuietHours
from segue.core.autonomy.policy import Preferences, check_preferences, check_settings
from segue.errors import UsageError

NIGHT = {"start": "22:00", "end": "07:00"}
QUIET = QuietHours(time(22), time(7))
MOMENT = datetime(2027, 1, 15, 8, tzinfo=UTC)

BAD = [
    ("time_zone", "Mars/Base"),
    ("time_zone", "America"),
    ("time_zone", "localtime"),
    ("time_zone", "posixrules"),
    ("time_zone", "Factory"),
    ("time_zone", "right/Europe/Berlin"),
    ("time_zone", ""),
    ("time_zone", 5),
    ("time_zone", ["Europe/Berlin"]),
    ("quiet_hours", True),
    ("quiet_hours", "22:00-07:00"),
    ("quiet_hours", {"start": "22:00"}),
    ("quiet_hours", {"from": "22:00", "to": "07:00"}),
    ("quiet_hours", {"start": "25:00", "end": "07:00"}),
    ("quiet_hours", {"start": "22:00:30", "end": "07:00"}),
    ("quiet_hours", {"start": "22:00+01:00", "end": "07:00"}),
    ("quiet_hours", {"start": "08:00", "end": "08:00"}),
    ("quiet_hours", {"start": 22, "end": 7}),
    ("quiet_hours", {"start": None, "end": None}),
    ("quiet_hours", ["22:00", "07:00"]),
    ("quiet_hours", 0),
    ("muted", "yes"),
    ("muted", 1),
    ("muted", 0),
    ("muted", "false"),
    ("opted_out", "no"),
    ("opted_out", []),
    ("snoozed_until", "tomorrow"),
    ("snoozed_until", "2027-01-15"),
    ("snoozed_until", "2027-01-15T08:00:00"),
    ("snoozed_until", datetime(2027, 1, 15)),  # noqa: DTZ001 - what is refused
    ("snoozed_until", 1_800_000_000),
    ("snoozed_until", True),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_wish_that_cannot_be_meant_is_refused_by_its_name(name: str, value: Any) -> None:
    """The error says which setting it is, what came, and what was expected."""
    for check in (check_settings, check_preferences):
        with pytest.raises(UsageError, match=f"^{name} is .*; expected ") as caught:
            check({"muted": True, name: value})
        assert repr(value)[:20] in str(caught.value)


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_stored_wish_that_cannot_be_read_counts_as_not_set(name: str, value: Any) -> None:
    """Whatever an older or a newer version has written, a conversation goes on."""
    stored = {name: value, "time_zone_of": 5}
    for user, thread in ((stored, {}), ({}, stored), (stored, stored)):
        assert Preferences.of(user, thread) == Preferences()


def test_an_error_does_not_repeat_a_long_value() -> None:
    """A megabyte that somebody sends does not end up in the log."""
    with pytest.raises(UsageError) as caught:
        check_settings({"time_zone": "x" * 1_000_000})
    assert len(str(caught.value)) < 300


def test_wishes_are_stored_as_plain_values() -> None:
    """Times become text in UTC, quiet hours a pair of times, so that any database can keep them."""
    berlin = timezone(timedelta(hours=1))
    given = {
        "snoozed_until": MOMENT.astimezone(berlin),
        "quiet_hours": QUIET,
        "time_zone": "Europe/Berlin",
        "muted": False,
        "opted_out": None,
    }
    assert check_settings(given) == {
        "snoozed_until": "2027-01-15T08:00:00+00:00",
        "quiet_hours": NIGHT,
        "time_zone": "Europe/Berlin",
        "muted": False,
        "opted_out": None,
    }


@pytest.mark.parametrize("hours", [NIGHT, QUIET, {"start": "22:00:00", "end": "07:00"}])
def test_what_is_checked_can_be_read(hours: Any) -> None:
    """What passes the check is what is read later, in each way of writing it."""
    stored = check_preferences({"quiet_hours": hours, "snoozed_until": "2027-01-15T09:00:00+01:00"})
    wishes = Preferences.of(stored, {})
    assert wishes.quiet_hours == QUIET
    assert wishes.snoozed_until == MOMENT


def test_no_quiet_hours_is_a_wish_too() -> None:
    """False is kept apart from nothing: an agent's own hours do not come back."""
    stored = check_preferences({"quiet_hours": False})
    wishes = Preferences.of(stored, {})
    assert wishes.quiet_hours is False
    assert Preferences.of({}, {}).quiet_hours is None


def test_a_threads_own_zone_and_hours_come_first() -> None:
    """Where a thread differs from its user, the thread counts; where it says nothing, the user."""
    user = {"time_zone": "Europe/Berlin", "quiet_hours": NIGHT}
    other = {"start": "12:00", "end": "13:00"}
    both = Preferences.of(user, {"time_zone": "Asia/Tokyo", "quiet_hours": other})
    assert (both.time_zone, both.quiet_hours) == ("Asia/Tokyo", QuietHours(time(12), time(13)))
    assert Preferences.of(user, {"quiet_hours": False}).quiet_hours is False
    assert Preferences.of(user, {"quiet_hours": None}).quiet_hours == QUIET
    assert Preferences.of({"quiet_hours": False}, {"quiet_hours": NIGHT}).quiet_hours == QUIET


@pytest.mark.parametrize("name", ["muted", "opted_out"])
@pytest.mark.parametrize(
    ("user", "thread", "is_silent"),
    [(True, False, True), (False, True, True), (True, None, True), (False, False, False)],
)
def test_whatever_keeps_silent_counts(
    name: str, user: bool, thread: bool | None, is_silent: bool
) -> None:
    """A thread cannot speak up against its user's wish, and the other way round."""
    wishes = Preferences.of({name: user}, {name: thread})
    assert getattr(wishes, name) is is_silent


def test_the_later_snooze_counts() -> None:
    """Of two snoozes the agent waits for both."""
    early, late = (f"2027-01-1{day}T08:00:00+00:00" for day in (5, 6))
    for user, thread in ((early, late), (late, early)):
        wishes = Preferences.of({"snoozed_until": user}, {"snoozed_until": thread})
        assert wishes.snoozed_until == MOMENT + timedelta(days=1)


@pytest.mark.parametrize("given", [["muted"], "muted", 5])
def test_settings_that_are_none_are_refused(given: Any) -> None:
    """A list or a text has no names in it."""
    with pytest.raises(UsageError, match="Settings are a mapping, not "):
        check_settings(given)


def test_other_settings_are_passed_on() -> None:
    """A thread's settings may hold more than wishes, and a program's own are its own."""
    assert check_settings({"nested": True, "colour": "red"}) == {"nested": True, "colour": "red"}


def test_a_slip_in_a_wishs_name_is_an_error() -> None:
    """A user who said "mute" would be written to, and nobody would know why."""
    with pytest.raises(
        UsageError, match="Unknown preference 'mute'; expected one of: time_zone, quiet_h"
    ):
        check_preferences({"mute": True})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["start", "end"]), inner),
    max_leaves=4,
)
WISHES = st.dictionaries(st.sampled_from([name for name, _ in BAD]), ANYTHING)


@given(WISHES, WISHES)
def test_no_stored_value_ever_breaks_the_reading(
    user: dict[str, Any], thread: dict[str, Any]
) -> None:
    """Gates are asked on whatever is there; and what reads differently from nothing was valid."""
    wishes = Preferences.of(user, thread)
    if wishes == Preferences():
        return
    valid = [name for one in (user, thread) for name in one if _is_valid(name, one[name])]
    assert valid


def _is_valid(name: str, value: Any) -> bool:
    try:
        check_settings({name: value})
    except UsageError:
        return False
    return True

"""The input of the gates: an owner's policy, a user's preferences, and the facts about a due timer.

Values only; the gates decide, and their caller collects the facts. Preferences are stored as plain
settings of the user and of a thread. They are checked when they are set, and read leniently: a
stored value that cannot be read counts as not set. `apply_request` converts a user's request in a
message into preferences.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from segue.core.autonomy.local_time import NIGHT, QuietHours, as_utc, find_zone
from segue.core.durations import OR_NONE, Duration
from segue.core.speech.stops import Part, UserRequest, When, Wish
from segue.errors import UsageError

NO_TIME: Final = timedelta()

# The types repeat the bounds for settings, which report each wrong value with its place.
_Span = Annotated[Duration, Field(ge=NO_TIME)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an agent's owner allows. Raises `UsageError` for impossible values.

    `max_per_day` and `cooldown` count the follow-ups of all agents to one user.
    """

    enabled: bool = True
    """If false, no follow-up is sent, not even a planned one."""
    max_consecutive: Annotated[int, Field(ge=0)] = 2
    """Maximum number of follow-ups in a row until the user writes; 0 means none."""
    max_per_day: Annotated[int, Field(ge=0)] = 5
    """Maximum number of follow-ups to one user per day, from all agents together; 0 means none."""
    cooldown: _Span = timedelta(minutes=10)
    """Minimum time between two follow-ups to one user, from all agents together."""
    quiet_hours: Annotated[QuietHours | None, OR_NONE] = NIGHT
    """Hours without follow-ups for users who have not set their own, by default `22:00` to `08:00`;
    `none` means no quiet hours."""
    typing_hold: _Span = timedelta(seconds=30)
    """How long follow-ups wait after the user last typed."""
    talking_hold: _Span = timedelta(minutes=2)
    """How long events wait after the last message of the conversation."""
    late_after: _Span = timedelta(minutes=5)
    """A timer that is checked later than this counts as missed."""
    backoff: Annotated[float, Field(ge=1)] = 2.0
    """Each unanswered follow-up multiplies the next delay by this; 1 keeps it."""
    min_delay: _Span = timedelta(seconds=10)
    """Minimum delay of a follow-up, even if a shorter one was planned."""
    max_delay: Duration = timedelta(days=7)
    """Maximum delay of a follow-up, after the backoff."""

    def __post_init__(self) -> None:
        for name in ("cooldown", "typing_hold", "talking_hold", "late_after", "min_delay"):
            if getattr(self, name) < NO_TIME:
                raise UsageError(f"The policy's {name} is negative; expected zero or more.")
        for name in ("max_consecutive", "max_per_day"):
            if getattr(self, name) < 0:
                raise UsageError(f"The policy's {name} is negative; 0 means: send none.")
        if not (math.isfinite(self.backoff) and self.backoff >= 1):
            raise UsageError(
                f"The policy's backoff is {self.backoff}; expected 1 (same delay) or more."
            )
        if self.max_delay < self.min_delay:
            raise UsageError(
                f"The policy's max_delay {self.max_delay} is below its min_delay {self.min_delay}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about a due timer, its thread and its user at `checked_at`.

    Times are converted to UTC; `UsageError` for one without a time zone. `consecutive` counts the
    follow-ups since the user's last message, `sent_today` those of all agents on the user's local
    day, and `last_follow_up_at` is the latest of them. `missed` is the timer's own policy: run,
    skip or run_if_within:<seconds>.
    """

    checked_at: datetime
    due_at: datetime
    armed_epoch: int
    thread_epoch: int
    zone: str | None = None
    opted_out: bool = False
    muted: bool = False
    snoozed_until: datetime | None = None
    # Whether the mute or the snooze applies to all threads, not to this one alone.
    muted_everywhere: bool = False
    snoozed_everywhere: bool = False
    expires_at: datetime | None = None
    missed: str = "run"
    consecutive: int = 0
    sent_today: int = 0
    last_follow_up_at: datetime | None = None
    typing_at: datetime | None = None
    talked_at: datetime | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, datetime):
                object.__setattr__(self, each.name, as_utc(value))

    @property
    def clock(self) -> tzinfo:
        return find_zone(self.zone) or UTC

    @property
    def place(self) -> str:
        """The time zone as text; with the reason if it is UTC by default."""
        if find_zone(self.zone) is not None:
            return f"in {self.zone}"
        given = f"time zone {self.zone!r:.60} is unknown" if self.zone else "no time zone is known"
        return f"in UTC, since {given}"


def next_delay(policy: Policy, base: timedelta, consecutive: int) -> timedelta:
    """The delay after this many ignored follow-ups: each multiplies it, within the bounds."""
    try:
        # After a thousand steps any backoff above 1 has reached the longest delay.
        delay = base * float(policy.backoff) ** min(max(consecutive, 0), 1_000)
    except OverflowError:
        delay = policy.max_delay
    return min(max(delay, policy.min_delay), policy.max_delay)


@dataclass(frozen=True, slots=True)
class Preferences:
    time_zone: str | None = None
    # False if the user switched quiet hours off, so the agent's own do not apply either.
    quiet_hours: QuietHours | Literal[False] | None = None
    muted: bool = False
    snoozed_until: datetime | None = None
    opted_out: bool = False
    # Whether the mute or the snooze is the user's, for all threads.
    muted_everywhere: bool = False
    snoozed_everywhere: bool = False

    @classmethod
    def of(
        cls, user: Mapping[str, Any], thread: Mapping[str, Any], zone: str | None = None
    ) -> "Preferences":
        """A thread's zone and quiet hours override the user's; either's mute or snooze counts.

        `zone` is that of users who have not set theirs.
        """
        own, general = _read(thread), _read(user)
        hours = (own if "quiet_hours" in own else general).get("quiet_hours")
        snoozes = [s["snoozed_until"] for s in (own, general) if s.get("snoozed_until")]
        longest = max(snoozes, default=None)
        return cls(
            time_zone=own.get("time_zone") or general.get("time_zone") or zone,
            quiet_hours=hours,
            muted=bool(own.get("muted") or general.get("muted")),
            snoozed_until=longest,
            opted_out=bool(own.get("opted_out") or general.get("opted_out")),
            muted_everywhere=bool(general.get("muted")),
            snoozed_everywhere=longest is not None and longest == general.get("snoozed_until"),
        )

    @property
    def clock(self) -> tzinfo:
        """The user's time zone; UTC if none is known."""
        return find_zone(self.time_zone) or UTC

    def apply_to(self, policy: Policy) -> Policy:
        """The policy with the user's quiet hours, if they set any."""
        if self.quiet_hours is None:
            return policy
        return replace(policy, quiet_hours=self.quiet_hours or None)

    @property
    def own_quiet_hours(self) -> Any:
        """The user's quiet hours as a plain setting: false for none, None if not set."""
        return _plain(self.quiet_hours)

    def as_facts(self) -> dict[str, Any]:
        """The fields of the gates' `Facts` that come from preferences."""
        return {
            "zone": self.time_zone,
            "opted_out": self.opted_out,
            "muted": self.muted,
            "snoozed_until": self.snoozed_until,
            "muted_everywhere": self.muted_everywhere,
            "snoozed_everywhere": self.snoozed_everywhere,
        }


# Preferences that postpone a follow-up; when one changes, postponed follow-ups are re-checked.
POSTPONING: Final = frozenset({"time_zone", "quiet_hours", "snoozed_until"})


def check_settings(settings: Mapping[str, Any], now: datetime | None = None) -> dict[str, Any]:
    """The settings as they are stored; `UsageError` names the first wrong preference.

    None removes a preference. Other settings are passed on unchanged.
    """
    if not isinstance(settings, Mapping):
        raise UsageError(f"Settings are a mapping, not {type(settings).__name__}.")
    for name, value in settings.items():
        if name not in _RULES or value is None:
            continue
        read, expected = _RULES[name]
        try:
            read(value)
        except (TypeError, ValueError, KeyError) as error:
            raise UsageError(f"{name} is {value!r:.80}; expected {expected}.") from error
    if now is not None and (snoozed := settings.get("snoozed_until")) is not None:
        until = _moment(snoozed)
        if until <= now:  # a snooze into the past has no effect
            raise UsageError(
                f"snoozed_until is {until.isoformat()}, which is past; expected a time after "
                f"{as_utc(now).isoformat()}, or nothing to end a snooze."
            )
    return {name: _plain(value) for name, value in settings.items()}


def check_preferences(
    preferences: Mapping[str, Any], now: datetime | None = None
) -> dict[str, Any]:
    """The same, but an unknown name is an error: a misspelt one would be ignored silently."""
    if unknown := sorted(preferences.keys() - _RULES.keys()):
        raise UsageError(
            f"Unknown preference {unknown[0]!r:.80}; expected one of: {', '.join(_RULES)}."
        )
    return check_settings(preferences, now)


def preferences_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in _RULES}


def _read(settings: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (read, _) in _RULES.items():
        if settings.get(name) is None:
            continue
        try:
            found[name] = read(settings[name])
        except (TypeError, ValueError, KeyError):
            continue
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return as_utc(value).isoformat()
    if isinstance(value, QuietHours):
        return value.as_json()
    return value


def _zone(value: Any) -> str:
    if not isinstance(value, str) or find_zone(value) is None:
        raise ValueError
    return value


def _hours(value: Any) -> QuietHours | Literal[False]:
    if value is False:
        return False
    if isinstance(value, QuietHours):
        return value
    return QuietHours(time.fromisoformat(value["start"]), time.fromisoformat(value["end"]))


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _moment(value: Any) -> datetime:
    return as_utc(value if isinstance(value, datetime) else datetime.fromisoformat(value))


_RULES: Final[Mapping[str, tuple[Callable[[Any], Any], str]]] = {
    "time_zone": (_zone, "the name of an IANA time zone such as 'Europe/Berlin'"),
    "quiet_hours": (_hours, "{'start': '22:00', 'end': '07:00'}, two times that differ, or false"),
    "muted": (_flag, "true or false"),
    "snoozed_until": (_moment, "a time with a time zone such as '2027-01-15T08:00:00+00:00'"),
    "opted_out": (_flag, "true or false"),
}


_MORNING: Final = time(9)
_EVENING: Final = time(19)
_LATER: Final = timedelta(hours=4)


def apply_request(
    request: UserRequest, settings: Mapping[str, Any], now: datetime, clock: tzinfo
) -> dict[str, Any] | None:
    """The preferences to set, for all agents; None if the request changes nothing.

    A snooze gets no shorter: "Talk to you tomorrow!" does not end that of a holiday.
    """
    if request.wish is Wish.RESUME:
        ended = [name for name in ("opted_out", "snoozed_until") if settings.get(name)]
        return dict.fromkeys(ended) or None
    if request.wish is Wish.STOP_REMINDERS or settings.get("opted_out") is True:
        return None
    if request.wish is Wish.STOP:
        return {"opted_out": True}
    until = resolve_when(request.when or When(), now, clock)
    snoozed = _read(settings).get("snoozed_until")
    return None if snoozed and snoozed >= until else {"snoozed_until": until.isoformat()}


def resolve_when(when: When, now: datetime, zone: tzinfo) -> datetime:
    """When follow-ups may come again, in UTC; a day begins at 9:00 of the user's clock."""
    local = as_utc(now).astimezone(zone)
    if when.after is not None:
        return as_utc(now) + when.after
    if when.part is Part.EVENING and local.time() < _EVENING:
        return as_utc(datetime.combine(local.date(), _EVENING, zone))
    if when.weekday is None and when.part is Part.LATER:
        return as_utc(now) + _LATER
    return as_utc(datetime.combine(local.date() + _days_until(when, local.date()), _MORNING, zone))


def _days_until(when: When, today: date) -> timedelta:
    """At least one day: on a Monday, "until Monday" means the next one."""
    if when.weekday is not None:
        return timedelta(days=(when.weekday - today.weekday() - 1) % 7 + 1)
    if when.part is Part.NEXT_MONTH:
        first = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
        return first - today
    weekday = {Part.WEEKEND: 5, Part.NEXT_WEEK: 0}.get(when.part)
    if weekday is not None:
        return _days_until(When(weekday=weekday), today)
    return timedelta(days=2 if when.part is Part.DAY_AFTER else 1)

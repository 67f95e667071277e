"""The input of the gates: an owner's policy, and the facts about a due timer.

Values only; the gates decide, and their caller collects the facts.
"""

import math
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Final

from pydantic import Field

from segue.core.autonomy.local_time import QuietHours, as_utc, find_zone
from segue.core.durations import Duration
from segue.errors import UsageError

NO_TIME: Final = timedelta()

# The types repeat the bounds for settings, which report each wrong value with its place.
_Span = Annotated[Duration, Field(ge=NO_TIME)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an agent's owner allows. Raises `UsageError` for impossible values.

    `max_per_day` and `cooldown` count the follow-ups of all agents to one user. Quiet hours are
    off by default: without the user's time zone they would apply at the wrong time.
    """

    enabled: bool = True
    """If false, no follow-up is sent, not even a planned one."""
    max_consecutive: Annotated[int, Field(ge=0)] = 3
    """Most follow-ups in a row until the user writes; 0 means none."""
    max_per_day: Annotated[int, Field(ge=0)] = 5
    """Most follow-ups to one user per day, from all agents together; 0 means none."""
    cooldown: _Span = timedelta(minutes=10)
    """Least time between two follow-ups to one user, from all agents together."""
    quiet_hours: QuietHours | None = None
    """Hours without follow-ups for users who have not set their own."""
    typing_hold: _Span = timedelta(seconds=30)
    """How long follow-ups wait after the user was last seen typing."""
    late_after: _Span = timedelta(minutes=5)
    """A timer found later than this counts as missed."""
    backoff: Annotated[float, Field(ge=1)] = 2.0
    """Each unanswered follow-up multiplies the next delay by this; 1 keeps it."""
    min_delay: _Span = timedelta(seconds=10)
    """Shortest delay of a follow-up, whatever was planned."""
    max_delay: Duration = timedelta(days=7)
    """Longest delay of a follow-up, whatever the backoff."""

    def __post_init__(self) -> None:
        for name in ("cooldown", "typing_hold", "late_after", "min_delay"):
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
        """Which clock is used, as text; with the reason if it is UTC by default."""
        if find_zone(self.zone) is not None:
            return f"in {self.zone}"
        given = f"time zone {self.zone!r:.60} is unknown" if self.zone else "no time zone is known"
        return f"in UTC, since {given}"


def next_delay(policy: Policy, base: timedelta, consecutive: int) -> timedelta:
    """The delay after `consecutive` unanswered follow-ups.

    Each multiplies it by the policy's `backoff`, between `min_delay` and `max_delay`.
    """
    try:
        # After a thousand steps any backoff above 1 has reached the longest delay.
        delay = base * float(policy.backoff) ** min(max(consecutive, 0), 1_000)
    except OverflowError:
        delay = policy.max_delay
    return min(max(delay, policy.min_delay), policy.max_delay)

"""What the gates go by: an owner's policy, and the facts about a due timer.

Values only. Whether a follow-up may be sent is `segue.core.gates`'s; collecting the facts is the
caller's.
"""

import math
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Final

from pydantic import Field

from segue.core.durations import Length
from segue.core.errors import UsageError
from segue.core.quiet import QuietHours, as_utc, find_zone

NO_TIME: Final = timedelta()

# Bounds are in the types for settings, which then report each wrong value at its own place.
_Span = Annotated[Length, Field(ge=NO_TIME)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an agent's owner allows. Raises `UsageError` for values that cannot be meant.

    `max_per_day` and `cooldown` count the follow-ups of all agents to one user. Quiet hours are
    off until they are set: without the user's time zone they would be quiet at the wrong time.
    """

    enabled: bool = True
    """Off, nothing is sent, not even what is planned already."""
    max_consecutive: Annotated[int, Field(ge=0)] = 3
    """How many follow-ups may go out in a row until the user writes; 0 means none."""
    max_per_day: Annotated[int, Field(ge=0)] = 5
    """How many follow-ups one user gets on one day, of all agents together; 0 means none."""
    cooldown: _Span = timedelta(minutes=10)
    """The least time between two follow-ups to one user, of all agents together."""
    quiet_hours: QuietHours | None = None
    """Hours without follow-ups, for users who have not set their own."""
    typing_hold: _Span = timedelta(seconds=30)
    """How long a user who was seen typing is not interrupted."""
    late_after: _Span = timedelta(minutes=5)
    """Later than this, a timer counts as missed: nobody was there to look at it in time."""
    backoff: Annotated[float, Field(ge=1)] = 2.0
    """Each follow-up that nobody answered multiplies the next delay by this; 1 keeps it."""
    min_delay: _Span = timedelta(seconds=10)
    """The shortest delay of a follow-up, whatever was planned."""
    max_delay: Length = timedelta(days=7)
    """The longest delay of a follow-up, however often it was multiplied."""

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
    """What is known about a due timer, its thread and its user at the moment of asking.

    Moments are turned into UTC; `UsageError` for one without a time zone. Nothing else is
    refused, however odd. `consecutive` counts the follow-ups since the user's last message,
    `sent_today` those of all agents on the user's local day, and `last_follow_up_at` is the
    latest of them. `missed` is the timer's own policy: run, skip or run_if_within:<seconds>.
    """

    checked_at: datetime
    due_at: datetime
    armed_epoch: int
    thread_epoch: int
    zone: str | None = None
    opted_out: bool = False
    muted: bool = False
    snoozed_until: datetime | None = None
    # The user's wishes that hold in all threads, not in this one alone.
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
        """Whose clock is used, in words; where UTC stands in for another, it says so."""
        if find_zone(self.zone) is not None:
            return f"in {self.zone}"
        given = f"time zone {self.zone!r:.60} is unknown" if self.zone else "no time zone is known"
        return f"in UTC, since {given}"


def next_delay(policy: Policy, base: timedelta, consecutive: int) -> timedelta:
    """How long to stay silent after `consecutive` follow-ups that nobody answered.

    Each one multiplies the delay by the policy's `backoff`, within its least and longest delay.
    """
    try:
        # Past a thousand any backoff is at its longest delay or has none.
        delay = base * float(policy.backoff) ** min(max(consecutive, 0), 1_000)
    except OverflowError:
        delay = policy.max_delay
    return min(max(delay, policy.min_delay), policy.max_delay)

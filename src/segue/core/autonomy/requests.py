"""What a user's request about follow-ups changes in their preferences."""

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any, Final

from segue.core.autonomy.local_time import as_utc
from segue.core.speech.stops import FollowUpRequest, Part, When, Wish

_MORNING: Final = time(9)
_EVENING: Final = time(19)
_LATER: Final = timedelta(hours=4)


def apply_request(
    request: FollowUpRequest, settings: Mapping[str, Any], now: datetime, clock: tzinfo
) -> dict[str, Any] | None:
    """The preferences to set, for all agents; None if the request changes nothing."""
    if request.wish is Wish.RESUME:
        ended = [name for name in ("opted_out", "snoozed_until") if settings.get(name)]
        return dict.fromkeys(ended) or None
    if request.wish is Wish.STOP_REMINDERS or settings.get("opted_out") is True:
        return None
    if request.wish is Wish.STOP:
        return {"opted_out": True}
    until = resolve_when(request.when or When(), now, clock)
    return {"snoozed_until": until.isoformat()}


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

"""What a user wants of follow-ups: whose clock, which hours, and whether at all.

Kept as plain settings of the user, and of a thread where it differs. Checked when they are set;
read leniently, since what is stored must not stop a conversation: a value that cannot be read
counts as not set.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import Any, Final

from segue.core.errors import UsageError
from segue.core.policy import Policy
from segue.core.quiet import QuietHours, as_utc, find_zone


@dataclass(frozen=True, slots=True)
class Preferences:
    """A user's wishes, as they hold in one thread."""

    time_zone: str | None = None
    quiet_hours: QuietHours | None = None
    # Quiet hours that were set to none on purpose; an agent's own do not come back then.
    no_quiet_hours: bool = False
    muted: bool = False
    snoozed_until: datetime | None = None
    opted_out: bool = False
    # Which of these were said of all threads.
    of_all: frozenset[str] = frozenset()

    @classmethod
    def of(cls, user: Mapping[str, Any], thread: Mapping[str, Any]) -> "Preferences":
        """A thread's own zone and quiet hours come first; whatever keeps silent, counts."""
        one, other = _read(thread), _read(user)
        hours = "quiet_hours" if "quiet_hours" in one else None
        chosen = one if hours else other
        snoozes = [s["snoozed_until"] for s in (one, other) if s.get("snoozed_until")]
        longest = max(snoozes, default=None)
        of_all = {"muted"} if other.get("muted") else set()
        of_all |= {"snoozed_until"} if longest and longest == other.get("snoozed_until") else set()
        return cls(
            time_zone=one.get("time_zone") or other.get("time_zone"),
            quiet_hours=chosen.get("quiet_hours") or None,
            no_quiet_hours=chosen.get("quiet_hours") is False,
            muted=bool(one.get("muted") or other.get("muted")),
            snoozed_until=longest,
            opted_out=bool(one.get("opted_out") or other.get("opted_out")),
            of_all=frozenset(of_all),
        )

    def over(self, policy: Policy) -> Policy:
        """The policy with the user's own quiet hours, if there are any."""
        if self.quiet_hours is None and not self.no_quiet_hours:
            return policy
        return replace(policy, quiet_hours=self.quiet_hours)

    @property
    def own_hours(self) -> Any:
        """The user's own quiet hours as settings say them: false for none, None if not set."""
        return False if self.no_quiet_hours else _plain(self.quiet_hours)

    def as_facts(self) -> dict[str, Any]:
        """What the gates are told of it, as the names of their facts say it."""
        return {
            "zone": self.time_zone,
            "opted_out": self.opted_out,
            "muted": self.muted,
            "snoozed_until": self.snoozed_until,
            "muted_everywhere": "muted" in self.of_all,
            "snoozed_everywhere": "snoozed_until" in self.of_all,
        }


def check_preferences(settings: Mapping[str, Any], now: datetime | None = None) -> dict[str, Any]:
    """The settings as they are stored; `UsageError` names the first that is wrong.

    None removes one. Settings that are not about follow-ups are passed on as they are.
    """
    if not isinstance(settings, Mapping):
        raise UsageError(f"Settings are names with values, not {type(settings).__name__}.")
    for name, value in settings.items():
        rule = _RULES.get(name)
        if rule is None or value is None:
            continue
        read, expected = rule
        try:
            read(value)
        except (TypeError, ValueError, KeyError) as error:
            raise UsageError(f"{name} is {value!r:.80}; expected {expected}.") from error
    if now is not None and settings.get("snoozed_until") is not None:
        _check_future(_moment(settings["snoozed_until"]), now)
    return {name: _plain(value) for name, value in settings.items()}


def check_wishes(wishes: Mapping[str, Any], now: datetime | None = None) -> dict[str, Any]:
    """The same for settings that are all about follow-ups: a slip in a name is an error, too.

    A wish that nobody understands would be a user who is written to against it.
    """
    if unknown := sorted(wishes.keys() - _RULES.keys()):
        raise UsageError(f"There is no wish {unknown[0]!r:.80}; there are: {', '.join(_RULES)}.")
    return check_preferences(wishes, now)


def wishes_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of all settings, those that are about follow-ups: what else is kept there is no wish."""
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


def _check_future(until: datetime, now: datetime) -> None:
    """A snooze that is over before it begins would be no snooze, and its user would not know."""
    if until <= now:
        raise UsageError(
            f"snoozed_until is {until.isoformat()}, which is past; expected a time after "
            f"{as_utc(now).isoformat()}, or nothing to end a snooze."
        )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return as_utc(value).isoformat()
    if isinstance(value, QuietHours):
        return {"start": f"{value.start:%H:%M}", "end": f"{value.end:%H:%M}"}
    return value


def _zone(value: Any) -> str:
    if not isinstance(value, str) or find_zone(value) is None:
        raise ValueError
    return value


def _hours(value: Any) -> QuietHours | bool:
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

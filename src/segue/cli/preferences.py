"""`segue preferences`: when agents may write to a user of their own accord."""

from datetime import datetime
from typing import Annotated, Any

import typer

from segue.cli.access import Target
from segue.cli.output import Answer, print_table, when
from segue.core.durations import parse_duration
from segue.errors import UsageError
from segue.offline import OfflineSegue
from segue.runtime.clock import SystemClock

_USER = "Whose; by default the key's user, or `me` without a server."
_QUIET_HOURS = "No follow-ups then, on the user's clock, such as 22:00-08:00; off; or default."
_ZONE = "The user's time zone, such as Europe/Berlin; or default."
_MUTE = "No follow-ups and no reminders."
_SNOOZE = (
    "No follow-ups for a time such as 3h, or until one such as 2027-01-15T08:00+01:00; or off."
)
_STOP = "Opt out: agents do not write of their own accord until the user wants it again."
_RESUME = "Take back --stop and --snooze."


def preferences(  # noqa: PLR0913  # each is an option of the command
    user: Annotated[str | None, typer.Argument(metavar="[USER]", help=_USER)] = None,
    *,
    quiet_hours: Annotated[str | None, typer.Option(help=_QUIET_HOURS)] = None,
    zone: Annotated[str | None, typer.Option(help=_ZONE)] = None,
    mute: Annotated[bool | None, typer.Option("--mute/--unmute", help=_MUTE)] = None,
    snooze: Annotated[str | None, typer.Option(help=_SNOOZE)] = None,
    stop: Annotated[bool, typer.Option("--stop", help=_STOP)] = False,
    resume: Annotated[bool, typer.Option("--resume", help=_RESUME)] = False,
    target: Target,
) -> Answer:
    """Show a user's preferences for all agents, or change those that are given."""
    if resume and (stop or snooze is not None):
        raise UsageError("--resume takes back --stop and --snooze; give it without them.")
    changes: dict[str, Any] = dict.fromkeys(("opted_out", "snoozed_until")) if resume else {}
    if stop:
        changes["opted_out"] = True
    if mute is not None:
        changes["muted"] = mute or None
    if zone is not None:
        changes["time_zone"] = None if zone == "default" else zone
    if quiet_hours is not None:
        changes["quiet_hours"] = _parse_hours(quiet_hours)
    if snooze is not None:
        changes["snoozed_until"] = _parse_snooze(snooze, SystemClock().now())

    async def work(stored: OfflineSegue) -> Any:
        owner = user or "me"
        found = await stored.set_preferences(owner, changes)
        return {"user_id": owner, "preferences": dict(found)}

    sent = {"body": changes} if changes else {}
    found = target.call("PATCH" if changes else "GET", "/api/me", work, user=user, **sent)
    return Answer(found, lambda: _print(found["preferences"]))


def _print(found: dict[str, Any]) -> None:
    rows = [(name, _shown(name, value)) for name, value in sorted(found.items())]
    print_table(("preference", "value"), rows, nothing="No preference is set.")


def _shown(name: str, value: Any) -> str:
    if name == "quiet_hours":
        return f"{value['start']} to {value['end']}" if value else "off"
    if name == "snoozed_until":
        return when(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_hours(text: str) -> Any:
    if text in ("off", "default"):
        return False if text == "off" else None
    start, dash, end = text.partition("-")
    if not dash:
        raise UsageError(
            f"--quiet-hours is {text!r:.60}; expected times such as 22:00-08:00, off or default."
        )
    return {"start": start.strip(), "end": end.strip()}


def _parse_snooze(text: str, now: datetime) -> str | None:
    if text == "off":
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = now + parse_duration(text)
    if moment.tzinfo is None:
        raise UsageError(f"--snooze is {text!r:.60}; expected a time with its zone, or a duration.")
    return moment.isoformat()

"""`segue follow-up`, `remind`, `reminders` and `preferences`: when an agent writes first."""

import json
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from segue.cli.output import Answer, ThreadId, UserOfKey, print_table, when, when_of_user
from segue.cli.target import Target, of_thread, suggest_user
from segue.core.autonomy.local_time import after
from segue.core.durations import parse_duration
from segue.core.snowflake import parse
from segue.core.text import exact_json, one_line
from segue.errors import UsageError
from segue.journal.records import Thread
from segue.offline import OfflineSegue
from segue.runtime.clock import SystemClock
from segue.runtime.reminders import requested_key
from segue.runtime.requests import FollowUpRequest

_AT = "When, with its zone, such as 2027-01-15T08:00+01:00; by default at once."
_AFTER = "How long from now, such as 20m or 2h."
_PROMPT = "Prompt for the model, instead of the trigger's; users never see it."
_ONCE = "A key of the request; the same key again returns the first follow-up."
_REMIND_ONCE = "A key of the request; the same key again returns the first reminder."
_TEXT = "What to remind the user of."
_EVERY = "A rule such as 'FREQ=WEEKLY;BYDAY=MO;BYHOUR=9', or a cron line such as '0 9 * * 1'."
_WHOSE = (
    "The user, if the key may act for many users; by default the key's user, or `me` without a "
    "server."
)


def follow_up(  # noqa: PLR0913  # each is an option of the command
    thread_id: ThreadId,
    *,
    at: Annotated[str | None, _AT] = None,
    after: Annotated[str | None, _AFTER] = None,
    trigger: Annotated[str, "A fixed trigger, or one of the agent's own."] = "check_in",
    prompt: Annotated[str | None, _PROMPT] = None,
    reason: Annotated[str | None, "A reason for operators; users never see it."] = None,
    data: Annotated[str | None, "JSON to quote to the model; users never see it."] = None,
    once: Annotated[str | None, _ONCE] = None,
    user: UserOfKey = None,
    target: Target,
) -> Answer:
    """Let the agent write first in a thread, also in an empty one; the gates decide when it is due.

    A running server sends it; a message of the user voids it.
    """
    request = FollowUpRequest(
        at=None if at is None else _parse_time("--at", at, "use --after"),
        after=None if after is None else parse_duration(after),
        trigger=trigger,
        prompt=prompt,
        reason=reason,
        data=_parse_data(data),
        key=once,
    )

    async def work(segue: OfflineSegue, thread: Thread) -> Any:
        async with segue.new_ids() as ids:
            timer = await segue.requests(ids).follow_up(thread, request)
        shown = {"id": timer.id, "state": timer.state, "reason": timer.state_reason}
        return exact_json({**shown, "due_at": timer.due_at, "is_new": timer.is_new})

    wait = None if request.after is None else request.after.total_seconds()
    body = {**exact_json(request), "after": wait, "data": request.data}
    path = f"/api/threads/{quote(thread_id, safe='')}/follow-ups"
    with suggest_user(if_missing=target.url is not None and user is None):
        found = target.call("POST", path, of_thread(thread_id, work), user=user, body=body)
    shown = f"Follow-up {found['id']} is {found['state']}, due {when(found['due_at'])}."
    if not found["is_new"]:
        shown += f" It was already requested as {once!r}; nothing was changed."
    if found["reason"]:
        shown += f" {found['reason']}"
    return Answer(found, lambda: typer.echo(shown))


def remind(  # noqa: PLR0913  # each is an option of the command
    thread_id: ThreadId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help=_TEXT)],
    *,
    after: Annotated[str | None, "How long from now, such as 20m or 3 days."] = None,
    at: Annotated[str | None, "The user's local time, such as 2027-01-15T09:00."] = None,
    every: Annotated[str | None, _EVERY] = None,
    until: Annotated[str | None, "The local time or date at which a rule ends."] = None,
    once: Annotated[str | None, _REMIND_ONCE] = None,
    user: UserOfKey = None,
    target: Target,
) -> Answer:
    """Set a reminder in a thread; a running server sends it."""
    given = {"after": after, "at": at, "every": every, "until": until}

    async def work(segue: OfflineSegue, thread: Thread) -> Any:
        async with segue.new_ids() as ids:
            own = requested_key(once)
            return exact_json(await segue.reminders(ids).remind(thread, text, key=own, **given))

    path = f"/api/threads/{quote(thread_id, safe='')}/reminders"
    body = {"text": text, "key": once, **given}
    with suggest_user(if_missing=target.url is not None and user is None):
        found = target.call("POST", path, of_thread(thread_id, work), user=user, body=body)
    return Answer(found, lambda: typer.echo(f"Reminder {found['id']}: {found['description']}."))


def reminders(
    *,
    user: Annotated[str | None, _WHOSE] = None,
    thread: Annotated[str | None, "The reminders of one thread."] = None,
    cancel: Annotated[str | None, "Cancel the reminder with this id."] = None,
    target: Target,
) -> Answer:
    """List pending reminders, soonest first, or cancel one."""
    if sum(given is not None for given in (user, thread, cancel)) > 1:
        raise UsageError("Give one of --user, --thread and --cancel.")
    if cancel is not None:
        return _cancel(target, cancel)

    async def load(segue: OfflineSegue) -> Any:
        owner = "me" if user is None else user
        return exact_json(await segue.reminders().list_of_user(owner))

    async def load_thread(segue: OfflineSegue, found: Thread) -> Any:
        return exact_json(await segue.reminders().list_of_thread(found))

    if thread is None:
        found = target.call("GET", "/api/reminders", load, user=user)
    else:
        path = f"/api/threads/{quote(thread, safe='')}/reminders"
        found = target.look(path, of_thread(thread, load_thread))
    rows = ((r["id"], r["thread_id"], r["description"], one_line(r["text"], 60)) for r in found)
    headings = ("id", "thread", "when", "what")
    return Answer.table(found, headings, rows, nothing="No reminders.")


def _cancel(target: Target, reminder_id: str) -> Answer:
    async def work(segue: OfflineSegue) -> Any:
        return exact_json(await segue.reminders().cancel(parse(reminder_id)))

    found = target.call("DELETE", f"/api/reminders/{quote(reminder_id, safe='')}", work)
    text = f"Reminder {reminder_id} is cancelled."
    return Answer(found or {"id": reminder_id}, lambda: typer.echo(text))


def _parse_time(option: str, text: str, instead: str, now: datetime | None = None) -> datetime:
    """A time with its zone; with `now`, also a duration from now on."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        # Without a zone it is refused below.
        moment = after(now, parse_duration(text)) if now else datetime.min  # noqa: DTZ901
    if moment.tzinfo is None:
        raise UsageError(f"{option} is {text!r:.60}; expected a time with its zone, or {instead}.")
    return moment


def _parse_data(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise UsageError(f"--data is not JSON: {error}.") from None


_USER = "The user; by default the key's user, or `me` without a server."
_QUIET_HOURS = "No follow-ups then, on the user's clock, such as 22:00-08:00; off; or default."
_MUTE = "No follow-ups and no reminders."
_SNOOZE = (
    "No follow-ups for a time such as 3h, or until one such as 2027-01-15T08:00+01:00; or off."
)
_STOP = "Opt out: no agent writes first until the user allows it again."


def preferences(  # noqa: PLR0913  # each is an option of the command
    user: Annotated[str | None, typer.Argument(metavar="USER", help=_USER)] = None,
    *,
    quiet_hours: Annotated[str | None, _QUIET_HOURS] = None,
    zone: Annotated[str | None, "The user's time zone, such as Europe/Berlin; or default."] = None,
    mute: Annotated[bool | None, typer.Option("--mute/--unmute", help=_MUTE)] = None,
    snooze: Annotated[str | None, _SNOOZE] = None,
    stop: Annotated[bool, _STOP] = False,
    resume: Annotated[bool, "Undo --stop and --snooze."] = False,
    target: Target,
) -> Answer:
    """Show a user's preferences for all agents, or change those that are given."""
    if resume and (stop or snooze is not None):
        raise UsageError("--resume undoes --stop and --snooze; use it without them.")
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
        changes["snoozed_until"] = None if snooze == "off" else _parse_snooze(snooze)

    async def work(stored: OfflineSegue) -> Any:
        owner = user or "me"
        found = await stored.set_preferences(owner, changes)
        return {"user_id": owner, "preferences": dict(found)}

    sent = {"body": changes} if changes else {}
    found = target.call("PATCH" if changes else "GET", "/api/me", work, user=user, **sent)
    return Answer(found, lambda: _print(found["preferences"]))


def _print(found: dict[str, Any]) -> None:
    rows = [(name, _shown(name, value, found)) for name, value in sorted(found.items())]
    print_table(("preference", "value"), rows, nothing="No preference is set.")


def _shown(name: str, value: Any, preferences: dict[str, Any]) -> str:
    if name == "quiet_hours":
        return f"{value['start']} to {value['end']}" if value else "off"
    if name == "snoozed_until":
        return when_of_user(value, preferences)
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


def _parse_snooze(text: str) -> str:
    return _parse_time("--snooze", text, "a duration", SystemClock().now()).isoformat()

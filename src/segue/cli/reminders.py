"""`segue remind` and `segue reminders`: set, list and cancel reminders."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from segue.cli.access import JournalWork, Target, config_of, new_ids, of_thread
from segue.cli.output import USER_OF_KEY, Answer, ThreadId
from segue.core.snowflake import parse, to_text
from segue.core.text import one_line
from segue.errors import UsageError
from segue.journal.journal import Journal
from segue.journal.records import Thread
from segue.runtime.clock import SystemClock
from segue.runtime.reminders import Reminder, Reminders
from segue.settings import Settings

_TEXT = "What to remind the user of."
_AFTER = "How long from now, such as 20m or 3 days."
_AT = "The user's local time, such as 2027-01-15T09:00."
_EVERY = "A rule such as 'FREQ=WEEKLY;BYDAY=MO;BYHOUR=9', or a cron line such as '0 9 * * 1'."
_UNTIL = "The local time or date after which a rule ends."
_USER = (
    "Whose reminders, at a server with a key that speaks for many users; if not given, those of "
    "the key's user, or of `me` without a server."
)


def remind(  # noqa: PLR0913  # each is an option of the command
    thread_id: ThreadId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help=_TEXT)],
    *,
    after: Annotated[str | None, typer.Option(help=_AFTER)] = None,
    at: Annotated[str | None, typer.Option(help=_AT)] = None,
    every: Annotated[str | None, typer.Option(help=_EVERY)] = None,
    until: Annotated[str | None, typer.Option(help=_UNTIL)] = None,
    user: Annotated[str | None, typer.Option(help=USER_OF_KEY)] = None,
    target: Target,
) -> Answer:
    """Set a reminder in a thread; a running server sends it."""
    given = {"after": after, "at": at, "every": every, "until": until}

    async def work(reminders: Reminders, thread: Thread) -> Any:
        return _plain(await reminders.remind(thread, text, **given))

    path = f"/api/threads/{quote(thread_id, safe='')}/reminders"
    body = {"text": text, **given}
    done = of_thread(thread_id, _with_reminders(work))
    found = target.call("POST", path, done, user=user, body=body)
    return Answer(found, lambda: typer.echo(f"Reminder {found['id']}: {found['description']}."))


def reminders(
    *,
    user: Annotated[str | None, typer.Option(help=_USER)] = None,
    thread: Annotated[str | None, typer.Option(help="The reminders of one thread.")] = None,
    cancel: Annotated[str | None, typer.Option(help="Cancel the reminder with this id.")] = None,
    target: Target,
) -> Answer:
    """List reminders that still wait, soonest first, or cancel one."""
    if sum(given is not None for given in (user, thread, cancel)) > 1:
        raise UsageError("Give one of --user, --thread and --cancel.")
    if cancel is not None:
        return _cancel(target, cancel)
    if thread is None:
        load = _of_user("me" if user is None else user)
        found = target.call("GET", "/api/reminders", load, user=user)
    else:
        path = f"/api/threads/{quote(thread, safe='')}/reminders"
        found = target.look(path, of_thread(thread, _with_reminders(_of_thread)))
    rows = ((r["id"], r["thread_id"], r["description"], one_line(r["text"], 60)) for r in found)
    headings = ("id", "thread", "when", "what")
    return Answer.table(found, headings, rows, nothing="There is no reminder.")


def _cancel(target: Target, reminder_id: str) -> Answer:
    async def work(journal: Journal, settings: Settings) -> Any:
        async with new_ids(journal, dry_run=True) as ids:
            made = Reminders(
                journal, ids, SystemClock(), _autonomy_of(settings), zone=settings.zone
            )
            return _plain(await made.cancel(parse(reminder_id)))

    found = target.call("DELETE", f"/api/reminders/{quote(reminder_id, safe='')}", work)
    text = f"Reminder {reminder_id} is cancelled."
    return Answer(found or {"id": reminder_id}, lambda: typer.echo(text))


def _with_reminders(
    work: Callable[[Reminders, Thread], Awaitable[Any]],
) -> Callable[[Journal, Thread, Settings], Awaitable[Any]]:
    async def run(journal: Journal, thread: Thread, settings: Settings) -> Any:
        async with new_ids(journal, dry_run=False) as ids:
            made = Reminders(
                journal, ids, SystemClock(), _autonomy_of(settings), zone=settings.zone
            )
            return await work(made, thread)

    return run


async def _of_thread(reminders: Reminders, thread: Thread) -> Any:
    return [*map(_plain, await reminders.list_of_thread(thread))]


def _of_user(user_id: str) -> JournalWork[Any]:
    async def work(journal: Journal, _: Settings) -> Any:
        found = await journal.timers.list_reminders(user_id)
        return [_plain(Reminder.of(timer)) for timer in found]

    return work


def _autonomy_of(settings: Settings) -> Callable[[str], Any]:
    return lambda agent_id: config_of(settings, agent_id).autonomy


def _plain(reminder: Reminder) -> dict[str, Any]:
    """As the server writes it."""
    values = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in asdict(reminder).items()
    }
    return {**values, "id": to_text(reminder.id)}

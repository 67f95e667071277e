"""`segue follow-up`: let an agent write first, as a program would."""

import json
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from segue.cli.access import Target, config_of, new_ids, of_thread
from segue.cli.output import USER_OF_KEY, Answer, ThreadId, when
from segue.core.durations import parse_duration
from segue.core.snowflake import to_text
from segue.errors import UsageError
from segue.journal.journal import Journal
from segue.journal.records import Thread
from segue.runtime.clock import SystemClock
from segue.runtime.requests import FollowUpRequest, Requests
from segue.settings import Settings

_AT = "When, with its zone, such as 2027-01-15T08:00+01:00; by default at once."
_AFTER = "How long from now, such as 20m or 2h."
_PROMPT = "What the model is asked, instead of the trigger's prompt; users never see it."
_DATA = "JSON that the model gets, quoted; users never see it."
_ONCE = "A name for it: the same name again returns the first follow-up."
_TRIGGER = "One of the four, or one of the agent's own."


def follow_up(  # noqa: PLR0913  # each is an option of the command
    thread_id: ThreadId,
    *,
    at: Annotated[str | None, typer.Option(help=_AT)] = None,
    after: Annotated[str | None, typer.Option(help=_AFTER)] = None,
    trigger: Annotated[str, typer.Option(help=_TRIGGER)] = "check_in",
    prompt: Annotated[str | None, typer.Option(help=_PROMPT)] = None,
    reason: Annotated[str | None, typer.Option(help="For operators.")] = None,
    data: Annotated[str | None, typer.Option(help=_DATA)] = None,
    once: Annotated[str | None, typer.Option(help=_ONCE)] = None,
    user: Annotated[str | None, typer.Option(help=USER_OF_KEY)] = None,
    target: Target,
) -> Answer:
    """Let the agent write first in a thread, also in an empty one; the gates decide when it is due.

    A running server sends it; a message of the user voids it.
    """
    request = FollowUpRequest(
        at=_parse_time(at),
        after=None if after is None else parse_duration(after),
        trigger=trigger,
        prompt=prompt,
        reason=reason,
        data=_parse_data(data),
        key=once,
    )

    async def work(journal: Journal, thread: Thread, settings: Settings) -> Any:
        async with new_ids(journal, dry_run=False) as ids:
            requests = Requests(
                journal,
                ids,
                SystemClock(),
                lambda agent: config_of(settings, agent).autonomy,
            )
            timer = await requests.follow_up(thread, request)
        shown = {"state": timer.state, "reason": timer.state_reason}
        return {"id": to_text(timer.id), **shown, "due_at": timer.due_at.isoformat()}

    wait = None if request.after is None else request.after.total_seconds()
    body = {**_plain(request), "after": wait}
    path = f"/api/threads/{quote(thread_id, safe='')}/follow-ups"
    found = target.call("POST", path, of_thread(thread_id, work), user=user, body=body)
    shown = f"Follow-up {found['id']} is {found['state']}, due {when(found['due_at'])}."
    if found["reason"]:
        shown += f" {found['reason']}"
    return Answer(found, lambda: typer.echo(shown))


def _plain(request: FollowUpRequest) -> dict[str, Any]:
    at = None if request.at is None else request.at.isoformat()
    named = ("trigger", "prompt", "reason", "data", "key")
    return {"at": at, **{name: getattr(request, name) for name in named}}


def _parse_time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.min  # noqa: DTZ901 - refused below
    if moment.tzinfo is None:
        raise UsageError(f"--at is {text!r:.60}; expected a time with its zone, or use --after.")
    return moment


def _parse_data(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise UsageError(f"--data is not JSON: {error}.") from None

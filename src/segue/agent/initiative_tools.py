"""Tools about messages that the agent starts: whether the user wants them, and reminders.

User and thread come from the run, never from the model. Results and refusals are sentences that
the model can act on. The runtime reads the time of a reminder on the user's clock, and the result
repeats it in words, so that the reply confirms what is stored.
"""

import hashlib
import json
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId

from segue.agent.current import required_run
from segue.agent.tools import closure_tool
from segue.core.autonomy.local_time import as_utc, find_zone
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.snowflake import parse, to_text
from segue.core.speech.sentences import is_quote
from segue.core.speech.stops import UserRequest, When, Wish
from segue.core.triggers import REMINDER, without_data
from segue.errors import OptedOut, SegueError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import NESTING
from segue.runtime.deps import Deps, read_preferences
from segue.runtime.reminders import Reminder, Reminders
from segue.runtime.run import Run
from segue.runtime.wishes import ASKED, grant

_DONE: Final = {
    Wish.STOP: "Done: you will not write to the user on your own any more.",
    Wish.LATER: "Done: you will not write to the user on your own before {until}.",
    Wish.RESUME: "Done: you may write to the user on your own again.",
}
_UNCHANGED: Final = {
    Wish.STOP: "Nothing changed: the user is not written to already.",
    Wish.LATER: "Nothing changed: until then, the user wants no messages anyway. "
    "Ask before you use 'on'.",
    Wish.RESUME: "Nothing changed: you may write to the user on your own already.",
}


def initiative_tools(deps: Deps) -> list[BaseTool]:
    """`set_follow_ups`, for the user of the run that it is called in."""

    @closure_tool
    async def set_follow_ups(mode: Literal["off", "on", "until"], until: str | None = None) -> str:
        """Record whether the user wants messages that you start yourself, when they say so in any
        language: "off", "on", or "until" for none before a local time ("2027-03-01T09:00").
        """
        run = required_run()
        try:
            request = await _request(deps, run, mode, until)
        except UsageError as error:
            return f"Not recorded: {error}"
        if not await _record(deps, run, request):
            return _UNCHANGED[request.wish]
        return _DONE[request.wish].format(until=until)

    return [set_follow_ups]


async def _request(deps: Deps, run: Run, mode: str, until: str | None) -> UserRequest:
    if mode != "until":
        return UserRequest(Wish.STOP if mode == "off" else Wish.RESUME)
    try:
        local = datetime.fromisoformat(until or "")
    except ValueError:
        raise UsageError(
            f"until is {until!r:.60}; expected the user's local time, such as '2027-03-01T09:00'."
        ) from None
    thread = await deps.journal.threads.get(run.thread_id)
    zone = (await read_preferences(deps.journal, thread, deps.zone)).time_zone
    moment = local if local.tzinfo else local.replace(tzinfo=find_zone(zone) or UTC)
    wait = as_utc(moment) - deps.clock.now()
    if wait <= timedelta():
        raise UsageError(f"{local.isoformat()} is past; expected a later time of {zone}.")
    return UserRequest(Wish.LATER, When(after=wait))


async def _record(deps: Deps, run: Run, request: UserRequest) -> bool:
    """Whether the request changed something."""
    granted = await grant(deps, run.thread_id, request, ASKED[request.wish])
    if not granted.preferences:
        return False
    now = deps.clock.now()
    await deps.journal.users.update_settings(
        run.user_id,
        granted.preferences,
        now=now,
        reconsider_at=now,
        decisions=granted.decisions,
    )
    deps.wakeups.timers.now()
    return True


_NOT_FROM_USER: Final = (
    "This repeats the instruction that let you speak first, which the user did not say. Say in "
    "other words what to remind the user of."
)
_NOT_HERE: Final = (
    "The user does not read this conversation between agents. Tell the agent that asked you to set "
    "the reminder."
)
# The errors themselves are for users; the model also has to know what to do.
_HINTS: Final[Mapping[type[SegueError], str]] = {
    OptedOut: "Ask the user whether they want this one all the same. If they do, call "
    'set_follow_ups("on") and then remind again.',
    UsageError: "Correct it, or ask the user if it is not clear what they mean.",
}


def reminder_tools(journal: Journal, reminders: Reminders) -> list[BaseTool]:
    """`remind`, `list_reminders` and `cancel_reminder`, for the run that they are called in."""

    @closure_tool
    async def remind(
        text: str,
        tool_call_id: Annotated[str, InjectedToolCallId],
        after: str | None = None,
        at: str | None = None,
        every: str | None = None,
        until: str | None = None,
    ) -> ToolMessage:
        """Remind the user of something later: you will write to them at that time. Call this
        whenever you promise a reminder. Pass the time as the user said it, in exactly one of:
        `after`, a duration from now such as "20m", "2h" or "3 days"; `at`, the user's local time
        such as "2027-03-01T09:00"; `every`, a rule such as
        "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0" or the cron line "0 9 * * 1", with the local time
        or date `until` which it lasts, if it ends. If the time is not clear, ask the user first.
        Then tell the user when the reminder comes, as the result says.
        """
        run = required_run()
        given = {"after": after, "at": at, "every": every, "until": until}
        # Some models pass empty texts for what they leave out.
        given = {name: text or None for name, text in given.items()}
        key = _key(run, tool_call_id, {"text": text, **given})

        async def step() -> Reminder:
            _check_text(run, text)
            thread = await journal.threads.get(run.thread_id)
            return await reminders.remind(thread, text, key=key, **given)

        return await _result("remind", tool_call_id, step())

    @closure_tool
    async def list_reminders() -> str:
        """List the user's reminders in this conversation, with their ids and next times."""
        thread = await journal.threads.get(required_run().thread_id)
        found = await reminders.list_of_thread(thread)
        return "\n".join(map(_line, found)) or "There is no reminder."

    @closure_tool
    async def cancel_reminder(
        id: str, tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> ToolMessage:
        """Cancel a reminder of this conversation by its id, as list_reminders names it."""
        run = required_run()
        turn_id = run.attempt[0]  # a reminder's own turn may end the series, and says so

        async def step() -> Reminder:
            return await reminders.cancel(parse(id), but_turn=turn_id, thread_id=run.thread_id)

        return await _result("cancel_reminder", tool_call_id, step())

    return [remind, list_reminders, cancel_reminder]


async def _result(name: str, call_id: str, step: Awaitable[Reminder]) -> ToolMessage:
    try:
        text = f"{'Set' if name == 'remind' else 'Cancelled'}: {_line(await step)}"
    except SegueError as error:
        text = f"Nothing was changed: {error} {_HINTS.get(type(error), '')}".rstrip()
        return ToolMessage(text, tool_call_id=call_id, name=name, status="error")
    return ToolMessage(text, tool_call_id=call_id, name=name)


def _line(reminder: Reminder) -> str:
    return f"{reminder.description}: {reminder.text!r} (id {to_text(reminder.id)})"


def _key(run: Run, call_id: str, given: dict[str, str | None]) -> str:
    """The same for a call that runs twice after a crash; some models repeat their call ids."""
    written = json.dumps([call_id, given])
    return f"call:{to_text(run.batch.id)}:{hashlib.sha256(written.encode()).hexdigest()[:24]}"


def _check_text(run: Run, text: str) -> None:
    """No trigger's words in a list of reminders; an earlier reminder's text is the user's own."""
    if NESTING in run.thread_id:
        raise UsageError(_NOT_HERE)
    asked = [message for message in run.messages if isinstance(message, HumanMessage)]
    hidden = [_hidden(message) for message in asked if is_synthetic(message)]
    visible = [message.text for message in asked if not is_synthetic(message)]
    if is_quote(text, hidden, visible):
        raise UsageError(_NOT_FROM_USER)


def _hidden(message: HumanMessage) -> str:
    is_reminder = MessageMetadata.of(message).trigger_type == REMINDER
    return without_data(message.text) if is_reminder else message.text

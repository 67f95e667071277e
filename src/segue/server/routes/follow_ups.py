"""Follow-ups of a conversation with their reasons, and reminders."""

from fastapi import Response

from segue.core.snowflake import parse
from segue.server.access import CallerDep, SegueDep, ThreadDep
from segue.server.middleware import authenticated_router
from segue.server.problems import errors
from segue.server.requests import FollowUpIn, Limit, ReminderIn, SnoozeIn
from segue.server.responses import (
    FollowUpOut,
    ItemsOut,
    ReasonOut,
    ReminderOut,
    RequestedOut,
    ThreadOut,
)

router = authenticated_router("/api/threads/{thread_id}", "follow-ups", 404)
reminders = authenticated_router("/api", "reminders")


@router.get("/follow-ups")
async def list_follow_ups(
    segue: SegueDep, thread: ThreadDep, limit: Limit = 50
) -> ItemsOut[FollowUpOut]:
    """Planned and past follow-ups and continuations with their state, newest first."""
    return FollowUpOut.list_of(await segue.list_follow_ups(thread, limit=limit))


@router.post("/follow-ups", status_code=201, responses=errors(409))
async def request_follow_up(
    segue: SegueDep, caller: CallerDep, thread: ThreadDep, wanted: FollowUpIn
) -> RequestedOut:
    """Let the agent write first, also in an empty conversation; for programs and operators."""
    caller.check_program()
    return RequestedOut.of(await segue.follow_up(thread, **wanted.model_dump()))


@router.delete("/follow-ups")
async def cancel_follow_ups(segue: SegueDep, thread: ThreadDep) -> ItemsOut[FollowUpOut]:
    """Cancel follow-ups and continuations that are planned or not shown yet; the next message may
    plan new ones.
    """
    return FollowUpOut.list_of(await segue.cancel_follow_ups(thread))


@router.post("/follow-ups/snooze", responses=errors(409))
async def snooze_thread(segue: SegueDep, thread: ThreadDep, change: SnoozeIn) -> ThreadOut:
    """No follow-up in this thread before a time."""
    return ThreadOut.of(await segue.snooze(thread, change.until))


@router.get("/why")
async def list_reasons(
    segue: SegueDep, thread: ThreadDep, limit: Limit = 50
) -> ItemsOut[ReasonOut]:
    """Why the agent wrote, and why it did not; oldest first."""
    return ReasonOut.list_of(await segue.why(thread, limit=limit))


@reminders.get("/threads/{thread_id}/reminders", responses=errors(404))
async def list_thread_reminders(segue: SegueDep, thread: ThreadDep) -> ItemsOut[ReminderOut]:
    """The pending reminders of a conversation, soonest first."""
    return ReminderOut.list_of(await segue.list_reminders(thread=thread))


@reminders.post("/threads/{thread_id}/reminders", status_code=201, responses=errors(404, 409))
async def create_reminder(segue: SegueDep, thread: ThreadDep, new: ReminderIn) -> ReminderOut:
    """Set a reminder; the same text at the same time is set once."""
    return ReminderOut.of(await segue.remind(thread, **new.model_dump()))


@reminders.get("/reminders")
async def list_reminders(segue: SegueDep, caller: CallerDep) -> ItemsOut[ReminderOut]:
    """The caller's pending reminders of all conversations, soonest first."""
    return ReminderOut.list_of(await segue.list_reminders(caller.user_id))


@reminders.delete("/reminders/{reminder_id}", status_code=204, responses=errors(404))
async def cancel_reminder(segue: SegueDep, caller: CallerDep, reminder_id: str) -> Response:
    """Cancel a reminder of the caller."""
    await segue.cancel_reminder(parse(reminder_id), user_id=caller.user_id)
    return Response(status_code=204)

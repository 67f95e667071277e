"""Reminders: set them in a thread, list and cancel them."""

from fastapi import Response

from segue.core.snowflake import parse
from segue.server.access import CallerDep, SegueDep, ThreadDep
from segue.server.middleware import api_router
from segue.server.problems import errors
from segue.server.requests import ReminderIn
from segue.server.responses import ItemsOut, ReminderOut

router = api_router("", "reminders")


@router.get("/threads/{thread_id}/reminders", responses=errors(404))
async def list_thread_reminders(segue: SegueDep, thread: ThreadDep) -> ItemsOut[ReminderOut]:
    """The reminders of a conversation that still wait, soonest first."""
    return ItemsOut(items=[*map(ReminderOut.of, await segue.list_reminders(thread=thread))])


@router.post("/threads/{thread_id}/reminders", status_code=201, responses=errors(404, 409))
async def create_reminder(segue: SegueDep, thread: ThreadDep, new: ReminderIn) -> ReminderOut:
    """Set a reminder; the same text at the same time is one."""
    return ReminderOut.of(await segue.remind(thread, **new.model_dump()))


@router.get("/reminders")
async def list_reminders(segue: SegueDep, caller: CallerDep) -> ItemsOut[ReminderOut]:
    """The caller's reminders of all conversations that still wait, soonest first."""
    found = await segue.list_reminders(caller.user_id)
    return ItemsOut(items=[*map(ReminderOut.of, found)])


@router.delete("/reminders/{reminder_id}", status_code=204, responses=errors(404))
async def cancel_reminder(segue: SegueDep, caller: CallerDep, reminder_id: str) -> Response:
    """Cancel a reminder of the caller."""
    await segue.cancel_reminder(parse(reminder_id), user_id=caller.user_id)
    return Response(status_code=204)

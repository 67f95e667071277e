"""Follow-ups as their user sees them: what is planned, what became of it, and why."""

from typing import Annotated

from fastapi import APIRouter, Query

from segue.server.access import SegueHere, ThreadHere
from segue.server.guard import GuardedRoute
from segue.server.problems import responses
from segue.server.shapes import FollowUpOut, ReasonOut, Snooze, ThreadOut
from segue.server.wire import follow_up_out, reason_out, thread_out

router = APIRouter(route_class=GuardedRoute, prefix="/api/threads/{thread_id}", tags=["follow-ups"])
Limit = Annotated[int, Query(ge=1, le=200)]


@router.get("/follow-ups", responses=responses(404))
async def list_follow_ups(
    segue: SegueHere, thread: ThreadHere, limit: Limit = 50
) -> list[FollowUpOut]:
    """Planned and past follow-ups, newest first, with what became of them."""
    return [*map(follow_up_out, await segue.follow_ups(thread, limit=limit))]


@router.delete("/follow-ups", responses=responses(404))
async def cancel_follow_ups(segue: SegueHere, thread: ThreadHere) -> list[FollowUpOut]:
    """Drop what is planned, and what is not seen yet; the next message may plan anew."""
    return [*map(follow_up_out, await segue.cancel_follow_ups(thread))]


@router.post("/follow-ups/snooze", responses=responses(404))
async def snooze(segue: SegueHere, thread: ThreadHere, wish: Snooze) -> ThreadOut:
    """No follow-up in this thread until a time."""
    return thread_out(await segue.snooze(thread, wish.until))


@router.get("/why", responses=responses(404))
async def why(segue: SegueHere, thread: ThreadHere, limit: Limit = 50) -> list[ReasonOut]:
    """Why the agent wrote, and why it did not; oldest first."""
    return [*map(reason_out, await segue.why(thread, limit=limit))]

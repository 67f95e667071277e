"""A user's view of follow-ups: planned and past ones, and their reasons."""

from fastapi import APIRouter

from segue.server.access import SegueDep, ThreadDep
from segue.server.middleware import AuthenticatedRoute
from segue.server.problems import responses
from segue.server.requests import Limit, SnoozeIn
from segue.server.responses import FollowUpOut, ReasonOut, ThreadOut

router = APIRouter(
    route_class=AuthenticatedRoute, prefix="/api/threads/{thread_id}", tags=["follow-ups"]
)


@router.get("/follow-ups", responses=responses(404))
async def list_follow_ups(
    segue: SegueDep, thread: ThreadDep, limit: Limit = 50
) -> list[FollowUpOut]:
    """Planned and past follow-ups with their state, newest first."""
    return [*map(FollowUpOut.of, await segue.list_follow_ups(thread, limit=limit))]


@router.delete("/follow-ups", responses=responses(404))
async def cancel_follow_ups(segue: SegueDep, thread: ThreadDep) -> list[FollowUpOut]:
    """Cancel planned follow-ups and those not shown yet; the next message may plan new ones."""
    return [*map(FollowUpOut.of, await segue.cancel_follow_ups(thread))]


@router.post("/follow-ups/snooze", responses=responses(404))
async def snooze(segue: SegueDep, thread: ThreadDep, change: SnoozeIn) -> ThreadOut:
    """No follow-up in this thread before a time."""
    return ThreadOut.of(await segue.snooze(thread, change.until))


@router.get("/why", responses=responses(404))
async def why(segue: SegueDep, thread: ThreadDep, limit: Limit = 50) -> list[ReasonOut]:
    """Why the agent wrote, and why it did not; oldest first."""
    return [*map(ReasonOut.of, await segue.why(thread, limit=limit))]

"""Conversations: begin, list, read, change, delete; and what the user wants of follow-ups."""

from typing import Annotated

from fastapi import APIRouter, Query

from segue.core.plain import exact_json
from segue.server.access import (
    CallerHere,
    JournalHere,
    SegueHere,
    ThreadHere,
    ThreadServiceHere,
)
from segue.server.cursors import place_of_thread, position_of, thread_cursor
from segue.server.guard import GuardedRoute
from segue.server.problems import responses
from segue.server.shapes import (
    AgentOut,
    DeletedOut,
    FoundOut,
    Me,
    NewThread,
    PageOut,
    ThreadChange,
    ThreadOut,
    ThreadsOut,
    Wishes,
)
from segue.server.wire import message_out, page_out, thread_out

router = APIRouter(route_class=GuardedRoute, prefix="/api", tags=["threads"])
Limit = Annotated[int, Query(ge=1, le=200)]
Cursor = Annotated[str | None, Query(max_length=300)]


@router.get("/agents", responses=responses())
async def list_agents(segue: SegueHere, _: CallerHere) -> list[AgentOut]:
    """The agents that one can talk to; the first is taken if a new thread names none."""
    agents = segue.composed.settings.agents
    return [AgentOut(id=agent.id, name=agent.name or agent.id) for agent in agents]


@router.get("/me", responses=responses())
async def get_me(journal: JournalHere, caller: CallerHere) -> Me:
    """Who am I, and what do I want?"""
    wishes = await journal.get_user_settings(caller.user_id)
    return Me(user_id=caller.user_id, is_operator=caller.is_operator, wishes=exact_json(wishes))


@router.patch("/me", responses=responses())
async def change_me(segue: SegueHere, caller: CallerHere, wishes: Wishes) -> Me:
    """Set what is given, of all agents and threads; null takes one back."""
    kept = await segue.set_user(caller.user_id, **wishes.given())
    return Me(user_id=caller.user_id, is_operator=caller.is_operator, wishes=exact_json(kept))


@router.post("/threads", status_code=201, responses=responses(404))
async def create_thread(
    segue: SegueHere, journal: JournalHere, caller: CallerHere, new: NewThread | None = None
) -> ThreadOut:
    """Begin a conversation; without a body, with the first agent."""
    new = new or NewThread()
    thread = await segue.create_thread(caller.user_id, new.agent_id)
    if new.title is not None:
        thread = await journal.update_thread(thread.id, title=new.title)
    return thread_out(thread)


@router.get("/threads", responses=responses())
async def list_threads(
    threads: ThreadServiceHere,
    caller: CallerHere,
    limit: Limit = 50,
    agent_id: Annotated[str | None, Query(max_length=200)] = None,
    after: Cursor = None,
) -> ThreadsOut:
    """The caller's conversations, the one written to last first."""
    place = place_of_thread(after)
    found = await threads.list_threads(caller.user_id, agent_id, limit=limit, before=place)
    is_full = len(found) == limit
    return ThreadsOut(
        threads=[*map(thread_out, found)], next=thread_cursor(found[-1]) if is_full else None
    )


@router.get("/threads/{thread_id}", responses=responses(404))
async def get_thread(thread: ThreadHere) -> ThreadOut:
    """One conversation."""
    return thread_out(thread)


@router.patch("/threads/{thread_id}", responses=responses(404))
async def change_thread(
    segue: SegueHere, journal: JournalHere, thread: ThreadHere, change: ThreadChange
) -> ThreadOut:
    """Set the title, or what the user wants of follow-ups in this thread; null takes one back."""
    if wishes := change.given():
        thread = await segue.set_thread(thread, **wishes)
    if change.title is not None:
        thread = await journal.update_thread(thread.id, title=change.title)
    return thread_out(thread)


@router.delete("/threads/{thread_id}", responses=responses(404))
async def delete_thread(segue: SegueHere, thread: ThreadHere) -> DeletedOut:
    """Delete a conversation and all that belongs to it; memories belong to the user and stay."""
    return DeletedOut(deleted=dict((await segue.delete_thread(thread)).rows))


@router.get("/threads/{thread_id}/history", responses=responses(404))
async def get_history(
    threads: ThreadServiceHere,
    thread: ThreadHere,
    limit: Limit = 50,
    before: Cursor = None,
    after: Cursor = None,
) -> PageOut:
    """The user's messages and the agent's replies: the newest, or those next to a cursor."""
    page = await threads.history(
        thread.id, limit=limit, before=position_of(before), after=position_of(after)
    )
    return page_out(page, await threads.turns_of(thread.id, page, limit=10 * limit))


@router.get("/search", responses=responses())
async def search(
    journal: JournalHere,
    caller: CallerHere,
    q: Annotated[str, Query(max_length=500)],
    limit: Limit = 20,
) -> list[FoundOut]:
    """The caller's messages and the replies to them that match words, best first."""
    found = await journal.search(caller.user_id, q, limit=limit)
    return [FoundOut(thread_id=f.thread_id, message=message_out(f.message)) for f in found]

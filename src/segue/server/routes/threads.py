"""Conversations: start, list, read, search, change and delete them."""

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query, Response

from segue.core.snowflake import parse
from segue.errors import UsageError
from segue.journal.records import Thread, ThreadPlace
from segue.server.access import PAGE_SLOT, SEARCH_SLOT, CallerDep, SegueDep, ThreadDep
from segue.server.middleware import authenticated_router
from segue.server.problems import errors
from segue.server.requests import Cursor, Limit, ThreadIn, ThreadPatch
from segue.server.responses import DeletedOut, FoundOut, ItemsOut, PageOut, ThreadOut, respond

router = authenticated_router("/api", "threads")


@router.post("/threads", status_code=201, responses=errors(404))
async def create_thread(
    segue: SegueDep, caller: CallerDep, new: ThreadIn | None = None
) -> ThreadOut:
    """Start a conversation; without a body, with the first agent."""
    new = new or ThreadIn()
    thread = await segue.create_thread(caller.user_id, new.agent_id)
    if new.title is not None:
        thread = await segue.rename_thread(thread, new.title)
    return ThreadOut.of(thread)


@router.get("/threads")
async def list_threads(
    segue: SegueDep,
    caller: CallerDep,
    limit: Limit = 50,
    agent_id: Annotated[str | None, Query(max_length=200)] = None,
    after: Cursor = None,
) -> ItemsOut[ThreadOut]:
    """The caller's conversations, most recently written first."""
    place = None if after is None else _parse_cursor(after)
    found = await segue.list_threads(caller.user_id, agent_id, limit=limit, before=place)
    following = _cursor_of(found[-1]) if len(found) == limit else None
    return ThreadOut.list_of(found, following)


@router.get("/threads/{thread_id}", responses=errors(404))
async def get_thread(thread: ThreadDep) -> ThreadOut:
    """One conversation."""
    return ThreadOut.of(thread)


@router.patch("/threads/{thread_id}", responses=errors(404, 409))
async def update_thread(segue: SegueDep, thread: ThreadDep, change: ThreadPatch) -> ThreadOut:
    """Set the title, or preferences for this thread; null removes a preference."""
    if changes := change.changes():
        thread = await segue.set_thread_preferences(thread, **changes)
    if change.title is not None:
        thread = await segue.rename_thread(thread, change.title)
    return ThreadOut.of(thread)


@router.delete("/threads/{thread_id}", responses=errors(404))
async def delete_thread(segue: SegueDep, thread: ThreadDep) -> DeletedOut:
    """Delete a conversation with all its data; memories belong to the user and stay."""
    return DeletedOut.of(await segue.delete_thread(thread))


@router.get(
    "/threads/{thread_id}/history",
    response_model=PageOut,
    responses=errors(404),
    dependencies=[PAGE_SLOT],
)
async def get_history(
    segue: SegueDep,
    thread: ThreadDep,
    limit: Limit = 50,
    before: Cursor = None,
    after: Cursor = None,
) -> Response:
    """The user's messages and the agent's replies: the newest, or those next to a cursor."""
    page = await segue.history(
        thread,
        limit=limit,
        before=None if before is None else parse(before),
        after=None if after is None else parse(after),
    )
    turns = await segue.list_turns(thread, page, limit=10 * limit)
    return await respond(PageOut.of(page, turns))


@router.get("/search", dependencies=[SEARCH_SLOT])
async def search_messages(
    segue: SegueDep,
    caller: CallerDep,
    q: Annotated[str, Query(max_length=500)],
    limit: Limit = 20,
) -> ItemsOut[FoundOut]:
    """The caller's messages and the replies to them that match a text, best first."""
    found = await segue.search(caller.user_id, q, limit=limit)
    return ItemsOut(items=[*map(FoundOut.of, found)])


def _cursor_of(thread: Thread) -> str:
    """The cursor of the page after a thread."""
    text = f"{thread.updated_at.astimezone(UTC).isoformat()} {thread.id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _parse_cursor(cursor: str) -> ThreadPlace:
    """The place after which a page begins; `UsageError` if this is not a cursor."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        moment, _, thread_id = text.partition(" ")
        updated_at = datetime.fromisoformat(moment)
        if updated_at.tzinfo is None:
            raise ValueError("a time without a zone")
    except (ValueError, binascii.Error) as error:
        raise UsageError(f"{cursor!r:.60} is not a cursor; use `next` of a page.") from error
    return ThreadPlace(updated_at, thread_id)

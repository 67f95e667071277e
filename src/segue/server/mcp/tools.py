"""The tools: memories, reminders, conversations and follow-ups of the caller.

A tool is a function of the running system, the caller and its arguments. Its schema is the model of
the arguments, its description the function's docstring.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

from segue.core.snowflake import parse
from segue.errors import NotFoundError
from segue.facade import Segue
from segue.journal.records import Thread
from segue.server.access import PAGES, SEARCHES, get_own_thread
from segue.server.auth import Caller
from segue.server.requests import FollowUpIn, MemoryIn, ReminderIn, StrictModel
from segue.server.responses import (
    AgentOut,
    FollowUpOut,
    FoundOut,
    MemoryOut,
    PageOut,
    ReasonOut,
    ReminderOut,
    ThreadOut,
)

Items = list[Any]
Handler = Callable[[Segue, Caller, Any], Awaitable[BaseModel | Items]]

AgentId = Annotated[
    str | None, Field(max_length=200, description="The first agent by default; see list_agents.")
]
ThreadId = Annotated[str, Field(max_length=200, description="See list_threads.")]
Limit = Annotated[int, Field(ge=1, le=200)]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool; `slot` is the kind of operation that a user may run few of at once, with their
    number.
    """

    name: str
    description: str
    given: type[BaseModel]
    handle: Handler
    reads: bool
    deletes: bool
    for_programs: bool
    slot: tuple[str, int] | None

    def described(self) -> dict[str, Any]:
        hints = {
            "readOnlyHint": self.reads,
            "destructiveHint": self.deletes,
            "openWorldHint": False,
        }
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.given.model_json_schema(),
            "annotations": hints,
        }


TOOLS: Final[dict[str, Tool]] = {}


def tool(
    given: type[BaseModel],
    *,
    reads: bool = False,
    deletes: bool = False,
    for_programs: bool = False,
    slot: tuple[str, int] | None = None,
) -> Callable[[Handler], Handler]:
    """Make a function a tool, with its name."""

    def add(handle: Handler) -> Handler:
        name, text = handle.__name__, " ".join((handle.__doc__ or "").split())
        TOOLS[name] = Tool(name, text, given, handle, reads, deletes, for_programs, slot)
        return handle

    return add


class NoArguments(StrictModel):
    """No arguments."""


class OfAgent(StrictModel):
    """The memories of an agent."""

    agent_id: AgentId = None
    limit: Limit = 50


class MemoryQuery(StrictModel):
    """What to look for."""

    query: str = Field(min_length=1, max_length=2_000)
    agent_id: AgentId = None


class MemoryKey(StrictModel):
    """Which memory."""

    key: str = Field(description="The key of a memory; see list_memories.")
    agent_id: AgentId = None


class NewReminder(ReminderIn):
    """A reminder to set, with exactly one of `after`, `at` and `every`."""

    thread_id: str | None = Field(
        default=None, max_length=200, description="The conversation written to last by default."
    )


class ReminderKey(StrictModel):
    """Which reminder."""

    reminder_id: str = Field(max_length=60, description="See list_reminders.")


class ThreadsQuery(StrictModel):
    """Which conversations."""

    agent_id: Annotated[str | None, Field(max_length=200)] = None
    limit: Limit = 20


class OfThread(StrictModel):
    """Which conversation."""

    thread_id: ThreadId
    limit: Limit = 50


class PageQuery(OfThread):
    """Which part of a conversation."""

    before: str | None = Field(
        default=None, max_length=60, description="The `before` of a page, for the one before it."
    )


class OneThread(StrictModel):
    """Which conversation."""

    thread_id: ThreadId


class MessageQuery(StrictModel):
    """What to look for."""

    query: str = Field(min_length=1, max_length=500)
    limit: Limit = 20


class NewFollowUp(FollowUpIn):
    """A follow-up to request; at once if it names no time and its trigger has no delay."""

    thread_id: ThreadId


@tool(NoArguments, reads=True)
async def list_agents(segue: Segue, _: Caller, given: NoArguments) -> Items:
    """List the agents that the user talks with."""
    del given
    return [*map(AgentOut.of, segue.agents)]


@tool(OfAgent, reads=True)
async def list_memories(segue: Segue, caller: Caller, given: OfAgent) -> Items:
    """List what an agent remembers about the user, newest first."""
    found = await segue.list_memories(caller.user_id, given.agent_id, limit=given.limit)
    return [*map(MemoryOut.of, found)]


@tool(MemoryQuery, reads=True, slot=SEARCHES)
async def search_memories(segue: Segue, caller: Caller, given: MemoryQuery) -> Items:
    """Find what an agent remembers about the user that relates to a text, best first."""
    found = await segue.search_memories(caller.user_id, given.query, given.agent_id)
    return [MemoryOut.of(each.memory).model_copy(update={"score": each.score}) for each in found]


@tool(MemoryIn)
async def remember(segue: Segue, caller: Caller, given: MemoryIn) -> BaseModel:
    """Let an agent remember a fact about the user; the same key or content updates it."""
    kept = await segue.remember(caller.user_id, given.content, given.agent_id, key=given.key)
    return MemoryOut.of(kept)


@tool(MemoryKey, deletes=True)
async def forget(segue: Segue, caller: Caller, given: MemoryKey) -> Items:
    """Let an agent forget a fact about the user."""
    if not await segue.forget(caller.user_id, given.key, given.agent_id):
        raise NotFoundError(f"There is no memory {given.key!r:.60}.")
    return []


@tool(NoArguments, reads=True)
async def list_reminders(segue: Segue, caller: Caller, given: NoArguments) -> Items:
    """List the user's pending reminders, soonest first."""
    del given
    return [*map(ReminderOut.of, await segue.list_reminders(caller.user_id))]


@tool(NewReminder)
async def remind(segue: Segue, caller: Caller, given: NewReminder) -> BaseModel:
    """Let an agent remind the user, on the user's clock; the result says when it comes."""
    thread = await _thread_of(segue, caller, given.thread_id)
    return ReminderOut.of(await segue.remind(thread, **given.model_dump(exclude={"thread_id"})))


@tool(ReminderKey, deletes=True)
async def cancel_reminder(segue: Segue, caller: Caller, given: ReminderKey) -> BaseModel:
    """Cancel one of the user's reminders."""
    reminder_id = parse(given.reminder_id)
    return ReminderOut.of(await segue.cancel_reminder(reminder_id, user_id=caller.user_id))


@tool(ThreadsQuery, reads=True)
async def list_threads(segue: Segue, caller: Caller, given: ThreadsQuery) -> Items:
    """List the user's conversations, the one written to last first."""
    found = await segue.list_threads(caller.user_id, given.agent_id, limit=given.limit)
    return [*map(ThreadOut.of, found)]


@tool(PageQuery, reads=True, slot=PAGES)
async def read_thread(segue: Segue, caller: Caller, given: PageQuery) -> BaseModel:
    """Read the newest messages of one of the user's conversations, oldest first."""
    thread = await get_own_thread(segue, caller, given.thread_id)
    before = None if given.before is None else parse(given.before)
    page = await segue.history(thread, limit=given.limit, before=before)
    shown = PageOut.of(page, await segue.list_turns(thread, page, limit=10 * given.limit))
    for message in shown.items:
        message.content = message.text  # without pictures and files
    return shown


@tool(MessageQuery, reads=True, slot=SEARCHES)
async def search_messages(segue: Segue, caller: Caller, given: MessageQuery) -> Items:
    """Find messages of the user, and replies to them, that match a text, best first."""
    found = await segue.search(caller.user_id, given.query, limit=given.limit)
    return [*map(FoundOut.of, found)]


@tool(OfThread, reads=True)
async def list_follow_ups(segue: Segue, caller: Caller, given: OfThread) -> Items:
    """List planned and past follow-ups of a conversation with their state, newest first."""
    thread = await get_own_thread(segue, caller, given.thread_id)
    return [*map(FollowUpOut.of, await segue.list_follow_ups(thread, limit=given.limit))]


@tool(OneThread, deletes=True)
async def cancel_follow_ups(segue: Segue, caller: Caller, given: OneThread) -> Items:
    """Cancel the planned follow-ups of a conversation; the next message may plan new ones."""
    thread = await get_own_thread(segue, caller, given.thread_id)
    return [*map(FollowUpOut.of, await segue.cancel_follow_ups(thread))]


@tool(NewFollowUp, for_programs=True)
async def request_follow_up(segue: Segue, caller: Caller, given: NewFollowUp) -> BaseModel:
    """Let the agent write first in a conversation; for keys of programs and operators."""
    caller.check_program()
    thread = await get_own_thread(segue, caller, given.thread_id)
    wanted = given.model_dump(exclude={"thread_id"})
    return FollowUpOut.of(await segue.follow_up(thread, **wanted))


@tool(OfThread, reads=True)
async def why(segue: Segue, caller: Caller, given: OfThread) -> Items:
    """Explain why the agent wrote first in a conversation, and why it did not; oldest first."""
    thread = await get_own_thread(segue, caller, given.thread_id)
    return [*map(ReasonOut.of, await segue.why(thread, limit=given.limit))]


async def _thread_of(segue: Segue, caller: Caller, thread_id: str | None) -> Thread:
    if thread_id is not None:
        return await get_own_thread(segue, caller, thread_id)
    found = await segue.find_newest_thread(caller.user_id)
    return found or await segue.create_thread(caller.user_id)

"""Takes what a client sends to its thread, and starts the turn that is its run."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import HTTPConnection

from segue.core.snowflake import TEXT_WIDTH
from segue.errors import ConflictError, NotFoundError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread, Turn
from segue.server.access import get_own_thread, segue_of
from segue.server.auth import Caller
from segue.server.langgraph.bodies import NO_FORK, RunOptions
from segue.server.langgraph.messages import sent_messages
from segue.server.langgraph.records import checkpoint_json
from segue.server.requests import MessageIn
from segue.server.routes.messages import accept_message


async def start_run(
    connection: HTTPConnection, thread: Thread, given: Any, options: RunOptions
) -> Turn:
    """Store a message or an answer, and return the turn that is its run."""
    options.check()
    await _check_end(segue_of(connection), thread, options.named_checkpoint)
    command = {name: value for name, value in (options.command or {}).items() if value is not None}
    if not command:
        return await _send(connection, thread, given, options)
    if others := sorted(command.keys() - {"resume"}):
        raise UsageError(
            f"command.{others[0]:.60}: not supported: a client answers a question by `resume`; "
            "the state of a graph is its owner's."
        )
    if given:
        raise UsageError("A run has an input or a command, not both.")
    segue = segue_of(connection)
    waiting = await segue.list_turns(thread, limit=1, only_waiting=True)
    if not waiting:
        raise ConflictError("No question waits for an answer in this thread.")
    return await segue.answer(waiting[0], command["resume"])


async def _check_end(segue: Segue, thread: Thread, checkpoint: Any) -> None:
    """Some clients send the last state that they have seen along with each message. What the agent
    wrote since then of its own accord may follow it; a message of the user may not.
    """
    if checkpoint is None or checkpoint == checkpoint_json(thread)["checkpoint_id"]:
        return
    is_id = isinstance(checkpoint, str) and len(checkpoint) == TEXT_WIDTH and checkpoint.isdecimal()
    turns = await segue.list_turns(thread, limit=10) if is_id else []
    asked = [turn.batch for turn in turns if not turn.kind.speaks_first]
    if not asked or max(asked) > int(checkpoint):
        raise UsageError(f"checkpoint: {NO_FORK}.")


async def _send(
    connection: HTTPConnection, thread: Thread, given: Any, options: RunOptions
) -> Turn:
    strategy = options.strategy
    for sent in sent_messages(given):
        new = MessageIn(content=sent.content, client_message_id=sent.id, strategy=strategy)
        accepted = await accept_message(connection, thread, new)
    return accepted.turn


async def find_or_create(
    segue: Segue, caller: Caller, thread_id: str, assistant_id: str, *, may_create: bool
) -> Thread:
    """The caller's thread with an agent; `ConflictError` if it has begun with another one.

    Clients create threads before they name an assistant, so an empty thread is with any of them.
    """
    agent = segue.get_agent(assistant_id).id
    try:
        thread = await get_own_thread(segue, caller, thread_id)
    except NotFoundError:
        if not may_create:
            raise
        return await create_thread(segue, caller, agent, thread_id)
    return thread if thread.agent_id == agent else await segue.assign_thread(thread, agent)


async def create_thread(
    segue: Segue,
    caller: Caller,
    agent: str,
    thread_id: str,
    settings: Mapping[str, Any] | None = None,
) -> Thread:
    """A new thread with an id of the client's choice; another user's id is simply taken."""
    if not is_uuid(thread_id):
        raise UsageError(f"thread_id is {thread_id!r:.60}; expected a UUID.")
    return await segue.create_thread(caller.user_id, agent, thread_id=thread_id, settings=settings)


def is_uuid(text: str) -> bool:
    parts = text.split("-")
    is_hex = all(c in "0123456789abcdefABCDEF" for part in parts for c in part)
    return is_hex and [*map(len, parts)] == [8, 4, 4, 4, 12]

"""Takes what a client sends to its thread, and starts the turn that is its run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import HTTPConnection

from segue.core.messages import user_message
from segue.core.snowflake import TEXT_WIDTH
from segue.core.text import check_name, plain_json
from segue.core.turn_rules import DoubleTexting
from segue.errors import ConflictError, NotFoundError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread, Turn
from segue.server.access import get_own_thread, segue_of
from segue.server.auth import Caller
from segue.server.langgraph.bodies import NO_FORK, RunIn
from segue.server.langgraph.messages import SentMessage, sent_messages
from segue.server.langgraph.records import checkpoint_json
from segue.server.routes.messages import check_content


@dataclass(frozen=True, slots=True)
class Task:
    """What a run is to do, checked: messages to store, or else an answer."""

    messages: list[SentMessage]
    answer: Any = None


def check_run(connection: HTTPConnection, new: RunIn) -> Task:
    """`UsageError` or `ApiError` for what no thread could take; nothing is stored."""
    new.check()
    command = {name: value for name, value in (new.command or {}).items() if value is not None}
    if not command:
        return Task(_messages(connection, new.input))
    if others := sorted(command.keys() - {"resume"}):
        raise UsageError(
            f"command.{others[0]:.60}: not supported: a client answers a question by `resume`; "
            "the state of a graph is its owner's."
        )
    if new.input:
        raise UsageError("A run has an input or a command, not both.")
    return Task([], check_answer(command["resume"], "command.resume"))


def check_answer(given: Any, name: str) -> Any:
    """As JSON that every store takes; null would make the graph ask again."""
    if (answer := plain_json(given)) is None:
        raise UsageError(f"{name}: null answers nothing.")
    return answer


def _messages(connection: HTTPConnection, given: Any) -> list[SentMessage]:
    """All of them are checked before the first is stored."""
    messages = sent_messages(given)
    for sent in messages:
        if sent.id is not None:
            check_name(sent.id, "input.messages: id")
        user_message(sent.content)
        check_content(connection, sent.content)
    return messages


async def run_on(
    connection: HTTPConnection, caller: Caller, thread_id: str, new: RunIn, *, may_create: bool
) -> tuple[Thread, Turn]:
    """Start a run on the caller's thread; `ConflictError` if it has begun with another agent.

    Clients create threads before they name an assistant, so an empty thread is with any of them.
    What can be refused is refused before a thread is created or changed.
    """
    segue, task = segue_of(connection), check_run(connection, new)
    agent, checkpoint = segue.get_agent(new.assistant_id).id, new.named_checkpoint
    try:
        thread = await get_own_thread(segue, caller, thread_id)
    except NotFoundError:
        if not may_create or not task.messages or checkpoint is not None:
            raise
        thread = await create_thread(segue, caller, agent, thread_id)
    await _check_end(segue, thread, checkpoint)
    if thread.agent_id != agent:
        if not task.messages:
            raise ConflictError(f"No question of {agent!r:.60} waits in this thread.")
        thread = await segue.assign_thread(thread, agent)
    return thread, await start_run(segue, thread, task, new.strategy)


async def start_run(
    segue: Segue, thread: Thread, task: Task, strategy: DoubleTexting | None
) -> Turn:
    """Store messages or an answer, and return the turn that is their run."""
    if task.messages:
        return await _send(segue, thread, task.messages, strategy)
    waiting = await segue.list_turns(thread, limit=1, only_waiting=True)
    if not waiting:
        raise ConflictError("No question waits for an answer in this thread.")
    return await segue.answer(waiting[0], task.answer)


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
    segue: Segue, thread: Thread, messages: list[SentMessage], strategy: DoubleTexting | None
) -> Turn:
    how = strategy or segue.system.inbox.strategy
    for new in messages:
        accepted = await segue.send(thread, new.content, client_message_id=new.id, strategy=how)
        # The messages of one run do not refuse each other.
        if accepted.is_new and how is DoubleTexting.REJECT:
            how = DoubleTexting.ENQUEUE
    return accepted.turn


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

"""Runs that LangGraph's clients request, and the turns that they start.

Unsupported fields are refused before anything is stored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field
from starlette.requests import HTTPConnection

from segue.conversations import check_lasting
from segue.core.snowflake import TEXT_WIDTH
from segue.core.text import plain_json
from segue.core.turn_rules import DoubleTexting
from segue.errors import ConflictError, NotFoundError, UsageError
from segue.facade import Segue
from segue.journal.records import TEMPORARY, Thread, Turn
from segue.server.access import get_own_thread, segue_of
from segue.server.auth import Caller
from segue.server.chats import check_new_message, find_question
from segue.server.langgraph.messages import SentMessage, has_replies, sent_messages
from segue.server.langgraph.records import checkpoint_json
from segue.server.requests import StrictModel

_UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
MODES: Final = frozenset({"values", "messages", "messages-tuple", "updates", "custom", "events"})
_NO_DATA: Final = "Segue has no data for it; use one of: " + ", ".join(sorted(MODES))
NO_FORK: Final = (
    "not supported: a thread continues from its end; it keeps no checkpoints to fork from"
)
_REFUSED: Final[Mapping[str, str]] = {
    "interrupt_before": "a run stops only where its graph asks a question",
    "interrupt_after": "a run stops only where its graph asks a question",
    "webhook": "webhooks are set in the settings of an agent",
    "after_seconds": "a run starts at once; a reminder or a follow-up can wait",
    "context": "the context of a graph is set by its owner, not by clients",
    "metadata": "runs keep no metadata of clients; threads do",
    "feedback_keys": "there is no LangSmith here to give feedback to",
}
# What `config` may hold: a client's binding to the thread, and what only concerns tracing.
_CONFIGURABLE: Final = frozenset({"thread_id", "assistant_id", "graph_id"})
_CONFIG: Final = frozenset({"configurable", "tags", "metadata", "recursion_limit", "run_name"})


class RunOptions(StrictModel):
    """Beside its assistant and its input; also those that change nothing here: every run is
    durable, its stream can be resumed, and no subgraph is shown.
    """

    command: dict[str, Any] | None = None
    multitask_strategy: Literal["reject", "interrupt", "rollback", "enqueue"] | None = None
    if_not_exists: Literal["create", "reject"] | None = None
    on_disconnect: Literal["continue", "cancel"] | None = None
    on_completion: Literal["delete", "keep"] | None = None
    stream_mode: str | list[str] = "values"
    config: dict[str, Any] | None = None

    stream_subgraphs: bool = False
    stream_resumable: bool = False
    durability: Literal["sync", "async", "exit"] | None = None
    checkpoint_during: bool | None = None
    strict_resume: bool | None = None
    langsmith_tracer: Any = None

    checkpoint: Any = None
    checkpoint_id: Any = None
    interrupt_before: Any = None
    interrupt_after: Any = None
    webhook: Any = None
    after_seconds: Any = None
    context: Any = None
    metadata: Any = None
    feedback_keys: Any = None

    @property
    def named_checkpoint(self) -> Any:
        """The id of the state that a client continues from, if it names one."""
        if isinstance(self.checkpoint, Mapping):
            return self.checkpoint.get("checkpoint_id") or self.checkpoint_id
        return self.checkpoint or self.checkpoint_id

    @property
    def strategy(self) -> DoubleTexting | None:
        return None if self.multitask_strategy is None else DoubleTexting(self.multitask_strategy)

    @property
    def modes(self) -> frozenset[str]:
        return parse_modes(self.stream_mode)

    def check(self) -> None:
        """`UsageError` names the first unsupported field."""
        refuse(self, _REFUSED)
        if self.multitask_strategy == "rollback":
            raise UsageError(
                "multitask_strategy: 'rollback' is not supported: a stored message is never taken "
                "back; use 'interrupt'."
            )
        _check_config(self.config or {})
        parse_modes(self.stream_mode)


class RunIn(RunOptions):
    """A run on a thread, or a stateless one."""

    assistant_id: str = Field(max_length=200)
    input: Any = None

    @property
    def is_temporary(self) -> bool:
        """Whether the thread of a stateless run goes with the run."""
        return self.on_completion != "keep"


def refuse(given: StrictModel, reasons: Mapping[str, str]) -> None:
    """`UsageError` for the first of some fields that is given."""
    for name, reason in reasons.items():
        if getattr(given, name, None):
            raise UsageError(f"{name}: not supported: {reason}.")


def _check_config(config: Mapping[str, Any]) -> None:
    inner = config.get("configurable") or {}
    if not isinstance(inner, Mapping):
        raise UsageError("config.configurable: expected an object.")
    if inner.get("checkpoint_id") or inner.get("checkpoint_ns"):
        raise UsageError(f"config.configurable: {NO_FORK}.")
    unknown = sorted(name for name in inner if inner[name] and name not in _CONFIGURABLE)
    unknown += sorted(name for name in config if config[name] and name not in _CONFIG)
    if unknown:
        raise UsageError(
            f"config: {unknown[0]!r:.60} is not supported: a graph is configured by its owner, "
            "not by clients."
        )


def parse_modes(given: str | list[str]) -> frozenset[str]:
    modes = frozenset([given] if isinstance(given, str) else given)
    if unknown := sorted(modes - MODES):
        raise UsageError(f"stream_mode: {unknown[0]!r:.60} is not supported: {_NO_DATA}.")
    return modes


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
        raise UsageError(f"{name}: null is not an answer.")
    return answer


def _messages(connection: HTTPConnection, given: Any) -> list[SentMessage]:
    """All of them are checked before the first is stored."""
    messages = sent_messages(given)
    for sent in messages:
        check_new_message(connection, sent.content, sent.id, "input.messages: id")
    return messages


async def run_on(
    connection: HTTPConnection, caller: Caller, thread_id: str, new: RunIn, *, may_create: bool
) -> tuple[Thread, Turn]:
    """Start a run on the caller's thread; `ConflictError` if the thread has another agent, or
    belongs to another run alone.

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
    check_lasting(thread)
    await _check_end(segue, thread, checkpoint)
    if thread.agent_id != agent:
        if not task.messages:
            raise ConflictError(f"No question of {agent!r:.60} waits in this thread.")
        thread = await segue.assign_thread(thread, agent)
    return thread, await start_run(segue, thread, task, new.strategy)


async def run_alone(connection: HTTPConnection, caller: Caller, new: RunIn) -> tuple[Thread, Turn]:
    """Start a run in a separate thread, which is temporary unless the client keeps it."""
    if has_replies(new.input):
        raise UsageError(
            "input.messages: a run without a thread knows only its own message; for a "
            "conversation create a thread."
        )
    if new.command:
        raise UsageError("command: a run without a thread has no question to answer.")
    if new.named_checkpoint is not None:
        raise UsageError(f"checkpoint: {NO_FORK}.")
    segue, task = segue_of(connection), check_run(connection, new)
    # Muted: there is nothing to follow up in a thread that is about to go.
    settings = {TEMPORARY: True, "muted": True} if new.is_temporary else None
    agent = segue.get_agent(new.assistant_id).id
    thread = await create_thread(segue, caller, agent, settings=settings)
    return thread, await start_run(segue, thread, task, new.strategy)


async def start_run(
    segue: Segue, thread: Thread, task: Task, strategy: DoubleTexting | None
) -> Turn:
    """Store messages or an answer, and return the turn that is their run."""
    if task.messages:
        return await _send(segue, thread, task.messages, strategy)
    return await segue.answer(await get_question(segue, thread), task.answer)


async def get_question(segue: Segue, thread: Thread) -> Turn:
    """The turn that waits for an answer; `ConflictError` if there is none."""
    if (asked := await find_question(segue, thread)) is None:
        raise ConflictError("No question waits for an answer in this thread.")
    return asked


async def _check_end(segue: Segue, thread: Thread, checkpoint: Any) -> None:
    """Some clients send the last state that they have seen along with each message. Follow-ups may
    have come after it; a message of the user may not.
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
    thread_id: str | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    only_new: bool = False,
) -> Thread:
    """A new thread, also with an id of the client's choice; an id of another user is taken."""
    if thread_id is not None and not _UUID.fullmatch(thread_id):
        raise UsageError(f"thread_id is {thread_id!r:.60}; expected a UUID.")
    return await segue.create_thread(
        caller.user_id, agent, thread_id=thread_id, settings=settings, only_new=only_new
    )

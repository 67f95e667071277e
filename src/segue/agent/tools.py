"""Tools of the built-in agent: `continue_later`, `remember`, `forget` and `ask_agent`.

In your own graph, `remember` and `forget` work if the agent has `memory.enabled`. The user comes
from the run, never from the model, so that a prompt injection cannot reach other users.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import CodeType
from typing import Annotated, Any, Final

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.config import get_config

from segue.agent.current import MEMORIES_KEY, current_run, required_run
from segue.agent.ids import id_in_thread
from segue.agent.memory import MemoryBook
from segue.core.durations import say_duration
from segue.core.messages import spoken_text, user_message, visible_messages
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.text import is_name
from segue.errors import SegueError, UsageError
from segue.journal.inbox import Arrival
from segue.journal.records import MAX_DEPTH, NOT_AWAITED, Accepted, Turn, TurnState, nested_id
from segue.runtime.deps import Deps
from segue.runtime.run import Run
from segue.runtime.turns import TurnWorker
from segue.telemetry import trace_context

_MAX_SECONDS: Final = 7 * 24 * 3600
_SECOND: Final = timedelta(seconds=1)
_SCHEMAS: Final[dict[CodeType, Any]] = {}


def closure_tool(function: Callable[..., Any]) -> BaseTool:
    """A tool from a function that is defined separately for each agent.

    All agents share the schema of its arguments, since LangChain takes milliseconds to derive it.
    """
    code = function.__code__
    made: BaseTool = tool(args_schema=_SCHEMAS.get(code))(function)
    _SCHEMAS[code] = made.args_schema
    return made


def continue_tool(most: int, now: Callable[[], datetime]) -> BaseTool:
    """The tool `continue_later`, for at most `most` continuations per batch."""

    @closure_tool
    async def continue_later(
        after_seconds: float, reason: str, tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> ToolMessage:
        """Go on with this work by yourself after some time, for example to look again at
        something that takes a while. Say in the reason what is left to do.
        """
        del reason  # stored with the call
        name = "continue_later"
        run = current_run()
        if refusal := _refusal(run, most, after_seconds):
            return ToolMessage(refusal, tool_call_id=tool_call_id, name=name, status="error")
        text = _say_when(run, now(), timedelta(seconds=after_seconds))
        result = ToolMessage(text, tool_call_id=tool_call_id, name=name)
        return MessageMetadata(continue_requested=True).onto(result)

    return continue_later


def _say_when(run: Run | None, now: datetime, delay: timedelta) -> str:
    """The time of the continuation, on the user's clock, so that the reply can name it."""
    at = f"at {run.clock.describe(now + delay)}, " if run and run.clock else ""
    wait = f"in {say_duration(delay)}" if delay >= _SECOND else "right after this reply"
    return f"You will continue {at}{wait}."


def _refusal(run: Run | None, most: int, after_seconds: float) -> str | None:
    if not 0 <= after_seconds <= _MAX_SECONDS:
        return f"after_seconds must be from 0 to {_MAX_SECONDS}."
    if run is None:
        return None
    if run.batch.type is BatchType.SYSTEM_TRIGGER:
        # A continuation would be a second follow-up that passed no gate.
        return "You spoke first here; say all of it now, and wait for the user."
    continuations = sum(
        isinstance(message, HumanMessage)
        and MessageMetadata.of(message).batch_type is BatchType.CONTINUATION
        for message in run.batch.messages
    )
    if continuations >= most:
        return f"You have continued {most} times already; finish now."
    return None


_NOT_FROM_USER: Final = (
    "Not remembered: this repeats the instruction that let you speak or go on by yourself, which "
    "the user did not say. Keep only what the user told you, in other words."
)


@tool
async def remember(content: str, key: str | None = None) -> str:
    """Keep a lasting fact about the user for later conversations.

    Use it for preferences, plans, names and dates that the user told you. Say the fact in one
    sentence. A key (such as "favourite_food") replaces what was kept under it before.
    """
    run = required_run()
    if run.quotes_trigger(f"{content}\n{key or ''}"):
        return _NOT_FROM_USER
    try:
        kept = await _book().remember(run.agent_id, run.user_id, content, key)
    except SegueError as error:
        return f"Not remembered: {error}"
    outcome = "added" if kept.is_new else "updated"
    room = " There is little room left for more." if kept.nearly_full else ""
    return f"Remembered as {kept.memory.key!r} ({outcome}).{room}"


@tool
async def forget(key: str) -> str:
    """Drop a fact about the user that is wrong or no longer wanted, by its key."""
    run = required_run()
    was_there = await _book().forget(run.agent_id, run.user_id, key)
    return f"Forgot {key!r}." if was_there else f"There is nothing under {key!r}."


def _book() -> MemoryBook:
    found: MemoryBook | None = get_config()["configurable"].get(MEMORIES_KEY)
    if found is None:
        raise UsageError("This agent keeps no memories; set memory.enabled.")
    return found


CHAIN: Final = "chain"
# The user may read the questions of agents to each other.
_NOT_ASKED: Final = (
    "Not asked: this repeats the instruction that let you speak or go on by yourself, which is for "
    "you alone. Ask in other words."
)


def ask_agent_tool(
    deps: Deps, turns: TurnWorker, names: Sequence[str], *, limit: timedelta
) -> BaseTool:
    """The tool `ask_agent`, for an agent that may ask the agents in `names`."""

    async def ask_agent(
        name: str, text: str, tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> str:
        run = required_run()
        if refusal := _cannot_ask(run, name, names):
            return refusal
        if run.quotes_trigger(text):
            return _NOT_ASKED
        accepted = await _accept(deps, run, name, text, tool_call_id)
        deps.wakeups.turns.now()
        try:
            async with asyncio.timeout(limit.total_seconds()):
                with turns.resting(run.thread_id):
                    turn = await turns.wait_until_ended(accepted.turn)
        except TimeoutError:
            await _give_up(deps, turns, accepted.turn)
            return f"{name} did not answer within {limit.total_seconds():g} s."
        except asyncio.CancelledError:
            with suppress(SegueError):  # the run stops in any case
                await asyncio.shield(_leave(deps, turns, run, accepted.turn))
            raise
        return await _reply_of(deps, turn, name)

    ask_agent.__doc__ = (
        f"Ask another agent and get its answer. Agents that you can ask: {', '.join(names)}."
    )
    return closure_tool(ask_agent)


def _cannot_ask(run: Run, name: str, names: Sequence[str]) -> str | None:
    """Why the question is refused: an unknown agent, a cycle, or too deep a chain."""
    chain = _chain(run)
    if name not in names:
        return f"There is no agent {name!r} to ask; there are: {', '.join(names)}."
    if name in chain:
        return f"{name} is already waiting for this answer; agents must not ask in circles."
    if len(chain) > MAX_DEPTH:
        return f"Agents ask each other at most {MAX_DEPTH} deep; answer with what you know."
    return None


def _chain(run: Run) -> list[str]:
    """The agents that wait for this run, and its own agent last."""
    return [*run.notes.get(CHAIN, ()), run.agent_id]


async def _accept(deps: Deps, run: Run, name: str, text: str, call_id: str) -> Accepted:
    thread_id = nested_id(run.thread_id, name)
    now = deps.clock.now()
    await deps.journal.threads.create(thread_id, agent_id=name, user_id=run.user_id, now=now)
    return await deps.journal.inbox.accept(
        thread_id,
        user_message(text),
        ids=deps.ids,
        now=now,
        # After a crash the same call finds the turn that it started.
        client_message_id=_ask_id(run, call_id),
        arrival=Arrival(
            parent_batch=run.batch.id,
            source_agent_id=run.agent_id,
            payload={CHAIN: _chain(run), **trace_context()},
        ),
    )


def _ask_id(run: Run, call_id: str) -> str:
    name = f"ask:{run.batch.id}:{call_id}"
    return name if is_name(name) else id_in_thread(call_id, run.batch.id)


async def _leave(deps: Deps, turns: TurnWorker, run: Run, asked: Turn) -> None:
    """Stop the other agent, unless another process continues the run and waits for it there."""
    if not await turns.will_resume(run.thread_id):
        await _give_up(deps, turns, asked)


async def _give_up(deps: Deps, turns: TurnWorker, turn: Turn) -> None:
    await deps.journal.turns.cancel(turn.thread_id, NOT_AWAITED, ids=deps.ids, now=deps.clock.now())
    await turns.recheck(turn.thread_id)


async def _reply_of(deps: Deps, turn: Turn, name: str) -> str:
    if turn.state is not TurnState.DONE:
        return f"{name} could not answer: {turn.error or turn.state.value}"
    batch = await deps.journal.messages.load_batch(turn.thread_id, turn.batch)
    replies = [m for m in visible_messages(batch.messages) if isinstance(m, AIMessage)]
    return spoken_text(replies[-1]) if replies else f"{name} said nothing."

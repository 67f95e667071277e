"""Agent to agent: a tool with which an agent asks another one, on a thread of their own.

The other agent's answer is the tool's result. It is a turn like any other, in a batch that names
its parent, so that a crash of either side loses nothing: asked again, the same call finds its turn.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Final

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool

from segue.agent.run import Run, current_run
from segue.core.errors import SegueError, UsageError
from segue.core.messages import user_message, visible_messages
from segue.journal.records import NOT_AWAITED, Accepted, Arrival, Turn, TurnState, nested_id
from segue.noting import carry
from segue.runtime.parts import Parts
from segue.runtime.turns import TurnWorker

CHAIN: Final = "chain"
MAX_DEPTH: Final = 3
# The user may read what agents ask each other.
_NOT_ASKED: Final = (
    "Not asked: this repeats the instruction that let you speak or go on by yourself, which is for "
    "you alone. Ask in other words."
)


def ask_agent_tool(
    parts: Parts, turns: TurnWorker, names: Sequence[str], *, limit: timedelta
) -> BaseTool:
    """The tool `ask_agent`, for an agent that may ask these others."""

    async def ask_agent(
        name: str, text: str, tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> str:
        run = current_run()
        if run is None:
            raise UsageError("ask_agent works in a run of a Segue agent only.")
        if reason := _refusal(run, name, names):
            return reason
        if run.quotes_trigger(text):
            return _NOT_ASKED
        accepted = await _accept(parts, run, name, text, tool_call_id)
        parts.agendas.turns.at_once()
        try:
            async with asyncio.timeout(limit.total_seconds()):
                with turns.resting(run.thread_id):
                    turn = await turns.ended(accepted.turn)
        except TimeoutError:
            await _give_up(parts, turns, accepted.turn)
            return f"{name} did not answer within {limit.total_seconds():g} s."
        except asyncio.CancelledError:
            with suppress(SegueError):  # whatever fails, the run is to stop
                await asyncio.shield(_leave(parts, turns, run, accepted.turn))
            raise
        return await _reply_of(parts, turn, name)

    ask_agent.__doc__ = (
        f"Ask another agent and get its answer. Agents that you can ask: {', '.join(names)}."
    )
    made: BaseTool = tool(ask_agent)
    return made


def _refusal(run: Run, name: str, names: Sequence[str]) -> str | None:
    """Why the question is not passed on: nobody asks in circles, or ever deeper."""
    chain = _chain(run)
    if name not in names:
        return f"There is no agent {name!r} to ask; there are: {', '.join(names)}."
    if name in chain:
        return f"{name} is already waiting for this answer; asking in circles leads nowhere."
    if len(chain) > MAX_DEPTH:
        return f"Agents ask each other at most {MAX_DEPTH} deep; answer with what you know."
    return None


def _chain(run: Run) -> list[str]:
    """The agents that wait for this run, and its own."""
    return [*run.notes.get(CHAIN, ()), run.agent_id]


async def _accept(parts: Parts, run: Run, name: str, text: str, call_id: str) -> Accepted:
    thread_id = nested_id(run.thread_id, name)
    now = parts.clock.now()
    await parts.journal.create_thread(thread_id, agent_id=name, user_id=run.user_id, now=now)
    return await parts.journal.accept_message(
        thread_id,
        user_message(text),
        ids=parts.ids,
        now=now,
        # The same call after a crash finds the turn that it began.
        client_message_id=f"ask:{run.batch.id}:{call_id}",
        arrival=Arrival(
            parent_batch=run.batch.id,
            source_agent_id=run.agent_id,
            payload={CHAIN: _chain(run), **carry()},
        ),
    )


async def _leave(parts: Parts, turns: TurnWorker, run: Run, asked: Turn) -> None:
    """Stop the other agent, unless another process goes on with the run and waits for it there."""
    if not await turns.goes_on(run.thread_id):
        await _give_up(parts, turns, asked)


async def _give_up(parts: Parts, turns: TurnWorker, turn: Turn) -> None:
    await parts.journal.cancel_turns(
        turn.thread_id, NOT_AWAITED, ids=parts.ids, now=parts.clock.now()
    )
    await turns.look_after(turn.thread_id)


async def _reply_of(parts: Parts, turn: Turn, name: str) -> str:
    if turn.state is not TurnState.DONE:
        return f"{name} could not answer: {turn.error or turn.state.value}"
    batch = await parts.journal.load_batch(turn.thread_id, turn.batch)
    words = [m.text for m in visible_messages(batch.messages) if isinstance(m, AIMessage)]
    return words[-1] if words else f"{name} said nothing."

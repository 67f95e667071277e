"""The inbox: what a user does comes in here, is stored first, and then wakes whoever has work.

A second message while the first is being answered is treated by strategy: it waits, stops the
answer, is refused, or is collected with the first.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Any, Final

from langchain_core.messages import HumanMessage

from segue.core.errors import BackendError
from segue.core.messages import user_message
from segue.journal.records import CUT_SHORT, OVERTAKEN, STOPPED, Accepted, Arrival, Turn
from segue.noting import carry, note
from segue.runtime.clock import sleep
from segue.runtime.parts import Parts
from segue.runtime.rules import COLLECT_FOR, DoubleTexting
from segue.runtime.turns import TurnWorker

logger = logging.getLogger(__name__)

# How long a follow-up that the user has seen the beginning of may go on when the user writes: long
# enough for the rest of a sentence, too short to be waited for.
FINISH_WITHIN: Final = timedelta(seconds=2)


class Inbox:
    """Takes in messages, answers to questions, and the wish to stop."""

    def __init__(
        self,
        parts: Parts,
        turns: TurnWorker,
        strategy: DoubleTexting = DoubleTexting.ENQUEUE,
        collect_for: timedelta = COLLECT_FOR,
    ) -> None:
        self._parts = parts
        self._turns = turns
        self._strategy = strategy
        self._collect_for = collect_for
        self._ending: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Stop waiting for follow-ups to end; they end with their process."""
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def accept(
        self,
        thread_id: str,
        content: str | list[Any] | HumanMessage,
        *,
        client_message_id: str | None = None,
        strategy: DoubleTexting | None = None,
    ) -> Accepted:
        """Store a user's message; its answer follows. Running follow-ups are stopped."""
        parts, how = self._parts, strategy or self._strategy
        accepted = await parts.journal.accept_message(
            thread_id,
            user_message(content),
            ids=parts.ids,
            now=parts.clock.now(),
            client_message_id=client_message_id,
            arrival=Arrival(
                collect=self._collect_for if how is DoubleTexting.COLLECT else None,
                only_if_idle=how is DoubleTexting.REJECT,
                payload=carry(),
            ),
        )
        if accepted.is_new:
            _note_accepted(accepted)
            self._turns.withdraw(thread_id, accepted.voided_turns)
            if how is DoubleTexting.INTERRUPT:
                await self._stop_quietly(thread_id, OVERTAKEN, before=accepted.turn.id)
            elif accepted.shown_turn is not None:
                self._end_soon(thread_id, accepted.shown_turn)
        await self._arrived(thread_id)
        return accepted

    async def answer(self, turn_id: int, answer: Any) -> Turn:
        """What a person said to a question that a turn waits with."""
        parts = self._parts
        turn = await parts.journal.answer_turn(
            turn_id, answer, ids=parts.ids, now=parts.clock.now()
        )
        await self._turns.look_after(turn.thread_id)
        await self._arrived(turn.thread_id)
        return turn

    async def cancel(self, thread_id: str) -> list[Turn]:
        """Stop what the agent does in a thread, here or elsewhere, and what it would go on with."""
        return await self._stop(thread_id, STOPPED)

    def _end_soon(self, thread_id: str, follow_up: int) -> None:
        """A user does not wait for a follow-up: one that is not over in a moment is stopped."""

        async def end() -> None:
            with self._parts.clock.working():
                await sleep(self._parts.clock, FINISH_WITHIN)
                await self._stop_quietly(thread_id, CUT_SHORT, only=follow_up)

        task = asyncio.create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _stop_quietly(self, thread_id: str, reason: str, **which: int) -> None:
        try:
            await self._stop(thread_id, reason, **which)
        except BackendError as error:
            # The message is stored, and whoever gets an error sends it again: so it waits instead.
            logger.warning("A turn of thread %s was not stopped: %s", thread_id, error)

    async def _stop(self, thread_id: str, reason: str, **which: int) -> list[Turn]:
        parts = self._parts
        stopped = await parts.journal.cancel_turns(
            thread_id, reason, ids=parts.ids, now=parts.clock.now(), **which
        )
        await self._turns.look_after(thread_id)
        self._parts.agendas.turns.at_once()
        return stopped

    async def _arrived(self, thread_id: str) -> None:
        self._parts.agendas.turns.at_once()
        await self._parts.bus.stored(thread_id)


def _note_accepted(accepted: Accepted) -> None:
    turn = accepted.turn
    note(
        logger,
        "message_accepted",
        "A message of thread {thread_id} is stored",
        logging.DEBUG,
        thread_id=turn.thread_id,
        agent_id=turn.agent_id,
        batch=turn.batch,
        turn_id=turn.id,
    )
    if accepted.cancelled_timers or accepted.voided_turns:
        note(
            logger,
            "follow_up_voided",
            "The user wrote in thread {thread_id}: its follow-ups are void",
            thread_id=accepted.turn.thread_id,
            agent_id=accepted.turn.agent_id,
            timers=accepted.cancelled_timers,
            turns=accepted.voided_turns,
        )

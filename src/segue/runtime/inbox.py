"""The inbox: stores a user's input first, then wakes the workers.

The strategy decides about a second message while the first is being answered: it waits, stops the
reply, is refused, or is collected with the first. No strategy stops a reply that has not started.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from langchain_core.messages import HumanMessage

from segue.core.memory import text_of
from segue.core.messages import user_message
from segue.core.speech.stops import UserRequest, read_answer, read_request
from segue.core.turn_rules import COLLECT_FOR, DoubleTexting
from segue.errors import BackendError, NotFoundError
from segue.journal.inbox import Arrival
from segue.journal.records import CUT_SHORT, HURRIED, STOPPED, Accepted, Turn
from segue.runtime.clock import sleep
from segue.runtime.deps import Deps, log_about
from segue.runtime.turns import TurnWorker
from segue.runtime.wishes import ASKED, Granted, grant
from segue.telemetry import trace_context

logger = logging.getLogger(__name__)

# How long a visible follow-up may continue after the user writes, to finish a sentence.
FINISH_WITHIN: Final = timedelta(seconds=2)


class Inbox:
    def __init__(
        self,
        deps: Deps,
        turns: TurnWorker,
        strategy: DoubleTexting = DoubleTexting.ENQUEUE,
        collect_for: timedelta = COLLECT_FOR,
    ) -> None:
        self._deps = deps
        self._turns = turns
        self.strategy = strategy
        self._collect_for = collect_for
        self._ending: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Drop the delayed stops of follow-ups; these end with their process."""
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
        """Store a user's message, queue its reply, and void the follow-ups that were not seen."""
        deps, how = self._deps, strategy or self.strategy
        message = user_message(content)
        asked = await self._granted(thread_id, read_request(text_of(message)))
        accepted = await deps.journal.inbox.accept(
            thread_id,
            message,
            ids=deps.ids,
            now=deps.clock.now(),
            client_message_id=client_message_id,
            arrival=Arrival(
                collect=self._collect_for if how is DoubleTexting.COLLECT else None,
                only_if_idle=how is DoubleTexting.REJECT,
                interrupts=how is DoubleTexting.INTERRUPT,
                payload=trace_context(),
                preferences=asked.preferences,
                reminders=asked.reminders,
                decisions=asked.decisions,
            ),
        )
        if accepted.is_new:
            _log_accepted(accepted)
            if asked.preferences:  # what was postponed may come now
                deps.wakeups.timers.now()
            self._turns.withdraw(thread_id, accepted.voided_turns)
            if accepted.stopped_turns:
                await self._turns.recheck(thread_id)
            elif accepted.shown_turn is not None:
                self._stop_soon(thread_id, accepted.shown_turn, CUT_SHORT)
            if accepted.reminder_turn is not None:
                self._stop_soon(thread_id, accepted.reminder_turn, HURRIED)
        await self._wake(accepted.turn)
        return accepted

    async def answer(
        self, turn_id: int, answer: Any, *, client_message_id: str | None = None
    ) -> Turn:
        """Answer the question that a turn waits with."""
        deps = self._deps
        given = answer.values() if isinstance(answer, Mapping) else [answer]
        text = "\n".join(each for each in given if isinstance(each, str))
        waiting = await deps.journal.turns.get(turn_id)
        asked = await self._granted(waiting.thread_id, read_answer(text))
        turn = await deps.journal.inbox.answer(
            turn_id,
            answer,
            ids=deps.ids,
            now=deps.clock.now(),
            client_message_id=client_message_id,
            arrival=Arrival(
                preferences=asked.preferences,
                reminders=asked.reminders,
                decisions=asked.decisions,
            ),
        )
        if asked.preferences:
            deps.wakeups.timers.now()
        await self._turns.recheck(turn.thread_id)
        await self._wake(turn)
        return turn

    async def _granted(self, thread_id: str, request: UserRequest | None) -> Granted:
        if request is None:
            return Granted()
        return await grant(self._deps, thread_id, request, ASKED[request.wish])

    async def cancel(self, thread_id: str, only: int | None = None) -> list[Turn]:
        """Cancel a thread's turns, in any process, and its continuations; or `only` one turn."""
        return await self._stop(thread_id, STOPPED, only)

    def _stop_soon(self, thread_id: str, turn_id: int, reason: str) -> None:
        """Stop a visible follow-up, or a reminder that is still unseen then, after `FINISH_WITHIN`:
        the reply to the user has to start.
        """

        async def end() -> None:
            with self._deps.clock.working():
                await sleep(self._deps.clock, FINISH_WITHIN)
                try:
                    turn = await self._deps.journal.turns.get(turn_id)
                    if reason == CUT_SHORT or turn.shown_at is None:
                        await self._stop(thread_id, reason, only=turn_id)
                except (BackendError, NotFoundError) as error:  # the reply then waits for its end
                    logger.warning("Turn %s was not stopped: %s", turn_id, error)

        task = asyncio.create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _stop(self, thread_id: str, reason: str, only: int | None = None) -> list[Turn]:
        deps = self._deps
        stopped = await deps.journal.turns.cancel(
            thread_id, reason, ids=deps.ids, now=deps.clock.now(), only=only
        )
        await self._turns.recheck(thread_id)
        deps.wakeups.turns.now()
        return stopped

    async def _wake(self, turn: Turn) -> None:
        self._deps.wakeups.turns.now()
        await self._deps.bus.notify_stored(turn.thread_id, turn.user_id)


def _log_accepted(accepted: Accepted) -> None:
    turn, timers, turns = accepted.turn, accepted.cancelled_timers, accepted.voided_turns
    text = "A message of thread {thread_id} is stored"
    log_about(logger, turn, "message_accepted", text, logging.DEBUG, batch=turn.batch)
    if timers or turns:
        text = "The user wrote in thread {thread_id}: its follow-ups are void"
        log_about(logger, turn, "follow_up_voided", text, timers=timers, turns=turns)

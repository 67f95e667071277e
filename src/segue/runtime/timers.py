"""`TimerWorker`: sleeps until a timer is due, checks the gates, and queues the follow-up's turn."""

import asyncio
import logging
from datetime import datetime
from typing import Final

from structlog.contextvars import bind_contextvars

from segue.core.autonomy.gates import GateOutcome
from segue.core.messages import continuation_message, synthetic_message
from segue.core.triggers import PromptVariant, choose_prompt
from segue.errors import ConflictError, NotFoundError
from segue.journal.records import Decision, Timer, TimerLease, TimerState, TurnKind
from segue.runtime.deps import Deps, log_failure
from segue.runtime.gatekeeper import GateCheck, Gatekeeper
from segue.telemetry import count, log_event, span

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 8
_PAGE: Final = 64
# Two agents that follow up with one user at the same moment make each other check again.
_TRIES: Final = 10
_HELD_OUT: Final = "Held out: this share of follow-ups is not sent, to see what they change."


class _CountsChanged(Exception):
    """Another follow-up was queued after the gates were checked."""


class TimerWorker:
    def __init__(self, deps: Deps, gatekeeper: Gatekeeper) -> None:
        self._deps = deps
        self._journal = deps.journal
        self._clock = deps.clock
        self._gatekeeper = gatekeeper
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def step(self) -> datetime | None:
        """Consider all due timers; return the next due time."""
        while leases := await self._journal.timers.claim_due(
            self._deps.owner, now=self._clock.now(), lease_for=self._deps.lease_for, limit=_PAGE
        ):
            await asyncio.gather(*map(self._work, leases))
        return await self._journal.timers.next_at()

    async def consider(self, lease: TimerLease) -> None:
        """The life of a follow-up: from its due timer to the turn that writes it."""
        timer, now = lease.timer, self._clock.now()
        if timer.kind is TurnKind.CONTINUATION:
            await self._continue(lease, now)
            return
        try:
            autonomy = self._deps.agent_of(timer.agent_id).config.autonomy
        except NotFoundError as error:
            await self._close(lease, str(error), now)
            return
        check = await self._gatekeeper.check(timer, autonomy.policy, now)
        if not check.is_allowed:
            await self._hold_back(lease, check, now)
            return
        # By the thread's id: a thread stays in its arm while the weights stay, and a timer that is
        # tried twice gets the same prompt.
        prompt = choose_prompt(
            autonomy.prompts, autonomy.holdout, timer.trigger_type or "", timer.thread_id
        )
        if prompt is None:
            record = self._gatekeeper.record(check, held_out=True)
            await self._close(lease, _HELD_OUT, now, record, outcome="held_out")
            return
        await self._fire(lease, prompt, check, now)

    async def _work(self, lease: TimerLease) -> None:
        timer = lease.timer
        names = {
            "thread_id": timer.thread_id,
            "agent_id": timer.agent_id,
            "trigger_type": timer.trigger_type or timer.kind.value,
        }
        # Runs in a task of its own, so these fields are on every line that is logged here.
        bind_contextvars(**names)
        async with self._slots:
            late = max((self._clock.now() - timer.due_at).total_seconds(), 0)
            count("timer_due", seconds=late)
            with span("timer", timer_id=timer.id, **names):
                await self._try(lease)

    async def _try(self, lease: TimerLease) -> None:
        timer_id = lease.timer.id
        try:
            for _ in range(_TRIES):
                try:
                    return await self.consider(lease)
                except _CountsChanged:
                    continue
            raise ConflictError("Other follow-ups were queued first each time.")
        except (ConflictError, NotFoundError) as error:
            # The step that cancelled, claimed or deleted the timer has recorded why.
            logger.info("Timer %s was given up: %s", timer_id, error)
        except Exception as error:  # noqa: BLE001 - it is claimed again when its lease expires
            log_failure(logger, f"Timer {timer_id} could not be considered", error)

    async def _hold_back(self, lease: TimerLease, check: GateCheck, now: datetime) -> None:
        """Postpone or close a timer, as its gates decided."""
        decision, record = check.decision, self._gatekeeper.record(check)
        if decision.outcome is GateOutcome.POSTPONE and decision.until is not None:
            await self._journal.timers.postpone(
                lease, decision.until, decision.reason, now=now, decisions=[record]
            )
            count("follow_up_held_back", outcome=decision.timer_state)
        else:
            state = TimerState(decision.timer_state)
            await self._close(lease, decision.reason, now, record, state=state)

    async def _close(
        self,
        lease: TimerLease,
        reason: str,
        now: datetime,
        *decisions: Decision,
        state: TimerState = TimerState.SUPPRESSED,
        outcome: str | None = None,
    ) -> None:
        await self._journal.timers.close(
            lease, state, reason, ids=self._deps.ids, now=now, decisions=decisions
        )
        if lease.timer.kind is TurnKind.FOLLOW_UP:
            count("follow_up_held_back", outcome=outcome or state.value)

    async def _fire(
        self, lease: TimerLease, prompt: PromptVariant, check: GateCheck, now: datetime
    ) -> None:
        """Store the trigger and queue its turn, if the counts that the gates saw still hold."""
        timer = lease.timer
        message = synthetic_message(timer.trigger_type or "", timer.reason, prompt.text)
        _log_created(timer)
        try:
            turn = await self._journal.timers.fire(
                lease,
                message,
                ids=self._deps.ids,
                now=now,
                counted=check.counts,
                decisions=[self._gatekeeper.record(check, variant=prompt.name)],
            )
        except ConflictError as error:
            if await self._is_ours(lease):
                raise _CountsChanged from error
            raise
        if turn is None:
            return
        log_event(
            logger,
            "follow_up_fired",
            "Follow-up {timer_id} of thread {thread_id} fired ({trigger_type})",
            thread_id=timer.thread_id,
            agent_id=timer.agent_id,
            trigger_type=timer.trigger_type,
            timer_id=timer.id,
            turn_id=turn.id,
            variant=prompt.name,
        )
        self._deps.wakeups.turns.now()

    async def _continue(self, lease: TimerLease, now: datetime) -> None:
        """The user asked for this work: only the gates "opted out" and "muted" apply."""
        if refusal := await self._gatekeeper.refuse_continuation(lease.timer, now):
            await self._close(lease, refusal, now)
            return
        message = continuation_message(lease.timer.reason)
        _log_created(lease.timer)
        if await self._journal.timers.fire(lease, message, ids=self._deps.ids, now=now):
            self._deps.wakeups.turns.now()

    async def _is_ours(self, lease: TimerLease) -> bool:
        """Whether the lease still holds, so that only the counts can have changed."""
        timers = await self._journal.timers.list_of(lease.timer.thread_id, limit=20)
        found = next((t for t in timers if t.id == lease.timer.id), None)
        return found is not None and found.state is TimerState.CLAIMED


def _log_created(timer: Timer) -> None:
    """Log the metadata of a synthetic message, not its text."""
    log_event(
        logger,
        "synthetic_message_created",
        "A synthetic message of thread {thread_id} was made ({trigger_type})",
        logging.DEBUG,
        thread_id=timer.thread_id,
        agent_id=timer.agent_id,
        timer_id=timer.id,
        synthetic=True,
        trigger_type=timer.trigger_type or timer.kind.value,
        trigger_reason=timer.reason,
    )

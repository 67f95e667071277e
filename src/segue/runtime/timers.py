"""`TimerWorker`: sleeps until a timer is due, checks the gates, and queues the follow-up's turn."""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from typing import Final

from structlog.contextvars import bind_contextvars

from segue.core.autonomy.gates import GateOutcome
from segue.core.messages import (
    CONTINUATION_PROMPT,
    MOST_DATA_TOKENS,
    continuation_message,
    synthetic_message,
)
from segue.core.metadata import Initiative
from segue.core.tokens import estimate_text
from segue.core.triggers import (
    DEFAULT_VARIANT,
    TRIGGER_PROMPTS,
    PromptVariant,
    choose_prompt,
)
from segue.errors import ConflictError, NotFoundError, UnknownTrigger
from segue.journal.records import Decision, Timer, TimerKind, TimerLease, TimerState
from segue.runtime.deps import Deps, log_about, log_failure
from segue.runtime.gatekeeper import GateCheck, Gatekeeper
from segue.runtime.reminders import WORN_OUT, Firing, at_newer_time, plan_firing, skip_to
from segue.settings.agents import Autonomy
from segue.telemetry import count, span

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 8
_PAGE: Final = 64
# Two agents that follow up with one user at the same moment make each other check again.
_TRIES: Final = 10
_HELD_OUT: Final = "Held out: this share of follow-ups is not sent, to measure their effect."
_INITIATIVES: Final[Mapping[TimerKind, Initiative]] = {
    TimerKind.EVENT: "event",
    TimerKind.REMINDER: "user",
}


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
        """The life of a follow-up, from its due timer to the turn that writes it."""
        timer, now = lease.timer, self._clock.now()
        try:
            autonomy = self._deps.autonomy_of(timer.agent_id)
            prompt = _choose_prompt(timer, autonomy)
        except (NotFoundError, UnknownTrigger) as error:  # the settings have changed
            return await self._close(lease, str(error), now)
        timer = at_newer_time(timer, autonomy, now)
        lease = replace(lease, timer=timer)
        check = await self._gatekeeper.check(timer, autonomy, now)
        if not check.is_allowed:
            return await self._hold_back(lease, check, now)
        if timer.kind is TimerKind.CONTINUATION:
            return await self._continue(lease, now)
        if prompt is None:
            record = check.record(self._deps.ids.next(), held_out=True)
            return await self._close(lease, _HELD_OUT, now, record, outcome="held_out")
        firing = None
        if timer.kind is TimerKind.REMINDER:
            zone = check.preferences.time_zone
            firing = plan_firing(timer, autonomy, check.facts.thread_epoch, now, zone)
            if firing.is_over:
                return await self._close(lease, WORN_OUT, now, state=TimerState.EXPIRED)
        return await self._fire(lease, prompt, check, now, firing)

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
        """Postpone or close a timer as its gates decided; a recurring one skips one time."""
        decision, record = check.decision, check.record(self._deps.ids.next())
        is_later = decision.outcome is GateOutcome.POSTPONE
        until = decision.until if is_later else skip_to(lease.timer, now)
        if until is not None:
            state = TimerState.POSTPONED if is_later else TimerState.PENDING
            await self._journal.timers.postpone(
                lease, until, decision.reason, now=now, state=state, decisions=[record]
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
        if lease.timer.kind is not TimerKind.CONTINUATION:
            count("follow_up_held_back", outcome=outcome or state.value)

    async def _fire(
        self,
        lease: TimerLease,
        prompt: PromptVariant,
        check: GateCheck,
        now: datetime,
        firing: Firing | None = None,
    ) -> None:
        """Store the trigger and queue its turn, if the counts that the gates saw still hold."""
        timer = lease.timer
        events = await self._events_with(timer)
        told = [event.payload for event in events]
        message = synthetic_message(
            timer.trigger_type or "",
            timer.reason,
            (firing and firing.prompt) or prompt.text,
            initiative=_initiative(timer),
            data=firing.data if firing else told or timer.payload.get("data"),
        )
        _log_created(timer)
        try:
            turn = await self._journal.timers.fire(
                lease,
                message,
                ids=self._deps.ids,
                now=now,
                counted=check.counts,
                decisions=[check.record(self._deps.ids.next(), variant=prompt.name)],
                together=[event.id for event in events],
                again=firing.again if firing else None,
            )
        except ConflictError as error:
            if await self._is_ours(lease):
                raise _CountsChanged from error
            raise
        if turn is None:
            return
        text = "Follow-up {timer_id} of thread {thread_id} fired ({trigger_type})"
        log_about(logger, timer, "follow_up_fired", text, turn_id=turn.id, variant=prompt.name)
        self._deps.wakeups.turns.now()

    async def _events_with(self, timer: Timer) -> list[Timer]:
        """The waiting events of the same trigger that fit into one message, this one among them;
        none for other timers. The rest waits for the next message.
        """
        if timer.kind is not TimerKind.EVENT:
            return []
        waiting = await self._journal.timers.list_events(timer)
        others = [event for event in waiting if event.id != timer.id]
        sizes = accumulate([_size(timer), *map(_size, others)])
        fitting = sum(size <= MOST_DATA_TOKENS for size in sizes)
        return sorted([timer, *others][: max(fitting, 1)], key=lambda event: event.id)

    async def _continue(self, lease: TimerLease, now: datetime) -> None:
        message = continuation_message(lease.timer.reason)
        _log_created(lease.timer)
        if await self._journal.timers.fire(lease, message, ids=self._deps.ids, now=now):
            self._deps.wakeups.turns.now()

    async def _is_ours(self, lease: TimerLease) -> bool:
        """Whether the lease still holds, so that only the counts can have changed."""
        timer = await self._journal.timers.find(lease.timer.id)
        return timer is not None and timer.state is TimerState.CLAIMED


def _choose_prompt(timer: Timer, autonomy: Autonomy) -> PromptVariant | None:
    """The prompt of the request or of its trigger; None if the follow-up is held out.

    By the thread's id: a thread stays in its arm while the weights stay, and a timer that is tried
    twice gets the same prompt. What was requested is not held out.
    """
    own = timer.payload.get("prompt")
    if timer.kind is TimerKind.CONTINUATION:
        own = CONTINUATION_PROMPT
    if own:
        return PromptVariant(name=DEFAULT_VARIANT, text=str(own))
    holdout = autonomy.holdout if timer.is_from_silence else 0
    trigger = timer.trigger_type or ""
    return choose_prompt(autonomy.all_prompts, holdout, trigger, timer.thread_id)


def _size(event: Timer) -> int:
    return estimate_text(json.dumps(event.payload, ensure_ascii=False))


def _initiative(timer: Timer) -> Initiative | None:
    """Its source; None for silence, whose trigger is one of the four."""
    if timer.is_from_silence and timer.trigger_type in TRIGGER_PROMPTS:
        return None
    return _INITIATIVES.get(timer.kind, "program")


def _log_created(timer: Timer) -> None:
    """Log the metadata of a synthetic message, not its text."""
    log_about(
        logger,
        timer,
        "synthetic_message_created",
        "A synthetic message of thread {thread_id} was made ({trigger_type})",
        logging.DEBUG,
        synthetic=True,
        trigger_reason=timer.reason,
    )

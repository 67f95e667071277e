"""`TimerWorker`: sleeps until a timer is due, asks the gates, and acts on what they say."""

import asyncio
import logging
from datetime import datetime
from typing import Final

from structlog.contextvars import bind_contextvars

from segue.agent.config import Autonomy
from segue.core.errors import ConflictError, NotFoundError, SegueError
from segue.core.gates import Outcome
from segue.journal.records import TimerLease, TimerState, TurnKind
from segue.noting import count, note, watched
from segue.runtime.follow_up import message_for
from segue.runtime.gatekeeper import Checked, Gatekeeper, Proposal
from segue.runtime.parts import Parts

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 8
_PAGE: Final = 64
# Two agents that follow up with one user at the same moment make each other ask again.
_TRIES: Final = 10


class TimerWorker:
    """Considers each due timer once, in this process or another."""

    def __init__(self, parts: Parts, gatekeeper: Gatekeeper) -> None:
        self._parts = parts
        self._journal = parts.journal
        self._clock = parts.clock
        self._gatekeeper = gatekeeper
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def step(self) -> datetime | None:
        """Consider all that is due; when to look again."""
        while leases := await self._journal.claim_due_timers(
            self._parts.owner, now=self._clock.now(), lease_for=self._parts.lease_for, limit=_PAGE
        ):
            await asyncio.gather(*map(self._consider, leases))
        return await self._journal.next_due_at()

    async def _consider(self, lease: TimerLease) -> None:
        timer = lease.timer
        names = {
            "thread_id": timer.thread_id,
            "agent_id": timer.agent_id,
            "trigger_type": timer.trigger_type or timer.kind.value,
        }
        # A task of its own: each line that is logged here, by whomever, says whose it is.
        bind_contextvars(**names)
        async with self._slots:
            late = max((self._clock.now() - timer.due_at).total_seconds(), 0)
            count("timer_due", seconds=late)
            with watched("timer", timer_id=timer.id, **names):
                await self._try(lease)

    async def _try(self, lease: TimerLease) -> None:
        timer = lease.timer
        try:
            for _ in range(_TRIES):
                if await self._decide(lease):
                    return
            raise ConflictError("Others were faster each time.")
        except (ConflictError, NotFoundError) as error:
            # Cancelled, taken over or deleted meanwhile: whoever did it has recorded why.
            logger.info("Timer %s was given up: %s", timer.id, error)
        except SegueError as error:
            # The journal is away; the timer is claimed again when its lease is over.
            logger.warning("Timer %s could not be considered: %s", timer.id, error)
        except Exception:
            # It is claimed again when its lease is over; the others are not held up.
            logger.exception("Timer %s could not be considered", timer.id)

    async def _decide(self, lease: TimerLease) -> bool:
        """Act on the gates' word; False if the facts changed while they were asked."""
        timer, now = lease.timer, self._clock.now()
        if timer.kind is TurnKind.CONTINUATION:
            await self._go_on(lease, now)
            return True
        try:
            autonomy = self._parts.agent_of(timer.agent_id).config.autonomy
        except NotFoundError as error:
            await self._suppress(lease, str(error), now)
            count("follow_up_held_back", outcome=TimerState.SUPPRESSED.value)
            return True
        checked = await self._gatekeeper.check(Proposal.of_timer(timer), autonomy.policy, now)
        if checked.is_allowed:
            return await self._fire(lease, autonomy, checked, now)
        record = self._gatekeeper.record(checked)
        decision = checked.decision
        if decision.outcome is Outcome.POSTPONE and decision.until is not None:
            await self._journal.postpone_timer(
                lease, decision.until, decision.reason, now=now, decisions=[record]
            )
        else:
            state = TimerState(decision.timer_state)
            await self._journal.close_timer(
                lease, state, decision.reason, ids=self._parts.ids, now=now, decisions=[record]
            )
        count("follow_up_held_back", outcome=decision.timer_state)
        return True

    async def _fire(
        self, lease: TimerLease, autonomy: Autonomy, checked: Checked, now: datetime
    ) -> bool:
        timer = lease.timer
        said = message_for(timer, autonomy)
        if said is None:
            reason = "Held out: this share of follow-ups is not sent, to see what they change."
            await self._journal.close_timer(
                lease,
                TimerState.SUPPRESSED,
                reason,
                ids=self._parts.ids,
                now=now,
                decisions=[self._gatekeeper.record(checked, held_out=True)],
            )
            count("follow_up_held_back", outcome="held_out")
            return True
        message, variant = said
        try:
            turn = await self._journal.fire_timer(
                lease,
                message,
                ids=self._parts.ids,
                now=now,
                counted=checked.counts,
                decisions=[self._gatekeeper.record(checked, variant=variant)],
            )
        except ConflictError:
            if await self._is_ours(lease):
                return False
            raise
        if turn is not None:
            note(
                logger,
                "follow_up_fired",
                "Follow-up {timer_id} of thread {thread_id} fired ({trigger_type})",
                thread_id=timer.thread_id,
                agent_id=timer.agent_id,
                trigger_type=timer.trigger_type,
                timer_id=timer.id,
                turn_id=turn.id,
                variant=variant,
            )
            self._parts.agendas.turns.at_once()
        return True

    async def _go_on(self, lease: TimerLease, now: datetime) -> None:
        """The user asked for this work: of the gates, only "opted out" and "muted" hold it back."""
        refusal = await self._gatekeeper.refuse_continuation(lease.timer, now)
        if refusal is not None:
            await self._suppress(lease, refusal, now)
            return
        said = message_for(lease.timer, Autonomy())
        assert said is not None  # noqa: S101 - only follow-ups are held out
        if await self._journal.fire_timer(lease, said[0], ids=self._parts.ids, now=now):
            self._parts.agendas.turns.at_once()

    async def _suppress(self, lease: TimerLease, reason: str, now: datetime) -> None:
        await self._journal.close_timer(
            lease, TimerState.SUPPRESSED, reason, ids=self._parts.ids, now=now
        )

    async def _is_ours(self, lease: TimerLease) -> bool:
        """Whether the lease still counts, so that only the counts can have changed."""
        timers = await self._journal.list_timers(lease.timer.thread_id, limit=20)
        found = next((t for t in timers if t.id == lease.timer.id), None)
        return found is not None and found.state is TimerState.CLAIMED

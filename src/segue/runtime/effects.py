"""`EffectRunner`: does what has to be done outside after a commit, at least once.

Each kind of effect has its own slots, and of these each agent its share, so that a receiver that
hangs holds up neither another kind nor another agent. An effect that fails is tried again with
longer pauses, then it is dead: kept for an operator, who may revive it. "Done" is recorded with the
evidence that the handler brings. Kinds that have no handler here are left to other processes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from structlog.contextvars import bind_contextvars

from segue.core.errors import ConflictError, SegueError
from segue.journal.records import Effect, EffectLease
from segue.noting import note, watched
from segue.runtime.parts import Parts
from segue.runtime.webhooks import DeliveryError, next_try

logger = logging.getLogger(__name__)

# Of each kind; they mostly wait for somebody outside.
_SLOTS: Final = 64
# An agent that has so many at work gets no more; so many are taken at a time.
_SHARE: Final = 8
_LEASE: Final = timedelta(minutes=2)

# Does one effect and brings the evidence; `DeliveryError` says whether to try again.
Handler = Callable[[Effect], Awaitable[str]]


class EffectRunner:
    """Hands each effect to the handler of its kind."""

    def __init__(self, parts: Parts, handlers: Mapping[str, Handler]) -> None:
        self._parts = parts
        self._handlers = handlers
        self._at_work: list[EffectLease] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._claiming = asyncio.Lock()

    async def step(self) -> datetime | None:
        """Begin what is due, while there is room; when to look again."""
        async with self._claiming:
            looks = [await self._fill(kind) for kind in self._handlers]
        return min((at for at in looks if at is not None), default=None)

    async def close(self) -> None:
        """Take no more effects, and stop those at work: others take them when the leases end."""
        self._is_closing = True
        async with self._claiming:
            pass  # what is being taken this moment is at work then
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fill(self, kind: str) -> datetime | None:
        parts, journal = self._parts, self._parts.journal
        while True:
            jobs = Counter(lease.agent_id for lease in self._at_work if lease.effect.kind == kind)
            room = _SLOTS - jobs.total()
            if self._is_closing or not room:
                return None  # the end of one wakes us
            busy = [agent for agent, count in jobs.items() if count >= _SHARE]
            now = parts.clock.now()
            next_at = await journal.next_effect_at(kind, now=now, not_of=busy)
            if next_at is None or next_at > now:
                return next_at
            leases = await journal.claim_effects(
                parts.owner,
                kind=kind,
                now=now,
                lease_for=_LEASE,
                limit=min(room, _SHARE),
                not_of=busy,
            )
            if not leases:  # they are in somebody's hands this moment
                return now
            for lease in leases:
                self._start(lease)

    def _start(self, lease: EffectLease) -> None:
        self._at_work.append(lease)
        task = asyncio.create_task(self._work(lease))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, lease: EffectLease) -> None:
        effect = lease.effect
        names = {"thread_id": effect.thread_id, "agent_id": lease.agent_id}
        # A task of its own: each line that is logged here, by whomever, says whose it is.
        bind_contextvars(**names)
        with (
            self._parts.clock.working(),
            watched("effect", effect_id=effect.id, effect_kind=effect.kind, **names),
        ):
            try:
                await self._run(lease)
            except SegueError as error:
                # The journal is away; the effect is taken again when its lease is over.
                logger.warning("Effect %s broke off: %s", effect.id, error)
            except Exception:
                logger.exception("Effect %s broke off", effect.id)
            finally:
                self._at_work.remove(lease)
                self._parts.agendas.effects.at_once()

    async def _run(self, lease: EffectLease) -> None:
        effect = lease.effect
        try:
            # A handler that hangs must not be begun a second time beside itself.
            async with asyncio.timeout(_LEASE.total_seconds()):
                evidence = await self._handlers[effect.kind](effect)
        except DeliveryError as error:
            await self._retry(lease, error)
        except Exception as error:  # any handler; it is tried again
            logger.debug("Effect %s (%s) failed", effect.id, effect.kind, exc_info=error)
            # Only our own texts: another's may quote anything.
            reason = str(error) if isinstance(error, SegueError) else type(error).__name__
            await self._retry(lease, DeliveryError(reason, retryable=True))
        else:
            await self._complete(lease, evidence)

    async def _complete(self, lease: EffectLease, evidence: str) -> None:
        effect = lease.effect
        try:
            await self._parts.journal.complete_effect(lease, evidence)
        except ConflictError as error:
            # Somebody else does it too: receivers know it by its id.
            logger.info("Effect %s took longer than its lease: %s", effect.id, error)
        note(
            logger,
            "effect_done",
            "Effect {effect_id} ({effect_kind}) is done: {evidence}",
            effect_id=effect.id,
            effect_kind=effect.kind,
            thread_id=effect.thread_id,
            evidence=evidence,
        )

    async def _retry(self, lease: EffectLease, error: DeliveryError) -> None:
        effect = lease.effect
        pause = (
            next_try(effect.attempts, retry_after=error.retry_after) if error.retryable else None
        )
        retry_at = None if pause is None else self._parts.clock.now() + pause
        note(
            logger,
            "effect_failed" if pause else "effect_dead",
            "Effect {effect_id} ({effect_kind}) failed ({reason}), {then}",
            logging.WARNING,
            effect_id=effect.id,
            effect_kind=effect.kind,
            thread_id=effect.thread_id,
            reason=str(error),
            then=f"next try in {pause}" if pause else "given up",
        )
        try:
            await self._parts.journal.retry_effect(lease, str(error), retry_at=retry_at)
        except ConflictError as conflict:
            logger.info("Effect %s took longer than its lease: %s", effect.id, conflict)

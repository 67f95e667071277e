"""`EffectRunner`: does what has to be done outside after a commit, at least once.

An effect that fails is tried again with longer pauses, then it is dead: kept for an operator, who
may revive it. "Done" is recorded with the evidence that the handler brings.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from segue.core.errors import ConflictError, SegueError
from segue.journal.records import Effect, EffectLease
from segue.runtime.noting import note
from segue.runtime.parts import Parts
from segue.runtime.webhooks import DeliveryError, next_try

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 8
_LEASE: Final = timedelta(minutes=2)

# Does one effect and brings the evidence; `DeliveryError` says whether to try again.
Handler = Callable[[Effect], Awaitable[str]]


class EffectRunner:
    """Hands each effect to the handler of its kind."""

    def __init__(self, parts: Parts, handlers: Mapping[str, Handler]) -> None:
        self._parts = parts
        self._handlers = handlers

    async def step(self) -> datetime | None:
        """Do all that is due; when to look again."""
        parts = self._parts
        while leases := await parts.journal.claim_effects(
            parts.owner, now=parts.clock.now(), lease_for=_LEASE, limit=_AT_ONCE
        ):
            await asyncio.gather(*map(self._run, leases))
        return await parts.journal.next_effect_at()

    async def _run(self, lease: EffectLease) -> None:
        effect = lease.effect
        try:
            evidence = await self._handle(effect)
        except DeliveryError as error:
            await self._retry(lease, error)
        except Exception as error:  # any handler; it is tried again
            logger.debug("Effect %s (%s) failed", effect.id, effect.kind, exc_info=error)
            # Only our own texts: another's may quote anything.
            reason = str(error) if isinstance(error, SegueError) else type(error).__name__
            await self._retry(lease, DeliveryError(reason, retryable=True))
        else:
            await self._complete(lease, evidence)

    async def _handle(self, effect: Effect) -> str:
        handler = self._handlers.get(effect.kind)
        if handler is None:
            raise DeliveryError(
                f"Nobody here knows effects of kind {effect.kind!r}.", retryable=False
            )
        return await handler(effect)

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

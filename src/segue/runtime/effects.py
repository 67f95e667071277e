"""The effects that deliver an agent's messages elsewhere; `EffectRunner` runs effects of all kinds
after their commit, at least once each.

Each kind of effect has its own slots, and each agent its share of them, so that a receiver that
hangs delays neither another kind nor another agent. A failed effect is retried with growing pauses;
then it is dead, and an operator may revive it. Effects without a handler here are left to other
processes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from structlog.contextvars import bind_contextvars

from segue.core.batch import Batch
from segue.core.messages import spoken_text
from segue.core.metadata import BatchType
from segue.core.snowflake import to_text
from segue.errors import ConflictError, SegueError
from segue.journal.effects import Effect, EffectLease
from segue.journal.records import NewEffect, Turn, TurnKind
from segue.journal.registry import Push
from segue.runtime.delivery import DeliveryError, next_try
from segue.runtime.deps import Deps, log_about, log_failure
from segue.runtime.run import visible_replies
from segue.settings.agents import AgentConfig
from segue.telemetry import span

logger = logging.getLogger(__name__)

WEBHOOK: Final = "webhook"
PUSH: Final = "push"
# By then an open page has marked the message as read, and no other device is notified.
_PUSH_DELAY: Final = timedelta(seconds=5)

# Per kind; effects mostly wait for the network.
_SLOTS: Final = 64
# The most effects of one kind that one agent runs, and that one claim takes.
_SHARE: Final = 8
_LEASE: Final = timedelta(minutes=2)

# Runs one effect and returns the evidence; `DeliveryError` says whether to retry.
Handler = Callable[[Effect], Awaitable[str]]


def webhook_effects(turn: Turn, batch: Batch, config: AgentConfig) -> list[NewEffect]:
    """The webhook delivery of a follow-up or continuation; with `all_replies`, also of replies."""
    if config.webhook is None or batch.type is BatchType.AGENT_TO_AGENT:
        return []
    event, replies = _event(turn, batch), visible_replies(turn, batch)
    if not replies or (event is TurnKind.REPLY and not config.webhook.all_replies):
        return []
    payload = {
        "event": event.value,
        "agent_id": turn.agent_id,
        "user_id": turn.user_id,
        "thread_id": turn.thread_id,
        "turn_id": to_text(turn.id),
        "messages": [{"id": reply.id, "text": spoken_text(reply)} for reply in replies],
    }
    return [NewEffect(WEBHOOK, payload, f"{WEBHOOK}:{to_text(turn.id)}")]


async def push_effects(turn: Turn, batch: Batch, push: Push) -> list[NewEffect]:
    """A notification for each browser of the user, except for replies.

    They name the turn and contain no text, so that retention and deletion need not search them.
    """
    event = _event(turn, batch)
    is_answer = event is TurnKind.REPLY or batch.type is BatchType.AGENT_TO_AGENT
    if is_answer or not visible_replies(turn, batch):
        return []
    name = to_text(turn.id)
    return [
        NewEffect(
            PUSH,
            {"event": event.value, "turn": name, "subscription": to_text(each.id)},
            f"{PUSH}:{name}:{to_text(each.id)}",
            _PUSH_DELAY,
        )
        for each in await push.list_of(turn.user_id)
    ]


def _event(turn: Turn, batch: Batch) -> TurnKind:
    """A continuation of a follow-up is part of the follow-up."""
    spoke_first = batch.type is BatchType.SYSTEM_TRIGGER
    is_follow_up = spoke_first and turn.kind is not TurnKind.REPLY
    return TurnKind.FOLLOW_UP if is_follow_up else turn.kind


class EffectRunner:
    def __init__(self, deps: Deps, handlers: Mapping[str, Handler]) -> None:
        self._deps = deps
        self._handlers = handlers
        self._running: list[EffectLease] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._claiming = asyncio.Lock()

    async def step(self) -> datetime | None:
        """Start due effects while slots are free; return the next due time."""
        async with self._claiming:
            looks = [await self._fill(kind) for kind in self._handlers]
        return min((at for at in looks if at is not None), default=None)

    async def close(self) -> None:
        """Claim no more effects and stop running ones; expired leases are claimed again."""
        self._is_closing = True
        async with self._claiming:
            pass  # effects that are being claimed now are started then
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fill(self, kind: str) -> datetime | None:
        deps, journal = self._deps, self._deps.journal
        while True:
            jobs = Counter(lease.agent_id for lease in self._running if lease.effect.kind == kind)
            room = _SLOTS - jobs.total()
            if self._is_closing or not room:
                return None  # the end of an effect wakes this worker
            busy = [agent for agent, count in jobs.items() if count >= _SHARE]
            now = deps.clock.now()
            next_at = await journal.effects.next_at(kind, now=now, not_of=busy)
            if next_at is None or next_at > now:
                return next_at
            leases = await journal.effects.claim(
                deps.owner,
                kind=kind,
                now=now,
                lease_for=_LEASE,
                limit=min(room, _SHARE),
                not_of=busy,
            )
            if not leases:  # they are locked by another process
                return now
            for lease in leases:
                self._start(lease)

    def _start(self, lease: EffectLease) -> None:
        self._running.append(lease)
        task = asyncio.create_task(self._work(lease))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, lease: EffectLease) -> None:
        effect = lease.effect
        names = {"thread_id": effect.thread_id, "agent_id": lease.agent_id}
        # Runs in a task of its own, so these fields are on every line that is logged here.
        bind_contextvars(**names)
        with (
            self._deps.clock.working(),
            span("effect", effect_id=effect.id, effect_kind=effect.kind, **names),
        ):
            try:
                await self._run(lease)
            except Exception as error:  # noqa: BLE001 - it is claimed again when its lease expires
                log_failure(logger, f"Effect {effect.id} broke off", error)
            finally:
                self._running.remove(lease)
                self._deps.wakeups.effects.now()

    async def _run(self, lease: EffectLease) -> None:
        effect = lease.effect
        try:
            # A handler that hangs must end before its effect is claimed again.
            async with asyncio.timeout(_LEASE.total_seconds()):
                evidence = await self._handlers[effect.kind](effect)
        except DeliveryError as error:
            step = self._retry(lease, error)
        except Exception as error:  # of any handler; it is retried
            logger.debug("Effect %s (%s) failed", effect.id, effect.kind, exc_info=error)
            # Only Segue's own error texts are stored: others may quote users.
            reason = str(error) if isinstance(error, SegueError) else type(error).__name__
            step = self._retry(lease, DeliveryError(reason, retryable=True))
        else:
            step = self._complete(lease, evidence)
        try:
            await step
        except ConflictError as error:
            # Another process runs it too; receivers compare its id.
            logger.info("Effect %s took longer than its lease: %s", effect.id, error)

    async def _complete(self, lease: EffectLease, evidence: str) -> None:
        await self._deps.journal.effects.complete(lease, evidence)
        text = "Effect {effect_id} ({effect_kind}) is done: {evidence}"
        log_about(logger, lease.effect, "effect_done", text, evidence=evidence)

    async def _retry(self, lease: EffectLease, error: DeliveryError) -> None:
        attempts, pause = lease.effect.attempts, None
        if error.retryable:
            pause = next_try(attempts, retry_after=error.retry_after)
        log_about(
            logger,
            lease.effect,
            "effect_failed" if pause else "effect_dead",
            "Effect {effect_id} ({effect_kind}) failed ({reason}), {then}",
            logging.WARNING,
            reason=str(error),
            then=f"next try in {pause}" if pause else "given up",
        )
        retry_at = None if pause is None else self._deps.clock.now() + pause
        await self._deps.journal.effects.retry(lease, str(error), retry_at=retry_at)

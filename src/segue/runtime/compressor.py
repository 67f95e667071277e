"""`Compressor`: keeps the model's window of a long thread within its limits.

The end of a turn whose window has grown too large queues an effect. Off the user's path, whole
batches are then archived together with the summary that stands for them. If the summary fails,
nothing changes. History is not touched.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Protocol
from weakref import WeakValueDictionary

from segue.core.batch import Batch
from segue.core.compression import Strategy, cut_at_sentence, write_transcript
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.tokens import estimate_text
from segue.errors import UsageError
from segue.journal.journal import Journal
from segue.journal.records import (
    Effect,
    EffectState,
    NewEffect,
    Summary,
    Thread,
    Turn,
    Window,
)
from segue.runtime.clock import Clock
from segue.runtime.delivery import DeliveryError
from segue.runtime.eviction import Backlog, WindowLimits, choose_evicted, summary_text
from segue.runtime.model_failures import ModelFailure
from segue.runtime.output import TurnOutput
from segue.settings.agents import AgentConfig
from segue.telemetry import log_event

logger = logging.getLogger(__name__)

COMPRESS: Final = "compress"

# The limits of one effect; the end of the next turn queues another. With the longest time of one
# summary, 45 s stay below an effect's lease.
_TIME: Final = timedelta(seconds=45)
_SUMMARIES: Final = 4
_WAITING: Final = frozenset({EffectState.PENDING, EffectState.CLAIMED})


class Summariser(Protocol):
    """Updates a summary; `ModelFailure` if it cannot."""

    async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str: ...


@dataclass(frozen=True, slots=True)
class Eviction:
    """Batches that are to leave, oldest first, the current summary, and the window's tokens."""

    thread_id: str
    leaving: list[Batch]
    summary: Summary | None
    tokens: int


@dataclass(frozen=True, slots=True)
class PreviewRound:
    """Batches that would leave together, oldest first.

    `is_certain`: however short the summaries before them turn out.
    """

    leaving: list[Batch]
    is_certain: bool


def compresses(config: AgentConfig) -> bool:
    """Whether an agent's threads are compressed automatically."""
    wanted = config.compression
    # A custom graph has no model that could write summaries.
    has_model = config.graph is None or wanted.model is not None
    return wanted.enabled and (wanted.strategy is not Strategy.SUMMARISE or has_model)


def compress_effects(turn: Turn, output: TurnOutput, config: AgentConfig) -> list[NewEffect]:
    """The effect that compresses a thread after a turn, if its window has grown too large."""
    if not compresses(config):
        return []
    batches = [output.batch, *output.run.history]
    if _used(batches, output.run.summary or "") <= WindowLimits.of(config).trigger:
        return []
    name = to_text(turn.id)
    return [NewEffect(COMPRESS, {"turn": name}, f"{COMPRESS}:{name}")]


def _ignore(batch: Batch) -> None:
    del batch


class Compressor:
    """Archives batches of threads that have grown too long."""

    def __init__(
        self,
        journal: Journal,
        ids: SnowflakeSource,
        clock: Clock,
        config_of: Callable[[str], AgentConfig],
        summariser_of: Callable[[str], Summariser | None],
    ) -> None:
        self._journal = journal
        self._ids = ids
        self._clock = clock
        self._config_of = config_of
        self._summariser_of = summariser_of
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def compress(self, effect: Effect) -> str:
        """Compress a thread if it is still too long: the handler of `compress` effects.

        `ConflictError`, and a retry, if another process saves a summary at the same time.
        """
        if await self._is_queued_again(effect):
            return "A later turn asked for it again."
        thread = await self._journal.threads.get(effect.thread_id)
        if not compresses(self._config_of(thread.agent_id)):
            return "Compression is switched off."
        try:
            done = await self.shrink(thread)
        except ModelFailure as error:
            if error.retryable:
                pause = error.retry_after
                after = None if pause is None else timedelta(seconds=pause)
                raise DeliveryError(str(error), retryable=True, retry_after=after) from error
            # The end of the next turn queues another effect; an operator need not revive this one.
            logger.warning("Nothing of thread %s was compressed: %s", thread.id, error)
            return f"Nothing left. {error}"
        return f"{sum(len(s.batches) for s in done)} batches left."

    async def shrink(
        self, thread: Thread, *, at_once: bool = False, tell: Callable[[Batch], object] = _ignore
    ) -> list[Summary]:
        """Compress a thread down to its target; return the stored summaries, oldest first.

        Unless `at_once`, only if its window is above the trigger. A longer backlog is left to the
        next call. `tell` gets each evicted batch: they are too many to return.
        """
        config = self._config_of(thread.agent_id)
        until, done, backlog = self._clock.now() + _TIME, list[Summary](), Backlog()
        most = _SUMMARIES if config.compression.strategy is Strategy.SUMMARISE else None
        lock = self._locks.setdefault(thread.id, asyncio.Lock())
        async with lock:
            while self._clock.now() < until and (most is None or len(done) < most):
                found = await self.find_next(thread, backlog, at_once=at_once or bool(done))
                if found is None:
                    break
                done.append(await self._evict(found, config))
                backlog.remove(found.leaving)
                for batch in found.leaving:
                    tell(batch)
        return done

    async def find_next(
        self, thread: Thread, backlog: Backlog, *, at_once: bool = False
    ) -> Eviction | None:
        """The next eviction; None if the window is within its limits, or nothing may leave.

        Each batch of the backlog is read once: reading from the beginning would scan all archived
        batches again.
        """
        config = self._config_of(thread.agent_id)
        limits, window = WindowLimits.of(config), await self._window(thread, config)
        used = _used(window.batches, summary_text(window.summary))
        if used <= (limits.target if at_once else limits.trigger):
            return None
        leaving = await choose_evicted(
            self._journal, thread.id, window, backlog, config, self._clock.now()
        )
        return Eviction(thread.id, leaving, window.summary, used) if leaving else None

    async def preview(self, thread: Thread) -> AsyncIterator[PreviewRound]:
        """What `shrink(at_once=True)` would evict, round by round, without a model call.

        Each summary counts with its longest length; shorter ones may end it sooner.
        """
        config = self._config_of(thread.agent_id)
        limits, window = WindowLimits.of(config), await self._window(thread, config)
        is_summarised = config.compression.strategy is Strategy.SUMMARISE
        shortest = longest = estimate_text(summary_text(window.summary))
        backlog = Backlog()
        while (used := _used(window.batches, "")) + longest > limits.target:
            leaving = await choose_evicted(
                self._journal, thread.id, window, backlog, config, self._clock.now()
            )
            if not leaving:
                return
            yield PreviewRound(leaving, is_certain=used + shortest > limits.target)
            if is_summarised and write_transcript(leaving, limits.reading):
                shortest, longest = 0, limits.summary
            backlog.remove(leaving)
            gone = {batch.id for batch in leaving}
            left = [batch for batch in window.batches if batch.id not in gone]
            window = replace(window, batches=left)

    async def count_tokens(self, thread: Thread) -> int:
        """The tokens of a thread's window now."""
        window = await self._window(thread, self._config_of(thread.agent_id))
        return _used(window.batches, summary_text(window.summary))

    async def _window(self, thread: Thread, config: AgentConfig) -> Window:
        return await self._journal.messages.window(thread.id, max_tokens=config.context_tokens)

    async def _evict(self, found: Eviction, config: AgentConfig) -> Summary:
        text = summary_text(found.summary)
        if config.compression.strategy is Strategy.SUMMARISE:
            text = await self._summarise(found, config)
        summary = await self._journal.summaries.save(
            found.thread_id,
            text,
            [batch.id for batch in found.leaving],
            ids=self._ids,
            now=self._clock.now(),
            # A text made from another summary would lose what the newest one says.
            follows=found.summary.id if found.summary else 0,
        )
        log_event(
            logger,
            "thread_compressed",
            "Thread {thread_id}: {batches} batches left the window ({strategy})",
            thread_id=found.thread_id,
            agent_id=config.id,
            batches=len(summary.batches),
            strategy=config.compression.strategy.value,
            summary_id=summary.id,
            summary_tokens=estimate_text(text),
        )
        return summary

    async def _summarise(self, found: Eviction, config: AgentConfig) -> str:
        limits, summariser = WindowLimits.of(config), self._summariser_of(config.id)
        earlier, retold = (
            summary_text(found.summary),
            write_transcript(found.leaving, limits.reading),
        )
        if not retold:  # the batches hold no text
            return earlier
        if summariser is None:
            raise UsageError(f"Agent {config.id!r} has no model for summaries.")
        text = await summariser.summarise(earlier, retold, limits.summary)
        return cut_at_sentence(text, limits.summary)

    async def _is_queued_again(self, effect: Effect) -> bool:
        """Whether a later effect waits to do the same: of many that failed, one goes on."""
        return any(
            other.kind == COMPRESS and other.id > effect.id and other.state in _WAITING
            for other in await self._journal.effects.list_of(effect.thread_id)
        )


def _used(batches: list[Batch], summary: str) -> int:
    """The tokens of a window: its complete batches and the summary."""
    return estimate_text(summary) + sum(b.tokens for b in batches if b.is_complete)

"""`Compressor`: keeps the model's window of a long thread within its limits.

The end of a turn whose window has grown too large queues an effect. Off the user's path, whole
batches are then archived together with the summary that stands for them: those older than the
window first, then the least needed. If the summary fails, nothing changes. History is not touched.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, Self
from weakref import WeakValueDictionary

from segue.core.batch import Batch
from segue.core.compression import (
    CompressionTarget,
    Strategy,
    choose_batches,
    cut_at_sentence,
    first_fitting,
    write_transcript,
)
from segue.core.context import build_context
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.tokens import estimate_text
from segue.errors import UsageError
from segue.journal.effects import Effect
from segue.journal.journal import Journal
from segue.journal.records import EffectState, NewEffect, Summary, Thread, Turn
from segue.journal.summaries import Window
from segue.runtime.clock import Clock
from segue.runtime.delivery import DeliveryError
from segue.runtime.model_failures import ModelFailure
from segue.runtime.run import TurnOutput
from segue.settings.agents import AgentConfig
from segue.telemetry import log_event

logger = logging.getLogger(__name__)

COMPRESS: Final = "compress"

# The limits of one effect; the end of the next turn queues another. With the longest time of one
# summary, 45 s stay below an effect's lease.
_TIME: Final = timedelta(seconds=45)
_SUMMARIES: Final = 4
# Batches of a backlog that are read at a time.
_PAGE: Final = 64
_INSTRUCTION_TOKENS: Final = 300
_LEAST_READING: Final = 200
_LEAST_SUMMARY: Final = 16


class Summariser(Protocol):
    """Updates a summary; `ModelFailure` if it cannot."""

    async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str: ...


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """An agent's window in tokens: compression starts above `trigger` and ends at `target`.

    `summary` is the longest summary, `reading` how much conversation one summary is made of.
    """

    trigger: int
    target: int
    summary: int
    reading: int

    @classmethod
    def of(cls, config: AgentConfig) -> Self:
        wanted, size = config.compression, config.context_tokens
        room = size - build_context([], None, size).reserved  # the reply's tokens stay free
        trigger = min(int(size * wanted.trigger_share), room)
        target = min(int(size * wanted.target_share), trigger)
        summary = max(min(wanted.summary_tokens, target // 2), _LEAST_SUMMARY)
        reading = max(room - summary - _INSTRUCTION_TOKENS, _LEAST_READING)
        return cls(trigger, target, summary, reading)


@dataclass(frozen=True, slots=True)
class PreviewRound:
    """Batches that would leave together, oldest first; `is_certain`: regardless of the lengths of
    the summaries.
    """

    leaving: list[Batch]
    is_certain: bool


def compresses(config: AgentConfig) -> bool:
    """Whether an agent's threads are compressed automatically."""
    wanted = config.compression
    # A custom graph has no model that could write summaries.
    has_model = config.graph is None or wanted.model is not None
    return wanted.enabled and (wanted.strategy is not Strategy.SUMMARISE or has_model)


def compress_effects(output: TurnOutput, config: AgentConfig) -> list[NewEffect]:
    """The effect that compresses a thread after a turn, if its window has grown too large."""
    if not compresses(config):
        return []
    batches = [output.batch, *output.run.history]
    if _used(batches, output.run.summary or "") <= WindowLimits.of(config).trigger:
        return []
    name = to_text(output.turn.id)
    return [NewEffect(COMPRESS, {"turn": name}, f"{COMPRESS}:{name}")]


@dataclass(frozen=True)
class Compressor:
    journal: Journal
    ids: SnowflakeSource
    clock: Clock
    config_of: Callable[[str], AgentConfig]
    summariser_of: Callable[[str], Summariser | None]
    # By thread.
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def compress(self, effect: Effect) -> str:
        """Compress a thread if it is still too long: the handler of `compress` effects.

        `ConflictError`, and a retry, if another process saves a summary at the same time.
        """
        if await self._is_queued_again(effect):
            return "A later turn asked for it again."
        thread = await self.journal.threads.get(effect.thread_id)
        if not compresses(self.config_of(thread.agent_id)):
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
        self,
        thread: Thread,
        *,
        at_once: bool = False,
        tell: Callable[[Batch], object] = lambda _: None,
    ) -> list[Summary]:
        """Compress a thread down to its target; return the stored summaries, oldest first.

        Unless `at_once`, only if its window is above the trigger. A longer backlog is left to the
        next call. `tell` gets each evicted batch: they are too many to return.
        """
        config = self.config_of(thread.agent_id)
        until, done = self.clock.now() + _TIME, list[Summary]()
        limits, backlog = WindowLimits.of(config), Backlog(self.journal, thread.id, config)
        most = _SUMMARIES if config.compression.strategy is Strategy.SUMMARISE else None
        async with self._locks.setdefault(thread.id, asyncio.Lock()):
            while self.clock.now() < until and (most is None or len(done) < most):
                window = await self._window(thread)
                limit = limits.target if at_once or done else limits.trigger
                if _used(window.batches, _text(window.summary)) <= limit:
                    break
                leaving = await backlog.choose(window, self.clock.now())
                if not leaving:
                    break
                done.append(await self._evict(leaving, window.summary, thread.id, config))
                backlog.remove(leaving)
                for batch in leaving:
                    tell(batch)
        return done

    async def preview(self, thread: Thread) -> AsyncIterator[PreviewRound]:
        """What `shrink(at_once=True)` would evict, round by round, without a model call.

        Each summary counts with its longest length; shorter ones may end it sooner.
        """
        config, window = self.config_of(thread.agent_id), await self._window(thread)
        limits, backlog = WindowLimits.of(config), Backlog(self.journal, thread.id, config)
        is_summarised = config.compression.strategy is Strategy.SUMMARISE
        shortest = longest = estimate_text(_text(window.summary))
        while (used := _used(window.batches, "")) + longest > limits.target:
            leaving = await backlog.choose(window, self.clock.now())
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
        window = await self._window(thread)
        return _used(window.batches, _text(window.summary))

    async def _window(self, thread: Thread) -> Window:
        size = self.config_of(thread.agent_id).context_tokens
        return await self.journal.messages.window(thread.id, max_tokens=size)

    async def _evict(
        self, leaving: list[Batch], before: Summary | None, thread_id: str, config: AgentConfig
    ) -> Summary:
        text = _text(before)
        if config.compression.strategy is Strategy.SUMMARISE:
            text = await self._summarise(leaving, text, config)
        summary = await self.journal.summaries.save(
            thread_id,
            text,
            [batch.id for batch in leaving],
            ids=self.ids,
            now=self.clock.now(),
            # A text made from an older summary would lose the content of the newest one.
            follows=before.id if before else 0,
        )
        log_event(
            logger,
            "thread_compressed",
            "Thread {thread_id}: {batches} batches left the window ({strategy})",
            thread_id=thread_id,
            agent_id=config.id,
            batches=len(summary.batches),
            strategy=config.compression.strategy.value,
            summary_id=summary.id,
            summary_tokens=estimate_text(text),
        )
        return summary

    async def _summarise(self, leaving: list[Batch], earlier: str, config: AgentConfig) -> str:
        limits, summariser = WindowLimits.of(config), self.summariser_of(config.id)
        retold = write_transcript(leaving, limits.reading)
        if not retold:  # the batches hold no text
            return earlier
        if summariser is None:
            raise UsageError(f"Agent {config.id!r} has no model for summaries.")
        text = await summariser.summarise(earlier, retold, limits.summary)
        return cut_at_sentence(text, limits.summary)

    async def _is_queued_again(self, effect: Effect) -> bool:
        """Whether a later effect will do the same: of several that failed, one continues."""
        waiting = (EffectState.PENDING, EffectState.CLAIMED)
        return any(
            other.kind == COMPRESS and other.id > effect.id and other.state in waiting
            for other in await self.journal.effects.list_of(effect.thread_id)
        )


class Backlog:
    """The batches of a thread that are older than its window, and which batches leave next.

    Each is read once: reading from the beginning would scan all archived batches again.
    """

    def __init__(self, journal: Journal, thread_id: str, config: AgentConfig) -> None:
        self._journal = journal
        self._thread_id = thread_id
        self._wanted = config.compression
        self._limits = WindowLimits.of(config)
        # Read and not yet evicted.
        self.ahead: list[Batch] = []
        # The last batch that was read, and the thread's newest turn at that time.
        self._after = 0
        self._newest_turn = 0
        # The batches ahead reached the byte limit of one read.
        self._is_heavy = False

    def remove(self, evicted: list[Batch]) -> None:
        gone = {batch.id for batch in evicted}
        self.ahead = [batch for batch in self.ahead if batch.id not in gone]
        self._after = max(self._after, evicted[-1].id)

    async def choose(self, window: Window, now: datetime) -> list[Batch]:
        """The batches that leave a window together, oldest first."""
        turns = await self._journal.turns.list_of(self._thread_id)
        self._refresh(turns)
        # The oldest batch with an unfinished turn.
        current = min((turn.batch for turn in turns if turn.is_live), default=None)
        leaving = await self._older_than(window, current)
        leaving = leaving or await self._least_needed(window, current, now)
        if self._wanted.strategy is Strategy.SUMMARISE:
            leaving = first_fitting(leaving, self._limits.reading)
        return leaving

    def _refresh(self, turns: list[Turn]) -> None:
        """Read the batches ahead again if a turn has changed one of them since."""
        touched = {turn.batch for turn in turns if turn.id > self._newest_turn}
        if any(batch.id in touched for batch in self.ahead):
            self._after, self.ahead = self.ahead[0].id - 1, []
        if not self.ahead:
            self._newest_turn = max((turn.id for turn in turns), default=0)

    async def _older_than(self, window: Window, current: int | None) -> list[Batch]:
        """The oldest complete batches before the window, at most a page of them.

        They leave first: once newer batches are archived, the window would reach back to them.
        """
        oldest = min((batch.id for batch in window.batches), default=0)
        end = oldest if current is None else min(oldest, current)
        while not self.ahead or not (self._is_heavy or len(self.ahead) >= _PAGE):
            ids = [batch for batch in await self._list(_PAGE) if batch < end]
            if not ids:
                break
            # Up to the byte limit of one read, and without damaged batches.
            read = await self._journal.messages.load_batches(self._thread_id, ids)
            self.ahead += [batch for batch in read if batch.is_complete]
            self._after = read[-1].id if read else ids[-1]
            self._is_heavy = self._after < ids[-1]
        found = [batch for batch in self.ahead if batch.id < end]
        # `keep` may be more than the window holds: then some of the backlog stay.
        kept = self._wanted.keep - sum(batch.is_complete for batch in window.batches)
        if kept > 0:
            kept -= sum(batch < oldest for batch in await self._list(kept))
        return found[: min(max(len(found) - max(kept, 0), 0), _PAGE)]

    async def _list(self, limit: int) -> list[int]:
        """The next live batches that are not read yet."""
        return await self._journal.messages.list_live_batches(
            self._thread_id, after=self._after, limit=limit
        )

    async def _least_needed(
        self, window: Window, current: int | None, now: datetime
    ) -> list[Batch]:
        wanted, for_summary = self._wanted, self._limits.summary
        if wanted.strategy is not Strategy.SUMMARISE:
            for_summary = estimate_text(_text(window.summary))
        room = self._limits.target - for_summary
        target = CompressionTarget(wanted.strategy, room, wanted.keep, wanted.half_life)
        # In a thread: ranking a large window takes a while.
        chosen = await asyncio.to_thread(
            choose_batches, window.batches, target, now=now, current=current
        )
        return chosen.leaving


def _used(batches: list[Batch], summary: str) -> int:
    """The tokens of a window: its complete batches and the summary."""
    return estimate_text(summary) + sum(b.tokens for b in batches if b.is_complete)


def _text(summary: Summary | None) -> str:
    return summary.text if summary else ""

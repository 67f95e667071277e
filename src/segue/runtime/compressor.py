"""`Compressor`: keeps what the model is told of a long thread within its window.

At the end of a turn whose window has grown beyond a share of the agent's `context_tokens`, an
effect is queued. Off the user's path, whole batches are then archived, together with the summary
that stands for them. A summary that fails leaves everything as it was. History is not touched.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Protocol, Self
from weakref import WeakValueDictionary

from segue.agent.config import AgentConfig
from segue.agent.model_errors import ModelFailure
from segue.core.batch import Batch
from segue.core.compress import Aim, Strategy, choose_batches
from segue.core.context import build_context
from segue.core.errors import UsageError
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.tokens import estimate_text
from segue.core.transcript import cut_at_sentence, first_fitting, retell
from segue.journal.ports import Journal
from segue.journal.records import (
    Effect,
    EffectState,
    NewEffect,
    Summary,
    Thread,
    Turn,
    TurnState,
    Window,
)
from segue.noting import note
from segue.runtime.clock import Clock
from segue.runtime.processor import Conversed
from segue.runtime.webhooks import DeliveryError

logger = logging.getLogger(__name__)

COMPRESS: Final = "compress"

# So much is done for one effect; the end of the next turn asks for the rest. With the time that one
# summary takes at most, it is less than an effect may take.
_TIME: Final = timedelta(seconds=45)
_SUMMARIES: Final = 4
# Of batches that no window reaches, so many are read at a time.
_PAGE: Final = 64
# What the instructions for a summary cost.
_INSTRUCTIONS: Final = 300
_LEAST_READING: Final = 200
_LEAST_SUMMARY: Final = 16
_WAITING: Final = frozenset({EffectState.PENDING, EffectState.CLAIMED})
_LIVE: Final = frozenset({TurnState.QUEUED, TurnState.RUNNING})


class Summariser(Protocol):
    """Brings a summary up to date; `ModelFailure` if it cannot."""

    async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str: ...


@dataclass(frozen=True, slots=True)
class Measures:
    """An agent's window in tokens: when it is too full, what may stay, and for the summary.

    `reading` is how much of a conversation one summary is made of.
    """

    trigger: int
    target: int
    summary: int
    reading: int

    @classmethod
    def of(cls, config: AgentConfig) -> Self:
        wanted, size = config.compression, config.context_tokens
        # What is kept free for the answer is not there to be filled.
        room = size - build_context([], None, size).reserved
        trigger = min(int(size * wanted.trigger_share), room)
        target = min(int(size * wanted.target_share), trigger)
        summary = max(min(wanted.summary_tokens, target // 2), _LEAST_SUMMARY)
        return cls(trigger, target, summary, max(room - summary - _INSTRUCTIONS, _LEAST_READING))


@dataclass(frozen=True, slots=True)
class Proposal:
    """Batches that are to leave, oldest first, the summary before, and what the window costs."""

    thread_id: str
    leaving: list[Batch]
    summary: Summary | None
    tokens: int

    @property
    def earlier(self) -> str:
        """The words of the summary before."""
        return _words_of(self.summary)


@dataclass(frozen=True, slots=True)
class Round:
    """Batches that would leave together, oldest first.

    `is_certain`: however short the summaries are that would be made before.
    """

    leaving: list[Batch]
    is_certain: bool


@dataclass(slots=True)
class Backlog:
    """Batches that no window reaches any more, on the way through them.

    `after` is the last one that was read, `ahead` those that were read and have not left yet, and
    `newest_turn` the thread's newest turn at that time.
    """

    after: int = 0
    ahead: list[Batch] = field(default_factory=list)
    newest_turn: int = 0

    def let_go(self, leaving: list[Batch]) -> None:
        gone = {batch.id for batch in leaving}
        self.ahead = [batch for batch in self.ahead if batch.id not in gone]
        self.after = max(self.after, leaving[-1].id)

    def doubt(self, turns: list[Turn]) -> None:
        """Read again what is ahead if a turn has gone on with one of them since."""
        touched = {turn.batch for turn in turns if turn.id > self.newest_turn}
        if any(batch.id in touched for batch in self.ahead):
            self.after, self.ahead = self.ahead[0].id - 1, []
        if not self.ahead:
            self.newest_turn = max((turn.id for turn in turns), default=0)


def compresses(config: AgentConfig) -> bool:
    """Whether anything is ever compressed for an agent by itself."""
    wanted = config.compression
    # A graph of one's own has no model that could be asked.
    has_model = config.graph is None or wanted.model is not None
    return wanted.enabled and (wanted.strategy is not Strategy.SUMMARISE or has_model)


def later_compression(turn: Turn, said: Conversed, config: AgentConfig) -> list[NewEffect]:
    """The wish to compress a thread after a turn, if its window has grown too full."""
    if not compresses(config):
        return []
    batches = [said.batch, *said.run.history]
    if _used(batches, said.run.summary or "") <= Measures.of(config).trigger:
        return []
    name = to_text(turn.id)
    return [NewEffect(COMPRESS, {"turn": name}, f"{COMPRESS}:{name}")]


def _nobody(batch: Batch) -> None:
    """Nobody is told."""


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

        A thread that somebody else writes a summary for at the same time is a `ConflictError`, and
        tried again later.
        """
        if await self._is_asked_again(effect):
            return "A later turn asked for it again."
        thread = await self._journal.get_thread(effect.thread_id)
        if not compresses(self._config_of(thread.agent_id)):
            return "Compression is switched off."
        try:
            done = await self.shrink(thread)
        except ModelFailure as error:
            if error.retryable:
                pause = error.retry_after
                after = None if pause is None else timedelta(seconds=pause)
                raise DeliveryError(str(error), retryable=True, retry_after=after) from error
            # The end of the next turn asks again; nobody has to revive anything.
            logger.warning("Nothing of thread %s was compressed: %s", thread.id, error)
            return f"Nothing left. {error}"
        return f"{sum(len(s.batches) for s in done)} batches left."

    async def shrink(
        self, thread: Thread, *, at_once: bool = False, tell: Callable[[Batch], object] = _nobody
    ) -> list[Summary]:
        """Compress a thread down to its target, and say what was stored, oldest first.

        Only if its window is beyond the trigger, unless it is to be done at once. A backlog that
        takes more than a few summaries is left to the next time. `tell` is given each batch that
        has left; they are many, and nobody else keeps them.
        """
        config = self._config_of(thread.agent_id)
        until, done, backlog = self._clock.now() + _TIME, list[Summary](), Backlog()
        most = _SUMMARIES if config.compression.strategy is Strategy.SUMMARISE else None
        lock = self._locks.setdefault(thread.id, asyncio.Lock())
        async with lock:
            while self._clock.now() < until and (most is None or len(done) < most):
                found = await self.propose(thread, backlog, at_once=at_once or bool(done))
                if found is None:
                    break
                done.append(await self._carry_out(found, config))
                backlog.let_go(found.leaving)
                for batch in found.leaving:
                    tell(batch)
        return done

    async def propose(
        self, thread: Thread, backlog: Backlog, *, at_once: bool = False
    ) -> Proposal | None:
        """What would leave next; None if the window is within its bounds, or nothing may leave.

        Each batch of the backlog is read once: a database may walk over what has left each time it
        is asked from the beginning.
        """
        config = self._config_of(thread.agent_id)
        measures = Measures.of(config)
        window = await self._journal.window(thread.id, max_tokens=config.context_tokens)
        used = _used(window.batches, _words_of(window.summary))
        if used <= (measures.target if at_once else measures.trigger):
            return None
        leaving = await self._next(thread, window, backlog)
        return Proposal(thread.id, leaving, window.summary, used) if leaving else None

    async def foresee(self, thread: Thread) -> AsyncIterator[Round]:
        """What would leave at once, round by round; nobody is asked, and nothing is stored.

        Each summary is taken to be as long as it may be. A shorter one may end it sooner.
        """
        config = self._config_of(thread.agent_id)
        measures = Measures.of(config)
        window = await self._journal.window(thread.id, max_tokens=config.context_tokens)
        is_summed_up = config.compression.strategy is Strategy.SUMMARISE
        shortest = longest = estimate_text(_words_of(window.summary))
        backlog = Backlog()
        while (said := _used(window.batches, "")) + longest > measures.target:
            leaving = await self._next(thread, window, backlog)
            if not leaving:
                return
            yield Round(leaving, is_certain=said + shortest > measures.target)
            if is_summed_up and retell(leaving, measures.reading):
                shortest, longest = 0, measures.summary
            backlog.let_go(leaving)
            gone = {batch.id for batch in leaving}
            left = [batch for batch in window.batches if batch.id not in gone]
            window = replace(window, batches=left)

    async def used(self, thread: Thread) -> int:
        """What the window of a thread costs now."""
        config = self._config_of(thread.agent_id)
        window = await self._journal.window(thread.id, max_tokens=config.context_tokens)
        return _used(window.batches, _words_of(window.summary))

    async def _next(self, thread: Thread, window: Window, backlog: Backlog) -> list[Batch]:
        """The batches that leave a window together."""
        config = self._config_of(thread.agent_id)
        turns = await self._journal.list_turns(thread.id)
        backlog.doubt(turns)
        # The oldest batch that somebody works on or will.
        current = min((turn.batch for turn in turns if turn.state in _LIVE), default=None)
        leaving = await self._out_of_reach(thread.id, window, current, backlog)
        leaving = leaving or await self._least_needed(window, config, current)
        if config.compression.strategy is Strategy.SUMMARISE:
            leaving = first_fitting(leaving, Measures.of(config).reading)
        return leaving

    async def _carry_out(self, found: Proposal, config: AgentConfig) -> Summary:
        text = found.earlier
        if config.compression.strategy is Strategy.SUMMARISE:
            text = await self._words(found, config)
        summary = await self._journal.save_summary(
            found.thread_id,
            text,
            [batch.id for batch in found.leaving],
            ids=self._ids,
            now=self._clock.now(),
            # Words that were made from another summary would lose what the newest one says.
            follows=found.summary.id if found.summary else 0,
        )
        note(
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

    async def _words(self, found: Proposal, config: AgentConfig) -> str:
        measures, summariser = Measures.of(config), self._summariser_of(config.id)
        retold = retell(found.leaving, measures.reading)
        if not retold:  # nobody said anything
            return found.earlier
        if summariser is None:
            raise UsageError(f"Agent {config.id!r} has nobody to ask for summaries.")
        said = await summariser.summarise(found.earlier, retold, measures.summary)
        return cut_at_sentence(said, measures.summary)

    async def _least_needed(
        self, window: Window, config: AgentConfig, current: int | None
    ) -> list[Batch]:
        measures, wanted = Measures.of(config), config.compression
        if wanted.strategy is Strategy.SUMMARISE:
            for_summary = measures.summary
        else:
            for_summary = estimate_text(_words_of(window.summary))
        aim = Aim(wanted.strategy, measures.target - for_summary, wanted.keep, wanted.half_life)
        now = self._clock.now()
        # To weigh a large window takes a while, and others go on meanwhile.
        chosen = await asyncio.to_thread(
            choose_batches, window.batches, aim, now=now, current=current
        )
        return chosen.leaving

    async def _out_of_reach(
        self, thread_id: str, window: Window, current: int | None, backlog: Backlog
    ) -> list[Batch]:
        """The oldest complete batches that no window reaches any more; some, if there are many.

        They leave first: once newer ones are archived, the window would reach back to them.
        """
        journal = self._journal
        end = min((batch.id for batch in window.batches), default=0)
        end = end if current is None else min(end, current)
        # As many as if nothing had been read before: the rounds are the same whoever begins where.
        while len(backlog.ahead) < _PAGE:
            page = await journal.list_live_batches(thread_id, after=backlog.after, limit=_PAGE)
            ids = [batch for batch in page if batch < end]
            if not ids:
                break
            read = await journal.load_batches(thread_id, ids)
            backlog.ahead += [batch for batch in read if batch.is_complete]
            backlog.after = ids[-1]
        return [batch for batch in backlog.ahead if batch.id < end][:_PAGE]

    async def _is_asked_again(self, effect: Effect) -> bool:
        """Whether a later effect waits to do the same: of many that failed, one goes on."""
        return any(
            other.kind == COMPRESS and other.id > effect.id and other.state in _WAITING
            for other in await self._journal.list_effects(effect.thread_id)
        )


def _words_of(summary: Summary | None) -> str:
    return summary.text if summary else ""


def _used(batches: list[Batch], summary: str) -> int:
    """What a window costs: its complete batches and the summary."""
    return estimate_text(summary) + sum(b.tokens for b in batches if b.is_complete)

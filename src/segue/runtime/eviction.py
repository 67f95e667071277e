"""Which batches leave a thread's window: those older than the window, then the least needed."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self

from segue.core.batch import Batch
from segue.core.compression import CompressionTarget, Strategy, choose_batches, first_fitting
from segue.core.context import build_context
from segue.core.tokens import estimate_text
from segue.journal.journal import Journal
from segue.journal.records import Summary, Turn, TurnState, Window
from segue.settings.agents import AgentConfig

# Batches of a backlog that are read at a time.
_PAGE: Final = 64
_INSTRUCTION_TOKENS: Final = 300
_LEAST_READING: Final = 200
_LEAST_SUMMARY: Final = 16
_LIVE: Final = frozenset({TurnState.QUEUED, TurnState.RUNNING})


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


@dataclass(slots=True)
class Backlog:
    """A cursor over the batches that are older than the window.

    `after` is the last batch that was read, `ahead` those read and not yet evicted, `newest_turn`
    the thread's newest turn at that time.
    """

    after: int = 0
    ahead: list[Batch] = field(default_factory=list)
    newest_turn: int = 0
    # The batches ahead reached the byte limit of one read.
    is_heavy: bool = False

    @property
    def wants_more(self) -> bool:
        return not self.ahead or not (self.is_heavy or len(self.ahead) >= _PAGE)

    def add(self, ids: list[int], read: list[Batch]) -> None:
        """`read`: the readable batches of `ids`, up to the byte limit of one read."""
        self.ahead += [batch for batch in read if batch.is_complete]
        self.after = read[-1].id if read else ids[-1]
        self.is_heavy = self.after < ids[-1]

    def remove(self, evicted: list[Batch]) -> None:
        gone = {batch.id for batch in evicted}
        self.ahead = [batch for batch in self.ahead if batch.id not in gone]
        self.after = max(self.after, evicted[-1].id)

    def refresh(self, turns: list[Turn]) -> None:
        """Read the batches ahead again if a turn has changed one of them since."""
        touched = {turn.batch for turn in turns if turn.id > self.newest_turn}
        if any(batch.id in touched for batch in self.ahead):
            self.after, self.ahead = self.ahead[0].id - 1, []
        if not self.ahead:
            self.newest_turn = max((turn.id for turn in turns), default=0)


async def choose_evicted(
    journal: Journal,
    thread_id: str,
    window: Window,
    backlog: Backlog,
    config: AgentConfig,
    now: datetime,
) -> list[Batch]:
    """The batches that leave a window together, oldest first."""
    turns = await journal.turns.list_of(thread_id)
    backlog.refresh(turns)
    # The oldest batch with an unfinished turn.
    current = min((turn.batch for turn in turns if turn.state in _LIVE), default=None)
    keep = config.compression.keep
    leaving = await _older_than_window(journal, thread_id, window, current, backlog, keep)
    leaving = leaving or await _least_needed(window, config, current, now)
    if config.compression.strategy is Strategy.SUMMARISE:
        leaving = first_fitting(leaving, WindowLimits.of(config).reading)
    return leaving


async def _older_than_window(
    journal: Journal,
    thread_id: str,
    window: Window,
    current: int | None,
    backlog: Backlog,
    keep: int,
) -> list[Batch]:
    """The oldest complete batches before the window, at most a page of them.

    They leave first: once newer batches are archived, the window would reach back to them.
    """
    end = min((batch.id for batch in window.batches), default=0)
    end = end if current is None else min(end, current)
    while backlog.wants_more:
        page = await journal.messages.list_live_batches(thread_id, after=backlog.after, limit=_PAGE)
        ids = [batch for batch in page if batch < end]
        if not ids:
            break
        backlog.add(ids, await journal.messages.load_batches(thread_id, ids))
    found = [batch for batch in backlog.ahead if batch.id < end]
    kept = await _kept_of_backlog(journal, thread_id, window, backlog, keep)
    return found[: min(max(len(found) - kept, 0), _PAGE)]


async def _kept_of_backlog(
    journal: Journal, thread_id: str, window: Window, backlog: Backlog, keep: int
) -> int:
    """How many of a backlog's last batches stay: `keep` may be more than the window holds."""
    kept = keep - sum(batch.is_complete for batch in window.batches)
    if kept <= 0:
        return 0
    oldest = min((batch.id for batch in window.batches), default=0)
    newer = await journal.messages.list_live_batches(thread_id, after=backlog.after, limit=kept)
    return max(kept - sum(batch < oldest for batch in newer), 0)


async def _least_needed(
    window: Window, config: AgentConfig, current: int | None, now: datetime
) -> list[Batch]:
    limits, wanted = WindowLimits.of(config), config.compression
    if wanted.strategy is Strategy.SUMMARISE:
        for_summary = limits.summary
    else:
        for_summary = estimate_text(summary_text(window.summary))
    target = CompressionTarget(
        wanted.strategy, limits.target - for_summary, wanted.keep, wanted.half_life
    )
    # In a thread: ranking a large window takes a while.
    chosen = await asyncio.to_thread(
        choose_batches, window.batches, target, now=now, current=current
    )
    return chosen.leaving


def summary_text(summary: Summary | None) -> str:
    return summary.text if summary else ""

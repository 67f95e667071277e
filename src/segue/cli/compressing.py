"""The work of `segue compress`, at the journal alone."""

import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self

from segue.agent.summariser import load_summariser
from segue.cli.opening import config_of
from segue.cli.output import one_line
from segue.core.batch import Batch
from segue.core.compress import Strategy
from segue.core.errors import NotFoundError
from segue.core.messages import spoken_text, visible_messages
from segue.journal.ports import Journal
from segue.journal.records import Summary, Thread
from segue.runtime.clock import SystemClock
from segue.runtime.compressor import Compressor, Measures, Summariser
from segue.runtime.ids import LeasedIds
from segue.settings import Settings

_LEASE: Final = timedelta(hours=1)
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Left:
    """What is shown of a batch that left or would leave: thousands may, so no more is kept."""

    id: int
    started_at: datetime
    words: str

    @classmethod
    def of(cls, batch: Batch) -> Self:
        seen = map(spoken_text, visible_messages(batch.messages))
        return cls(batch.id, batch.started_at, one_line(" / ".join(seen), _SHOWN))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What left or would leave, oldest first, and what was stored or undone.

    They leave in `rounds`, each with a summary of its own. `certain` of them would leave whatever
    the summaries say; the others, if these are as long as they may be.
    """

    is_dry_run: bool
    tokens: int = 0
    target: int = 0
    leaving: list[Left] = field(default_factory=list)
    certain: int = 0
    rounds: int = 0
    stored: list[Summary] = field(default_factory=list)
    undone: Summary | None = None


async def compress_thread(
    journal: Journal, thread: Thread, settings: Settings, *, dry_run: bool
) -> Outcome:
    """Compress a thread down to its target, or say what would leave."""
    agent = config_of(settings, thread.agent_id)
    summariser: Summariser | None = None
    if not dry_run and agent.compression.strategy is Strategy.SUMMARISE:
        summariser = load_summariser(agent)
    clock = SystemClock()
    ids = LeasedIds(journal, clock, owner=f"compress:{os.getpid()}", lease_for=_LEASE)
    compressor = Compressor(journal, ids, clock, lambda _: agent, lambda _: summariser)
    used, target = await compressor.used(thread), Measures.of(agent).target
    left: list[Left] = []
    if dry_run:
        certain = rounds = 0
        async for each in compressor.foresee(thread):
            rounds += 1
            certain += len(each.leaving) if each.is_certain else 0
            left += map(Left.of, each.leaving)
        return Outcome(True, used, target, _in_order(left), certain, rounds)
    stored: list[Summary] = []
    await ids.open()
    try:
        while done := await compressor.shrink(
            thread, at_once=True, tell=lambda batch: left.append(Left.of(batch))
        ):
            stored += done
    finally:
        await ids.close()
    return Outcome(False, used, target, _in_order(left), len(left), len(stored), stored)


async def undo_summary(
    journal: Journal, thread: Thread, settings: Settings, *, dry_run: bool
) -> Outcome:
    """Take the newest summary back, or say which one it would be."""
    del settings
    newest = await journal.find_summary(thread.id)
    if newest is None:
        raise NotFoundError(f"Thread {thread.id!r} has no summary that could be undone.")
    if not dry_run:
        await journal.undo_summary(newest)
    return Outcome(dry_run, undone=newest)


def _in_order(left: list[Left]) -> list[Left]:
    return sorted(left, key=lambda each: each.id)

"""A storm: load and kills at the same time, then the calm after it, and what is left."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from segue.journal.records import TimerState, TurnKind, TurnState
from segue.runtime.ids import LeasedIds
from tests.chaos.aftermath import Aftermath, is_cancelled
from tests.chaos.crew import Crew
from tests.chaos.driver import Driver
from tests.chaos.ledger import Life
from tests.chaos.reading import has_tried_again, is_quiet, read_aftermath, sweep
from tests.chaos.soundness import NEVER_FINISHED
from tests.chaos.worker import CLOCK
from tests.journal.stores import journal_at

logger = logging.getLogger(__name__)

# What a test report calls the numbers.
FIGURES: Final = "figures"
# Far longer than it takes: leases run out, follow-ups come, a server is found again.
_DRAIN_SECONDS: Final = 90
# How long a long storm lets the database live at least.
_SPELL_SECONDS: Final = 40


@dataclass(frozen=True)
class Storm:
    """One storm on one database."""

    # Where the journal is, for those who look past the system.
    address: str
    crew: Crew
    # How long a crew is left alone between two strikes, at least and at most.
    pauses: tuple[float, float]
    # Kills the database and starts it again, where that can be done.
    crash: Callable[[], None] | None = None

    async def rage(self, seconds: float, seed: int) -> tuple[Aftermath, Counter[str]]:
        """Load and kills for some time, then only the end of the load; what is left, in full and
        in figures.
        """
        try:
            return await self._rage(seconds, seed)
        except Exception as error:
            error.add_note(f"SEGUE_CHAOS_SEED={seed}\n{self.crew.tail_of_logs()}")
            raise
        finally:
            self.crew.disband()

    async def _rage(self, seconds: float, seed: int) -> tuple[Aftermath, Counter[str]]:
        async with self._driver(seed) as driver:
            self.crew.fill()
            over = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(driver.run(over))
                tasks.create_task(self.crew.suffer(over, self.pauses))
                await self._last(seconds)
                # On a busy machine the first kills may hit nobody at work.
                await _comes(self._has_struck, _DRAIN_SECONDS)
                over.set()
            calm_from = CLOCK.now()
            is_drained = await _comes(lambda: is_quiet(self.address), _DRAIN_SECONDS)
            logger.info("Quiet: %s, after %s", is_drained, CLOCK.now() - calm_from)
            await self.crew.stop()
            left = await sweep(driver.journal, self.address)
            seen = await read_aftermath(
                driver.journal, self.address, CLOCK.now(), driver.spoken, self.crew.ledger
            )
        figures = Counter({"self-tests left": left, **self.crew.did, **_figures(seen, calm_from)})
        return seen, figures

    async def _last(self, seconds: float) -> None:
        """Let it storm; the database crashes in the middle, or several times if it is long."""
        spells = max(2, 1 + int(seconds // _SPELL_SECONDS))
        await asyncio.sleep(seconds / spells)
        for _ in range(spells - 1):
            if self.crash is not None:
                await asyncio.to_thread(self.crash)
                self.crew.did["database crashes"] += 1
            await asyncio.sleep(seconds / spells)

    async def _has_struck(self) -> bool:
        return bool(self.crew.did["killed"]) and await has_tried_again(self.address)

    @asynccontextmanager
    async def _driver(self, seed: int) -> AsyncIterator[Driver]:
        journal = journal_at(self.address)
        await journal.open()
        try:
            ids = LeasedIds(journal, CLOCK, owner="driver", lease_for=timedelta(hours=1))
            await ids.open()
            self.crew.ledger.note_life(Life(-1, ids.node, "took", CLOCK.now()))
            yield Driver(journal, ids, CLOCK, seed)
        finally:
            await journal.close()


def _figures(seen: Aftermath, calm_from: datetime) -> Counter[str]:
    """What happened, in numbers."""
    follow_ups = [turn for turn in seen.turns if turn.kind is TurnKind.FOLLOW_UP]
    shown_at = [turn.shown_at for turn in follow_ups if turn.shown_at is not None]
    failed = [turn for turn in seen.turns if turn.state is TurnState.FAILED]
    ended = Counter(t.state.value for t in seen.timers if t.state is not TimerState.FIRED)
    return Counter(
        {
            **seen.spoken.did,
            **{f"timers {state}": times for state, times in ended.items()},
            "messages accepted": len(seen.spoken.sent),
            "turns": len(seen.turns),
            "turns tried again": sum(turn.attempts > 1 for turn in seen.turns),
            "turns failed": len(failed),
            "turns never finished": sum(NEVER_FINISHED in (turn.error or "") for turn in failed),
            "turns cancelled": sum(map(is_cancelled, seen.turns)),
            "follow-ups shown": len(shown_at),
            "follow-ups shown in the storm": sum(moment < calm_from for moment in shown_at),
            "follow-ups void": sum(turn.state is TurnState.VOID for turn in follow_ups),
            "continuations": sum(turn.kind is TurnKind.CONTINUATION for turn in seen.turns),
            "agents asked": sum(batch.parent is not None for batch in seen.batches.values()),
            "tools run": len(seen.tools),
        }
    )


async def _comes(condition: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Wait for something, but not for ever; whether it came."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.2)
    return True

"""Chaos: workers die without warning under load, and nothing is lost, doubled or left hanging.

`SEGUE_CHAOS_SECONDS` sets how long it storms, `SEGUE_CHAOS_SEED` with which dice; `make chaos` is
the long version.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

import pytest

from segue.compose import JOURNAL_FILE
from segue.journal.records import TimerState, TurnKind, TurnState
from segue.runtime.ids import LeasedIds
from segue.testing.postgres import PostgresServer
from tests.chaos.driver import Driver
from tests.chaos.ledger import Ledger, Life
from tests.chaos.nursery import Nursery
from tests.chaos.reading import is_quiet, read_aftermath, sweep
from tests.chaos.soundness import NEVER_FINISHED, Aftermath, breaches, is_cancelled
from tests.chaos.storm import Crew, until
from tests.chaos.worker import CLOCK
from tests.journal.soundness import broken_rules
from tests.journal.stores import is_file, journal_at

pytestmark = pytest.mark.anyio
logger = logging.getLogger(__name__)

# Far longer than it takes: leases run out, follow-ups come, a server is found again.
DRAIN_SECONDS: Final = 90
# They know what another kind of worker does, which writes one effect for each turn.
OF_ANOTHER_WRITER: Final = frozenset(
    {
        "a fired timer has no turn, or a turn no timer",
        "a finished turn has no effect, or two",
        "a turn was finished by one who had lost it",
    }
)
REQUIRED: Final = (
    "follow-ups shown",
    "turns tried again",
    "turns cancelled",
    "continuations",
    "agents asked",
    "tools run",
)


@dataclass(frozen=True)
class Storm:
    """One storm on one database."""

    database: str
    # Where the journal is, for those who look past it.
    address: str
    crew: Crew
    seed: int

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.crew.folder / "ledger")

    async def rage(
        self, seconds: float, pauses: tuple[float, float], crash: Callable[[], None] | None
    ) -> Aftermath:
        """Load and kills for some time, then only the end of the load; and what is left of it.

        The database crashes once in the middle, and in a long storm once in forty seconds.
        """
        spells = 2 + int(seconds // 60)
        async with self._driver() as driver:
            over = asyncio.Event()
            self.crew.fill()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(driver.run(over))
                tasks.create_task(self.crew.suffer(over, pauses))
                for spell in range(spells):
                    if spell and crash is not None:
                        await asyncio.to_thread(crash)
                        self.crew.did["database crashed"] += 1
                    await asyncio.sleep(seconds / spells)
                over.set()
            ended_at = CLOCK.now()
            is_drained = await until(lambda: is_quiet(self.address), DRAIN_SECONDS)
            logger.info("Drained: %s, in %s", is_drained, CLOCK.now() - ended_at)
            await self.crew.stop()
            self.crew.did["self-tests left"] = await sweep(driver.journal, self.address)
            return await read_aftermath(
                driver.journal, self.address, CLOCK.now(), driver.spoken, self.ledger
            )

    @asynccontextmanager
    async def _driver(self) -> AsyncIterator[Driver]:
        journal = journal_at(self.address)
        await journal.open()
        ids = LeasedIds(journal, CLOCK, owner="driver", lease_for=timedelta(hours=1))
        await ids.open()
        self.ledger.note_life(Life(-1, ids.node, "took", CLOCK.now()))
        try:
            yield Driver(journal, ids, CLOCK, self.seed)
        finally:
            await journal.close()


@pytest.fixture
def durable_server(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer.start(tmp_path / "data", fsync=True) as server:
        if server.pid is None:
            pytest.skip("This server is not ours to kill.")
        yield server


def figures(seen: Aftermath, crew: Crew) -> Counter[str]:
    """What happened, in numbers."""
    follow_ups = [turn for turn in seen.turns if turn.kind is TurnKind.FOLLOW_UP]
    failed = [turn for turn in seen.turns if turn.state is TurnState.FAILED]
    return Counter(
        {
            **crew.did,
            **seen.spoken.did,
            "messages accepted": len(seen.spoken.sent),
            "turns": len(seen.turns),
            "turns tried again": sum(turn.attempts > 1 for turn in seen.turns),
            "follow-ups shown": sum(turn.shown_at is not None for turn in follow_ups),
            "follow-ups void": sum(turn.state is TurnState.VOID for turn in follow_ups),
            "continuations": sum(turn.kind is TurnKind.CONTINUATION for turn in seen.turns),
            "agents asked": sum(batch.parent is not None for batch in seen.batches.values()),
            "tools run": len(seen.tools),
            "turns failed": len(failed),
            "turns never finished": sum(NEVER_FINISHED in (turn.error or "") for turn in failed),
            "turns cancelled": sum(map(is_cancelled, seen.turns)),
            **Counter(
                f"timers {timer.state.value}"
                for timer in seen.timers
                if timer.state is not TimerState.FIRED
            ),
        }
    )


def check(storm: Storm, seen: Aftermath, *, least_kills: int) -> None:
    told = figures(seen, storm.crew)
    logger.info("Seed %s: %s", storm.seed, dict(sorted(told.items())))
    found = breaches(seen)
    found += [rule for rule in broken_rules(storm.address) if rule not in OF_ANOTHER_WRITER]
    found += storm.crew.odd + storm.crew.surprises()
    # A storm that broke nothing shows nothing.
    rare = [what for what in REQUIRED if not told[what]]
    found += [f"There were no {what}." for what in rare]
    if told["killed"] < least_kills:
        found.append(f"Only {told['killed']} workers were killed.")
    if found:
        seed = f"SEGUE_CHAOS_SEED={storm.seed}"
        pytest.fail("\n".join([seed, *found, storm.crew.tail_of_logs()]), pytrace=False)


@pytest.fixture
def make_storm(nursery: Nursery, tmp_path: Path, seed: int) -> Callable[[str, int], Storm]:
    def make(database: str, size: int) -> Storm:
        folder = tmp_path / "crew"
        folder.mkdir()
        is_folder = not any(word.startswith("dbname=") for word in database.split())
        address = str(Path(database) / JOURNAL_FILE) if is_folder else database
        random = Random(seed)  # noqa: S311 - no secret
        return Storm(database, address, Crew(nursery, database, folder, size, random), seed)

    return make


async def test_postgres(
    durable_server: PostgresServer, make_storm: Callable[[str, int], Storm], seconds: float
) -> None:
    """Three workers."""

    def crash() -> None:
        durable_server.kill()
        durable_server.restart()

    storm = make_storm(durable_server.create_database(), 3)
    seen = await storm.rage(seconds, (0.3, 1.0), crash)
    check(storm, seen, least_kills=int(seconds / 3))


async def test_sqlite(
    tmp_path: Path, make_storm: Callable[[str, int], Storm], seconds: float
) -> None:
    """One worker."""
    database = tmp_path / "data"
    database.mkdir()
    storm = make_storm(str(database), 1)
    seen = await storm.rage(seconds, (0.5, 2.5), None)
    check(storm, seen, least_kills=int(seconds / 5))

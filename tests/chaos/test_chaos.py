"""Chaos: workers die without warning under load, and nothing is lost, doubled or left hanging.

`SEGUE_CHAOS_SECONDS` sets how long it storms, `SEGUE_CHAOS_SEED` with which dice; `make chaos` is
the long version.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pytest

from segue.stores import JOURNAL_FILE
from segue.testing.postgres import PostgresServer
from tests.chaos.aftermath import Aftermath
from tests.chaos.crew import Crew
from tests.chaos.nursery import Nursery
from tests.chaos.soundness import breaches
from tests.chaos.storm import FIGURES, Storm
from tests.chaos.wires import wire_problems
from tests.journal.soundness import broken_rules
from tests.providers.clients import Client

pytestmark = pytest.mark.anyio
Telling = Callable[[str, object], None]

# They know what another kind of worker does, which writes one effect for each turn.
OF_ANOTHER_WRITER: Final = frozenset(
    {
        "a fired timer has no turn, or a turn no timer",
        "a finished turn has no effect, or two",
        "a turn was finished by one who had lost it",
    }
)
# What a storm has to bring, or it shows nothing; of a short one, little can be asked.
REQUIRED: Final = ("turns tried again", "tools run")
REQUIRED_OF_A_LONG_ONE: Final = (
    "follow-ups shown in the storm",
    "turns cancelled",
    "turns failed",
    "continuations",
    "agents asked",
)
LONG_SECONDS: Final = 60


@pytest.fixture
def durable_server(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer.start(tmp_path / "data", fsync=True) as server:
        if server.pid is None:
            pytest.skip("This server is not ours to kill.")
        yield server


@dataclass(frozen=True)
class Conditions:
    """Under which it storms."""

    nursery: Nursery
    # Where workers leave their logs and the ledger.
    folder: Path
    seed: int
    seconds: float

    @property
    def least_kills(self) -> float:
        """An idle machine has about ten times as many."""
        return max(1, self.seconds / 20)

    def missing(self, figures: Counter[str]) -> list[str]:
        """What did not happen although it should have."""
        required = REQUIRED + REQUIRED_OF_A_LONG_ONE * (self.seconds >= LONG_SECONDS)
        return [f"There were no {what}." for what in required if not figures[what]]

    def crew(self, database: str, size: int) -> Crew:
        random = Random(self.seed)  # noqa: S311 - no secret
        return Crew(self.nursery, database, self.folder, size, random)

    def tell(self, figures: Counter[str], record: Telling) -> str:
        """Have the figures told at the end of all tests."""
        told = ", ".join(f"{times} {what}" for what, times in sorted(figures.items()))
        record(FIGURES, f"SEGUE_CHAOS_SEED={self.seed}, {told}")
        return f"SEGUE_CHAOS_SEED={self.seed}, {told}"


@pytest.fixture
def conditions(nursery: Nursery, tmp_path: Path, seed: int, seconds: float) -> Conditions:
    folder = tmp_path / "crew"
    folder.mkdir()
    return Conditions(nursery, folder, seed, seconds)


def faults(storm: Storm, seen: Aftermath, clients: dict[str, Client]) -> list[str]:
    """Everything that is not as it should be."""
    return [
        *breaches(seen),
        *wire_problems(seen, clients),
        *(rule for rule in broken_rules(storm.address) if rule not in OF_ANOTHER_WRITER),
        *storm.crew.odd,
        *storm.crew.surprises(),
    ]


def assert_none(found: list[str], storm: Storm, told: str) -> None:
    """No fault, or a failure with all of them, the figures and the end of the logs."""
    if found:
        pytest.fail("\n".join([told, *found, storm.crew.tail_of_logs()]), pytrace=False)


async def test_nothing_is_lost_when_workers_and_the_server_die(
    durable_server: PostgresServer,
    conditions: Conditions,
    clients: dict[str, Client],
    record_property: Telling,
) -> None:
    """Three workers on PostgreSQL are killed at random, and so is the server: every message is
    answered once or fails honestly, no tool, timer or reply is repeated, and nothing hangs.
    """

    def crash() -> None:
        durable_server.kill()
        durable_server.restart()

    database = durable_server.create_database()
    storm = Storm(database, conditions.crew(database, 3), (0.4, 1.4), crash)
    seen, figures = await storm.rage(conditions.seconds, conditions.seed)
    told = conditions.tell(figures, record_property)
    found = [*faults(storm, seen, clients), *conditions.missing(figures)]
    if figures["killed"] < conditions.least_kills or not figures["database crashes"]:
        found.append("There were too few kills to show anything.")
    assert_none(found, storm, told)


async def test_nothing_is_lost_when_the_only_worker_dies(
    tmp_path: Path,
    conditions: Conditions,
    clients: dict[str, Client],
    record_property: Telling,
) -> None:
    """The same for one worker on SQLite, while users write to the file from another process."""
    database = tmp_path / "data"
    database.mkdir()
    storm = Storm(str(database / JOURNAL_FILE), conditions.crew(str(database), 1), (0.5, 2.5))
    seen, figures = await storm.rage(conditions.seconds, conditions.seed)
    told = conditions.tell(figures, record_property)
    found = [*faults(storm, seen, clients), *conditions.missing(figures)]
    if figures["killed"] < conditions.least_kills:
        found.append("There were too few kills to show anything.")
    assert_none(found, storm, told)

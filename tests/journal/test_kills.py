"""Killed without warning: nothing that was accepted is lost, and nothing is done twice.

`SEGUE_KILLS` sets how many writers die, 200 is the long version; `SEGUE_SERVER_KILLS` how often
the server does, 20 is the long version.
"""

import asyncio
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random

import pytest

from segue import SnowflakeGenerator
from segue.testing.postgres import PostgresServer
from tests.journal.soundness import broken_rules
from tests.journal.stores import ask, journal_at
from tests.journal.writer import START, Hands, Writer, let_work

pytestmark = pytest.mark.anyio
logger = logging.getLogger(__name__)

KILLS = int(os.environ.get("SEGUE_KILLS", "10"))
SERVER_KILLS = int(os.environ.get("SEGUE_SERVER_KILLS", "2"))
# Some cycles of a writer's work.
A_WHILE = 0.05
ANSWERED = ["human", "ai", "tool", "ai"]


@pytest.fixture
def random() -> Random:
    """Dice that differ on every run: the scheduler rolls with them, so a seed repeats nothing."""
    return Random()  # noqa: S311 - no secret


@pytest.fixture
def durable_server(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer.start(tmp_path / "data", fsync=True) as server:
        if server.pid is None:
            pytest.skip("This server is not ours to kill.")
        yield server


async def check_store(address: str, accepted: list[str]) -> None:
    """It opens, it is sound, and what was accepted is there."""
    journal = journal_at(address)
    await journal.open()
    await journal.close()
    assert broken_rules(address) == []
    stored = {message_id for (message_id,) in ask(address, "SELECT message_id FROM messages")}
    assert set(accepted) <= stored


async def finish_everything(address: str) -> None:
    """What a process does that comes when all leases have run out."""
    journal = journal_at(address)
    await journal.open()
    now = START + timedelta(days=300)
    node = await journal.nodes.lease("the last one", now=now, lease_for=timedelta(days=1))
    hands = Hands(journal, SnowflakeGenerator(node, last=await journal.nodes.last_position()))
    [(turns,)] = ask(address, "SELECT count(*) FROM turns")
    # More often than there are turns: a dying connection may still hold one for a moment.
    for _ in range(turns + 1_000):
        if await journal.turns.next_at(now=now) is None:
            break
        await hands.answer(now)
    await journal.close()


def check_work(address: str, accepted: list[str]) -> None:
    """Every user's message has one turn, which is done, with one answer and one effect."""
    questions = dict(
        ask(
            address,
            "SELECT message_id, batch FROM messages WHERE role = 'human' AND NOT synthetic",
        )
    )
    assert set(accepted) <= set(questions)
    turns = ask(address, "SELECT id, batch, kind, state FROM turns")
    replies = [batch for _, batch, kind, _ in turns if kind == "reply"]
    assert sorted(replies) == sorted(questions.values())
    roles = defaultdict(list)
    for batch, role in ask(address, "SELECT batch, role FROM messages ORDER BY sequence_num"):
        roles[batch].append(role)
    keys = ask(address, "SELECT dedupe_key FROM effects")
    effects = Counter(int(key.split()[1]) for (key,) in keys)
    for turn_id, batch, kind, state in turns:
        done = state == "done"
        assert done or (state, kind) == ("void", "follow_up")
        assert effects[turn_id] == done
        assert (roles[batch] == ANSWERED) == done
        assert roles[batch] == ANSWERED[: len(roles[batch])]


async def test_a_killed_writer_loses_nothing_and_repeats_nothing(
    address: str, random: Random
) -> None:
    """Wherever it was, others find a sound store, all that was accepted, and each turn once."""
    lives = count()
    writers = [Writer(address, next(lives)) for _ in range(2)]
    accepted: list[str] = []
    struck: Counter[str] = Counter()
    said: Counter[str] = Counter()
    while struck.total() < KILLS:
        victims = random.sample(writers, random.randint(1, 2))
        let_work(writers, victims[0], random.randint(0, 6))
        await asyncio.sleep(random.uniform(0, A_WHILE))
        struck.update(victim.kill() for victim in victims)
        for victim in victims:
            accepted += victim.said["accepted"]
            said.update({kind: len(words) for kind, words in victim.said.items()})
            assert not victim.said["failed"]
            writers[writers.index(victim)] = Writer(address, next(lives))
        await check_store(address, accepted)
    for writer in writers:
        writer.kill()
        accepted += writer.said["accepted"]
    await finish_everything(address)
    await check_store(address, accepted)
    check_work(address, accepted)
    logger.info("Struck in the middle of: %s. Heard: %s", dict(struck), dict(said))


async def test_a_killed_server_loses_nothing_and_repeats_nothing(
    durable_server: PostgresServer, random: Random
) -> None:
    """Writers see an error, go on with the server when it is back, and each turn is done once."""
    address = durable_server.create_database()
    writers = [Writer(address, life) for life in range(2)]
    for writer in writers:
        let_work(writers, writer, 1)  # a journal that is being opened needs its server
    for _ in range(SERVER_KILLS):
        let_work(writers, writers[0], random.randint(1, 6))
        await asyncio.sleep(random.uniform(0, A_WHILE))
        durable_server.kill()
        durable_server.restart()
        accepted = [message_id for writer in writers for message_id in writer.said["accepted"]]
        await check_store(address, accepted)
        for writer in writers:
            let_work(writers, writer, 1)
    for writer in writers:
        writer.kill()
    failures = [failure for writer in writers for failure in writer.said["failed"]]
    assert all("Nothing was written" in text or "is not known" in text for text in failures)
    accepted = [message_id for writer in writers for message_id in writer.said["accepted"]]
    await finish_everything(address)
    await check_store(address, accepted)
    check_work(address, accepted)
    logger.info("Failures: %s", Counter(failures))

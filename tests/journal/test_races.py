"""Several processes, one journal: who wins, and that never both do.

`SEGUE_RACE_ROUNDS` sets how often a reply and a timer meet; 10,000 is the long version.
"""

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from segue import MessageMetadata, SnowflakeGenerator, user_message
from segue.journal.journal import Journal
from segue.journal.records import NewTimer, TimerKind, TimerState, TurnKind, TurnState
from tests.journal.racers import LEASE, SECOND, START, all_at_once, racers
from tests.journal.stores import ask, is_file, journal_at

pytestmark = pytest.mark.anyio
ROUNDS = int(os.environ.get("SEGUE_RACE_ROUNDS", "150"))


@pytest.fixture
async def journal(address: str) -> AsyncIterator[Journal]:
    journal = journal_at(address)
    await journal.open()
    yield journal
    await journal.close()


async def arm(journal: Journal, rounds: int) -> None:
    """One thread and one timer per round, due a second apart."""
    ids = SnowflakeGenerator(node=100)
    for turn in range(rounds):
        thread = f"thread-{turn}"
        await journal.threads.create(thread, agent_id="guide", user_id="ada", now=START)
        timer = NewTimer(thread, START + turn * SECOND, "check_in")
        await journal.timers.arm(timer, ids=ids, now=START)


async def arm_continuations(journal: Journal, number: int) -> None:
    """Timers of one thread: a thread of its own for each would take twice as long to set up."""
    ids = SnowflakeGenerator(node=100)
    await journal.threads.create("busy", agent_id="guide", user_id="ada", now=START)
    accepted = await journal.inbox.accept("busy", user_message("Go on."), ids=ids, now=START)
    for n in range(number):
        due_at, batch = START + n * SECOND, accepted.turn.batch
        timer = NewTimer("busy", due_at, kind=TimerKind.CONTINUATION, batch=batch)
        await journal.timers.arm(timer, ids=ids, now=START)


async def test_a_reply_and_a_timer_at_once_never_both_win(address: str, journal: Journal) -> None:
    """Whichever comes first, no follow-up is left to speak once the user has written."""
    await arm(journal, ROUNDS)
    endings: Counter[tuple[str, ...]] = Counter()
    with racers(address, "reply", "nudge") as pair:
        user, timer_worker = pair
        orders = ([pair], [pair[::-1]], [[user], [timer_worker]], [[timer_worker], [user]])
        for turn in range(ROUNDS):
            # At once, told in either order; and one right after the other, in either order.
            for moving in orders[turn % len(orders)]:
                all_at_once(moving, turn)
    for turn in range(ROUNDS):
        turns = await journal.turns.list_of(f"thread-{turn}")
        [timer] = await journal.timers.list_of(f"thread-{turn}")
        follow_ups = [t.state for t in turns if t.kind is TurnKind.FOLLOW_UP]
        assert [t.state for t in turns if t.kind is TurnKind.REPLY] == [TurnState.QUEUED]
        assert follow_ups in ([], [TurnState.VOID])
        assert timer.state is (TimerState.FIRED if follow_ups else TimerState.CANCELLED)
        endings[(timer.state, *follow_ups)] += 1
    assert len(endings) == 2, endings


async def test_workers_that_claim_at_once_share_the_timers(address: str, journal: Journal) -> None:
    """Each of the due timers is claimed exactly once."""
    await arm_continuations(journal, 1_000)
    with racers(address, "claim_all", "claim_all") as pair:
        taken = all_at_once(pair, 1_000)
    claimed = [timer for share in taken for timer in share]  # type: ignore[attr-defined]  # lists
    assert len(claimed) == len(set(claimed)) == 1_000


async def test_equal_reminders_at_once_are_one(address: str, journal: Journal) -> None:
    """Whoever asks second gets the reminder that is there, in whichever process it was set."""
    await journal.threads.create("busy", agent_id="guide", user_id="ada", now=START)
    with racers(address, "remind", "remind") as pair:
        made = [all_at_once(pair, turn) for turn in range(20)]
    assert all(one == other for one, other in made)
    assert len(await journal.timers.list_reminders("ada")) == 20


async def test_writers_of_one_thread_keep_its_order(address: str, journal: Journal) -> None:
    """Eight writers with clocks hours apart: positions rise, nothing is doubled, order is kept."""
    await journal.threads.create("busy", agent_id="guide", user_id="ada", now=START)
    with racers(address, *["write_many"] * 8) as eight:
        all_at_once(eight, 10)
    page = await journal.messages.history("busy", limit=500)
    positions = [MessageMetadata.of(message).position or 0 for message in page.messages]
    assert len(positions) == 80
    assert positions == sorted(set(positions))
    for node in range(1, 9):
        own = [m.text for m in page.messages if m.text.startswith(f"{node}-")]
        assert own == [f"{node}-{n}" for n in range(10)]
    turns = [turn.batch for turn in await journal.turns.list_of("busy", limit=500)]
    assert turns == sorted(positions, reverse=True)
    lease = await journal.turns.claim_one("w", now=START, lease_for=LEASE)
    assert lease is not None
    assert lease.turn.batch == positions[0]


async def test_processes_that_open_a_new_store_at_once_migrate_it_once(
    new_address: Callable[[], str], address: str
) -> None:
    """Whoever comes second finds the schema in place."""
    version = "PRAGMA user_version" if is_file(address) else "SELECT * FROM segue_schema"
    with racers(address, *["open_and_close"] * 4) as four:
        migrated = ask(address, version)
        for _ in range(5):
            new = new_address()
            all_at_once(four, new)
            assert ask(new, version) == migrated
            assert ask(new, "SELECT count(*) FROM threads") == [(0,)]

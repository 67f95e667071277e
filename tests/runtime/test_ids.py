"""Ids of a process: a leased number that is kept, given back, and replaced if it was lost."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage

from segue.core.snowflake import node_of, time_of
from segue.errors import ConflictError
from segue.journal.journal import Journal
from segue.journal.postgres import PostgresJournal
from segue.journal.sqlite import SqliteJournal
from segue.runtime.clock import SystemClock
from segue.runtime.ids import LeasedIds
from segue.simulate.world import START, Stage

pytestmark = pytest.mark.anyio

LEASE = timedelta(hours=1)


class Settable(SystemClock):
    """A clock that a test sets, forward and back."""

    def __init__(self, now: datetime = START) -> None:
        self.moment = now

    def now(self) -> datetime:
        return self.moment


@pytest.fixture
async def journal(database: str) -> AsyncIterator[Journal]:
    is_postgres = "dbname" in database
    opened: Journal = (
        PostgresJournal(database) if is_postgres else SqliteJournal(Path(database) / "journal.db")
    )
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> Settable:
    return Settable()


async def opened(journal: Journal, clock: Settable, owner: str = "one") -> LeasedIds:
    ids = LeasedIds(journal, clock, owner=owner, lease_for=LEASE)
    await ids.open()
    return ids


async def write(journal: Journal, ids: LeasedIds, now: datetime) -> int:
    """A message in a thread of its own; its position."""
    thread = f"t{ids.next()}"
    await journal.threads.create(thread, agent_id="guide", user_id="ann", now=now)
    accepted = await journal.inbox.accept(thread, HumanMessage("Hello."), ids=ids, now=now)
    position: int = accepted.message.additional_kwargs["position"]
    return position


async def test_two_processes_have_numbers_of_their_own(journal: Journal, clock: Settable) -> None:
    """However many begin at once, no two hand out the same ids."""
    all_ids = await asyncio.gather(*(opened(journal, clock, f"p{n}") for n in range(8)))
    assert len({ids.node for ids in all_ids}) == 8
    given = [ids.next() for ids in all_ids for _ in range(100)]
    assert len(set(given)) == 800


async def test_a_number_that_is_renewed_is_kept(journal: Journal, clock: Settable) -> None:
    """A process that renews in time has its number for as long as it lives."""
    ids = await opened(journal, clock)
    for _ in range(10):
        next_at = await ids.renew()
        assert next_at == clock.moment + LEASE / 3
        clock.moment = next_at
        other = await opened(journal, clock, "other")
        assert other.node != ids.node
        await other.close()
    assert ids.node == 0


async def test_a_number_that_was_lost_is_replaced(
    journal: Journal, clock: Settable, caplog: pytest.LogCaptureFixture
) -> None:
    """Who slept through its lease takes another number, above all that was written meanwhile."""
    ids = await opened(journal, clock)
    before = ids.next()
    clock.moment += LEASE + timedelta(seconds=1)
    other = await opened(journal, clock, "other")
    assert other.node == ids.node
    position = await write(journal, other, clock.moment)
    await ids.renew()
    assert ids.node != other.node
    assert "Node number 0 was lost" in caplog.text
    assert before < position < ids.next()
    await ids.renew()
    assert ids.node == 1


async def test_a_number_that_nobody_took_is_kept_after_a_long_sleep(
    journal: Journal, clock: Settable
) -> None:
    """Only somebody else's lease takes it away."""
    ids = await opened(journal, clock)
    before = ids.next()
    clock.moment += 10 * LEASE
    await ids.renew()
    assert ids.node == 0
    assert ids.next() > before


async def test_a_number_is_free_after_its_process_ended(journal: Journal, clock: Settable) -> None:
    """A process that ends well leaves its number to the next at once."""
    ids = await opened(journal, clock)
    await ids.close()
    assert (await opened(journal, clock, "other")).node == 0


async def test_a_number_that_was_lost_is_not_given_back_for_another(
    journal: Journal, clock: Settable
) -> None:
    """A process that ends late does not free what is another's by now."""
    ids = await opened(journal, clock)
    clock.moment += LEASE + timedelta(seconds=1)
    other = await opened(journal, clock, "other")
    await ids.close()
    assert (await opened(journal, clock, "third")).node != other.node


@pytest.mark.parametrize("step", [timedelta(milliseconds=1), timedelta(hours=3)])
async def test_ids_rise_when_the_clock_is_set_back(
    journal: Journal, clock: Settable, step: timedelta
) -> None:
    """An id is above every earlier one, whatever the clock says."""
    ids = await opened(journal, clock)
    given = [ids.next() for _ in range(50)]
    clock.moment -= step
    given += [ids.next() for _ in range(5_000)]
    await ids.renew()
    given += [ids.next() for _ in range(50)]
    assert all(one < other for one, other in pairwise(given))
    assert {node_of(each) for each in given} == {0}


async def test_ids_rise_over_a_restart_with_the_clock_set_back(
    journal: Journal, clock: Settable
) -> None:
    """What was written before the restart is below all that is written after it."""
    ids = await opened(journal, clock)
    position = await write(journal, ids, clock.moment)
    await ids.close()
    clock.moment -= timedelta(days=1)
    ids = await opened(journal, clock, "again")
    assert ids.next() > position
    assert await write(journal, ids, clock.moment) > position


async def test_ids_carry_the_time_of_the_clock(journal: Journal, clock: Settable) -> None:
    """A turn's id tells when it was made, also on a virtual clock."""
    ids = await opened(journal, clock)
    assert time_of(ids.next()) == START
    assert time_of(ids.next(after=ids.next())) == START


async def test_ids_that_are_not_open_say_so(journal: Journal, clock: Settable) -> None:
    """Nobody gets an id with a number that was never leased."""
    ids = LeasedIds(journal, clock, owner="one", lease_for=LEASE)
    with pytest.raises(ConflictError, match=r"not open yet; call open\(\) first"):
        ids.next()


async def test_a_running_process_renews_by_itself(stage: Stage) -> None:
    """A month of silence does not cost a process its number."""
    async with stage.world() as world:
        node = world.system.runtime.ids.node
        for _ in range(4):
            await world.pass_time(days=15)
            async with stage.world() as other:
                assert other.system.runtime.ids.node != node
        assert world.system.runtime.ids.node == node


async def test_a_running_process_that_lost_its_number_goes_on(stage: Stage) -> None:
    """Somebody took it: the next renewal takes another, and messages go on rising."""
    async with stage.world() as world:
        thread = (await world.segue.create_thread("ann")).id
        await world.say(thread, "Hello.")
        journal, ids = world.journal, world.system.runtime.ids
        await journal.nodes.release(ids.node, world.system.deps.owner)
        taken = await journal.nodes.lease(
            "other", now=world.clock.now(), lease_for=timedelta(days=90)
        )
        assert taken == ids.node
        await world.pass_time(days=11)
        assert ids.node != taken
        await world.say(thread, "Hello again.")
        page = await world.segue.history(thread)
        positions = [message.additional_kwargs["position"] for message in page.messages]
        assert positions == sorted(positions)
        assert node_of(positions[-1]) == ids.node


YEARS = timedelta(days=16 * 365)


async def go_on(journal: Journal, ids: LeasedIds, thread: str, now: datetime) -> int:
    """One more message in a thread; its position."""
    accepted = await journal.inbox.accept(thread, HumanMessage("More."), ids=ids, now=now)
    position: int = accepted.message.additional_kwargs["position"]
    return position


async def test_a_start_in_a_wrong_year_dates_nothing_that_comes_after(
    journal: Journal, clock: Settable
) -> None:
    """Threads that were written to in that year go on above it; all others have the present."""
    clock.moment = START + YEARS
    wrong = await opened(journal, clock, "wrong")
    far = [await write(journal, wrong, clock.moment) for _ in range(2)]
    threads = [thread.id for thread in await journal.threads.list_newest(limit=2)]
    await wrong.close()
    clock.moment = START
    ids = await opened(journal, clock)
    assert time_of(ids.next()) == START
    near, above = [], []
    for _ in range(3):
        near.append(await write(journal, ids, START))
        above += [await go_on(journal, ids, thread, START) for thread in threads]
    assert {time_of(each).date() for each in near} == {START.date()}
    assert min(above) > max(far)
    assert near == sorted(near)
    assert above == sorted({*above})  # of two threads, and no id twice


async def test_a_process_whose_clock_was_years_ahead_comes_back_to_the_present(
    journal: Journal, clock: Settable
) -> None:
    """Set right while it runs, its next ids are of the present, and none is given out again."""
    ids = await opened(journal, clock)
    given = [ids.next()]
    clock.moment += YEARS
    far = await write(journal, ids, clock.moment)
    given += [far, ids.next()]
    [thread] = await journal.threads.list_newest(limit=1)
    clock.moment = START
    given += [ids.next(), ids.next()]
    assert {time_of(each).date() for each in given[-2:]} == {START.date()}
    given.append(await go_on(journal, ids, thread.id, START))
    assert given[-1] > far
    clock.moment = time_of(far)  # that year comes at last
    given.append(ids.next())
    assert given[-1] > far
    assert len({*given}) == len(given)

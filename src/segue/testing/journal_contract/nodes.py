"""Node numbers: leased, so that two processes never share one."""

# ruff: noqa: S101 - tests assert

import asyncio
from datetime import datetime, timedelta

import pytest

from segue.core.errors import ConflictError
from segue.core.snowflake import MAX_NODE, latest_id
from segue.journal.ports import Journal
from segue.journal.records import NewMemory
from segue.runtime.snowflakes import SnowflakeGenerator
from segue.testing.journal_contract.chat import HOUR, LEASE, Chat, positions
from segue.testing.journal_contract.fixtures import START, OpenJournal, ticking_ids

SECOND = timedelta(seconds=1)


async def lease(journal: Journal, owner: str, now: datetime) -> int:
    return await journal.lease_node(owner, now=now, lease_for=LEASE)


async def test_every_lease_is_a_number_of_its_own(
    open_journal: OpenJournal, journal: Journal, now: datetime
) -> None:
    """Processes that start at the same time get different numbers in range."""
    handles = [journal, await open_journal()]
    nodes = await asyncio.gather(*(lease(handles[n % 2], f"p-{n}", now) for n in range(10)))
    assert len(set(nodes)) == 10
    assert all(0 <= node <= MAX_NODE for node in nodes)


async def test_a_number_is_free_again_when_its_lease_ran_out(
    journal: Journal, now: datetime
) -> None:
    """A process that died does not keep its number for ever; a living one does keep it."""
    held = {await lease(journal, f"process-{n}", now) for n in range(3)}
    before_end = await lease(journal, "early", now + LEASE - SECOND)
    assert before_end not in held
    after = {await lease(journal, f"late-{n}", now + LEASE) for n in range(3)}
    assert after == held


async def test_an_extended_number_stays_with_its_owner(journal: Journal, now: datetime) -> None:
    """Nobody else gets it as long as it is extended in time."""
    node = await lease(journal, "process-a", now)
    await journal.extend_node(node, "process-a", now=now + LEASE / 2, lease_for=LEASE)
    assert await lease(journal, "process-b", now + LEASE) != node


async def test_a_number_that_was_taken_over_cannot_be_extended(
    journal: Journal, now: datetime
) -> None:
    """A process that slept too long is told, and the new owner keeps the number."""
    node = await lease(journal, "process-a", now)
    assert await lease(journal, "process-b", now + LEASE) == node
    with pytest.raises(ConflictError):
        await journal.extend_node(node, "process-a", now=now + LEASE, lease_for=HOUR)
    await journal.extend_node(node, "process-b", now=now + LEASE, lease_for=HOUR)


async def test_a_number_that_nobody_leased_cannot_be_extended(
    journal: Journal, now: datetime
) -> None:
    """A number comes from the journal, not from the caller."""
    with pytest.raises(ConflictError):
        await journal.extend_node(7, "process-a", now=now, lease_for=LEASE)


async def test_a_released_number_is_free(journal: Journal, now: datetime) -> None:
    """A process that shuts down in order gives its number back at once."""
    node = await lease(journal, "process-a", now)
    await journal.release_node(node, "process-a")
    assert await lease(journal, "process-b", now) == node


async def test_a_number_is_released_by_its_owner_only(journal: Journal, now: datetime) -> None:
    """A process that lost its number does not take it away from the next one."""
    node = await lease(journal, "process-a", now)
    await lease(journal, "process-b", now + LEASE)
    await journal.release_node(node, "process-a")
    assert await lease(journal, "process-c", now + LEASE) != node


async def test_the_last_number_can_be_leased_and_no_more(journal: Journal, now: datetime) -> None:
    """All numbers are given out before anyone is refused."""
    owners = {await lease(journal, f"process-{n}", now): n for n in range(MAX_NODE + 1)}
    assert sorted(owners) == list(range(MAX_NODE + 1))
    with pytest.raises(ConflictError):
        await lease(journal, "one-too-many", now)
    await journal.release_node(700, f"process-{owners[700]}")
    assert await lease(journal, "next", now) == 700


async def test_the_last_position_is_the_highest_of_all_threads(
    journal: Journal, chat: Chat
) -> None:
    """A generator that is seeded with it starts above everything stored."""
    await chat.exchange()
    await (await chat.another("second")).exchange()
    stored = await chat.messages()
    elsewhere = await Chat(journal, chat.ids, chat.now, "second").messages()
    assert await journal.last_position() >= max(positions([*stored, *elsewhere]))


async def test_the_last_position_up_to_an_id_leaves_out_later_threads(
    journal: Journal, chat: Chat
) -> None:
    """A generator of the present is not seeded with what a wrong clock left."""
    await chat.exchange()
    last = await journal.last_position()
    years = timedelta(days=6_000)
    later = Chat(journal, ticking_ids(2, START + years), chat.now + years, "later")
    await (await later.begin()).exchange()
    assert await journal.last_position() > last
    assert await journal.last_position(latest=latest_id(chat.now)) == last
    assert await journal.last_position(latest=1) == 0


async def test_an_empty_journal_has_no_last_position(journal: Journal, chat: Chat) -> None:
    """Threads without messages do not count."""
    assert chat.thread_id == "chat"
    assert await journal.last_position() == 0


async def test_a_restart_with_the_clock_set_back_repeats_no_id(
    journal: Journal, now: datetime
) -> None:
    """A generator seeded with the last position gives no id that the journal holds, timers too."""
    millis = int(START.timestamp() * 1000)
    fast = SnowflakeGenerator(node=5, clock=lambda: millis)
    before = await Chat(journal, fast, now, "before").begin()
    await before.exchange()
    used = await before.arm(HOUR)
    slow = SnowflakeGenerator(
        node=5, last=await journal.last_position(), clock=lambda: millis - 3_600_000
    )
    after = await Chat(journal, slow, now, "after").begin()
    assert (await after.arm(HOUR)).id > used.id


async def test_a_restart_with_the_clock_set_back_repeats_no_memorys_id(
    journal: Journal, now: datetime
) -> None:
    """Memories belong to no thread, but their ids come from the same generators."""
    millis = int(START.timestamp() * 1000)
    before = SnowflakeGenerator(node=5, clock=lambda: millis)
    await (await Chat(journal, before, now).begin()).exchange()
    used = await journal.put_memory(NewMemory("guide", "ada", "a", "A."), ids=before, now=now)
    after = SnowflakeGenerator(
        node=5, last=await journal.last_position(), clock=lambda: millis - 3_600_000
    )
    new = await journal.put_memory(NewMemory("guide", "bob", "b", "B."), ids=after, now=now)
    assert new.id != used.id

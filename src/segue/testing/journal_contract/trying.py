"""What is counted of a turn's tries: faults of its own, and the time that workers had it."""

# ruff: noqa: S101 - these are tests

from datetime import datetime, timedelta

import pytest

from segue.journal.ports import Journal
from segue.journal.records import TurnLease
from segue.testing.journal_contract.chat import HOUR, LEASE, Chat

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)


async def test_only_what_a_turn_broke_itself_is_its_fault(journal: Journal, chat: Chat) -> None:
    """A hand-back and a lease that ran out are interruptions; a turn says which of both it had."""
    await chat.say()
    first = (await chat.take_turn()).turn
    assert (first.faults, first.interruptions) == (0, 0)
    await journal.release_turn(await _again(chat), now=chat.now)
    await journal.release_turn(await chat.take_turn(), now=chat.now, is_fault=True)
    turn = (await chat.take_turn()).turn
    assert (turn.attempts, turn.faults, turn.interruptions) == (4, 1, 2)


async def test_a_try_that_is_handed_back_counts_up_to_then(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """Time in the queue does not count, before the first try and between two."""
    await chat.say()
    chat.now = now + HOUR
    first = await chat.take_turn()
    assert (first.turn.begun_at, first.turn.worked) == (chat.now, timedelta(0))
    later = chat.now + 5 * SECOND
    await journal.release_turn(first, now=later, retry_at=later + HOUR)
    chat.now = later + 2 * HOUR
    assert (await chat.take_turn()).turn.worked == 5 * SECOND


async def test_the_pause_after_a_fault_counts(journal: Journal, chat: Chat, now: datetime) -> None:
    """The turn itself made it necessary."""
    await chat.say()
    lease = await chat.take_turn()
    at = now + 9 * SECOND
    await journal.release_turn(lease, now=now + 5 * SECOND, retry_at=at, is_fault=True)
    chat.now = now + HOUR
    assert (await chat.take_turn()).turn.worked == 9 * SECOND


async def test_a_try_whose_worker_died_counts_up_to_its_last_sign_of_life(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """However long no worker was there, that time is not the turn's."""
    await chat.say()
    lease = await chat.take_turn()
    await journal.extend_turn(lease, now=now + LEASE / 2, lease_for=LEASE)
    chat.now = now + HOUR
    turn = (await chat.take_turn()).turn
    assert (turn.worked, turn.begun_at) == (LEASE / 2, chat.now)
    chat.now += HOUR
    assert (await chat.take_turn()).turn.worked == LEASE / 2  # this one gave no sign at all


async def _again(chat: Chat) -> TurnLease:
    """Take the turn of a worker that was not heard of again."""
    chat.now += LEASE
    return await chat.take_turn()

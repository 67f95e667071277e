"""What a clock that was ahead left: leases last from now on, messages show the right time."""

from datetime import datetime, timedelta

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from segue.core.metadata import MessageMetadata
from segue.errors import ConflictError
from segue.journal.journal import Journal
from segue.journal.records import Claimed, EffectLease
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat, positions
from segue.testing.journal_contract.fixtures import START, ticking_ids

pytestmark = pytest.mark.anyio

SKEW = timedelta(seconds=5)
SHORT = LEASE / 2  # the lease of the process that looks: each process may have a length of its own


async def test_a_turn_leased_by_a_clock_that_was_ahead_is_taken_when_its_lease_is_over(
    journal: Journal, chat: Chat
) -> None:
    """A thread waits for one lease, and not for as long as the clock of a dead worker was ahead."""
    await chat.say()
    chat.now = NOW + HOUR
    lost = await chat.take_turn("worker-a")
    assert await journal.turns.next_at(now=NOW) == NOW
    claimed = await journal.turns.claim("worker-b", now=NOW, lease_for=SHORT, limit=2)
    assert claimed == Claimed([], NOW + LEASE)
    assert await journal.turns.next_at(now=NOW) == NOW + LEASE
    taken = await journal.turns.claim_one("worker-b", now=NOW + LEASE, lease_for=SHORT)
    assert taken is not None
    assert taken.turn.id == lost.turn.id
    with pytest.raises(ConflictError):
        await chat.finish(lost, AIMessage("Yes."))
    chat.now = NOW + LEASE
    await chat.finish(taken, AIMessage("Yes."))


async def test_a_worker_whose_clock_is_ahead_keeps_a_turn_that_it_extends(
    journal: Journal, chat: Chat
) -> None:
    """A worker that is alive is not robbed, by however much its clock is wrong."""
    await chat.say()
    chat.now = NOW + HOUR
    lease = await chat.take_turn("worker-a")
    for passed in (LEASE / 2, LEASE, 3 * LEASE / 2):
        assert await journal.turns.claim_one("worker-b", now=NOW + passed, lease_for=SHORT) is None
        await journal.turns.extend(lease, now=NOW + HOUR + passed, lease_for=LEASE)
    await chat.finish(lease, AIMessage("Yes."))


async def test_a_timer_leased_by_a_clock_that_was_ahead_is_taken_when_its_lease_is_over(
    journal: Journal, chat: Chat
) -> None:
    """A follow-up is not put off for as long as the clock of a dead worker was ahead."""
    await chat.arm()
    chat.now = NOW + HOUR
    lost = await chat.take_timer("worker-a")
    assert await journal.timers.claim_due("worker-b", now=NOW, lease_for=SHORT) == []
    assert await journal.timers.next_at() == NOW + LEASE
    [taken] = await journal.timers.claim_due("worker-b", now=NOW + LEASE, lease_for=SHORT)
    with pytest.raises(ConflictError):
        await chat.fire(lost)
    chat.now = NOW + LEASE
    assert await chat.fire(taken) is not None


async def test_an_effect_leased_by_a_clock_that_was_ahead_is_taken_when_its_lease_is_over(
    journal: Journal, chat: Chat
) -> None:
    """A webhook is not put off for as long as the clock of a dead worker was ahead."""
    await chat.queue_effect()
    chat.now = NOW + HOUR
    lost = await chat.take_effect("worker-a")
    assert await journal.effects.next_at("webhook", now=NOW) == NOW
    assert await _claim_effects(journal, NOW) == []
    assert await journal.effects.next_at("webhook", now=NOW) == NOW + LEASE
    [taken] = await _claim_effects(journal, NOW + LEASE)
    with pytest.raises(ConflictError):
        await journal.effects.complete(lost)
    await journal.effects.complete(taken)


async def test_leases_of_a_clock_a_few_seconds_ahead_last_to_their_end(chat: Chat) -> None:
    """The clocks of healthy hosts differ a little, and nothing is written for that."""
    await chat.queue_effect()
    await chat.say()
    await chat.arm()
    chat.now = NOW + SKEW
    await chat.take_turn("worker-a")
    await chat.take_timer("worker-a")
    await chat.take_effect("worker-a")
    claimed = await chat.journal.turns.claim("worker-b", now=NOW, lease_for=SHORT, limit=2)
    assert claimed == Claimed([], NOW + SKEW + LEASE)
    assert await chat.journal.timers.claim_due("worker-b", now=NOW, lease_for=SHORT) == []
    assert await chat.journal.timers.next_at() == NOW + SKEW + LEASE
    assert await chat.journal.effects.next_at("webhook", now=NOW) == NOW + SKEW + LEASE


async def test_messages_above_a_position_of_the_future_keep_the_time_of_storing(chat: Chat) -> None:
    """Their positions go on rising, and what is shown as their time is when they came."""
    years = timedelta(days=6_000)
    wrong = Chat(chat.journal, ticking_ids(2, START + years), NOW + years, chat.thread_id)
    await wrong.exchange()
    accepted = await chat.say()
    lease = await chat.take_turn()
    await chat.write(
        lease, AIMessage("Let me see.", tool_calls=[{"name": "a", "args": {}, "id": "1"}])
    )
    await chat.finish(lease, ToolMessage("ok", tool_call_id="1"), AIMessage("Yes."))
    await chat.follow_up()
    messages = await chat.messages()
    assert [MessageMetadata.of(m).created_at for m in messages[2:]] == [NOW] * 5
    assert MessageMetadata.of(accepted.message).created_at == NOW
    assert min(positions(messages[2:])) > max(positions(messages[:2]))
    assert all(MessageMetadata.of(m).stored_at is None for m in messages[:2])


async def _claim_effects(journal: Journal, now: datetime) -> list[EffectLease]:
    return await journal.effects.claim("worker-b", kind="webhook", now=now, lease_for=SHORT)

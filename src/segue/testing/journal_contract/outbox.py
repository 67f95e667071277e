"""Effects: done at least once, tried again, given up and revived."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest
from langchain_core.messages import AIMessage

from segue.errors import ConflictError
from segue.journal.effects import EffectLease
from segue.journal.journal import Journal
from segue.journal.records import EffectState, NewEffect
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat

SECOND = timedelta(seconds=1)


async def due_effects(
    journal: Journal, now: datetime, owner: str = "worker-a", limit: int = 20
) -> list[EffectLease]:
    return await journal.effects.claim(owner, kind="webhook", now=now, lease_for=LEASE, limit=limit)


async def queue(chat: Chat, *keys: str) -> None:
    await chat.say()
    effects = [NewEffect("webhook", {"key": key}, key) for key in keys]
    await chat.finish(await chat.take_turn(), AIMessage("Yes."), effects=effects)


async def test_an_effect_can_be_claimed_once_its_turn_is_finished(chat: Chat) -> None:
    """It comes with its payload and thread, leased to the worker that claimed it."""
    payload = {"url": "https://example.org/🙂", "n": 2**63 - 1, "deep": [{"x": None}]}
    await chat.queue_effect("reply-1", **payload)
    [lease] = await due_effects(chat.journal, NOW, "worker-b")
    effect = lease.effect
    assert (lease.owner, lease.until) == ("worker-b", NOW + LEASE)
    assert (effect.thread_id, effect.kind, effect.dedupe_key) == ("chat", "webhook", "reply-1")
    assert effect.payload == payload
    assert (effect.state, effect.attempts, effect.error) == (EffectState.CLAIMED, 1, None)
    assert (effect.due_at, effect.created_at) == (NOW, NOW)
    assert await due_effects(chat.journal, NOW) == []


async def test_an_effect_with_a_used_key_is_not_queued_again(journal: Journal, chat: Chat) -> None:
    """The same effect of a repeated turn, or twice in one list, is done once."""
    await queue(chat, "reply-1", "reply-1")
    [lease] = await due_effects(journal, NOW)
    await journal.effects.complete(lease)
    await queue(chat, "reply-1", "reply-2")
    assert [e.effect.dedupe_key for e in await due_effects(journal, NOW)] == ["reply-2"]


async def test_a_completed_effect_is_over(journal: Journal, chat: Chat) -> None:
    """It is neither claimed again nor revived; the evidence, if there is any, is kept."""
    await queue(chat, "reply-1", "reply-2")
    first, second = await due_effects(journal, NOW)
    assert first.effect.evidence is None
    await journal.effects.complete(first, "HTTP 200 🙂\x00")
    await journal.effects.complete(second)
    with pytest.raises(ConflictError):
        await journal.effects.revive(first.effect.id, now=NOW)
    assert await due_effects(journal, NOW + HOUR) == []
    assert await journal.effects.list_dead() == []
    proven, plain = sorted(await journal.effects.list_of("chat"), key=lambda e: e.dedupe_key)
    assert (proven.state, plain.state) == (EffectState.DONE, EffectState.DONE)
    assert proven.evidence is not None
    assert proven.evidence.startswith("HTTP 200 🙂")
    assert plain.evidence is None


async def test_a_threads_effects_are_listed_newest_first(journal: Journal, chat: Chat) -> None:
    """With what became of them, up to a limit, and without those of other threads."""
    await queue(chat, "reply-1", "reply-2", "reply-3")
    await queue(await chat.another("second"), "reply-4")
    done, dead = await due_effects(journal, NOW, limit=2)
    await journal.effects.complete(done)
    await journal.effects.retry(dead, "HTTP 410", retry_at=None)
    listed = await journal.effects.list_of("chat")
    assert [effect.dedupe_key for effect in listed] == ["reply-3", "reply-2", "reply-1"]
    states = [effect.state for effect in listed]
    assert states == [EffectState.PENDING, EffectState.DEAD, EffectState.DONE]
    assert await journal.effects.list_of("chat", limit=1) == listed[:1]


async def test_an_effect_to_retry_waits_for_its_time(journal: Journal, chat: Chat) -> None:
    """A worker can sleep until one is queued, is to be retried, or its lease has run out."""

    async def next_at() -> datetime | None:
        return await journal.effects.next_at("webhook", now=NOW)

    assert await next_at() is None
    await queue(chat, "reply-1")
    assert await next_at() == NOW
    [late] = await due_effects(journal, NOW, "worker-a")
    assert await next_at() == NOW + LEASE
    assert await due_effects(journal, NOW + LEASE - SECOND) == []
    [lease] = await due_effects(journal, NOW + LEASE, "worker-b")
    assert lease.token != late.token
    effect = await journal.effects.retry(lease, "HTTP 503", retry_at=NOW + HOUR)
    assert (effect.state, effect.error) == (EffectState.PENDING, "HTTP 503")
    assert (effect.due_at, effect.attempts) == (NOW + HOUR, 2)
    assert await next_at() == NOW + HOUR
    assert await due_effects(journal, NOW + HOUR - SECOND) == []
    [again] = await due_effects(journal, NOW + HOUR)
    assert again.effect.attempts == 3
    await journal.effects.complete(again)
    assert await next_at() is None


async def test_an_effect_that_was_given_up_is_kept(journal: Journal, chat: Chat) -> None:
    """It is listed with its error, up to a limit, and due again only when it is revived."""
    await queue(chat, "reply-1", "reply-2")
    for lease in await due_effects(journal, NOW):
        dead = await journal.effects.retry(lease, "HTTP 410", retry_at=None)
        assert (dead.state, dead.error) == (EffectState.DEAD, "HTTP 410")
    assert dead in await journal.effects.list_dead()
    assert len(await journal.effects.list_dead(limit=1)) == 1
    assert await due_effects(journal, NOW + HOUR) == []
    revived = await journal.effects.revive(dead.id, now=NOW + HOUR)
    assert (revived.state, revived.attempts) == (EffectState.PENDING, 0)
    assert revived.due_at == NOW + HOUR
    assert len(await journal.effects.list_dead()) == 1
    [again] = await due_effects(journal, NOW + HOUR)
    assert again.effect.id == dead.id


LATE_EFFECT_STEPS: dict[str, Callable[[Journal, EffectLease, datetime], Awaitable[object]]] = {
    "complete": lambda j, lease, _: j.effects.complete(lease, "late"),
    "retry": lambda j, lease, now: j.effects.retry(lease, "late", retry_at=now),
    "give up": lambda j, lease, _: j.effects.retry(lease, "late", retry_at=None),
}


@pytest.mark.parametrize("taken_over", [True, False], ids=["taken over", "completed"])
async def test_whoever_lost_an_effect_changes_nothing(chat: Chat, taken_over: bool) -> None:
    """Every step with a lease that no longer counts is refused and has no effect."""
    await queue(chat, "reply-1")
    [late] = await due_effects(chat.journal, NOW, "worker-a")
    if taken_over:
        [current] = await due_effects(chat.journal, NOW + LEASE, "worker-b")
    else:
        await chat.journal.effects.complete(late)
    for name, step in LATE_EFFECT_STEPS.items():
        with pytest.raises(ConflictError, match="Nothing was written"):
            await step(chat.journal, late, NOW)
        assert await chat.journal.effects.list_dead() == [], name
        assert [effect.evidence for effect in await chat.journal.effects.list_of("chat")] == [None]
        assert await due_effects(chat.journal, NOW + LEASE) == [], name
    if taken_over:
        await chat.journal.effects.complete(current)


async def test_effects_are_claimed_in_order_up_to_the_limit(journal: Journal, chat: Chat) -> None:
    """Those that have waited longest go first, and a batch of work has a size."""
    for n in range(3):
        chat.now = NOW + n * SECOND
        await queue(chat, f"reply-{n}")
    first = await due_effects(journal, NOW + HOUR, limit=2)
    assert [lease.effect.dedupe_key for lease in first] == ["reply-0", "reply-1"]
    [last] = await due_effects(journal, NOW + HOUR, limit=2)
    assert last.effect.dedupe_key == "reply-2"


async def test_each_kind_of_effect_has_its_own_line(journal: Journal, chat: Chat) -> None:
    """A worker of one kind gets no other, and learns when the next of that kind is due."""
    await chat.say()
    effects = [NewEffect(kind, {}, kind) for kind in ("webhook", "decide")]
    await chat.finish(await chat.take_turn(), AIMessage("Yes."), effects=effects)
    [lease] = await journal.effects.claim("worker-a", kind="decide", now=NOW, lease_for=LEASE)
    assert lease.effect.kind == "decide"
    assert await journal.effects.next_at("decide", now=NOW) == NOW + LEASE
    assert await journal.effects.next_at("webhook", now=NOW) == NOW
    assert await journal.effects.next_at("post", now=NOW) is None
    assert [lease.effect.kind for lease in await due_effects(journal, NOW)] == ["webhook"]


async def test_effects_of_some_agents_can_be_left_for_later(journal: Journal, chat: Chat) -> None:
    """However many of theirs wait, the others' are found, and the time when they are due."""
    await queue(chat, *[f"reply-{n}" for n in range(5)])
    other = await chat.another("second", agent_id="clerk")
    other.now = NOW + SECOND
    await queue(other, "of the clerk")
    busy = ["guide", "nobody"]
    assert await journal.effects.next_at("webhook", now=NOW, not_of=busy) == NOW + SECOND
    [lease] = await journal.effects.claim(
        "worker-a", kind="webhook", now=NOW + SECOND, lease_for=LEASE, limit=3, not_of=busy
    )
    assert (lease.agent_id, lease.effect.dedupe_key) == ("clerk", "of the clerk")
    assert await journal.effects.next_at("webhook", now=NOW, not_of=["guide", "clerk"]) is None
    assert {lease.agent_id for lease in await due_effects(journal, NOW)} == {"guide"}


async def test_two_workers_never_get_the_same_effect(crowd: list[Chat]) -> None:
    """Handles that claim at the same time share the outbox without overlap."""
    keys = [f"reply-{n}" for n in range(8)]
    await queue(crowd[0], *keys)
    claimed = await asyncio.gather(
        *(due_effects(each.journal, NOW, f"worker-{n}", limit=3) for n, each in enumerate(crowd))
    )
    taken = [lease.effect.dedupe_key for leases in claimed for lease in leases]
    assert len(taken) == len(set(taken))
    taken += [lease.effect.dedupe_key for lease in await due_effects(crowd[0].journal, NOW)]
    assert sorted(taken) == keys

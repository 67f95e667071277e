"""The queue of turns: who gets which, and how a turn ends."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from langchain_core.messages import AIMessage

from segue.core.batch import BatchState, settle
from segue.core.messages import synthetic_message, visible_messages
from segue.errors import ConflictError, UnknownTrigger
from segue.journal.journal import Journal
from segue.journal.records import NewEffect, TurnLease, TurnState
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat, texts

SECOND = timedelta(seconds=1)
EFFECT = NewEffect("webhook", {"url": "https://example.org"}, "reply-1")


async def test_a_threads_turns_are_taken_in_order_of_arrival(journal: Journal, chat: Chat) -> None:
    """One at a time: the next message waits until the one before it is answered."""
    expected = [(await chat.say(f"Question {n}?")).turn.id for n in range(3)]
    taken = []
    for _ in expected:
        lease = await chat.take_turn()
        taken.append(lease.turn.id)
        assert await chat.next_turn() is None
        assert await journal.turns.next_at(now=NOW) == lease.until
        await chat.finish(lease, AIMessage("Yes."))
    assert taken == expected
    assert [turn.id for turn in await chat.turns()] == expected[::-1]
    assert [t.id for t in await journal.turns.list_of("chat", limit=1)] == expected[-1:]


async def test_an_extended_lease_lasts_longer(journal: Journal, chat: Chat) -> None:
    """A worker that is still busy keeps its turn."""
    lease = await chat.running_reply()
    extended = await journal.turns.extend(lease, now=NOW + LEASE / 2, lease_for=LEASE)
    assert extended.until == NOW + LEASE * 1.5
    assert await chat.next_turn(NOW + LEASE, "worker-b") is None
    await journal.turns.finish(extended, ids=chat.ids, now=NOW)


async def test_two_workers_never_run_one_thread(crowd: list[Chat]) -> None:
    """Of several turns of one thread, claimed at the same time, one is given out."""
    for n in range(4):
        await crowd[0].say(f"Question {n}?")
    leases = await asyncio.gather(*(each.next_turn() for each in crowd))
    assert len([lease for lease in leases if lease is not None]) == 1


async def test_a_released_turn_can_be_taken_at_once(chat: Chat) -> None:
    """Or when it is to be tried again; others are served meanwhile, those behind it wait."""
    lease = await chat.running_reply("First.")
    await chat.say("Second.")
    await chat.release(lease)
    assert (await chat.turn(lease.turn.id)).state is TurnState.QUEUED
    again = await chat.take_turn("worker-b")
    assert (again.turn.id, again.turn.attempts) == (lease.turn.id, 2)
    other = await (await chat.another("second")).say("Third.")
    await chat.release(again, retry_at=NOW + HOUR)
    assert (await chat.turn(lease.turn.id)).available_at == NOW + HOUR
    taken = await chat.next_turn()
    assert taken is not None
    assert taken.turn.id == other.turn.id
    await chat.finish(taken, AIMessage("Yes."))
    assert await chat.next_turn(NOW + HOUR - SECOND) is None
    late = await chat.next_turn(NOW + HOUR)
    assert late is not None
    assert late.turn.id == lease.turn.id


async def test_finishing_stores_messages_and_effects_with_the_end(chat: Chat) -> None:
    """The last words, what follows from them and the end of the turn come together."""
    accepted = await chat.say()
    lease = await chat.take_turn()
    stored = await chat.finish(lease, AIMessage("Yes."), effects=[EFFECT])
    assert texts(stored) == ["Yes."]
    assert (await chat.batch(accepted.turn.batch)).is_complete
    assert (await chat.turn(lease.turn.id)).state is TurnState.DONE
    assert (await chat.take_effect()).effect.payload == EFFECT.payload


async def test_a_refused_finish_leaves_the_turn_running(journal: Journal, chat: Chat) -> None:
    """If a last message cannot be stored, neither those before it, effects nor the end are."""
    lease = await chat.running_reply()
    bad = synthetic_message("check_in")
    bad.additional_kwargs["trigger_type"] = "full_moon"
    with pytest.raises(UnknownTrigger):
        await chat.finish(lease, AIMessage("Good."), bad, effects=[EFFECT])
    with pytest.raises(UnknownTrigger):
        await chat.write(lease, AIMessage("Good."), bad)
    assert texts(await chat.messages()) == ["Is it open?"]
    assert await journal.effects.next_at("webhook", now=chat.now) is None
    assert (await chat.turn(lease.turn.id)).state is TurnState.RUNNING
    await chat.finish(lease, AIMessage("Yes."))


async def test_a_failed_turn_says_why_and_is_not_taken_again(chat: Chat) -> None:
    """What settles its batch is stored and not shown; the thread goes on with its next turn."""
    accepted = await chat.say("First.")
    second = await chat.say("Second.")
    lease = await chat.take_turn()
    call = AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": "call_1"}])
    await chat.write(lease, call)
    batch = await chat.batch(accepted.turn.batch)
    closing = settle(batch, chat.ids).messages[len(batch.messages) :]
    await chat.fail(lease, "Timed out.", *closing)
    failed = await chat.turn(lease.turn.id)
    assert (failed.state, failed.error) == (TurnState.FAILED, "Timed out.")
    settled = await chat.batch(batch.id)
    assert settled.state is BatchState.COMPLETE
    assert len(settled.messages) == 4
    assert texts(visible_messages(settled.messages)) == ["First."]
    assert (await chat.take_turn()).turn.id == second.turn.id


async def test_showing_a_turn_is_noted_once(journal: Journal, chat: Chat) -> None:
    """The first time counts, also when the turn is shown again after a retry."""
    lease = await chat.running_reply()
    await journal.turns.show(lease, now=NOW + SECOND)
    await journal.turns.show(lease, now=NOW + HOUR)
    assert (await chat.turn(lease.turn.id)).shown_at == NOW + SECOND


LATE_STEPS: dict[str, Callable[[Chat, TurnLease], Awaitable[object]]] = {
    "append": lambda chat, lease: chat.write(lease, AIMessage("Late.")),
    "extend": lambda chat, lease: chat.journal.turns.extend(lease, now=chat.now, lease_for=HOUR),
    "show": Chat.show,
    "release": Chat.release,
    "finish": lambda chat, lease: chat.finish(lease, AIMessage("Late."), effects=[EFFECT]),
    "fail": lambda chat, lease: chat.fail(lease, "late", AIMessage("Late.")),
    "withdraw": Chat.withdraw,
    "save partial": lambda chat, lease: chat.journal.turns.save_draft(lease, "m-1", "Late"),
}


@pytest.mark.parametrize("taken_over", [True, False], ids=["taken over", "finished"])
async def test_whoever_lost_a_turn_changes_nothing(chat: Chat, taken_over: bool) -> None:
    """Every step with a lease that no longer counts is refused and has no effect."""
    late = await chat.running_reply()
    if taken_over:
        await chat.next_turn(chat.now + LEASE, "worker-b")
    else:
        await chat.finish(late, AIMessage("Yes."))
    turn, messages = await chat.turn(late.turn.id), await chat.messages()
    events = await chat.journal.feed.read("chat")
    chat.now += LEASE
    for name, step in LATE_STEPS.items():
        with pytest.raises(ConflictError, match="Nothing was written"):
            await step(chat, late)
        assert await chat.turn(late.turn.id) == turn, name
        assert await chat.messages() == messages, name
        assert await chat.journal.feed.read("chat") == events, name
        assert await chat.journal.effects.next_at("webhook", now=chat.now) is None, name


async def test_what_waits_behind_a_void_turn_moves_up(journal: Journal, chat: Chat) -> None:
    """When the user's message voids a running follow-up, the reply can be taken at once."""
    await chat.running_follow_up()
    accepted = await chat.say()
    assert await journal.turns.next_at(now=NOW) == NOW
    assert (await chat.take_turn("worker-b")).turn.id == accepted.turn.id


async def test_new_threads_do_not_starve_old_ones(journal: Journal, chat: Chat) -> None:
    """A thread that was served before waits no longer than those that came after it."""
    await chat.exchange()
    waiting = await chat.say()
    for n in range(3):
        newcomer = Chat(journal, chat.ids, NOW + (n + 1) * LEASE, f"new-{n}")
        await (await newcomer.begin()).say()
    lease = await chat.take_turn("worker-a", NOW + 9 * LEASE)
    assert lease.turn.id == waiting.turn.id

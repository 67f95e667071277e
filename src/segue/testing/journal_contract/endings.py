"""The end of a turn, with all that follows from it, and decisions on record."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.errors import ConflictError, NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import NewEffect, NewTimer, StateValue, TimerKind, TimerState, TurnState
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat, texts

# A follow-up that was not shown can end in all three ways.
ENDS: dict[str, Callable[..., Awaitable[object]]] = {
    "finish": Chat.finish,
    "fail": Chat.fail,
    "withdraw": Chat.withdraw,
}


def check_in(now: datetime, thread_id: str = "chat") -> NewTimer:
    return NewTimer(thread_id, now + HOUR, "check_in", reason="asked to", payload={"n": 1})


@pytest.mark.parametrize("end", ENDS)
async def test_all_that_follows_is_stored_with_the_end(chat: Chat, end: str) -> None:
    """Effects, timers, decisions, words and preferences, whichever way a turn ends."""
    lease = await chat.running_follow_up()
    made = chat.decision()
    ending: dict[str, Any] = {
        "effects": [NewEffect("webhook", {"n": 1}, "key-1")],
        "timers": [check_in(NOW)],
        "decisions": [made],
        "says": {"why": "over"},
        "preferences": {"opted_out": True, "muted": None},
    }
    user = (await chat.thread()).user_id
    before = {"muted": True, "time_zone": "Europe/Oslo"}
    await chat.journal.users.update_settings(user, before, now=NOW)
    await ENDS[end](chat, lease, **ending)
    settings = await chat.journal.users.get_settings(user)
    assert settings == {"opted_out": True, "time_zone": "Europe/Oslo"}
    turn = await chat.turn(lease.turn.id)
    assert turn.state in (TurnState.DONE, TurnState.FAILED, TurnState.VOID)
    assert turn.ending == {"why": "over"}
    assert turn.end_position is not None
    assert turn.end_position > turn.id
    assert (await chat.take_effect()).effect.dedupe_key == "key-1"
    timer = (await chat.timers())[0]
    assert (timer.state, timer.due_at) == (TimerState.PENDING, NOW + HOUR)
    assert (timer.reason, timer.payload) == ("asked to", {"n": 1})
    assert timer.epoch == turn.epoch
    assert await chat.decisions() == [made]


@pytest.mark.parametrize("end", ENDS)
async def test_an_end_that_cannot_be_stored_is_none(journal: Journal, chat: Chat, end: str) -> None:
    """With a decision that is there already, the turn runs on and nothing else is stored."""
    made = chat.decision()
    await journal.decisions.record(made)
    lease = await chat.running_follow_up()
    await journal.turns.save_draft(lease, "m-1", "Still")
    before = await chat.thread(), await chat.timers()
    ending: dict[str, Any] = {
        "effects": [NewEffect("webhook", {}, "key-1")],
        "timers": [check_in(NOW)],
        "decisions": [made],
        "says": {"why": "over"},
    }
    with pytest.raises(ConflictError, match="Nothing was written"):
        await ENDS[end](chat, lease, **ending)
    assert await chat.turn(lease.turn.id) == lease.turn
    assert (await chat.thread(), await chat.timers()) == before
    assert await journal.effects.list_of("chat") == []
    await journal.turns.extend(lease, now=NOW, lease_for=LEASE)


async def test_the_end_comes_after_the_last_message(chat: Chat) -> None:
    """Its place is above what was stored with it, and below what comes later."""
    lease = await chat.running_reply()
    [last] = await chat.finish(lease, AIMessage("Yes."), says={})
    later = await chat.say()
    end = (await chat.turn(lease.turn.id)).end_position
    assert end is not None
    assert last.additional_kwargs["position"] < end < later.message.additional_kwargs["position"]


# A follow-up that could be withdrawn is void by then.
@pytest.mark.parametrize("end", ["finish", "fail"])
async def test_no_follow_up_is_armed_once_the_user_wrote(chat: Chat, end: str) -> None:
    """It would be on what is no longer the last word; all else of the end is stored."""
    lease = await chat.running_reply("First.")
    await chat.say("Second.")
    made = chat.decision()
    await ENDS[end](chat, lease, timers=[check_in(NOW)], decisions=[made], says={})
    assert await chat.timers() == []
    assert await chat.decisions() == [made]
    assert (await chat.turn(lease.turn.id)).ending == {}


async def test_a_continuation_is_armed_though_the_user_wrote(chat: Chat) -> None:
    """What an answer still has to do is done, whatever was said since."""
    accepted = await chat.say("First.")
    lease = await chat.take_turn()
    await chat.say("Second.")
    going_on = NewTimer("chat", NOW, kind=TimerKind.CONTINUATION, batch=accepted.turn.batch)
    await chat.finish(lease, AIMessage("More soon."), timers=[going_on, check_in(NOW)])
    [timer] = await chat.timers()
    assert (timer.kind, timer.batch) == (TimerKind.CONTINUATION, accepted.turn.batch)
    assert timer.state is TimerState.PENDING


async def test_a_follow_up_armed_with_an_end_replaces_the_live_one(chat: Chat) -> None:
    """A thread has one, however it was armed."""
    await chat.say()
    old = await chat.arm(2 * HOUR)
    await chat.finish(await chat.take_turn(), AIMessage("Yes."), timers=[check_in(NOW)])
    new, replaced = await chat.timers()
    assert (replaced.id, replaced.state) == (old.id, TimerState.CANCELLED)
    assert (new.state, new.due_at) == (TimerState.PENDING, NOW + HOUR)


@pytest.mark.parametrize("end", ENDS)
async def test_a_timer_that_cannot_be_right_is_refused_with_the_end(chat: Chat, end: str) -> None:
    """One of another thread, or one that could not fire; the turn runs on."""
    await chat.another("second")
    lease = await chat.running_follow_up()
    fields: list[dict[str, Any]] = [
        {"thread_id": "second"},
        {"trigger_type": None},
        {"trigger_type": "a sneeze"},
        {"batch": 7},
    ]
    for wrong in fields:
        timer = replace(check_in(NOW), **wrong)
        with pytest.raises(UsageError):
            await ENDS[end](chat, lease, timers=[timer], says={})
    assert await chat.turn(lease.turn.id) == lease.turn
    assert await chat.journal.timers.list_of("second") == []


async def test_a_continuation_of_an_unknown_batch_is_not_armed_with_an_end(chat: Chat) -> None:
    """The turn and its messages are not stored either."""
    lease = await chat.running_reply()
    timer = NewTimer("chat", NOW, kind=TimerKind.CONTINUATION, batch=chat.ids.next())
    with pytest.raises(NotFoundError):
        await chat.finish(lease, AIMessage("More soon."), timers=[timer])
    assert (await chat.turn(lease.turn.id)).state is TurnState.RUNNING
    assert texts(await chat.messages()) == ["Is it open?"]


async def test_a_failed_turn_can_wait_for_an_answer(chat: Chat) -> None:
    """Whether to try again is a question like any other."""
    lease = await chat.running_reply()
    await chat.fail(lease, is_waiting=True)
    assert (await chat.turn(lease.turn.id)).is_waiting
    assert (await chat.answer(lease.turn.id, "again")).payload


async def test_decisions_are_listed_newest_first(chat: Chat) -> None:
    """As they were made, those of one thread, as many as asked for."""
    await chat.another("second")
    decisions, made = chat.journal.decisions, [chat.decision(timer_id=2**63 - 1) for _ in range(3)]
    for each in (*made, chat.decision(thread_id="second")):
        await decisions.record(each)
    assert await decisions.list_of(chat.thread_id) == made[::-1]
    assert await decisions.list_of(chat.thread_id, limit=1) == made[-1:]


async def test_a_decision_is_not_overwritten(chat: Chat) -> None:
    """A second decision with the id of the first is refused."""
    made = chat.decision(timer_id=2**63 - 1)
    await chat.journal.decisions.record(made)
    with pytest.raises(ConflictError):
        await chat.journal.decisions.record(replace(made, outcome="allow"))
    assert await chat.decisions() == [made]


STATE = {
    "plan": StateValue("msgpack", "list", b"\x00\xff"),
    "turns": StateValue("msgpack", "int", b"1"),
}


async def test_the_state_of_a_graph_is_stored_with_the_end(chat: Chat) -> None:
    """Each value comes back byte by byte; a change leaves the others, and None removes one."""
    await chat.finish(await chat.running_reply("Hello."), state=STATE)
    assert await chat.journal.states.load(chat.thread_id) == STATE
    await chat.say("Again.")
    later = StateValue("msgpack", "str", b"2")
    change = {"turns": later, "plan": None}
    await chat.finish(await chat.take_turn(), state=change)
    assert await chat.journal.states.load(chat.thread_id) == {"turns": later}
    with pytest.raises(NotFoundError):
        await chat.journal.states.load("another")


async def test_retention_leaves_the_state(chat: Chat) -> None:
    """It is what the graph goes on with, like the newest batch, which stays, too."""
    old = await chat.exchange()
    await chat.finish(await chat.running_reply("Hello."), state=STATE)
    assert (await chat.journal.removal.remove_batches(chat.thread_id, [old])).batches == 1
    assert await chat.journal.states.load(chat.thread_id) == STATE


@pytest.mark.parametrize("end", ["fail", "withdraw"])
async def test_only_a_turn_that_is_done_changes_the_state(chat: Chat, end: str) -> None:
    """What a graph computed in a turn that ended otherwise is forgotten."""
    await ENDS[end](chat, await chat.running_follow_up(), state=STATE)
    assert await chat.journal.states.load(chat.thread_id) == {}


async def test_a_lost_lease_changes_no_state(chat: Chat) -> None:
    """A process that was too slow does not overwrite what its successor may store."""
    lost = await chat.running_reply("Hello.")
    chat.now += 2 * LEASE
    await chat.take_turn()
    with pytest.raises(ConflictError):
        await chat.finish(lost, state=STATE)
    assert await chat.journal.states.load(chat.thread_id) == {}

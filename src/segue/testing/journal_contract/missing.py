"""What is not there is `NotFoundError`, in every step."""

# ruff: noqa: S101 - tests assert

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

import pytest
from langchain_core.messages import AIMessage

from segue.core.errors import NotFoundError
from segue.core.messages import synthetic_message, user_message
from segue.core.snowflake import SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.records import (
    Decision,
    NewTimer,
    Summary,
    TimerState,
)
from segue.testing.journal_contract.chat import LEASE, Chat

NOWHERE = "nowhere"

Step = Callable[[Journal, SnowflakeSource, datetime], Awaitable[object]]

STEPS: dict[str, Step] = {
    "get_thread": lambda j, _, __: j.get_thread(NOWHERE),
    "update_thread": lambda j, _, __: j.update_thread(NOWHERE, title="New"),
    "note_typing": lambda j, _, now: j.note_typing(NOWHERE, now=now),
    "delete_thread": lambda j, _, __: j.delete_thread(NOWHERE),
    "accept_message": lambda j, ids, now: j.accept_message(
        NOWHERE, user_message("Hello?"), ids=ids, now=now, client_message_id="c-1"
    ),
    "import_messages": lambda j, _, __: j.import_messages(NOWHERE, []),
    "load_batch": lambda j, ids, _: j.load_batch(NOWHERE, ids.next()),
    "load_batches": lambda j, ids, _: j.load_batches(NOWHERE, [ids.next()]),
    "tail": lambda j, _, __: j.tail(NOWHERE, max_tokens=100),
    "list_live_batches": lambda j, _, __: j.list_live_batches(NOWHERE),
    "events": lambda j, _, __: j.events(NOWHERE),
    "window": lambda j, _, __: j.window(NOWHERE, max_tokens=100),
    "history": lambda j, _, __: j.history(NOWHERE),
    "search": lambda j, _, __: j.search("ada", "open", thread_id=NOWHERE),
    "list_turns": lambda j, _, __: j.list_turns(NOWHERE),
    "cancel_turns": lambda j, ids, now: j.cancel_turns(NOWHERE, ids=ids, now=now),
    "count_follow_ups": lambda j, _, now: j.count_follow_ups(NOWHERE, day_began=now),
    "list_effects": lambda j, _, __: j.list_effects(NOWHERE),
    "arm_timer": lambda j, ids, now: j.arm_timer(
        NewTimer(NOWHERE, now, "check_in"), ids=ids, now=now
    ),
    "cancel_timers": lambda j, ids, now: j.cancel_timers(NOWHERE, "muted", ids=ids, now=now),
    "list_timers": lambda j, _, __: j.list_timers(NOWHERE),
    "record_decision": lambda j, ids, now: j.record_decision(
        Decision(ids.next(), NOWHERE, "gates", "allow", (), {}, None, None, now)
    ),
    "list_decisions": lambda j, _, __: j.list_decisions(NOWHERE),
    "save_summary": lambda j, ids, now: j.save_summary(
        NOWHERE, "Asked.", [ids.next()], ids=ids, now=now
    ),
    "remove_batches": lambda j, ids, _: j.remove_batches(NOWHERE, [ids.next()]),
    "find_summary": lambda j, _, __: j.find_summary(NOWHERE),
    "undo_summary": lambda j, ids, now: j.undo_summary(
        Summary(ids.next(), NOWHERE, "Asked.", 1, 1, (1,), None, now)
    ),
}


@pytest.mark.parametrize("step", STEPS)
async def test_an_unknown_thread_is_not_found(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime, step: str
) -> None:
    """No step invents a thread or takes a wrong id for an empty one."""
    with pytest.raises(NotFoundError, match=NOWHERE):
        await STEPS[step](journal, ids, now)
    assert [thread.id for thread in await journal.list_threads("ada")] == [chat.thread_id]


async def test_an_unknown_turn_is_not_found(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """Neither can it be read, nor can anything be done with a lease for it."""
    await chat.say()
    lease = await chat.take_turn()
    unknown = replace(lease, turn=replace(lease.turn, id=ids.next()))
    with pytest.raises(NotFoundError):
        await journal.get_turn(unknown.turn.id)
    with pytest.raises(NotFoundError):
        await chat.write(unknown, AIMessage("Yes."))
    with pytest.raises(NotFoundError):
        await journal.extend_turn(unknown, now=now, lease_for=LEASE)
    with pytest.raises(NotFoundError):
        await journal.save_partial(unknown, "m-1", "Let me")
    with pytest.raises(NotFoundError):
        await journal.withdraw_turn(unknown, "muted", ids=ids, now=now)
    with pytest.raises(NotFoundError):
        await journal.answer_turn(unknown.turn.id, "yes", ids=ids, now=now)


async def test_an_unknown_timer_is_not_found(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """A lease for a timer that is not there fires, postpones and closes nothing."""
    await chat.arm()
    lease = await chat.take_timer()
    unknown = replace(lease, timer=replace(lease.timer, id=ids.next()))
    with pytest.raises(NotFoundError):
        await journal.fire_timer(unknown, synthetic_message("check_in"), ids=ids, now=now)
    with pytest.raises(NotFoundError):
        await journal.postpone_timer(unknown, now, "busy", now=now)
    with pytest.raises(NotFoundError):
        await journal.close_timer(unknown, TimerState.MISSED, "late", ids=ids, now=now)


async def test_an_unknown_effect_is_not_found(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """An effect that is not there is neither completed, nor tried again, nor revived."""
    await chat.queue_effect()
    lease = await chat.take_effect()
    unknown = replace(lease, effect=replace(lease.effect, id=ids.next()))
    with pytest.raises(NotFoundError):
        await journal.complete_effect(unknown)
    with pytest.raises(NotFoundError):
        await journal.retry_effect(unknown, "late", retry_at=now)
    with pytest.raises(NotFoundError):
        await journal.revive_effect(unknown.effect.id, now=now)

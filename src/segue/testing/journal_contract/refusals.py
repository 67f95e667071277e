"""Invalid input and unknown ids are refused with a helpful error, and nothing changes."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from segue.core.messages import synthetic_message, user_message
from segue.core.snowflake import MAX_ID, SnowflakeSource
from segue.errors import NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.journal.memories import MemorySearch, NewMemory
from segue.journal.records import Decision, NewTimer, Summary, TimerKind, TimerState, TurnState
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat

NOWHERE = "nowhere"
Step = Callable[[Journal, SnowflakeSource, datetime], Awaitable[object]]
STEPS: dict[str, Step] = {
    "get_thread": lambda j, _, __: j.threads.get(NOWHERE),
    "update_thread": lambda j, _, __: j.threads.update(NOWHERE, title="New"),
    "note_typing": lambda j, _, now: j.threads.note_typing(NOWHERE, now=now),
    "delete_thread": lambda j, _, __: j.threads.delete(NOWHERE),
    "accept_message": lambda j, ids, now: j.inbox.accept(
        NOWHERE, user_message("Hello?"), ids=ids, now=now, client_message_id="c-1"
    ),
    "import_messages": lambda j, _, __: j.messages.import_messages(NOWHERE, []),
    "load_batch": lambda j, ids, _: j.messages.load_batch(NOWHERE, ids.next()),
    "load_batches": lambda j, ids, _: j.messages.load_batches(NOWHERE, [ids.next()]),
    "tail": lambda j, _, __: j.messages.tail(NOWHERE, max_tokens=100),
    "list_live_batches": lambda j, _, __: j.messages.list_live_batches(NOWHERE),
    "events": lambda j, _, __: j.feed.read(NOWHERE),
    "window": lambda j, _, __: j.messages.window(NOWHERE, max_tokens=100),
    "history": lambda j, _, __: j.messages.history(NOWHERE),
    "search": lambda j, _, __: j.search.find("ada", "open", thread_id=NOWHERE),
    "list_turns": lambda j, _, __: j.turns.list_of(NOWHERE),
    "cancel_turns": lambda j, ids, now: j.turns.cancel(NOWHERE, ids=ids, now=now),
    "count_follow_ups": lambda j, _, now: j.timers.count_follow_ups(NOWHERE, day_began=now),
    "list_effects": lambda j, _, __: j.effects.list_of(NOWHERE),
    "arm_timer": lambda j, ids, now: j.timers.arm(
        NewTimer(NOWHERE, now, "check_in"), ids=ids, now=now
    ),
    "cancel_timers": lambda j, ids, now: j.timers.cancel(NOWHERE, "muted", ids=ids, now=now),
    "list_timers": lambda j, _, __: j.timers.list_of(NOWHERE),
    "record_decision": lambda j, ids, now: j.decisions.record(
        Decision(ids.next(), NOWHERE, "gates", "allow", (), {}, None, None, now)
    ),
    "list_decisions": lambda j, _, __: j.decisions.list_of(NOWHERE),
    "save_summary": lambda j, ids, now: j.summaries.save(
        NOWHERE, "Asked.", [ids.next()], ids=ids, now=now
    ),
    "remove_batches": lambda j, ids, _: j.removal.remove_batches(NOWHERE, [ids.next()]),
    "find_summary": lambda j, _, __: j.summaries.find(NOWHERE),
    "undo_summary": lambda j, ids, now: j.summaries.undo(
        Summary(ids.next(), NOWHERE, "Asked.", 1, 1, (1,), None, now)
    ),
}


@pytest.mark.parametrize(
    "message", [synthetic_message("check_in"), AIMessage("Yes.")], ids=["trigger", "answer"]
)
async def test_only_a_users_own_words_are_accepted(chat: Chat, message: HumanMessage) -> None:
    """A trigger let in by the user's door would raise the epoch and void live timers."""
    timer = await chat.arm(HOUR)
    with pytest.raises(UsageError, match="Nothing was written"):
        await chat.journal.inbox.accept("chat", message, ids=chat.ids, now=NOW)
    assert await chat.journal.timers.list_of("chat") == [timer]
    assert (await chat.journal.threads.get("chat")).epoch == 0
    assert await chat.messages() == []


async def test_a_timer_fires_only_what_is_marked(chat: Chat, ids: SnowflakeSource) -> None:
    """A message without the mark would be shown as the user's own; the timer stays claimed."""
    await chat.arm()
    lease = await chat.take_timer()
    with pytest.raises(UsageError, match="Nothing was written"):
        await chat.journal.timers.fire(lease, user_message("Hello?"), ids=ids, now=NOW)
    assert await chat.messages() == []
    [timer] = await chat.journal.timers.list_of("chat")
    assert timer.state is TimerState.CLAIMED
    assert await chat.fire(lease) is not None


async def test_a_timer_that_could_not_fire_is_not_armed(chat: Chat) -> None:
    """What would fail later, in a worker, is refused while the caller can read the error."""
    timer = await chat.arm(HOUR)
    wrong: list[dict[str, Any]] = [
        {"trigger_type": None},
        {"trigger_type": "a sneeze"},
        {"batch": 1},
        {"kind": TimerKind.CONTINUATION, "trigger_type": None},
        {"kind": TimerKind.REMINDER, "trigger_type": None},
        {"kind": TimerKind.EVENT, "batch": 1},
    ]
    for fields in wrong:
        with pytest.raises(UsageError):
            await chat.arm(**fields)
    elsewhere = await (await chat.another("second")).exchange()
    for batch in (chat.ids.next(), elsewhere):
        with pytest.raises(NotFoundError, match=str(batch)):
            await chat.arm(trigger_type=None, kind=TimerKind.CONTINUATION, batch=batch)
    assert await chat.journal.timers.list_of("chat") == [timer]


async def test_a_time_without_a_zone_is_refused(chat: Chat, ids: SnowflakeSource) -> None:
    """Its moment is not known, and a guess would be wrong by hours on another machine."""
    naive = NOW.replace(tzinfo=None)
    timer = NewTimer("chat", naive, "check_in")
    with pytest.raises(UsageError, match="no time zone"):
        await chat.journal.timers.arm(timer, ids=ids, now=NOW)
    with pytest.raises(UsageError, match="no time zone"):
        await chat.journal.inbox.accept("chat", user_message("Hello?"), ids=ids, now=naive)
    with pytest.raises(UsageError, match="no time zone"):
        await chat.journal.turns.claim_one("worker-a", now=naive, lease_for=LEASE)
    assert await chat.journal.timers.list_of("chat") == []
    assert await chat.messages() == []


@pytest.mark.parametrize(
    ("embedding", "model"),
    [([], "m"), ([float("nan"), 1.0], "m"), ([1e39, 1.0], "m"), ([1.0, 0.0], None), (None, "m")],
    ids=["empty", "not a number", "too large", "of an unnamed model", "a model without a vector"],
)
async def test_an_embedding_that_cannot_be_compared_is_refused(
    journal: Journal, ids: SnowflakeSource, embedding: Sequence[float] | None, model: str | None
) -> None:
    """One such vector would spoil the order of all others in its namespace."""
    vector: dict[str, Any] = {"embedding": embedding, "embedding_model": model}
    with pytest.raises(UsageError, match="embedding"):
        await journal.memories.put(
            NewMemory("guide", "ada", "tea", "Likes tea.", **vector), ids=ids, now=NOW
        )
    assert await journal.memories.count("guide", "ada") == 0
    if embedding is None:
        return
    with pytest.raises(UsageError, match="embedding"):
        await journal.memories.search(MemorySearch("guide", "ada", "tea", **vector))
    plain = NewMemory("guide", "ada", "tea", "Likes tea.")
    memory = await journal.memories.put(plain, ids=ids, now=NOW)
    with pytest.raises(UsageError, match="embedding"):
        await journal.memories.set_embedding(memory, embedding, model or "")
    assert await journal.memories.list_of("guide", "ada") == [memory]


async def test_a_message_cannot_choose_its_batch(chat: Chat, ids: SnowflakeSource) -> None:
    """A message that names the batch of another thread does not get into it."""
    batch = await chat.exchange()
    await chat.another("second", user_id="bo")
    intruder = HumanMessage("Hello!", additional_kwargs={"batch": batch, "sequence_num": 8})
    with pytest.raises(UsageError, match="Nothing was written"):
        await chat.journal.inbox.accept("second", intruder, ids=ids, now=NOW)
    assert len(await chat.journal.messages.list_batch("guide", batch)) == 2


class Odd(AIMessage):
    """A kind of message that only one program knows."""

    type: str = "odd"  # type: ignore[assignment]  # that is what is wrong with it


async def test_a_message_that_could_not_be_read_again_is_refused(chat: Chat) -> None:
    """Stored, it would keep its batch from ever being read, and its turn from ending."""
    await chat.say()
    lease = await chat.take_turn()
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for message in (Odd(content="?"), AIMessage("", additional_kwargs={"deep": deep})):
        with pytest.raises(UsageError, match="Nothing was written"):
            await chat.write(lease, message)
    await chat.finish(lease, AIMessage("Yes."))
    assert (await chat.journal.turns.get(lease.turn.id)).state is TurnState.DONE


async def test_a_lease_without_a_sane_end_is_refused(chat: Chat) -> None:
    """A lease that ends at once protects nothing, and one for ever would outlive its worker."""
    await chat.say()
    await chat.arm()
    for lasting in (timedelta(0), -LEASE, timedelta.max):
        with pytest.raises(UsageError, match="lease"):
            await chat.journal.turns.claim_one("worker-a", now=NOW, lease_for=lasting)
        with pytest.raises(UsageError, match="lease"):
            await chat.journal.timers.claim_due("worker-a", now=NOW, lease_for=lasting)
    await chat.take_turn()
    await chat.take_timer()


async def test_a_time_beyond_all_calendars_is_refused(journal: Journal, chat: Chat) -> None:
    """One turn that is to be tried again in the year 1 must not stop all others."""
    await chat.say()
    lease = await chat.take_turn()
    for year in (1, 9999):
        odd = NOW.replace(year=year)
        with pytest.raises(UsageError, match="1970"):
            await journal.turns.release(lease, now=NOW, retry_at=odd)
    await chat.finish(lease, AIMessage("Yes."))


async def test_a_position_at_the_end_of_all_ids_is_not_imported(
    journal: Journal, chat: Chat
) -> None:
    """Nothing could be stored after it, in this thread and in those of later processes."""
    last = {"position": MAX_ID, "batch": MAX_ID, "sequence_num": 0}
    with pytest.raises(UsageError, match="Nothing was written"):
        await journal.messages.import_messages("chat", [HumanMessage("?", additional_kwargs=last)])
    assert (await chat.say()).is_new
    assert await journal.messages.tail("chat", max_tokens=100, current_batch=MAX_ID)
    assert (await journal.messages.history("chat", after=MAX_ID)).messages == []


async def test_an_unknown_thread_is_not_found(chat: Chat, ids: SnowflakeSource) -> None:
    """No step invents a thread or takes a wrong id for an empty one."""
    for step in STEPS.values():
        with pytest.raises(NotFoundError, match=NOWHERE):
            await step(chat.journal, ids, NOW)
    assert [thread.id for thread in await chat.journal.threads.list_of("ada")] == [chat.thread_id]


async def test_an_unknown_turn_timer_or_effect_is_not_found(chat: Chat) -> None:
    """It cannot be read, and a lease for it does nothing."""
    ids, journal = chat.ids, chat.journal
    await chat.queue_effect()
    await chat.say()
    await chat.arm()
    turn, timer, effect = await chat.take_turn(), await chat.take_timer(), await chat.take_effect()
    turn = replace(turn, turn=replace(turn.turn, id=ids.next()))
    timer = replace(timer, timer=replace(timer.timer, id=ids.next()))
    effect = replace(effect, effect=replace(effect.effect, id=ids.next()))
    steps: list[Awaitable[object]] = [
        journal.turns.get(turn.turn.id),
        chat.write(turn, AIMessage("Yes.")),
        journal.turns.extend(turn, now=NOW, lease_for=LEASE),
        journal.turns.save_draft(turn, "m-1", "Let me"),
        journal.turns.withdraw(turn, "muted", ids=ids, now=NOW),
        journal.inbox.answer(turn.turn.id, "yes", ids=ids, now=NOW),
        journal.timers.fire(timer, synthetic_message("check_in"), ids=ids, now=NOW),
        journal.timers.postpone(timer, NOW, "busy", now=NOW),
        journal.timers.close(timer, TimerState.MISSED, "late", ids=ids, now=NOW),
        journal.effects.complete(effect),
        journal.effects.retry(effect, "late", retry_at=NOW),
        journal.effects.revive(effect.effect.id, now=NOW),
    ]
    for step in steps:
        with pytest.raises(NotFoundError):
            await step

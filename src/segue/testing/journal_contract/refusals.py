"""Invalid input and unknown ids are refused with a helpful error, and nothing changes."""

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from segue.core.messages import synthetic_message, user_message
from segue.core.snowflake import MAX_ID, SnowflakeSource
from segue.errors import NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.journal.memories import MemorySearch, NewMemory
from segue.journal.records import NewTimer, Summary, TimerKind, TimerState, TurnState
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, USER, Chat


@pytest.mark.parametrize(
    "message", [synthetic_message("check_in"), AIMessage("Yes.")], ids=["trigger", "answer"]
)
async def test_only_a_users_own_words_are_accepted(chat: Chat, message: HumanMessage) -> None:
    """A trigger let in by the user's door would raise the epoch and void live timers."""
    timer = await chat.arm(HOUR)
    with pytest.raises(UsageError, match="Nothing was written"):
        await chat.say(message)
    assert await chat.timers() == [timer]
    assert (await chat.thread()).epoch == 0
    assert await chat.messages() == []


async def test_a_timer_fires_only_what_is_marked(chat: Chat) -> None:
    """A message without the mark would be shown as the user's own; the timer stays claimed."""
    lease = await chat.claimed_timer()
    with pytest.raises(UsageError, match="Nothing was written"):
        await chat.fire(lease, user_message("Hello?"))
    assert await chat.messages() == []
    [timer] = await chat.timers()
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
    assert await chat.timers() == [timer]


async def test_a_time_without_a_zone_is_refused(chat: Chat, ids: SnowflakeSource) -> None:
    """Its moment is not known, and a guess would be wrong by hours on another machine."""
    naive = NOW.replace(tzinfo=None)
    timer = NewTimer("chat", naive, "check_in")
    with pytest.raises(UsageError, match="no time zone"):
        await chat.journal.timers.arm(timer, ids=ids, now=NOW)
    with pytest.raises(UsageError, match="no time zone"):
        await chat.journal.inbox.accept("chat", user_message("Hello?"), ids=ids, now=naive)
    with pytest.raises(UsageError, match="no time zone"):
        await chat.next_turn(naive)
    assert await chat.timers() == []
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
    lease = await chat.running_reply()
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for message in (Odd(content="?"), AIMessage("", additional_kwargs={"deep": deep})):
        with pytest.raises(UsageError, match="Nothing was written"):
            await chat.write(lease, message)
    await chat.finish(lease, AIMessage("Yes."))
    assert (await chat.turn(lease.turn.id)).state is TurnState.DONE


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


async def test_a_time_beyond_all_calendars_is_refused(chat: Chat) -> None:
    """One turn that is to be tried again in the year 1 must not stop all others."""
    lease = await chat.running_reply()
    for year in (1, 9999):
        odd = NOW.replace(year=year)
        with pytest.raises(UsageError, match="1970"):
            await chat.release(lease, retry_at=odd)
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


async def test_an_unknown_thread_is_not_found(chat: Chat) -> None:
    """No step invents a thread or takes a wrong id for an empty one."""
    journal, nowhere = chat.journal, Chat(chat.journal, chat.ids, NOW, "nowhere")
    unknown = chat.ids.next()
    steps: list[Awaitable[object]] = [
        nowhere.thread(),
        journal.threads.update("nowhere", title="New"),
        journal.threads.note_typing("nowhere", now=NOW),
        journal.threads.delete("nowhere"),
        nowhere.say(client_message_id="c-1"),
        journal.messages.import_messages("nowhere", []),
        nowhere.batch(unknown),
        journal.messages.load_batches("nowhere", [unknown]),
        nowhere.messages(),
        journal.messages.list_live_batches("nowhere"),
        journal.feed.read("nowhere"),
        journal.messages.window("nowhere", max_tokens=100),
        nowhere.history(),
        journal.search.find(USER, "open", thread_id="nowhere"),
        nowhere.turns(),
        nowhere.cancel(),
        journal.timers.count_follow_ups("nowhere", day_began=NOW),
        journal.effects.list_of("nowhere"),
        nowhere.arm(),
        nowhere.drop("muted"),
        nowhere.timers(),
        journal.decisions.record(nowhere.decision()),
        nowhere.decisions(),
        nowhere.summarise("Asked.", [unknown]),
        journal.removal.remove_batches("nowhere", [unknown]),
        journal.summaries.find("nowhere"),
        journal.summaries.undo(Summary(unknown, "nowhere", "Asked.", 1, 1, (1,), None, NOW)),
    ]
    for step in steps:
        with pytest.raises(NotFoundError, match="nowhere"):
            await step
    assert [thread.id for thread in await journal.threads.list_of(USER)] == [chat.thread_id]


async def test_an_unknown_turn_timer_or_effect_is_not_found(chat: Chat) -> None:
    """It cannot be read, and a lease for it does nothing."""
    ids, journal = chat.ids, chat.journal
    await chat.queue_effect()
    await chat.say()
    turn, timer, effect = (
        await chat.take_turn(),
        await chat.claimed_timer(),
        await chat.take_effect(),
    )
    turn = replace(turn, turn=replace(turn.turn, id=ids.next()))
    timer = replace(timer, timer=replace(timer.timer, id=ids.next()))
    effect = replace(effect, effect=replace(effect.effect, id=ids.next()))
    steps: list[Awaitable[object]] = [
        chat.turn(turn.turn.id),
        chat.write(turn, AIMessage("Yes.")),
        journal.turns.extend(turn, now=NOW, lease_for=LEASE),
        journal.turns.save_draft(turn, "m-1", "Let me"),
        chat.withdraw(turn, "muted"),
        chat.answer(turn.turn.id, "yes"),
        chat.fire(timer),
        chat.postpone(timer, NOW, "busy"),
        chat.close(timer, TimerState.MISSED, "late"),
        journal.effects.complete(effect),
        journal.effects.retry(effect, "late", retry_at=NOW),
        journal.effects.revive(effect.effect.id, now=NOW),
    ]
    for step in steps:
        with pytest.raises(NotFoundError):
            await step

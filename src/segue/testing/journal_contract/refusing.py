"""What cannot be right is refused with words that help, and changes nothing."""

# ruff: noqa: S101 - tests assert

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from segue.core.errors import NotFoundError, UsageError
from segue.core.messages import synthetic_message, user_message
from segue.core.snowflake import MAX_ID, SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.records import (
    MemorySearch,
    NewMemory,
    NewTimer,
    TimerState,
    TurnKind,
    TurnState,
)
from segue.testing.journal_contract.chat import HOUR, LEASE, Chat


@pytest.mark.parametrize(
    "message", [synthetic_message("check_in"), AIMessage("Yes.")], ids=["trigger", "answer"]
)
async def test_only_a_users_own_words_are_accepted(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime, message: HumanMessage
) -> None:
    """A trigger let in by the user's door would raise the epoch and void live timers."""
    timer = await chat.arm(HOUR)
    with pytest.raises(UsageError, match="Nothing was written"):
        await journal.accept_message("chat", message, ids=ids, now=now)
    assert await journal.list_timers("chat") == [timer]
    assert (await journal.get_thread("chat")).epoch == 0
    assert await chat.messages() == []


async def test_a_timer_fires_only_what_is_marked(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """A message without the mark would be shown as the user's own; the timer stays claimed."""
    await chat.arm()
    lease = await chat.take_timer()
    with pytest.raises(UsageError, match="Nothing was written"):
        await journal.fire_timer(lease, user_message("Hello?"), ids=ids, now=now)
    assert await chat.messages() == []
    [timer] = await journal.list_timers("chat")
    assert timer.state is TimerState.CLAIMED
    assert await chat.fire(lease) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"trigger_type": None},
        {"trigger_type": "sneeze"},
        {"batch": 1},
        {"kind": TurnKind.CONTINUATION, "trigger_type": None},
        {"kind": TurnKind.REPLY},
        {"kind": TurnKind.REPLY, "batch": 1},
    ],
    ids=[
        "no trigger",
        "unknown trigger",
        "follow-up in a batch",
        "continuation of nothing",
        "reply",
        "reply in a batch",
    ],
)
async def test_a_timer_that_could_not_fire_is_not_armed(
    journal: Journal, chat: Chat, fields: dict[str, Any]
) -> None:
    """What would fail in the night is refused while somebody is there to read the error."""
    timer = await chat.arm(HOUR)
    with pytest.raises(UsageError):
        await chat.arm(**fields)
    assert await journal.list_timers("chat") == [timer]


async def test_a_continuation_of_an_unknown_batch_is_not_armed(
    journal: Journal, chat: Chat, ids: SnowflakeSource
) -> None:
    """A batch of another thread is unknown too."""
    elsewhere = await (await chat.another("second")).exchange()
    for batch in (ids.next(), elsewhere):
        with pytest.raises(NotFoundError, match=str(batch)):
            await chat.arm(trigger_type=None, kind=TurnKind.CONTINUATION, batch=batch)
    assert await journal.list_timers("chat") == []


async def test_a_time_without_a_zone_is_refused(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """Nobody knows when it is, and a guess would be wrong by hours on another machine."""
    naive = now.replace(tzinfo=None)
    timer = NewTimer("chat", naive, "check_in")
    with pytest.raises(UsageError, match="no time zone"):
        await journal.arm_timer(timer, ids=ids, now=now)
    with pytest.raises(UsageError, match="no time zone"):
        await journal.accept_message("chat", user_message("Hello?"), ids=ids, now=naive)
    with pytest.raises(UsageError, match="no time zone"):
        await journal.claim_turn("worker-a", now=naive, lease_for=LEASE)
    assert await journal.list_timers("chat") == []
    assert await chat.messages() == []


@pytest.mark.parametrize(
    ("embedding", "model"),
    [([], "m"), ([float("nan"), 1.0], "m"), ([1e39, 1.0], "m"), ([1.0, 0.0], None)],
    ids=["empty", "not a number", "too large", "of an unnamed model"],
)
async def test_an_embedding_that_cannot_be_compared_is_refused(
    journal: Journal,
    ids: SnowflakeSource,
    now: datetime,
    embedding: Sequence[float],
    model: str | None,
) -> None:
    """One such vector would spoil the order of all others in its namespace."""
    memory = NewMemory(
        "guide", "ada", "tea", "Likes tea.", embedding=embedding, embedding_model=model
    )
    with pytest.raises(UsageError, match="embedding"):
        await journal.put_memory(memory, ids=ids, now=now)
    assert await journal.count_memories("guide", "ada") == 0
    query = MemorySearch("guide", "ada", "tea", embedding=embedding, embedding_model=model)
    with pytest.raises(UsageError, match="embedding"):
        await journal.search_memories(query)


async def test_a_models_name_without_a_vector_is_refused(
    journal: Journal, ids: SnowflakeSource, now: datetime
) -> None:
    """It would pass for an embedding, and the memory would never get one."""
    memory = NewMemory("guide", "ada", "tea", "Likes tea.", embedding_model="m")
    with pytest.raises(UsageError, match="embedding"):
        await journal.put_memory(memory, ids=ids, now=now)


async def test_a_message_cannot_choose_its_batch(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """Whoever names the batch of somebody else does not get into it."""
    batch = await chat.exchange()
    await chat.another("second", user_id="bo")
    intruder = HumanMessage("Hello!", additional_kwargs={"batch": batch, "sequence_num": 8})
    with pytest.raises(UsageError, match="Nothing was written"):
        await journal.accept_message("second", intruder, ids=ids, now=now)
    assert len(await journal.list_batch("guide", batch)) == 2


class Odd(AIMessage):
    """A kind of message that only one program knows."""

    type: str = "odd"  # type: ignore[assignment]  # that is what is wrong with it


async def test_a_message_that_could_not_be_read_again_is_refused(
    journal: Journal, chat: Chat
) -> None:
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
    assert (await journal.get_turn(lease.turn.id)).state is TurnState.DONE


@pytest.mark.parametrize("lasting", [timedelta(0), -LEASE, timedelta.max])
async def test_a_lease_without_a_sane_end_is_refused(
    journal: Journal, chat: Chat, now: datetime, lasting: timedelta
) -> None:
    """One that is over at once is nobody's, and one for ever would outlive its worker."""
    await chat.say()
    await chat.arm()
    with pytest.raises(UsageError, match="lease"):
        await journal.claim_turn("worker-a", now=now, lease_for=lasting)
    with pytest.raises(UsageError, match="lease"):
        await journal.claim_due_timers("worker-a", now=now, lease_for=lasting)
    await chat.take_turn()
    await chat.take_timer()


async def test_a_time_beyond_all_calendars_is_refused(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """One turn that is to be tried again in the year 1 must not stop all others."""
    await chat.say()
    lease = await chat.take_turn()
    for year in (1, 9999):
        odd = now.replace(year=year)
        with pytest.raises(UsageError, match="1970"):
            await journal.release_turn(lease, now=now, retry_at=odd)
    await chat.finish(lease, AIMessage("Yes."))


async def test_a_position_at_the_end_of_all_ids_is_not_imported(
    journal: Journal, chat: Chat
) -> None:
    """Nothing could be stored after it, in this thread and in those of later processes."""
    last = {"position": MAX_ID, "batch": MAX_ID, "sequence_num": 0}
    with pytest.raises(UsageError, match="Nothing was written"):
        await journal.import_messages("chat", [HumanMessage("?", additional_kwargs=last)])
    assert (await chat.say()).is_new
    assert await journal.tail("chat", max_tokens=100, current_batch=MAX_ID)
    assert (await journal.history("chat", after=MAX_ID)).messages == []

"""Reading batches: the tail for a context, one batch, and those that are not finished."""

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from segue.core.batch import Batch, BatchState
from segue.core.metadata import MessageMetadata
from segue.core.tokens import estimate_tokens
from segue.errors import NotFoundError
from segue.journal.journal import Journal
from segue.journal.records import WINDOW_BYTES, TurnState
from segue.testing.journal_contract.chat import NOW, Chat, texts

PLENTY = 1_000_000


def cost(batch: Batch) -> int:
    return sum(estimate_tokens(message) for message in batch.messages)


def call_and_result(*, goes_on: bool = False) -> list[BaseMessage]:
    call = AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": "call_1"}])
    result = ToolMessage("found", tool_call_id="call_1")
    return [call, MessageMetadata(continue_requested=goes_on).onto(result)]


async def test_the_tail_is_whole_batches_newest_first(journal: Journal, chat: Chat) -> None:
    """Each batch comes with all of its messages in sequence, hidden ones too."""
    first = await chat.exchange("First.", "Done.")
    second = await chat.follow_up()
    lease = await chat.take_turn()
    await chat.write(lease, *call_and_result())
    await chat.finish(lease, AIMessage("Still there?"))
    tail = await journal.messages.tail("chat", max_tokens=PLENTY)
    assert [batch.id for batch in tail] == [second.batch, first]
    assert texts(tail[0].messages)[1:] == ["", "found", "Still there?"]
    assert [MessageMetadata.of(m).sequence_num for m in tail[0].messages] == [0, 1, 2, 3]
    assert texts(tail[1].messages) == ["First.", "Done."]


async def test_the_tail_ends_where_the_budget_is_reached(journal: Journal, chat: Chat) -> None:
    """Old batches beyond the budget are not read, but the budget can be filled."""
    batches = [await chat.exchange(f"Question {n}?", "word " * 20) for n in range(12)]
    tail = await journal.messages.tail("chat", max_tokens=100)
    assert 0 < len(tail) < 8
    assert sum(map(cost, tail)) >= 100
    assert [batch.id for batch in tail] == batches[: -len(tail) - 1 : -1]


async def test_the_tail_ends_after_a_number_of_bytes(journal: Journal, chat: Chat) -> None:
    """Pictures cost few tokens and many bytes; what no provider would take is not loaded."""
    for _ in range(4):
        await chat.say("A" * (WINDOW_BYTES * 9 // 20))
    batches = sorted(turn.batch for turn in await chat.turns())
    assert [b.id for b in await journal.messages.load_batches("chat", batches)] == batches[:3]
    for current in (None, batches[-1]):
        tail = await journal.messages.tail("chat", max_tokens=10**9, current_batch=current)
        assert len(tail) == 2
        window = await journal.messages.window("chat", max_tokens=10**9, current_batch=current)
        assert [batch.id for batch in window.batches] == [batch.id for batch in tail]


async def test_a_window_comes_with_the_settings(journal: Journal, chat: Chat) -> None:
    """Those of the thread and of its user, none of another; with them, a turn knows its zone."""
    await chat.exchange("Old.", "Yes.")
    empty = await journal.messages.window("chat", max_tokens=1)
    assert (empty.thread_settings, empty.user_settings) == ({}, {})
    user = (await chat.thread()).user_id
    await journal.users.update_settings(user, {"time_zone": "Europe/Berlin"}, now=NOW)
    await journal.users.update_settings("another", {"time_zone": "Asia/Tokyo"}, now=NOW)
    await journal.threads.update("chat", settings={"muted": True})
    for max_tokens in (1, PLENTY):
        window = await journal.messages.window("chat", max_tokens=max_tokens)
        assert window.thread_settings == {"muted": True}
        assert window.user_settings == {"time_zone": "Europe/Berlin"}


async def test_a_batch_larger_than_the_budget_is_not_cut(journal: Journal, chat: Chat) -> None:
    """The newest batch comes whole however small the budget is."""
    await chat.exchange("Old.", "Yes.")
    newest = await chat.exchange("word " * 500, "word " * 500)
    [batch] = await journal.messages.tail("chat", max_tokens=1)
    assert batch.id == newest
    assert len(batch.messages) == 2


async def test_a_long_tail_is_read_to_its_end(journal: Journal, chat: Chat) -> None:
    """With room for all, no batch is missing and none comes twice, however many there are."""
    batches = [await chat.exchange(f"Question {n}?", "Yes.") for n in range(40)]
    tail = await journal.messages.tail("chat", max_tokens=PLENTY)
    assert [batch.id for batch in tail] == batches[::-1]
    assert all(len(batch.messages) == 2 for batch in tail)


async def test_the_tail_ends_at_the_current_batch_and_the_summary(chat: Chat) -> None:
    """It has no other thread's batches and none without a budget, but unfinished ones."""
    messages = chat.journal.messages
    await (await chat.another("second")).exchange()
    assert await messages.tail("chat", max_tokens=PLENTY) == []
    batches = [await chat.exchange(f"Question {n}?", "Yes.") for n in range(3)]
    assert await messages.tail("chat", max_tokens=0) == []
    tail = await messages.tail("chat", max_tokens=PLENTY, current_batch=batches[1])
    assert [batch.id for batch in tail] == [batches[1], batches[0]]
    await chat.summarise("They asked.", batches[:2])
    accepted = await chat.say("And tomorrow?")
    newest, last = await messages.tail("chat", max_tokens=PLENTY)
    assert (newest.id, newest.state) == (accepted.turn.batch, BatchState.OPEN)
    assert last.id == batches[2]


async def test_a_batch_is_loaded_from_its_own_thread_only(journal: Journal, chat: Chat) -> None:
    """A batch's id is not a way into another conversation."""
    batch = await chat.exchange()
    await chat.another("second")
    assert texts((await chat.batch(batch)).messages) == ["Is it open?", "Yes."]
    with pytest.raises(NotFoundError):
        await journal.messages.load_batch("second", batch)
    with pytest.raises(NotFoundError):
        await chat.batch(batch + 1)


async def test_the_messages_of_a_batch_are_listed_for_its_agent_only(chat: Chat) -> None:
    """All messages of a batch come in sequence, and none to another agent."""
    await chat.another("lesson", agent_id="tutor")
    accepted = await chat.say()
    lease = await chat.take_turn()
    await chat.write(lease, *call_and_result())
    await chat.finish(lease, AIMessage("Yes."))
    listed = await chat.journal.messages.list_batch("guide", accepted.turn.batch)
    assert listed == await chat.messages()
    assert await chat.journal.messages.list_batch("tutor", accepted.turn.batch) == []
    assert await chat.journal.messages.list_batch("guide", accepted.turn.batch + 1) == []


async def test_unfinished_batches_are_listed_oldest_first(journal: Journal, chat: Chat) -> None:
    """An operator finds what is queued or half done of an agent, with the thread it is in."""
    second = await chat.another("second")
    await chat.another("lesson", agent_id="tutor")
    await chat.exchange("Answered.", "Yes.")
    waiting = await second.say("Not begun.")
    half = await chat.say("Half done.")
    lease = await second.take_turn()
    await second.write(lease, call_and_result()[0])
    found = await journal.messages.list_incomplete_batches("guide")
    assert [(thread_id, batch.id) for thread_id, batch in found] == [
        ("second", waiting.turn.batch),
        ("chat", half.turn.batch),
    ]
    assert found[0][1].state is BatchState.AWAITING_TOOLS
    [oldest] = await journal.messages.list_incomplete_batches("guide", limit=1)
    assert oldest[1].id == waiting.turn.batch
    assert await journal.messages.list_incomplete_batches("tutor") == []


@pytest.mark.parametrize("closed", [True, False])
async def test_a_batch_that_a_failure_left_open_is_listed(chat: Chat, closed: bool) -> None:
    """What counts is the batch, not how its turn ended."""
    accepted = await chat.say()
    sorry = [AIMessage("Something went wrong.")] if closed else []
    lease = await chat.take_turn()
    await chat.fail(lease, "timeout", *sorry)
    listed = await chat.journal.messages.list_incomplete_batches("guide")
    assert [batch.id for _, batch in listed] == ([] if closed else [accepted.turn.batch])


async def test_a_batch_that_waits_for_its_continuation_is_listed(chat: Chat) -> None:
    """Its turn is done, but the batch is not: an operator must see that it waits."""
    accepted = await chat.say()
    lease = await chat.take_turn()
    await chat.finish(lease, *call_and_result(goes_on=True), AIMessage("More soon."))
    assert (await chat.turn(lease.turn.id)).state is TurnState.DONE
    [(thread_id, batch)] = await chat.journal.messages.list_incomplete_batches("guide")
    assert (thread_id, batch.id) == ("chat", accepted.turn.batch)
    assert batch.state is BatchState.AWAITING_CONTINUATION


async def test_the_batch_of_a_void_follow_up_is_not_listed(journal: Journal, chat: Chat) -> None:
    """The user wrote, so no turn will continue it; what is left is the user's own batch."""
    await chat.follow_up()
    accepted = await chat.say()
    listed = await journal.messages.list_incomplete_batches("guide")
    assert [batch.id for _, batch in listed] == [accepted.turn.batch]

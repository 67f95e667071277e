"""Storing messages at the end of a batch, and importing those that have positions."""

import asyncio

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)

from segue.core.messages import synthetic_message, user_message
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.snowflake import time_of
from segue.core.stamp import stamp
from segue.errors import ConflictError, UsageError
from segue.journal.journal import Journal
from segue.testing.journal_contract.chat import HOUR, NOW, Chat, position, positions, texts
from segue.testing.journal_contract.fixtures import START, OpenJournal, ticking_ids


def call(call_id: str = "call_1") -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": call_id}])


def result(call_id: str = "call_1") -> ToolMessage:
    return ToolMessage("found", tool_call_id=call_id)


async def test_messages_are_returned_as_they_are_stored(
    open_journal: OpenJournal, chat: Chat
) -> None:
    """Every reader gets what the writer got: whole messages, numbered without a gap."""
    accepted = await chat.say()
    lease = await chat.take_turn()
    stored = await chat.write(lease, call())
    stored += await chat.write(lease, result(), AIMessage("One moment."))
    stored += await chat.finish(lease, AIMessageChunk(content="Yes."))
    assert type(stored[-1]) is AIMessage
    batch = await (await open_journal()).messages.load_batch("chat", accepted.turn.batch)
    assert batch.messages == [accepted.message, *stored]
    assert batch.is_complete
    placed = [MessageMetadata.of(m) for m in await chat.messages()]
    assert [m.sequence_num for m in placed] == [0, 1, 2, 3, 4]
    assert {m.batch for m in placed} == {accepted.turn.batch}
    assert {m.batch_type for m in placed} == {BatchType.USER_REQUEST}
    names = {m.id for m in batch.messages}
    assert len(names - {None, ""}) == 5


async def test_positions_rise_with_a_clock_that_is_an_hour_behind(
    open_journal: OpenJournal, journal: Journal, chat: Chat
) -> None:
    """A process with a slow clock still writes after everything in the thread."""
    behind = ticking_ids(node=2, start=START - HOUR)
    slow = Chat(await open_journal(), behind, NOW)
    await chat.exchange("First.", "Done.")
    await slow.exchange("Second.", "Done.")
    await chat.say("Third.")
    lease = await slow.take_turn()
    await slow.write(lease, call())
    await chat.write(lease, result())
    await slow.finish(lease, AIMessage("Fourth."))
    batches = await journal.messages.tail("chat", max_tokens=10_000)
    in_order = [m for batch in reversed(batches) for m in batch.messages]
    assert texts(in_order) == [
        "First.",
        "Done.",
        "Second.",
        "Done.",
        "Third.",
        "",
        "found",
        "Fourth.",
    ]
    assert positions(in_order) == sorted(set(positions(in_order)))
    page = await journal.messages.history("chat")
    assert texts(page.messages)[-1] == "Fourth."


async def test_turns_queue_in_order_of_arrival_whatever_the_clock(
    open_journal: OpenJournal, chat: Chat
) -> None:
    """A message accepted later by a process with a slow clock is answered later."""
    slow = Chat(await open_journal(), ticking_ids(node=2, start=START - HOUR), NOW)
    first, second = await chat.say("First."), await slow.say("Second.")
    for accepted in (first, second):
        lease = await chat.take_turn()
        assert lease.turn.id == accepted.turn.id
        await chat.finish(lease, AIMessage("Yes."))


async def test_a_step_that_is_repeated_stores_nothing_twice(chat: Chat) -> None:
    """A worker may write the same messages again, also twice at once; only new ones are stored."""
    lease = await chat.running_reply()
    messages = [call(), result(), AIMessage("Yes.")]
    named = [m.model_copy(update={"id": f"m-{n}"}) for n, m in enumerate(messages)]
    *first, again = await chat.write(lease, *named[:2], named[1])
    assert again == first[1]
    assert await chat.write(lease, *named[:2]) == first
    completed = await chat.write(lease, *named)
    assert completed[:2] == first
    await chat.finish(lease, named[-1])
    stored = await chat.messages()
    assert stored[1:] == completed
    assert [MessageMetadata.of(m).sequence_num for m in stored] == [0, 1, 2, 3]


async def test_a_stored_message_never_moves_to_another_thread(chat: Chat) -> None:
    """A message that has its place already is not given a second one."""
    await chat.exchange()
    moved = (await chat.messages())[-1]
    second = await chat.another("second")
    await second.say()
    with pytest.raises(ConflictError):
        await second.write(await second.take_turn(), moved)
    assert len(await second.messages()) == 1


async def test_a_user_may_speak_up_inside_a_batch(chat: Chat) -> None:
    """A person's words that a graph adds to the running batch are kept as a person's."""
    [stored] = await chat.write(await chat.running_reply(), user_message("Hurry, please."))
    assert isinstance(stored, HumanMessage)
    assert not MessageMetadata.of(stored).synthetic
    assert (await chat.thread()).message_count == 2


async def test_threads_written_at_once_stay_in_order(open_journal: OpenJournal, chat: Chat) -> None:
    """Workers on two threads do not disturb each other's places."""
    second = await chat.another("second")
    leases = [await chat.running_reply(), await second.running_reply()]
    handles = [chat.journal, await open_journal()]

    async def work(n: int) -> None:
        ids = ticking_ids(node=10 + n)
        for i in range(5):
            await handles[n].messages.append(leases[n], [AIMessage(f"Step {i}.")], ids=ids, now=NOW)

    await asyncio.gather(work(0), work(1))
    for thread in (chat, second):
        assert texts(await thread.messages())[1:] == [f"Step {i}." for i in range(5)]


async def test_an_id_that_a_provider_uses_again_is_another_message(chat: Chat) -> None:
    """The answer of the next batch is stored, and repeating the step does not store it twice."""
    await chat.finish(await chat.running_reply("One?"), AIMessage("First.", id="answer-1"))
    lease = await chat.running_reply("Two?")
    for _ in range(2):
        [stored] = await chat.write(lease, AIMessage("Second.", id="answer-1"))
    assert stored.id != "answer-1"
    history = await chat.history()
    assert texts(history) == ["One?", "First.", "Two?", "Second."]


def old_messages() -> list[BaseMessage]:
    """Two batches from an hour ago: a question with its answer, and a follow-up."""
    ids = ticking_ids(node=7, start=START - HOUR)
    asked = stamp([user_message("Is the mill open?"), AIMessage("Yes.")], ids)
    return [*asked, *stamp([synthetic_message("check_in"), AIMessage("Still there?")], ids)]


async def test_imported_messages_keep_their_places(journal: Journal, chat: Chat) -> None:
    """Nothing is imported twice, so that an import that was cut off can be repeated."""
    messages = old_messages()
    assert await journal.messages.import_messages("chat", messages[:2]) == 2
    assert await journal.messages.import_messages("chat", [*messages, messages[2]]) == 2
    before = await chat.thread()
    assert await journal.messages.import_messages("chat", iter(messages)) == 0
    assert await chat.thread() == before
    assert await chat.messages() == messages


async def test_imported_messages_appear_in_list_history_and_search(chat: Chat) -> None:
    """Title, preview, count, time, history and search follow the import, triggers left out."""
    await chat.journal.messages.import_messages("chat", old_messages())
    thread = await chat.thread()
    assert (thread.title, thread.preview) == ("Is the mill open?", "Still there?")
    assert (thread.message_count, thread.updated_at) == (3, START)
    page = await chat.journal.messages.history("chat")
    assert texts(page.messages) == ["Is the mill open?", "Yes.", "Still there?"]
    assert [f.text for f in await chat.journal.search.find("ada", "mill")] == ["Is the mill open?"]
    [late] = stamp([user_message("Later.")], ticking_ids(node=7, start=START + HOUR))
    await chat.journal.messages.import_messages("chat", [late])
    assert (await chat.thread()).updated_at == time_of(position(late))


async def test_new_messages_come_after_imported_ones(journal: Journal, chat: Chat) -> None:
    """Positions go on above the newest import, even if that is from the future."""
    ids = ticking_ids(node=7, start=START + HOUR)
    await journal.messages.import_messages(
        "chat", stamp([user_message("Later."), AIMessage("Ok.")], ids)
    )
    await chat.exchange()
    stored = await chat.messages()
    assert texts(stored)[:2] == ["Later.", "Ok."]
    assert positions(stored) == sorted(set(positions(stored)))


async def test_an_old_import_does_not_become_the_preview(journal: Journal, chat: Chat) -> None:
    """The preview is the newest message by position, not the one stored last."""
    await chat.exchange("And tomorrow?", "Closed.")
    await journal.messages.import_messages("chat", old_messages())
    thread = await chat.thread()
    assert (thread.preview, thread.preview_role, thread.message_count) == ("Closed.", "ai", 5)


async def test_the_order_of_an_import_does_not_matter(journal: Journal, chat: Chat) -> None:
    """Messages may come newest first; the thread is the same."""
    later = stamp([user_message("And the mine?"), AIMessage("No.")], ticking_ids(node=7))
    messages = [*old_messages(), *later]
    await journal.messages.import_messages("chat", reversed(messages))
    assert await chat.messages() == messages
    thread = await chat.thread()
    assert (thread.title, thread.preview) == ("Is the mill open?", "No.")
    assert thread.last_position == position(messages[-1])


async def test_a_message_without_a_place_cannot_be_imported(journal: Journal, chat: Chat) -> None:
    """Nor one at a place or under an id in use; nothing else of such an import is stored."""
    messages = old_messages()
    await journal.messages.import_messages("chat", messages[:1])
    unplaced = user_message("New.", id="m-1")
    with pytest.raises(UsageError):
        await journal.messages.import_messages("chat", [*messages, unplaced])
    imposter = messages[0].model_copy(update={"id": "m-1", "content": "Is the mine open?"})
    namesake = messages[2].model_copy(update={"id": messages[1].id})
    for wrong in (imposter, namesake):
        with pytest.raises(ConflictError):
            await journal.messages.import_messages("chat", [messages[1], wrong])
    assert await chat.messages() == messages[:1]


async def test_messages_without_an_id_are_all_imported(journal: Journal, chat: Chat) -> None:
    """A position is name enough: such a message gets an id made of it, and comes in once."""
    messages = [message.model_copy(update={"id": None}) for message in old_messages()]
    assert await journal.messages.import_messages("chat", messages) == 4
    assert await journal.messages.import_messages("chat", messages) == 0
    assert [m.id for m in await chat.messages()] == [m.id for m in old_messages()]

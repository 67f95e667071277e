"""Importing messages that have their places already."""

# ruff: noqa: S101 - tests assert

import pytest
from langchain_core.messages import AIMessage, BaseMessage

from segue.core.errors import ConflictError, UsageError
from segue.core.messages import synthetic_message, user_message
from segue.core.snowflake import time_of
from segue.core.stamp import stamp
from segue.journal.ports import Journal
from segue.testing.journal_contract.chat import HOUR, Chat, position, positions, texts
from segue.testing.journal_contract.fixtures import START, ticking_ids


def old_messages() -> list[BaseMessage]:
    """Two batches from an hour ago: a question with its answer, and a follow-up."""
    ids = ticking_ids(node=7, start=START - HOUR)
    asked = stamp([user_message("Is the mill open?"), AIMessage("Yes.")], ids)
    return [*asked, *stamp([synthetic_message("check_in"), AIMessage("Still there?")], ids)]


async def test_imported_messages_keep_their_places(journal: Journal, chat: Chat) -> None:
    """Positions, batches and metadata are those that the messages came with."""
    messages = old_messages()
    assert await journal.import_messages("chat", messages) == 4
    assert await chat.messages() == messages


async def test_importing_again_changes_nothing(journal: Journal, chat: Chat) -> None:
    """An import that was cut off can be repeated: what is there is left alone."""
    messages = old_messages()
    await journal.import_messages("chat", messages[:2])
    assert await journal.import_messages("chat", messages) == 2
    before = await journal.get_thread("chat")
    assert await journal.import_messages("chat", iter(messages)) == 0
    assert await journal.get_thread("chat") == before
    assert await chat.messages() == messages


async def test_a_message_given_twice_is_imported_once(journal: Journal, chat: Chat) -> None:
    """A file that holds a message twice still imports."""
    messages = old_messages()
    assert await journal.import_messages("chat", [*messages, messages[0]]) == 4
    assert await chat.messages() == messages


async def test_imported_messages_appear_in_list_history_and_search(
    journal: Journal, chat: Chat
) -> None:
    """Title, preview, count, history and search follow what was imported, triggers left out."""
    await journal.import_messages(chat.thread_id, old_messages())
    thread = await journal.get_thread(chat.thread_id)
    assert (thread.title, thread.preview) == ("Is the mill open?", "Still there?")
    assert thread.message_count == 3
    page = await journal.history("chat")
    assert texts(page.messages) == ["Is the mill open?", "Yes.", "Still there?"]
    assert texts([f.message for f in await journal.search("ada", "mill")]) == ["Is the mill open?"]


async def test_new_messages_come_after_imported_ones(journal: Journal, chat: Chat) -> None:
    """Positions go on above the newest import, even if that is from the future."""
    ids = ticking_ids(node=7, start=START + HOUR)
    await journal.import_messages("chat", stamp([user_message("Later."), AIMessage("Ok.")], ids))
    await chat.exchange()
    stored = await chat.messages()
    assert texts(stored)[:2] == ["Later.", "Ok."]
    assert positions(stored) == sorted(set(positions(stored)))


async def test_an_old_import_does_not_become_the_preview(journal: Journal, chat: Chat) -> None:
    """The preview is the newest message by position, not the one stored last."""
    await chat.exchange("And tomorrow?", "Closed.")
    await journal.import_messages("chat", old_messages())
    thread = await journal.get_thread("chat")
    assert (thread.preview, thread.preview_role, thread.message_count) == ("Closed.", "ai", 5)


async def test_the_order_of_an_import_does_not_matter(journal: Journal, chat: Chat) -> None:
    """Messages may come newest first; the thread is the same."""
    later = stamp([user_message("And the mine?"), AIMessage("No.")], ticking_ids(node=7))
    messages = [*old_messages(), *later]
    await journal.import_messages("chat", reversed(messages))
    assert await chat.messages() == messages
    thread = await journal.get_thread("chat")
    assert (thread.title, thread.preview) == ("Is the mill open?", "No.")
    assert thread.last_position == position(messages[-1])


async def test_an_import_moves_a_thread_to_the_time_of_its_messages(
    journal: Journal, chat: Chat
) -> None:
    """Old messages do not make a thread look as if somebody had just written."""
    await journal.import_messages(chat.thread_id, old_messages())
    assert (await journal.get_thread("chat")).updated_at == START
    ids = ticking_ids(node=7, start=START + HOUR)
    [late] = stamp([user_message("Later.")], ids)
    await journal.import_messages("chat", [late])
    assert (await journal.get_thread("chat")).updated_at == time_of(position(late))


async def test_a_message_without_a_place_cannot_be_imported(journal: Journal, chat: Chat) -> None:
    """A message that was never stamped is refused, and the others are not stored either."""
    with pytest.raises(UsageError):
        await journal.import_messages("chat", [*old_messages(), user_message("New.", id="m-1")])
    assert await chat.messages() == []


async def test_a_place_that_is_taken_refuses_the_import(journal: Journal, chat: Chat) -> None:
    """Another message at a position in use is a conflict, and nothing of the import is stored."""
    messages = old_messages()
    await journal.import_messages("chat", messages[:1])
    imposter = messages[0].model_copy(update={"id": "m-1", "content": "Is the mine open?"})
    with pytest.raises(ConflictError):
        await journal.import_messages("chat", [*messages[2:], imposter])
    assert await chat.messages() == messages[:1]


async def test_messages_without_an_id_are_all_imported(journal: Journal, chat: Chat) -> None:
    """A position is name enough: such a message gets an id made of it, and comes in once."""
    messages = [message.model_copy(update={"id": None}) for message in old_messages()]
    assert await journal.import_messages("chat", messages) == 4
    assert await journal.import_messages("chat", messages) == 0
    assert [m.id for m in await chat.messages()] == [m.id for m in old_messages()]


async def test_two_messages_cannot_be_imported_under_one_id(journal: Journal, chat: Chat) -> None:
    """A file in which two messages share an id is refused, not imported in part."""
    first, second, *_ = old_messages()
    with pytest.raises(ConflictError):
        await journal.import_messages("chat", [first, second.model_copy(update={"id": first.id})])
    assert await chat.messages() == []

"""Conversations, the list of them, and their end."""

# ruff: noqa: S101 - tests assert

from datetime import datetime, timedelta

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from segue.core.errors import ConflictError, NotFoundError
from segue.core.messages import user_message
from segue.core.snowflake import SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.records import Decision, NewMemory, Thread, ThreadPlace, nested_id
from segue.journal.rows import PREVIEW_LENGTH, TITLE_LENGTH
from segue.testing.journal_contract.chat import HOUR, Chat

SECOND = timedelta(seconds=1)


async def write_at(chat: Chat, moment: datetime) -> None:
    chat.now = moment
    await chat.say()


async def test_a_new_thread_is_empty_and_keeps_its_settings(
    journal: Journal, now: datetime
) -> None:
    """A thread begins with no title, no messages and the settings that it was given."""
    settings = {"time_zone": "Europe/Paris", "quiet": {"from": 22, "to": 7}}
    created = await journal.create_thread(
        "chat", agent_id="guide", user_id="ada", now=now, settings=settings
    )
    assert created == Thread("chat", "guide", "ada", None, None, None, 0, 0, 0, settings, now, now)
    assert await journal.get_thread("chat") == created


async def test_creating_a_thread_again_returns_it_as_it_is(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """A repeated request changes neither the settings nor the times of a thread in use."""
    await chat.exchange()
    before = await journal.get_thread("chat")
    again = await journal.create_thread(
        "chat", agent_id="guide", user_id="ada", now=now + HOUR, settings={"mute": True}
    )
    assert again == before


@pytest.mark.parametrize(("agent_id", "user_id"), [("tutor", "ada"), ("guide", "bob")])
async def test_a_threads_id_cannot_be_taken_by_others(
    journal: Journal, chat: Chat, now: datetime, agent_id: str, user_id: str
) -> None:
    """Another agent or user with the id of a thread is refused, and the thread stays."""
    before = await journal.get_thread(chat.thread_id)
    with pytest.raises(ConflictError):
        await journal.create_thread(chat.thread_id, agent_id=agent_id, user_id=user_id, now=now)
    assert await journal.get_thread(chat.thread_id) == before


async def test_the_thread_written_to_last_is_listed_first(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """A message brings an old thread back to the top of the list."""
    second = await chat.another("second")
    third = await chat.another("third")
    for seconds, thread in enumerate([second, third, chat], 1):
        await write_at(thread, now + seconds * SECOND)
    assert [t.id for t in await journal.list_threads("ada")] == ["chat", "third", "second"]


async def test_a_trigger_does_not_bring_a_thread_to_the_top(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """What nobody can see does not reorder the list."""
    second = await chat.another("second")
    await write_at(second, now + SECOND)
    chat.now = now + HOUR
    await chat.follow_up()
    assert [t.id for t in await journal.list_threads("ada")] == ["second", "chat"]


async def test_a_user_sees_only_own_threads(journal: Journal, chat: Chat) -> None:
    """The list holds no thread of another user, and of one agent only if that is asked for."""
    await chat.another("bobs", user_id="bob")
    await chat.another("lesson", agent_id="tutor")
    assert {t.id for t in await journal.list_threads("ada")} == {"chat", "lesson"}
    assert [t.id for t in await journal.list_threads("ada", agent_id="tutor")] == ["lesson"]
    assert await journal.list_threads("nobody") == []


async def test_the_newest_threads_are_those_of_all_users(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """The one written to last first, as many as are asked for, and none of agents' own."""
    bobs = await chat.another("bobs", user_id="bob")
    await chat.another(nested_id("bobs", "clerk"), agent_id="clerk", user_id="bob")
    for seconds, thread in enumerate([chat, bobs], 1):
        await write_at(thread, now + seconds * SECOND)
    newest = await journal.list_newest_threads()
    assert [(t.id, t.user_id) for t in newest] == [("bobs", "bob"), ("chat", "ada")]
    assert await journal.list_newest_threads(limit=1) == newest[:1]


async def test_pages_of_threads_hold_each_thread_once(journal: Journal, chat: Chat) -> None:
    """Paging reaches every thread once, even those of the same moment."""
    names = {chat.thread_id, *(f"thread-{n}" for n in range(6))}
    for name in names - {chat.thread_id}:
        await chat.another(name)
    found: list[Thread] = []
    place: ThreadPlace | None = None
    while page := await journal.list_threads("ada", limit=3, before=place):
        assert len(page) <= 3
        found += page
        place = page[-1].place
    assert sorted(t.id for t in found) == sorted(names)


async def test_a_page_goes_on_behind_a_thread_that_is_gone(journal: Journal, chat: Chat) -> None:
    """A place holds also when the thread that stood there was deleted or written to since."""
    for name in ("first", "second"):
        chat.now += SECOND
        await chat.another(name)
    [newest] = await journal.list_threads("ada", limit=1)
    await journal.delete_thread(newest.id)
    rest = await journal.list_threads("ada", before=newest.place)
    assert [t.id for t in rest] == ["first", "chat"]


async def test_where_agents_ask_each_other_is_listed_only_on_request(
    journal: Journal, chat: Chat
) -> None:
    """It is no conversation of the user's; a page is full all the same, and says where to go on."""
    for name in ("first", "second"):
        chat.now += SECOND
        await chat.another(name)
        await chat.another(nested_id(name, "clerk"), agent_id="clerk")
    page = await journal.list_threads("ada", limit=2)
    assert [t.id for t in page] == ["second", "first"]
    assert [t.id for t in await journal.list_threads("ada", before=page[-1].place)] == ["chat"]
    everything = await journal.list_threads("ada", with_nested=True)
    assert {"first/clerk", "second/clerk"} <= {t.id for t in everything}
    assert len(everything) == 5


async def test_the_title_is_the_first_thing_the_user_said(journal: Journal, chat: Chat) -> None:
    """Neither a greeting by the agent nor a later message names the thread."""
    await chat.follow_up()
    await chat.reply("Hello there.")
    assert (await journal.get_thread("chat")).title is None
    await chat.exchange("Is it open?")
    await chat.exchange("And tomorrow?")
    assert (await journal.get_thread("chat")).title == "Is it open?"


async def test_a_picture_leaves_the_title_to_the_first_words(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """A message without words names no thread; the next one with words does."""
    picture = user_message([{"type": "image", "url": "https://example.org/cat.png"}])
    await journal.accept_message("chat", picture, ids=ids, now=now)
    assert (await journal.get_thread("chat")).title is None
    await chat.say("What is that?")
    assert (await journal.get_thread("chat")).title == "What is that?"


async def test_title_and_preview_are_one_short_line(journal: Journal, chat: Chat) -> None:
    """A long message with line breaks still fits the list."""
    await chat.say("Tell me\n\neverything   about " + "the old harbour " * 20)
    thread = await journal.get_thread("chat")
    assert thread.title is not None
    assert thread.preview is not None
    assert thread.title.startswith("Tell me everything about the old")
    assert len(thread.title) <= TITLE_LENGTH
    assert thread.preview.startswith("Tell me everything about the old harbour")
    assert len(thread.preview) <= PREVIEW_LENGTH


async def test_the_preview_is_the_newest_visible_message(journal: Journal, chat: Chat) -> None:
    """The list shows who spoke last, and what."""
    await chat.say("Is it open?")
    asked = await journal.get_thread("chat")
    assert (asked.preview, asked.preview_role, asked.message_count) == ("Is it open?", "human", 1)
    await chat.reply("Yes, until six.")
    told = await journal.get_thread("chat")
    assert (told.preview, told.preview_role, told.message_count) == ("Yes, until six.", "ai", 2)


async def test_hidden_rows_are_neither_counted_nor_previewed(journal: Journal, chat: Chat) -> None:
    """Triggers, calls and results leave title, preview, count and time of a thread alone."""
    await chat.exchange("Is it open?", "Yes.")
    before = await journal.get_thread("chat")
    chat.now += HOUR
    await chat.follow_up()
    call = AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": "call_1"}])
    await chat.write(await chat.take_turn(), call, ToolMessage("none", tool_call_id="call_1"))
    after = await journal.get_thread("chat")
    for field in ("title", "preview", "preview_role", "message_count", "updated_at"):
        assert getattr(after, field) == getattr(before, field)


@pytest.mark.parametrize("when", ["before the first message", "after it"])
async def test_a_title_set_by_hand_stays(journal: Journal, chat: Chat, when: str) -> None:
    """The first message does not overwrite a title that somebody chose."""
    if when == "after it":
        await chat.say("Is it open?")
    changed = await journal.update_thread("chat", title="Opening hours")
    await chat.say("And tomorrow?")
    assert changed.title == "Opening hours"
    assert (await journal.get_thread("chat")).title == "Opening hours"


async def test_settings_are_merged_and_null_removes_one(journal: Journal, chat: Chat) -> None:
    """Changing one setting keeps the others, and leaves the title as it is."""
    await chat.say("Is it open?")
    await journal.update_thread("chat", settings={"mute": True, "zone": "UTC"})
    thread = await journal.update_thread("chat", settings={"mute": None, "daily": 3})
    assert thread.settings == {"zone": "UTC", "daily": 3}
    assert thread.title == "Is it open?"
    assert await journal.get_thread("chat") == thread


async def fill(chat: Chat, ids: SnowflakeSource, now: datetime) -> None:
    """Rows in every table that belongs to a thread."""
    batch = await chat.exchange("Is the lighthouse open?")
    await chat.queue_effect(f"effect of {chat.thread_id}")
    await chat.arm()
    await chat.journal.save_summary(chat.thread_id, "Asked.", [batch], ids=ids, now=now)
    await chat.journal.record_decision(
        Decision(ids.next(), chat.thread_id, "gates", "allow", (), {}, None, None, now)
    )
    memory = NewMemory("guide", "ada", f"from {chat.thread_id}", "Likes lighthouses.")
    await chat.journal.put_memory(memory, ids=ids, now=now)


async def test_deleting_a_thread_says_what_it_took(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """The counts are those of the rows that the thread had, table by table."""
    await fill(chat, ids, now)
    await fill(await chat.another("second"), ids, now)
    deleted = await journal.delete_thread("chat")
    assert dict(deleted.rows) == {
        "threads": 1,
        "messages": 4,
        "turns": 2,
        "timers": 1,
        "effects": 1,
        "decisions": 1,
        "summaries": 1,
    }


async def test_nothing_of_a_deleted_thread_is_left(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """No list, queue or search knows it, and its id can be used for a new, empty thread."""
    await fill(chat, ids, now)
    await chat.say("One more thing.")
    await journal.delete_thread("chat")
    with pytest.raises(NotFoundError):
        await journal.get_thread("chat")
    assert await journal.list_threads("ada") == []
    assert await journal.search("ada", "lighthouse") == []
    assert await journal.list_incomplete_batches("guide") == []
    assert await journal.claim_turn("worker-a", now=now, lease_for=HOUR) is None
    assert await journal.claim_due_timers("worker-a", now=now, lease_for=HOUR) == []
    assert await journal.next_effect_at("webhook", now=now) is None
    assert await journal.last_position() == 0
    await chat.begin()
    assert await chat.messages() == []
    assert await journal.find_summary("chat") is None
    assert await journal.list_decisions("chat") == []
    assert await journal.list_timers("chat") == []


async def test_deleted_words_do_not_lead_to_new_messages(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """A message that takes the place of a deleted one is not found by the old one's words."""
    await fill(chat, ids, now)
    await journal.delete_thread("chat")
    await chat.begin()
    await chat.exchange("Is the mill open?", "Yes.")
    assert await journal.search("ada", "lighthouse") == []
    assert len(await journal.search("ada", "mill")) == 1


async def test_deleting_a_thread_leaves_others_and_memories_alone(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """Memories belong to the user, and another thread is untouched."""
    await fill(chat, ids, now)
    second = await chat.another("second")
    await fill(second, ids, now)
    kept = await second.messages()
    await journal.delete_thread("chat")
    assert await journal.count_memories("guide", "ada") == 2
    assert await second.messages() == kept
    assert {f.thread_id for f in await journal.search("ada", "lighthouse")} == {"second"}


async def test_what_is_nested_in_a_thread_is_deleted_with_it(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """Also what is nested deeper, and nothing of a thread whose id only begins alike."""
    inner = nested_id("chat", "clerk")
    kept = ("chat2", nested_id("chat2", "clerk"), "Chat", nested_id("Chat", "clerk"))
    for name in (inner, nested_id(inner, "porter"), *kept):
        await fill(await chat.another(name), ids, now)
    deleted = await journal.delete_thread("chat")
    assert (deleted.rows["threads"], deleted.rows["messages"]) == (3, 8)
    left = await journal.list_threads("ada", with_nested=True)
    assert {t.id for t in left} == {*kept}


async def test_a_worker_cannot_write_into_a_deleted_thread(chat: Chat) -> None:
    """A turn that was running when its thread was deleted writes nothing more."""
    await chat.say()
    lease = await chat.take_turn()
    await chat.journal.delete_thread("chat")
    with pytest.raises((ConflictError, NotFoundError)):
        await chat.write(lease, AIMessage("Yes."))
    await chat.begin()
    assert await chat.messages() == []

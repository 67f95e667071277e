"""Conversations, the list of them, and their end."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from segue.core.snowflake import SnowflakeSource, time_of
from segue.errors import ConflictError, NotFoundError
from segue.journal.journal import Journal
from segue.journal.memories import NewMemory
from segue.journal.records import Thread, ThreadPlace, nested_id
from segue.journal.rows import PREVIEW_LENGTH, TITLE_LENGTH
from segue.testing.journal_contract.chat import HOUR, NOW, Chat

SECOND = timedelta(seconds=1)


async def write_at(chat: Chat, moment: datetime) -> None:
    chat.now = moment
    await chat.say()


async def test_a_new_thread_is_empty_and_keeps_its_settings(journal: Journal) -> None:
    """A thread begins with no title, no messages and the settings that it was given."""
    settings = {"time_zone": "Europe/Paris", "quiet": {"from": 22, "to": 7}}
    created = await journal.threads.create(
        "chat", agent_id="guide", user_id="ada", now=NOW, settings=settings
    )
    expected = Thread("chat", "guide", "ada", None, None, None, 0, 0, 0, settings, NOW, NOW)
    assert replace(created, changed_position=0) == expected
    assert time_of(created.changed_position) == NOW
    assert await journal.threads.get("chat") == created


async def test_only_threads_marked_as_temporary_are_listed_as_such(journal: Journal) -> None:
    """Neither a note of a client nor a text that looks like the mark makes a thread temporary."""
    for name, settings in (
        ("gone", {"temporary": True, "muted": True}),
        ("kept", {}),
        ("off", {"temporary": False}),
        ("text", {"temporary": "true"}),
        ("noted", {"metadata.temporary": True, "metadata.note": '{"temporary":true'}),
        ("inside", {"metadata.note": {"temporary": True}}),
    ):
        await journal.threads.create(
            name, agent_id="guide", user_id="ada", now=NOW, settings=settings
        )
    assert [thread.id for thread in await journal.threads.list_temporary()] == ["gone"]


async def test_creating_a_thread_again_returns_it_as_it_is(journal: Journal, chat: Chat) -> None:
    """A repeated request changes nothing; one for another agent or user is refused."""
    await chat.exchange()
    before = await chat.thread()
    again = await journal.threads.create(
        "chat", agent_id="guide", user_id="ada", now=NOW + HOUR, settings={"mute": True}
    )
    assert again == before
    for agent_id, user_id in (("tutor", "ada"), ("guide", "bob")):
        with pytest.raises(ConflictError):
            await journal.threads.create("chat", agent_id=agent_id, user_id=user_id, now=NOW)
    assert await chat.thread() == before


async def test_an_empty_thread_can_be_given_to_another_agent(journal: Journal, chat: Chat) -> None:
    """Until something is said or planned in it."""
    assigned = await journal.threads.assign("chat", "tutor")
    assert assigned.agent_id == "tutor"
    assert await chat.thread() == assigned
    assert await journal.threads.assign("chat", "tutor") == assigned
    await journal.threads.assign("chat", "guide")
    await chat.exchange()
    with pytest.raises(ConflictError, match="with the agent 'guide'"):
        await journal.threads.assign("chat", "tutor")
    assert (await chat.thread()).agent_id == "guide"


async def test_the_thread_written_to_last_is_listed_first(journal: Journal, chat: Chat) -> None:
    """A message brings an old thread back to the top of the list, and a trigger does not."""
    second = await chat.another("second")
    third = await chat.another("third")
    for seconds, thread in enumerate([second, third, chat], 1):
        await write_at(thread, NOW + seconds * SECOND)
    second.now = NOW + HOUR
    await second.follow_up()
    assert [t.id for t in await journal.threads.list_of("ada")] == ["chat", "third", "second"]


async def test_a_user_sees_only_own_threads(journal: Journal, chat: Chat) -> None:
    """The list holds no thread of another user, and of one agent only if that is asked for."""
    await chat.another("bobs", user_id="bob")
    await chat.another("lesson", agent_id="tutor")
    assert {t.id for t in await journal.threads.list_of("ada")} == {"chat", "lesson"}
    assert [t.id for t in await journal.threads.list_of("ada", agent_id="tutor")] == ["lesson"]
    assert await journal.threads.list_of("nobody") == []


async def test_the_newest_threads_are_those_of_all_users(journal: Journal, chat: Chat) -> None:
    """The one written to last first, as many as are asked for, and none of agents' own."""
    bobs = await chat.another("bobs", user_id="bob")
    await chat.another(nested_id("bobs", "clerk"), agent_id="clerk", user_id="bob")
    for seconds, thread in enumerate([chat, bobs], 1):
        await write_at(thread, NOW + seconds * SECOND)
    newest = await journal.threads.list_newest()
    assert [(t.id, t.user_id) for t in newest] == [("bobs", "bob"), ("chat", "ada")]
    assert await journal.threads.list_newest(limit=1) == newest[:1]


async def test_pages_of_threads_hold_each_thread_once(journal: Journal, chat: Chat) -> None:
    """Paging reaches every thread once, even those of the same moment."""
    names = {chat.thread_id, *(f"thread-{n}" for n in range(6))}
    for name in names - {chat.thread_id}:
        await chat.another(name)
    found: list[Thread] = []
    place: ThreadPlace | None = None
    while page := await journal.threads.list_of("ada", limit=3, before=place):
        assert len(page) <= 3
        found += page
        place = page[-1].place
    assert sorted(t.id for t in found) == sorted(names)


async def test_a_page_goes_on_behind_a_thread_that_is_gone(journal: Journal, chat: Chat) -> None:
    """A place holds also when the thread that stood there was deleted or written to since."""
    for name in ("first", "second"):
        chat.now += SECOND
        await chat.another(name)
    [newest] = await journal.threads.list_of("ada", limit=1)
    await journal.threads.delete(newest.id)
    rest = await journal.threads.list_of("ada", before=newest.place)
    assert [t.id for t in rest] == ["first", "chat"]


async def test_where_agents_ask_each_other_is_listed_only_on_request(
    journal: Journal, chat: Chat
) -> None:
    """It is not the user's conversation; a page is full all the same, and has its cursor."""
    for name in ("first", "second"):
        chat.now += SECOND
        await chat.another(name)
        await chat.another(nested_id(name, "clerk"), agent_id="clerk")
    page = await journal.threads.list_of("ada", limit=2)
    assert [t.id for t in page] == ["second", "first"]
    assert [t.id for t in await journal.threads.list_of("ada", before=page[-1].place)] == ["chat"]
    everything = await journal.threads.list_of("ada", with_nested=True)
    assert {"first/clerk", "second/clerk"} <= {t.id for t in everything}
    assert len(everything) == 5


async def test_the_title_is_the_first_thing_the_user_said(chat: Chat) -> None:
    """Neither the agent's greeting, nor a picture, nor a later message names the thread."""
    await chat.follow_up()
    await chat.reply("Hello there.")
    await chat.exchange([{"type": "image", "url": "https://example.org/cat.png"}])
    assert (await chat.thread()).title is None
    await chat.exchange("Is it open?")
    await chat.exchange("And tomorrow?")
    assert (await chat.thread()).title == "Is it open?"


async def test_title_and_preview_are_one_short_line(chat: Chat) -> None:
    """A long message with line breaks still fits the list."""
    await chat.say("Tell me\n\neverything   about " + "the old harbour " * 20)
    thread = await chat.thread()
    assert thread.title is not None
    assert thread.preview is not None
    assert thread.title.startswith("Tell me everything about the old")
    assert len(thread.title) <= TITLE_LENGTH
    assert thread.preview.startswith("Tell me everything about the old harbour")
    assert len(thread.preview) <= PREVIEW_LENGTH


async def test_the_preview_is_the_newest_visible_message(chat: Chat) -> None:
    """The last speaker and text; triggers, calls and results leave the thread's row alone."""
    await chat.say("Is it open?")
    asked = await chat.thread()
    assert (asked.preview, asked.preview_role, asked.message_count) == ("Is it open?", "human", 1)
    await chat.reply("Yes, until six.")
    before = await chat.thread()
    assert (before.preview, before.preview_role) == ("Yes, until six.", "ai")
    assert before.message_count == 2
    chat.now += HOUR
    await chat.follow_up()
    call = AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": "call_1"}])
    await chat.write(await chat.take_turn(), call, ToolMessage("none", tool_call_id="call_1"))
    after = await chat.thread()
    for field in ("title", "preview", "preview_role", "message_count", "updated_at"):
        assert getattr(after, field) == getattr(before, field)


@pytest.mark.parametrize("when", ["before the first message", "after it"])
async def test_a_title_set_by_hand_stays(journal: Journal, chat: Chat, when: str) -> None:
    """The first message does not overwrite a title that the user chose."""
    if when == "after it":
        await chat.say("Is it open?")
    changed = await journal.threads.update("chat", title="Opening hours")
    await chat.say("And tomorrow?")
    assert changed.title == "Opening hours"
    assert (await chat.thread()).title == "Opening hours"


async def test_settings_are_merged_and_null_removes_one(journal: Journal, chat: Chat) -> None:
    """Changing one setting keeps the others, and leaves the title as it is."""
    await chat.say("Is it open?")
    await journal.threads.update("chat", settings={"mute": True, "zone": "UTC"})
    thread = await journal.threads.update("chat", settings={"mute": None, "daily": 3})
    assert thread.settings == {"zone": "UTC", "daily": 3}
    assert thread.title == "Is it open?"
    assert await chat.thread() == thread


async def fill(chat: Chat, ids: SnowflakeSource, now: datetime) -> None:
    """Rows in every table that belongs to a thread."""
    batch = await chat.exchange("Is the lighthouse open?")
    await chat.queue_effect(f"effect of {chat.thread_id}")
    await chat.arm()
    await chat.summarise("Asked.", [batch])
    await chat.journal.decisions.record(chat.decision())
    memory = NewMemory("guide", "ada", f"from {chat.thread_id}", "Likes lighthouses.")
    await chat.journal.memories.put(memory, ids=ids, now=now)


async def test_deleting_a_thread_says_what_it_took(chat: Chat, ids: SnowflakeSource) -> None:
    """The rows that the thread had, table by table; other threads and all memories stay."""
    await fill(chat, ids, NOW)
    second = await chat.another("second")
    await fill(second, ids, NOW)
    kept = await second.messages()
    deleted = await chat.journal.threads.delete("chat")
    assert dict(deleted.rows) == {
        "threads": 1,
        "messages": 4,
        "turns": 2,
        "timers": 1,
        "effects": 1,
        "decisions": 1,
        "summaries": 1,
        "states": 0,
    }
    assert await chat.journal.memories.count("guide", "ada") == 2
    assert await second.messages() == kept
    assert {f.thread_id for f in await chat.journal.search.find("ada", "lighthouse")} == {"second"}


async def test_nothing_of_a_deleted_thread_is_left(chat: Chat, ids: SnowflakeSource) -> None:
    """No list, queue or search knows it, and its id can be used for a new, empty thread."""
    await fill(chat, ids, NOW)
    await chat.say("One more thing.")
    await chat.journal.threads.delete("chat")
    with pytest.raises(NotFoundError):
        await chat.thread()
    assert await chat.journal.threads.list_of("ada") == []
    assert await chat.journal.search.find("ada", "lighthouse") == []
    assert await chat.journal.messages.list_incomplete_batches("guide") == []
    assert await chat.journal.turns.claim_one("worker-a", now=NOW, lease_for=HOUR) is None
    assert await chat.journal.timers.claim_due("worker-a", now=NOW, lease_for=HOUR) == []
    assert await chat.journal.effects.next_at("webhook", now=NOW) is None
    assert await chat.journal.nodes.last_position() == 0
    await chat.begin()
    assert await chat.messages() == []
    assert await chat.journal.summaries.find("chat") is None
    assert await chat.decisions() == []
    assert await chat.timers() == []


async def test_deleted_words_do_not_lead_to_new_messages(chat: Chat, ids: SnowflakeSource) -> None:
    """A message that takes the place of a deleted one is not found by the old one's words."""
    await fill(chat, ids, NOW)
    await chat.journal.threads.delete("chat")
    await chat.begin()
    await chat.exchange("Is the mill open?", "Yes.")
    assert await chat.journal.search.find("ada", "lighthouse") == []
    assert len(await chat.journal.search.find("ada", "mill")) == 1


async def test_what_is_nested_in_a_thread_is_deleted_with_it(journal: Journal, chat: Chat) -> None:
    """Also what is nested deeper, and nothing of a thread whose id only begins alike."""
    inner = nested_id("chat", "clerk")
    kept = ("chat2", nested_id("chat2", "clerk"), "Chat", nested_id("Chat", "clerk"))
    for name in (inner, nested_id(inner, "porter"), *kept):
        await fill(await chat.another(name), chat.ids, NOW)
    deleted = await journal.threads.delete("chat")
    assert (deleted.rows["threads"], deleted.rows["messages"]) == (3, 8)
    left = await journal.threads.list_of("ada", with_nested=True)
    assert {t.id for t in left} == {*kept}


async def test_a_worker_cannot_write_into_a_deleted_thread(chat: Chat) -> None:
    """A turn that was running when its thread was deleted writes nothing more."""
    lease = await chat.running_reply()
    await chat.journal.threads.delete("chat")
    with pytest.raises((ConflictError, NotFoundError)):
        await chat.write(lease, AIMessage("Yes."))
    await chat.begin()
    assert await chat.messages() == []

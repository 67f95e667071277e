"""History: what a person sees of a thread, page by page."""

# ruff: noqa: S101 - tests assert

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from random import Random

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from segue.core.messages import visible_messages
from segue.core.snowflake import SnowflakeSource
from segue.core.triggers import TRIGGER_PROMPTS
from segue.journal.ports import Journal
from segue.noting import FIELDS
from segue.testing.journal_contract.chat import Chat, position, texts

Write = Callable[[], Awaitable[object]]


async def work_with_tools(chat: Chat) -> None:
    """A turn with rows that nobody sees between the question and the answer."""
    await chat.say("What is the weather?")
    lease = await chat.take_turn()
    call = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "call_1"}])
    await chat.write(lease, call, ToolMessage("rain", tool_call_id="call_1"))
    await chat.finish(lease, AIMessage("Rain."))


async def follow_up_and_reply(chat: Chat) -> None:
    await chat.follow_up()
    await chat.reply("Still there?")


async def test_history_is_the_newest_page_oldest_first(journal: Journal, chat: Chat) -> None:
    """A client that opens a thread gets its end, in reading order."""
    for n in range(4):
        await chat.exchange(f"Question {n}?", f"Answer {n}.")
    page = await journal.history("chat", limit=3)
    assert texts(page.messages) == ["Answer 2.", "Question 3?", "Answer 3."]


async def test_history_holds_only_what_a_person_may_see(journal: Journal, chat: Chat) -> None:
    """Triggers, calls and results are left out, and do not take up room on a page."""
    await chat.exchange("Is it open?", "Yes.")
    await follow_up_and_reply(chat)
    await work_with_tools(chat)
    page = await journal.history("chat", limit=5)
    assert texts(page.messages) == [
        "Is it open?",
        "Yes.",
        "Still there?",
        "What is the weather?",
        "Rain.",
    ]


async def test_words_like_a_triggers_are_shown_when_a_user_types_them(
    journal: Journal, chat: Chat
) -> None:
    """Visibility goes by who wrote a message, never by what it says."""
    words = TRIGGER_PROMPTS["check_in"]
    await chat.say(words)
    assert texts((await journal.history("chat")).messages) == [words]


async def test_history_goes_back_from_a_position(journal: Journal, chat: Chat) -> None:
    """The page before a message ends right in front of it."""
    for n in range(3):
        await chat.exchange(f"Question {n}?", f"Answer {n}.")
    newest = await journal.history("chat", limit=2)
    page = await journal.history("chat", limit=3, before=newest.before)
    assert texts(page.messages) == ["Answer 0.", "Question 1?", "Answer 1."]
    oldest = await journal.history("chat", limit=3, before=page.before)
    assert texts(oldest.messages) == ["Question 0?"]


async def test_history_goes_on_after_a_position(journal: Journal, chat: Chat) -> None:
    """A client that comes back gets what it missed, from the oldest on."""
    await chat.exchange("Question 0?", "Answer 0.")
    seen = await journal.history("chat")
    for n in (1, 2):
        await chat.exchange(f"Question {n}?", f"Answer {n}.")
    page = await journal.history("chat", limit=3, after=position(seen.messages[-1]))
    assert texts(page.messages) == ["Question 1?", "Answer 1.", "Question 2?"]
    rest = await journal.history("chat", limit=3, after=page.after)
    assert texts(rest.messages) == ["Answer 2."]


async def test_a_page_has_a_cursor_only_where_there_is_more(journal: Journal, chat: Chat) -> None:
    """At either end there is none, also for an empty page and beside messages nobody sees."""
    await chat.follow_up()
    await chat.finish(await chat.take_turn(), AIMessage("", id="unseen"))
    for n in range(3):
        await chat.exchange(f"Question {n}?", f"Answer {n}.")
    everything = await journal.history("chat")
    assert (everything.before, everything.after) == (None, None)
    places = [*map(position, everything.messages)]
    newest = await journal.history("chat", limit=2)
    assert (newest.before, newest.after) == (places[4], None)
    middle = await journal.history("chat", limit=2, before=newest.before)
    assert (middle.before, middle.after) == (places[2], places[3])
    oldest = await journal.history("chat", limit=2, before=middle.before)
    assert (oldest.before, oldest.after) == (None, places[1])
    beyond = await journal.history("chat", after=places[-1])
    assert (beyond.messages, beyond.after) == ([], None)
    assert await journal.history("chat", before=beyond.before) == everything
    too_early = await journal.history("chat", before=places[0])
    assert (too_early.messages, too_early.before) == ([], None)
    assert (await journal.history("chat", after=too_early.after)).messages == everything.messages


async def test_the_last_position_finds_what_comes_later(journal: Journal, chat: Chat) -> None:
    """A client at the end asks again from its last message, as often as it wants."""
    await chat.exchange()
    last = position((await journal.history("chat")).messages[-1])
    assert (await journal.history("chat", after=last)).messages == []
    await chat.say("And tomorrow?")
    later = await journal.history("chat", after=last)
    assert texts(later.messages) == ["And tomorrow?"]


async def test_a_thread_without_messages_has_an_empty_history(journal: Journal, chat: Chat) -> None:
    """So has one in which nobody but a timer has spoken."""
    assert (await journal.history("chat")).messages == []
    await chat.follow_up()
    assert (await journal.history("chat")).messages == []


async def test_archived_messages_stay_in_history(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """A summary is for the model; a person still reads every word."""
    batch = await chat.exchange("Is it open?", "Yes.")
    await journal.save_summary("chat", "They asked.", [batch], ids=ids, now=now)
    assert texts((await journal.history("chat")).messages) == ["Is it open?", "Yes."]


async def add_something(chat: Chat, random: Random) -> None:
    """One more turn of a kind that the dice choose."""
    n = random.randrange(1_000)
    writes: list[Write] = [
        lambda: chat.exchange(f"Question {n}?", f"Answer {n}."),
        lambda: follow_up_and_reply(chat),
        lambda: work_with_tools(chat),
    ]
    await random.choice(writes)()


async def visible(chat: Chat) -> list[BaseMessage]:
    return visible_messages(await chat.messages())


@pytest.mark.parametrize("seed", range(4))
async def test_paging_back_is_stable_while_messages_are_added(
    journal: Journal, chat: Chat, seed: int
) -> None:
    """Scrolling up shows every message that was there at the start once, and no other."""
    random = Random(seed)  # noqa: S311 - the same dice on every run
    for _ in range(8):
        await add_something(chat, random)
    expected = await visible(chat)
    page = await journal.history("chat", limit=random.randint(1, 5))
    seen = page.messages
    while page.before is not None:
        await add_something(chat, random)
        page = await journal.history("chat", limit=random.randint(1, 5), before=page.before)
        seen = [*page.messages, *seen]
    assert seen == expected


@pytest.mark.parametrize("seed", range(4))
async def test_paging_on_is_stable_while_messages_are_added(
    journal: Journal, chat: Chat, seed: int
) -> None:
    """Reading on shows every message once, those that were added meanwhile as well."""
    random = Random(seed)  # noqa: S311 - the same dice on every run
    for _ in range(5):
        await add_something(chat, random)
    first, *_ = await visible(chat)
    page = await journal.history("chat", limit=1, after=position(first) - 1)
    seen: list[BaseMessage] = []
    while page.messages:
        seen += page.messages
        if len(seen) < 20:
            await add_something(chat, random)
        after = position(seen[-1])
        page = await journal.history("chat", limit=random.randint(1, 5), after=after)
    assert seen == await visible(chat)


async def test_what_history_leaves_out_is_logged(
    journal: Journal, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    """A DEBUG line for each hidden trigger has its id, one INFO line their number, as fields."""
    await chat.exchange()
    await follow_up_and_reply(chat)
    await chat.follow_up()
    triggers = [m.id for m in await chat.messages() if "Continue our" in str(m.content)]
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        await journal.history("chat")
    lines = [r for r in caplog.records if r.name.startswith(type(journal).__module__.split(".")[0])]
    debug = [r.getMessage() for r in lines if r.levelno == logging.DEBUG]
    assert len(triggers) == 2
    assert all(sum(str(name) in line for line in debug) == 1 for name in triggers)
    [info] = [r.getMessage() for r in lines if r.levelno == logging.INFO]
    assert all(word in info.replace(",", " ").split() for word in ("2", "chat", "guide"))
    fields = [getattr(r, FIELDS) for r in lines if hasattr(r, FIELDS)]
    where = {"thread_id": "chat", "agent_id": "guide"}
    told = {"kind": "synthetic_message_hidden", "trigger_type": "check_in", **where}
    assert fields == [
        *({**told, "message_id": name} for name in triggers),
        {"kind": "synthetic_messages_filtered", "count": 2, **where},
    ]


async def test_no_log_line_holds_a_triggers_words(
    journal: Journal, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    """Logs name hidden messages by id and trigger; their text stays in the journal."""
    words = TRIGGER_PROMPTS["check_in"]
    with caplog.at_level(logging.DEBUG):
        await follow_up_and_reply(chat)
        await journal.history("chat")
        await journal.search("ada", words)
        await journal.tail("chat", max_tokens=100)
        await journal.list_threads("ada")
    assert caplog.records
    assert [r.getMessage() for r in caplog.records if words in r.getMessage()] == []


async def test_a_page_that_hides_nothing_says_nothing(
    journal: Journal, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    """A log line means that something was left out of this very page."""
    await follow_up_and_reply(chat)
    await chat.exchange()
    with caplog.at_level(logging.INFO):
        await journal.history("chat", limit=2)
        assert caplog.records == []
        await journal.history("chat")
    assert len(caplog.records) == 1

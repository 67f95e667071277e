"""History: what a person sees of a thread, page by page."""

import logging
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from segue.core.messages import visible_messages
from segue.core.triggers import TRIGGER_PROMPTS
from segue.journal.journal import Journal
from segue.journal.records import PAGE_BYTES, Page
from segue.journal.tables import MESSAGES, Whose
from segue.telemetry import FIELDS
from segue.testing.journal_contract.chat import Chat, position, texts

Write = Callable[[], Awaitable[object]]


def picture(name: str, size: int) -> list[Any]:
    """The content of a message with its name as text, and that many bytes of a picture."""
    data = {"type": "image", "base64": "A" * size, "mime_type": "image/png"}
    return [{"type": "text", "text": name}, data]


def names(page: Page) -> list[str]:
    return [message.text for message in page.messages]


def edges(older: Page, newer: Page) -> tuple[BaseMessage, BaseMessage]:
    return older.messages[-1], newer.messages[0]


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """The most bytes that Python held at once since the block began."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def work_with_tools(chat: Chat) -> None:
    """A turn with hidden rows between the question and the answer."""
    lease = await chat.running_reply("What is the weather?")
    call = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "call_1"}])
    await chat.write(lease, call, ToolMessage("rain", tool_call_id="call_1"))
    await chat.finish(lease, AIMessage("Rain."))


async def follow_up_and_reply(chat: Chat) -> None:
    await chat.follow_up()
    await chat.reply("Still there?")


async def test_history_holds_only_what_a_person_may_see(journal: Journal, chat: Chat) -> None:
    """Triggers, calls and results are left out, and do not take up room on a page."""
    await chat.exchange("Is it open?", "Yes.")
    await follow_up_and_reply(chat)
    await work_with_tools(chat)
    page = await journal.messages.history("chat", limit=5)
    assert texts(page.messages) == [
        "Is it open?",
        "Yes.",
        "Still there?",
        "What is the weather?",
        "Rain.",
    ]


async def test_words_like_a_triggers_are_shown_when_a_user_types_them(chat: Chat) -> None:
    """Visibility goes by who wrote a message; a thread with a trigger alone has no history."""
    assert await chat.history() == []
    await chat.follow_up()
    assert await chat.history() == []
    words = TRIGGER_PROMPTS["check_in"]
    await chat.say(words)
    assert texts(await chat.history()) == [words]


async def test_a_page_ends_after_a_number_of_bytes(journal: Journal, chat: Chat) -> None:
    """The message that brings a page to its size is its last one; cursors go on from there."""
    await chat.say("Before.")
    for n in range(4):
        await chat.say(picture(str(n), PAGE_BYTES * 2 // 3))
    await chat.say("After.")
    newest = await journal.messages.history("chat")
    assert names(newest) == ["2", "3", "After."]
    older = await journal.messages.history("chat", before=newest.before)
    assert names(older) == ["0", "1"]
    assert (older.after, newest.before) == tuple(map(position, edges(older, newest)))
    assert names(await journal.messages.history("chat", before=older.before)) == ["Before."]
    oldest = await journal.messages.history("chat", after=0)
    assert names(oldest) == ["Before.", "0", "1"]
    assert names(await journal.messages.history("chat", after=oldest.after)) == ["2", "3"]


async def test_a_page_has_at_least_one_message(journal: Journal, chat: Chat) -> None:
    """One that is larger than a page is a page by itself; bytes count and not characters."""
    await chat.say("Before.")
    await chat.say(picture("large", 2 * PAGE_BYTES))
    await chat.say("After.")
    page = await journal.messages.history("chat", after=0)
    assert names(page) == ["Before.", "large"]
    page = await journal.messages.history("chat", after=page.after)
    assert (names(page), page.after) == (["After."], None)
    for _ in range(2):
        await chat.say("🙂" * (PAGE_BYTES // 4))
    assert len(await chat.history()) == 1


async def test_what_is_not_on_a_page_is_not_loaded(journal: Journal, chat: Chat) -> None:
    """The memory that a page or a replay takes does not follow the size of the thread."""
    for n in range(16):
        await chat.say(picture(str(n), PAGE_BYTES))
    for read in (
        lambda: journal.messages.history("chat"),
        lambda: journal.messages.history("chat", after=0),
        lambda: journal.feed.read("chat"),
        lambda: journal.search.find("ada", "1"),
        lambda: journal.transfer.read_rows(MESSAGES, Whose(thread_id="chat")),
    ):
        with traced_memory() as peak:
            await read()
            assert peak() < 8 * PAGE_BYTES


async def test_a_page_has_a_cursor_only_where_there_is_more(journal: Journal, chat: Chat) -> None:
    """At either end there is none, also for an empty page and beside hidden messages."""
    await chat.finish(await chat.running_follow_up(), AIMessage("", id="unseen"))
    for n in range(3):
        await chat.exchange(f"Question {n}?", f"Answer {n}.")
    everything = await journal.messages.history("chat")
    assert (everything.before, everything.after) == (None, None)
    places = [*map(position, everything.messages)]
    newest = await journal.messages.history("chat", limit=2)
    assert (newest.before, newest.after) == (places[4], None)
    middle = await journal.messages.history("chat", limit=2, before=newest.before)
    assert (middle.before, middle.after) == (places[2], places[3])
    oldest = await journal.messages.history("chat", limit=2, before=middle.before)
    assert (oldest.before, oldest.after) == (None, places[1])
    beyond = await journal.messages.history("chat", after=places[-1])
    assert (beyond.messages, beyond.after) == ([], None)
    assert await journal.messages.history("chat", before=beyond.before) == everything
    too_early = await journal.messages.history("chat", before=places[0])
    assert (too_early.messages, too_early.before) == ([], None)
    assert (
        await journal.messages.history("chat", after=too_early.after)
    ).messages == everything.messages


async def test_archived_messages_stay_in_history(chat: Chat) -> None:
    """A summary is for the model; a person still reads every word."""
    batch = await chat.exchange("Is it open?", "Yes.")
    await chat.summarise("They asked.", [batch])
    assert texts(await chat.history()) == ["Is it open?", "Yes."]


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
async def test_paging_back_is_stable_while_messages_are_added(chat: Chat, seed: int) -> None:
    """Scrolling up shows every message that was there at the start once, and no other."""
    random = Random(seed)  # noqa: S311 - the same dice on every run
    for _ in range(8):
        await add_something(chat, random)
    expected = await visible(chat)
    page = await chat.journal.messages.history("chat", limit=random.randint(1, 5))
    seen = page.messages
    while page.before is not None:
        await add_something(chat, random)
        page = await chat.journal.messages.history(
            "chat", limit=random.randint(1, 5), before=page.before
        )
        seen = [*page.messages, *seen]
    assert seen == expected


@pytest.mark.parametrize("seed", range(4))
async def test_paging_on_is_stable_while_messages_are_added(chat: Chat, seed: int) -> None:
    """Reading on shows every message once, those that were added meanwhile as well."""
    random = Random(seed)  # noqa: S311 - the same dice on every run
    for _ in range(5):
        await add_something(chat, random)
    first, *_ = await visible(chat)
    page = await chat.journal.messages.history("chat", limit=1, after=position(first) - 1)
    seen: list[BaseMessage] = []
    while page.messages:
        seen += page.messages
        if len(seen) < 20:
            await add_something(chat, random)
        after = position(seen[-1])
        page = await chat.journal.messages.history("chat", limit=random.randint(1, 5), after=after)
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
        await journal.messages.history("chat")
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
        await journal.messages.history("chat")
        await journal.search.find("ada", words)
        await journal.messages.tail("chat", max_tokens=100)
        await journal.threads.list_of("ada")
    assert caplog.records
    assert [r.getMessage() for r in caplog.records if words in r.getMessage()] == []


async def test_a_page_that_hides_nothing_says_nothing(
    journal: Journal, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    """A log line means that something was left out of this very page."""
    await follow_up_and_reply(chat)
    await chat.exchange()
    with caplog.at_level(logging.INFO):
        await journal.messages.history("chat", limit=2)
        assert caplog.records == []
        await journal.messages.history("chat")
    assert len(caplog.records) == 1

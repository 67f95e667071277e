"""What listeners of all threads of a user see, and what the user has read of them."""

import asyncio
from datetime import timedelta

from langchain_core.messages import AIMessage

from segue.core.batch import settle
from segue.core.snowflake import time_of
from segue.journal.feed import FeedPage
from segue.journal.journal import Journal
from segue.testing.journal_contract.chat import NOW, USER, Chat, position
from segue.testing.journal_contract.fixtures import START, OpenJournal, ticking_ids

YEARS = timedelta(days=16 * 365)


def said(page: FeedPage) -> list[tuple[str, str]]:
    """The messages of a page, with their threads."""
    return [(e.thread_id, e.message.text) for e in page.events if e.message is not None]


async def test_a_user_hears_all_own_threads_in_order(journal: Journal, chat: Chat) -> None:
    """Of other users and of threads among agents, nothing; whatever a thread's own clock says."""
    second = await chat.another("second")
    nested = await chat.another("chat/cook", agent_id="cook")
    stranger = await chat.another("strange", user_id="bo")
    for talk in (chat, second, nested, stranger, chat):
        await talk.exchange(f"To {talk.thread_id}?", "Yes.")
    page = await journal.feed.read_user(USER)
    expected = [("chat", "To chat?"), ("chat", "Yes."), ("second", "To second?")]
    expected += [("second", "Yes."), ("chat", "To chat?"), ("chat", "Yes.")]
    assert said(page) == expected
    places = [event.position for event in page.events]
    assert places == sorted(set(places))
    assert {thread.id for thread in page.threads} == {"chat", "second"}
    assert not page.is_cut


async def test_positions_rise_over_all_threads_of_a_user(journal: Journal, chat: Chat) -> None:
    """A process whose clock is behind stores above what the user has in other threads."""
    await chat.exchange()
    behind = Chat(journal, ticking_ids(7, START - timedelta(days=1)), NOW, "behind")
    await behind.begin()
    late = await behind.say("Late?")
    last = max(position(message) for message in await chat.messages())
    assert position(late.message) > last
    assert said(await journal.feed.read_user(USER, after=last)) == [("behind", "Late?")]


async def test_a_clock_that_was_years_ahead_dates_one_thread_only(
    journal: Journal, chat: Chat
) -> None:
    """The user's other threads stay in the present; who listens gets their entries all the same."""
    far = Chat(journal, ticking_ids(7, START + YEARS), NOW + YEARS, "far")
    await far.begin()
    await far.say("From the future.")
    after = (await journal.feed.read_user(USER)).position
    said_now = position((await chat.say("Now.")).message)
    assert time_of(said_now) - START < timedelta(days=1)
    page = await journal.feed.read_user(USER, after=after)
    assert [(thread.id, thread.preview) for thread in page.threads] == [("chat", "Now.")]
    await chat.finish(await chat.take_turn(), says={})
    [ended] = (await journal.feed.read_user(USER, after=page.position)).threads
    assert ended.id == "chat"
    later = Chat(journal, chat.ids, NOW, "far")
    await later.say("Still here?")
    page = await journal.feed.read_user(USER, after=ended.changed_position)
    assert said(page) == [("far", "Still here?")]


async def test_changes_of_an_entry_leave_the_ids_of_a_thread_alone(
    journal: Journal, chat: Chat
) -> None:
    """Its last position tells whether it went on: a title or a read mark is not part of it."""
    await chat.exchange()
    last = (await chat.thread()).last_position
    await journal.threads.update("chat", title="Opening hours")
    marked = await journal.threads.mark_read("chat", last)
    assert (marked.title, marked.unread, marked.last_position) == ("Opening hours", 0, last)


async def test_pages_of_a_user_leave_nothing_out(journal: Journal, chat: Chat) -> None:
    """From any position and in pages of any size: each event once, and each changed thread."""
    talks = [chat, *[await chat.another(f"talk {n}") for n in range(4)]]
    for talk in (*talks, *talks):
        await talk.exchange(f"{talk.thread_id}?", "Yes.")
    everything = (await journal.feed.read_user(USER)).events
    for limit in (1, 2, 3, 7):
        after, events, threads = 0, list[int](), set[str]()
        while True:
            page = await journal.feed.read_user(USER, after=after, limit=limit)
            events += [event.position for event in page.events]
            threads |= {thread.id for thread in page.threads}
            assert len(page.threads) <= limit
            assert page.position > after
            after = page.position
            if not page.is_cut:
                break
        assert events == [event.position for event in everything]
        assert threads == {talk.thread_id for talk in talks}
        rest = await journal.feed.read_user(USER, after=after)
        assert (rest.events, [*rest.threads]) == ([], [])


async def test_a_user_hears_of_each_change_of_a_thread(journal: Journal, chat: Chat) -> None:
    """A new thread, a title, preferences and a read mark; the thread comes as it is now."""
    after = (await journal.feed.read_user(USER)).position
    await chat.another("second")
    await journal.threads.update("chat", title="Opening hours")
    page = await journal.feed.read_user(USER, after=after)
    assert [(t.id, t.title) for t in page.threads] == [("second", None), ("chat", "Opening hours")]
    await chat.exchange()
    after = (await journal.feed.read_user(USER)).position
    last = (await chat.thread()).last_position
    await journal.threads.mark_read("chat", last)
    [changed] = (await journal.feed.read_user(USER, after=after)).threads
    assert (changed.id, changed.unread) == ("chat", 0)


async def test_a_user_hears_of_a_turn_that_ends_without_a_word(
    journal: Journal, chat: Chat
) -> None:
    """Its batch is closed by a message that no user sees; the error is for the user."""
    lease = await chat.running_reply()
    after = (await journal.feed.read_user(USER)).position
    batch = await journal.messages.load_batch(chat.thread_id, lease.turn.batch)
    [closing] = settle(batch, chat.ids).messages[len(batch.messages) :]
    await chat.fail(lease, "oops", closing, says={"kind": "error"})
    page = await journal.feed.read_user(USER, after=after)
    assert [e.turn and e.turn.id for e in page.events] == [lease.turn.id]
    assert page.events == (await journal.feed.read(chat.thread_id, after=after)).events


async def test_a_user_hears_that_a_thread_was_deleted(journal: Journal, chat: Chat) -> None:
    """Which one is not stored anywhere."""
    await (await chat.another("second")).exchange()
    after = (await journal.feed.read_user(USER)).position
    await journal.threads.delete("second")
    page = await journal.feed.read_user(USER, after=after)
    assert (page.events, page.has_deletions) == ([], True)
    assert not (await journal.feed.read_user(USER, after=page.position)).has_deletions
    await journal.removal.delete_user(USER)
    gone = await journal.feed.read_user(USER, after=page.position)
    assert (gone.has_deletions, gone.position) == (True, 0)


async def test_nothing_is_stored_below_what_a_listener_has(open_journal: OpenJournal) -> None:
    """While several threads are written, reading above the last position misses nothing."""
    handles = [await open_journal(), await open_journal()]
    writers = [Chat(handles[n % 2], ticking_ids(n), NOW, f"talk {n}") for n in range(4)]
    for writer in writers:
        await writer.begin()
    seen, after = list[tuple[str, str]](), 0

    async def write(chat: Chat) -> None:
        for n in range(8):
            await chat.say(str(n))

    writing = asyncio.gather(*map(write, writers))
    while True:
        is_done = writing.done()
        page = await handles[0].feed.read_user(USER, after=after, limit=5)
        seen += said(page)
        after = page.position
        if is_done and not page.is_cut:
            break
    await writing
    assert sorted(seen) == sorted((w.thread_id, str(n)) for w in writers for n in range(8))


async def test_a_user_hears_what_is_being_written(journal: Journal, chat: Chat) -> None:
    """In each thread; of a follow-up that was not shown, that it runs and nothing else."""
    lease = await chat.running_reply()
    await journal.turns.save_draft(lease, "m-1", "Let me")
    assert {n: d.text for n, d in (await journal.feed.read_user(USER)).drafts.items()} == {
        "chat": "Let me"
    }
    other = await chat.another("second")
    hidden = await other.running_follow_up()
    await journal.turns.save_draft(hidden, "m-1", "Still")
    page = await journal.feed.read_user(USER)
    assert page.drafts.keys() == {"chat"}
    assert not page.running["second"].is_shown


async def test_questions_of_all_threads_are_found(journal: Journal, chat: Chat) -> None:
    """Until they are answered."""
    asked = await chat.ask_back()
    assert [turn.id for turn in await journal.turns.list_waiting(USER)] == [asked.id]
    assert await journal.turns.list_waiting("bo") == []
    await chat.answer(asked.id, "yes")
    assert await journal.turns.list_waiting(USER) == []


async def test_unread_are_the_agents_messages_after_the_mark(journal: Journal, chat: Chat) -> None:
    """The mark never moves back, and what the user writes marks all before it as read."""
    lease = await chat.running_reply()
    one = await chat.write(lease, AIMessage("One."))
    await chat.finish(lease, AIMessage("Two."))
    assert (await chat.thread()).unread == 2
    first = position(one[0])
    assert (await journal.threads.mark_read("chat", first)).unread == 1
    assert (await journal.threads.mark_read("chat", 1)).read_position == first
    last = (await chat.thread()).last_position
    marked = await journal.threads.mark_read("chat", last)
    assert marked.unread == 0
    assert first < marked.read_position < last
    assert await journal.threads.mark_read("chat", last) == marked
    await chat.finish(await chat.shown_follow_up(), AIMessage("Still there?"))
    assert (await chat.thread()).unread == 1
    await chat.say("Yes.")
    assert (await chat.thread()).unread == 0

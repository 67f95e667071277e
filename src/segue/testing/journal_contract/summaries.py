"""Summaries: words that stand for archived batches, together or not at all."""

import asyncio

import pytest

from segue.core.snowflake import SnowflakeSource
from segue.errors import ConflictError, NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import Summary
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, Chat
from segue.testing.journal_contract.fixtures import START, OpenJournal, ticking_ids


async def summarise(chat: Chat, text: str, *batches: int) -> Summary:
    return await chat.summarise(text, batches)


async def batches_in_tail(chat: Chat) -> list[int]:
    return [
        batch.id for batch in await chat.journal.messages.tail(chat.thread_id, max_tokens=10_000)
    ]


async def talk(chat: Chat, times: int) -> list[int]:
    return [await chat.exchange(f"Question {n}?", "Yes.") for n in range(times)]


async def test_a_summary_replaces_its_batches_in_the_tail(journal: Journal, chat: Chat) -> None:
    """The words are stored and the batches archived in one step; without batches it is refused."""
    first, second, third = await talk(chat, 3)
    with pytest.raises(UsageError):
        await summarise(chat, "Nothing.")
    assert await journal.summaries.find("chat") is None
    summary = await summarise(chat, "They asked twice 🙂.", second, first)
    assert (summary.thread_id, summary.text) == ("chat", "They asked twice 🙂.")
    assert (summary.first_batch, summary.last_batch) == (first, second)
    assert summary.batches == (first, second)
    assert (summary.previous_id, summary.created_at) == (None, NOW)
    assert await journal.summaries.find("chat") == summary
    assert await batches_in_tail(chat) == [third]


async def test_summaries_form_a_chain(open_journal: OpenJournal, chat: Chat) -> None:
    """The newest one names the one before, also if a process with a slow clock wrote it."""
    batches = await talk(chat, 3)
    slow = Chat(await open_journal(), ticking_ids(node=2, start=START - HOUR), NOW)
    first = await summarise(chat, "First.", batches[0])
    second = await summarise(slow, "First and second.", batches[1])
    assert second.previous_id == first.id
    assert await chat.journal.summaries.find("chat") == second
    assert await batches_in_tail(chat) == batches[2:]


async def test_a_batch_is_archived_once(journal: Journal, chat: Chat) -> None:
    """One that is archived, named twice or not in the thread is refused, and nothing is changed."""
    archived, kept = await talk(chat, 2)
    [elsewhere] = await talk(await chat.another("second"), 1)
    summary = await summarise(chat, "First.", archived)
    for wanted in ([kept, archived], [archived, kept], [kept, kept]):
        with pytest.raises(ConflictError):
            await summarise(chat, "Both.", *wanted)
    for unknown in (kept + 1, elsewhere):
        with pytest.raises(NotFoundError):
            await summarise(chat, "Both.", kept, unknown)
    assert await journal.summaries.find("chat") == summary
    assert await batches_in_tail(chat) == [kept]


async def test_two_summaries_at_once_do_not_both_archive(crowd: list[Chat]) -> None:
    """Of two processes that summarise the same batch at the same time, one is refused."""
    [batch] = await talk(crowd[0], 1)
    saved = (summarise(each, "Mine.", batch) for each in crowd[:2])
    results = await asyncio.gather(*saved, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["ConflictError", "Summary"]
    assert await crowd[0].journal.summaries.find("chat") in results


async def test_a_summary_takes_the_place_of_the_one_it_was_made_from(chat: Chat) -> None:
    """Made from one that is not the newest any more, it is a conflict, and nothing is changed."""
    batches = await talk(chat, 3)

    async def save(text: str, batch: int, follows: int) -> Summary:
        return await chat.summarise(text, [batch], follows=follows)

    first = await save("First.", batches[0], 0)
    for wrong in (0, first.id + 1):
        with pytest.raises(ConflictError, match="Nothing was written"):
            await save("Second alone.", batches[1], wrong)
    assert await batches_in_tail(chat) == [batches[2], batches[1]]
    second = await save("First and second.", batches[1], first.id)
    await chat.journal.summaries.undo(second)
    with pytest.raises(ConflictError):
        await save("First, second and third.", batches[2], second.id)
    assert await chat.journal.summaries.find("chat") == first


async def test_batches_that_are_not_archived_are_listed_oldest_first(chat: Chat) -> None:
    """Page by page, without those of other threads."""
    batches = await talk(chat, 5)
    await talk(await chat.another("second"), 1)
    await summarise(chat, "First and third.", batches[0], batches[2])
    live = [batches[1], batches[3], batches[4]]
    assert await chat.journal.messages.list_live_batches("chat") == live
    assert await chat.journal.messages.list_live_batches("chat", limit=2) == live[:2]
    assert await chat.journal.messages.list_live_batches("chat", after=live[1]) == live[2:]


async def test_batches_are_read_together(journal: Journal, chat: Chat) -> None:
    """Oldest first, each as it is read alone, archived or not; what is not there is left out."""
    first, second, third = [await chat.exchange(f"Question {n}?", "Yes.") for n in range(3)]
    await chat.summarise("Asked.", [first])
    read = await journal.messages.load_batches("chat", [third, first, 7])
    assert [batch.id for batch in read] == [first, third]
    assert read[1].messages == (await chat.batch(third)).messages
    assert second not in {batch.id for batch in read}


async def test_only_the_newest_summary_can_be_undone(journal: Journal, chat: Chat) -> None:
    """Once; its batches return to be summarised again, and the summary before it counts."""
    batches = await talk(chat, 3)
    first = await summarise(chat, "First.", batches[0])
    second = await summarise(chat, "First and second.", batches[1])
    with pytest.raises(ConflictError):
        await journal.summaries.undo(first)
    assert await journal.summaries.find("chat") == second
    assert await batches_in_tail(chat) == batches[2:]
    await journal.summaries.undo(second)
    with pytest.raises(ConflictError):
        await journal.summaries.undo(second)
    assert await journal.summaries.find("chat") == first
    assert await batches_in_tail(chat) == [batches[2], batches[1]]
    await journal.summaries.undo(first)
    assert await journal.summaries.find("chat") is None
    assert await batches_in_tail(chat) == batches[::-1]
    better = await summarise(chat, "Better.", batches[0])
    assert better.previous_id is None
    assert await journal.summaries.find("chat") == better


async def test_a_batch_in_work_is_not_archived(
    journal: Journal, chat: Chat, ids: SnowflakeSource
) -> None:
    """Its second half would be left over in the tail."""
    accepted = await chat.say()
    for _ in ("queued", "running"):
        with pytest.raises(ConflictError, match="Nothing was written"):
            await journal.summaries.save("chat", "Asked.", [accepted.turn.batch], ids=ids, now=NOW)
        await chat.take_turn()
        chat.now += 2 * LEASE
    assert await journal.summaries.find("chat") is None


async def test_a_batch_that_goes_on_comes_back_whole(chat: Chat) -> None:
    """After a continuation the tail holds all of the batch, not the new part alone."""
    batch = await chat.exchange()
    await chat.summarise("Asked.", [batch])
    await chat.continue_batch(batch)
    await chat.reply("One more thing.")
    [whole] = await chat.journal.messages.tail("chat", max_tokens=1_000)
    assert len(whole.messages) == 4
    assert whole.is_complete


@pytest.mark.parametrize("max_tokens", [0, 1, 10, 10_000])
async def test_a_window_is_the_tail_with_the_newest_summary(
    journal: Journal, chat: Chat, max_tokens: int
) -> None:
    """Read together, they are what they are apart, also up to a current batch."""
    batches = await talk(chat, 5)
    assert (await journal.messages.window("chat", max_tokens=max_tokens)).summary is None
    await summarise(chat, "First.", batches[0])
    newest = await summarise(chat, "First and second.", batches[1])
    for current in (None, *batches[2:]):
        window = await journal.messages.window("chat", max_tokens=max_tokens, current_batch=current)
        tail = await journal.messages.tail("chat", max_tokens=max_tokens, current_batch=current)
        assert (window.batches, window.summary) == (tail, newest)


async def test_a_window_is_of_one_moment(open_journal: OpenJournal, chat: Chat) -> None:
    """While batches are archived, each is in the summary or in the tail: never in both or none."""
    batches = await talk(chat, 8)
    other = await open_journal()

    async def archive() -> None:
        for batch in batches[:-1]:
            await summarise(chat, "So far.", batch)

    archiving = asyncio.create_task(archive())
    while not archiving.done():
        window = await other.messages.window("chat", max_tokens=10_000)
        newest = max(window.summary.batches) if window.summary else 0
        assert [batch.id for batch in window.batches] == [b for b in batches[::-1] if b > newest]
    await archiving

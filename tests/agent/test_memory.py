"""The memory book: facts are found, kept once, refused and forgotten."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from segue.agent.memory import MAX_CONTENT, MemoryBook
from segue.core.triggers import TRIGGER_PROMPTS
from segue.errors import ConflictError, UsageError
from segue.journal.journal import Journal
from segue.journal.sqlite import SqliteJournal
from segue.runtime.ids import SnowflakeGenerator
from segue.settings.agents import MemoryConfig
from tests.agent.meanings import NOW, Meanings, book_of, contents, stored

pytestmark = pytest.mark.anyio


async def test_facts_are_found_by_words_and_by_meaning(journal: Journal) -> None:
    """A fact that shares a word and one that means the same are both found, others are not."""
    book = book_of(journal, Meanings(pets="animal", dog="animal", tea="drink", bank="job"))
    for fact in ("Has a dog.", "Drinks tea.", "Works at a bank."):
        await book.remember("guide", "ada", fact)
    assert contents(await book.search("guide", "ada", "Which pets?")) == ["Has a dog."]
    assert contents(await book.search("guide", "ada", "pets at the bank")) == [
        "Has a dog.",
        "Works at a bank.",
    ]
    assert await book.search("guide", "bob", "Which pets?") == []
    assert await book.search("tutor", "ada", "Which pets?") == []


async def test_a_search_embeds_its_text_once(journal: Journal) -> None:
    """The embedder is asked once per search, and not at all if there is nothing to ask."""
    embedder = Meanings()
    book = book_of(journal, embedder)
    await book.search("guide", "ada", "tea")
    assert await book.search("guide", "ada", " \n") == []
    assert embedder.texts == ["tea"]


async def test_the_config_sets_threshold_and_limit(journal: Journal) -> None:
    """A threshold of one's own replaces the embedder's; no more are told than the limit."""
    embedder = Meanings()
    for n in range(4):
        await book_of(journal, embedder).remember("guide", "ada", f"Fact {n}.")

    async def finds(**settings: Any) -> int:
        return len(await book_of(journal, embedder, **settings).search("guide", "ada", "zebra"))

    assert await finds() == 0
    assert await finds(threshold=0) == 4
    assert await finds(threshold=0, limit=2) == 2


async def test_any_text_may_be_searched_for(journal: Journal) -> None:
    """Signs, commands of a database and half an emoji are no errors."""
    book = book_of(journal)
    await book.remember("guide", "ada", "The shop is open.")
    for text in (
        '"',
        "'; DROP TABLE memories; --",
        "%s ? :x",
        "🙂",
        "\x00",
        "\ud83d",
        "x" * 50_000,
    ):
        await book.search("guide", "ada", text)
    assert await stored(journal) == ["The shop is open."]


async def test_a_new_fact_gets_a_key_and_a_vector(journal: Journal) -> None:
    """The key is made of a new id, so that two facts never share one by chance."""
    book = book_of(journal)
    first = await book.remember("guide", "ada", "  Likes tea.\n")
    second = await book.remember("guide", "ada", "Has a cat.", key="pet")
    assert first.is_new
    assert second.is_new
    assert (first.memory.content, first.memory.embedding_model) == ("Likes tea.", "meanings")
    assert first.memory.key.startswith("memory-")
    assert first.memory.key.removeprefix("memory-").isdigit()
    assert second.memory.key == "pet"
    assert first.memory.created_at == NOW


@pytest.mark.parametrize("again", ["Likes tea.", "Is fond of tea."])
async def test_a_fact_that_is_known_is_updated_instead(journal: Journal, again: str) -> None:
    """The same words, or words that mean the same, do not become a second memory."""
    book = book_of(journal, Meanings(tea="tea"))
    first = await book.remember("guide", "ada", "Likes tea.")
    second = await book.remember("guide", "ada", again)
    assert not second.is_new
    assert (second.memory.id, second.memory.key) == (first.memory.id, first.memory.key)
    assert await stored(journal) == [again]


async def test_a_fact_with_a_key_replaces_what_was_there(journal: Journal) -> None:
    """A key names a fact, whatever it says."""
    book = book_of(journal)
    await book.remember("guide", "ada", "Lives in Basel.", key="home")
    moved = await book.remember("guide", "ada", "Lives in Bern.", key=" home ")
    assert not moved.is_new
    assert await stored(journal) == ["Lives in Bern."]


@pytest.mark.parametrize("again", ["Likes tea.", "Is fond of tea."])
async def test_a_key_that_is_given_wins_over_a_fact_that_says_the_same(
    journal: Journal, again: str
) -> None:
    """The fact is found under the key that was asked for, and only there, in a full book too."""
    book = book_of(journal, Meanings(tea="tea"), capacity=1)
    first = await book.remember("guide", "ada", "Likes tea.")
    named = await book.remember("guide", "ada", again, key="drink")
    assert (named.memory.key, named.memory.content) == ("drink", again)
    assert (named.is_new, named.count) == (False, 1)
    assert await stored(journal) == [again]
    assert not await book.forget("guide", "ada", first.memory.key)
    assert contents(await book.search("guide", "ada", "tea")) == [again]


async def test_the_same_fact_from_two_processes_is_one_memory(tmp_path: Path) -> None:
    """However close they come, one adds it and the others update it."""
    journals = [SqliteJournal(tmp_path / "shared.db") for _ in range(2)]
    for journal in journals:
        await journal.open()
    books = [
        MemoryBook(
            journals[n % 2].memories,
            Meanings(tea="tea"),
            ids=SnowflakeGenerator(node=n),
            clock=lambda: NOW,
            config=MemoryConfig(),
        )
        for n in range(6)
    ]
    told = await asyncio.gather(
        *(book.remember("guide", "ada", f"Likes tea, {n}.") for n, book in enumerate(books))
    )
    assert sum(t.is_new for t in told) == 1
    assert await journals[0].memories.count("guide", "ada") == 1
    for journal in journals:
        await journal.close()


async def test_little_room_is_told_once_per_crossing(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning at 80 %, none at each fact after it, and one again after room was made."""
    book = book_of(journal, capacity=5)
    told = [await book.remember("guide", "ada", f"Fact {n}.", key=f"{n}") for n in range(5)]
    assert [t.nearly_full for t in told] == [False, False, False, True, True]
    assert [(r.levelname, "ada" in r.message) for r in caplog.records] == [("WARNING", True)]
    await book.remember("guide", "ada", "Fact 4, changed.", key="4")
    for key in ("3", "4"):
        assert await book.forget("guide", "ada", key)
    await book.remember("guide", "ada", "One more fact.")
    assert len(caplog.records) == 2


async def test_a_full_book_refuses_and_says_what_to_do(journal: Journal) -> None:
    """Nothing is evicted for a new fact, and what is known can still be updated."""
    book = book_of(journal, capacity=2)
    await book.remember("guide", "ada", "Likes tea.", key="tea")
    await book.remember("guide", "ada", "Has a cat.", key="cat")
    with pytest.raises(ConflictError, match=r"2 facts about user 'ada'.*Forget some or raise it"):
        await book.remember("guide", "ada", "Has a dog.")
    assert await stored(journal) == ["Has a cat.", "Likes tea."]
    await book.remember("guide", "ada", "Has two cats.", key="cat")
    await book.remember("guide", "bob", "Has a dog.")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("x" * (MAX_CONTENT + 1), "at most 2,000 characters, not 2,001"),
        *((prompt, "trigger") for prompt in TRIGGER_PROMPTS.values()),
        (f"  {TRIGGER_PROMPTS['check_in']}\n", "trigger"),
    ],
)
async def test_what_is_no_fact_is_refused(journal: Journal, content: str, said: str) -> None:
    """Nothing, too much, and a trigger's own words are not remembered as the user's."""
    with pytest.raises(UsageError, match=rf"{said}.*Nothing was written"):
        await book_of(journal).remember("guide", "ada", content)
    assert await stored(journal) == []


@pytest.mark.parametrize("key", ["", "  ", "k" * 201])
async def test_a_key_that_is_none_is_refused(journal: Journal, key: str) -> None:
    """A key can be written into a tool call, so it is short and not blank."""
    with pytest.raises(UsageError, match="key"):
        await book_of(journal).remember("guide", "ada", "Likes tea.", key=key)


async def test_words_beside_a_triggers_are_remembered(journal: Journal) -> None:
    """Only a trigger's exact words are refused; a user may speak of the same things."""
    fact = "Wants me to continue our conversation naturally."
    await book_of(journal).remember("guide", "ada", fact)
    assert await stored(journal) == [fact]


async def test_forgetting_says_whether_there_was_something(journal: Journal) -> None:
    """A forgotten fact is not found any more, by words or by meaning."""
    book = book_of(journal)
    fact = (await book.remember("guide", "ada", "Likes tea.")).memory
    assert not await book.forget("guide", "bob", fact.key)
    assert await book.forget("guide", "ada", fact.key)
    assert not await book.forget("guide", "ada", fact.key)
    assert await book.search("guide", "ada", "Likes tea.") == []

"""Memories: kept by key, found by words and by meaning, one namespace at a time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from segue.core.snowflake import SnowflakeSource
from segue.journal.journal import Journal
from segue.journal.memories import FoundMemory, Memory, MemorySearch, NewMemory
from segue.testing.journal_contract.chat import HOUR, NOW, Chat
from segue.testing.journal_contract.fixtures import START, OpenJournal, ticking_ids
from segue.testing.journal_contract.search import AROUND_A_WORD, LONG, WORDLESS

# The vector that most searches ask for.
EAST: dict[str, Any] = {"embedding": [1.0, 0.0], "embedding_model": "m"}


@dataclass
class Notebook:
    """What the agent `guide` knows of the user `ada`."""

    journal: Journal
    ids: SnowflakeSource
    now: datetime

    async def remember(self, key: str, content: str, **fields: Any) -> Memory:
        names = {"agent_id": "guide", "user_id": "ada"} | fields
        new = NewMemory(key=key, content=content, **names)
        return await self.journal.memories.put(new, ids=self.ids, now=self.now)

    async def embed(self, key: str, content: str, *vector: float, model: str = "m") -> Memory:
        return await self.remember(key, content, embedding=vector, embedding_model=model)

    async def recall(self, text: str = "", **fields: Any) -> list[FoundMemory]:
        return await self.journal.memories.search(MemorySearch("guide", "ada", text, **fields))


@pytest.fixture
def notebook(journal: Journal, ids: SnowflakeSource, now: datetime) -> Notebook:
    return Notebook(journal, ids, now)


def keys(memories: Sequence[Memory | FoundMemory]) -> list[str]:
    return [m.key if isinstance(m, Memory) else m.memory.key for m in memories]


async def test_a_deleted_memory_is_gone(journal: Journal, notebook: Notebook) -> None:
    """Until then it is as it was given; then it is not found, by words or by meaning."""
    metadata = {"source": "chat", "n": 2**63 - 1, "deep": [{"x": None}]}
    memory = await notebook.remember("tea", "Drinks tea 🍵.", metadata=metadata, **EAST)
    assert (memory.agent_id, memory.user_id, memory.key) == ("guide", "ada", "tea")
    assert (memory.content, memory.metadata) == ("Drinks tea 🍵.", metadata)
    assert (memory.embedding_model, memory.created_at, memory.updated_at) == ("m", NOW, NOW)
    assert await journal.memories.list_of("guide", "ada") == [memory]
    assert await journal.memories.delete("guide", "ada", "tea")
    assert not await journal.memories.delete("guide", "ada", "tea")
    assert await journal.memories.list_of("guide", "ada") == []
    assert await notebook.recall("tea", **EAST) == []


async def test_a_memory_is_found_by_its_key_in_its_own_namespace(
    journal: Journal, notebook: Notebook
) -> None:
    """As it is stored; another user's or agent's memory with the same key is another one."""
    memory = await notebook.remember("tea", "Drinks tea.")
    await notebook.remember("tea", "Hates tea.", user_id="bob")
    assert await journal.memories.find("guide", "ada", "tea") == memory
    assert await journal.memories.find("clerk", "ada", "tea") is None
    assert await journal.memories.find("guide", "ada", "coffee") is None


async def test_a_memory_with_a_known_key_is_replaced(journal: Journal, notebook: Notebook) -> None:
    """The fact stays the same row with new words, found by the new ones only."""
    old = await notebook.embed("drink", "Likes coffee.", 1, 0)
    notebook.now += HOUR
    new = await notebook.remember("drink", "Likes tea.", metadata={"v": 2})
    assert (new.id, new.created_at, new.updated_at) == (old.id, NOW, NOW + HOUR)
    assert (new.content, new.metadata, new.embedding_model) == ("Likes tea.", {"v": 2}, None)
    assert await journal.memories.list_of("guide", "ada") == [new]
    assert await notebook.recall("coffee") == []
    assert keys(await notebook.recall("tea")) == ["drink"]
    assert await notebook.recall(**EAST) == []


async def test_a_key_written_at_once_is_one_memory(crowd: list[Chat]) -> None:
    """Processes that learn the same fact do not store it twice."""
    books = [Notebook(each.journal, each.ids, NOW) for each in crowd]
    await asyncio.gather(*(book.remember("tea", f"Tea {n}.") for n, book in enumerate(books)))
    assert await crowd[0].journal.memories.count("guide", "ada") == 1


async def test_namespaces_are_apart(journal: Journal, notebook: Notebook) -> None:
    """What one agent knows of a user is neither another agent's nor another user's."""
    await notebook.remember("tea", "Likes tea.", **EAST)
    await notebook.remember("tea", "Sells tea.", agent_id="tutor", **EAST)
    await notebook.remember("tea", "Hates tea.", user_id="bob", **EAST)
    assert await journal.memories.count("guide", "ada") == 1
    assert [m.content for m in await journal.memories.list_of("tutor", "ada")] == ["Sells tea."]
    found = await notebook.recall("tea", **EAST)
    assert [f.memory.content for f in found] == ["Likes tea."]
    assert await journal.memories.delete("guide", "bob", "tea")
    assert await journal.memories.count("guide", "ada") == 1


async def test_memories_are_listed_newest_first_in_pages(
    open_journal: OpenJournal, notebook: Notebook
) -> None:
    """Paging reaches every memory once; one that a slow clock stored last is still the newest."""
    slow = Notebook(await open_journal(), ticking_ids(node=2, start=START - HOUR), NOW)
    for n, book in enumerate([notebook] * 4 + [slow]):
        await book.remember(f"fact-{n}", "A fact.")
    memories, listed = notebook.journal.memories, list[Memory]()
    while page := await memories.list_of(
        "guide", "ada", limit=2, before=listed[-1].id if listed else None
    ):
        listed += page
    assert keys(listed) == [f"fact-{n}" for n in reversed(range(5))]
    assert await memories.count("guide", "ada") == 5


async def test_memories_are_found_by_words(notebook: Notebook) -> None:
    """Without an embedding the words alone rank, those with more of them first."""
    await notebook.remember("boat", "has a red boat")
    await notebook.remember("car", "has a red car")
    await notebook.remember("cat", "has an old cat")
    found = await notebook.recall("red boat")
    assert keys(found) == ["boat", "car"]
    assert all(f.text_score is not None and f.vector_score is None for f in found)
    assert found[0].score > found[1].score


async def test_memories_are_found_by_meaning(notebook: Notebook) -> None:
    """Without matching words the nearest vectors come first, whatever their length."""
    await notebook.embed("far", "unrelated", 0, 1)
    await notebook.embed("near", "also unrelated", 10, 1)
    await notebook.embed("opposite", "nor this", -1, 0)
    found = await notebook.recall("zebra", **EAST)
    assert keys(found) == ["near", "far", "opposite"]
    scores = [f.vector_score for f in found]
    assert scores == pytest.approx([10 / 101**0.5, 0, -1], abs=1e-6)
    assert all(f.text_score is None for f in found)


async def test_words_and_meaning_are_weighed(notebook: Notebook) -> None:
    """All weight on words, all on meaning, or both: the best of each comes first."""
    await notebook.embed("words", "red boat", 0, 1)
    await notebook.embed("meaning", "green car", 1, 0)
    await notebook.embed("both", "red boat", 0.9, 0.1)
    await notebook.embed("half", "red cat", -1, 0)
    by_words = await notebook.recall("red boat", text_weight=1.0, **EAST)
    assert set(keys(by_words)[:2]) == {"words", "both"}
    assert keys(await notebook.recall("red boat", text_weight=0.0, **EAST))[0] == "meaning"
    both = await notebook.recall("red boat", **EAST)
    assert keys(both)[0] == "both"
    assert both[0].text_score is not None
    assert both[0].vector_score == pytest.approx(0.9 / 0.82**0.5, abs=1e-6)
    scores = [f.score for f in both]
    assert scores == sorted(scores, reverse=True)


async def test_scores_are_comparable_between_queries(notebook: Notebook) -> None:
    """From 0 to 1, also of the only memory there is, and a near one's is its similarity."""
    await notebook.embed("tea", "Likes green tea.", 0.8, 0.6)
    [near] = await notebook.recall("zebra", **EAST)
    assert near.score == pytest.approx(0.8)
    [worded] = await notebook.recall("green tea")
    [half] = await notebook.recall("tea zebra")
    assert 0.9 < worded.score <= 1
    assert 0 < half.score < 0.5
    await notebook.embed("boat", "Has a red boat.", 0, 1)
    [again, far] = await notebook.recall("zebra", **EAST)
    assert [again.score, far.score] == pytest.approx([0.8, 0], abs=1e-6)


async def test_the_one_memory_with_the_words_profits_from_them(notebook: Notebook) -> None:
    """A word that only one memory holds is the best of signs, not one without weight."""
    await notebook.embed("other", "green car", 1, 0)
    await notebook.embed("boat", "red boat", 1, 0.1)
    found = await notebook.recall("boat", text_weight=0.9, **EAST)
    assert keys(found) == ["boat", "other"]


async def test_vectors_of_another_kind_are_not_compared(notebook: Notebook) -> None:
    """Each search finds the vectors of its own model and size; words still find the memory."""
    await notebook.embed("old", "Likes tea.", 1, 0, model="old")
    await notebook.embed("new", "also unrelated", 1, 0, 0, model="new")
    await notebook.remember("none", "without any")
    found = await notebook.recall(embedding=[1.0, 0.0, 0.0], embedding_model="new")
    assert keys(found) == ["new"]
    found = await notebook.recall(embedding=[1.0, 0.0], embedding_model="old")
    assert keys(found) == ["old"]
    for vector, model in (([1.0, 0.0], "other"), ([1.0, 0.0, 0.0], "old"), ([1.0], "old")):
        fields: dict[str, Any] = {"embedding": vector, "embedding_model": model}
        assert await notebook.recall("zebra", **fields) == []
        [named] = await notebook.recall("tea", **fields)
        assert named.vector_score is None


async def test_a_vector_of_zeros_is_no_error(notebook: Notebook) -> None:
    """An embedder that returns nothing is not an error."""
    await notebook.embed("zero", "unrelated", 0, 0)
    await notebook.embed("near", "also unrelated", 1, 0)
    found = await notebook.recall(**EAST)
    assert keys(found)[0] == "near"
    assert await notebook.recall(embedding=[0.0, 0.0], embedding_model="m") is not None


async def test_a_memory_without_a_common_word_has_to_be_near(notebook: Notebook) -> None:
    """A threshold keeps out what is far away, but neither what shares a word nor what is nearer."""
    await notebook.embed("far", "unrelated", 0, 1)
    await notebook.embed("far but named", "zebra", 0, 1)
    await notebook.embed("near", "also unrelated", 1, 0)
    found = await notebook.recall("zebra", threshold=0.5, limit=2, **EAST)
    assert set(keys(found)) == {"near", "far but named"}
    assert keys(await notebook.recall("zebra", threshold=0.5)) == ["far but named"]


async def test_endings_and_filler_words_do_not_count(notebook: Notebook) -> None:
    """A word is found in its other forms, and "the" finds nothing."""
    await notebook.remember("run", "Is running on the weekends.")
    for text in ("Do you run?", "RUNS at a weekend", "the Weekend's"):
        assert keys(await notebook.recall(text)) == ["run"], text
    assert await notebook.recall("the on is") == []


async def test_words_of_any_language_are_found(notebook: Notebook) -> None:
    """Other alphabets, accents and scripts without spaces work; other words still do not match."""
    await notebook.remember("other", "Has a dog.")
    for content, asked in (
        ("Trinkt gern grünen Tee.", "GRÜNEN"),
        ("Aime les crêpes à l'été.", "crepes"),
        ("Любит чёрный чай.", "чай"),
        ("我喜欢喝绿茶。", "绿茶"),
        ("我喜欢喝绿茶。", "茶"),
        ("お茶が好きです。", "お茶"),
        ("ฉันชอบดื่มชา", "ดื่มชา"),
        ("한국어를 공부합니다.", "한국어를"),
        ("किताबें पढ़ना पसंद है।", "किताबें"),
        ("يحب الشاي الأخضر.", "الشاي"),
    ):
        await notebook.remember("this", content)
        assert keys(await notebook.recall(asked)) == ["this"], asked


async def test_what_others_know_changes_no_score(notebook: Notebook) -> None:
    """How rare a word is depends on one's own memories only."""
    await notebook.remember("tea", "Likes tea.")
    await notebook.remember("cat", "Has a cat.")
    alone = await notebook.recall("tea with a cat")
    for n in range(5):
        await notebook.remember(f"tea-{n}", "Sells a lot of tea.", user_id="bob")
    assert await notebook.recall("tea with a cat") == alone


async def test_a_search_of_memories_returns_at_most_its_limit(notebook: Notebook) -> None:
    """The best ones, no more than were asked for."""
    for n in range(5):
        await notebook.embed(f"fact-{n}", f"fact {n}", 1, n)
    found = await notebook.recall("fact", **EAST, limit=2)
    assert len(found) == 2
    assert found[0].memory.key == "fact-0"


async def test_any_text_may_be_looked_for_in_memories(notebook: Notebook) -> None:
    """Whatever a user says is a valid query: it finds the memory if it holds its word."""
    await notebook.remember("shop", "The shop is open.")
    queries = [*WORDLESS, *AROUND_A_WORD, *LONG.values()]
    results = {text: keys(await notebook.recall(text)) for text in queries}
    assert results == {text: ["shop"] if "open" in text else [] for text in queries}

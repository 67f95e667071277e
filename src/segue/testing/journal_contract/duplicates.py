"""Storing a fact once, and giving it a vector later."""

import asyncio
from typing import Any

import pytest

from segue.errors import ConflictError
from segue.journal.journal import Journal
from segue.journal.memories import KeptMemory, Memory, NewMemory
from segue.testing.journal_contract.chat import HOUR, Chat
from segue.testing.journal_contract.fixtures import OpenJournal, ticking_ids
from segue.testing.journal_contract.memories import EAST, Notebook, keys


async def keep(
    notebook: Notebook, key: str, content: str, *vector: float, capacity: int = 10, **fields: Any
) -> KeptMemory:
    names = {"agent_id": "guide", "user_id": "ada"} | fields
    if vector:
        names = {"embedding": vector, "embedding_model": "m"} | names
    return await notebook.journal.memories.keep(
        NewMemory(key=key, content=content, **names),
        duplicate_at=0.95,
        capacity=capacity,
        ids=notebook.ids,
        now=notebook.now,
    )


async def test_a_new_fact_is_added(journal: Journal, notebook: Notebook) -> None:
    """Facts that say different things are different memories, and are counted."""
    first = await keep(notebook, "tea", "Likes tea.", 1, 0)
    second = await keep(notebook, "cat", "Has a cat.", 0, 1)
    assert (first.added, first.count, second.added, second.count) == (True, 1, True, 2)
    assert await journal.memories.list_of("guide", "ada") == [second.memory, first.memory]
    assert keys(await notebook.recall("cat")) == ["cat"]


async def test_a_fact_that_is_known_is_updated(notebook: Notebook) -> None:
    """Its id, key and birth stay; its words, vector and time are the new ones."""
    told: dict[str, tuple[str, str, tuple[float, ...]]] = {
        "same key": ("tea", "Likes green tea.", (0.0, 1.0)),
        "same content": ("new", "Likes tea.", (0.0, 1.0)),
        "same content without a vector": ("new", "Likes tea.", ()),
        "near": ("new", "Is fond of tea.", (2.0, 0.1)),
    }
    for user, (key, content, vector) in told.items():
        old = await keep(notebook, "tea", "Likes tea.", 1, 0, user_id=user)
        first, notebook.now = notebook.now, notebook.now + HOUR
        kept = await keep(notebook, key, content, *vector, metadata={"v": 2}, user_id=user)
        assert (kept.added, kept.count) == (False, 1), user
        assert (kept.memory.id, kept.memory.key) == (old.memory.id, "tea"), user
        assert (kept.memory.created_at, kept.memory.updated_at) == (first, notebook.now)
        assert (kept.memory.content, kept.memory.metadata) == (content, {"v": 2}), user
        assert await notebook.journal.memories.list_of("guide", user) == [kept.memory], user


async def test_a_fact_that_is_like_several_updates_one(
    journal: Journal, notebook: Notebook
) -> None:
    """The key counts before the content, the content before the meaning, and then the nearest."""
    for n, name in enumerate(("a", "b", "c", "d")):
        await keep(notebook, name, f"Fact {name}.", *(float(n == place) for place in range(4)))
    nearer = (0.1, 0.2, 0.0, 1.0)
    assert (await keep(notebook, "a", "Fact b.", *nearer)).memory.key == "a"
    assert (await keep(notebook, "new", "Fact c.", *nearer)).memory.key == "c"
    assert (await keep(notebook, "new", "Fact x.", 0.0, 0.0, 0.0, 1.0)).memory.key == "d"
    assert await journal.memories.count("guide", "ada") == 4


@pytest.mark.parametrize(
    "fields",
    [
        {"embedding": (1.0, 0.5)},
        {"embedding_model": "other"},
        {"embedding": (1.0, 0.0, 0.0)},
        {"agent_id": "tutor"},
        {"user_id": "bob"},
    ],
    ids=["not near enough", "other model", "other size", "other agent", "other user"],
)
async def test_only_what_says_the_same_is_updated(
    notebook: Notebook, fields: dict[str, Any]
) -> None:
    """Something similar, something that cannot be compared or that is someone else's is new."""
    await keep(notebook, "tea", "Likes tea.", 1, 0)
    kept = await keep(notebook, "new", "Is fond of tea.", 1, 0, **fields)
    assert kept.added
    assert kept.memory.key == "new"


async def test_a_vector_stays_with_its_content(notebook: Notebook) -> None:
    """A fact told again while the embedder is away keeps its vector; another fact does not."""
    await keep(notebook, "tea", "Likes tea.", 1, 0)
    again = await keep(notebook, "tea", "Likes tea.")
    assert again.memory.embedding_model == "m"
    [found] = await notebook.recall(**EAST)
    assert found.vector_score == pytest.approx(1)
    changed = await keep(notebook, "tea", "Likes coffee.")
    assert changed.memory.embedding_model is None
    assert await notebook.recall(**EAST) == []


async def test_a_full_namespace_learns_nothing_new(journal: Journal, notebook: Notebook) -> None:
    """It refuses a new fact and says what to do, evicts none, and still updates what it knows."""
    await keep(notebook, "tea", "Likes tea.", capacity=2)
    await keep(notebook, "cat", "Has a cat.", capacity=2)
    with pytest.raises(ConflictError, match=r"ada.*capacity.*Nothing was written"):
        await keep(notebook, "dog", "Has a dog.", capacity=2)
    assert keys(await journal.memories.list_of("guide", "ada")) == ["cat", "tea"]
    assert (await keep(notebook, "cat", "Has two cats.", capacity=2)).count == 2
    assert (await keep(notebook, "dog", "Has a dog.", capacity=2, user_id="bob")).added
    assert await journal.memories.delete("guide", "ada", "tea")
    assert (await keep(notebook, "dog", "Has a dog.", capacity=2)).added


async def test_a_fact_told_twice_at_once_is_one_memory(crowd: list[Chat]) -> None:
    """Processes that learn the same under different keys store one memory, and one has added it."""
    books = [Notebook(each.journal, each.ids, each.now) for each in crowd]
    kept = await asyncio.gather(
        *(keep(book, f"key-{n}", f"Tea {n % 4}.", 1, n / 100) for n, book in enumerate(books))
    )
    assert sum(k.added for k in kept) == 1
    assert len({k.memory.id for k in kept}) == 1
    assert await crowd[0].journal.memories.count("guide", "ada") == 1


async def test_room_is_not_given_twice(crowd: list[Chat]) -> None:
    """Different facts that come at once do not get past the capacity together."""
    books = [Notebook(each.journal, each.ids, each.now) for each in crowd]
    results = await asyncio.gather(
        *(keep(book, f"key-{n}", f"Fact {n}.", capacity=3) for n, book in enumerate(books)),
        return_exceptions=True,
    )
    kept = [r for r in results if isinstance(r, KeptMemory)]
    assert sorted(k.count for k in kept) == [1, 2, 3]
    assert sum(isinstance(r, ConflictError) for r in results) == len(crowd) - 3
    assert await crowd[0].journal.memories.count("guide", "ada") == 3


async def test_memories_without_a_vector_of_a_model_are_listed(
    journal: Journal, notebook: Notebook
) -> None:
    """Those without any and those of another model, of all users, oldest first and in pages."""
    await notebook.embed("right", "has one", 1, 0, model="new")
    await notebook.embed("old", "has another", 1, 0, model="old")
    await notebook.remember("none", "has none")
    await notebook.remember("bobs", "has none", user_id="bob")
    await notebook.remember("tutors", "has none", agent_id="tutor")
    assert await journal.memories.count_to_embed("new") == 4
    assert await journal.memories.count_to_embed("new", agent_id="tutor") == 1
    listed: list[Memory] = []
    while page := await journal.memories.list_to_embed(
        "new", limit=3, after=listed[-1].id if listed else 0
    ):
        listed += page
    assert keys(listed) == ["old", "none", "bobs", "tutors"]
    ours = await journal.memories.list_to_embed("new", agent_id="guide")
    assert keys(ours) == ["old", "none", "bobs"]


async def test_a_memory_is_given_its_vector_later(journal: Journal, notebook: Notebook) -> None:
    """It is found by meaning from then on; all else about it stays as it was."""
    memory = await notebook.remember("tea", "Likes tea.", metadata={"v": 1})
    assert await journal.memories.set_embedding(memory, [1.0, 0.0], "new")
    [stored] = await journal.memories.list_of("guide", "ada")
    assert (stored.content, stored.metadata) == ("Likes tea.", {"v": 1})
    assert (stored.updated_at, stored.embedding_model) == (memory.updated_at, "new")
    assert await journal.memories.count_to_embed("new") == 0
    assert keys(await notebook.recall(embedding=[1.0, 0.0], embedding_model="new")) == ["tea"]
    assert keys(await notebook.recall("tea")) == ["tea"]


async def test_a_late_vector_never_covers_newer_words(journal: Journal, notebook: Notebook) -> None:
    """A memory that was changed, embedded or deleted since it was read is left as it is."""
    read = await notebook.remember("tea", "Likes tea.")
    await notebook.remember("tea", "Likes coffee.")
    assert not await journal.memories.set_embedding(read, [1.0, 0.0], "new")
    await notebook.embed("tea", "Likes tea.", 0, 1, model="newest")
    assert not await journal.memories.set_embedding(read, [1.0, 0.0], "new")
    [stored] = await journal.memories.list_of("guide", "ada")
    assert stored.embedding_model == "newest"
    await journal.memories.delete("guide", "ada", "tea")
    assert not await journal.memories.set_embedding(read, [1.0, 0.0], "new")


async def test_a_search_sees_what_another_process_wrote(
    open_journal: OpenJournal, notebook: Notebook
) -> None:
    """Whatever was written since the last search, here or elsewhere, counts at once."""
    other = Notebook(await open_journal(), ticking_ids(node=2), notebook.now)
    assert await notebook.recall(**EAST) == []
    memory = await other.embed("tea", "Likes tea.", 1, 0)
    assert keys(await notebook.recall(**EAST)) == ["tea"]
    await other.embed("tea", "Likes tea no more.", 0, 1)
    [found] = await notebook.recall(**EAST)
    assert found.vector_score == pytest.approx(0)
    await notebook.remember("cat", "Has a cat.")
    cat = (await notebook.journal.memories.list_of("guide", "ada"))[0]
    assert await other.journal.memories.set_embedding(cat, [1.0, 0.1], "m")
    assert keys(await notebook.recall(**EAST)) == ["cat", "tea"]
    assert await other.journal.memories.delete("guide", "ada", memory.key)
    assert keys(await notebook.recall(**EAST)) == ["cat"]

"""Embedders that fail, and facts that get their vectors later."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from segue.errors import BackendError
from segue.journal.journal import Journal
from tests.agent.meanings import (
    Broken,
    Meanings,
    away,
    book_of,
    contents,
    nonsense,
    nothing,
    slow,
)

pytestmark = pytest.mark.anyio

QUICK = timedelta(milliseconds=50)
TROUBLES = pytest.mark.parametrize("trouble", [away, slow, nonsense, nothing])


@TROUBLES
async def test_no_fact_is_lost_to_an_embedder(
    journal: Journal, caplog: pytest.LogCaptureFixture, trouble: Callable[[], Awaitable[Any]]
) -> None:
    """It is stored without a vector, with a warning, found by words, and embedded later."""
    broken = book_of(journal, Broken(trouble), time_limit=QUICK)
    told = await broken.remember("guide", "ada", "Likes tea.")
    assert told.memory.embedding_model is None
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "tea" not in caplog.text
    mended = book_of(journal, Meanings(tea="drink", thirsty="drink"))
    assert contents(await mended.search("guide", "ada", "tea")) == ["Likes tea."]
    assert await mended.search("guide", "ada", "thirsty") == []
    assert await mended.reembed() == 1
    assert contents(await mended.search("guide", "ada", "thirsty")) == ["Likes tea."]


@TROUBLES
async def test_no_search_fails_with_an_embedder(
    journal: Journal, caplog: pytest.LogCaptureFixture, trouble: Callable[[], Awaitable[Any]]
) -> None:
    """Words alone are searched, in time, with a warning."""
    await book_of(journal).remember("guide", "ada", "Likes tea.")
    broken = book_of(journal, Broken(trouble), time_limit=QUICK)
    assert contents(await broken.search("guide", "ada", "tea?")) == ["Likes tea."]
    assert [r.levelname for r in caplog.records] == ["WARNING"]


async def test_a_cancelled_search_is_cancelled(journal: Journal) -> None:
    """A cancelled search does not fall back to words."""
    search = asyncio.create_task(book_of(journal, Broken(slow)).search("guide", "ada", "tea"))
    await asyncio.sleep(0.01)
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search


async def test_a_known_fact_without_a_vector_is_not_doubled(journal: Journal) -> None:
    """While the embedder is away, the same words are still the same fact and keep its vector."""
    await book_of(journal).remember("guide", "ada", "Likes tea.")
    again = await book_of(journal, Broken(away)).remember("guide", "ada", "Likes tea.")
    assert not again.is_new
    assert again.memory.embedding_model == "meanings"


async def test_a_change_of_embedder_is_caught_up_with(journal: Journal) -> None:
    """Facts of the old one are found by words at once, and by meaning after they were embedded."""
    old = book_of(journal, Meanings("old"))
    for n in range(70):
        await old.remember("guide", "ada", f"Fact {n}.")
    new = book_of(journal, Meanings("new", zebra="zebra", **{"Fact 7.": "zebra"}))
    assert contents(await new.search("guide", "ada", "fact 7"))[:1] == ["Fact 7."]
    assert await new.search("guide", "ada", "zebra") == []
    seen: list[tuple[int, int]] = []
    assert await new.reembed(lambda done, total: seen.append((done, total))) == 70
    assert seen == [(32, 70), (64, 70), (70, 70)]
    assert contents(await new.search("guide", "ada", "zebra")) == ["Fact 7."]
    assert await new.reembed() == 0


async def test_embedding_anew_can_be_stopped_and_goes_on(journal: Journal) -> None:
    """What was done before the embedder failed stays done."""
    old = book_of(journal, Meanings("old"))
    for n in range(70):
        await old.remember("guide", "ada", f"Fact {n}.")
    left = iter([None] * 40)

    async def tire() -> None:
        if next(left, "tired"):
            raise ConnectionError

    tired = book_of(journal, Broken(tire, "new"))
    with pytest.raises(BackendError, match=r"'new' failed after 32 of 70 memories \(Connection"):
        await tired.reembed()
    assert await journal.memories.count_to_embed("new") == 38
    assert await book_of(journal, Meanings("new")).reembed() == 38


async def test_embedding_anew_never_covers_what_was_written_meanwhile(journal: Journal) -> None:
    """A fact that changed while its old words were embedded keeps its new words and vector."""
    await book_of(journal, Meanings("old")).remember("guide", "ada", "Lives in Basel.", key="home")

    async def move() -> None:
        await book_of(journal, Meanings("new")).remember("guide", "ada", "Lives in Bern.", "home")

    assert await book_of(journal, Broken(move, "new")).reembed() == 0
    [memory] = await journal.memories.list_of("guide", "ada")
    assert (memory.content, memory.embedding_model) == ("Lives in Bern.", "new")
    [found] = await book_of(journal, Meanings("new", Bern="x", zebra="x")).search(
        "guide", "ada", "Bern"
    )
    assert found.memory == memory


async def test_one_agents_facts_can_be_embedded_alone(journal: Journal) -> None:
    """Agents with embedders of their own do not take each other's facts away."""
    book = book_of(journal, Meanings("old"))
    await book.remember("guide", "ada", "Likes tea.")
    await book.remember("tutor", "ada", "Likes tea.")
    assert await book_of(journal, Meanings("new")).reembed(agent_id="guide") == 1
    [tutors] = await journal.memories.list_of("tutor", "ada")
    assert tutors.embedding_model == "old"

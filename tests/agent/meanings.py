"""An embedder whose vectors a test can foresee, one with trouble, and a memory book on either."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from segue.agent.embedders import Embedder
from segue.agent.memory import MemoryBook
from segue.journal.journal import Journal
from segue.journal.memories import FoundMemory
from segue.runtime.ids import SnowflakeGenerator
from segue.settings.agents import MemoryConfig

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
# One for all books, as in a process: two of the same node would repeat each other.
IDS = SnowflakeGenerator(node=1)


class Meanings:
    """An embedder for which a text means what `known` says, and else something of its own."""

    dimension = 128
    threshold = 0.5

    def __init__(self, name: str = "meanings", **known: str) -> None:
        self.name = name
        self.texts: list[str] = []
        self._known = known
        self._places: dict[str, int] = {}

    async def embed_query(self, text: str) -> list[float]:
        self.texts.append(text)
        meaning = next((m for word, m in self._known.items() if word in text), text)
        place = self._places.setdefault(meaning, len(self._places))
        return [float(n == place) for n in range(self.dimension)]

    async def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        return [await self.embed_query(text) for text in texts]


class Broken(Meanings):
    """An embedder on which something goes wrong before it answers."""

    def __init__(self, trouble: Callable[[], Awaitable[Any]], name: str = "meanings") -> None:
        super().__init__(name)
        self._trouble = trouble

    async def embed_query(self, text: str) -> list[float]:
        vector = await super().embed_query(text)
        return await self._trouble() or vector


async def away() -> None:
    raise ConnectionError("the provider is away")


async def slow() -> None:
    await asyncio.sleep(60)


async def nonsense() -> list[float]:
    return [float("nan")]


async def nothing() -> list[list[float]]:
    return [[]]


def book_of(journal: Journal, embedder: Embedder | None = None, **settings: Any) -> MemoryBook:
    return MemoryBook(
        journal.memories,
        embedder or Meanings(),
        ids=IDS,
        clock=lambda: NOW,
        config=MemoryConfig(**settings),
    )


def contents(found: list[FoundMemory]) -> list[str]:
    return [memory.memory.content for memory in found]


async def stored(journal: Journal) -> list[str]:
    return sorted(m.content for m in await journal.memories.list_of("guide", "ada"))

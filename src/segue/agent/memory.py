"""An agent's memories of its users: search, remember, forget.

The journal stores them; this layer adds the embedder and the limits of the agent's config. If the
embedder fails, memories are stored without a vector and found by their words, until `reembed` adds
the vector.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from segue.agent.embedders import Embedder, MiniLM
from segue.core.memory import stem
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.text import is_name, name_rule, storable
from segue.core.triggers import TRIGGER_PROMPTS
from segue.errors import BackendError, UsageError
from segue.journal.memories import FoundMemory, Memories, Memory, MemorySearch, NewMemory, vector_of
from segue.settings.agents import MemoryConfig

logger = logging.getLogger(__name__)

# A memory is one fact; an embedder reads little more than this of it.
MAX_CONTENT: Final = 2_000
_BATCH: Final = 32
_NEARLY_FULL: Final = 0.8
# The share of a search's time limit that the embedder may use.
_EMBEDDER_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class RememberResult:
    """A memory as it is stored now, and how full its namespace is."""

    memory: Memory
    is_new: bool
    count: int
    nearly_full: bool


class MemoryBook:
    """Memories of agents with one config; without an embedder they are found by words only."""

    def __init__(
        self,
        memories: Memories,
        embedder: Embedder | None,
        *,
        ids: SnowflakeSource,
        clock: Callable[[], datetime],
        config: MemoryConfig,
    ) -> None:
        self._memories = memories
        self._embedder = embedder
        self._model = embedder.name if embedder else None
        own = embedder.threshold if embedder else None
        self._threshold = own if config.threshold is None else config.threshold
        self._ids = ids
        self._clock = clock
        self._config = config

    async def load(self) -> None:
        """Load the stemmer and a local embedder now, so that the first search does not wait."""
        await asyncio.to_thread(stem, "load")
        if isinstance(self._embedder, MiniLM):
            await self._embedder.embed_query("hello")

    async def search(self, agent_id: str, user_id: str, text: str) -> list[FoundMemory]:
        """The memories of the user that match the text, best first."""
        if not text.strip():
            return []
        config = self._config
        limit = config.time_limit * _EMBEDDER_SHARE
        vector = await self._find_vector(
            lambda embedder: embedder.embed_query(text), limit, "searching by words only"
        )
        query = MemorySearch(
            agent_id,
            user_id,
            text,
            embedding=vector,
            embedding_model=self._model if vector else None,
            limit=config.limit,
            text_weight=config.text_weight,
            threshold=self._threshold,
        )
        return await self._memories.search(query)

    async def remember(
        self, agent_id: str, user_id: str, content: str, key: str | None = None
    ) -> RememberResult:
        """Store a fact, or update the memory with the same meaning, which keeps its key.

        With a `key` the fact is stored under it, and a memory with the same meaning under another
        key is replaced. `UsageError` if the content or key is not valid, `ConflictError` if the
        namespace is full: nothing is ever evicted. The same fact from two processes at once becomes
        one memory.
        """
        fact = _check_fact(content)
        name = f"memory-{to_text(self._ids.next())}" if key is None else _check_key(key)
        config = self._config
        vector = await self._find_vector(
            lambda embedder: _embed_fact(embedder, fact),
            config.time_limit,
            "the fact is stored without a vector, see reembed",
        )
        new = NewMemory(
            agent_id,
            user_id,
            name,
            fact,
            embedding=vector,
            embedding_model=self._model if vector else None,
        )
        kept = await self._memories.keep(
            new,
            duplicate_at=config.duplicate_at,
            capacity=config.capacity,
            ids=self._ids,
            now=self._clock(),
        )
        memory = kept.memory
        if key is not None and memory.key != name:
            memory = await self._rename(new, memory.key)
        nearly_full_at = ceil(_NEARLY_FULL * config.capacity)
        # Writes to a namespace are serialised, so exactly one of them reaches this count.
        if kept.added and kept.count == nearly_full_at:
            logger.warning(
                "Agent %s has %d memories of user %s, of at most %d; a full namespace takes no new "
                "ones. Delete some, or raise memory.capacity.",
                agent_id,
                kept.count,
                user_id,
                config.capacity,
            )
        return RememberResult(memory, kept.added, kept.count, kept.count >= nearly_full_at)

    async def forget(self, agent_id: str, user_id: str, key: str) -> bool:
        """Delete a memory; whether it was there."""
        return await self._memories.delete(agent_id, user_id, key)

    async def reembed(
        self, progress: Callable[[int, int], None] | None = None, agent_id: str | None = None
    ) -> int:
        """Embed all memories without a vector of this embedder, and return how many were.

        Of all agents, or of one: name it where agents have different embedders. Can be stopped and
        restarted, and run while others write: their changes stay. `progress` gets the number done
        and the total. `BackendError` if the embedder fails.
        """
        embedder = self._embedder
        if embedder is None:
            return 0
        model = embedder.name
        total = await self._memories.count_to_embed(model, agent_id=agent_id)
        embedded = done = last = 0
        while batch := await self._memories.list_to_embed(
            model, agent_id=agent_id, limit=_BATCH, after=last
        ):
            texts = [memory.content for memory in batch]
            vectors = await _embed_batch(embedder, texts, done, total)
            for memory, vector in zip(batch, vectors, strict=True):
                embedded += await self._memories.set_embedding(memory, vector, model)
            done, last = done + len(batch), batch[-1].id
            if progress is not None:
                progress(done, max(done, total))
        return embedded

    async def _rename(self, memory: NewMemory, old_key: str) -> Memory:
        """Store under the new key first, so that a crash in between loses nothing."""
        renamed = await self._memories.put(memory, ids=self._ids, now=self._clock())
        await self._memories.delete(memory.agent_id, memory.user_id, old_key)
        return renamed

    async def _find_vector(
        self,
        embed: Callable[[Embedder], Awaitable[list[float]]],
        limit: timedelta,
        fallback: str,
    ) -> list[float] | None:
        """The vector, or None: an embedder's failure must not fail a write or a search."""
        if self._embedder is None:
            return None
        name, seconds = self._embedder.name, limit.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                vector = await embed(self._embedder)
            _check_vectors([vector], 1, name)
        except Exception as error:  # providers raise anything
            logger.warning(
                "The embedder %s gave no vector (%s, limit %g s): %s.",
                name,
                type(error).__name__,
                seconds,
                fallback,
            )
            logger.debug("The error of the embedder %s", name, exc_info=error)
            return None
        return vector


async def _embed_fact(embedder: Embedder, fact: str) -> list[float]:
    [vector] = await embedder.embed_documents([fact])
    return vector


async def _embed_batch(
    embedder: Embedder, texts: Sequence[str], done: int, total: int
) -> list[list[float]]:
    try:
        vectors = await embedder.embed_documents(texts)
        _check_vectors(vectors, len(texts), embedder.name)
    except Exception as error:
        raise BackendError(
            f"The embedder {embedder.name!r} failed after {done:,} of {total:,} memories "
            f"({type(error).__name__}). Those are done; start again to continue."
        ) from error
    return vectors


def _check_vectors(vectors: Sequence[Sequence[float]], expected: int, name: str) -> None:
    if len(vectors) != expected:
        raise UsageError(f"{name} returned {len(vectors)} vectors for {expected} texts.")
    for vector in vectors:
        vector_of(vector, name)


def _check_fact(content: str) -> str:
    fact = storable(content).strip()
    if not fact:
        raise UsageError("There is nothing to remember: the text is empty. Nothing was written.")
    if len(fact) > MAX_CONTENT:
        raise UsageError(
            f"A memory is one fact of at most {MAX_CONTENT:,} characters, not {len(fact):,}. "
            "Shorten it, or store several. Nothing was written."
        )
    if fact in TRIGGER_PROMPTS.values():
        raise UsageError(
            "This is the prompt of a follow-up's trigger, not a fact about the user. Nothing was "
            "written."
        )
    return fact


def _check_key(key: str) -> str:
    name = storable(key).strip()
    if not is_name(name):
        raise UsageError(
            f"The key of a memory has {name_rule()}; this one has {len(name):,}. Nothing "
            "was written."
        )
    return name

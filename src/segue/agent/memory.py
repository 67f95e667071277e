"""What an agent remembers about a user: finding, keeping and forgetting facts.

Facts are kept by the journal; this is the layer above it that knows an embedder and the rules of an
agent's config. An embedder that fails costs no fact and no search: what has no vector is found by
its words, until `reembed` gives it one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Final

from segue.agent.config import MemoryConfig
from segue.agent.embedders import Embedder
from segue.agent.minilm import MiniLM
from segue.core.errors import BackendError, UsageError
from segue.core.plain import storable
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.triggers import TRIGGER_PROMPTS
from segue.journal.inputs import vector_of
from segue.journal.ports import Memories
from segue.journal.records import FoundMemory, Memory, MemorySearch, NewMemory

logger = logging.getLogger(__name__)

# A memory is one fact; an embedder reads little more than this of it.
MAX_CONTENT: Final = 2_000
MAX_KEY: Final = 200
_BATCH: Final = 32
_NEARLY_FULL: Final = 0.8
# What a search may spend on the embedder; the rest is for the words.
_EMBEDDERS_SHARE: Final = 0.5

Progress = Callable[[int, int], None]


class RememberOutcome(StrEnum):
    """Whether a fact was new."""

    ADDED = "added"
    UPDATED = "updated"


@dataclass(frozen=True, slots=True)
class Remembered:
    """A fact as it is stored now, and how much room its namespace has left."""

    memory: Memory
    outcome: RememberOutcome
    count: int
    capacity: int

    @property
    def nearly_full(self) -> bool:
        return self.count >= nearly_full_at(self.capacity)


class MemoryBook:
    """The facts of all users that agents with this config and this embedder know.

    Without an embedder they are found by their words alone.
    """

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
        """Load the embedder if it is of this machine, or else the first search waits for it."""
        if isinstance(self._embedder, MiniLM):
            await self._embedder.embed_query("hello")

    async def search(self, agent_id: str, user_id: str, text: str) -> list[FoundMemory]:
        """What the agent knows of the user that has to do with the text, the best first."""
        if not text.strip():
            return []
        config = self._config
        within = config.time_limit * _EMBEDDERS_SHARE
        vector = await self._vector(
            lambda embedder: embedder.embed_query(text), within, "searching by words"
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
        return await self._memories.search_memories(query)

    async def remember(
        self, agent_id: str, user_id: str, content: str, key: str | None = None
    ) -> Remembered:
        """Keep a fact; one that says the same is updated instead, and keeps its key.

        A key that is given wins: the fact is kept under it, and one that says the same under
        another key is replaced. `UsageError` for a text that is no fact, `ConflictError` if there
        is no room for a new one: nothing is ever evicted. The same fact from two processes at
        once is one memory.
        """
        fact = _checked_fact(content)
        name = f"memory-{to_text(self._ids.next())}" if key is None else _checked_key(key)
        config = self._config
        vector = await self._vector(
            lambda embedder: _of_fact(embedder, fact),
            config.time_limit,
            "the fact is stored without, see reembed",
        )
        new = NewMemory(
            agent_id,
            user_id,
            name,
            fact,
            embedding=vector,
            embedding_model=self._model if vector else None,
        )
        kept = await self._memories.keep_memory(
            new,
            duplicate_at=config.duplicate_at,
            capacity=config.capacity,
            ids=self._ids,
            now=self._clock(),
        )
        memory = kept.memory
        if key is not None and memory.key != name:
            memory = await self._renamed(new, memory.key)
        # Writes to a namespace come one after the other, so exactly one of them gets to the mark.
        if kept.added and kept.count == nearly_full_at(config.capacity):
            logger.warning(
                "Agent %s knows %d facts about user %s, of at most %d; then it learns no more. "
                "Forget some, or raise memory.capacity.",
                agent_id,
                kept.count,
                user_id,
                config.capacity,
            )
        outcome = RememberOutcome.ADDED if kept.added else RememberOutcome.UPDATED
        return Remembered(memory, outcome, kept.count, config.capacity)

    async def forget(self, agent_id: str, user_id: str, key: str) -> bool:
        """Whether there was such a fact."""
        return await self._memories.delete_memory(agent_id, user_id, key)

    async def reembed(self, progress: Progress | None = None, agent_id: str | None = None) -> int:
        """Give every fact without a vector of this embedder one; how many got theirs.

        Of all agents, or of one: name it where agents have embedders of their own. May be stopped
        and begun again, and run while others write: what they wrote meanwhile stays. `progress` is
        told how many of how many are done. `BackendError` if the embedder fails.
        """
        embedder = self._embedder
        if embedder is None:
            return 0
        model = embedder.name
        total = await self._memories.count_memories_to_embed(model, agent_id=agent_id)
        given = done = last = 0
        while batch := await self._memories.list_memories_to_embed(
            model, agent_id=agent_id, limit=_BATCH, after=last
        ):
            texts = [memory.content for memory in batch]
            vectors = await _of_all(embedder, texts, done, total)
            for memory, vector in zip(batch, vectors, strict=True):
                given += await self._memories.set_embedding(memory, vector, model)
            done, last = done + len(batch), batch[-1].id
            if progress is not None:
                progress(done, max(done, total))
        return given

    async def _renamed(self, memory: NewMemory, old_key: str) -> Memory:
        """The fact under its new key. Stored before the old one goes, so that none is ever lost."""
        renamed = await self._memories.put_memory(memory, ids=self._ids, now=self._clock())
        await self._memories.delete_memory(memory.agent_id, memory.user_id, old_key)
        return renamed

    async def _vector(
        self,
        ask: Callable[[Embedder], Awaitable[list[float]]],
        within: timedelta,
        otherwise: str,
    ) -> list[float] | None:
        """The vector, or None: nothing that an embedder does may cost a fact or a search."""
        if self._embedder is None:
            return None
        name, limit = self._embedder.name, within.total_seconds()
        try:
            async with asyncio.timeout(limit):
                vector = await ask(self._embedder)
            _check_vectors([vector], 1, name)
        except Exception as error:  # providers raise anything
            logger.warning(
                "The embedder %s gave no vector (%s, limit %g s): %s.",
                name,
                type(error).__name__,
                limit,
                otherwise,
            )
            logger.debug("The error of the embedder %s", name, exc_info=error)
            return None
        return vector


def nearly_full_at(capacity: int) -> int:
    """From how many facts on an operator should know that there is little room left."""
    return ceil(_NEARLY_FULL * capacity)


async def _of_fact(embedder: Embedder, fact: str) -> list[float]:
    [vector] = await embedder.embed_documents([fact])
    return vector


async def _of_all(
    embedder: Embedder, texts: Sequence[str], done: int, total: int
) -> list[list[float]]:
    try:
        vectors = await embedder.embed_documents(texts)
        _check_vectors(vectors, len(texts), embedder.name)
    except Exception as error:
        raise BackendError(
            f"The embedder {embedder.name!r} failed after {done:,} of {total:,} memories "
            f"({type(error).__name__}). These are done; begin again to go on."
        ) from error
    return vectors


def _check_vectors(vectors: Sequence[Sequence[float]], expected: int, name: str) -> None:
    if len(vectors) != expected:
        raise UsageError(f"{name} gave {len(vectors)} vectors for {expected} texts.")
    for vector in vectors:
        vector_of(vector, name)


def _checked_fact(content: str) -> str:
    fact = storable(content).strip()
    if not fact:
        raise UsageError("There is nothing to remember: the text is empty. Nothing was written.")
    if len(fact) > MAX_CONTENT:
        raise UsageError(
            f"A memory is one fact of at most {MAX_CONTENT:,} characters, not {len(fact):,}. Say "
            "it shorter, or as several. Nothing was written."
        )
    if fact in TRIGGER_PROMPTS.values():
        raise UsageError(
            "These are not the user's words but those of a follow-up's trigger, which is never "
            "remembered. Nothing was written."
        )
    return fact


def _checked_key(key: str) -> str:
    name = storable(key).strip()
    if not 0 < len(name) <= MAX_KEY:
        raise UsageError(
            f"The key of a memory has 1 to {MAX_KEY} characters, not {len(name):,}. Nothing was "
            "written."
        )
    return name

"""Memories for a model call: whose words to search with, and what is told of the finds.

The query is always a person's words, never a trigger's. Nothing that goes wrong here stops a
reply: without memories the model answers from what it has.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from segue.agent.config import MemoryConfig
from segue.agent.middleware import AsyncHandler, Request, Response
from segue.agent.run import (
    RECALLED,
    SEARCHED,
    Recalled,
    Run,
    current_run,
    note_if_empty,
    trigger_name,
)
from segue.core.context import memory_lines
from segue.core.query import MemoryQuery, QuerySource, memory_query
from segue.core.tokens import estimate_text
from segue.journal.records import FoundMemory
from segue.noting import FIELDS, count, note

logger = logging.getLogger(__name__)

_QUERY_SHOWN = 50


class MemorySource(Protocol):
    """Where memories are searched."""

    def search(self, agent_id: str, user_id: str, text: str) -> Awaitable[list[FoundMemory]]: ...


class Namespace(Protocol):
    """Whose memories: an agent's about a user. A `Run` is one."""

    @property
    def thread_id(self) -> str: ...

    @property
    def agent_id(self) -> str: ...

    @property
    def user_id(self) -> str: ...


class RetrieveMemories(AgentMiddleware[Any, Any, Any]):
    """Tells the model what the agent remembers about the user, at the model call alone.

    Searched once in a run, so that its second model call knows what its first one knew. Without
    `memories` it tells what the run has found, as for an agent with a graph of its own. Outside
    of Segue, `whose` says for a request whose memories are meant.
    """

    def __init__(
        self,
        memories: MemorySource | None = None,
        config: MemoryConfig | None = None,
        whose: Callable[[ModelRequest[Any]], Namespace | None] | None = None,
    ) -> None:
        super().__init__()
        self._memories = memories
        self._config = config or MemoryConfig()
        self._whose = whose

    async def awrap_model_call(self, request: Request, handler: AsyncHandler) -> Response:
        told = await self._told(request)
        if not told:
            return await handler(request)
        system = "\n\n".join(part for part in (request.system_prompt, memory_lines(told)) if part)
        return await handler(request.override(system_message=SystemMessage(system)))

    async def _told(self, request: Request) -> Sequence[str]:
        run = current_run()
        if run is None:
            namespace = self._whose(request) if self._whose else None
            if namespace is None or self._memories is None:
                return ()
            told, recalled = await _recall(
                self._memories, self._config, namespace, request.messages, None
            )
        else:
            recalled = await recall_for(run, self._memories, self._config)
            told = run.memories
        if recalled is not None:
            request.runtime.stream_writer(recalled)
        return told


async def recall_for(
    run: Run, memories: MemorySource | None, config: MemoryConfig
) -> Recalled | None:
    """Search once for a run, which then has its `memories`; None if it knew, or found none."""
    if memories is None or RECALLED in run.notes:
        return None
    found, recalled = await _recall(memories, config, run, run.messages, run.summary)
    run.notes[RECALLED] = found
    return recalled


async def _recall(
    memories: MemorySource,
    config: MemoryConfig,
    namespace: Namespace,
    messages: Sequence[BaseMessage],
    summary: str | None,
) -> tuple[Sequence[str], Recalled | None]:
    query = chosen_query(messages, summary, namespace)
    _note_search(namespace, source=query.source.value if query else "none", failed=False)
    if query is None:
        return (), None
    found = _within(await _search(memories, config, namespace, query), config.max_tokens)
    if not found:
        return (), None
    keys = tuple(memory.memory.key for memory in found)
    return [memory.memory.content for memory in found], Recalled(keys, query.source)


async def _search(
    memories: MemorySource, config: MemoryConfig, namespace: Namespace, query: MemoryQuery
) -> list[FoundMemory]:
    limit = config.time_limit.total_seconds()
    try:
        async with asyncio.timeout(limit):
            return await memories.search(namespace.agent_id, namespace.user_id, query.text)
    except Exception as error:  # a reply without memories is better than none
        logger.warning(
            "Memories of thread %s of agent %s could not be searched within %g s: %s",
            namespace.thread_id,
            namespace.agent_id,
            limit,
            type(error).__name__,
        )
        logger.debug("The error of the search", exc_info=error)
        _note_search(namespace, source=query.source.value, failed=True)
        return []


def chosen_query(
    messages: Sequence[BaseMessage], summary: str | None, namespace: Namespace
) -> MemoryQuery | None:
    """The words to search with, and the log lines that say whose they are."""
    last = next((m for m in reversed(messages) if isinstance(m, HumanMessage)), None)
    where = {"thread_id": namespace.thread_id, "agent_id": namespace.agent_id}
    trigger = trigger_name(last)
    if last is not None and trigger:
        where["trigger_type"] = trigger
        told = "Synthetic message detected at memory retrieval: {message_id} ({trigger_type})"
        note(logger, "synthetic_message_detected", told, logging.DEBUG, message_id=last.id, **where)
    query = memory_query(messages, summary)
    count("memory_asked", agent_id=namespace.agent_id, source=query.source if query else "none")
    if query is None:
        # A run says so itself, whether it has memories or not.
        if not isinstance(namespace, Run):
            note_if_empty(messages, summary, **where)
        return None
    chosen = {"source": query.source.value, "message_id": query.message_id, **where}
    words = query.text[:_QUERY_SHOWN]
    # Not by `note`: observers are never told what a person said.
    fields = {"kind": "memory_query", "query": words, **chosen}
    logger.debug("Memory query from %s: %r", query.source, words, extra={FIELDS: fields})
    if query.source is not QuerySource.CURRENT_MESSAGE and trigger:
        told = "Memory query used fallback strategy due to synthetic trigger: {source}"
        note(logger, "memory_query_fell_back", told, logging.INFO, **chosen)
    return query


def _note_search(namespace: Namespace, **facts: Any) -> None:
    """For the record of a follow-up; outside of a run nobody keeps one."""
    if isinstance(namespace, Run):
        namespace.notes[SEARCHED] = facts


def _within(found: Sequence[FoundMemory], max_tokens: int) -> list[FoundMemory]:
    """The best ones that fit; one that is too long does not keep out a shorter one behind it."""
    fitting, left = [], max_tokens
    for memory in found:
        cost = estimate_text(memory.memory.content)
        if cost <= left:
            fitting.append(memory)
            left -= cost
    return fitting

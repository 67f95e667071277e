"""Memories for a model call: the query, the search, and the part of the results that fits.

The query is always a person's text, never a trigger's. A search that fails does not fail the reply.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import BaseMessage, HumanMessage

from segue.agent.current import current_run
from segue.agent.middleware import Handler, Request, Response, with_system_part
from segue.core.context import memory_lines
from segue.core.memory import MemoryQuery, QuerySource, memory_query
from segue.core.tokens import estimate_text
from segue.events import MemoriesRecalled
from segue.journal.memories import FoundMemory
from segue.runtime.run import RECALLED, SEARCHED, Run, log_if_empty, trigger_name
from segue.settings.agents import MemoryConfig
from segue.telemetry import FIELDS, count, log_event

logger = logging.getLogger(__name__)

_QUERY_SHOWN = 50


class MemorySource(Protocol):
    """Searches memories; `MemoryBook` is one."""

    def search(self, agent_id: str, user_id: str, text: str) -> Awaitable[list[FoundMemory]]: ...


class Namespace(Protocol):
    """An agent's memories of a user. A `Run` is one."""

    @property
    def thread_id(self) -> str: ...

    @property
    def agent_id(self) -> str: ...

    @property
    def user_id(self) -> str: ...


class RetrieveMemories(AgentMiddleware[Any, Any, Any]):
    """Adds the agent's memories of the user to model requests, and stores nothing.

    Searches once per run, so that all its model calls get the same memories. Without `memories` it
    adds what the run has found, as for a custom graph. Outside of Segue, `whose` returns the
    namespace of a request.
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

    async def awrap_model_call(self, request: Request, handler: Handler) -> Response:
        memories = await self._recall(request)
        if not memories:
            return await handler(request)
        return await handler(with_system_part(request, memory_lines(memories)))

    async def _recall(self, request: Request) -> Sequence[str]:
        run = current_run()
        if run is None:
            namespace = self._whose(request) if self._whose else None
            if namespace is None or self._memories is None:
                return ()
            found, recalled = await _recall(
                self._memories, self._config, namespace, request.messages, None
            )
        else:
            recalled = await recall_for(run, self._memories, self._config)
            found = run.memories
        if recalled is not None:
            request.runtime.stream_writer(recalled)
        return found


async def recall_for(
    run: Run, memories: MemorySource | None, config: MemoryConfig
) -> MemoriesRecalled | None:
    """Search once per run and set its `memories`; None if it has searched before or finds none."""
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
) -> tuple[Sequence[str], MemoriesRecalled | None]:
    query = find_query(messages, summary, namespace)
    facts: dict[str, Any] = {"source": query.source.value if query else "none", "failed": False}
    if isinstance(namespace, Run):
        namespace.notes[SEARCHED] = facts  # for the record of a follow-up
    if query is None:
        return (), None
    results = await _search(memories, config, namespace, query)
    facts["failed"] = results is None
    found = [each.memory for each in _fit(results or (), config.max_tokens)]
    facts["keys"] = keys = [memory.key for memory in found]
    recalled = MemoriesRecalled(tuple(keys), query.source) if found else None
    return [memory.content for memory in found], recalled


async def _search(
    memories: MemorySource, config: MemoryConfig, namespace: Namespace, query: MemoryQuery
) -> list[FoundMemory] | None:
    """The results, best first; None if the search failed."""
    limit = config.time_limit.total_seconds()
    try:
        async with asyncio.timeout(limit):
            return await memories.search(namespace.agent_id, namespace.user_id, query.text)
    except Exception as error:  # a reply without memories is better than no reply
        logger.warning(
            "Memories of thread %s of agent %s could not be searched within %g s: %s",
            namespace.thread_id,
            namespace.agent_id,
            limit,
            type(error).__name__,
        )
        logger.debug("The error of the search", exc_info=error)
        return None


def find_query(
    messages: Sequence[BaseMessage], summary: str | None, namespace: Namespace
) -> MemoryQuery | None:
    """The memory query, logged with where it comes from."""
    last = next((m for m in reversed(messages) if isinstance(m, HumanMessage)), None)
    where = {"thread_id": namespace.thread_id, "agent_id": namespace.agent_id}
    trigger = trigger_name(last)
    if last is not None and trigger:
        where["trigger_type"] = trigger
        text = "Synthetic message detected at memory retrieval: {message_id} ({trigger_type})"
        log_event(
            logger, "synthetic_message_detected", text, logging.DEBUG, message_id=last.id, **where
        )
    query = memory_query(messages, summary)
    count("memory_asked", agent_id=namespace.agent_id, source=query.source if query else "none")
    if query is None:
        # Runs log this themselves, with or without memories.
        if not isinstance(namespace, Run):
            log_if_empty(messages, summary, **where)
        return None
    chosen = {"source": query.source.value, "message_id": query.message_id, **where}
    excerpt = query.text[:_QUERY_SHOWN]
    # Not by `note`: observers must not get the user's text.
    fields = {"kind": "memory_query", "query": excerpt, **chosen}
    logger.debug("Memory query from %s: %r", query.source, excerpt, extra={FIELDS: fields})
    if query.source is not QuerySource.CURRENT_MESSAGE and trigger:
        text = "Memory query used fallback strategy due to synthetic trigger: {source}"
        log_event(logger, "memory_query_fell_back", text, logging.INFO, **chosen)
    return query


def _fit(found: Sequence[FoundMemory], max_tokens: int) -> list[FoundMemory]:
    """The best memories that fit; one that is too long does not block a shorter one after it."""
    kept, left = [], max_tokens
    for memory in found:
        cost = estimate_text(memory.memory.content)
        if cost <= left:
            kept.append(memory)
            left -= cost
    return kept

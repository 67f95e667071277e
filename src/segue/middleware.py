"""Middleware for agents of `create_agent`, in Segue or in a program of your own."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import (
    AgentMiddleware,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
)
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.types import Command

from segue.agent.middleware import (
    Bounds,
    Invisibility,
    McpTools,
    TellTime,
    UniqueIds,
    mcp_tools,
    tool_tokens,
)
from segue.agent.retrieval import RetrieveMemories
from segue.core.batch import Batch, group_batches, settle
from segue.core.context import build_context
from segue.core.metadata import MessageMetadata, strip_metadata
from segue.core.snowflake import SnowflakeSource
from segue.core.stamp import stamp
from segue.core.tokens import estimate_tokens
from segue.errors import UsageError
from segue.runtime.ids import SnowflakeGenerator

__all__ = [
    "BatchHistory",
    "Bounds",
    "Invisibility",
    "McpTools",
    "RetrieveMemories",
    "TellTime",
    "UniqueIds",
    "mcp_tools",
]


Request = ModelRequest[Any]
Response = ExtendedModelResponse[Any]


class BatchHistory(AgentMiddleware[Any, Any, Any]):
    """Stamps the messages of the state, gives the model whole batches, and strips the metadata.

    A human message starts a batch: a user's message, or a `synthetic_message`. Batches that a crash
    left open are settled in the model's view. `max_tokens` is the model's window. Each of several
    processes needs `ids` with its own node. Put it last.
    """

    def __init__(self, max_tokens: int | None = None, ids: SnowflakeSource | None = None) -> None:
        super().__init__()
        self._max_tokens = max_tokens
        self._ids = ids or SnowflakeGenerator()

    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], ModelResponse[Any]]
    ) -> Response:
        new, batches = self._stamped(request.messages)
        return self._answered(handler(self._view(request, batches)), new, batches[-1])

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[ModelResponse[Any]]]
    ) -> Response:
        new, batches = self._stamped(request.messages)
        return self._answered(await handler(self._view(request, batches)), new, batches[-1])

    def _stamped(self, messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[Batch]]:
        """The newly stamped messages, and all batches."""
        known = [MessageMetadata.of(message) for message in messages]
        # The clock may have been set back since the newest message.
        self._ids.next(after=max((each.position or 0 for each in known), default=0))
        new: list[BaseMessage] = []
        members: dict[int, list[BaseMessage]] = {}
        batch, is_input = 0, False
        for message, metadata in zip(messages, known, strict=True):
            if metadata.position is not None:
                batch, is_input, placed = metadata.batch or 0, False, message
            else:
                begins = isinstance(message, HumanMessage) and not is_input
                open_batch = Batch(batch, members[batch]) if batch and not begins else None
                [placed] = stamp([message], self._ids, open_batch)
                batch, is_input = MessageMetadata.of(placed).batch or 0, begins or is_input
                new.append(placed)
            members.setdefault(batch, []).append(placed)
        if not members:
            raise UsageError("The state has no message to answer; pass a user_message().")
        return new, group_batches(message for each in members.values() for message in each)

    def _view(self, request: Request, batches: Sequence[Batch]) -> Request:
        """The request with whole batches that fit, and without metadata."""
        *earlier, current = batches
        closed = [each if each.is_whole else settle(each) for each in earlier]
        system = estimate_tokens(request.system_message) if request.system_message else 0
        context = build_context(
            [current, *reversed(closed)],
            current,
            self._max_tokens,
            extra_tokens=system + sum(map(tool_tokens, request.tools)),
        )
        messages: list[Any] = strip_metadata(context.messages)
        return request.override(messages=messages)

    def _answered(
        self, response: ModelResponse[Any], new: list[BaseMessage], batch: Batch
    ) -> Response:
        """The response, stamped; the new messages replace those in the state by their ids."""
        stamped = replace(response, result=stamp(response.result, self._ids, batch))
        return ExtendedModelResponse(stamped, Command(update={"messages": new}) if new else None)

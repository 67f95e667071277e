"""Middleware for `create_agent`: memories, the window, invisibility, and bounds.

Each works in anyone's own agent. Order matters: `RetrieveMemories` asks whose words a message is,
so it stands before `Invisibility`, which takes that away; `Invisibility` comes last.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from langchain.agents.middleware import (
    AgentMiddleware,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from segue.agent.config import Limits
from segue.agent.model_errors import ModelFailure
from segue.agent.run import current_run
from segue.core.batch import Batch
from segue.core.calls import pair
from segue.core.context import build_context
from segue.core.errors import BackendError, UsageError
from segue.core.metadata import strip_metadata
from segue.core.tokens import estimate_text

logger = logging.getLogger(__name__)

# The third time the same thing is called in the same way, the answer will not change.
_SAME_RESULTS = 2
# How OpenAI, Anthropic and Google say that an answer ran out of tokens.
_CUT_OFF = frozenset({"length", "max_tokens"})

Request = ModelRequest[Any]
Response = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]
Handler = Callable[[Request], ModelResponse[Any]]
AsyncHandler = Callable[[Request], Awaitable[ModelResponse[Any]]]
ToolResult = ToolMessage | Command[Any]


class Invisibility(AgentMiddleware[Any, Any, Any]):
    """Takes Segue's metadata from what the model gets, whatever the provider's client does."""

    def wrap_model_call(self, request: Request, handler: Handler) -> Response:
        return handler(_invisible(request))

    async def awrap_model_call(self, request: Request, handler: AsyncHandler) -> Response:
        return await handler(_invisible(request))


class Window(AgentMiddleware[Any, Any, Any]):
    """Tells the model the run's history and summary; the graph's state holds only its batch."""

    def __init__(self, max_tokens: int) -> None:
        super().__init__()
        self._max_tokens = max_tokens
        self._tool_tokens: dict[str, int] = {}

    def wrap_model_call(self, request: Request, handler: Handler) -> Response:
        return handler(self._widened(request))

    async def awrap_model_call(self, request: Request, handler: AsyncHandler) -> Response:
        return await handler(self._widened(request))

    def _widened(self, request: Request) -> Request:
        run = current_run()
        if run is None:
            return request
        batch = Batch(run.batch.id, list(request.messages))
        context = build_context(
            [batch, *run.history],
            batch.id,
            self._max_tokens,
            system=request.system_message.text if request.system_message else None,
            summary=run.summary,
            extra_tokens=sum(map(self._cost_of, request.tools)),
        )
        if context.over_budget:
            raise UsageError(
                f"The message needs about {context.tokens} tokens with all that must go with it; "
                f"agent {run.agent_id!r} has room for {self._max_tokens - context.reserved}. "
                "Shorten it, or raise context_tokens if the model takes more."
            )
        return _with_messages(request, context.messages)

    def _cost_of(self, tool: BaseTool | dict[str, Any]) -> int:
        """What a tool's description costs."""
        name = str(tool.get("name")) if isinstance(tool, dict) else tool.name
        if name not in self._tool_tokens:
            schema = json.dumps(convert_to_openai_tool(tool), default=str)
            self._tool_tokens[name] = estimate_text(schema)
        return self._tool_tokens[name]


class Bounds(AgentMiddleware[Any, Any, Any]):
    """A time limit for every model call and tool, and an answer for every tool that fails.

    Without it one tool that raises takes the finished results of its siblings with it.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__()
        self._limits = limits or Limits()

    def wrap_model_call(self, request: Request, handler: Handler) -> Response:
        return handler(request)  # a thread cannot be stopped

    async def awrap_model_call(self, request: Request, handler: AsyncHandler) -> Response:
        limit = self._limits.model_time
        try:
            async with asyncio.timeout(limit.total_seconds()) as clock:
                response = await handler(request)
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise ModelFailure(
                f"The model did not answer within {_seconds(limit)}.",
                kind="timeout",
                retryable=True,
            ) from error
        _refuse_cut_calls(response)
        return response

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]
    ) -> ToolResult:
        if refusal := _refused(request):
            return refusal
        try:
            return handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - any tool, any error: the model is told
            return _failed(request, _described(error))

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolResult]],
    ) -> ToolResult:
        if refusal := _refused(request):
            return refusal
        limit = self._limits.tool_time
        try:
            async with asyncio.timeout(limit.total_seconds()) as clock:
                return await handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - any tool, any error: the model is told
            if isinstance(error, TimeoutError) and clock.expired():
                return _failed(request, f"It did not finish within {_seconds(limit)}.")
            return _failed(request, _described(error))


def _invisible(request: Request) -> Request:
    return request.override(messages=_any(strip_metadata(request.messages)))


def _with_messages(request: Request, messages: list[BaseMessage]) -> Request:
    system = messages[0] if messages and isinstance(messages[0], SystemMessage) else None
    rest = messages[1:] if system else messages
    return request.override(system_message=system, messages=_any(rest))


def _any(messages: list[BaseMessage]) -> Any:
    # LangChain types a request's messages as a union of its classes, not as their base.
    return messages


def _refuse_cut_calls(response: ModelResponse[Any]) -> None:
    """Clients complete the JSON of a call that ran out of tokens; a tool must not run with that."""
    for message in response.result:
        said = message.response_metadata
        ended = str(said.get("finish_reason") or said.get("stop_reason")).lower()
        if ended in _CUT_OFF and isinstance(message, AIMessage) and message.tool_calls:
            raise BackendError(
                "The model's answer was cut off in the middle of a tool call; let it write more "
                "(model_settings.max_tokens)."
            )


def _refused(request: ToolCallRequest) -> ToolMessage | None:
    """An answer for a call that gave the same result before, so that no model goes in circles."""
    results = _earlier_results(request)
    if len(results) < _SAME_RESULTS or len(set(results)) > 1:
        return None
    return _failed(request, "It was called like this before, and the result does not change.")


def _earlier_results(request: ToolCallRequest) -> list[str]:
    """What the same call gave in this batch."""
    messages = request.state["messages"] if isinstance(request.state, dict) else []
    call = request.tool_call
    return [
        str(exchange.result.content)
        for exchange in pair(messages).exchanges
        if exchange.result is not None
        and (exchange.call.name, exchange.call.args) == (call["name"], call["args"])
    ]


def _failed(request: ToolCallRequest, reason: str) -> ToolMessage:
    call = request.tool_call
    # The reason may quote what the user said.
    logger.warning("Tool %s failed", call["name"])
    logger.debug("Tool %s failed: %s", call["name"], reason)
    return ToolMessage(
        f"Error: {call['name']} failed. {reason}",
        tool_call_id=call["id"] or "",
        name=call["name"],
        status="error",
    )


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:1_000]


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"

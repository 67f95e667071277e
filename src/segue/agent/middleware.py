"""Middleware for `create_agent`: window, invisible metadata, unique ids, limits, MCP tools.

Each also works in your own agent, in async runs. Order matters: `RetrieveMemories` reads the
metadata that `Invisibility` removes, so it must come first; `TellTime` comes after both parts of
the system message; `Invisibility` comes last.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final
from weakref import ReferenceType, ref

from langchain.agents.middleware import (
    AgentMiddleware,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
    TracePolicy,
    omit_payload,
)
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp

from segue.agent.current import TOOLBOX_KEY, current_run
from segue.agent.ids import unused_id
from segue.agent.tool_results import ToolResult, error_result, find_result, valid_result
from segue.core.batch import Batch
from segue.core.context import Context, build_context
from segue.core.metadata import strip_metadata
from segue.core.tokens import estimate_text, estimate_tokens
from segue.errors import BackendError, UsageError
from segue.runtime.model_failures import ModelFailure
from segue.runtime.run import log_shortened
from segue.settings.agents import Limits

# The reasons by which OpenAI, Anthropic and Google report an answer that they cut off.
_CUT_OFF: Final = frozenset(
    ["length", "max_tokens", "max_output_tokens", "model_context_window_exceeded", "content_filter"]
)

Request = ModelRequest[Any]
Response = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]
Handler = Callable[[Request], Awaitable[ModelResponse[Any]]]
ToolHandler = Callable[[ToolCallRequest], Awaitable[ToolResult]]


class MiddlewareChain(AgentMiddleware[Any, Any, Any]):
    """Several middleware as one, the first outermost; for async runs only.

    LangChain traces each middleware, and calls a coroutine function through another thread, twice.
    So these are plain functions that return an awaitable, and their trace span is empty: the model
    call and the tool have spans of their own.
    """

    trace_policy = TracePolicy(process_inputs=omit_payload, process_outputs=omit_payload)

    def __init__(self, *parts: AgentMiddleware[Any, Any, Any]) -> None:
        super().__init__()
        self._parts = parts

    def awrap_model_call(self, request: Request, handler: Handler) -> Coroutine[Any, Any, Response]:
        inner: Any = handler
        for part in reversed(self._parts):
            inner = partial(part.awrap_model_call, handler=inner)
        response: Coroutine[Any, Any, Response] = inner(request)
        return response

    def awrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> Coroutine[Any, Any, ToolResult]:
        inner: Any = handler
        for part in reversed(self._parts):
            if type(part).awrap_tool_call is not AgentMiddleware.awrap_tool_call:
                inner = partial(part.awrap_tool_call, handler=inner)
        result: Coroutine[Any, Any, ToolResult] = inner(request)
        return result


class Invisibility(AgentMiddleware[Any, Any, Any]):
    """Removes Segue's metadata from model requests, so that no provider's client can send it."""

    def __init__(self) -> None:
        super().__init__()
        # Most messages of a request are the same objects as in the request before. Weak: a message
        # may have 10 MB, and is forgotten with its last reader.
        self._cache: dict[int, tuple[ReferenceType[BaseMessage], BaseMessage]] = {}

    async def awrap_model_call(self, request: Request, handler: Handler) -> Response:
        messages: list[Any] = [*map(self._strip, request.messages)]
        return await handler(request.override(messages=messages))

    def _strip(self, message: BaseMessage) -> BaseMessage:
        key = id(message)
        if (cached := self._cache.get(key)) is not None:
            return cached[1]
        [stripped] = strip_metadata([message])
        if stripped is not message:
            forget = ref(message, lambda _: self._cache.pop(key, None))
            self._cache[key] = (forget, stripped)
        return stripped


class ContextWindow(AgentMiddleware[Any, Any, Any]):
    """Adds the run's history and summary to requests; the graph's state holds only its batch."""

    def __init__(self, max_tokens: int) -> None:
        super().__init__()
        self._max_tokens = max_tokens
        self._tool_tokens: dict[str, int] = {}

    async def awrap_model_call(self, request: Request, handler: Handler) -> Response:
        return await handler(self._with_history(request))

    def _with_history(self, request: Request) -> Request:
        run = current_run()
        if run is None:
            return request
        batch = Batch(run.batch.id, list(request.messages))
        tools = sum(map(self._cost_of, request.tools))
        context = build_context(
            [batch, *run.history],
            batch.id,
            self._max_tokens,
            system=request.system_message.text if request.system_message else None,
            summary=run.summary,
            extra_tokens=tools + (estimate_text(run.clock.text) if run.clock else 0),
        )
        if context.over_budget:
            room = self._max_tokens - context.reserved
            raise UsageError(_describe_overflow(run.agent_id, context, tools, room))
        log_shortened(run, context)
        messages: list[Any] = context.messages
        system = messages.pop(0) if messages and isinstance(messages[0], SystemMessage) else None
        return request.override(system_message=system, messages=messages)

    def _cost_of(self, tool: BaseTool | dict[str, Any]) -> int:
        name = str(tool.get("name")) if isinstance(tool, dict) else tool.name
        if name not in self._tool_tokens:
            self._tool_tokens[name] = tool_tokens(tool)
        return self._tool_tokens[name]


def tool_tokens(tool: BaseTool | dict[str, Any]) -> int:
    """The tokens of a tool's description and schema in a request."""
    return estimate_text(json.dumps(convert_to_openai_tool(tool), default=str))


class TellTime(AgentMiddleware[Any, Any, Any]):
    """Ends the system message with the run's clock: behind all that a prompt cache can keep."""

    async def awrap_model_call(self, request: Request, handler: Handler) -> Response:
        run = current_run()
        if run is None or run.clock is None:
            return await handler(request)
        return await handler(with_system_part(request, run.clock.text))


def with_system_part(request: Request, part: str) -> Request:
    """The request with a text at the end of its one system message."""
    system = request.system_message
    if system is not None and isinstance(system.content, list):  # it may mark what is cached
        blocks = [*system.content, {"type": "text", "text": part}]
        return request.override(system_message=system.model_copy(update={"content": blocks}))
    texts = [text for text in (request.system_prompt, part) if text]
    return request.override(system_message=SystemMessage("\n\n".join(texts)))


class UniqueIds(AgentMiddleware[Any, Any, Any]):
    """Gives a message a new id if the batch already has its id: the state would replace the earlier
    message.
    """

    async def awrap_model_call(self, request: Request, handler: Handler) -> Response:
        response = await handler(request)
        taken = {message.id for message in request.state["messages"]}
        run = current_run()
        result: list[BaseMessage] = []
        for message in response.result:
            new_id = message.id and unused_id(message.id, taken, run.batch.id if run else None)
            taken.add(new_id)
            result.append(message.model_copy(update={"id": new_id}))
        return replace(response, result=result)


class Bounds(AgentMiddleware[Any, Any, Any]):
    """Time limits for model calls and tools, and an error result for every tool that fails.

    Without it one tool that raises discards the finished results of the others. A tool whose result
    was stored before a crash does not run again.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__()
        self._limits = limits or Limits()

    async def awrap_model_call(self, request: Request, handler: Handler) -> Response:
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

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        if known := find_result(request):
            return known
        limit = self._limits.tool_time
        try:
            async with asyncio.timeout(limit.total_seconds()) as clock:
                result = await handler(request)
            return valid_result(request, result)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - a tool may raise anything
            reason = f"{type(error).__name__}: {error}"[:1_000]
            if isinstance(error, TimeoutError) and clock.expired():
                reason = f"It did not finish within {_seconds(limit)}."
            return error_result(request, reason, error)


def _describe_overflow(agent_id: str, context: Context, tools: int, room: int) -> str:
    """The error for a request that cannot be made shorter; it names the largest part."""
    costs = [(estimate_tokens(message), *_part_and_remedy(message)) for message in context.messages]
    costs.append((tools, "the description of its tools", "Give it fewer tools"))
    _, part, remedy = max(costs)
    return (
        f"The request needs about {context.tokens} tokens; agent {agent_id!r} has room for {room}. "
        f"Most of it is {part}. {remedy}, or raise context_tokens if the model takes more."
    )


def _part_and_remedy(message: BaseMessage) -> tuple[str, str]:
    match message:
        case ToolMessage():
            return f"the result of tool {message.name!r}", "Let the tool return less"
        case AIMessage():
            return "what the agent wrote itself", "Ask for less at once"
        case SystemMessage():
            return "the system prompt with the summary", "Shorten it"
        case _:
            return "the message", "Shorten it"


def _refuse_cut_calls(response: ModelResponse[Any]) -> None:
    """Clients complete the JSON of a call that was cut off; such a call must not run."""
    for message in response.result:
        metadata = message.response_metadata
        incomplete = metadata.get("incomplete_details") or {}  # of OpenAI's Responses API
        reasons = [metadata.get("finish_reason"), metadata.get("stop_reason")]
        cut = _CUT_OFF.intersection(str(r).lower() for r in (*reasons, incomplete.get("reason")))
        if cut and isinstance(message, AIMessage) and message.tool_calls:
            raise BackendError(
                f"The model's answer was cut off in the middle of a tool call ({min(cut)}); if it "
                "ran out of tokens, let it write more (model_settings.max_tokens)."
            )


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"


class McpTools(AgentMiddleware[Any, Any, Any]):
    """Offers the tools of MCP servers, and runs them; a tool of the graph hides one of theirs."""

    async def awrap_model_call(self, request: Request, handler: Handler) -> Response:
        taken = {tool.name for tool in request.tools if isinstance(tool, BaseTool)}
        added = [tool for tool in await mcp_tools() if tool.name not in taken]
        return await handler(request.override(tools=[*request.tools, *added]))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        if request.tool is None:
            name = request.tool_call["name"]
            for tool in await mcp_tools():
                if tool.name == name:
                    return await handler(request.override(tool=tool))
        return await handler(request)


async def mcp_tools() -> Sequence[BaseTool]:
    """The tools of the MCP servers of the run's agent that are connected; none outside of Segue."""
    toolbox = get_config().get("configurable", {}).get(TOOLBOX_KEY)
    tools: Sequence[BaseTool] = await toolbox.tools() if toolbox else ()
    return tools

"""Middleware for `create_agent`: the window, invisibility, unique ids, and bounds.

Each works in anyone's own agent. Order matters: `RetrieveMemories` asks whose words a message is,
so it stands before `Invisibility`, which takes that away; `Invisibility` comes last.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

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
from langgraph.errors import GraphBubbleUp

from segue.agent.config import Limits
from segue.agent.ids import unused_id
from segue.agent.model_errors import ModelFailure
from segue.agent.run import current_run, note_shortened
from segue.agent.tool_results import ToolResult, failed, fitting, known_result
from segue.core.batch import Batch
from segue.core.context import Context, build_context
from segue.core.errors import BackendError, UsageError
from segue.core.metadata import strip_metadata
from segue.core.tokens import estimate_text, estimate_tokens

# How OpenAI, Anthropic and Google say that an answer ran out of tokens.
_CUT_OFF = frozenset({"length", "max_tokens"})
# How many messages are kept without their metadata.
_MAX_KNOWN = 8_192

Request = ModelRequest[Any]
Response = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]
Handler = Callable[[Request], ModelResponse[Any]]
AsyncHandler = Callable[[Request], Awaitable[ModelResponse[Any]]]


class Together(AgentMiddleware[Any, Any, Any]):
    """Several middleware as one, the first outermost.

    LangChain traces each by itself, and a coroutine function at the price of two visits to another
    thread. So these are plain functions that return something to await, and their span in a trace
    is empty: what happens inside has its own place under the node.
    """

    trace_policy = TracePolicy(process_inputs=omit_payload, process_outputs=omit_payload)

    def __init__(self, *parts: AgentMiddleware[Any, Any, Any]) -> None:
        super().__init__()
        self._parts = parts

    def wrap_model_call(self, request: Request, handler: Handler) -> Response:
        inner: Any = handler
        for part in reversed(self._parts):
            inner = partial(part.wrap_model_call, handler=inner)
        response: Response = inner(request)
        return response

    def awrap_model_call(
        self, request: Request, handler: AsyncHandler
    ) -> Coroutine[Any, Any, Response]:
        inner: Any = handler
        for part in reversed(self._parts):
            inner = partial(part.awrap_model_call, handler=inner)
        response: Coroutine[Any, Any, Response] = inner(request)
        return response

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]
    ) -> ToolResult:
        inner: Any = handler
        for part in reversed(self._parts):
            if type(part).wrap_tool_call is not AgentMiddleware.wrap_tool_call:
                inner = partial(part.wrap_tool_call, handler=inner)
        result: ToolResult = inner(request)
        return result

    def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolResult]],
    ) -> Coroutine[Any, Any, ToolResult]:
        inner: Any = handler
        for part in reversed(self._parts):
            if type(part).awrap_tool_call is not AgentMiddleware.awrap_tool_call:
                inner = partial(part.awrap_tool_call, handler=inner)
        result: Coroutine[Any, Any, ToolResult] = inner(request)
        return result


class Invisibility(AgentMiddleware[Any, Any, Any]):
    """Takes Segue's metadata from what the model gets, whatever the provider's client does."""

    def __init__(self) -> None:
        super().__init__()
        # Most messages of a request were in the last one, too, and are the same objects.
        self._known: dict[int, tuple[BaseMessage, BaseMessage]] = {}

    def wrap_model_call(self, request: Request, handler: Handler) -> Response:
        return handler(self._invisible(request))

    async def awrap_model_call(self, request: Request, handler: AsyncHandler) -> Response:
        return await handler(self._invisible(request))

    def _invisible(self, request: Request) -> Request:
        return request.override(messages=_any([*map(self._stripped, request.messages)]))

    def _stripped(self, message: BaseMessage) -> BaseMessage:
        known = self._known.get(id(message))
        if known is None or known[0] is not message:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            [stripped] = strip_metadata([message])
            known = self._known[id(message)] = (message, stripped)
        return known[1]


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
        extra = sum(map(self._cost_of, request.tools))
        context = build_context(
            [batch, *run.history],
            batch.id,
            self._max_tokens,
            system=request.system_message.text if request.system_message else None,
            summary=run.summary,
            extra_tokens=extra,
        )
        if context.over_budget:
            room = self._max_tokens - context.reserved
            raise UsageError(_too_long(run.agent_id, context, extra, room))
        note_shortened(run, context)
        return _with_messages(request, context.messages)

    def _cost_of(self, tool: BaseTool | dict[str, Any]) -> int:
        """What a tool's description costs."""
        name = str(tool.get("name")) if isinstance(tool, dict) else tool.name
        if name not in self._tool_tokens:
            schema = json.dumps(convert_to_openai_tool(tool), default=str)
            self._tool_tokens[name] = estimate_text(schema)
        return self._tool_tokens[name]


class UniqueIds(AgentMiddleware[Any, Any, Any]):
    """Gives a message a new id if the batch has it: some models give the same to every message.

    A graph's state would put the second message in the place of the first.
    """

    def wrap_model_call(self, request: Request, handler: Handler) -> Response:
        return _with_unique_ids(request, handler(request))

    async def awrap_model_call(self, request: Request, handler: AsyncHandler) -> Response:
        return _with_unique_ids(request, await handler(request))


class Bounds(AgentMiddleware[Any, Any, Any]):
    """A time limit for every model call and tool, and an answer for every tool that fails.

    Without it one tool that raises takes the finished results of its siblings with it. A tool
    whose result was stored before a crash does not run again.
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
        if known := known_result(request):
            return known
        try:
            return _as_result(fitting(request, handler(request)))
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - any tool, any error: the model is told
            return failed(request, _described(error), error)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolResult]],
    ) -> ToolResult:
        if known := known_result(request):
            return known
        limit = self._limits.tool_time
        try:
            async with asyncio.timeout(limit.total_seconds()) as clock:
                result = await handler(request)
            return _as_result(fitting(request, result))
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - any tool, any error: the model is told
            if isinstance(error, TimeoutError) and clock.expired():
                reason = f"It did not finish within {_seconds(limit)}."
                return failed(request, reason, error)
            return failed(request, _described(error), error)


def _with_messages(request: Request, messages: list[BaseMessage]) -> Request:
    system = messages[0] if messages and isinstance(messages[0], SystemMessage) else None
    rest = messages[1:] if system else messages
    return request.override(system_message=system, messages=_any(rest))


def _any(messages: list[BaseMessage]) -> Any:
    # LangChain types a request's messages as a union of its classes, not as their base.
    return messages


def _as_result(result: Any) -> ToolResult:
    # LangChain types a result as one message or command; a tool may give a list of them.
    given: ToolResult = result
    return given


def _with_unique_ids(request: Request, response: ModelResponse[Any]) -> ModelResponse[Any]:
    taken = {message.id for message in request.state["messages"]}
    run = current_run()
    batch = run.batch.id if run else None
    result: list[BaseMessage] = []
    for message in response.result:
        new_id = message.id and unused_id(message.id, taken, batch)
        taken.add(new_id)
        result.append(message.model_copy(update={"id": new_id}))
    return replace(response, result=result)


def _too_long(agent_id: str, context: Context, tools: int, room: int) -> str:
    """What to say of a request that cannot be made shorter, by what takes most of it."""
    costs = [(estimate_tokens(message), *_blamed(message)) for message in context.messages]
    costs.append((tools, "the description of its tools", "Give it fewer tools"))
    _, what, remedy = max(costs)
    return (
        f"The request needs about {context.tokens} tokens; agent {agent_id!r} has room for {room}. "
        f"Most of it is {what}. {remedy}, or raise context_tokens if the model takes more."
    )


def _blamed(message: BaseMessage) -> tuple[str, str]:
    if isinstance(message, ToolMessage):
        return f"the result of tool {message.name!r}", "Let the tool give less"
    if isinstance(message, AIMessage):
        return "what the agent wrote itself", "Ask for less at once"
    if isinstance(message, SystemMessage):
        return "the system prompt with the summary", "Shorten it"
    return "the message", "Shorten it"


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


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:1_000]


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"

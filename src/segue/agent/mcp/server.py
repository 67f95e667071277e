"""The MCP servers of an agent and their tools: connected in the background, and again when one was
lost.

One session stays open and is shared by all runs: starting a program takes up to seconds, and MCP
answers requests in any order. A server is not trusted: tools that no provider would accept are left
out, and any other fault becomes an error result, or absent tools and a line in the log. No run
fails because of it.
"""

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import accumulate
from operator import is_not
from typing import Any, Final

import httpx
from langchain_core.tools import BaseTool, ToolException
from mcp import ClientSession, McpError, types
from mcp.types import CallToolResult, TextContent, Tool

from segue.agent.mcp.transports import connect
from segue.agent.middleware import tool_tokens
from segue.core.durations import show_duration
from segue.core.text import cut_text
from segue.errors import BackendError, SegueError
from segue.settings.agents import AgentConfig
from segue.settings.mcp import McpConfig

logger = logging.getLogger(__name__)

# The SDK logs messages with their content; what goes wrong is logged here, without it.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL)

# Seconds between two attempts to connect; the first comes at once, then they double.
_LONGEST_PAUSE: Final = 60.0
# After a session of this many seconds a loss counts as the first one.
_STABLE_AFTER: Final = 10.0
# Between two looks at the tools of a server that keeps announcing changes.
_LOOK_PAUSE: Final = 1.0
_MOST_TOOLS: Final = 200
_MOST_SHOWN: Final = 5
# What OpenAI, Anthropic and Google all take, the first character aside, which is the server's.
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 63
_LONGEST_DESCRIPTION: Final = 2_000
_MOST_TOKENS: Final = 2_000


class _ServerTool(BaseTool):
    """Passes on all arguments; a `StructuredTool` would drop those that LangChain's own code uses,
    such as `config`.
    """

    send: Callable[[dict[str, Any]], Awaitable[str]]

    def _run(self, **_: Any) -> str:
        raise NotImplementedError("The tools of MCP servers are for async runs only.")

    async def _arun(self, /, **arguments: Any) -> str:
        return await self.send(arguments)


class McpServer:
    """A server and its tools as they are now; `keep` connects it until it is cancelled."""

    def __init__(self, name: str, config: McpConfig) -> None:
        self.name = name
        self.tools: tuple[BaseTool, ...] = ()
        # Why it is not connected.
        self.problem: str | None = f"No answer within {show_duration(config.connect_time)}."
        self._config = config
        self._session: ClientSession | None = None
        self._lost = asyncio.Event()
        # Set when the first attempt to connect has ended.
        self._tried = asyncio.Event()
        # Not set while an attempt to connect is under way.
        self._settled = asyncio.Event()
        # Set when the tools are to be listed again; that also shows whether the server is alive.
        self._look = asyncio.Event()

    async def tried(self) -> None:
        """Wait for the end of the first attempt to connect, for as long as it may take."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.connect_time.total_seconds()):
                await self._tried.wait()

    async def keep(self) -> None:
        """Connect, and connect again whenever the session is lost."""
        loop, pause = asyncio.get_running_loop(), 0.0
        while True:
            began = loop.time()
            try:
                async with AsyncExitStack() as stack:
                    await self._watch(await self._connect(stack))
            except Exception as error:
                # Errors of the transport may cover a cancellation.
                if (task := asyncio.current_task()) and task.cancelling():
                    raise asyncio.CancelledError from error
                self._note_failure(error)
            if loop.time() - began > _STABLE_AFTER + self._config.connect_time.total_seconds():
                pause = 0.0
            if pause:
                self._settled.set()
                await asyncio.sleep(pause)
            self._settled.clear()
            pause = min(max(1.0, pause * 2), _LONGEST_PAUSE)

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. Raises nothing: any failure is an error result for the model."""
        limit = self._config.call_time
        try:
            async with asyncio.timeout(limit.total_seconds()):
                return await self._send(name, arguments)
        except TimeoutError:
            reason = f"It did not answer within {show_duration(limit)}."
        except Exception as error:  # noqa: BLE001 - a server may do anything
            reason = str(error) if isinstance(error, McpError) else _describe(error)
        self._look.set()
        # Not the reason: it may quote the conversation.
        logger.warning("A call of tool %.80r failed at MCP server %s", name, self.name)
        text = f"MCP server {self.name} failed: {reason}"
        return CallToolResult(content=[TextContent(type="text", text=text)], isError=True)

    async def _send(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        if self._session is None:
            await self._settled.wait()
        if self._session is None:
            raise BackendError(f"It is not connected. {self.problem or ''}".strip())
        call = asyncio.ensure_future(self._session.call_tool(name, arguments))
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({call, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                why = self.problem or "The connection was lost."
                raise BackendError(f"{why} The call may have had effects.")
            return call.result()
        finally:
            call.cancel()
            lost.cancel()

    async def _connect(self, stack: AsyncExitStack) -> ClientSession:
        async with asyncio.timeout(self._config.connect_time.total_seconds()):
            streams = await stack.enter_async_context(connect(self.name, self._config))
            session = ClientSession(*streams, message_handler=self._hear)
            await stack.enter_async_context(session)
            await session.initialize()
            self.tools = await self._list_tools(session)
        self.problem, self._session, self._lost = None, session, asyncio.Event()
        self._settled.set()
        self._tried.set()
        logger.info("MCP server %s is connected; %d tools", self.name, len(self.tools))
        return session

    async def _watch(self, session: ClientSession) -> None:
        """List the tools again on demand; raises when the session is lost."""
        while True:
            await self._look.wait()
            self._look.clear()
            async with asyncio.timeout(self._config.connect_time.total_seconds()):
                self.tools = await self._list_tools(session)
            await asyncio.sleep(_LOOK_PAUSE)

    async def _hear(self, message: Any) -> None:
        """A message that answers no request."""
        match message:
            case types.ServerNotification(root=types.ToolListChangedNotification()):
                self._look.set()

    async def _list_tools(self, session: ClientSession) -> tuple[BaseTool, ...]:
        found, cursor = list[Tool](), None
        while len(found) < _MOST_TOOLS:
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            found += page.tools
            cursor = page.nextCursor
            if not cursor:
                break
        return self._make_tools(found[:_MOST_TOOLS])

    def _make_tools(self, offered: Sequence[Tool]) -> tuple[BaseTool, ...]:
        """The tools that the config names, or all that can be offered; the log has the others."""
        allowed, made, flaws = {*self._config.tools}, dict[str, BaseTool](), dict[str, str]()
        if missing := sorted(allowed - {each.name for each in offered}):
            logger.warning("MCP server %s has no tool %s", self.name, ", ".join(missing))
        for each in offered:
            if allowed and each.name not in allowed:
                continue
            tool = self._make_tool(each)
            if flaw := "another has this name" if tool.name in made else _flaw(tool):
                flaws[each.name] = flaw
            else:
                made[tool.name] = tool
        if flaws:
            shown = "; ".join(f"{n:.60}, {flaw}" for n, flaw in [*flaws.items()][:_MOST_SHOWN])
            logger.warning("MCP server %s: %d tools are left out: %s", self.name, len(flaws), shown)
        return tuple(made.values())

    def _make_tool(self, offered: Tool) -> BaseTool:
        async def send(arguments: dict[str, Any]) -> str:
            result = await self.call(offered.name, arguments)
            text = text_of_result(result, self._config.result_chars)
            if result.isError:
                raise ToolException(text)  # LangChain makes it an error result
            return text

        return _ServerTool(
            name=tool_name(self.name, offered.name),
            description=cut_text(offered.description or offered.name, _LONGEST_DESCRIPTION),
            args_schema=offered.inputSchema,
            send=send,
            handle_tool_error=True,
        )

    def _note_failure(self, error: Exception) -> None:
        """Tools of a session that was lost stay: a call of one waits for the new session."""
        self.problem = _describe(error)
        if self._session is None:
            self.tools = ()
            logger.warning(
                "MCP server %s cannot be reached, its tools are absent: %s", self.name, self.problem
            )
        else:
            logger.warning("The session with MCP server %s is lost: %s", self.name, self.problem)
        self._session = None
        self._lost.set()
        self._look.clear()
        self._tried.set()


def _describe(error: BaseException) -> str:
    """Without addresses, which may contain keys, and without the server's text, which may quote
    users.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case TimeoutError():
            return "It does not answer."
        case SegueError():
            return str(error)
        case httpx.HTTPStatusError():
            return f"It answers with status {error.response.status_code}."
        case OSError() | httpx.TransportError():
            return f"{type(error).__name__}: {error}"[:200]
    return f"It does not follow the protocol: {type(error).__name__}."


class Toolbox:
    """Connects the servers while it is open. Their descriptions take `max_tokens` at most."""

    def __init__(self, servers: Mapping[str, McpConfig], max_tokens: int) -> None:
        self.servers = [McpServer(name, config) for name, config in servers.items()]
        self._max_tokens = max_tokens
        # What the servers offered when the tools were last chosen.
        self._offered: list[tuple[BaseTool, ...]] = []
        self._chosen: list[BaseTool] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Toolbox"]:
        """Returns before the servers are connected; the first runs wait for them."""
        tasks = [asyncio.create_task(server.keep()) for server in self.servers]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def tools(self) -> Sequence[BaseTool]:
        """The tools of all servers that are connected."""
        await asyncio.gather(*(server.tried() for server in self.servers))
        offered = [server.tools for server in self.servers]
        if len(offered) != len(self._offered) or any(map(is_not, offered, self._offered)):
            self._offered, self._chosen = offered, self._within_budget(offered)
        return self._chosen

    def _within_budget(self, offered: Sequence[Sequence[BaseTool]]) -> list[BaseTool]:
        tools = [tool for each in offered for tool in each]
        costs = [*accumulate(map(tool_tokens, tools))]
        fitting = [t for t, cost in zip(tools, costs, strict=True) if cost <= self._max_tokens]
        if left_out := [tool.name for tool in tools[len(fitting) :]]:
            logger.warning(
                "%d MCP tools are left out, since their descriptions may take %d tokens: %s. Name "
                "the needed ones in the server's `tools`, or raise context_tokens",
                len(left_out),
                self._max_tokens,
                ", ".join(left_out[:_MOST_SHOWN]),
            )
        return fitting


def toolbox_of(config: AgentConfig) -> Toolbox:
    """The servers of an agent; the descriptions of their tools take a third of its window."""
    return Toolbox(config.mcp, config.context_tokens // 3)


def tool_name(server: str, name: str) -> str:
    """Such as `files__read`; a name that is too long ends with a hash."""
    full = f"{server}__{_NOT_IN_NAMES.sub('_', name)}"
    if len(full) <= _LONGEST_NAME:
        return full
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{full[: _LONGEST_NAME - 9]}_{digest}"


def _flaw(tool: BaseTool) -> str | None:
    """Why a tool would fail each request that contains it; None if it would not."""
    schema = tool.args_schema
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its arguments are not an object"
    if not isinstance(schema.get("properties", {}), dict):
        return "its arguments have no names"
    try:
        tokens = tool_tokens(tool)
    except Exception as error:  # noqa: BLE001 - a schema may be anything
        return f"its schema cannot be read ({type(error).__name__})"
    return f"its schema takes {tokens} tokens" if tokens > _MOST_TOKENS else None


def text_of_result(result: CallToolResult, most: int) -> str:
    """The texts of a result, or else its data. Pictures, sounds and files are only mentioned: few
    models accept them.
    """
    text = "\n".join(_texts(result.content))
    if not text and result.structuredContent:
        text = json.dumps(result.structuredContent, ensure_ascii=False)
    return cut_text(text, most) or "(It returned nothing.)"


def _texts(content: Iterable[types.ContentBlock]) -> Iterator[str]:
    for block in content:
        match block:
            case TextContent(text=text):
                yield text
            case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
                yield text
            case types.ResourceLink(uri=uri):
                yield f"[{uri}]"
            case types.EmbeddedResource():
                yield "[a file, left out]"
            case _:
                yield f"[{block.type}, left out]"

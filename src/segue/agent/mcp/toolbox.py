"""The tools of all MCP servers of one agent, as the model gets them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import Final

from langchain_core.tools import BaseTool

from segue.agent.mcp.server import McpServer
from segue.agent.middleware import tool_tokens
from segue.settings.agents import AgentConfig
from segue.settings.mcp import McpConfig

logger = logging.getLogger(__name__)

_MOST_SHOWN: Final = 5


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
        """Returns at once: the first runs wait for the servers, not the start."""
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
        if len(offered) != len(self._offered) or any(map(_differs, offered, self._offered)):
            self._offered, self._chosen = offered, self._within_budget(offered)
        return self._chosen

    def _within_budget(self, offered: Sequence[Sequence[BaseTool]]) -> list[BaseTool]:
        tools = [tool for each in offered for tool in each]
        costs = [*accumulate(map(tool_tokens, tools))]
        fitting = [
            tool for tool, cost in zip(tools, costs, strict=True) if cost <= self._max_tokens
        ]
        if left_out := [tool.name for tool in tools[len(fitting) :]]:
            logger.warning(
                "%d MCP tools are left out, since their descriptions may take %d tokens: %s. Name "
                "the needed ones in the server's `tools`, or raise context_tokens",
                len(left_out),
                self._max_tokens,
                ", ".join(left_out[:_MOST_SHOWN]),
            )
        return fitting


def _differs(first: object, second: object) -> bool:
    return first is not second


def toolbox_of(config: AgentConfig) -> Toolbox:
    """The servers of an agent; the descriptions of their tools take a third of its window."""
    return Toolbox(config.mcp, config.context_tokens // 3)

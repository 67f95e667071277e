"""MCP tools in a graph: a middleware for `create_agent`, and a function for nodes of any graph.

Tools come and go with their servers, so they are looked up in each step and not when the graph is
built. Without the extra `mcp` this module can be imported, too.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.tools import BaseTool
from langgraph.config import get_config

from segue.agent.current import TOOLBOX_KEY
from segue.agent.middleware import Handler, Request, Response, ToolHandler
from segue.agent.tool_results import ToolResult

if TYPE_CHECKING:
    from segue.agent.mcp.toolbox import Toolbox


class McpTools(AgentMiddleware[Any, Any, Any]):
    """Offers the tools of the agent's MCP servers to the model, and runs them; for async runs.

    A tool of the graph hides one of a server with the same name.
    """

    def __init__(self, toolbox: "Toolbox | None" = None) -> None:
        """Without `toolbox`, that of the agent whose run it is."""
        super().__init__()
        self._toolbox = toolbox

    async def awrap_model_call(self, request: Request, handler: Handler) -> Response:
        taken = {tool.name for tool in request.tools if isinstance(tool, BaseTool)}
        added = [tool for tool in await self._tools() if tool.name not in taken]
        return await handler(request.override(tools=[*request.tools, *added]))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        if request.tool is None:
            name = request.tool_call["name"]
            for tool in await self._tools():
                if tool.name == name:
                    return await handler(request.override(tool=tool))
        return await handler(request)

    async def _tools(self) -> Sequence[BaseTool]:
        return await (self._toolbox.tools() if self._toolbox else mcp_tools())


async def mcp_tools() -> Sequence[BaseTool]:
    """The tools of the MCP servers of the run's agent that are connected; none outside of Segue."""
    toolbox: Toolbox | None = get_config().get("configurable", {}).get(TOOLBOX_KEY)
    return await toolbox.tools() if toolbox else ()

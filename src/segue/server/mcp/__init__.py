"""An MCP server: what a user may do by `/api`, as tools for other assistants."""

from segue.server.mcp.routes import PATH, error_body, router

__all__ = ["PATH", "error_body", "router"]

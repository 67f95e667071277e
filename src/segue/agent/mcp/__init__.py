"""Tools of MCP servers for agents. Needs the extra `mcp`; imported only if an agent has servers."""

"""Middleware for agents of `create_agent`, in Segue or in a program of your own."""

from segue.agent.batch_history import BatchHistory
from segue.agent.mcp_tools import McpTools, mcp_tools
from segue.agent.middleware import Bounds, Invisibility, TellTime, UniqueIds
from segue.agent.retrieval import RetrieveMemories

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

"""Segue: a runtime on LangGraph for agents that speak first."""

from typing import TYPE_CHECKING, Any

from segue.core.batch import Batch, group_batches
from segue.core.context import Context, build_context
from segue.core.errors import ConflictError, NotFoundError, SegueError, UsageError
from segue.core.legacy import assign_batches
from segue.core.messages import synthetic_message, user_message, visible_messages
from segue.core.metadata import BatchType, MessageMetadata, is_synthetic, strip_metadata
from segue.core.query import MemoryQuery, memory_query
from segue.core.settle import settle
from segue.core.stamp import stamp
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.runtime.snowflakes import SnowflakeGenerator

if TYPE_CHECKING:
    from segue.facade import Segue
    from segue.settings import Settings

__all__ = [
    "TRIGGER_PROMPTS",
    "Batch",
    "BatchType",
    "ConflictError",
    "Context",
    "MemoryQuery",
    "MessageMetadata",
    "NotFoundError",
    "Segue",
    "SegueError",
    "Settings",
    "SnowflakeGenerator",
    "TriggerType",
    "UsageError",
    "assign_batches",
    "build_context",
    "group_batches",
    "is_synthetic",
    "memory_query",
    "settle",
    "stamp",
    "strip_metadata",
    "synthetic_message",
    "user_message",
    "visible_messages",
]


def __getattr__(name: str) -> Any:
    """The running system brings LangGraph with it; who only uses the library need not wait."""
    if name == "Segue":
        from segue.facade import Segue  # noqa: PLC0415

        return Segue
    if name == "Settings":
        from segue.settings import Settings  # noqa: PLC0415

        return Settings
    raise AttributeError(f"module 'segue' has no attribute {name!r}")

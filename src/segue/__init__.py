"""Segue: a runtime on LangGraph for agents that speak first."""

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

__all__ = [
    "TRIGGER_PROMPTS",
    "Batch",
    "BatchType",
    "ConflictError",
    "Context",
    "MemoryQuery",
    "MessageMetadata",
    "NotFoundError",
    "SegueError",
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

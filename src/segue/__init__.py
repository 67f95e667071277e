"""Segue: a runtime on LangGraph for agents that speak first."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from segue.core.batch import Batch, group_batches, settle
    from segue.core.context import Context, build_context
    from segue.core.memory import MemoryQuery, memory_query
    from segue.core.messages import synthetic_message, user_message, visible_messages
    from segue.core.metadata import BatchType, MessageMetadata, is_synthetic, strip_metadata
    from segue.core.stamp import stamp
    from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
    from segue.errors import ConflictError, NotFoundError, SegueError, UsageError
    from segue.facade import Segue
    from segue.migrate.legacy import assign_batches
    from segue.runtime.ids import SnowflakeGenerator
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


# Names by module. A name is imported on first use, since LangChain and LangGraph load slowly.
_PLACES: Final = {
    "segue.core.batch": "Batch group_batches settle",
    "segue.core.context": "Context build_context",
    "segue.errors": "ConflictError NotFoundError SegueError UsageError",
    "segue.migrate.legacy": "assign_batches",
    "segue.core.messages": "synthetic_message user_message visible_messages",
    "segue.core.metadata": "BatchType MessageMetadata is_synthetic strip_metadata",
    "segue.core.memory": "MemoryQuery memory_query",
    "segue.core.stamp": "stamp",
    "segue.core.triggers": "TRIGGER_PROMPTS TriggerType",
    "segue.facade": "Segue",
    "segue.runtime.ids": "SnowflakeGenerator",
    "segue.settings": "Settings",
}


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names.split():
            return getattr(import_module(place), name)
    raise AttributeError(f"module 'segue' has no attribute {name!r}")

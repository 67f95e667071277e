"""The current run of a node, tool or middleware, from LangGraph's config; and what graphs that do
not know Segue read of it: ids in `configurable`, and the fields of their `context_schema`.
"""

from collections.abc import Collection
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from pydantic import BaseModel

from segue.errors import UsageError
from segue.runtime.run import Run

# LangGraph does not store keys that begin with underscores.
RUN_KEY: Final = "__segue_run"
MEMORIES_KEY: Final = "__segue_memories"
TOOLBOX_KEY: Final = "__segue_toolbox"
# Why the agent speaks first; None for a reply.
TRIGGER_KEY: Final = "segue_trigger"
_CONTEXT: Final = ("user_id", "agent_id", "thread_id", "trigger", "local_time", "time_zone")


def current_run(config: RunnableConfig | None = None) -> Run | None:
    """The current run; None outside of Segue."""
    try:
        found = (config or get_config()).get("configurable", {}).get(RUN_KEY)
    except RuntimeError:  # not inside a graph
        return None
    return found if isinstance(found, Run) else None


def required_run() -> Run:
    """The current run of a tool; `UsageError` outside of Segue."""
    run = current_run()
    if run is None:
        raise UsageError("This tool works only in a run of a Segue agent.")
    return run


def ids_of(run: Run) -> dict[str, Any]:
    """What a graph finds in `config["configurable"]`."""
    trigger = None if run.trigger is None else str(run.trigger)
    ids = {"thread_id": run.thread_id, "user_id": run.user_id, "agent_id": run.agent_id}
    return {**ids, TRIGGER_KEY: trigger}


def context_of(schema: Any, run: Run) -> dict[str, Any] | None:
    """The fields of a graph's `context_schema` that Segue knows; LangGraph makes the object."""
    if schema is None:
        return None
    clock = run.clock
    known = {
        "user_id": run.user_id,
        "agent_id": run.agent_id,
        "thread_id": run.thread_id,
        "trigger": ids_of(run)[TRIGGER_KEY],
        "local_time": clock and clock.local_time,
        "time_zone": clock and clock.zone,
    }
    wanted = _fields(schema)
    return {name: value for name, value in known.items() if name in wanted}


def check_context(schema: Any, whose: str) -> None:
    """Refuse a schema that cannot be made of what Segue knows: each run would fail."""
    missing = sorted(_required(schema) - {*_CONTEXT})
    if missing:
        raise UsageError(
            f"{whose}: the graph's context needs {', '.join(map(repr, missing))}, which Segue does "
            f"not know; give it a default. Segue fills: {', '.join(_CONTEXT)}."
        )


def _fields(schema: Any) -> Collection[str]:
    """The names alone: their types may be known to type checkers only."""
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return schema.model_fields.keys()
    if is_dataclass(schema):
        return {each.name for each in fields(schema) if each.init}
    return getattr(schema, "__annotations__", {}).keys()


def _required(schema: Any) -> set[str]:
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return {name for name, field in schema.model_fields.items() if field.is_required()}
    if is_dataclass(schema):
        given = (each for each in fields(schema) if each.init)
        return {f.name for f in given if f.default is MISSING and f.default_factory is MISSING}
    return set()

"""The current run of a node, tool or middleware, from LangGraph's config; and what graphs without
Segue imports can read: ids in `configurable`, and the fields of their `context_schema`.
"""

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
    """The values of `config["configurable"]` for a graph."""
    trigger = None if run.trigger is None else str(run.trigger)
    ids = {"thread_id": run.thread_id, "user_id": run.user_id, "agent_id": run.agent_id}
    return {**ids, TRIGGER_KEY: trigger}


def context_of(schema: Any, run: Run) -> dict[str, Any] | None:
    """The fields of a graph's `context_schema` that Segue knows; LangGraph makes the object."""
    if schema is None:
        return None
    ids, clock, wanted = ids_of(run), run.clock, _fields(schema)
    times = {"local_time": clock and clock.local_time, "time_zone": clock and clock.zone}
    known = {**ids, "trigger": ids[TRIGGER_KEY], **times}
    return {name: known[name] for name in _CONTEXT if name in wanted}


def check_context(schema: Any, whose: str) -> None:
    """Refuse a schema with required fields that Segue cannot fill: each run would fail."""
    required = {name for name, is_required in _fields(schema).items() if is_required}
    if missing := sorted(required - {*_CONTEXT}):
        raise UsageError(
            f"{whose}: the graph's context needs {', '.join(map(repr, missing))}, which Segue does "
            f"not know; give it a default. Segue fills: {', '.join(_CONTEXT)}."
        )


def _fields(schema: Any) -> dict[str, bool]:
    """Names, and whether each is required; types may be known to type checkers only."""
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return {name: field.is_required() for name, field in schema.model_fields.items()}
    if is_dataclass(schema):
        return {
            each.name: each.default is MISSING and each.default_factory is MISSING
            for each in fields(schema)
            if each.init
        }
    return dict.fromkeys(getattr(schema, "__annotations__", {}), False)

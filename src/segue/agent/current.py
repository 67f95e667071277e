"""The current run of a node, tool or middleware, from LangGraph's config."""

from typing import Final

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config

from segue.errors import UsageError
from segue.runtime.run import Run

# LangGraph does not store keys that begin with underscores.
RUN_KEY: Final = "__segue_run"
MEMORIES_KEY: Final = "__segue_memories"
TOOLBOX_KEY: Final = "__segue_toolbox"


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

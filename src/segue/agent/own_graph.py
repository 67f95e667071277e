"""Which settings go with a graph of one's own: what it would not follow is refused, not ignored.

Called by `AgentConfig` when it is read. Defaults are no wish: only what was set is looked at.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from segue.agent.mistakes import misplaced
from segue.core.compress import Strategy

if TYPE_CHECKING:
    from segue.agent.config import AgentConfig

_BOUNDS: Final = (
    "the agent has a graph of its own, whose calls Segue cannot stop; put Bounds(Limits(…)) into "
    "the graph's middleware, or set batch_time, which bounds all of a batch"
)
_REFUSED: Final[Mapping[str, str]] = {
    "model": "the agent has a graph of its own, which brings its model; leave this out",
    "model_settings": "the agent has a graph of its own, which brings its model; leave this out",
    "system_prompt": "the agent has a graph of its own, which brings its prompt; leave this out",
    "tools": "the agent has a graph of its own, which brings its tools; leave this out",
    "continuations": (
        "the agent has a graph of its own, and continue_later is a tool of the built-in agent; "
        "leave this out"
    ),
    "may_ask": (
        "the agent has a graph of its own, and ask_agent is a tool of the built-in agent; leave "
        "this out"
    ),
}
_LIMITS: Final = ("model_time", "tool_time")
_MEMORY: Final = (
    "the agent has a graph of its own, which keeps no memories unless memory.enabled is set to true"
)
_SUMMARISE: Final = (
    "the agent has a graph of its own, whose model Segue cannot ask for summaries; set "
    "compression.model, or another compression.strategy"
)


def check_beside_graph(agent: "AgentConfig") -> None:
    """Raise pydantic's error for each setting that the agent's graph would not follow."""
    if agent.graph is None:
        return
    found = [misplaced(words, *place) for *place, words in _misfits(agent)]
    if found:
        raise ValidationError.from_exception_data("agent", found)


def _misfits(agent: "AgentConfig") -> Iterator[tuple[str, ...]]:
    """Places, each with what is wrong there."""
    asked = ("model", "model_settings") if agent.autonomy.decider == "model" else ()
    for name, words in _REFUSED.items():
        if name in agent.model_fields_set and getattr(agent, name) and name not in asked:
            yield name, words
    for name in _LIMITS:
        if name in agent.limits.model_fields_set:
            yield "limits", name, _BOUNDS
    memory = agent.memory.model_fields_set
    if "enabled" not in memory:
        for name in sorted(memory):
            yield "memory", name, _MEMORY
    wanted = agent.compression
    summarises = wanted.enabled and wanted.strategy is Strategy.SUMMARISE and wanted.model is None
    if summarises and wanted.model_fields_set:
        yield "compression", _SUMMARISE

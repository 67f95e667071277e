"""Building an agent's graph: the built-in one from its config, or a custom one."""

import importlib
import inspect
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, tool
from langgraph.constants import END
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from segue.agent import middleware
from segue.agent.current import check_context
from segue.agent.models import load_model
from segue.agent.retrieval import RetrieveMemories
from segue.agent.state import MESSAGES, PREVIOUS, Graph
from segue.agent.tools import forget, remember
from segue.errors import UsageError
from segue.settings.agents import AgentConfig


@dataclass(frozen=True, slots=True)
class BuiltGraph:
    """A compiled graph; `output` is the channel with its messages, `notes` are for the operator."""

    graph: Graph
    holds_window: bool
    output: str = MESSAGES
    notes: tuple[str, ...] = ()


def build_graph(
    config: AgentConfig,
    *,
    model: BaseChatModel | None = None,
    tools: Sequence[BaseTool] = (),
    memories: bool = False,
) -> BuiltGraph:
    """The graph of an agent. `tools` are added to those of the config, unless a tool there has the
    same name; `model` replaces its model. With `memories` the model gets those of the run, and can
    remember and forget.
    """
    has_memories = memories or (config.keeps_memories and config.graph)
    memory_tokens = config.memory.max_tokens if has_memories else 0
    if memory_tokens >= config.context_tokens // 2:
        raise UsageError(
            f"agent {config.id!r}: memory.max_tokens is {memory_tokens}, more than half of "
            f"context_tokens ({config.context_tokens}); lower it."
        )
    if config.graph is not None:
        if model is not None or memories or tools or config.tools:
            raise UsageError(
                f"agent {config.id!r} has a graph of its own; its model, tools and memories are "
                "that graph's. Put RetrieveMemories into its middleware."
            )
        return _custom(load_graph(config.graph, f"agent {config.id!r}"), config)
    parts: list[AgentMiddleware[Any, Any, Any]] = [middleware.McpTools()] if config.mcp else []
    parts.append(middleware.ContextWindow(config.context_tokens - memory_tokens))
    if memories:
        parts.append(RetrieveMemories())
    parts += [middleware.TellTime(), middleware.UniqueIds()]
    parts += [middleware.Invisibility(), middleware.Bounds(config.limits)]
    own = [load_tool(given, config.id) for given in config.tools]
    taken = {given.name for given in own}
    added = [*tools, remember, forget] if memories else tools
    all_tools = [*own, *(given for given in added if given.name not in taken)]
    built: Any = create_agent(
        model or load_model(config.model, config.model_settings),
        all_tools,
        system_prompt=config.system_prompt,
        middleware=[middleware.MiddlewareChain(*parts)],
    )
    return BuiltGraph(built, holds_window=False)


def _custom(graph: Graph, config: AgentConfig) -> BuiltGraph:
    check_context(graph.context_schema, f"agent {config.id!r}")
    saver, notes = graph.checkpointer, list[str]()
    if saver:
        notes.append(
            f"Its graph was compiled with a checkpointer ({type(saver).__name__}), which is not "
            "used: the journal keeps the messages and the state of each thread."
        )
    if PREVIOUS not in graph.channels:
        return BuiltGraph(graph, holds_window=True, notes=tuple(notes))
    # A workflow of `@entrypoint` shows its reply only; its state is what it gets as `previous`.
    graph = copy(graph)
    graph.stream_channels = [END, PREVIOUS]
    return BuiltGraph(graph, holds_window=True, output=END, notes=tuple(notes))


def load_graph(given: Any, whose: str) -> Graph:
    """Compile a graph, a builder, a function that returns one, or the path of one of these."""
    found = load_attribute(given, f"{whose}: graph") if isinstance(given, str) else given
    if not isinstance(found, Pregel | StateGraph) and callable(found):
        found = _call_factory(found, whose)
    if isinstance(found, StateGraph):
        try:
            found = found.compile()
        except ValueError as error:
            raise UsageError(f"{whose}: the graph cannot be compiled: {error}") from error
    if not isinstance(found, Pregel):
        raise UsageError(
            f"{whose}: graph is {type(found).__name__}; expected a LangGraph graph, a builder of "
            "one, or a function that returns one."
        )
    if MESSAGES not in found.channels and PREVIOUS not in found.channels:
        raise UsageError(
            f"{whose}: the graph has no `messages` in its state; it has: "
            f"{', '.join(sorted(found.stream_channels_list)) or 'nothing'}."
        )
    _check_input(found, whose)
    _check_breakpoints(found, whose)
    return found


def _check_input(graph: Graph, whose: str) -> None:
    """LangGraph silently drops input that the schema does not name."""
    builder = getattr(graph, "builder", None)
    if builder is not None and MESSAGES not in (taken := builder.schemas[builder.input_schema]):
        raise UsageError(
            f"{whose}: the graph takes no `messages` as its input, so it would not get what users "
            f"write; its input_schema has: {', '.join(sorted(taken))}. Add `messages` to it."
        )


def _check_breakpoints(graph: Graph, whose: str) -> None:
    """A graph that stops at one asks nothing that a user could answer, and would never go on."""
    graphs = [graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))]
    own = [each for each in graphs if isinstance(each, Pregel)]
    if any(each.interrupt_before_nodes or each.interrupt_after_nodes for each in own):
        raise UsageError(
            f"{whose}: the graph was compiled with interrupt_before or interrupt_after; compile it "
            "without, and call interrupt() with a question where a person is to decide."
        )


def _call_factory(function: Callable[..., Any], whose: str) -> Any:
    if inspect.iscoroutinefunction(function):
        raise UsageError(f"{whose}: graph is an async function; expected one that returns a graph.")
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{whose}: graph is a function that cannot be called without arguments: {error}."
        ) from None
    try:
        return function()
    except Exception as error:  # the function may raise anything
        raise UsageError(
            f"{whose}: the function that makes the graph failed: {type(error).__name__}: {error}."
        ) from error


def load_tool(given: Any, agent_id: str) -> BaseTool:
    """A tool from a tool, a function with a docstring, or the path of one of these."""
    found = load_attribute(given, f"agent {agent_id!r}: tool") if isinstance(given, str) else given
    if isinstance(found, BaseTool):
        return found
    if not callable(found):
        raise UsageError(
            f"agent {agent_id!r}: {found!r} is not a tool; expected a LangChain tool or a function."
        )
    try:
        made: BaseTool = tool(found)
    except ValueError as error:
        raise UsageError(f"agent {agent_id!r}: {found!r} cannot be a tool: {error}") from error
    return made


def load_attribute(path: str, whose: str) -> Any:
    """Import `package.module:attribute`."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise UsageError(f"{whose} is {path!r}; expected 'package.module:attribute'.")
    try:
        found: Any = importlib.import_module(module_name)
        for name in attribute.split("."):
            found = getattr(found, name)
    except Exception as error:  # a module may raise anything when it is loaded
        raise UsageError(
            f"{whose} {path!r} cannot be loaded: {type(error).__name__}: {error}."
        ) from error
    return found

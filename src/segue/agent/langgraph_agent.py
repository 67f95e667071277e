"""`LangGraphAgent`: one run of a graph answers one batch.

Checkpoints are stored by batch, so they hold running turns only. An interrupted run continues where
it stopped: finished tools do not run again. Each attempt has its own checkpoints, so an attempt
that lost its lease does not disturb its successor. The run yields events with the graph's output
and its state for the next turn; the caller stores them.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, StateSnapshot, StreamMode

from segue.agent.build import BuiltGraph
from segue.agent.checkpoints.savers import AttemptSaver
from segue.agent.checkpoints.store import Checkpoints, declared_types
from segue.agent.current import MEMORIES_KEY, RUN_KEY, TOOLBOX_KEY, context_of, ids_of
from segue.agent.ids import missing_messages, with_position_ids
from segue.agent.models import counting_callbacks
from segue.agent.retrieval import MemorySource, recall_for
from segue.agent.state import MESSAGES, SEED_STEP, Graph, GraphState, input_of, messages_in, seed
from segue.agent.stream import MODEL_NODE, GraphEvents
from segue.core.batch import Batch
from segue.core.context import build_context
from segue.errors import BackendError, UsageError
from segue.journal.records import StateValue
from segue.runtime.run import AgentEvent, Run, StateChanged, log_if_empty, log_shortened
from segue.settings.agents import AgentConfig

logger = logging.getLogger(__name__)

_MODES: Final[list[StreamMode]] = ["messages", "updates", "values", "custom"]
# Nothing is left to run; LangGraph's own input None means: continue.
_NOTHING: Final = object()
_TOOLS_NODE: Final = "tools"  # of `create_agent`


class LangGraphAgent:
    """An agent that runs a LangGraph graph: the built-in one or a custom one."""

    def __init__(
        self,
        config: AgentConfig,
        built: BuiltGraph,
        checkpoints: Checkpoints,
        memories: MemorySource | None = None,
        toolbox: Any = None,
    ) -> None:
        """`memories` are searched before each run; `toolbox` has the tools of MCP servers."""
        self.config = config
        self._built = built
        self._checkpoints = checkpoints
        self._memories = memories
        self._toolbox = toolbox
        # By batch, until it is forgotten.
        self._savers: dict[int, AttemptSaver] = {}
        self._silent = _tool_nodes(built.graph) if built.holds_window else None
        named = {tuple(name.split(":", 1)) for name in config.checkpoint_types}
        self._types = declared_types(built.graph) | named
        self._state: GraphState | None = None
        if built.holds_window:
            self._state = GraphState(built.graph, self._types, config.limits.state_bytes)
        for note in built.notes:
            logger.warning("Agent %s: %s", config.id, note)

    async def run(self, run: Run) -> AsyncIterator[AgentEvent]:
        """Answer the run's batch, or continue it where it was interrupted.

        Yields each new message once, and none that the batch already has. Close the iterator to
        stop the model and the tools.
        """
        if run.is_new:  # once per batch, however often it is retried
            where = {"thread_id": run.thread_id, "agent_id": run.agent_id}
            log_if_empty(run.messages, run.summary, **where)
        graph, config = await self._graph_for(run)
        events = GraphEvents(run, self._silent, self._built.output)
        state = await self._find_state(graph, config, run)
        if state is None:
            given = await self._first_input(graph, config, run)
        else:
            given = self._next_input(run, state)
            for event in events.from_state(state, is_answered=isinstance(given, Command)):
                yield event
        if given is not _NOTHING:
            if recalled := await recall_for(run, self._memories, self.config.memory):
                yield recalled
            async with aclosing(self._answer(graph, given, config, run, events)) as answer:
                async for event in answer:
                    yield event
        if changes := await self._changes(events, run):
            yield StateChanged(changes)

    async def _answer(
        self, graph: Graph, given: Any, config: RunnableConfig, run: Run, events: GraphEvents
    ) -> AsyncGenerator[AgentEvent]:
        stream = graph.astream(
            given,
            config,
            context=context_of(graph.context_schema, run),
            stream_mode=_MODES,
            version="v2",
            durability="async",
            # Graphs inside tools of the built-in agent stay invisible.
            subgraphs=self._built.holds_window,
        )
        try:
            # Typed as an iterator, but a generator: closing it stops the graph.
            async with aclosing(cast("AsyncGenerator[Any]", stream)) as parts:
                async for part in parts:
                    for event in events.from_part(part):
                        yield event
        except GraphRecursionError as error:
            # Also raised if the last allowed step has ended the run.
            if _is_unfinished(await graph.aget_state(config)):
                raise BackendError(
                    f"Agent {self.config.id!r} took more than {self.config.limits.steps} steps."
                ) from error
        for message in events.at_end():
            yield message

    async def _changes(self, events: GraphEvents, run: Run) -> dict[str, StateValue | None]:
        """The changes of the graph's state to store; none if the graph did not get that far."""
        values, saver = events.values, self._savers[run.batch.id]
        if self._state is None or values is None:
            return {}
        if events.has_question:
            # Its values show what branches beside the question wrote; the step that the answer
            # completes will write it.
            values = await saver.last_values()
        if run.answer is not None and run.attempt:
            # A follow-up may have changed the state while the question waited.
            values = self._state.rebase(values, run, *await saver.own_steps())
        return self._state.changes(values, run)

    async def forget(self, batch: int) -> None:
        """Delete the checkpoints of a finished batch."""
        saver = self._savers.pop(batch, None)
        if saver is not None:
            await saver.close()
        if saver is None or saver.has_begun_to_store:
            await self._checkpoints.drop(str(batch))

    async def _saver_for(self, run: Run) -> AttemptSaver:
        """Lazy for a new batch of the built-in agent, whose first step can be repeated."""
        goes_on = _may_have_checkpoints(run)
        is_lazy = not goes_on and not self._built.holds_window
        batch = str(run.batch.id)
        saver = AttemptSaver(self._checkpoints.saver(), batch, run.attempt, is_lazy=is_lazy)
        self._savers[run.batch.id] = saver.with_allowlist(self._types)
        if goes_on:
            await saver.take_over()
        return saver

    async def _graph_for(self, run: Run) -> tuple[Graph, RunnableConfig]:
        graph = copy(self._built.graph)  # Pregel.copy() would validate the whole graph again
        graph.checkpointer = await self._saver_for(run)
        config: RunnableConfig = {
            "configurable": {
                **ids_of(run),
                RUN_KEY: run,
                MEMORIES_KEY: self._memories,
                TOOLBOX_KEY: self._toolbox,
            },
            "recursion_limit": self.config.limits.steps,
            "metadata": {"thread": run.thread_id, "agent": run.agent_id},
            "callbacks": counting_callbacks(),
        }
        return graph, config

    async def _find_state(
        self, graph: Graph, config: RunnableConfig, run: Run
    ) -> StateSnapshot | None:
        """The state that an earlier run of the batch left, unless the journal has more.

        Checkpoints are stored in the background, so after a crash a call may be in the journal
        only. Everything before that call is in the journal, too.
        """
        if not _may_have_checkpoints(run):
            return None
        state = await graph.aget_state(config)
        if state.created_at is None or (state.metadata or {}).get("step") == SEED_STEP:
            return None
        missing = missing_messages(messages_in(state.values, self._built.output), run.batch)
        if not self._built.holds_window and any(isinstance(m, AIMessage) for m in missing):
            await self._checkpoints.drop(str(run.batch.id))
            return None
        return state

    async def _first_input(self, graph: Graph, config: RunnableConfig, run: Run) -> Any:
        """The input of a graph without a checkpoint: the window, or the batch so far."""
        if run.answer is not None:
            logger.warning("Batch %s has no checkpoint; it asks its question again", run.batch.id)
        if self._state is not None:
            if values := self._state.decode(run):
                await seed(graph, self._savers[run.batch.id], config, values)
            memory_tokens = self.config.memory.max_tokens if self._memories else 0
            max_tokens = self.config.context_tokens - memory_tokens
            context = build_context(run.batches, run.batch.id, max_tokens, summary=run.summary)
            log_shortened(run, context)
            return input_of(graph, with_position_ids(context.messages, run.batch.id))
        so_far = {"messages": list(run.batch.messages)}
        stopped_after = _stopped_after(run.batch)
        if stopped_after not in graph.nodes:
            return _NOTHING if run.batch.is_complete else so_far
        await graph.aupdate_state(config, so_far, as_node=stopped_after)
        return None

    def _next_input(self, run: Run, state: StateSnapshot) -> Any:
        """The input of a graph that ran before: None continues an interrupted run."""
        if state.interrupts:
            answers = _answers(run, state.interrupts)
            return Command(resume=answers) if answers else _NOTHING
        if _is_unfinished(state):
            return None
        if self._built.output != MESSAGES:
            return _NOTHING
        # A continuation: the batch got a message after the graph had ended.
        later = _later(run.batch, messages_in(state.values, MESSAGES))
        return {MESSAGES: later} if later else _NOTHING


def _may_have_checkpoints(run: Run) -> bool:
    return not run.is_new or run.answer is not None


def _is_unfinished(state: StateSnapshot) -> bool:
    # `next` omits tasks that have written but are not in a checkpoint yet.
    return bool(state.next or state.tasks)


def _later(batch: Batch, held: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The messages after the last one that the graph holds; it may have dropped earlier ones."""
    missing = {id(message) for message in missing_messages(held, batch)}
    known = [n for n, message in enumerate(batch.messages) if id(message) not in missing]
    return batch.messages[max(known, default=-1) + 1 :]


def _stopped_after(batch: Batch) -> str | None:
    """The built-in agent's last finished node; None if the model must be asked again."""
    said = [message for message in batch.messages if isinstance(message, AIMessage)]
    if any(exchange.message is said[-1] for exchange in batch.pairing.unanswered):
        return MODEL_NODE
    return _TOOLS_NODE if said and isinstance(batch.messages[-1], ToolMessage) else None


def _answers(run: Run, interrupts: Sequence[Interrupt]) -> dict[str, Any]:
    """The answers by question id. Questions asked after `run.answer` was given stay open."""
    answer = run.answer
    if answer is None:
        return {}
    open_ids = {interrupt.id for interrupt in interrupts}
    asked = open_ids if run.asked is None else set(run.asked)
    if isinstance(answer, Mapping) and answer and answer.keys() <= asked:
        return {each: answer[each] for each in answer.keys() & open_ids}
    if len(asked) > 1:
        raise UsageError(
            f"There are {len(asked)} questions; give the answers by their ids: {sorted(asked)}."
        )
    return dict.fromkeys(asked & open_ids, answer)


def _tool_nodes(graph: Graph) -> frozenset[str]:
    """The nodes that run tools: output of models in them is for the tool, not for the user."""
    graphs = [graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))]
    return frozenset(
        name
        for each in graphs
        if isinstance(each, Pregel)
        for name, node in each.nodes.items()
        if isinstance(node.bound, ToolNode)
    )

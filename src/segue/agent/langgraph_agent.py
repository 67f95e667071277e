"""`LangGraphAgent`: one run of a graph answers one batch.

LangGraph's thread is the batch, so its checkpoints hold running turns and nothing else. A run that
was cut off goes on where it stopped: finished tools do not run again. Each attempt stores for
itself, so that one that goes on beside its successor does not disturb it. What the graph says
comes out as events; storing it is the caller's.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphRecursionError
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, StateSnapshot, StreamMode

from segue.agent.attempt_saver import AttemptSaver
from segue.agent.build import BuiltGraph, Graph
from segue.agent.checkpoint_types import declared_types, named_types
from segue.agent.checkpoints import Checkpoints
from segue.agent.config import AgentConfig
from segue.agent.ids import by_position, missing_from
from segue.agent.lazy_saver import LazySaver
from segue.agent.memory import MemoryBook
from segue.agent.model_calls import counting_callbacks
from segue.agent.retrieval import recall_for
from segue.agent.run import (
    NOTEBOOK_KEY,
    RUN_KEY,
    AgentEvent,
    Run,
    note_if_empty,
    note_shortened,
)
from segue.agent.said import MODEL_NODE, Said
from segue.core.batch import Batch
from segue.core.context import build_context
from segue.core.errors import BackendError, UsageError

logger = logging.getLogger(__name__)

_MODES: Final[list[StreamMode]] = ["messages", "updates", "values", "custom"]
_NOTHING: Final = object()
_TOOLS_NODE: Final = "tools"  # of `create_agent`


class LangGraphAgent:
    """An agent that is a LangGraph graph: the built-in one, or anybody's."""

    def __init__(
        self,
        config: AgentConfig,
        built: BuiltGraph,
        checkpoints: Checkpoints,
        book: MemoryBook | None = None,
    ) -> None:
        """`book`: the memories of an agent with a graph of its own; the built-in one has its own
        middleware for them.
        """
        if not isinstance(built, BuiltGraph):
            raise UsageError(
                f"LangGraphAgent takes what build_graph() gives, not {type(built).__name__}; "
                "a graph of your own goes into AgentConfig(graph=...)."
            )
        if not hasattr(checkpoints, "saver"):
            raise UsageError(
                f"LangGraphAgent takes Checkpoints such as SqliteCheckpoints, not "
                f"{type(checkpoints).__name__}."
            )
        self.config = config
        self._built = built
        self._checkpoints = checkpoints
        self._book = book
        # Of running batches: their savers, and those that may have stored nothing.
        self._savers: WeakValueDictionary[int, AttemptSaver] = WeakValueDictionary()
        self._lazy: dict[int, LazySaver] = {}
        self._silent = _tool_nodes(built.graph) if built.holds_window else None
        self._types = declared_types(built.graph) | named_types(config.checkpoint_types)

    async def run(self, run: Run) -> AsyncIterator[AgentEvent]:
        """Answer the run's batch, or go on with it where it was cut off.

        Each finished message comes out once; one that is in the batch already does not. Close the
        iterator to stop the model and the tools.
        """
        _note_if_empty(run)
        graph, config = await self._graph_for(run)
        said = Said(run, self._silent)
        state = await self._find_state(graph, config, run)
        if state is None:
            given = await self._beginning(graph, config, run)
        else:
            given = _next_input(run, state)
            for event in said.left_by(state, is_answered=isinstance(given, Command)):
                yield event
        if given is _NOTHING:
            return
        if recalled := await recall_for(run, self._book, self.config.memory):
            yield recalled
        # Typed as an iterator, but it is a generator, and closing it stops the graph.
        stream = cast("AsyncGenerator[Any]", self._stream(graph, given, config))
        try:
            async with aclosing(stream) as parts:
                async for part in parts:
                    for event in said.events_of(part):
                        yield event
        except GraphRecursionError as error:
            # Raised as well where the last step that was allowed has ended the run.
            if _is_unfinished(await graph.aget_state(config)):
                raise BackendError(
                    f"Agent {self.config.id!r} took more than {self.config.limits.steps} steps."
                ) from error
        for message in said.ending():
            yield message

    async def forget(self, batch: int) -> None:
        """Drop the checkpoints of a batch that is over."""
        if saver := self._savers.pop(batch, None):
            await saver.close()
        lazy = self._lazy.pop(batch, None)
        if lazy is None or lazy.has_begun_to_store:
            await self._checkpoints.saver().adelete_thread(str(batch))

    async def _saver_for(self, run: Run) -> BaseCheckpointSaver[Any]:
        """A new batch of the built-in agent begins with the model, which can be asked again."""
        self._lazy.pop(run.batch.id, None)
        saver = AttemptSaver(self._checkpoints.saver(), run.attempt).with_allowlist(self._types)
        self._savers[run.batch.id] = saver
        if _goes_on(run):
            await saver.take_over(str(run.batch.id))
            return saver
        if self._built.holds_window:
            return saver
        self._lazy[run.batch.id] = LazySaver(saver)
        return self._lazy[run.batch.id]

    async def _graph_for(self, run: Run) -> tuple[Graph, RunnableConfig]:
        graph = copy(self._built.graph)  # its own `copy` checks all of it again
        graph.checkpointer = await self._saver_for(run)
        config: RunnableConfig = {
            "configurable": {
                "thread_id": str(run.batch.id),
                RUN_KEY: run,
                NOTEBOOK_KEY: self._book,
            },
            "recursion_limit": self.config.limits.steps,
            "metadata": {"thread": run.thread_id, "agent": run.agent_id},
            "callbacks": counting_callbacks(),
        }
        return graph, config

    def _stream(self, graph: Graph, given: Any, config: RunnableConfig) -> AsyncIterator[Any]:
        return graph.astream(
            given,
            config,
            stream_mode=_MODES,
            version="v2",
            durability="async",
            # What tools of the built-in agent run inside is theirs.
            subgraphs=self._built.holds_window,
        )

    async def _find_state(
        self, graph: Graph, config: RunnableConfig, run: Run
    ) -> StateSnapshot | None:
        """What an earlier run of the batch left, unless the journal knows more.

        Checkpoints are stored while the graph goes on, so that a crash may leave a call in the
        journal alone. Whatever was said before that call is in the journal, too.
        """
        if not _goes_on(run):
            return None
        state = await graph.aget_state(config)
        if state.created_at is None:
            return None
        missing = missing_from(_messages_in(state), run.batch)
        if not self._built.holds_window and any(isinstance(m, AIMessage) for m in missing):
            await self._checkpoints.saver().adelete_thread(str(run.batch.id))
            return None
        return state

    async def _beginning(self, graph: Graph, config: RunnableConfig, run: Run) -> Any:
        """What a graph starts with that has no checkpoint: the window, or the batch so far."""
        if run.answer is not None:
            logger.warning("Batch %s has no checkpoint: it asks its question anew", run.batch.id)
        if self._built.holds_window:
            told = self.config.memory.max_tokens if self._book else 0
            context = build_context(
                run.batches, run.batch.id, self.config.context_tokens - told, summary=run.summary
            )
            note_shortened(run, context)
            return {"messages": by_position(context.messages, run.batch.id)}
        so_far = {"messages": list(run.batch.messages)}
        stopped_after = _stopped_after(run.batch)
        if stopped_after not in graph.nodes:
            return _NOTHING if run.batch.is_complete else so_far
        await graph.aupdate_state(config, so_far, as_node=stopped_after)
        return None


def _note_if_empty(run: Run) -> None:
    """Once for a batch, however often it is tried again."""
    if run.is_new:
        where = {"thread_id": run.thread_id, "agent_id": run.agent_id}
        note_if_empty(run.messages, run.summary, **where)


def _goes_on(run: Run) -> bool:
    """Whether there may be checkpoints of it."""
    return not run.is_new or run.answer is not None


def _next_input(run: Run, state: StateSnapshot) -> Any:
    """What lets a graph go on that ran before: None after a break."""
    if state.interrupts:
        answers = _answers(run, state.interrupts)
        return Command(resume=answers) if answers else _NOTHING
    if _is_unfinished(state):
        return None
    # A continuation: the batch went on after the graph had ended.
    later = _later(run.batch, _messages_in(state))
    return {"messages": later} if later else _NOTHING


def _is_unfinished(state: StateSnapshot) -> bool:
    # `next` leaves out what has written but is in no checkpoint yet.
    return bool(state.next or state.tasks)


def _later(batch: Batch, held: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What follows the last message that the graph has; it may have dropped earlier ones."""
    missing = {id(message) for message in missing_from(held, batch)}
    known = [n for n, message in enumerate(batch.messages) if id(message) not in missing]
    return batch.messages[max(known, default=-1) + 1 :]


def _stopped_after(batch: Batch) -> str | None:
    """The node of the built-in agent that spoke last; None if the model is to be asked anew."""
    said = [message for message in batch.messages if isinstance(message, AIMessage)]
    if any(exchange.message is said[-1] for exchange in batch.pairing.unanswered):
        return MODEL_NODE
    return _TOOLS_NODE if said and isinstance(batch.messages[-1], ToolMessage) else None


def _messages_in(state: StateSnapshot) -> list[BaseMessage]:
    messages: list[BaseMessage] = state.values.get("messages", [])
    return messages


def _answers(run: Run, interrupts: Sequence[Interrupt]) -> dict[str, Any]:
    """The answers by questions' ids: to what was asked, not to what that led to before a break."""
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
    """The nodes that run tools: what models say in them is for the tool, not for the user."""
    graphs = [graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))]
    return frozenset(
        name
        for each in graphs
        if isinstance(each, Pregel)
        for name, node in each.nodes.items()
        if isinstance(node.bound, ToolNode)
    )

"""`LangGraphAgent`: one run of a graph answers one batch.

LangGraph's thread is the batch, so its checkpoints hold running turns and nothing else. A run that
was cut off goes on where it stopped: finished tools do not run again. What the graph says comes
out as events; storing it is the caller's.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, cast

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError
from langgraph.types import Command, Interrupt, StateSnapshot, StreamMode

from segue.agent.build import BuiltGraph, Graph
from segue.agent.checkpoints import Checkpoints
from segue.agent.config import AgentConfig
from segue.agent.run import (
    RUN_KEY,
    AgentEvent,
    NewMessage,
    Progress,
    Question,
    Recalled,
    Run,
    Token,
)
from segue.core.calls import calls_of, has_content
from segue.core.context import build_context
from segue.core.errors import BackendError, MetadataError, UsageError
from segue.core.metadata import MessageMetadata, is_synthetic, strip_metadata
from segue.core.stamp import plain_type

logger = logging.getLogger(__name__)

_MODES: Final[list[StreamMode]] = ["messages", "updates", "values", "custom"]
_INTERRUPT = "__interrupt__"
_NOTHING: Final = object()
# Of `create_agent`. Models that tools ask for help have nodes of their own.
_MODEL_NODE: Final = "model"


class LangGraphAgent:
    """An agent that is a LangGraph graph: the built-in one, or anybody's."""

    def __init__(self, config: AgentConfig, built: BuiltGraph, checkpoints: Checkpoints) -> None:
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

    async def run(self, run: Run) -> AsyncIterator[AgentEvent]:
        """Answer the run's batch, or go on with it where it was cut off.

        Each finished message comes out once; one that is in the batch already does not. Close the
        iterator to stop the model and the tools.
        """
        graph, config = self._graph_for(run)
        if self._built.holds_window:
            said = _Said(run, run.messages, speaker=None)
        else:
            said = _Said(run, run.batch.messages, speaker=_MODEL_NODE)
        given = self._first_input(run)
        if not run.is_new or run.answer is not None:
            state = await graph.aget_state(config)
            for event in said.left_by(state, run):
                yield event
            if state.created_at is not None and (given := _next_input(run, state)) is _NOTHING:
                return
        # Typed as an iterator, but it is a generator, and closing it stops the graph.
        stream = cast(
            "AsyncGenerator[Any]",
            graph.astream(given, config, stream_mode=_MODES, version="v2", durability="async"),
        )
        try:
            async with aclosing(stream) as parts:
                async for part in parts:
                    for event in _events_of(part, said):
                        yield event
            for message in said.ending():
                yield message
        except GraphRecursionError as error:
            raise BackendError(
                f"Agent {self.config.id!r} took more than {self.config.limits.steps} steps."
            ) from error

    async def forget(self, batch: int) -> None:
        """Drop the checkpoints of a batch that is over."""
        await self._checkpoints.saver().adelete_thread(str(batch))

    def _graph_for(self, run: Run) -> tuple[Graph, RunnableConfig]:
        graph = self._built.graph.copy({"checkpointer": self._checkpoints.saver()})
        config: RunnableConfig = {
            "configurable": {"thread_id": str(run.batch.id), RUN_KEY: run},
            "recursion_limit": self.config.limits.steps,
            "metadata": {"thread": run.thread_id, "agent": run.agent_id},
        }
        return graph, config

    def _first_input(self, run: Run) -> Any:
        if not self._built.holds_window:
            return {"messages": list(run.batch.messages)}
        context = build_context(
            run.batches, run.batch.id, self.config.context_tokens, summary=run.summary
        )
        return {"messages": context.messages}


def _next_input(run: Run, state: StateSnapshot) -> Any:
    """What lets a graph go on that ran before: None after a break."""
    if state.interrupts:
        if run.answer is None:
            return _NOTHING
        return Command(resume=_answers(state.interrupts, run.answer))
    # `next` leaves out what has written but is in no checkpoint yet.
    if state.next or state.tasks:
        return None
    # A continuation: the batch went on after the graph had ended.
    known = {message.id for message in state.values.get("messages", ())}
    later = [message for message in run.batch.messages if message.id not in known]
    return {"messages": later} if later else _NOTHING


class _Said:
    """What of the batch is known already, so that nothing comes out twice."""

    def __init__(self, run: Run, given: Sequence[BaseMessage], speaker: str | None) -> None:
        self._batch = {message.id for message in run.batch.messages}
        self._ids = {message.id for message in given}
        # The node whose model talks to the user; none if any of them may.
        self.speaker = speaker
        self._last: BaseMessage = run.batch.messages[-1]
        self._asks = False

    def left_by(self, state: StateSnapshot, run: Run) -> Iterator[AgentEvent]:
        """What an earlier run of the batch finished or asked, and nobody has heard."""
        yield from self.new_in(state.values.get("messages", ()))
        if run.answer is None:
            yield from self.questions(state.interrupts)

    def new_in(self, messages: Sequence[BaseMessage]) -> Iterator[NewMessage]:
        """Of a graph's whole state: what follows the beginning of the batch and is not known."""
        begins = next((i for i, m in enumerate(messages) if m.id in self._batch), len(messages))
        yield from self.fresh(messages[begins:])

    def fresh(self, messages: Sequence[BaseMessage]) -> Iterator[NewMessage]:
        for message in messages:
            if message.id is None or message.id in self._ids:
                continue
            self._ids.add(message.id)
            if (storable := _storable(message)) is not None:
                self._last = storable
                yield NewMessage(storable)
            elif isinstance(message, AIMessage):
                self._last = message

    def questions(self, interrupts: Sequence[Interrupt]) -> Iterator[Question]:
        for interrupt in interrupts:
            self._asks = True
            yield Question(interrupt.id, interrupt.value)

    def ending(self) -> Iterator[NewMessage]:
        """What closes a run whose graph ended without words of its own.

        A tool that ends the loop has given the answer itself, if it did not fail.
        """
        if self._asks:
            return
        if isinstance(self._last, AIMessage) and calls_of(self._last):
            raise BackendError("The model called a tool in a way that nobody can read.")
        if isinstance(self._last, AIMessage) and has_content(self._last):
            return
        if not isinstance(self._last, ToolMessage) or self._last.status == "error":
            raise BackendError("The agent ended without an answer.")
        yield NewMessage(AIMessage(self._last.text or "Done."))


def _events_of(part: Mapping[str, Any], said: _Said) -> Iterator[AgentEvent]:
    kind, data = part["type"], part["data"]
    if kind == "messages":
        if said.speaker in (None, data[1].get("langgraph_node")):
            yield from _tokens(data[0])
    elif kind == "updates":
        yield from said.questions(data.get(_INTERRUPT, ()))
        for update in _updates(data):
            yield from said.fresh(_messages_of(update))
    elif kind == "values":
        # What an update could not say: results that a cut-off run had finished, and messages
        # that got their id only in the state.
        yield from said.new_in(data.get("messages", ()) if isinstance(data, dict) else ())
    elif isinstance(data, Recalled):
        yield data
    else:
        yield Progress(data)


def _tokens(message: BaseMessage) -> Iterator[Token]:
    """Only what a model writes: whole messages of nodes, triggers among them, come out later."""
    if isinstance(message, AIMessageChunk) and message.id and (text := message.text):
        yield Token(message.id, str(text))


def _updates(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for node, update in data.items():
        if node == _INTERRUPT:
            continue
        for one in update if isinstance(update, list | tuple) else [update]:
            if isinstance(one, Mapping):
                yield one


def _messages_of(update: Mapping[str, Any]) -> list[BaseMessage]:
    given = update.get("messages") or []
    given = given if isinstance(given, list) else [given]
    return [m for m in given if isinstance(m, BaseMessage)]


def _answers(interrupts: Sequence[Interrupt], answer: Any) -> Any:
    """One answer for the one question, or answers by the questions' ids."""
    ids = {interrupt.id for interrupt in interrupts}
    if isinstance(answer, Mapping) and answer and answer.keys() <= ids:
        return dict(answer)
    if len(ids) > 1:
        raise UsageError(
            f"There are {len(ids)} questions; give the answers by their ids: {sorted(ids)}."
        )
    return dict.fromkeys(ids, answer)


def _storable(message: BaseMessage) -> BaseMessage | None:
    """A message as the journal keeps it; None for what is no part of a conversation."""
    if isinstance(message, RemoveMessage | SystemMessage):
        return None
    plain = _sound(plain_type(message))
    if isinstance(plain, AIMessage) and not _says_something(plain):
        return None
    if isinstance(plain, HumanMessage) and not is_synthetic(plain):
        # No person wrote it, so no person may see it as theirs.
        return MessageMetadata(synthetic=True, tool_triggered=True).onto(plain)
    return plain


def _sound(message: BaseMessage) -> BaseMessage:
    """A message without what only looks like metadata of ours."""
    try:
        MessageMetadata.of(message)
    except MetadataError:
        [message] = strip_metadata([message])
    return message


def _says_something(message: AIMessage) -> bool:
    return bool(has_content(message) or message.tool_calls or message.invalid_tool_calls)

"""Turns a graph's stream into events: each message once, in an order that can be stored.

Running the graph is up to `segue.agent.langgraph_agent`.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.types import Interrupt, StateSnapshot

from segue.agent.ids import id_in_thread, is_graph_input, unused_id
from segue.agent.state import messages_in
from segue.core.calls import calls_of, has_content
from segue.core.metadata import MessageMetadata, is_synthetic, strip_metadata
from segue.core.stamp import plain_type
from segue.core.text import storable
from segue.errors import BackendError, MetadataError
from segue.events import MemoriesRecalled, ProgressReported
from segue.runtime.run import AgentEvent, MessageFinished, Question, Run, Token

logger = logging.getLogger(__name__)

# The model's node of `create_agent`.
MODEL_NODE: Final = "model"
_INTERRUPT: Final = "__interrupt__"


class GraphEvents:
    """The events of one run. Knows which messages were already emitted or stored.

    `silent` are the nodes of a custom graph whose tokens are not for the user. None means the
    built-in agent, where only the model's node speaks. `output` is the channel with the messages.
    """

    def __init__(self, run: Run, silent: Collection[str] | None, output: str) -> None:
        self._run = run
        self._output = output
        self._silent = silent
        # Ids of known messages, in the thread and in the graph.
        self._known = {message.id for message in run.batch.messages}
        self._graph_ids = set(self._known)
        # Human messages of the graph that no other message follows yet.
        self._notes: list[BaseMessage] = []
        self._last: BaseMessage = run.batch.messages[-1]
        self.has_question = False
        # By message, the first half of a character that a chunk ended in.
        self._halves: dict[str, str] = {}
        # The last state of the graph, as far as it is known.
        self.values: Any = None

    def from_part(self, part: Mapping[str, Any]) -> Iterator[AgentEvent]:
        """The events of one part of the graph's stream; state of subgraphs is ignored."""
        kind, data, is_outer = part["type"], part["data"], not part["ns"]
        if kind == "messages":
            if self._speaks(part["ns"], data[1].get("langgraph_node")):
                yield from self._tokens(data[0])
        elif kind == "custom":
            yield data if isinstance(data, MemoriesRecalled) else ProgressReported(data)
        elif kind == "updates" and is_outer:
            yield from self._questions(data.get(_INTERRUPT, ()))
            for update in _updates(data):
                yield from self._fresh(messages_in(update, self._output))
        elif kind == "values" and is_outer:
            # Not in updates: results that an interrupted run had finished, and messages that get
            # their type or id only in the state.
            self.values = data
            yield from self._fresh(messages_in(data, self._output))

    def from_state(self, state: StateSnapshot, *, is_answered: bool) -> Iterator[AgentEvent]:
        """The messages and questions of an earlier run of the batch that were not emitted."""
        self.values = state.values
        yield from self._fresh(messages_in(state.values, self._output))
        if not is_answered:
            yield from self._questions(state.interrupts)

    def at_end(self) -> Iterator[MessageFinished]:
        """The tool's result, if a tool ended the run; `BackendError` if there is no answer."""
        if self.has_question:
            return
        if self._notes:
            # Stored after the reply, it would make the batch look unanswered.
            logger.info(
                "A human message of agent %s's graph after its reply is dropped.",
                self._run.agent_id,
            )
        if isinstance(self._last, AIMessage) and calls_of(self._last):
            raise BackendError("The model called a tool in a form that cannot be read.")
        if isinstance(self._last, AIMessage) and has_content(self._last):
            return
        if not isinstance(self._last, ToolMessage) or self._last.status == "error":
            raise BackendError("The agent ended without an answer.")
        yield MessageFinished(AIMessage(self._last.text or "Done."))

    def _speaks(self, namespace: Sequence[str], node: str | None) -> bool:
        if self._silent is None:
            return not namespace and node == MODEL_NODE
        path = [segment.partition(":")[0] for segment in namespace]
        return not any(name in self._silent for name in (*path, node))

    def _tokens(self, message: BaseMessage) -> Iterator[Token]:
        """Chunks only: whole messages come with the updates."""
        if isinstance(message, AIMessageChunk) and message.id and (text := message.text):
            # `UniqueIds` gives a repeated id a number when the message is whole.
            own, batch = message.id, self._run.batch.id
            if self._silent is None:
                own = unused_id(own, self._graph_ids, batch)
            if whole := self._whole_characters(own, str(text)):
                yield Token(self._thread_id(own), whole)

    def _whole_characters(self, id: str, text: str) -> str:
        """What can be shown of a message so far; some servers cut chunks inside a character."""
        text = self._halves.pop(id, "") + text
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._halves[id] = text[:-1], text[-1]
        return storable(text)

    def _questions(self, interrupts: Sequence[Interrupt]) -> Iterator[Question]:
        for interrupt in interrupts:
            self.has_question = True
            yield Question(interrupt.id, interrupt.value)

    def _fresh(self, messages: Iterable[BaseMessage]) -> Iterator[MessageFinished]:
        for message in messages:
            if message.id is None or message.id in self._graph_ids:
                continue
            if isinstance(message, RemoveMessage) or is_graph_input(message):
                continue
            self._graph_ids.add(message.id)
            if (new_id := self._thread_id(message.id)) in self._known:
                continue
            self._known.add(new_id)
            if (storable := _storable(message)) is not None:
                yield from self._emit(storable.model_copy(update={"id": new_id}))
            elif isinstance(message, AIMessage):
                self._last = message

    def _emit(self, message: BaseMessage) -> Iterator[MessageFinished]:
        """The message with the human messages before it, which are held until another follows."""
        if isinstance(message, HumanMessage):
            self._notes.append(message)
            return
        self._last = message
        yield from map(MessageFinished, [*self._notes, message])
        self._notes = []

    def _thread_id(self, id: str) -> str:
        """The id in the thread; messages from the journal have it in the graph, too."""
        return id if id in self._known else id_in_thread(id, self._run.batch.id)


def _updates(data: Mapping[str, Any]) -> Iterator[Any]:
    for node, update in data.items():
        if node != _INTERRUPT:
            yield from update if isinstance(update, list | tuple) else [update]


def _storable(message: BaseMessage) -> BaseMessage | None:
    """A message as the journal stores it; None if it is not part of the conversation."""
    if isinstance(message, SystemMessage):
        return None
    plain = _with_own_metadata(plain_type(message))
    if isinstance(plain, AIMessage) and not (
        has_content(plain) or plain.tool_calls or plain.invalid_tool_calls
    ):
        return None
    if isinstance(plain, HumanMessage) and not is_synthetic(plain):
        # The user did not write it, so it must not be shown as theirs.
        return MessageMetadata(synthetic=True, tool_triggered=True).onto(plain)
    return plain


def _with_own_metadata(message: BaseMessage) -> BaseMessage:
    """The message without metadata that is invalid or another message's."""
    try:
        is_own = MessageMetadata.of(message).position is None
    except MetadataError:
        is_own = False
    return message if is_own else strip_metadata([message])[0]

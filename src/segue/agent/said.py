"""What a graph says while it runs, as events: each message once, in an order that can be stored.

Knows what of the batch is stored already, and how a graph's stream is read. Running the graph is
`segue.agent.langgraph_agent`'s.
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

from segue.agent.ids import id_in_thread, unused_id, went_in
from segue.agent.run import AgentEvent, NewMessage, Progress, Question, Recalled, Run, Token
from segue.core.calls import calls_of, has_content
from segue.core.errors import BackendError, MetadataError
from segue.core.metadata import MessageMetadata, is_synthetic, strip_metadata
from segue.core.stamp import plain_type

logger = logging.getLogger(__name__)

# Of `create_agent`. Models that tools ask for help have nodes of their own.
MODEL_NODE: Final = "model"
_INTERRUPT: Final = "__interrupt__"


class Said:
    """What of the batch is known already, so that nothing comes out twice.

    `silent` are the nodes of a graph of one's own in which models talk to no person. The built-in
    agent has none: there only the model itself speaks.
    """

    def __init__(self, run: Run, silent: Collection[str] | None = None) -> None:
        self._run = run
        self._silent = silent
        # As the journal calls them, and as the graph does.
        self._known = {message.id for message in run.batch.messages}
        self._inside = set(self._known)
        # In the user's name, and not yet followed by anything.
        self._notes: list[BaseMessage] = []
        self._last: BaseMessage = run.batch.messages[-1]
        self._asks = False

    def events_of(self, part: Mapping[str, Any]) -> Iterator[AgentEvent]:
        """What a part of the graph's stream says; a subgraph's state is its own business."""
        kind, data, is_whole = part["type"], part["data"], not part["ns"]
        if kind == "messages":
            if self._speaks(part["ns"], data[1].get("langgraph_node")):
                yield from self._tokens(data[0])
        elif kind == "custom":
            yield data if isinstance(data, Recalled) else Progress(data)
        elif kind == "updates" and is_whole:
            yield from self._questions(data.get(_INTERRUPT, ()))
            for update in _updates(data):
                yield from self._fresh(_messages_of(update))
        elif kind == "values" and is_whole:
            # What an update could not say: results that a cut-off run had finished, and messages
            # that got their form or their id only in the state.
            yield from self._fresh(_messages_of(data))

    def left_by(self, state: StateSnapshot, *, is_answered: bool) -> Iterator[AgentEvent]:
        """What an earlier run of the batch finished or asked, and nobody has heard."""
        yield from self._fresh(_messages_of(state.values))
        if not is_answered:
            yield from self._questions(state.interrupts)

    def ending(self) -> Iterator[NewMessage]:
        """What closes a run whose graph ended without words of its own.

        A tool that ends the loop has given the answer itself, if it did not fail.
        """
        if self._asks:
            return
        if self._notes:
            # After a reply it would leave the batch without one, and no model has read it.
            logger.info("A note of agent %s after its reply is not kept.", self._run.agent_id)
        if isinstance(self._last, AIMessage) and calls_of(self._last):
            raise BackendError("The model called a tool in a way that nobody can read.")
        if isinstance(self._last, AIMessage) and has_content(self._last):
            return
        if not isinstance(self._last, ToolMessage) or self._last.status == "error":
            raise BackendError("The agent ended without an answer.")
        yield NewMessage(AIMessage(self._last.text or "Done."))

    def _speaks(self, namespace: Sequence[str], node: str | None) -> bool:
        if self._silent is None:
            return not namespace and node == MODEL_NODE
        path = [segment.partition(":")[0] for segment in namespace]
        return not any(name in self._silent for name in (*path, node))

    def _tokens(self, message: BaseMessage) -> Iterator[Token]:
        """Only what a model writes: whole messages of nodes, triggers among them, come later."""
        if isinstance(message, AIMessageChunk) and message.id and (text := message.text):
            # The built-in agent gives a repeated id a number when the message is whole.
            own, batch = message.id, self._run.batch.id
            if self._silent is None:
                own = unused_id(own, self._inside, batch)
            yield Token(self._name(own), str(text))

    def _questions(self, interrupts: Sequence[Interrupt]) -> Iterator[Question]:
        for interrupt in interrupts:
            self._asks = True
            yield Question(interrupt.id, interrupt.value)

    def _fresh(self, messages: Iterable[BaseMessage]) -> Iterator[NewMessage]:
        for message in messages:
            if message.id is None or isinstance(message, RemoveMessage) or went_in(message):
                continue
            self._inside.add(message.id)
            if (name := self._name(message.id)) in self._known:
                continue
            self._known.add(name)
            if (storable := _storable(message)) is not None:
                yield from self._told(storable.model_copy(update={"id": name}))
            elif isinstance(message, AIMessage):
                self._last = message

    def _told(self, message: BaseMessage) -> Iterator[NewMessage]:
        """The message, and the notes before it: a note that nothing follows is not kept."""
        if isinstance(message, HumanMessage):
            self._notes.append(message)
            return
        self._last = message
        yield from map(NewMessage, [*self._notes, message])
        self._notes = []

    def _name(self, id: str) -> str:
        """What a message is stored as; one that the graph was given from the journal has it."""
        return id if id in self._known else id_in_thread(id, self._run.batch.id)


def _updates(data: Mapping[str, Any]) -> Iterator[Any]:
    for node, update in data.items():
        if node != _INTERRUPT:
            yield from update if isinstance(update, list | tuple) else [update]


def _messages_of(values: Any) -> list[BaseMessage]:
    """The messages of an update or a state. What is none yet has become one in the next state."""
    given = values.get("messages") if isinstance(values, Mapping) else None
    given = given if isinstance(given, list | tuple) else [given]
    return [message for message in given if isinstance(message, BaseMessage)]


def _storable(message: BaseMessage) -> BaseMessage | None:
    """A message as the journal keeps it; None for what is no part of a conversation."""
    if isinstance(message, SystemMessage):
        return None
    plain = _sound(plain_type(message))
    if isinstance(plain, AIMessage) and not _says_something(plain):
        return None
    if isinstance(plain, HumanMessage) and not is_synthetic(plain):
        # No person wrote it, so no person may see it as theirs.
        return MessageMetadata(synthetic=True, tool_triggered=True).onto(plain)
    return plain


def _sound(message: BaseMessage) -> BaseMessage:
    """A message without what only looks like metadata of ours, or is another message's."""
    try:
        is_own = MessageMetadata.of(message).position is None
    except MetadataError:
        is_own = False
    return message if is_own else strip_metadata([message])[0]


def _says_something(message: AIMessage) -> bool:
    return bool(has_content(message) or message.tool_calls or message.invalid_tool_calls)

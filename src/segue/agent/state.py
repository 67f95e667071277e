"""The state of a custom graph between turns: which channels are kept, and how.

Each channel beside `messages` starts a turn with the value that it had at the end of the last one.
It is given back as a first checkpoint and not as input, so that no reducer applies it again.
Channels that the graph marks as ephemeral or untracked are not kept. The journal stores the values
with the end of the turn.
"""

import hashlib
import json
import logging
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final, cast, get_args, get_origin, get_type_hints

from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import EphemeralValue, LastValueAfterFinish, UntrackedValue
from langgraph.channels.base import BaseChannel
from langgraph.channels.named_barrier_value import NamedBarrierValue, NamedBarrierValueAfterFinish
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.constants import END, START
from langgraph.pregel import Pregel
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from segue.agent.checkpoints.store import StrictSerializer, TypeName
from segue.errors import UsageError
from segue.journal.records import StateValue
from segue.runtime.run import Run
from segue.telemetry import log_event

logger = logging.getLogger(__name__)

MESSAGES: Final = "messages"
# Where `@entrypoint` keeps what it gets as `previous`.
PREVIOUS: Final = "__previous__"
# Before the input, which LangGraph stores as step -1.
SEED_STEP: Final = -2
_PASSING: Final = (
    EphemeralValue,
    UntrackedValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    NamedBarrierValueAfterFinish,
)
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_LISTS: Final = ("list", "List", "Sequence")

Graph = Pregel[Any, Any, Any, Any]
_NOTHING: Final = object()


class GraphState:
    """The kept channels of a graph, and their values as the journal stores them."""

    def __init__(self, graph: Graph, types: Collection[TypeName], max_bytes: int) -> None:
        self._channels = kept_channels(graph)
        self._declared = {name: _declaration(each) for name, each in self._channels.items()}
        self._private = _private(graph)
        self._serde = StrictSerializer().with_msgpack_allowlist(types)
        self._max_bytes = max_bytes

    def decode(self, run: Run) -> dict[str, Any]:
        """The stored values that the graph can take. Those that it cannot are logged."""
        values: dict[str, Any] = {}
        refused: dict[str, str] = {}
        for name, stored in run.state.items():
            if name not in self._channels:
                refused[name] = "The graph has no such channel any more."
                continue
            try:
                value = self._serde.loads_typed((stored.form, stored.value))
            except UsageError as error:
                refused[name] = str(error)
                continue
            except Exception as error:  # noqa: BLE001 - the graph's own types may raise anything
                refused[name] = f"It cannot be read ({type(error).__name__})."
                continue
            declared = self._channels[name].ValueType
            if stored.declared != self._declared[name] and not _fits(value, declared):
                refused[name] = "The channel has another type now."
            else:
                values[name] = value
        if refused:
            log_event(
                logger,
                "state_left_out",
                "Thread {thread_id}: these values of the state of agent {agent_id} are left out: "
                "{reasons}",
                logging.WARNING,
                thread_id=run.thread_id,
                agent_id=run.agent_id,
                reasons="; ".join(f"{name}: {reason}" for name, reason in refused.items()),
            )
        return values

    def rebase(
        self,
        values: Any,
        run: Run,
        began_with: Mapping[str, Any],
        steps: Sequence[Sequence[tuple[str, Any]]],
    ) -> dict[str, Any]:
        """The values of a turn that continued after an answer, on top of those stored in the
        meantime.

        The turn saw the state in which it asked, so that the answer is about what was asked. What
        its steps wrote since then is applied to the newer values, by the channels' own reducers.
        """
        merged = {name: value_of(values, name, _NOTHING) for name in self._channels}
        for name, newer in self.decode(run).items():
            if name in began_with and self._encode(name, began_with[name]) == run.state[name]:
                continue
            channel = self._channels[name].from_checkpoint(newer)
            for writes in steps:
                channel.update([value for target, value in writes if target == name])
            merged[name] = channel.get() if channel.is_available() else _NOTHING
        return merged

    def changes(self, values: Any, run: Run) -> dict[str, StateValue | None]:
        """The changed values to store; None removes a channel. `UsageError` if too large."""
        new: dict[str, StateValue] = {}
        for name in self._channels:
            value = value_of(values, name, _NOTHING)
            # Middleware's own view of the messages, such as a place in their list, is not valid in
            # the next turn, whose window begins with another message.
            if value is _NOTHING or (name in self._private and _holds_message(value)):
                continue
            new[name] = self._encode(name, value)
        size = sum(len(each.value) for each in new.values())
        if size > self._max_bytes:
            largest = max(new, key=lambda name: len(new[name].value))
            raise UsageError(
                f"The state of agent {run.agent_id!r}'s graph has {size:,} bytes after this turn, "
                f"most of them in {largest!r}; limits.state_bytes is {self._max_bytes:,}. Let the "
                "graph keep less, or raise the limit. The state stays as it was before the turn."
            )
        changed = {name: value for name, value in new.items() if run.state.get(name) != value}
        return changed | dict.fromkeys(run.state.keys() - new.keys())

    def _encode(self, name: str, value: Any) -> StateValue:
        form, body = self._serde.dumps_typed(value)
        return StateValue(form, self._declared[name], body)


def kept_channels(graph: Graph) -> dict[str, BaseChannel[Any, Any, Any]]:
    """The channels that are kept from turn to turn."""
    builder = getattr(graph, "builder", None)
    if builder is None:  # made by `@entrypoint`, or of LangGraph's own parts
        named = {
            name for name in graph.channels if name == PREVIOUS or not name.startswith("__")
        } - {START, END}
    else:
        named = {*builder.schemas[builder.state_schema]}
    return {
        name: channel
        for name, channel in graph.channels.items()
        if name in named and name != MESSAGES
        if isinstance(channel, BaseChannel) and not isinstance(channel, _PASSING)
    }


def value_of(values: Any, name: str, default: Any = None) -> Any:
    """A channel's value in a state, which is a mapping or an instance of the graph's schema."""
    if isinstance(values, Mapping):
        return values.get(name, default)
    return getattr(values, name, default)


def input_of(graph: Graph, messages: list[BaseMessage]) -> Any:
    """Messages as a graph takes them: in its state, or as what a workflow declares to take."""
    if MESSAGES in graph.channels:
        return {MESSAGES: messages}
    wanted = cast("BaseChannel[Any, Any, Any]", graph.channels[START]).ValueType
    kind = get_origin(wanted) or wanted
    name = wanted if isinstance(wanted, str) else getattr(kind, "__name__", "")
    if name.partition("[")[0].rpartition(".")[2] in _LISTS:
        return messages
    return messages[-1].text if name == "str" else {MESSAGES: messages}


def messages_in(values: Any, channel: str) -> list[BaseMessage]:
    """The messages of an update or a state; other forms become messages in the next state."""
    given = value_of(values, channel)
    if channel == END:
        return _returned(given)
    given = given if isinstance(given, list | tuple) else [given]
    return [message for message in given if isinstance(message, BaseMessage)]


def _returned(value: Any) -> list[BaseMessage]:
    """The messages of what a workflow returned; each needs an id, the same each time it is read."""
    value = value_of(value, MESSAGES, value)
    given = value if isinstance(value, list | tuple) else [value]
    said = [AIMessage(each) if isinstance(each, str) else each for each in given]
    return [
        message if message.id else message.model_copy(update={"id": f"returned-{number}"})
        for number, message in enumerate(said)
        if isinstance(message, BaseMessage)
    ]


async def seed(
    graph: Graph,
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    values: Mapping[str, Any],
) -> None:
    """Store a first checkpoint with the values, as if an earlier run had ended with them."""
    version = saver.get_next_version(None, None)
    checkpoint = empty_checkpoint()
    versions = dict.fromkeys(values, version)
    checkpoint["channel_values"] = dict(values)
    checkpoint["channel_versions"] = {**versions}
    # Otherwise a node that a channel triggers would run because of an old value.
    checkpoint["versions_seen"] = {
        name: {channel: version for channel in node.triggers if channel in versions}
        for name, node in graph.nodes.items()
    }
    place: RunnableConfig = {"configurable": {**config["configurable"], "checkpoint_ns": ""}}
    metadata: Any = {"source": "update", "step": SEED_STEP, "parents": {}}
    await saver.aput(place, checkpoint, metadata, {**versions})


def _private(graph: Graph) -> set[str]:
    """The fields that middleware keeps for itself."""
    builder = getattr(graph, "builder", None)
    try:
        hints = get_type_hints(builder.state_schema, include_extras=True) if builder else {}
    except (NameError, TypeError):  # a schema that LangGraph could read without its annotations
        return set()
    return {name for name, hint in hints.items() if _is_private(hint)}


def _holds_message(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_message, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_message, value))
    return isinstance(value, BaseMessage)


def _is_private(hint: Any) -> bool:
    """Whether a type has the mark, outside or inside of `NotRequired`."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        return any(mark == PrivateStateAttr for mark in marks) or _is_private(inner)
    return any(get_origin(each) is Annotated and _is_private(each) for each in get_args(hint))


def _declaration(channel: BaseChannel[Any, Any, Any]) -> str:
    """Identifies the type of a channel, with the fields of its classes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about defaults that are not JSON
            text = json.dumps(TypeAdapter(channel.ValueType).json_schema(), sort_keys=True)
    except Exception:  # noqa: BLE001 - many types have no schema, each with an error of its own
        text = _ADDRESS.sub("", repr(channel.ValueType))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fits(value: Any, declared: Any) -> bool:
    """Whether a value that was stored for another type is one of this type, too.

    Converted to JSON first: an object whose class has other fields now would pass as an instance.
    """
    try:
        adapter = TypeAdapter(declared)
    except PydanticUserError:  # not a type that can be checked
        return True
    try:
        adapter.validate_json(adapter.dump_json(value, warnings=False), strict=True)
    except ValueError:
        return False
    return True

"""Which types a checkpoint may restore.

LangGraph's serializer imports and calls whatever a stored row names, so anyone who can write to
that table could run any code here. This one restores LangChain's and LangGraph's own types, those
that a graph's state declares, and those that the agent's settings name.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from langgraph._internal._serde import collect_allowlist_from_schemas
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.pregel import Pregel

from segue.errors import UsageError

# A module and the name of a type in it, as LangGraph lists them.
TypeName = tuple[str, ...]

_BLOCKED: Final = frozenset({"msgpack_blocked", "msgpack_method_blocked"})
_refused: ContextVar[set[str] | None] = ContextVar("refused", default=None)


class StrictSerializer(JsonPlusSerializer):
    """Refuses a checkpoint with an unknown type, instead of restoring a part of it."""

    def __init__(self) -> None:
        super().__init__(allowed_msgpack_modules=None)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] == "json":  # never written here, and LangChain's loader restores more types
            raise UsageError("A checkpoint is in a form that this version does not write.")
        with _collect_refused() as refused:
            value = super().loads_typed(data)
        if refused:
            names = ", ".join(sorted(refused))
            raise UsageError(
                f"A checkpoint holds {names}, which the graph's state does not declare; if it is "
                "yours, name it in the agent's checkpoint_types, as 'package.module:Type'."
            )
        return value


def declared_types(graph: Pregel[Any, Any, Any, Any]) -> set[TypeName]:
    """The types that the states of a graph and its subgraphs declare."""
    found: set[TypeName] = set()
    for each in (graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))):
        channels = dict(each.channels) if isinstance(each, Pregel) else {}
        found |= collect_allowlist_from_schemas(schemas=[*_schemas(each)], channels=channels)
    return found


def named_types(names: Iterable[str]) -> set[TypeName]:
    """Parses the names in settings: 'package.module:Type'."""
    return {tuple(name.split(":", 1)) for name in names}


def _schemas(graph: Any) -> Iterator[type[Any]]:
    builder = getattr(graph, "builder", None)
    if builder is None:
        return
    for name in ("state_schema", "input_schema", "output_schema", "context_schema"):
        if (schema := getattr(builder, name, None)) is not None:
            yield schema
    for node in builder.nodes.values():
        yield node.input_schema


@contextmanager
def _collect_refused() -> Iterator[Collection[str]]:
    refused: set[str] = set()
    token = _refused.set(refused)
    try:
        yield refused
    finally:
        _refused.reset(token)


def _on_event(event: SerdeEvent) -> None:
    refused = _refused.get()
    if refused is not None and event["kind"] in _BLOCKED:
        refused.add(f"{event['module']}:{event['name']}")


register_serde_event_listener(_on_event)

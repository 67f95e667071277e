"""Message ids: in a graph, where they must not repeat, and in the thread.

Some providers give the same id to every message, and a graph replaces a message by a later one with
the same id. So a repeated id gets a number, and history goes into a graph with positions as ids.
In the thread a message has an id made of its batch and its id in the graph, so that streamed tokens
bear the id that the message is stored with, also after a crash.
"""

import hashlib
from collections.abc import Container, Iterable
from itertools import chain, count

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.batch import Batch
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import to_text
from segue.errors import MetadataError


def unused_id(wanted: str, taken: Container[str | None], batch: int | None) -> str:
    """The id, or the first numbered one that is free in the graph and in the thread."""

    def is_free(id: str) -> bool:
        return id not in taken and (batch is None or id_in_thread(id, batch) not in taken)

    numbered = (f"{wanted}-{number}" for number in count(2))
    return next(filter(is_free, chain([wanted], numbered)))


def id_in_thread(id: str, batch: int) -> str:
    """The id in the thread of a message that a graph made."""
    return f"{to_text(batch)}-{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:12]}"


def with_position_ids(messages: Iterable[BaseMessage], batch: int) -> list[BaseMessage]:
    """History as a graph's input, with positions as ids; its batch's human messages keep theirs."""

    def named(message: BaseMessage) -> BaseMessage:
        is_own = isinstance(message, HumanMessage) and MessageMetadata.of(message).batch == batch
        position = None if is_own else _find_position(message)
        return message if position is None else message.model_copy(update={"id": to_text(position)})

    return [*map(named, messages)]


def is_graph_input(message: BaseMessage) -> bool:
    """Whether a message has its id from `with_position_ids`."""
    if message.id is None or not message.id.isdecimal():  # a position is digits
        return False
    position = _find_position(message)
    return position is not None and message.id == to_text(position)


def missing_messages(held: Iterable[BaseMessage], batch: Batch) -> list[BaseMessage]:
    """The messages of the batch that its graph does not hold, under any of their ids."""
    ids = {message.id for message in held}
    ids |= {id_in_thread(name, batch.id) for name in ids if name is not None}
    return [m for m in batch.messages if not {m.id, to_text(_find_position(m) or 0)} & ids]


def is_same_message(stored: BaseMessage, held: BaseMessage, batch: Batch) -> bool:
    """Whether a stored message of the batch is the one that its graph holds."""
    return stored.id is not None and stored.id in (held.id, id_in_thread(f"{held.id}", batch.id))


def _find_position(message: BaseMessage) -> int | None:
    try:
        return MessageMetadata.of(message).position
    except MetadataError:  # another application's keys that look like ours
        return None

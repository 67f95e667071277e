"""What a message is called: in a graph, where ids must not repeat, and in its thread.

Some providers give the same id to every message. A graph would put the second in the place of the
first, so a repeated id gets a number, and what a graph is given of the history goes by its
position. In the thread a message has an id of ours, made of its batch and of what the graph calls
it: listeners hear of its pieces under the name that it is stored with, also after a crash.
"""

import hashlib
from collections.abc import Container, Iterable
from itertools import chain, count

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.batch import Batch
from segue.core.errors import MetadataError
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import to_text


def unused_id(wanted: str, taken: Container[str | None], batch: int | None) -> str:
    """The id itself, or the first with a number that no message has: the same whoever asks.

    What a graph was given of a batch is there under its name in the thread.
    """

    def is_free(id: str) -> bool:
        return id not in taken and (batch is None or id_in_thread(id, batch) not in taken)

    numbered = (f"{wanted}-{number}" for number in count(2))
    return next(filter(is_free, chain([wanted], numbered)))


def id_in_thread(id: str, batch: int) -> str:
    """What a message of a graph is called outside of it."""
    return f"{to_text(batch)}-{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:12]}"


def by_position(messages: Iterable[BaseMessage], batch: int) -> list[BaseMessage]:
    """The messages for a graph that goes on from them: no id can meet one that it will make.

    What a person or a trigger says in this batch keeps its own.
    """
    return [message if _keeps_id(message, batch) else _placed(message) for message in messages]


def went_in(message: BaseMessage) -> bool:
    """Whether a graph was given this message by `by_position`."""
    position = _position(message)
    return position is not None and message.id == to_text(position)


def missing_from(held: Iterable[BaseMessage], batch: Batch) -> list[BaseMessage]:
    """What of the batch is not among the messages of its graph, under whatever name."""
    ids = {message.id for message in held}
    ids |= {id_in_thread(name, batch.id) for name in ids if name is not None}
    return [m for m in batch.messages if not {m.id, to_text(_position(m) or 0)} & ids]


def is_same(stored: BaseMessage, held: BaseMessage, batch: Batch) -> bool:
    """Whether a stored message of the batch is this one of its graph."""
    return stored.id is not None and stored.id in (held.id, id_in_thread(f"{held.id}", batch.id))


def _keeps_id(message: BaseMessage, batch: int) -> bool:
    return isinstance(message, HumanMessage) and MessageMetadata.of(message).batch == batch


def _placed(message: BaseMessage) -> BaseMessage:
    position = _position(message)
    return message if position is None else message.model_copy(update={"id": to_text(position)})


def _position(message: BaseMessage) -> int | None:
    try:
        return MessageMetadata.of(message).position
    except MetadataError:  # keys of somebody else that look like ours
        return None

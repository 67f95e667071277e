"""Places in a thread, for both databases: ids that rise, and messages that get a new place."""

from dataclasses import replace

from langchain_core.messages import BaseMessage

from segue.core.metadata import MessageMetadata
from segue.core.snowflake import SnowflakeSource


class RisingIds:
    """Ids of one thread: each above all that the thread has, whatever this process's clock says."""

    def __init__(self, ids: SnowflakeSource, last: int) -> None:
        self._ids = ids
        self.last = last

    @property
    def node(self) -> int:
        return self._ids.node

    def next(self, after: int = 0) -> int:
        self.last = self._ids.next(after=max(after, self.last))
        return self.last


def without_place(message: BaseMessage, batch: int) -> BaseMessage:
    """A message that got a place in this batch outside, as from `settle`, ready for a new one.

    Only the store knows which positions and sequence numbers are free.
    """
    metadata = MessageMetadata.of(message)
    if metadata.position is None or metadata.batch != batch:
        return message
    return replace(metadata, position=None, sequence_num=None).onto(message)


def place_of(message: BaseMessage) -> int:
    """The position of a message, 0 if it has none."""
    return MessageMetadata.of(message).position or 0

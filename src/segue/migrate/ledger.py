"""What a thread remembers of where it came from, and how it is written down.

It stands in the thread's settings: it goes where the thread goes, and ends with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Self

from langchain_core.messages import BaseMessage

from segue.core.errors import ConflictError, NotFoundError
from segue.journal.places import place_of
from segue.journal.ports import Journal
from segue.journal.records import Thread
from segue.migrate.placing import in_portions

SETTING: Final = "migrated"
# How much of a thread is looked at to go on behind it.
_TAIL_TOKENS: Final = 20_000
# Messages that are stored at once: others who write wait so long.
_PORTION: Final = 500


@dataclass(frozen=True, slots=True)
class Record:
    """How many messages of a source were taken, what they said, and where the last one stands."""

    # The source's mark, once all of it was taken.
    mark: str = ""
    messages: int = 0
    digest: str = ""
    last: int = 0
    # A run has begun to take so many, and has not said that it did.
    going_to: int | None = None

    @classmethod
    def of(cls, thread: Thread) -> Self:
        """The record of a thread; `ConflictError` if it is not a migrated one."""
        kept = thread.settings.get(SETTING)
        if not isinstance(kept, Mapping):
            raise ConflictError(
                f"There is a thread {thread.id!r} that was not migrated; --prefix gives those of "
                "this source other names."
            )
        return cls(**{**kept, "last": int(kept["last"])})

    def as_settings(self) -> dict[str, Any]:
        # The position as text: browsers round large numbers.
        kept = {**asdict(self), "last": str(self.last)}
        return {SETTING: {name: value for name, value in kept.items() if value is not None}}


class Ledger:
    """What a migration does at the journal. In a dry run it only looks, if there is one at all."""

    def __init__(self, journal: Journal | None, *, is_dry_run: bool = False) -> None:
        self._journal = journal
        self._writing = None if is_dry_run else journal
        self.is_dry_run = self._writing is None

    async def find(self, thread_id: str) -> Thread | None:
        try:
            return await self._journal.get_thread(thread_id) if self._journal else None
        except NotFoundError:
            return None

    async def tail(self, thread: Thread, record: Record) -> list[BaseMessage]:
        """The end of what was taken before."""
        if self._journal is None or not record.messages:
            return []
        batches = await self._journal.tail(thread.id, max_tokens=_TAIL_TOKENS)
        messages = [message for batch in reversed(batches) for message in batch.messages]
        return [message for message in messages if place_of(message) <= record.last]

    async def find_end(self, thread: Thread, message: BaseMessage) -> int | None:
        """The last position of the batch that holds a message, if one of the last ones does."""
        if self._journal is None:
            return None
        for batch in await self._journal.tail(thread.id, max_tokens=_TAIL_TOKENS):
            if any(each.id == message.id for each in batch.messages):
                return batch.last_position
        return None

    async def begin(
        self, thread_id: str, record: Record, *, agent_id: str, user_id: str, at: datetime
    ) -> None:
        """Make the thread, as old as its first message."""
        if self._writing is not None:
            settings = record.as_settings()
            await self._writing.create_thread(
                thread_id, agent_id=agent_id, user_id=user_id, now=at, settings=settings
            )

    async def note(self, thread_id: str, record: Record) -> None:
        if self._writing is not None:
            await self._writing.update_thread(thread_id, settings=record.as_settings())

    async def store(self, thread_id: str, messages: Sequence[BaseMessage]) -> None:
        """Store what is not there yet, in portions that end where a batch does."""
        if self._writing is not None:
            for portion in in_portions(messages, _PORTION):
                await self._writing.import_messages(thread_id, portion)

"""The state of a migrated thread, how a migration writes to the journal, and its report.

The state is kept in the thread's settings, so it is exported and deleted with the thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Self

from langchain_core.messages import BaseMessage

from segue.core.batch import Batch
from segue.errors import ConflictError, NotFoundError
from segue.journal.journal import Journal
from segue.journal.records import Thread
from segue.migrate import SETTING
from segue.migrate.placement import Placement, split_by_batches

# How much of a thread is read to continue after it.
_TAIL_TOKENS: Final = 20_000
# Messages that are stored in one transaction: other writers wait for it.
_PORTION: Final = 500


@dataclass(frozen=True, slots=True)
class MigrationState:
    """How many messages of a source were stored, their hash, and the position of the last."""

    # The source's mark, once all of it was stored.
    mark: str = ""
    messages: int = 0
    digest: str = ""
    last: int = 0
    # Number of messages after a run that has begun and not ended.
    going_to: int | None = None

    @classmethod
    def of(cls, thread: Thread) -> Self:
        """The state of a thread; `ConflictError` if it was not migrated."""
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
    """The journal operations of a migration. A dry run only reads, if there is a journal at all."""

    def __init__(self, journal: Journal | None, *, is_dry_run: bool = False) -> None:
        self._journal = journal
        self._writing = None if is_dry_run else journal
        self.is_dry_run = self._writing is None

    async def find(self, thread_id: str) -> Thread | None:
        try:
            return await self._journal.threads.get(thread_id) if self._journal else None
        except NotFoundError:
            return None

    async def tail(self, thread_id: str) -> list[Batch]:
        """The last batches of a thread, newest first."""
        if self._journal is None:
            return []
        return await self._journal.messages.tail(thread_id, max_tokens=_TAIL_TOKENS)

    async def begin(
        self, thread_id: str, record: MigrationState, *, agent_id: str, user_id: str, at: datetime
    ) -> None:
        """Create the thread, as old as its first message."""
        if self._writing is not None:
            settings = record.as_settings()
            await self._writing.threads.create(
                thread_id, agent_id=agent_id, user_id=user_id, now=at, settings=settings
            )

    async def save(self, thread_id: str, record: MigrationState) -> None:
        if self._writing is not None:
            await self._writing.threads.update(thread_id, settings=record.as_settings())

    async def store(self, thread_id: str, messages: Sequence[BaseMessage]) -> None:
        """Store new messages, in portions of whole batches."""
        if self._writing is not None:
            for portion in split_by_batches(messages, _PORTION):
                await self._writing.messages.import_messages(thread_id, portion)


Outcome = Literal["migrated", "continued", "unchanged"]


@dataclass(frozen=True, slots=True)
class ThreadResult:
    """The result of one conversation; None while all of it is held back."""

    became: Outcome | None
    placed: Placement = field(default_factory=Placement)
    is_held: bool = False
    # The owner of the thread.
    user: str = ""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A conversation whose name is not valid for a thread, and its new name."""

    thread: str
    became: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A conversation that was not migrated, and why."""

    thread: str
    why: str


@dataclass(slots=True)
class MigrationReport:
    """What one run did with the conversations of a source."""

    is_dry_run: bool = False
    threads: int = 0
    # New here.
    migrated: int = 0
    # Known from an earlier run, with new messages since then.
    continued: int = 0
    unchanged: int = 0
    # With a last batch that may still be in progress: it comes with a later run.
    held_back: int = 0
    messages: int = 0
    # Old text markers that became metadata.
    markers: int = 0
    # Tool results without a call: kept, and never sent to a model.
    orphans: int = 0
    # Unfinished batches that were settled.
    repairs: int = 0
    # Number of new threads by owner.
    users: dict[str, int] = field(default_factory=dict)
    # Of all runs, not only of this one.
    renamed: list[Renamed] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def count(self, result: ThreadResult) -> None:
        self.migrated += result.became == "migrated"
        self.continued += result.became == "continued"
        self.unchanged += result.became == "unchanged"
        self.held_back += result.is_held
        self.messages += len(result.placed.messages)
        self.markers += result.placed.markers
        self.orphans += result.placed.orphans
        self.repairs += result.placed.repairs
        if result.became == "migrated":
            self.users[result.user] = self.users.get(result.user, 0) + 1

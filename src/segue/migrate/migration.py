"""Migrates the conversations of a source into the journal, one after the other.

A conversation is recorded before it is stored, and again afterwards. So a run that was killed is
repeated with the same positions, and messages that are stored already stay as they are.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Final

from langchain_core.messages import BaseMessage

from segue.core.batch import BATCH_TIMEOUT, Batch
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import time_of
from segue.core.text import is_name, name_rule
from segue.errors import ConflictError, NotFoundError, UsageError
from segue.journal.batches import check_past, place_of
from segue.journal.messages import importable
from segue.journal.records import NESTING, Thread
from segue.migrate.ledger import (
    Ledger,
    MigrationReport,
    MigrationState,
    Outcome,
    Renamed,
    Skipped,
    ThreadResult,
)
from segue.migrate.placement import (
    TOO_DEEP,
    DatedMessage,
    Placement,
    ThreadIds,
    digest_of,
    find_unfinished,
    place,
    prepare_messages,
    without_instructions,
)
from segue.migrate.sources import ChatSource, Source, SourceThread, ThreadRef, UnreadableError

_ADDRESSES: Final = ("postgresql://", "postgres://")
_SQLITE: Final = b"SQLite format 3\0"
_LINES: Final = frozenset({".jsonl", ".ndjson"})


def open_source(place: str) -> Source:
    """Open a source for reading; the caller closes it."""
    if place.startswith(_ADDRESSES) or any(w.startswith("dbname=") for w in place.split()):
        try:
            from segue.migrate.postgres_checkpoints import PostgresSource  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise UsageError(
                f"PostgreSQL needs {error.name}; pip install 'segue[postgres]'."
            ) from error
        return PostgresSource(place)
    path = Path(place)
    if not path.is_file():
        raise NotFoundError(f"There is no file {place!r}; nor is it a postgresql:// address.")
    with path.open("rb") as file:
        is_sqlite = file.read(len(_SQLITE)) == _SQLITE
    if is_sqlite:
        from segue.migrate.checkpoints import SqliteSource  # noqa: PLC0415 - loads LangGraph

        return SqliteSource(path)
    if path.suffix in _LINES:
        return ChatSource(path)
    raise UsageError(
        f"{place!r} is neither a SQLite file, such as LangGraph's SqliteSaver writes, nor a file "
        "of JSON lines (.jsonl)."
    )


logger = logging.getLogger(__name__)

_NAME_LENGTH: Final = 16

# Called with the number of conversations done, and of all.
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Users and agents of the threads: by a path in the source, or else the given ones."""

    agents: Collection[str]
    agent: str
    agent_from: str | None = None
    user: str | None = None
    user_from: str | None = None

    def __post_init__(self) -> None:
        self._check(self.agent)

    def agent_of(self, talk: SourceThread) -> str:
        return self._check((self.agent_from and talk.fact(self.agent_from)) or self.agent)

    def user_of(self, talk: SourceThread, path: str) -> str:
        user = talk.fact(path) or self.user
        if user is None:
            raise UnreadableError(
                f"It names no user: it has no {path!r}. --user sets the owner of such "
                "conversations, --user-from the place of the name."
            )
        if not is_name(user):
            raise UnreadableError(f"Its user is {user!r:.60}; expected {name_rule()}.")
        return user

    def _check(self, agent: str) -> str:
        if agent not in self.agents:
            raise UsageError(
                f"There is no agent {agent!r}; the settings have: {', '.join(self.agents)}."
            )
        return agent


class Migration:
    """One run over a source."""

    def __init__(
        self, source: Source, ledger: Ledger, owners: Owners, *, now: datetime, prefix: str = ""
    ) -> None:
        self._source = source
        # Before its conversations get names: for those without an id, the user is part of it.
        source.user_from = owners.user_from or source.user_from
        self._ledger = ledger
        self._owners = owners
        self._now = now
        self._prefix = prefix

    async def run(self, on_progress: OnProgress = lambda _done, _of: None) -> MigrationReport:
        """Migrate all conversations; one that cannot be read does not stop the others."""
        heads = await asyncio.to_thread(self._source.heads)
        report = MigrationReport(is_dry_run=self._ledger.is_dry_run, threads=len(heads))
        for done, head in enumerate(heads, 1):
            try:
                result = await self._migrate(head)
            except (UsageError, ConflictError, RecursionError) as error:
                why = TOO_DEEP if isinstance(error, RecursionError) else str(error)
                report.skipped.append(Skipped(head.id, why))
            else:
                report.count(result)
                name = thread_name(head.id, self._prefix)
                if result.became and name != f"{self._prefix}{head.id}":
                    report.renamed.append(Renamed(head.id, name))
            on_progress(done, len(heads))
        logger.info(
            "Of %d threads without metadata, %d were migrated, %d continued, and %d skipped",
            report.threads,
            report.migrated,
            report.continued,
            len(report.skipped),
        )
        return report

    async def _migrate(self, head: ThreadRef) -> ThreadResult:
        thread_id = thread_name(head.id, self._prefix)
        thread = await self._ledger.find(thread_id)
        record = MigrationState() if thread is None else MigrationState.of(thread)
        if record.mark == head.mark:
            return ThreadResult("unchanged")
        talk = await asyncio.to_thread(self._source.load, head)
        _check_same(talk, record, thread)
        self._check_owner(talk, thread)
        tail = [] if thread is None else await self._ledger.tail(thread_id)
        kept = (message for batch in reversed(tail) for message in batch.messages)
        stored = [message for message in kept if place_of(message) <= record.last]
        new = _dated(talk, thread_id, thread.created_at if thread else self._now)
        ready = self._ready(thread_id, record, stored, new[record.messages :])
        is_held = record.messages + len(ready) < len(new)
        if thread is None and not without_instructions(ready):
            return ThreadResult(None, is_held=is_held)
        end = None if record.going_to is None else _end_of(tail, ready)
        placed = Placement()
        if end is None:
            late = [] if is_held else _late(talk, thread_id, ready)
            placed = self._place(thread_id, stored, [*ready, *late])
        total = record.messages + len(ready)
        begun = replace(record, going_to=total)
        if thread is None:
            user = await self._begin(thread_id, begun, talk, ready[0].time)
        else:
            user = thread.user_id
            if placed.messages:
                await self._ledger.save(thread_id, begun)
        await self._ledger.store(thread_id, placed.messages)
        done = MigrationState(
            mark="" if is_held else head.mark,
            messages=total,
            digest=digest_of(talk.messages[:total]),
            last=max([end or record.last, *map(place_of, placed.messages)]),
        )
        if done != record:
            await self._ledger.save(thread_id, done)
        if not placed.messages:
            return ThreadResult("unchanged", is_held=is_held)
        became: Outcome = "continued" if record.messages else "migrated"
        return ThreadResult(became, placed, is_held, user)

    def _place(
        self, thread_id: str, stored: list[BaseMessage], new: list[DatedMessage]
    ) -> Placement:
        """The places of new messages; raises for what cannot be stored."""
        placed = place(stored, without_instructions(new), ThreadIds(thread_id))
        for message in importable(placed.messages):
            check_past(place_of(message), self._now, f"Message {message.id!r}")
        return placed

    def _check_owner(self, talk: SourceThread, thread: Thread | None) -> None:
        """Refuse a thread of another user: two apps may use the same thread names."""
        named = talk.fact(self._source.user_from)
        if thread is not None and named is not None and named != thread.user_id:
            raise ConflictError(
                "The thread of that name belongs to another user here; use --prefix to keep the "
                "conversations of two apps apart."
            )

    async def _begin(
        self, thread_id: str, record: MigrationState, talk: SourceThread, at: datetime
    ) -> str:
        """Create the thread, and return its owner."""
        agent_id = self._owners.agent_of(talk)
        user_id = self._owners.user_of(talk, self._source.user_from)
        await self._ledger.begin(thread_id, record, agent_id=agent_id, user_id=user_id, at=at)
        return user_id

    def _ready(
        self,
        thread_id: str,
        record: MigrationState,
        stored: list[BaseMessage],
        new: list[DatedMessage],
    ) -> list[DatedMessage]:
        """The messages that a killed run was storing, or all but a last batch in progress."""
        if record.going_to is not None:
            return new[: record.going_to - record.messages]
        if not new or not self._source.is_live or self._now - new[-1].time > BATCH_TIMEOUT:
            return new
        return new[: find_unfinished(stored, new, ThreadIds(thread_id))]


def thread_name(source_id: str, prefix: str = "") -> str:
    """The name of a thread: as in the source, if it is valid here."""
    name = f"{prefix}{source_id}"
    if NESTING not in name and is_name(name):
        return name
    digest = hashlib.sha256(source_id.encode(errors="replace")).hexdigest()
    return f"{prefix.replace(NESTING, '-')}migrated-{digest[:_NAME_LENGTH]}"


def _check_same(talk: SourceThread, record: MigrationState, thread: Thread | None) -> None:
    """Refuse a conversation that was changed in the source or continued here since then."""
    if not talk.messages:
        raise UnreadableError("It has no messages.")
    if record.messages and digest_of(talk.messages[: record.messages]) != record.digest:
        raise ConflictError(
            f"Its first {record.messages} messages are not those that were migrated: it was "
            "changed, or is another conversation of that name; use --prefix to keep them apart."
        )
    is_whole = record.going_to is None
    if thread is not None and is_whole and thread.last_position > record.last:
        raise ConflictError(
            "It was continued here after its migration; new messages are not imported."
        )


def _dated(talk: SourceThread, thread_id: str, otherwise: datetime) -> list[DatedMessage]:
    """The messages with their times; one without a time takes that of the one before."""
    places = [MessageMetadata.of(message).position for message in talk.messages]
    times = [time_of(p) if p is not None else t for p, t in zip(places, talk.times, strict=True)]
    first = next(filter(None, times), otherwise)
    latest = [*accumulate(times, lambda last, time: time or last, initial=first)][1:]
    return [*map(DatedMessage, prepare_messages(talk.messages, thread_id), latest)]


def _late(talk: SourceThread, thread_id: str, ready: list[DatedMessage]) -> list[DatedMessage]:
    """Tool results of a step that was cut off: better than settling its calls as unknown."""
    named = prepare_messages(talk.pending, f"{thread_id}-pending-{len(talk.messages)}")
    return [DatedMessage(message, ready[-1].time) for message in named if ready]


def _end_of(tail: Sequence[Batch], ready: Sequence[DatedMessage]) -> int | None:
    """Where a killed run ended, if it stored the last of its messages."""
    wanted = without_instructions(ready)[-1:]
    for batch in tail:
        if any(message.id == last.message.id for message in batch.messages for last in wanted):
            return batch.last_position
    return None

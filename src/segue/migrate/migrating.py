"""Takes the conversations of a source into the journal, one after the other.

What is going to be taken is written down before, and that it was, after: a run that was killed is
repeated with the same positions, and what is stored already is left alone.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from langchain_core.messages import BaseMessage

from segue.core.batch import BATCH_TIMEOUT
from segue.core.errors import ConflictError, UsageError
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import time_of
from segue.journal.places import check_past, importable, place_of
from segue.journal.records import NESTING, Thread
from segue.migrate.ledger import Ledger, Record
from segue.migrate.placing import Old, OldIds, Placed, digest_of, place, readied, unfinished
from segue.migrate.report import Renamed, Report, Skipped, Taken
from segue.migrate.sources import Conversation, Head, Source, UnreadableError

logger = logging.getLogger(__name__)

_NAME_LENGTH: Final = 16

Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Whose the threads become: as the source says at a path, or else as it was given."""

    agents: Collection[str]
    agent: str
    agent_from: str | None = None
    user: str | None = None
    user_from: str | None = None

    def __post_init__(self) -> None:
        self._check(self.agent)

    def agent_of(self, talk: Conversation) -> str:
        return self._check((self.agent_from and talk.fact(self.agent_from)) or self.agent)

    def user_of(self, talk: Conversation, path: str) -> str:
        user = talk.fact(path) or self.user
        if user is None:
            raise UnreadableError(
                f"Nobody knows whose it is: it has no {path!r}. --user names whose those become "
                "that do not say, --user-from where they say so."
            )
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
        # Before its conversations are named: those without an id are by whose they are, too.
        source.user_from = owners.user_from or source.user_from
        self._ledger = ledger
        self._owners = owners
        self._now = now
        self._prefix = prefix

    async def run(self, told: Told = lambda _done, _of: None) -> Report:
        """Take all there is; one conversation that cannot be taken does not hold up the others."""
        heads = await asyncio.to_thread(self._source.heads)
        report = Report(is_dry_run=self._ledger.is_dry_run, threads=len(heads))
        for done, head in enumerate(heads, 1):
            try:
                taken = await self._take(head)
            except (UsageError, ConflictError) as error:
                report.skipped.append(Skipped(head.id, str(error)))
            except RecursionError:
                reason = "It holds something that is nested too deeply."
                report.skipped.append(Skipped(head.id, reason))
            else:
                report.count(taken)
                name = thread_name(head.id, self._prefix)
                if taken.became and name != f"{self._prefix}{head.id}":
                    report.renamed.append(Renamed(head.id, name))
            told(done, len(heads))
        logger.info(
            "Of %d threads without metadata %d were migrated, %d went on, and %d were skipped",
            report.threads,
            report.migrated,
            report.continued,
            len(report.skipped),
        )
        return report

    async def _take(self, head: Head) -> Taken:
        thread_id = thread_name(head.id, self._prefix)
        thread = await self._ledger.find(thread_id)
        record = Record() if thread is None else Record.of(thread)
        if record.mark == head.mark:
            return Taken("unchanged")
        talk = await asyncio.to_thread(self._source.load, head)
        _check_same(talk, record, thread)
        self._check_owner(talk, thread)
        stored = [] if thread is None else await self._ledger.tail(thread, record)
        first = self._now if thread is None else thread.created_at
        new = _dated(talk, thread_id, first)[record.messages :]
        ready = self._ready(thread_id, record, stored, new)
        is_held = len(ready) < len(new)
        if thread is None and not ready:
            return Taken(None, is_held=is_held)
        end = None
        if thread is not None and record.going_to is not None and ready:
            end = await self._ledger.find_end(thread, ready[-1].message)
        placed = Placed([])
        if end is None:
            late = [] if is_held else _late(talk, thread_id, ready)
            placed = place(stored, [*ready, *late], OldIds(thread_id))
            for message in importable(placed.messages):  # raises before anything is begun
                check_past(place_of(message), self._now, f"Message {message.id!r}")
        taken = record.messages + len(ready)
        begun = replace(record, going_to=taken)
        if thread is None:
            user = await self._begin(thread_id, begun, talk, ready[0].time)
        else:
            user = thread.user_id
            if placed.messages:
                await self._ledger.note(thread_id, begun)
        await self._ledger.store(thread_id, placed.messages)
        done = Record(
            mark="" if is_held else head.mark,
            messages=taken,
            digest=digest_of(talk.messages[:taken]),
            last=max([end or record.last, *map(place_of, placed.messages)]),
        )
        if done != record:
            await self._ledger.note(thread_id, done)
        return placed.as_taken(is_new=not record.messages, is_held=is_held, user=user)

    def _check_owner(self, talk: Conversation, thread: Thread | None) -> None:
        """Whether it is the same user's here: two apps may call their threads alike."""
        named = talk.fact(self._source.user_from)
        if thread is not None and named is not None and named != thread.user_id:
            raise ConflictError(
                "The thread of that name here is another user's; --prefix tells the conversations "
                "of two apps apart."
            )

    async def _begin(self, thread_id: str, record: Record, talk: Conversation, at: datetime) -> str:
        """Make the thread, and say whose it is."""
        agent_id = self._owners.agent_of(talk)
        user_id = self._owners.user_of(talk, self._source.user_from)
        await self._ledger.begin(thread_id, record, agent_id=agent_id, user_id=user_id, at=at)
        return user_id

    def _ready(
        self, thread_id: str, record: Record, stored: list[BaseMessage], new: list[Old]
    ) -> list[Old]:
        """What can be taken now: as much as a run that was killed wanted to take, or all but a
        last batch that may be going on at this moment.
        """
        if record.going_to is not None:
            return new[: record.going_to - record.messages]
        if not new or not self._source.is_live or self._now - new[-1].time > BATCH_TIMEOUT:
            return new
        return new[: unfinished(stored, new, OldIds(thread_id))]


def thread_name(source_id: str, prefix: str = "") -> str:
    """What a thread is called here: as in the source, if such a name can be a thread's."""
    name = f"{prefix}{source_id}"
    if NESTING not in name:
        return name
    digest = hashlib.sha256(source_id.encode(errors="replace")).hexdigest()
    return f"{prefix.replace(NESTING, '-')}migrated-{digest[:_NAME_LENGTH]}"


def _check_same(talk: Conversation, record: Record, thread: Thread | None) -> None:
    """Whether what was taken before still is how it begins there, and all there is of it here."""
    if not talk.messages:
        raise UnreadableError("It has no messages.")
    if record.messages and digest_of(talk.messages[: record.messages]) != record.digest:
        raise ConflictError(
            f"Its first {record.messages} messages are not those that were migrated: it was "
            "changed, or is another conversation of the same name, which --prefix tells apart."
        )
    is_whole = record.going_to is None
    if thread is not None and is_whole and thread.last_position > record.last:
        raise ConflictError(
            "It went on here since it was migrated; what the source has more is left there."
        )


def _dated(talk: Conversation, thread_id: str, otherwise: datetime) -> list[Old]:
    """The messages with their times; one without takes that of the one before it."""
    times = [_own_time(m) or t for m, t in zip(talk.messages, talk.times, strict=True)]
    latest = next((time for time in times if time), otherwise)
    dated = []
    for message, time in zip(readied(talk.messages, thread_id), times, strict=True):
        latest = time or latest
        dated.append(Old(message, latest))
    return dated


def _late(talk: Conversation, thread_id: str, ready: list[Old]) -> list[Old]:
    """What a cut-off step had found out: better than to settle its calls as unknown."""
    named = readied(talk.pending, f"{thread_id}-pending-{len(talk.messages)}")
    return [Old(message, ready[-1].time) for message in named if ready]


def _own_time(message: BaseMessage) -> datetime | None:
    position = MessageMetadata.of(message).position
    return None if position is None else time_of(position)

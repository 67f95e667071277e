"""Writes exports: an operator's, which holds all, and a user's, which holds what they see."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.errors import NotFoundError
from segue.core.messages import origin_of, shown_content, spoken_text
from segue.core.metadata import MessageMetadata
from segue.core.plain import exact_json
from segue.core.preferences import wishes_in
from segue.core.snowflake import time_of, to_text
from segue.journal.ports import Journal
from segue.journal.records import NESTING, Page
from segue.journal.tables import (
    ALL,
    MEMORIES,
    MESSAGES,
    OF_THREAD,
    THREADS,
    USERS,
    Row,
    Rows,
    Whose,
    all_rows,
    at_rest,
)
from segue.transfer.lines import Writing, to_id, to_time

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Scope:
    """What to export: some threads with those nested in them, all of a user, or everything."""

    threads: Sequence[str] = ()
    user_id: str | None = None

    @property
    def whose(self) -> Whose:
        return ALL if self.user_id is None else Whose(user_id=self.user_id)

    def holds(self, thread_id: str) -> bool:
        root = thread_id.split(NESTING, maxsplit=1)[0]
        return not self.threads or bool({thread_id, root} & {*self.threads})


async def export_all(
    journal: Journal, scope: Scope, writing: Writing, *, created_at: datetime
) -> AsyncGenerator[bytes]:
    """The lines of a full export, all as of one moment."""
    async with journal.snapshot() as rows:
        await _check_threads(rows, scope)
        yield writing.header("full", created_at)
        async for thread in all_rows(rows, THREADS, scope.whose):
            if scope.holds(thread["id"]):
                yield writing.row(THREADS, thread)
                async for line in _thread_lines(rows, thread["id"], writing):
                    yield line
        if not scope.threads:
            for table in (USERS, MEMORIES):
                async for row in all_rows(rows, table, scope.whose):
                    yield writing.row(table, row)
        yield writing.footer()


async def export_user(
    journal: Journal, scope: Scope, writing: Writing, *, created_at: datetime
) -> AsyncGenerator[bytes]:
    """The lines of a user's export. Without threads that are named: also memories and wishes."""
    await _check_threads(journal, scope)
    yield writing.header("user", created_at)
    async for thread in all_rows(journal, THREADS, scope.whose):
        # Where agents ask each other is no conversation of the user's.
        if scope.holds(thread["id"]) and NESTING not in thread["id"]:
            yield writing.line("thread", _shown_thread(thread))
            async for line in _shown_messages(journal, thread["id"], writing):
                yield line
    if not scope.threads:
        async for row in all_rows(journal, USERS, scope.whose):
            yield writing.line("preferences", {"wishes": _wishes(row)})
        async for row in all_rows(journal, MEMORIES, scope.whose):
            yield writing.line("memory", _shown_memory(row))
    yield writing.footer()


async def _check_threads(rows: Rows, scope: Scope) -> None:
    for thread_id in scope.threads:
        if not await rows.read_rows(THREADS, Whose(thread_id=thread_id), limit=1):
            raise NotFoundError(f"There is no thread {thread_id!r:.60}.")


async def _thread_lines(rows: Rows, thread_id: str, writing: Writing) -> AsyncIterator[bytes]:
    whose = Whose(thread_id=thread_id)
    batch: list[Row] = []
    async for row in all_rows(rows, MESSAGES, whose):
        if batch and batch[0]["batch"] != row["batch"]:
            yield writing.batch(thread_id, batch)
            batch = []
        batch.append(row)
    if batch:
        yield writing.batch(thread_id, batch)
    for table in OF_THREAD[1:]:
        async for row in all_rows(rows, table, whose):
            yield writing.row(table, at_rest(table, row), thread_id)


async def _shown_messages(
    journal: Journal, thread_id: str, writing: Writing
) -> AsyncIterator[bytes]:
    after: int | None = 0
    while after is not None and (page := await _page(journal, thread_id, after)) is not None:
        for message in page.messages:
            yield writing.line("message", {"thread_id": thread_id, **_shown(message)})
        after = page.after


async def _page(journal: Journal, thread_id: str, after: int) -> Page | None:
    try:
        return await journal.history(thread_id, after=after, limit=_PAGE)
    except NotFoundError:  # deleted meanwhile
        return None


def _shown(message: BaseMessage) -> Mapping[str, Any]:
    """A message as its user sees it; what else is known of it has no place here."""
    metadata = MessageMetadata.of(message)
    position = metadata.position or 0
    return {
        "id": message.id or to_text(position),
        "position": to_id(position),
        "role": "user" if isinstance(message, HumanMessage) else "agent",
        "text": spoken_text(message),
        "content": shown_content(message),
        "created_at": to_time(metadata.created_at or time_of(position)),
        "origin": origin_of(message),
    }


def _shown_thread(thread: Row) -> Mapping[str, Any]:
    return {
        "id": thread["id"],
        "agent_id": thread["agent_id"],
        "title": thread["title"],
        "wishes": _wishes(thread),
        "created_at": to_time(thread["created_at"]),
        "updated_at": to_time(thread["updated_at"]),
    }


def _wishes(row: Row) -> Any:
    return exact_json(wishes_in(row["settings"]))


def _shown_memory(memory: Row) -> Mapping[str, Any]:
    return {
        "agent_id": memory["agent_id"],
        "key": memory["key"],
        "content": memory["content"],
        "created_at": to_time(memory["created_at"]),
        "updated_at": to_time(memory["updated_at"]),
    }

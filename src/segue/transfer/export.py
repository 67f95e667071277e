"""Writes exports: an operator's with everything, and a user's with what the user sees."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.autonomy.policy import preferences_in
from segue.core.messages import origin_of, shown_content, spoken_text
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import time_of, to_text
from segue.core.text import exact_json
from segue.errors import NotFoundError
from segue.journal.journal import Journal
from segue.journal.records import NESTING, Page
from segue.journal.registry import PushSubscription
from segue.journal.tables import (
    ALL,
    MEMORIES,
    OF_THREAD,
    THREADS,
    USERS,
    Row,
    Rows,
    Table,
    Whose,
    all_batches,
    all_rows,
    at_rest,
)
from segue.transfer.lines import ExportWriter, to_id, to_time

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Scope:
    """What to export: some threads with those nested in them, one user, or everything."""

    threads: Sequence[str] = ()
    user_id: str | None = None

    @property
    def whose(self) -> Whose:
        return ALL if self.user_id is None else Whose(user_id=self.user_id)

    def holds(self, thread_id: str) -> bool:
        root = thread_id.split(NESTING, maxsplit=1)[0]
        return not self.threads or bool({thread_id, root} & {*self.threads})


async def export_all(
    journal: Journal,
    scope: Scope,
    writer: ExportWriter,
    *,
    created_at: datetime,
    holds: Callable[[Table, Row], bool] = lambda _table, _row: True,
) -> AsyncGenerator[bytes]:
    """The lines of a full export, from one snapshot. Of a thread it has the messages, and of its
    other rows those that it `holds`.
    """
    async with journal.transfer.snapshot() as rows:
        await _check_threads(rows, scope)
        yield writer.header("full", created_at)
        async for thread in all_rows(rows, THREADS, scope.whose):
            if scope.holds(thread["id"]):
                yield writer.row(THREADS, thread)
                async for line in _thread_lines(rows, thread["id"], writer, holds):
                    yield line
        if not scope.threads:
            for table in (USERS, MEMORIES):
                async for row in all_rows(rows, table, scope.whose):
                    yield writer.row(table, row)
        yield writer.footer()


async def export_user(
    journal: Journal, scope: Scope, writer: ExportWriter, *, created_at: datetime
) -> AsyncGenerator[bytes]:
    """The lines of a user's export; unless threads are named, with memories, preferences, and the
    browsers that are notified.
    """
    await _check_threads(journal.transfer, scope)
    yield writer.header("user", created_at)
    async for thread in all_rows(journal.transfer, THREADS, scope.whose):
        # Threads in which agents ask each other are not shown to the user.
        if scope.holds(thread["id"]) and NESTING not in thread["id"]:
            yield writer.line("thread", _shown_thread(thread))
            async for line in _shown_messages(journal, thread["id"], writer):
                yield line
    if not scope.threads:
        async for row in all_rows(journal.transfer, USERS, scope.whose):
            yield writer.line("preferences", {"wishes": _wishes(row)})
        async for row in all_rows(journal.transfer, MEMORIES, scope.whose):
            yield writer.line("memory", _shown_memory(row))
        for browser in await journal.push.list_of(scope.user_id or ""):
            yield writer.line("browser", _shown_browser(browser))
    yield writer.footer()


async def _check_threads(rows: Rows, scope: Scope) -> None:
    for thread_id in scope.threads:
        if not await rows.read_rows(THREADS, Whose(thread_id=thread_id), limit=1):
            raise NotFoundError(f"There is no thread {thread_id!r:.60}.")


async def _thread_lines(
    rows: Rows, thread_id: str, writer: ExportWriter, holds: Callable[[Table, Row], bool]
) -> AsyncIterator[bytes]:
    whose = Whose(thread_id=thread_id)
    async for batch in all_batches(rows, thread_id):
        yield writer.batch(thread_id, batch)
    for table in OF_THREAD[1:]:
        async for row in all_rows(rows, table, whose):
            if holds(table, row):
                yield writer.row(table, at_rest(table, row), thread_id)


async def _shown_messages(
    journal: Journal, thread_id: str, writer: ExportWriter
) -> AsyncIterator[bytes]:
    after: int | None = 0
    while after is not None and (page := await _page(journal, thread_id, after)) is not None:
        for message in page.messages:
            yield writer.line("message", {"thread_id": thread_id, **_shown(message)})
        after = page.after


async def _page(journal: Journal, thread_id: str, after: int) -> Page | None:
    try:
        return await journal.messages.history(thread_id, after=after, limit=_PAGE)
    except NotFoundError:  # deleted meanwhile
        return None


def _shown(message: BaseMessage) -> Mapping[str, Any]:
    """A message as its user sees it, and nothing more."""
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
    return exact_json(preferences_in(row["settings"]))


def _shown_memory(memory: Row) -> Mapping[str, Any]:
    return {
        "agent_id": memory["agent_id"],
        "key": memory["key"],
        "content": memory["content"],
        "created_at": to_time(memory["created_at"]),
        "updated_at": to_time(memory["updated_at"]),
    }


def _shown_browser(browser: PushSubscription) -> Mapping[str, Any]:
    """Without its keys, which let others write to it."""
    return {
        "push_service": urlsplit(browser.endpoint).hostname,
        "created_at": to_time(browser.created_at),
    }

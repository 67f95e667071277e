"""What the tests of migrations share: old apps on both savers, and journals to migrate to."""

import hashlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from langchain_core.messages import BaseMessage

from segue.journal.journal import Journal
from segue.journal.records import Thread
from segue.journal.tx import Part
from segue.migrate.ledger import Ledger, MigrationReport
from segue.migrate.migration import Migration, Owners, open_source
from segue.settings import Settings
from segue.simulate.world import plain_agent
from segue.stores import journal_of
from segue.testing.postgres import PostgresServer
from tests.migrate.apps import App, postgres_app, sqlite_app

USERS = ("ann", "bob", "cyd")
# Long after anything that a test's app did: nothing of it can still be going on.
LATER = datetime.now(UTC) + timedelta(hours=1)  # noqa: TID251 - LangGraph has no other clock

Journals = Callable[[], AbstractAsyncContextManager[Journal]]
Everything = list[tuple[Thread, list[BaseMessage]]]


@dataclass(frozen=True)
class OldApp:
    """A place of checkpoints, the app that writes there, and what it all adds up to."""

    place: str
    app: App
    digest: Callable[[], str]


@pytest.fixture(params=["sqlite", "postgres"])
def old_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OldApp]:
    """An app on either of the official savers."""
    if request.param == "sqlite":
        path = tmp_path / "checkpoints.sqlite"
        with sqlite_app(path) as app:
            yield OldApp(str(path), app, lambda: hashlib.sha256(path.read_bytes()).hexdigest())
        return
    server: PostgresServer = request.getfixturevalue("server")
    address = server.create_database()
    with postgres_app(address) as app:
        yield OldApp(address, app, lambda: rows_digest(address))


def rows_digest(address: str) -> str:
    """All that is stored in a database of checkpoints."""
    digest = hashlib.sha256()
    with psycopg.connect(address) as db:
        tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in sorted(tables.fetchall()):
            query = psycopg.sql.SQL("SELECT t::text FROM {} t").format(
                psycopg.sql.Identifier(table)
            )
            for row in sorted(db.execute(query).fetchall()):
                digest.update(repr((table, row)).encode())
    return digest.hexdigest()


@pytest.fixture
def sqlite_journals(empty_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Journals:
    """Opens new journals, as many as are asked for."""

    def new() -> AbstractAsyncContextManager[Journal]:
        folder = tmp_path_factory.mktemp("journals") / "data"
        return opened(str(shutil.copytree(empty_files, folder)))

    return new


@asynccontextmanager
async def opened(database: str) -> AsyncIterator[Journal]:
    journal = journal_of(Settings(database=database, agents=(plain_agent(),)))
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


async def migrate(
    place: str,
    journal: Journal | None,
    *,
    is_dry_run: bool = False,
    now: datetime = LATER,
    prefix: str = "",
    **owners: Any,
) -> MigrationReport:
    """One run, as `segue migrate` makes it."""
    chosen = Owners(**{"agents": ["guide", "clerk"], "agent": "guide", **owners})
    ledger = Ledger(journal, is_dry_run=is_dry_run)
    with closing(open_source(place)) as source:
        return await Migration(source, ledger, chosen, now=now, prefix=prefix).run()


async def everything(journal: Journal) -> Everything:
    """All threads of the users there are, with all that is stored in them; but not how often their
    entries were changed on the way.
    """
    found: Everything = []
    for user in USERS:
        for thread in await journal.threads.list_of(user, limit=1_000):
            found.append(
                (replace(thread, changed_position=0), await messages_of(journal, thread.id))
            )
    return sorted(found, key=lambda each: each[0].id)


async def messages_of(journal: Journal, thread_id: str) -> list[BaseMessage]:
    batches = await journal.messages.tail(thread_id, max_tokens=10_000_000)
    return [message for batch in reversed(batches) for message in batch.messages]


class Killed(BaseException):
    """Nobody catches it, as nobody catches a kill."""


@dataclass
class Mortal:
    """A process that dies at one of its writes to a journal, before it or right after."""

    journal: Journal
    lives: int
    is_after: bool

    def __enter__(self) -> Self:
        for steps, name in self._writes():
            setattr(steps, name, self._mortal(getattr(steps, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for steps, name in self._writes():
            delattr(steps, name)

    @property
    def is_dead(self) -> bool:
        return self.lives <= 0

    def _writes(self) -> Iterator[tuple[Part, str]]:
        yield self.journal.threads, "create"
        yield self.journal.threads, "update"
        yield self.journal.messages, "import_messages"

    def _mortal(self, step: Callable[..., Awaitable[Any]]) -> Any:
        async def mortal(*args: Any, **kwargs: Any) -> Any:
            self.lives -= 1
            if self.lives == 0 and not self.is_after:
                raise Killed
            result = await step(*args, **kwargs)
            if self.lives == 0:
                raise Killed
            return result

        return mortal


async def check_strikes(journals: Journals, place: str) -> int:
    """Kill a run at each of its writes, repeat it, and compare with one that nobody killed; how
    often it was struck.
    """
    async with journals() as journal:
        await migrate(place, journal)
        unbroken = await everything(journal)
    struck = 0
    for is_after in (False, True):
        for lives in range(1, 100):
            async with journals() as journal:
                try:
                    with Mortal(journal, lives, is_after):
                        await migrate(place, journal)
                except Killed:
                    struck += 1
                else:
                    break
                await migrate(place, journal, now=LATER + timedelta(days=1))
                assert await everything(journal) == unbroken, (lives, is_after)
    return struck

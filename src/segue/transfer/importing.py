"""Takes an export into a journal: all of it, or nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Final

from segue.core.errors import ConflictError, UsageError
from segue.core.snowflake import SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.restoring import BatchTaken
from segue.journal.tables import EFFECTS, Restored, Row, Table
from segue.transfer.draft import Draft
from segue.transfer.remapping import Remapping

# So often can the same file be imported under new ids.
_TRIES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Manner:
    """How to import. With `ids`, threads and all else get new ones."""

    ids: SnowflakeSource | None = None
    skip_existing: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """How many rows came in by table, which threads were left alone, and what the others are
    called now, if they have new ids.
    """

    rows: Mapping[str, int]
    skipped: tuple[str, ...]
    renamed: Mapping[str, str]


async def import_file(
    journal: Journal, file: BinaryIO, manner: Manner, *, now: datetime
) -> Imported:
    """Check a file whole, then write all of it in one transaction.

    `FormatError` names the line that is wrong; `ConflictError` says what is here already,
    `UsageError` what is from the future.
    """
    async with checked(file) as draft:
        return await import_draft(journal, draft, manner, now=now)


@asynccontextmanager
async def checked(file: BinaryIO) -> AsyncIterator[Draft]:
    """A file that was checked whole, for who has no journal yet."""
    with closing(Draft()) as draft:
        await asyncio.to_thread(draft.fill, file)
        yield draft


async def import_draft(
    journal: Journal, draft: Draft, manner: Manner, *, now: datetime
) -> Imported:
    """Write all of a checked file in one transaction; `ConflictError` as above."""
    remapping = None if manner.ids is None else Remapping(manner.ids)
    for _ in range(_TRIES):
        try:
            restored = await _restore(journal, draft, manner, remapping, now)
        except BatchTaken:
            if remapping is None:
                raise
            remapping.go_on()
        else:
            names = {} if remapping is None else remapping.names
            return Imported(restored.rows, restored.skipped, names)
    raise ConflictError(f"This file was imported {_TRIES} times. Nothing was imported.")


async def _restore(
    journal: Journal,
    draft: Draft,
    manner: Manner,
    remapping: Remapping | None,
    now: datetime,
) -> Restored:
    def rows() -> Iterator[tuple[Table, Row]]:
        for table, row in draft.rows():  # from the first on, since a step may be tried again
            if remapping is None:
                yield table, row
            # A copy does nothing outside: what the original had to do there, it does.
            elif table is not EFFECTS:
                yield table, remapping.row(table, row)

    try:
        return await journal.restore(
            rows, now=now, skip_existing=manner.skip_existing, dry_run=manner.dry_run
        )
    except (ConflictError, UsageError) as error:
        raise type(error)(f"Up to line {draft.line}: {error}") from error

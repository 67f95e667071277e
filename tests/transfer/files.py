"""Exports as bytes, and journals to take them from and into."""

import io
from datetime import UTC, datetime

from segue.journal.ports import Journal
from segue.transfer.importing import Imported, Manner, import_file
from segue.transfer.lines import Writing
from segue.transfer.writing import Scope, export_all, export_user

MADE_AT = datetime(2027, 2, 1, tzinfo=UTC)


async def full(journal: Journal, scope: Scope | None = None) -> bytes:
    lines = export_all(journal, scope or Scope(), Writing(), created_at=MADE_AT)
    return b"".join([line async for line in lines])


async def of_user(journal: Journal, scope: Scope) -> bytes:
    lines = export_user(journal, scope, Writing(), created_at=MADE_AT)
    return b"".join([line async for line in lines])


async def take_in(journal: Journal, data: bytes, manner: Manner | None = None) -> Imported:
    return await import_file(journal, io.BytesIO(data), manner or Manner(), now=MADE_AT)

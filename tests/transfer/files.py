"""Exports as bytes, and journals to take them from and into."""

import hashlib
import io
import json
from datetime import UTC, datetime
from typing import Any

from segue.journal.journal import Journal
from segue.transfer.export import Scope, export_all, export_user
from segue.transfer.imports import ImportOptions, ImportResult, import_file
from segue.transfer.lines import ExportWriter

Lines = list[dict[str, Any]]
MADE_AT = datetime(2027, 2, 1, tzinfo=UTC)


async def full(journal: Journal, scope: Scope | None = None) -> bytes:
    lines = export_all(journal, scope or Scope(), ExportWriter(), created_at=MADE_AT)
    return b"".join([line async for line in lines])


async def of_user(journal: Journal, scope: Scope) -> bytes:
    lines = export_user(journal, scope, ExportWriter(), created_at=MADE_AT)
    return b"".join([line async for line in lines])


async def take_in(
    journal: Journal, data: bytes, options: ImportOptions | None = None
) -> ImportResult:
    return await import_file(journal, io.BytesIO(data), options or ImportOptions(), now=MADE_AT)


def sealed(lines: Lines) -> bytes:
    """The lines with a footer that fits them: wrong in itself, and nowhere damaged."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
    counts: dict[str, int] = {}
    for line in lines[1:-1]:
        counts[line["type"]] = counts.get(line["type"], 0) + 1
        if line["type"] == "batch":
            counts["message"] = counts.get("message", 0) + len(line["messages"])
    footer = {"type": "footer", "counts": counts, "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(footer).encode() + b"\n"

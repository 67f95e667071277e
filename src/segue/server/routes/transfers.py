"""Exports and imports.

A user's export is streamed as it is read. An operator's export is read in one transaction, which
must not last as long as a slow download: it is written to a temporary file first.
"""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated, Any, BinaryIO, Final

from fastapi import Query
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.requests import Request

from segue.server.access import PAGE_SLOT, CallerDep, SegueDep, ThreadDep
from segue.server.middleware import authenticated_router
from segue.server.problems import ApiError, errors
from segue.server.responses import RecordOut
from segue.transfer.export import Scope

MEDIA_TYPE: Final = "application/jsonl"
# Its body has a separate limit.
IMPORT: Final = "/api/admin/import"
# A page of another origin cannot send these without a CORS preflight.
_MEDIA_TYPES: Final = frozenset(
    {MEDIA_TYPE, "application/x-ndjson", "application/json", "application/octet-stream"}
)
_PIECE: Final = 64 * 1024

router = authenticated_router("/api", "transfers")
admin = authenticated_router("/api/admin", "admin", operators=True)
_LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Lines of JSON.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}
# It is read as it comes, so FastAPI does not know of it.
_EXPORT_AS_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}
Names = Annotated[list[str], Query(max_length=100)]
Name = Annotated[str | None, Query(max_length=200)]


class ImportedOut(RecordOut):
    """Number of imported records by kind, skipped threads, and new ids of threads by old ones."""

    imported: dict[str, int] = Field(validation_alias="rows")
    skipped: list[str]
    renamed: dict[str, str]


@router.get(
    "/threads/{thread_id}/export",
    dependencies=[PAGE_SLOT],
    response_class=StreamingResponse,
    responses=errors(404) | _LINES,
)
async def export_thread(segue: SegueDep, thread: ThreadDep) -> StreamingResponse:
    """A conversation as its user sees it."""
    return _lines(segue.export(thread.user_id, thread.id), "thread")


@router.get(
    "/export",
    dependencies=[PAGE_SLOT],
    response_class=StreamingResponse,
    responses=_LINES,
)
async def export_own(segue: SegueDep, caller: CallerDep) -> StreamingResponse:
    """All of the caller's conversations, memories and preferences."""
    return _lines(segue.export(caller.user_id), "export")


@admin.get("/export", response_class=StreamingResponse, responses=errors(404) | _LINES)
async def export_everything(
    segue: SegueDep,
    user: Name = None,
    thread: Names = [],  # noqa: B006 - FastAPI copies it
) -> StreamingResponse:
    """Everything, triggers included, of all users, of one user, or of some threads."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed after it is sent
    try:
        async with aclosing(segue.export_all(Scope(threads=thread, user_id=user))) as lines:
            async for line in lines:
                file.write(line)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return _lines(_pieces(file), "export")


@admin.post(
    IMPORT.removeprefix(admin.prefix), responses=errors(409, 415), openapi_extra=_EXPORT_AS_BODY
)
async def import_everything(
    segue: SegueDep,
    request: Request,
    *,
    remap: bool = False,
    skip_existing: bool = False,
    dry_run: bool = False,
    trusted: bool = False,
) -> ImportedOut:
    """Import a full export, sent as the body: all of it, or nothing. `trusted` also allows system
    messages, addresses in content and provider file ids, which no user could send.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() not in _MEDIA_TYPES:
        raise ApiError(415, "media_type", f"Send an export as Content-Type: {MEDIA_TYPE}.")
    with tempfile.TemporaryFile() as file:
        async for piece in request.stream():
            file.write(piece)
        came = await segue.import_file(
            file, remap=remap, skip_existing=skip_existing, dry_run=dry_run, trusted=trusted
        )
    return ImportedOut.of(came)


def _lines(lines: AsyncIterator[bytes] | Iterator[bytes], name: str) -> StreamingResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"'}
    return StreamingResponse(lines, media_type=MEDIA_TYPE, headers=headers)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece

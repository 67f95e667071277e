"""Exports and imports over HTTP, and the deletion of all that is stored of a user.

A user's export is streamed as it is read. An operator's is of one moment, which must not last as
long as its slowest reader: it is written to a temporary file first, and so is what comes in.
"""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated, Any, BinaryIO, Final, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.requests import Request

from segue.server.access import CallerHere, SegueHere, ThreadHere, operator_of
from segue.server.guard import GuardedRoute
from segue.server.problems import Refusal, responses
from segue.server.shapes import DeletedOut, Sent
from segue.transfer.writing import Scope

MEDIA_TYPE: Final = "application/jsonl"
# Where more may be sent than elsewhere.
IMPORT: Final = "/api/admin/import"
# None that a form, or a script of another page, sends without asking first.
_TAKEN: Final = frozenset(
    {MEDIA_TYPE, "application/x-ndjson", "application/json", "application/octet-stream"}
)
_PIECE: Final = 64 * 1024

router = APIRouter(route_class=GuardedRoute, prefix="/api", tags=["transfers"])
admin = APIRouter(
    route_class=GuardedRoute,
    prefix="/api/admin",
    tags=["admin"],
    dependencies=[Depends(operator_of)],
    responses=responses(403),
)
_LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Lines of JSON.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}
Names = Annotated[list[str], Query(max_length=100)]
Name = Annotated[str | None, Query(max_length=200)]


class Confirmed(Sent):
    """That it is meant: what is deleted does not come back."""

    confirm: Literal["delete everything"] = Field(examples=["delete everything"])


class ImportedOut(BaseModel):
    """What came in, by kind; which threads were here already; and what the others are called."""

    imported: dict[str, int]
    skipped: list[str]
    renamed: dict[str, str]


@router.get(
    "/threads/{thread_id}/export",
    response_class=StreamingResponse,
    responses={**responses(404), **_LINES},
)
async def export_thread(segue: SegueHere, thread: ThreadHere) -> StreamingResponse:
    """A conversation as its user sees it, to keep."""
    return _lines(segue.export(thread.user_id, thread.id), "thread")


@router.get("/export", response_class=StreamingResponse, responses={**responses(), **_LINES})
async def export_own(segue: SegueHere, caller: CallerHere) -> StreamingResponse:
    """All of the caller's conversations, memories and wishes, to keep."""
    return _lines(segue.export(caller.user_id), "export")


@router.delete("/me", responses=responses())
async def delete_me(segue: SegueHere, caller: CallerHere, meant: Confirmed) -> DeletedOut:
    """Delete all that is stored of the caller: conversations, memories, wishes."""
    del meant
    return DeletedOut(deleted=dict((await segue.delete_user(caller.user_id)).rows))


@admin.get("/export", response_class=StreamingResponse, responses={**responses(404), **_LINES})
async def export_everything(
    segue: SegueHere,
    user: Name = None,
    thread: Names = [],  # noqa: B006 - FastAPI copies it
) -> StreamingResponse:
    """Everything, triggers too: of all, of one user, or of some threads."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is sent
    try:
        async with aclosing(segue.export_all(Scope(threads=thread, user_id=user))) as lines:
            async for line in lines:
                file.write(line)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return _lines(_pieces(file), "export")


@admin.post(IMPORT.removeprefix(admin.prefix), responses=responses(409, 415))
async def import_export(
    segue: SegueHere,
    request: Request,
    *,
    remap: bool = False,
    skip_existing: bool = False,
    dry_run: bool = False,
) -> ImportedOut:
    """Take in a full export, which is the body: all of it, or nothing."""
    if request.headers.get("content-type", "").partition(";")[0].strip() not in _TAKEN:
        # A page of another origin can send plain text without asking.
        raise Refusal(415, "media_type", f"Send an export as Content-Type: {MEDIA_TYPE}.")
    with tempfile.TemporaryFile() as file:
        async for piece in request.stream():
            file.write(piece)
        came = await segue.import_file(
            file, remap=remap, skip_existing=skip_existing, dry_run=dry_run
        )
    return ImportedOut(
        imported=dict(came.rows), skipped=[*came.skipped], renamed=dict(came.renamed)
    )


def _lines(lines: AsyncIterator[bytes] | Iterator[bytes], name: str) -> StreamingResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"'}
    return StreamingResponse(lines, media_type=MEDIA_TYPE, headers=headers)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece

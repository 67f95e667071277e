"""The page: its documents and modules from the package; none of it is secret.

Addresses in them are relative, so that they also work in a mounted app. A strict policy forbids
everything but our own files: no inline script or style, no other host, no text that becomes HTML.
"""

import hashlib
from collections.abc import Iterator
from functools import cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from fastapi import APIRouter, Depends, Request, Response

from segue.server.access import require_local
from segue.server.problems import ApiError

router = APIRouter(include_in_schema=False, dependencies=[Depends(require_local)])
_page = partial(router.api_route, methods=["GET", "HEAD"])

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "media-src data: blob:",
        "manifest-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types lit-html segue-worker",
    )
)
_HEADERS: Final = {
    # Checked by its tag each time, so that an upgrade is never half in a cache.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
}
_TYPES: Final = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}


class _File(NamedTuple):
    body: bytes
    media_type: str
    tag: str


@cache
def page_files() -> dict[str, _File]:
    """All files of the page by their path, read once; no other path leads to a file."""

    def read(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, _File]]:
        for each in folder.iterdir():
            kind = each.name.rpartition(".")[2]
            if each.is_dir():
                yield from read(each, f"{prefix}{each.name}/")
            elif kind in _TYPES:
                body = each.read_bytes()
                tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
                yield f"{prefix}{each.name}", _File(body, _TYPES[kind], tag)

    return dict(read(files("segue.web")))


def _respond(request: Request, path: str) -> Response:
    found = page_files().get(path)
    if found is None:
        raise ApiError(404, "not_found", "There is no such file of the page.")
    headers = {**_HEADERS, "ETag": found.tag}
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)


@_page("/")
@_page("/outcomes")
@_page("/simulate")
async def page(request: Request) -> Response:
    """The chat with an inspector, what became of follow-ups, and policies compared; the last three
    are for operators. The document is one: its script reads the address.
    """
    return _respond(request, "index.html")


@_page("/sw.js")
async def service_worker(request: Request) -> Response:
    """At the top, because a service worker controls the paths below its address."""
    return _respond(request, "sw.js")


@_page("/web/{path:path}")
async def file(request: Request, path: str) -> Response:
    """A module, style or picture of the page."""
    return _respond(request, path)

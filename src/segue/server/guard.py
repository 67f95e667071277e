"""What a request may cost before it is believed: who calls is asked before the body is read, and a
body or frame of very many parts is refused before it is parsed.

A parser holds up everybody for as long as it takes, and what takes long is parts, not bytes.
"""

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from segue.server.access import caller_of

# Values and names in a body; messages have a few hundred at most.
MOST_PARTS: Final = 10_000
# Signs of JSON, in texts too: so many are refused without a closer look.
_MOST_SIGNS: Final = 30 * MOST_PARTS
_SIGNS: Final = (b",", b"[", b"{", b":", b'"')
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


class TooManyParts(HTTPException):
    """Of the kind that FastAPI passes on while it reads a body; anything else would be a 400."""

    def __init__(self) -> None:
        super().__init__(413, f"A body or frame of JSON has at most {MOST_PARTS} parts.")


def check_parts(body: bytes) -> None:
    """`TooManyParts` if JSON has more than a client of good will would send."""
    signs = sum(map(body.count, _SIGNS))
    if signs <= MOST_PARTS:
        return
    if signs > _MOST_SIGNS:
        raise TooManyParts
    # Each text leaves one sign, whatever is written in it.
    bare = _TEXT.sub(b'"', body)
    if sum(map(bare.count, _SIGNS)) > MOST_PARTS:
        raise TooManyParts


class GuardedRoute(APIRoute):
    """A route for callers who are known."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            request.state.caller = await caller_of(request)
            return await handle(_Bounded(request.scope, request.receive))

        return guarded


class _Bounded(Request):
    async def json(self) -> Any:
        body = await self.body()
        check_parts(body)
        return json.loads(body)

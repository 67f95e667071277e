"""Errors as problem details (RFC 9457): one shape for everything that goes wrong.

What Segue raises on purpose is told in its own words; of anything else the caller learns only that
it failed, since a foreign error's words may quote anything.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from segue.core.errors import (
    BackendError,
    ConflictError,
    DeniedError,
    NotFoundError,
    SegueError,
    UsageError,
)
from segue.server.mistakes import in_words, mistakes_in

logger = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
_PROBLEM: Final = "#/components/schemas/Problem"

_STATUSES: Final[tuple[tuple[type[SegueError], int, str], ...]] = (
    (UsageError, 422, "This cannot be right"),
    (NotFoundError, 404, "Not found"),
    (ConflictError, 409, "Not in this state"),
    (DeniedError, 403, "Not allowed"),
    (BackendError, 503, "Something behind the server failed"),
    (SegueError, 500, "The server failed"),
)
_TITLES: Final = {
    400: "Bad request",
    401: "Who are you?",
    404: "Not found",
    405: "Not here",
    413: "Too big",
    415: "Not in this form",
}
_CODES: Final = {400: "unreadable", 404: "not_found", 405: "method", 413: "too_big"}
# How many mistakes of one request are told.
_NAMED: Final = 20
# What any route may answer, whatever is asked.
_ALWAYS: Final = frozenset({400, 401, 403, 413, 422, 429, 503})


class Problem(BaseModel):
    """What went wrong. `code` is for programs and stays; `detail` is for people."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None = None
    errors: list[dict[str, str]] | None = Field(
        default=None, description="Each part of the request that is wrong, and how."
    )


class Refusal(Exception):
    """An answer other than success that is no error of Segue's core, such as 401 or 429."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})


def problem_of(error: Exception) -> Problem:
    """The problem that an exception is, without what must not be told."""
    if isinstance(error, Refusal):
        title = _TITLES.get(error.status, "Refused")
        return Problem(title=title, status=error.status, detail=error.detail, code=error.code)
    if isinstance(error, SegueError):
        status, title = next((s, t) for kind, s, t in _STATUSES if isinstance(error, kind))
        detail = str(error) if status < 500 else _behind(error)
        return Problem(title=title, status=status, detail=detail, code=error.code)
    return Problem(
        title="The server failed",
        status=500,
        detail="Something went wrong on our side; the server's log says what.",
        code="internal",
    )


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer besides success, for its documentation."""
    # Not as `model`: FastAPI would say that it comes as application/json.
    described = {"content": {MEDIA_TYPE: {"schema": {"$ref": _PROBLEM}}}}
    return {status: dict(described) for status in sorted({*statuses, *_ALWAYS})}


def install(app: FastAPI) -> None:
    """Have everything that goes wrong in `app` answered as a problem."""

    @app.exception_handler(Refusal)
    @app.exception_handler(SegueError)
    async def known(request: Request, error: Exception) -> JSONResponse:
        problem = problem_of(error)
        if problem.status >= 500 and not isinstance(error, Refusal):
            logger.error("%s %s failed: %s", request.method, request.url.path, error)
        return _answer(request, problem, getattr(error, "headers", None))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        wrong = mistakes_in(error.errors()[:_NAMED], error.body)
        problem = Problem(
            title="This cannot be right",
            status=422,
            detail=in_words(wrong, "The body"),
            code=UsageError.code,
            errors=wrong,
        )
        return _answer(request, problem)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        title = _TITLES.get(error.status_code, "Refused")
        code = _CODES.get(error.status_code, "http")
        detail = str(error.detail)
        problem = Problem(title=title, status=error.status_code, detail=detail, code=code)
        return _answer(request, problem, error.headers)

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> JSONResponse:
        # Starlette raises it again after the answer, so the traceback reaches the log.
        return _answer(request, problem_of(error))

    _document(app)


def _document(app: FastAPI) -> None:
    """Have the documentation know what a problem looks like; `responses` only names it."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        schema = made()
        known = schema.setdefault("components", {}).setdefault("schemas", {})
        known.setdefault("Problem", Problem.model_json_schema())
        return schema

    app.openapi = openapi  # type: ignore[method-assign] # as FastAPI's own documentation does


def _behind(error: SegueError) -> str:
    """A backend's words may name hosts and files; who calls needs to know only what to do."""
    del error
    return "The database or the model cannot be reached right now; try again in a moment."


def _answer(
    request: Request, problem: Problem, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    problem.request_id = getattr(request.state, "request_id", None)
    content = problem.model_dump(exclude_none=True)
    return JSONResponse(content, problem.status, dict(headers or {}), MEDIA_TYPE)

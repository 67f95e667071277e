"""Errors as problem details (RFC 9457), in one shape for every failure.

An error of Segue is reported with its own text. Of any other exception the caller learns only that
the server failed, because its text may quote anything.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from http.client import responses as phrases
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.types import Scope

from segue.core.text import one_line, storable
from segue.errors import (
    BackendError,
    ConflictError,
    DeniedError,
    NotFoundError,
    SegueError,
    UsageError,
)

logger = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
_SCHEMA: Final = "#/components/schemas/Problem"
_STATUSES: Final[tuple[tuple[type[SegueError], int], ...]] = (
    (UsageError, 422),
    (NotFoundError, 404),
    (ConflictError, 409),
    (DeniedError, 403),
    (BackendError, 503),
    (SegueError, 500),
)
# A backend's own text may name hosts and files.
_BEHIND: Final = "The database, the model or another service failed; try again soon."
_CODES: Final = {400: "unreadable", 404: "not_found", 405: "method", 413: "too_big"}
# Maximum number of errors reported for one request.
_MOST_ERRORS: Final = 20
# The first part of a field's location, which the route already shows.
_LOCATIONS: Final = frozenset({"body", "query", "path", "header"})
# Plain texts for pydantic's error types.
_TEXTS: Final[Mapping[str, str]] = {
    "missing": "missing",
    "extra_forbidden": "unknown",
    "string_type": "expected a text",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "enum": "expected {expected}",
    "literal_error": "expected {expected}",
    "string_too_short": "expected at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
    "greater_than_equal": "expected at least {ge}",
    "less_than_equal": "expected at most {le}",
    "union_tag_not_found": "expected a JSON object with a type",
    "union_tag_invalid": "unknown type; expected one of: {expected_tags}",
    "model_type": "expected a JSON object",
    "dict_type": "expected a JSON object",
    "model_attributes_type": "expected a JSON object, sent as Content-Type: application/json",
    "value_error": "{error}",
    "json_invalid": "is not valid JSON: {error}",
}
# Characters shown of a field's name: an unknown one comes from the client and may be huge.
_LONGEST_NAME: Final = 60


class ApiError(Exception):
    """An error response that is not an error of Segue's core, such as 401 or 429."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})


class ResponseCut(Exception):
    """Ends a response in the middle because the server stops; its client resumes one that is not
    whole, but takes one that ends for all there is.
    """


class Problem(BaseModel):
    """What went wrong. `code` is stable and for programs; `detail` is for people."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None = None
    errors: list[dict[str, str]] | None = Field(
        default=None, description="Each invalid part of the request."
    )


# How another protocol writes an error.
ErrorBody = Callable[[Problem], dict[str, Any]]


def problem_of(error: Exception) -> Problem:
    """The problem for an exception, without internal details."""
    status, code = 500, "internal"
    detail = "The server failed; its log has the reason."
    if isinstance(error, ApiError):
        status, code, detail = error.status, error.code, error.detail
    elif isinstance(error, HTTPException):
        status, detail = error.status_code, str(error.detail)
        code = _CODES.get(status, "http")
    elif isinstance(error, SegueError):
        status = next(status for kind, status in _STATUSES if isinstance(error, kind))
        code = error.code
        detail = str(error) if status < 500 else _BEHIND
    # A detail may quote the client, whose JSON may have half of an emoji, which no body can carry.
    return _problem(status, storable(detail), code)


def logged_problem(error: Exception, what: str) -> Problem:
    """The problem for an exception; the log gets what a backend says, which the caller does not."""
    problem = problem_of(error)
    if problem.status >= 500 and isinstance(error, SegueError):
        logger.error("%s failed: %s", what, error)
    return problem


def _problem(status: int, detail: str, code: str) -> Problem:
    # The title of `about:blank` is the phrase of the status (RFC 9457, 4.2.1).
    return Problem(title=phrases.get(status, "Error"), status=status, detail=detail, code=code)


def path_of(scope: Scope) -> str:
    """The path of a request, below the one that the app may be mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def problem_response(
    problem: Problem, scope: Scope, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The response of a problem, in the form of the protocol that the request's path belongs to."""
    problem.request_id = scope.get("state", {}).get("request_id")
    path = path_of(scope)
    bodies: Mapping[str, ErrorBody] = scope["app"].state.error_bodies
    for prefix, body in bodies.items():
        if path.startswith(prefix):
            return JSONResponse(body(problem), problem.status, dict(headers or {}))
    content = problem.model_dump(exclude_none=True)
    return JSONResponse(content, problem.status, dict(headers or {}), MEDIA_TYPE)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Error responses of a route, for the OpenAPI document."""
    # Not as `model`: FastAPI would document them as application/json.
    described = {"content": {MEDIA_TYPE: {"schema": {"$ref": _SCHEMA}}}}
    return {status: dict(described) for status in statuses}


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem."""

    # Starlette raises an unknown exception again after the response, so its traceback is logged.
    @app.exception_handler(Exception)
    @app.exception_handler(HTTPException)
    @app.exception_handler(ApiError)
    @app.exception_handler(SegueError)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        problem = logged_problem(error, f"{request.method} {request.url.path}")
        return problem_response(problem, request.scope, getattr(error, "headers", None))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = field_errors(error.errors()[:_MOST_ERRORS], error.body)
        problem = _problem(422, describe_errors(errors, "The body"), UsageError.code)
        problem.errors = errors
        return problem_response(problem, request.scope)

    made = app.openapi

    def openapi() -> dict[str, Any]:
        schema = made()
        known = schema.setdefault("components", {}).setdefault("schemas", {})
        known.setdefault("Problem", Problem.model_json_schema())
        return schema

    app.openapi = openapi  # type: ignore[method-assign] # as FastAPI's own documentation does


def expected(text: str) -> WrapValidator:
    """In an annotation: one error text for whatever is wrong with a field."""

    def check(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(given)
        except ValidationError:
            raise PydanticCustomError("expected", "expected {text}", {"text": text}) from None

    return WrapValidator(check)


def check_zone(moment: datetime) -> datetime:
    """A time with a time zone."""
    if moment.utcoffset() is None:
        context = {"moment": moment.isoformat()}
        raise PydanticCustomError("no_zone", "has no time zone; write {moment}Z", context)
    return moment


def field_errors(errors: Iterable[Any], body: Any = None) -> list[dict[str, str]]:
    """Pydantic's errors in plain words: `at` is the field, empty for the whole."""
    return [_field_error(error, body) for error in errors]


def describe_errors(errors: Iterable[Mapping[str, str]], whole: str) -> str:
    """All errors in one line; `whole` is the name of what was sent."""
    return "; ".join(_sentence(each["at"] or whole, each["what"]) for each in errors)


def describe_invalid(error: ValidationError, whole: str, skip: int = 0) -> str:
    """The first errors of a model as a sentence; `skip` names are left out of each place."""
    found = error.errors(include_url=False, include_input=False)[:5]
    for each in found:
        each["loc"] = each["loc"][skip:]
    return f"{describe_errors(field_errors(found), whole)}."


def _sentence(name: str, text: str) -> str:
    return f"{name} {text}" if text.startswith(("is ", "has ")) else f"{name}: {text}"


def _field_error(error: Any, body: Any) -> dict[str, str]:
    loc, kind, context = error["loc"], error["type"], error.get("ctx", {})
    if kind == "json_invalid":
        return {"at": "", "what": _TEXTS[kind].format(**context) + _place_in(body, loc)}
    names = loc[1:] if loc and loc[0] in _LOCATIONS else loc
    text = _TEXTS[kind].format(**context) if kind in _TEXTS else str(error["msg"])
    at = one_line(".".join(str(name)[:_LONGEST_NAME] for name in names))
    return {"at": storable(at), "what": storable(text)}


def _place_in(body: Any, loc: tuple[Any, ...]) -> str:
    """Line and column of invalid JSON."""
    if not isinstance(body, str) or not loc or not isinstance(loc[-1], int):
        return ""
    before = body[: loc[-1]]
    return f" at line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"

"""What failed in a model call or in custom code, in texts that quote no user.

For errors shown to users, retries, and log lines about custom graphs, tools and deciders. Whole
tracebacks are logged at DEBUG only.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from segue.errors import BackendError, SegueError


class ModelFailure(BackendError):
    """A model did not answer; `retry_after` is in seconds, if the provider sent it."""

    def __init__(
        self, text: str, *, kind: str, retryable: bool, retry_after: float | None = None
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.retryable = retryable
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    text: str
    # Names of exception classes of providers' clients, separated by spaces.
    classes: str = ""
    statuses: range | tuple[int, ...] = ()
    retryable: bool = False


# The first match counts: some clients' timeouts are connection errors, and all errors APIErrors.
_KINDS: Final = (
    _Kind(
        "context_overflow",
        "The conversation is too long for the model; lower the agent's context_tokens",
        "ContextOverflowError",
        (413,),
    ),
    _Kind(
        "timeout",
        "The model did not answer in time; try again, or raise the time limit",
        "APITimeoutError ModelTimeoutError TimeoutException TimeoutError DeadlineExceeded",
        (408, 504),
        retryable=True,
    ),
    _Kind(
        "authentication",
        "The provider does not accept the key; check it in the environment or in model_settings",
        "AuthenticationError ModelAuthenticationError Unauthenticated",
        (401,),
    ),
    _Kind(
        "permission",
        "The key may not use this model; check its permissions at the provider",
        "PermissionDeniedError ModelPermissionDeniedError PermissionDenied",
        (403,),
    ),
    _Kind(
        "model_not_found",
        "The provider does not know the model; check its name, and base_url if one is set",
        "NotFoundError ModelNotFoundError NotFound",
        (404,),
    ),
    _Kind(
        "rate_limit",
        "The provider's rate limit is reached; try again later, or raise the limit there",
        "RateLimitError ModelRateLimitError ResourceExhausted TooManyRequests",
        (429,),
        retryable=True,
    ),
    _Kind(
        "connection",
        "The provider cannot be reached; check the network, and base_url if one is set",
        "APIConnectionError ModelConnectionError TransportError ConnectionError",
        retryable=True,
    ),
    _Kind(
        "bad_request",
        "The provider refused the request; check the model's name and model_settings",
        "BadRequestError ModelInvalidRequestError UnprocessableEntityError",
        range(400, 500),
    ),
    _Kind(
        "server",
        "The provider failed; try again later",
        "InternalServerError ModelAPIError ServerError APIError",
        range(500, 600),
        retryable=True,
    ),
)
_UNKNOWN: Final = _Kind("unknown", "The reply failed")
_BY_NAME: Final = {kind.name: kind for kind in _KINDS}
# Error codes of OpenAI and compatible providers, which say more than the status.
_CODES: Final[Mapping[str, _Kind]] = {
    "context_length_exceeded": _BY_NAME["context_overflow"],
    "insufficient_quota": _Kind(
        "quota", "The account with the provider has no quota left; check its plan and billing"
    ),
}
# Google answers 400 to a wrong key.
_WRONG_KEY: Final = re.compile(r"API_KEY_INVALID|API key not valid")


def explain_model_error(error: BaseException) -> SegueError:
    """The error to show for one that a model raised: a `ModelFailure`, or Segue's own as it is."""
    if isinstance(error, SegueError):
        return error
    kind, status = _kind_of(error), _status_of(error)
    facts = type(error).__name__ if status is None else f"{type(error).__name__}, HTTP {status}"
    return ModelFailure(
        f"{kind.text} ({facts}).",
        kind=kind.name,
        retryable=kind.retryable,
        retry_after=_seconds_to_wait(error) if kind.retryable else None,
    )


def is_retryable(error: BaseException) -> bool:
    """Whether the same request may succeed later; takes a provider's error or an explained one."""
    if isinstance(error, SegueError):
        return isinstance(error, ModelFailure) and error.retryable
    return _kind_of(error).retryable


def _kind_of(error: BaseException) -> _Kind:
    if kind := _CODES.get(str(getattr(error, "code", None))):
        return kind
    names = {parent.__name__ for parent in type(error).__mro__}
    kind = next((k for k in _KINDS if names.intersection(k.classes.split())), None)
    if kind is None or kind.name == "server":
        # The status says more than a client's general error class.
        status = _status_of(error)
        kind = next((k for k in _KINDS if status in k.statuses), kind or _UNKNOWN)
    if kind.name == "bad_request" and _WRONG_KEY.search(str(error)):
        return _BY_NAME["authentication"]
    return kind


def _status_of(error: BaseException) -> int | None:
    for at in _layers(error):
        response = getattr(at, "response", None)
        for holder, name in ((at, "status_code"), (at, "code"), (response, "status_code")):
            if isinstance(status := getattr(holder, name, None), int):
                return status
    return None


def _seconds_to_wait(error: BaseException) -> float | None:
    for at in _layers(error):
        headers = getattr(getattr(at, "response", None), "headers", None)
        seconds = headers.get("retry-after") if isinstance(headers, Mapping) else None
        # A date is allowed too, but rare; the usual pause is right then.
        if seconds is not None and seconds.isdecimal():
            return float(seconds)
    return None


def _layers(error: BaseException) -> list[BaseException]:
    """An error and its cause: LangChain's errors do not always hold the response."""
    return [error] if error.__cause__ is None else [error, error.__cause__]


# Packages that call custom code: the fault is not in their frames.
_RUNNERS: Final = sys.stdlib_module_names - {"__main__"} | {
    "langchain",
    "langchain_core",
    "langgraph",
    "segue",
}
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


def describe_fault(error: BaseException) -> str:
    """The error's type, and the line of custom code that raised it."""
    place = place_of(error)
    return f"{type(error).__name__} at {place}" if place else type(error).__name__


def place_of(error: BaseException) -> str | None:
    """The innermost line of custom code, `file:line in function`; None if a library failed."""
    frames = [*_frames(error)] or [*_frames(error.__cause__)]
    own = [place for place in frames if not _INSTALLED.intersection(Path(place[0]).parts)]
    if not (own or frames):
        return None
    file, line, function = (own or frames)[-1]
    return f"{file}:{line} in {function}"


def _frames(error: BaseException | None) -> Iterator[tuple[str, int, str]]:
    """File, line and function of the frames outside `_RUNNERS`, outermost first."""
    step: TracebackType | None = error.__traceback__ if error else None
    while step is not None:
        frame = step.tb_frame
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _RUNNERS:
            yield frame.f_code.co_filename, step.tb_lineno, frame.f_code.co_qualname
        step = step.tb_next

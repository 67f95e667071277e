"""What the failure of a model means, in one error for all providers.

Read from the names of an error's classes and from its HTTP status, so that no provider's client
has to be imported. The provider's own words are not passed on: they may quote the conversation.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from segue.core.errors import BackendError, SegueError


class ModelFailure(BackendError):
    """A model did not answer: which `kind` of failure, and whether to try again, and when."""

    def __init__(
        self, text: str, *, kind: str, retryable: bool, retry_after: float | None = None
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.retryable = retryable
        # Seconds, where the provider said so.
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    text: str
    retryable: bool
    classes: frozenset[str]
    statuses: frozenset[int] = frozenset()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The first that fits: a timeout is a connection error for some clients, and every error of
# theirs is an APIError.
_KINDS: Final = (
    _Kind(
        "context_overflow",
        "The conversation is too long for the model; lower the agent's context_tokens",
        retryable=False,
        classes=_names("ContextOverflowError"),
        statuses=frozenset({413}),
    ),
    _Kind(
        "timeout",
        "The model did not answer in time; try again, or raise the time limit",
        retryable=True,
        classes=_names(
            "APITimeoutError ModelTimeoutError TimeoutException TimeoutError DeadlineExceeded"
        ),
        statuses=frozenset({408, 504}),
    ),
    _Kind(
        "authentication",
        "The provider does not accept the key; check it in the environment or in model_settings",
        retryable=False,
        classes=_names("AuthenticationError ModelAuthenticationError Unauthenticated"),
        statuses=frozenset({401}),
    ),
    _Kind(
        "permission",
        "The key may not use this model; check its rights with the provider",
        retryable=False,
        classes=_names("PermissionDeniedError ModelPermissionDeniedError PermissionDenied"),
        statuses=frozenset({403}),
    ),
    _Kind(
        "model_not_found",
        "The provider does not know the model; check its name, and base_url if one is set",
        retryable=False,
        classes=_names("NotFoundError ModelNotFoundError NotFound"),
        statuses=frozenset({404}),
    ),
    _Kind(
        "rate_limit",
        "The provider takes no more requests for now; try again later, or raise the limit there",
        retryable=True,
        classes=_names("RateLimitError ModelRateLimitError ResourceExhausted TooManyRequests"),
        statuses=frozenset({429}),
    ),
    _Kind(
        "connection",
        "The provider cannot be reached; check the network, and base_url if one is set",
        retryable=True,
        classes=_names("APIConnectionError ModelConnectionError TransportError ConnectionError"),
    ),
    _Kind(
        "bad_request",
        "The provider refused the request; check the model's name and model_settings",
        retryable=False,
        classes=_names("BadRequestError ModelInvalidRequestError UnprocessableEntityError"),
        statuses=frozenset(range(400, 500)),
    ),
    _Kind(
        "server",
        "The provider failed; try again later",
        retryable=True,
        classes=_names("InternalServerError ModelAPIError ServerError APIError"),
        statuses=frozenset(range(500, 600)),
    ),
)
_UNKNOWN: Final = _Kind("unknown", "The reply failed", retryable=False, classes=frozenset())
_NO_QUOTA: Final = _Kind(
    "quota",
    "The account with the provider has no quota left; check its plan and billing",
    retryable=False,
    classes=frozenset(),
)
_BY_NAME: Final = {kind.name: kind for kind in _KINDS}
# What OpenAI and those who speak like it say beside the status.
_CODES: Final[Mapping[str, _Kind]] = MappingProxyType(
    {
        "context_length_exceeded": _BY_NAME["context_overflow"],
        "insufficient_quota": _NO_QUOTA,
    }
)
# Google answers 400 to a wrong key.
_WRONG_KEY: Final = re.compile(r"API_KEY_INVALID|API key not valid")


def explain_model_error(error: BaseException) -> SegueError:
    """The error to show for one that a model raised: what failed and what to do.

    A `ModelFailure`, or the error itself where it is one of Segue's own.
    """
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
    kind = next((k for k in _KINDS if names & k.classes), None)
    if kind is None or kind.name == "server":
        # A client's general error class says less than the status.
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
        said = headers.get("retry-after") if isinstance(headers, Mapping) else None
        # A date is allowed too, but rare; waiting as usual is right then.
        if said is not None and said.isdecimal():
            return float(said)
    return None


def _layers(error: BaseException) -> list[BaseException]:
    """An error and the one it wraps: LangChain's own do not always carry the answer."""
    return [error] if error.__cause__ is None else [error, error.__cause__]

"""Webhooks: one delivery of an effect by HTTP, signed so that its receiver can trust it.

Owns the signature, the request and what its answer means; `verify` is shipped for receivers. When
to try again is said here (`next_try`) and done by whoever holds the outbox. A delivery may arrive
twice: its `Segue-Event-Id` is the same then. Errors do not name the target: users read them in
`why`, and its host may be an internal one, its path a secret.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from importlib.metadata import version
from typing import Any, Final

import httpx

from segue.core.errors import BackendError, UsageError
from segue.core.plain import plain_json
from segue.core.quiet import as_utc

SIGNATURE_HEADER: Final = "Segue-Signature"
EVENT_ID_HEADER: Final = "Segue-Event-Id"
TIME_LIMIT: Final = timedelta(seconds=10)
TOLERANCE: Final = timedelta(minutes=5)

_MIN_SECRET: Final = 16
_MAX_ANSWER_BYTES: Final = 1_024
_FIRST_PAUSE: Final = timedelta(seconds=5)
_LONGEST_PAUSE: Final = timedelta(hours=1)
_PAUSE_GROWTH: Final = 3
_MAX_ATTEMPTS: Final = 8
# Answers that speak of the moment and not of the request: timeout, too early, too many.
_PASSING: Final = frozenset({408, 425, 429})


class DeliveryError(BackendError):
    """A webhook was not delivered: why, and whether and when the same may succeed later."""

    code = "delivery"

    def __init__(
        self, reason: str, *, retryable: bool, retry_after: timedelta | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable
        # Where the receiver said so; never more than an hour.
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, repr=False)
class WebhookTarget:
    """Where to deliver, and the secret shared with the receiver. `UsageError` if unusable."""

    url: str
    secret: str

    def __post_init__(self) -> None:
        # What is wrong is not quoted: both values may hold secrets.
        if not _is_usable(self.url):
            raise UsageError(
                "A webhook's URL starts with http:// or https:// and names a host, as in "
                "https://example.org/hook; this one does not."
            )
        if len(self.secret) < _MIN_SECRET:
            raise UsageError(
                f"A webhook's secret has {len(self.secret)} characters; expected at least "
                f"{_MIN_SECRET}, so that it cannot be guessed."
            )

    @property
    def origin(self) -> str:
        """The part of the URL that may be shown."""
        url = httpx.URL(self.url)
        return f"{url.scheme}://{url.netloc.decode('ascii')}"

    def __repr__(self) -> str:
        return f"WebhookTarget({self.origin!r})"


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """The signature's header: the time in Unix seconds, and the HMAC-SHA256 of time and body."""
    return f"t={timestamp},v1={_digest(secret, timestamp, body)}"


def verify(
    secret: str,
    header: str | None,
    body: bytes,
    *,
    now: datetime,
    tolerance: timedelta = TOLERANCE,
) -> bool:
    """Whether `body` is what the holder of the secret signed, not longer ago than `tolerance`.

    For receivers: `body` is the request's bytes as they came, before any parsing. A header in any
    other shape, or none at all, is false, not an error. Takes the same time wherever a signature
    is wrong. Within the tolerance a request can be replayed; its event id tells.
    """
    fields = [part.strip().partition("=")[::2] for part in (header or "").split(",")]
    times = [value for name, value in fields if name == "t"]
    given = [value for name, value in fields if name == "v1"]
    if len(times) != 1 or not _is_number(times[0]):
        return False
    timestamp = int(times[0])
    if abs(as_utc(now).timestamp() - timestamp) > tolerance.total_seconds():
        return False
    expected = _digest(secret, timestamp, body).encode()
    # Several signatures are allowed, so that a secret can be changed without a gap; all of them
    # are compared, so that the time taken does not tell which one was right.
    matches = [hmac.compare_digest(expected, each.encode("utf-8", "replace")) for each in given]
    return any(matches)


def next_try(attempts: int, *, retry_after: timedelta | None = None) -> timedelta | None:
    """How long to wait after so many failed attempts, or None: it is given up.

    5 s, three times as long after each attempt, at most an hour, and never sooner than the
    receiver asked for. The same on every run, so that a record can be explained.
    """
    if attempts >= _MAX_ATTEMPTS:
        return None
    pause: timedelta = _FIRST_PAUSE * _PAUSE_GROWTH ** max(attempts - 1, 0)
    return min(max(pause, retry_after or timedelta()), _LONGEST_PAUSE)


_delivering: Final = ContextVar("delivering", default=False)


class _Unsaid(logging.Filter):
    """Keeps the client's own line about a delivery, which holds the whole URL, out of all logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        del record
        return not _delivering.get()


_UNSAID: Final = _Unsaid()


class Webhooks:
    """Delivers payloads, one request each. The client is the caller's to open and to close."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        clock: Callable[[], datetime],
        *,
        time_limit: timedelta = TIME_LIMIT,
    ) -> None:
        logging.getLogger("httpx").addFilter(_UNSAID)  # once, however often it is called
        self._client = client
        self._clock = clock
        self._time_limit = time_limit

    async def deliver(
        self, target: WebhookTarget, event_id: str, payload: Mapping[str, Any]
    ) -> str:
        """POST the payload as JSON and return the evidence that it was taken.

        Raises `DeliveryError` for anything but a 2xx answer within the time limit. The answer's
        head decides; of its body no more is read than frees the connection for the next request.
        """
        if not event_id.isascii() or not event_id.isprintable() or not event_id.strip():
            raise UsageError(f"The event id {event_id!r:.80} cannot be sent; expected plain ASCII.")
        body = json.dumps(plain_json(dict(payload)), ensure_ascii=False).encode()
        silence = _delivering.set(True)
        try:
            answer = await self._post(target, body, self._headers(target, event_id, body))
        finally:
            _delivering.reset(silence)
        if not answer.is_success:
            raise _refusal(answer, self._clock())
        return f"{answer.status_code} at {self._clock().isoformat(timespec='seconds')}"

    def _headers(self, target: WebhookTarget, event_id: str, body: bytes) -> dict[str, str]:
        # Signed anew on each attempt: an old time would be refused as a replay.
        return {
            "Content-Type": "application/json",
            "User-Agent": f"Segue/{version('segue')}",
            SIGNATURE_HEADER: sign(target.secret, int(self._clock().timestamp()), body),
            EVENT_ID_HEADER: event_id,
        }

    async def _post(
        self, target: WebhookTarget, body: bytes, headers: dict[str, str]
    ) -> httpx.Response:
        answer: httpx.Response | None = None
        limit = self._time_limit.total_seconds()
        try:
            # The client's own limits are per read, so an answer that drips could take for ever.
            async with (
                asyncio.timeout(limit),
                self._client.stream(
                    "POST",
                    target.url,
                    content=body,
                    headers=headers,
                    follow_redirects=False,
                    timeout=limit,
                ) as answer,
            ):
                await _read_a_little(answer)
        except (TimeoutError, httpx.TransportError) as error:
            # After the head it does not matter what becomes of the body.
            if answer is None:
                # Not as a cause: the client's error holds the request with its URL and signature.
                raise _unreachable(error) from None
        return answer


async def _read_a_little(answer: httpx.Response) -> None:
    """Short bodies to their end, so that the connection can be used again; raw, so that a small
    one cannot swell.
    """
    size = 0
    async for chunk in answer.aiter_raw():
        size += len(chunk)
        if size > _MAX_ANSWER_BYTES:
            return


def _unreachable(error: Exception) -> DeliveryError:
    slow = isinstance(error, TimeoutError | httpx.TimeoutException)
    what = "did not answer in time" if slow else "cannot be reached"
    return DeliveryError(f"The webhook {what} ({type(error).__name__}).", retryable=True)


def _refusal(answer: httpx.Response, now: datetime) -> DeliveryError:
    status = answer.status_code
    said = f"The webhook answered {status}"
    if status in _PASSING or status >= 500:
        wait = _retry_after(answer.headers.get("Retry-After", ""), now)
        return DeliveryError(f"{said}.", retryable=True, retry_after=wait)
    if 300 <= status < 400:
        said += ", a redirect, which is not followed: signed data goes only where it was meant to"
    return DeliveryError(f"{said}; it will not be tried again.", retryable=False)


def _retry_after(said: str, now: datetime) -> timedelta | None:
    """The pause a receiver asked for, in seconds or until a date, of an hour at most."""
    said = said.strip()
    if _is_number(said):
        return min(timedelta(seconds=int(said)), _LONGEST_PAUSE)
    try:
        until = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return None
    # A date without a zone is meant in UTC, as HTTP dates are.
    wait = (until if until.tzinfo else until.replace(tzinfo=UTC)) - now
    return min(max(wait, timedelta()), _LONGEST_PAUSE)


def _digest(secret: str, timestamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, sha256).hexdigest()


def _is_number(text: str) -> bool:
    """Plain digits, and few enough to be a moment or a time."""
    return text.isascii() and text.isdecimal() and len(text) <= 12


def _is_usable(text: str) -> bool:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return False
    # The client takes any number for a port, and fails only when it connects.
    is_port = url.port is None or 0 < url.port < 1 << 16
    return url.scheme in ("http", "https") and bool(url.host) and is_port

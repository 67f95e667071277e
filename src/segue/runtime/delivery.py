"""Webhook delivery: one signed HTTP request per effect, and what its response means.

`next_try` gives the pause before a retry; `EffectRunner` retries. Errors do not name the target:
users read them in `why`, and its host may be internal, its path a secret. Notifications are sent by
`post`, too.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Any, Final

import httpx

from segue.core.text import plain_json
from segue.errors import BackendError, UsageError
from segue.webhooks import EVENT_ID_HEADER, SIGNATURE_HEADER, sign, sign_standard

TIME_LIMIT: Final = timedelta(seconds=10)

_MIN_SECRET: Final = 16
_MAX_RESPONSE_BYTES: Final = 1_024
_FIRST_PAUSE: Final = timedelta(seconds=5)
_LONGEST_PAUSE: Final = timedelta(hours=1)
_PAUSE_GROWTH: Final = 3
_MAX_ATTEMPTS: Final = 8
# Statuses worth a retry besides 5xx: request timeout, too early, too many requests.
_TEMPORARY: Final = frozenset({408, 425, 429})


class DeliveryError(BackendError):
    """An effect was not delivered; says whether and when to retry."""

    code = "delivery"

    def __init__(
        self, reason: str, *, retryable: bool, retry_after: timedelta | None = None
    ) -> None:
        super().__init__(reason)
        self.retryable = retryable
        # From the receiver's Retry-After header; at most an hour.
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, repr=False)
class WebhookTarget:
    """A receiver's URL and the secret shared with it. `UsageError` if one is unusable."""

    url: str
    secret: str

    def __post_init__(self) -> None:
        # The errors do not quote the values: both may hold secrets.
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
        try:
            sign_standard(self.secret, "", 0, b"")
        except ValueError:
            raise UsageError(
                "A webhook's secret starts with 'whsec_', but the rest is not base64; expected "
                "base64, as Standard Webhooks prescribe, or a secret without 'whsec_'."
            ) from None

    @property
    def origin(self) -> str:
        """The part of the URL that is not secret."""
        url = httpx.URL(self.url)
        return f"{url.scheme}://{url.netloc.decode('ascii')}"

    def __repr__(self) -> str:
        return f"WebhookTarget({self.origin!r})"


def next_try(attempts: int, *, retry_after: timedelta | None = None) -> timedelta | None:
    """The pause after this many failed attempts; None to give up.

    5 s, then three times as long after each attempt, at most an hour, and never shorter than
    `retry_after`. No jitter, so that the recorded times can be explained.
    """
    if attempts >= _MAX_ATTEMPTS:
        return None
    pause: timedelta = _FIRST_PAUSE * _PAUSE_GROWTH ** max(attempts - 1, 0)
    return min(max(pause, retry_after or timedelta()), _LONGEST_PAUSE)


_delivering: Final = ContextVar("delivering", default=False)


class _HideDeliveries(logging.Filter):
    """Drops httpx's log line about a delivery, which holds the whole URL."""

    def filter(self, record: logging.LogRecord) -> bool:
        del record
        return not _delivering.get()


_HIDE_DELIVERIES: Final = _HideDeliveries()


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Delivers payloads, one request each. The caller opens and closes the client."""

    client: httpx.AsyncClient
    clock: Callable[[], datetime]
    time_limit: timedelta = TIME_LIMIT

    async def deliver(
        self, target: WebhookTarget, event_id: str, payload: Mapping[str, Any]
    ) -> str:
        """POST the payload; return status and time. `DeliveryError` unless it is 2xx in time."""
        if not event_id.isascii() or not event_id.isprintable() or not event_id.strip():
            raise UsageError(f"The event id {event_id!r:.80} cannot be sent; expected plain ASCII.")
        body = json.dumps(plain_json(dict(payload)), ensure_ascii=False).encode()
        headers = self._headers(target, event_id, body)
        response = await post(
            self.client, target.url, body, headers, "The webhook", self.time_limit
        )
        if not response.is_success:
            raise refusal(response, self.clock(), "The webhook")
        return evidence(response, self.clock())

    def _headers(self, target: WebhookTarget, event_id: str, body: bytes) -> dict[str, str]:
        # Each attempt has a new signature: the receiver refuses an old time as a replay.
        timestamp = int(self.clock().timestamp())
        return {
            **sign_standard(target.secret, event_id, timestamp, body),
            "Content-Type": "application/json",
            "User-Agent": f"Segue/{version('segue')}",
            SIGNATURE_HEADER: sign(target.secret, timestamp, body),
            EVENT_ID_HEADER: event_id,
        }


async def post(
    client: httpx.AsyncClient,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    receiver: str,
    time_limit: timedelta = TIME_LIMIT,
) -> httpx.Response:
    """The response without its body; no redirects. A `DeliveryError` names the `receiver`."""
    logging.getLogger("httpx").addFilter(_HIDE_DELIVERIES)  # a second call adds nothing
    response: httpx.Response | None = None
    limit = time_limit.total_seconds()
    token = _delivering.set(True)
    try:
        # The client's own timeouts are per read; a response that drips would never end.
        async with (
            asyncio.timeout(limit),
            client.stream(
                "POST", url, content=body, headers=headers, follow_redirects=False, timeout=limit
            ) as response,
        ):
            await _drain(response)
    except (TimeoutError, httpx.TransportError) as error:
        # Once the status is known, the rest of the response does not matter.
        if response is None:
            is_slow = isinstance(error, TimeoutError | httpx.TimeoutException)
            what = "did not answer in time" if is_slow else "cannot be reached"
            reason = f"{receiver} {what} ({type(error).__name__})."
            # No cause: the client's error holds the request with its URL and signature.
            raise DeliveryError(reason, retryable=True) from None
    finally:
        _delivering.reset(token)
    return response


def evidence(response: httpx.Response, now: datetime) -> str:
    return f"{response.status_code} at {now.isoformat(timespec='seconds')}"


async def _drain(response: httpx.Response) -> None:
    """Read a short body to its end, so that the connection can be reused; without decompressing."""
    size = 0
    async for chunk in response.aiter_raw():
        size += len(chunk)
        if size > _MAX_RESPONSE_BYTES:
            return


def refusal(response: httpx.Response, now: datetime, receiver: str) -> DeliveryError:
    """The error for an unsuccessful response."""
    status = response.status_code
    text = f"{receiver} answered {status}"
    if status in _TEMPORARY or status >= 500:
        wait = _retry_after(response.headers.get("Retry-After", ""), now)
        return DeliveryError(f"{text}.", retryable=True, retry_after=wait)
    if 300 <= status < 400:
        text += ", a redirect, which is not followed"
    return DeliveryError(f"{text}; it will not be retried.", retryable=False)


def _retry_after(header: str, now: datetime) -> timedelta | None:
    """The pause that the receiver asks for, in seconds or as a date; at most an hour."""
    header = header.strip()
    if header.isascii() and header.isdecimal() and len(header) <= 12:
        return min(timedelta(seconds=int(header)), _LONGEST_PAUSE)
    try:
        until = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    # An HTTP date without a zone is in UTC.
    wait = (until if until.tzinfo else until.replace(tzinfo=UTC)) - now
    return min(max(wait, timedelta()), _LONGEST_PAUSE)


def _is_usable(text: str) -> bool:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return False
    # httpx accepts any number as a port, and fails only when it connects.
    is_port = url.port is None or 0 < url.port < 1 << 16
    return url.scheme in ("http", "https") and bool(url.host) and is_port

"""Signatures: `verify` is for receivers of Segue's deliveries, `sign` for their tests.

A delivery may arrive twice; its `Segue-Event-Id` is then the same. Deliveries are also signed by
Standard Webhooks (https://www.standardwebhooks.com), whose libraries receivers may use instead;
`verify_standard` checks what other services send to Segue.
"""

import base64
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from segue.core.autonomy.local_time import as_utc

__all__ = [
    "EVENT_ID_HEADER",
    "SIGNATURE_HEADER",
    "TOLERANCE",
    "sign",
    "sign_standard",
    "verify",
    "verify_standard",
]

SIGNATURE_HEADER: Final = "Segue-Signature"
EVENT_ID_HEADER: Final = "Segue-Event-Id"
TOLERANCE: Final = timedelta(minutes=5)
STANDARD_PREFIX: Final = "whsec_"
_STANDARD_HEADERS: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """The signature header: the time in Unix seconds, and the HMAC-SHA256 of time and body."""
    return f"t={timestamp},v1={_digest(secret, timestamp, body)}"


def verify(
    secret: str,
    header: str | None,
    body: bytes,
    *,
    now: datetime,
    tolerance: timedelta = TOLERANCE,
) -> bool:
    """Whether `body` was signed with the secret, at most `tolerance` ago.

    `body` is the request's bytes before any parsing. A malformed or missing header is False, not
    an error. Within the tolerance a request can be replayed; compare its event id.
    """
    fields = [part.strip().partition("=")[::2] for part in (header or "").split(",")]
    times = [value for name, value in fields if name == "t"]
    given = [value for name, value in fields if name == "v1"]
    if len(times) != 1 or not _is_timestamp(times[0]):
        return False
    timestamp = int(times[0])
    return _is_recent(timestamp, now, tolerance) and _matches(
        _digest(secret, timestamp, body), given
    )


def sign_standard(secret: str, event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks. The key of a secret `whsec_…` is its base64, decoded; any
    other secret is the key itself.
    """
    is_encoded = secret.startswith(STANDARD_PREFIX)
    key = standard_key(secret) if is_encoded else secret.encode()
    signature = _standard_signature(key, event_id, str(timestamp), body)
    return dict(zip(_STANDARD_HEADERS, (event_id, str(timestamp), signature), strict=True))


def verify_standard(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: datetime,
    tolerance: timedelta = TOLERANCE,
) -> bool:
    """Whether `body` was signed with the secret, at most `tolerance` ago, by Standard Webhooks.

    A secret is `whsec_` and base64. `headers` are looked up in lower case.
    """
    event, time, signatures = (headers.get(name, "") for name in _STANDARD_HEADERS)
    if not event or not _is_timestamp(time) or not _is_recent(int(time), now, tolerance):
        return False
    try:
        key = standard_key(secret)
        expected = _standard_signature(key, event, time, body)
    except ValueError:
        return False
    return bool(key) and _matches(expected, signatures.split(" "))


def standard_key(secret: str) -> bytes:
    """The key in a secret `whsec_` and base64; `ValueError` if it is not base64."""
    return base64.b64decode(secret.removeprefix(STANDARD_PREFIX), validate=True)


def _standard_signature(key: bytes, event_id: str, time: str, body: bytes) -> str:
    signed = f"{event_id}.{time}.".encode("latin-1") + body
    return f"v1,{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}"


def is_recent(headers: Mapping[str, str], *, now: datetime) -> bool:
    """Whether the time that Standard Webhooks name in the headers is near enough to `now`."""
    time = headers.get("webhook-timestamp", "")
    return _is_timestamp(time) and _is_recent(int(time), now, TOLERANCE)


def _is_recent(timestamp: int, now: datetime, tolerance: timedelta) -> bool:
    return abs(as_utc(now).timestamp() - timestamp) <= tolerance.total_seconds()


def _matches(expected: str, given: Sequence[str]) -> bool:
    """Several signatures allow a secret to be rotated without a gap. All of them are compared, in
    constant time, so that the time taken does not reveal which one matched.
    """
    digest = expected.encode()
    matches = [hmac.compare_digest(digest, each.encode("utf-8", "replace")) for each in given]
    return any(matches)


def _digest(secret: str, timestamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, sha256).hexdigest()


def _is_timestamp(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 12

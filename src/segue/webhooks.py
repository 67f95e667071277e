"""The signature of webhook deliveries: `verify` is for receivers, `sign` for their tests.

A delivery may arrive twice; its `Segue-Event-Id` is then the same.
"""

import hmac
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from segue.core.autonomy.local_time import as_utc

__all__ = ["EVENT_ID_HEADER", "SIGNATURE_HEADER", "TOLERANCE", "sign", "verify"]

SIGNATURE_HEADER: Final = "Segue-Signature"
EVENT_ID_HEADER: Final = "Segue-Event-Id"
TOLERANCE: Final = timedelta(minutes=5)


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
    if abs(as_utc(now).timestamp() - timestamp) > tolerance.total_seconds():
        return False
    expected = _digest(secret, timestamp, body).encode()
    # Several signatures let a secret be replaced without a gap. All of them are compared, in
    # constant time, so that the time taken does not reveal which one matched.
    matches = [hmac.compare_digest(expected, each.encode("utf-8", "replace")) for each in given]
    return any(matches)


def _digest(secret: str, timestamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, sha256).hexdigest()


def _is_timestamp(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 12

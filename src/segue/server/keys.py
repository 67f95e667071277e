"""API keys: `sgu_<id>_<secret>`. The store keeps a digest; the secret is shown once.

The secret is 256 random bits, so a plain digest is as safe as a slow one, and fast.
"""

import hashlib
import hmac
import re
import secrets
from datetime import datetime
from typing import Final

from segue.journal.records import ApiKey

PREFIX: Final = "sgu_"
LONGEST_NAME: Final = 200
_FORM: Final = re.compile(r"sgu_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")


def is_name(text: str) -> bool:
    """Whether a key or a user can be called so."""
    return bool(text.strip()) and len(text) <= LONGEST_NAME and text.isprintable()


def new_key(
    name: str, user_id: str | None, now: datetime, *, is_operator: bool = False
) -> tuple[ApiKey, str]:
    """A key to store, and the words to hand out for it."""
    key_id = secrets.token_hex(6)
    secret = secrets.token_urlsafe(32)
    key = ApiKey(key_id, name, user_id, is_operator, _digest(secret), now)
    return key, f"{PREFIX}{key_id}_{secret}"


def read_key(words: str) -> tuple[str, str] | None:
    """The id and the secret in a caller's words; None if they are no key."""
    found = _FORM.fullmatch(words)
    return (found[1], found[2]) if found else None


def opens(key: ApiKey, secret: str) -> bool:
    """Whether a secret belongs to a key that still holds."""
    is_right = hmac.compare_digest(key.digest, _digest(secret))
    return is_right and key.revoked_at is None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()

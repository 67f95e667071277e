"""Web Push: a message that only one browser can read, and the token that identifies its sender.

Pure: keys, salts and times are arguments. RFC 8291 (encryption), 8188 (aes128gcm) and 8292 (VAPID).
"""

import base64
import binascii
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from segue.errors import UsageError

# Push services take bodies of 4,096 bytes; 103 of them are not the message.
MAX_BYTES: Final = 4_096 - 103
SALT_BYTES: Final = 16
AUTH_BYTES: Final = 16
_POINT_BYTES: Final = 65
_CURVE: Final = ec.SECP256R1()
_RECORD_BYTES: Final = 4_096
_LAST_RECORD: Final = b"\x02"
# Services refuse tokens that are valid for more than a day.
_VALID_FOR: Final = timedelta(hours=12)


def new_private_key() -> bytes:
    key = ec.generate_private_key(_CURVE)
    return key.private_numbers().private_value.to_bytes(32)


def load_private_key(raw: bytes) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(raw), _CURVE)


def public_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The public point as browsers write it, 65 bytes."""
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def to_base64(raw: bytes) -> str:
    """base64url without padding, as browsers write keys."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def read_public_key(text: str) -> bytes:
    """A browser's public key; `UsageError` if it is not a whole point of P-256."""
    raw = _read_base64(text)
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, raw)
    except ValueError:
        raw = b""
    # The compressed form is a point, too, but browsers do not send it.
    if len(raw) != _POINT_BYTES:
        raise UsageError("keys.p256dh is not a public key of P-256 in base64url.")
    return raw


def read_auth(text: str) -> bytes:
    if len(raw := _read_base64(text)) != AUTH_BYTES:
        raise UsageError(f"keys.auth is not {AUTH_BYTES} bytes in base64url.")
    return raw


def _read_base64(text: str) -> bytes:
    try:
        return base64.b64decode(f"{text}{'=' * (-len(text) % 4)}", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def encrypt(
    message: bytes,
    public_key: bytes,
    auth: bytes,
    *,
    sender: ec.EllipticCurvePrivateKey,
    salt: bytes,
) -> bytes:
    """The body for a browser. `sender` and `salt` are new for each message."""
    if len(message) > MAX_BYTES:
        raise UsageError(f"A push message has {len(message)} bytes; expected at most {MAX_BYTES}.")
    own = public_bytes(sender)
    browser = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, public_key)
    shared = sender.exchange(ec.ECDH(), browser)
    secret = _derive(shared, auth, b"WebPush: info\0" + public_key + own, 32)
    key = _derive(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(secret, salt, b"Content-Encoding: nonce\0", 12)
    header = salt + _RECORD_BYTES.to_bytes(4) + len(own).to_bytes(1) + own
    return header + AESGCM(key).encrypt(nonce, message + _LAST_RECORD, None)


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


def authorize(
    endpoint: str, key: ec.EllipticCurvePrivateKey, *, contact: str | None, now: datetime
) -> str:
    """The `Authorization` header for a push service: only it can use the token."""
    parts = urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": now + _VALID_FOR}
    token = jwt.encode(claims | ({"sub": contact} if contact else {}), key, "ES256")
    return f"vapid t={token}, k={to_base64(public_bytes(key))}"

"""A browser's side of Web Push: its keys, and how it reads what a push service hands over."""

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from segue.web_push import public_bytes, to_base64
from tests.runtime.receiver import Receiver


class Subscribed:
    """A browser with an address at the receiver, which is its push service here."""

    def __init__(self, receiver: Receiver, name: str = "phone") -> None:
        self.service = f"http://127.0.0.1:{receiver.server_port}"
        self.endpoint = f"{self.service}/send/{name}"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._auth = name.encode().ljust(16, b"-")[:16]
        self.p256dh = to_base64(public_bytes(self._key))
        self.auth = to_base64(self._auth)

    @property
    def body(self) -> dict[str, Any]:
        """What `PushSubscription.toJSON()` gives."""
        keys = {"p256dh": self.p256dh, "auth": self.auth}
        return {"endpoint": self.endpoint, "expirationTime": None, "keys": keys}

    def read(self, body: bytes) -> Any:
        """What the service worker gets of a body: RFC 8291 from the receiver's side."""
        salt, size, length = body[:16], body[16:20], body[20]
        sender = body[21 : 21 + length]
        assert int.from_bytes(size) >= len(body) - 21 - length
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        info = b"WebPush: info\0" + public_bytes(self._key) + sender
        secret = _derive(self._key.exchange(ec.ECDH(), point), self._auth, info, 32)
        key = _derive(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
        nonce = _derive(secret, salt, b"Content-Encoding: nonce\0", 12)
        padded = AESGCM(key).decrypt(nonce, body[21 + length :], None)
        assert padded[-1] == 2
        return json.loads(padded[:-1])


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)

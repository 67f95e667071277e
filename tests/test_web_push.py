"""Web Push: the standard's own example, tokens that verify, and keys that are refused."""

from datetime import UTC, datetime, timedelta

import jwt
import pytest

from segue.errors import UsageError
from segue.web_push import (
    MAX_BYTES,
    authorize,
    encrypt,
    load_private_key,
    new_private_key,
    public_bytes,
    read_auth,
    read_public_key,
    to_base64,
)

# RFC 8291, section 5.
TEXT = b"When I grow up, I want to be a watermelon"
SENDER = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
BROWSER = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
COMPRESSED = "AiVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcx"
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
SALT = "DGv6ra1nlYgDCS1FRnbzlw"
BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6T"
    "lzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4"
    "a-fN"
)
NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)


def raw(text: str) -> bytes:
    return jwt.utils.base64url_decode(text)


def test_the_example_of_the_standard_is_encrypted_as_it_says() -> None:
    """Byte by byte, so that every browser can read it."""
    sender = load_private_key(raw(SENDER))
    made = encrypt(TEXT, read_public_key(BROWSER), read_auth(AUTH), sender=sender, salt=raw(SALT))
    assert to_base64(made) == BODY


def test_the_largest_message_fills_what_push_services_take() -> None:
    """4,096 bytes; one more is refused before anything is sent."""
    keys = read_public_key(BROWSER), read_auth(AUTH)
    sender = load_private_key(raw(SENDER))
    assert len(encrypt(b"x" * MAX_BYTES, *keys, sender=sender, salt=raw(SALT))) == 4_096
    with pytest.raises(UsageError, match="3994 bytes"):
        encrypt(b"x" * (MAX_BYTES + 1), *keys, sender=sender, salt=raw(SALT))


def test_a_token_is_for_one_service_and_half_a_day() -> None:
    """It verifies with the key beside it, and names whom to write to, if that is set."""
    key = load_private_key(new_private_key())
    header = authorize("https://push.example.org/send/7?x", key, contact="mailto:a@b.org", now=NOW)
    scheme, token, shown = header.replace(",", "").split(" ")
    assert (scheme, shown) == ("vapid", f"k={to_base64(public_bytes(key))}")
    token = token.removeprefix("t=")
    claims = jwt.decode(
        token, key.public_key(), ["ES256"], options={"verify_exp": False, "verify_aud": False}
    )
    until = int((NOW + timedelta(hours=12)).timestamp())
    assert claims == {"aud": "https://push.example.org", "exp": until, "sub": "mailto:a@b.org"}
    unnamed = authorize("https://push.example.org/", key, contact=None, now=NOW)
    assert "sub" not in jwt.decode(unnamed.split(" ")[1][2:-1], options={"verify_signature": False})


@pytest.mark.parametrize("key", ["", "AAAA", BROWSER[:-4], "B" * 87, "é", AUTH, COMPRESSED])
def test_what_is_not_a_key_is_refused(key: str) -> None:
    """Before it is stored: a message for it could never be encrypted."""
    with pytest.raises(UsageError, match=r"keys\.p256dh"):
        read_public_key(key)


@pytest.mark.parametrize("auth", ["", "AAAA", f"{AUTH}AAAA", "é"])
def test_what_is_not_a_secret_of_a_browser_is_refused(auth: str) -> None:
    """It has 16 bytes."""
    with pytest.raises(UsageError, match=r"keys\.auth"):
        read_auth(auth)

"""Who may come in: keys, tokens, and nobody else."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread as SystemThread
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretStr

from segue.errors import BackendError, DeniedError, UsageError
from segue.journal.records import ApiKey
from segue.journal.sqlite import SqliteJournal
from segue.runtime.clock import SystemClock
from segue.server import auth
from segue.server.auth import Authenticator, Caller, RateLimit, new_key, parse_bearer
from segue.server.problems import ApiError
from segue.server.serving import check_bind
from segue.server.settings import JwtSettings, ServerSettings

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 16, tzinfo=UTC)
SECRET = "a secret of at least as many characters as the longest digest wants"  # noqa: S105 - of this test
HIDDEN = SecretStr(SECRET)
ANN = Caller("ann", is_operator=False, key="k")


class StoredKeys:
    """The keys of a journal; lookups are counted, and may be held up or fail."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._keys = journal.keys
        self.lookups = 0
        self.may_look = asyncio.Event()
        self.may_look.set()
        self.failure: Exception | None = None

    async def find_key(self, key_id: str) -> ApiKey | None:
        await self._look()
        return await self._keys.find(key_id)

    async def list_keys(self) -> list[ApiKey]:
        await self._look()
        return await self._keys.list_all()

    async def _look(self) -> None:
        self.lookups += 1
        await self.may_look.wait()
        if self.failure is not None:
            raise self.failure


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    opened = SqliteJournal(tmp_path / "journal.db")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Believe nothing that was looked up before."""
    monkeypatch.setattr(auth, "_CACHE_SECONDS", -1)


async def refused(callers: Authenticator, words: str | None, as_user: str | None = None) -> int:
    with pytest.raises(ApiError) as caught:
        await callers.authenticate(words, as_user)
    assert not words or words not in caught.value.detail
    return caught.value.status


async def test_without_keys_everybody_here_is_let_in(journal: SqliteJournal) -> None:
    """As whom they like; there is nobody to be protected from."""
    callers = Authenticator(StoredKeys(journal))
    assert await callers.authenticate(None, None) == Caller("me", is_operator=True, key="open")
    assert (await callers.authenticate(None, "ann")).user_id == "ann"


@pytest.mark.usefixtures("looks_again")
async def test_the_first_key_closes_the_door(journal: SqliteJournal) -> None:
    """From then on everybody has to say who they are, also when the last one is revoked."""
    callers = Authenticator(StoredKeys(journal))
    assert await callers.is_open()
    key, _ = new_key("laptop", "ann", NOW)
    await journal.keys.add(key)
    assert await refused(callers, None, "ann") == 401
    await journal.keys.revoke(key.id, now=NOW)
    assert await refused(callers, None, "ann") == 401


async def test_a_key_speaks_for_its_user_alone(journal: SqliteJournal) -> None:
    """Whoever the request names besides."""
    key, words = new_key("laptop", "ann", NOW)
    await journal.keys.add(key)
    caller = await Authenticator(StoredKeys(journal)).authenticate(words, "bob")
    assert caller == Caller("ann", is_operator=False, key=key.id)
    with pytest.raises(DeniedError):
        caller.check_operator()


async def test_a_key_for_many_names_its_user(journal: SqliteJournal) -> None:
    """A program that serves many people says for whom; without a name nobody is meant."""
    key, words = new_key("backend", None, NOW)
    await journal.keys.add(key)
    callers = Authenticator(StoredKeys(journal))
    assert (await callers.authenticate(words, "ann")).user_id == "ann"
    assert await refused(callers, words) == 400
    assert await refused(callers, words, "x" * 201) == 400
    assert await refused(callers, words, "line\nbreak") == 400


@pytest.mark.usefixtures("looks_again")
async def test_wrong_and_revoked_keys_open_nothing(journal: SqliteJournal) -> None:
    """Another secret, an unknown id, half a key, and one that was good before."""
    key, words = new_key("laptop", "ann", NOW)
    _, other = new_key("laptop", "ann", NOW)
    await journal.keys.add(key)
    callers = Authenticator(StoredKeys(journal))
    mixed = words[:17] + other[17:]
    for wrong in (other, mixed, words[:-1], words + "x", "sgu_", "Basic x", "", "sgu_x"):
        assert await refused(callers, wrong) == 401
    await callers.authenticate(words, None)
    await journal.keys.revoke(key.id, now=NOW)
    assert await refused(callers, words) == 401


@pytest.mark.parametrize("has_key", [True, False])
async def test_callers_at_the_same_time_share_one_lookup(
    journal: SqliteJournal, has_key: bool
) -> None:
    """Also if the first of them disconnects before it is authenticated."""
    key, words = new_key("laptop", "ann", NOW)
    if has_key:
        await journal.keys.add(key)
    keys = StoredKeys(journal)
    keys.may_look.clear()
    authenticator = Authenticator(keys)
    shown = words if has_key else None
    callers = [asyncio.create_task(authenticator.authenticate(shown, "ann")) for _ in range(50)]
    await asyncio.sleep(0)
    callers[0].cancel()
    await asyncio.wait(callers[:1])
    keys.may_look.set()
    assert {caller.user_id for caller in await asyncio.gather(*callers[1:])} == {"ann"}
    assert keys.lookups == 1


@pytest.mark.parametrize("has_key", [True, False])
async def test_a_look_that_failed_is_not_believed(journal: SqliteJournal, has_key: bool) -> None:
    """The next caller is let in as soon as the database answers again."""
    key, words = new_key("laptop", "ann", NOW)
    if has_key:
        await journal.keys.add(key)
    keys = StoredKeys(journal)
    keys.failure = BackendError("Away.")
    callers = Authenticator(keys)
    shown = words if has_key else None
    with pytest.raises(BackendError):
        await callers.authenticate(shown, "ann")
    keys.failure = None
    assert (await callers.authenticate(shown, "ann")).user_id == "ann"


async def test_a_secret_is_not_stored_and_not_shown(journal: SqliteJournal, tmp_path: Path) -> None:
    """Neither in the database nor in a record's text."""
    key, words = new_key("laptop", "ann", NOW)
    await journal.keys.add(key)
    secret = words.rsplit("_", 1)[1]
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())  # noqa: ASYNC240
    assert key.id.encode() in stored
    assert secret.encode() not in stored
    assert repr(key.digest) not in repr(key)


def token(key: Any = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    given = {"sub": "ann", "exp": int(SystemClock().now().timestamp()) + 60} | claims
    return jwt.encode({n: v for n, v in given.items() if v is not None}, key, algorithm)


async def test_a_signed_token_names_the_user(journal: SqliteJournal) -> None:
    """And the scope `operator` opens more."""
    settings = JwtSettings(secret=HIDDEN, audience="segue", issuer="us")
    callers = Authenticator(StoredKeys(journal), settings)
    good = {"aud": "segue", "iss": "us"}
    caller = await callers.authenticate(token(**good), "bob")
    assert (caller.user_id, caller.is_operator) == ("ann", False)
    assert (await callers.authenticate(token(**good, scope="read operator"), None)).is_operator
    assert (await callers.authenticate(token(**good, scope=["operator"]), None)).is_operator
    assert not (await callers.authenticate(token(**good, scope="operators"), None)).is_operator


@pytest.mark.parametrize(
    "wrong",
    [
        {"exp": 1},
        {"exp": None},
        {"sub": None},
        {"sub": ""},
        {"aud": "others"},
        {"aud": None},
        {"iss": "others"},
        {"key": "another secret of as many characters as the longest digest wants"},
        {"algorithm": "none", "key": None},
        {"algorithm": "HS512"},
    ],
)
async def test_a_token_that_does_not_hold_opens_nothing(
    journal: SqliteJournal, wrong: dict[str, Any]
) -> None:
    """Expired, unsigned, for others, by others, of nobody, or signed in another way."""
    callers = Authenticator(
        StoredKeys(journal), JwtSettings(secret=HIDDEN, audience="segue", issuer="us")
    )
    given = {"aud": "segue", "iss": "us"} | wrong
    assert await refused(callers, token(**given)) in {400, 401}


async def test_with_tokens_set_up_nobody_is_let_in_without(journal: SqliteJournal) -> None:
    """Although there is no key."""
    callers = Authenticator(StoredKeys(journal), JwtSettings(secret=HIDDEN))
    assert await refused(callers, None) == 401


async def test_tokens_of_a_published_key(journal: SqliteJournal) -> None:
    """By a public key that is set, and by one that the signer publishes."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = private.public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()
    published = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(public)) | {"kid": "one"}

    class Publisher(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"keys": [published]}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Publisher)
    SystemThread(target=server.serve_forever, daemon=True).start()
    try:
        claims = {"sub": "ann", "exp": int(SystemClock().now().timestamp()) + 60}
        words = jwt.encode(claims, private, "RS256", headers={"kid": "one"})
        unknown = jwt.encode(claims, private, "RS256", headers={"kid": "two"})
        url = f"http://127.0.0.1:{server.server_port}/keys"
        for settings in (JwtSettings(public_key=pem), JwtSettings(jwks_url=url)):
            callers = Authenticator(StoredKeys(journal), settings)
            assert (await callers.authenticate(words, None)).user_id == "ann"
            # Signed with the public key as if it were a shared secret.
            assert await refused(callers, forged(pem)) == 401
        assert await refused(callers, unknown) == 401
    finally:
        server.shutdown()
        server.server_close()


def forged(pem: str) -> str:
    import base64  # noqa: PLC0415 - only a forger needs it
    import hashlib  # noqa: PLC0415
    import hmac  # noqa: PLC0415

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    body = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'one'})}.{part({'sub': 'ann'})}"
    signed = hmac.new(pem.encode(), body.encode(), hashlib.sha256).digest()
    return f"{body}.{base64.urlsafe_b64encode(signed).decode().rstrip('=')}"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"secret": SECRET, "public_key": "x"},
        {"secret": "short"},
        {"secret": SECRET, "algorithms": ["RS256"]},
        {"public_key": "x", "algorithms": ["HS256"]},
        {"secret": SECRET, "algorithms": ["none"]},
    ],
)
def test_settings_of_tokens_that_would_be_unsafe_are_refused(wrong: dict[str, Any]) -> None:
    """No key or two, a short secret, and algorithms that do not go with the key."""
    with pytest.raises(UsageError):
        JwtSettings.parse(wrong, "server.jwt")


def test_who_asks_too_often_has_to_wait() -> None:
    """The bucket fills again with time, and is each caller's own."""
    now = 0.0
    rate = RateLimit(60, clock=lambda: now)
    for _ in range(60):
        rate.take(ANN)
    with pytest.raises(ApiError) as caught:
        rate.take(ANN)
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "2"})
    rate.take(Caller("bob", is_operator=False, key="k"))
    now = 1.0
    rate.take(ANN)
    with pytest.raises(ApiError):
        rate.take(ANN)
    for _ in range(1_000):
        RateLimit(None).take(ANN)


@pytest.mark.parametrize("header", ["Basic abc", "Bearer", "Bearer  ", "sgu_x"])
def test_a_header_of_another_kind_is_refused(header: str) -> None:
    """Without saying what stood in it."""
    with pytest.raises(ApiError) as caught:
        parse_bearer(header)
    assert caught.value.status == 401


def test_a_public_address_needs_a_key() -> None:
    """The message says why, and what to do."""
    for host in ("127.0.0.1", "localhost", "::1"):
        check_bind(ServerSettings(host=host), has_keys=False)
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):  # noqa: S104 - refused
        with pytest.raises(UsageError, match="segue keys create"):
            check_bind(ServerSettings(host=host), has_keys=False)
        check_bind(ServerSettings(host=host), has_keys=True)
        check_bind(ServerSettings(host=host, jwt=JwtSettings(secret=HIDDEN)), has_keys=False)


async def test_a_signer_that_is_away_makes_no_token_invalid(journal: SqliteJournal) -> None:
    """With 401, clients would sign their users out. One that has expired is invalid as ever."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/keys"
    callers = Authenticator(StoredKeys(journal), JwtSettings(jwks_url=url))
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    now = int(SystemClock().now().timestamp())
    good, old = (
        jwt.encode({"sub": "ann", "exp": now + more}, private, "RS256", headers={"kid": "one"})
        for more in (60, -60)
    )
    with pytest.raises(BackendError, match="keys of tokens"):
        await callers.authenticate(good, None)
    assert await refused(callers, old) == 401

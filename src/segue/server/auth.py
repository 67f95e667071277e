"""Authenticates callers: by API key, by JWT, or, if neither is set up, anyone on this machine."""

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

import jwt
from starlette.requests import HTTPConnection

from segue.core.text import LONGEST_NAME
from segue.errors import BackendError, DeniedError
from segue.journal.records import ApiKey
from segue.server.problems import ApiError
from segue.server.settings import JwtSettings

T = TypeVar("T")

PREFIX: Final = "sgu_"
_KEY: Final = re.compile(r"sgu_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
OPERATOR: Final = "operator"
# Names the user of a request whose key may act for any user.
USER_HEADER: Final = "Segue-User"
# A key is looked up again after this time; until then a revoked one may still work.
_CACHE_SECONDS: Final = 5.0
_MAX_CACHED: Final = 10_000
_TOKEN_ERRORS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it is not valid yet (nbf)"),
    (jwt.InvalidAudienceError, "it is for another audience (aud)"),
    (jwt.InvalidIssuerError, "it is from another issuer (iss)"),
    (jwt.InvalidSignatureError, "its signature does not match"),
    (jwt.InvalidAlgorithmError, "its algorithm (alg) is not allowed"),
    (jwt.PyJWKClientError, "the key of its signer was not found"),
    (jwt.DecodeError, "it cannot be read as a JWT"),
)


def is_name(text: str) -> bool:
    """Whether a text can be the name of a key or a user."""
    return bool(text.strip()) and len(text) <= LONGEST_NAME and text.isprintable()


def new_key(
    name: str, user_id: str | None, now: datetime, *, is_operator: bool = False
) -> tuple[ApiKey, str]:
    """A key to store, and the text to hand out for it."""
    key_id = secrets.token_hex(6)
    secret = secrets.token_urlsafe(32)
    key = ApiKey(key_id, name, user_id, is_operator, _digest(secret), now)
    return key, f"{PREFIX}{key_id}_{secret}"


def parse_key(text: str) -> tuple[str, str] | None:
    """The id and the secret of a key; None if the text is not a key."""
    found = _KEY.fullmatch(text)
    return (found[1], found[2]) if found else None


def is_valid(key: ApiKey, secret: str) -> bool:
    """Whether a secret belongs to a key that is not revoked."""
    return hmac.compare_digest(key.digest, _digest(secret)) and key.revoked_at is None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, and the key or token that the rate limit counts."""

    user_id: str
    is_operator: bool
    key: str
    # Its key acts for the users that it names.
    is_program: bool = False

    def check_program(self) -> None:
        """A prompt is an instruction to the model that no user reads, so no user may set one."""
        if not (self.is_program or self.is_operator):
            raise DeniedError(
                "This needs a program's key (`segue keys create --any-user`) or an operator's."
            )

    def check_operator(self) -> None:
        if not self.is_operator:
            raise DeniedError("This needs an operator's key, or a token with the scope operator.")


@dataclass(frozen=True, slots=True)
class Identity:
    """The user of a request, as authenticated by the app that embeds Segue."""

    user_id: str
    is_operator: bool = False


# Takes a request or a socket; returns None if the app does not know its user.
Authenticate = Callable[[HTTPConnection], Awaitable[Identity | None]]


class KeyStore(Protocol):
    """Where API keys are stored; a `Segue` is one."""

    async def find_key(self, key_id: str) -> ApiKey | None: ...

    async def list_keys(self) -> list[ApiKey]: ...


class Authenticator:
    """Finds the caller of a key or token. Lookups in the store are cached for five seconds."""

    def __init__(self, keys: KeyStore, tokens: JwtSettings | None = None) -> None:
        self._keys = keys
        self._tokens = _Tokens(tokens) if tokens else None
        self._cached: dict[str, _Lookup[ApiKey | None]] = {}
        self._no_keys: _Lookup[bool] | None = None

    async def is_open(self) -> bool:
        """Whether callers need no credentials: there never was a key, and no JWT is set up.

        Revoking the last key does not open the server again.
        """
        if self._tokens is not None:
            return False
        if self._no_keys is None or not self._no_keys.is_fresh:
            self._no_keys = _Lookup(self._has_no_key())
        return await self._no_keys.result()

    async def authenticate(self, credentials: str | None, user: str | None) -> Caller:
        """The caller of some credentials; `ApiError` with 401 if they are not valid."""
        if credentials is None:
            if await self.is_open():
                return Caller(_check_user(user or "me"), is_operator=True, key="open")
            raise _unauthorized("Send a key or token: Authorization: Bearer <key or token>.")
        if credentials.startswith(PREFIX):
            return await self._by_key(credentials, user)
        if self._tokens is None:
            raise _unauthorized("This is not a key of this server.")
        return await self._tokens.authenticate(credentials)

    async def _by_key(self, text: str, user: str | None) -> Caller:
        parsed = parse_key(text)
        key = await self._find(parsed[0]) if parsed else None
        if parsed is None or key is None or not is_valid(key, parsed[1]):
            raise _unauthorized("This key is unknown or was revoked.")
        if key.user_id is not None:
            return Caller(key.user_id, key.is_operator, key.id)
        if not user and not key.is_operator:
            raise ApiError(400, "user", f"Name the user of this request in {USER_HEADER}.")
        named = _check_user(user or key.name)
        return Caller(named, key.is_operator, key.id, is_program=True)

    async def _find(self, key_id: str) -> ApiKey | None:
        lookup = self._cached.get(key_id)
        if lookup is None or not lookup.is_fresh:
            if len(self._cached) >= _MAX_CACHED:  # a client is guessing ids
                self._cached.clear()
            lookup = self._cached[key_id] = _Lookup(self._keys.find_key(key_id))
        return await lookup.result()

    async def _has_no_key(self) -> bool:
        return not await self._keys.list_keys()


class _Lookup(Generic[T]):
    """A cached lookup in the store, shared by all callers that wait for it.

    Behind a lock, a thousand sockets that ask at once would be looked up one after the other.
    """

    def __init__(self, lookup: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.create_task(lookup)
        self._began = time.monotonic()

    @property
    def is_fresh(self) -> bool:
        """Whether the result may be used; a lookup that failed has none."""
        if time.monotonic() - self._began > _CACHE_SECONDS:
            return False
        task = self._task
        return not task.done() or not (task.cancelled() or task.exception())

    async def result(self) -> T:
        # Shield: a disconnecting caller must not cancel a lookup shared by others.
        return await asyncio.shield(self._task)


class _Tokens:
    """Authenticates by JWT."""

    def __init__(self, settings: JwtSettings) -> None:
        self._settings = settings
        self._jwks = jwt.PyJWKClient(settings.jwks_url) if settings.jwks_url else None

    async def authenticate(self, token: str) -> Caller:
        settings = self._settings
        try:
            claims = jwt.decode(
                token,
                await self._key_of(token),
                algorithms=settings.allowed_algorithms,
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway,
                options={"require": ["exp", settings.user_claim]},
            )
        except (jwt.PyJWTError, ValueError) as error:
            raise _unauthorized(f"This token is not valid: {token_error(error)}.") from None
        user = claims[settings.user_claim]
        if not isinstance(user, str):
            raise _unauthorized(f"The token's claim {settings.user_claim} is not a text.")
        is_operator = OPERATOR in _scopes(claims.get(settings.scope_claim))
        return Caller(_check_user(user), is_operator, f"jwt:{user}")

    async def _key_of(self, token: str) -> Any:
        if self._jwks is not None:
            try:  # may block on the network
                found = await asyncio.to_thread(self._jwks.get_signing_key_from_jwt, token)
            except jwt.PyJWKClientConnectionError as error:
                jwt.decode(  # one that has expired is not valid all the same
                    token,
                    options={"verify_signature": False, "verify_exp": True},
                    leeway=self._settings.leeway,
                )
                # With 401, clients would sign their users out.
                raise BackendError(f"The keys of tokens could not be read: {error}.") from error
            return found.key
        if self._settings.secret is not None:
            return self._settings.secret.get_secret_value()
        return self._settings.public_key


def token_error(error: Exception) -> str:
    """Why a token is not valid, without any of its content."""
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"its claim {error.claim} is missing"
    found = (text for kind, text in _TOKEN_ERRORS if isinstance(error, kind))
    return next(found, "it is malformed")


class Bucket:
    """A bucket of permits that starts full and refills; times are seconds of a monotonic clock."""

    __slots__ = ("_at", "_left", "_size")

    def __init__(self, per_minute: int, now: float) -> None:
        self._size = float(per_minute)
        self._left = self._size
        self._at = now

    def take(self, count: int, now: float) -> bool:
        """Take `count` permits; False, and none is taken, if there are fewer."""
        self._left, self._at = self._filled(now), now
        if self._left < count:
            return False
        self._left -= count
        return True

    def seconds_until_one(self, now: float) -> float:
        return max(0.0, (1 - self._filled(now)) * 60 / self._size)

    def is_full(self, now: float) -> bool:
        return self._filled(now) >= self._size

    def _filled(self, now: float) -> float:
        return min(self._size, self._left + (now - self._at) * self._size / 60)


class RateLimit:
    """Limits requests and frames per key and user."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def take(self, caller: Caller) -> None:
        """`ApiError` with 429 if the caller has to wait."""
        if self._per_minute is None:
            return
        now, name = self._clock(), f"{caller.key}:{caller.user_id}"
        bucket = self._buckets.setdefault(name, Bucket(self._per_minute, now))
        if not bucket.take(1, now):
            wait = max(1, round(bucket.seconds_until_one(now) + 0.5))
            detail = f"Too many requests; at most {self._per_minute} per minute are allowed."
            raise ApiError(429, "rate", detail, {"Retry-After": str(wait)})
        if len(self._buckets) > _MAX_CACHED:
            self._buckets = {n: b for n, b in self._buckets.items() if not b.is_full(now)}


def parse_bearer(header: str | None) -> str | None:
    """The credentials of an Authorization header; None without a header."""
    if header is None:
        return None
    scheme, _, credentials = header.partition(" ")
    if scheme.lower() != "bearer" or not credentials.strip():
        raise _unauthorized("Authorization must have the form: Bearer <key or token>.")
    return credentials.strip()


def _scopes(claim: Any) -> list[str]:
    if isinstance(claim, str):
        return claim.split()
    return [*map(str, claim)] if isinstance(claim, list) else []


def _check_user(name: str) -> str:
    if not is_name(name):
        detail = f"A user's name must have 1 to {LONGEST_NAME} printable characters."
        raise ApiError(400, "user", detail)
    return name


def _unauthorized(detail: str) -> ApiError:
    return ApiError(401, "unauthorized", detail, {"WWW-Authenticate": 'Bearer realm="segue"'})

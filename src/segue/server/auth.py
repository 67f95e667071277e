"""Who is calling: by API key, by JWT, or, where neither is set up, anyone on this machine."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import jwt

from segue.core.errors import DeniedError
from segue.journal.ports import Keys
from segue.journal.records import ApiKey
from segue.server.keys import LONGEST_NAME, PREFIX, is_name, opens, read_key
from segue.server.mistakes import token_words
from segue.server.problems import Refusal
from segue.server.settings import JwtSettings

T = TypeVar("T")

OPERATOR: Final = "operator"
# Whom a request is for, where its key speaks for many.
USER_HEADER: Final = "Segue-User"
# How long a key is believed without looking again; so long a revoked one may still open.
_BELIEVED_SECONDS: Final = 5.0
_MAX_BELIEVED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, and by which key: that is what a rate is counted for."""

    user_id: str
    is_operator: bool
    key: str

    def check_operator(self) -> None:
        if not self.is_operator:
            raise DeniedError("This is for operators; your key or token has no such scope.")


class Doorkeeper:
    """Lets callers in."""

    def __init__(self, keys: Keys, tokens: JwtSettings | None = None) -> None:
        self._keys = keys
        self._tokens = _Tokens(tokens) if tokens else None
        self._believed: dict[str, _Look[ApiKey | None]] = {}
        self._is_keyless: _Look[bool] | None = None

    async def is_open(self) -> bool:
        """Whether nobody has to say who they are: there never was a key, and no token is known.

        Revoking the last key must not open what it closed.
        """
        if self._tokens is not None:
            return False
        if self._is_keyless is None or not self._is_keyless.holds:
            self._is_keyless = _Look(self._has_no_key())
        return await self._is_keyless.found()

    async def let_in(self, words: str | None, as_user: str | None) -> Caller:
        """Who the bearer of some words is; `Refusal` with 401 if that cannot be known."""
        if words is None:
            if await self.is_open():
                return Caller(_user(as_user or "me"), is_operator=True, key="open")
            raise _unknown("Say who you are: Authorization: Bearer <key or token>.")
        if words.startswith(PREFIX):
            return await self._by_key(words, as_user)
        if self._tokens is None:
            raise _unknown("This is no key of this server.")
        return await self._tokens.caller(words)

    async def _by_key(self, words: str, as_user: str | None) -> Caller:
        read = read_key(words)
        key = await self._find(read[0]) if read else None
        if read is None or key is None or not opens(key, read[1]):
            raise _unknown("This key opens nothing; it is unknown or was revoked.")
        if key.user_id is not None:
            return Caller(key.user_id, key.is_operator, key.id)
        if not as_user and not key.is_operator:
            raise Refusal(400, "user", f"Name the user that this is for, by {USER_HEADER}.")
        return Caller(_user(as_user or key.name), key.is_operator, key.id)

    async def _find(self, key_id: str) -> ApiKey | None:
        look = self._believed.get(key_id)
        if look is None or not look.holds:
            if len(self._believed) >= _MAX_BELIEVED:  # somebody tries out ids
                self._believed.clear()
            look = self._believed[key_id] = _Look(self._keys.find_key(key_id))
        return await look.found()

    async def _has_no_key(self) -> bool:
        return not await self._keys.list_keys()


class _Look(Generic[T]):
    """A look into the store that is believed for a while; who asks meanwhile waits for it, too.

    A thousand sockets may ask at once. A lock would let them pass one after the other.
    """

    def __init__(self, look: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.create_task(look)
        self._begun_at = time.monotonic()

    @property
    def holds(self) -> bool:
        """Whether it need not be looked again; a look that failed told nothing."""
        if time.monotonic() - self._begun_at > _BELIEVED_SECONDS:
            return False
        task = self._task
        return not task.done() or not (task.cancelled() or task.exception())

    async def found(self) -> T:
        return await asyncio.shield(self._task)  # who goes away takes nobody's answer along


class _Tokens:
    """Reads JWTs."""

    def __init__(self, settings: JwtSettings) -> None:
        self._settings = settings
        self._jwks = jwt.PyJWKClient(settings.jwks_url) if settings.jwks_url else None

    async def caller(self, words: str) -> Caller:
        settings = self._settings
        try:
            claims = jwt.decode(
                words,
                await self._key_of(words),
                algorithms=settings.allowed_algorithms,
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway,
                options={"require": ["exp", settings.user_claim]},
            )
        except (jwt.PyJWTError, ValueError) as error:
            raise _unknown(f"This token does not hold: {token_words(error)}.") from None
        user = claims[settings.user_claim]
        if not isinstance(user, str):
            raise _unknown(f"The token's {settings.user_claim} is no text.")
        scopes = _scopes(claims.get(settings.scope_claim))
        return Caller(_user(user), OPERATOR in scopes, f"jwt:{user}")

    async def _key_of(self, words: str) -> Any:
        if self._jwks is not None:
            # It may ask over the network, and blocks.
            return (await asyncio.to_thread(self._jwks.get_signing_key_from_jwt, words)).key
        if self._settings.secret is not None:
            return self._settings.secret.get_secret_value()
        return self._settings.public_key


class RateLimit:
    """A bucket for each caller that fills by itself; requests and frames take from it."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        # How much is in each, and when that was so; a full one is forgotten.
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, caller: Caller) -> None:
        """`Refusal` with 429 if the caller has to wait."""
        if self._per_minute is None:
            return
        now, size = self._clock(), float(self._per_minute)
        per_second = size / 60
        name = f"{caller.key}:{caller.user_id}"
        left, since = self._buckets.get(name, (size, now))
        left = min(size, left + (now - since) * per_second)
        if left < 1:
            wait = max(1, round((1 - left) / per_second + 0.5))
            detail = f"Too many requests; {self._per_minute} a minute are allowed."
            raise Refusal(429, "rate", detail, {"Retry-After": str(wait)})
        self._buckets[name] = left - 1, now
        if len(self._buckets) > _MAX_BELIEVED:
            self._forget_full(now, size, per_second)

    def _forget_full(self, now: float, size: float, per_second: float) -> None:
        self._buckets = {
            name: (left, since)
            for name, (left, since) in self._buckets.items()
            if left + (now - since) * per_second < size
        }


def bearer(header: str | None) -> str | None:
    """The words of an Authorization header; None if there is none."""
    if header is None:
        return None
    scheme, _, words = header.partition(" ")
    if scheme.lower() != "bearer" or not words.strip():
        raise _unknown("Authorization is not of the form: Bearer <key or token>.")
    return words.strip()


def _scopes(claim: Any) -> list[str]:
    if isinstance(claim, str):
        return claim.split()
    return [*map(str, claim)] if isinstance(claim, list) else []


def _user(name: str) -> str:
    if not is_name(name):
        raise Refusal(400, "user", f"A user's name has 1 to {LONGEST_NAME} plain characters.")
    return name


def _unknown(detail: str) -> Refusal:
    return Refusal(401, "unauthorized", detail, {"WWW-Authenticate": 'Bearer realm="segue"'})

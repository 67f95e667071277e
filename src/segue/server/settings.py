"""The settings of the server: where it listens, who may come in, and how much they may send."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from segue.agent.config import FROM_TEXT, Config, Count, Span
from segue.agent.sections import OR_NONE, Expected
from segue.core.errors import UsageError
from segue.settings import Settings

_COLLECTOR = "a text that starts with 'https://' or 'http://'"

Port = Annotated[int, Field(ge=0, le=65_535)]


class JwtSettings(Config):
    """Tokens that somebody else signs. One of secret, public_key and jwks_url is given."""

    secret: SecretStr | None = None
    """For HS256 and the like: at least 32 characters, known to whoever signs."""
    public_key: str | None = None
    """For RS256, ES256 and the like: the signer's key as PEM."""
    jwks_url: str | None = None
    """Where the signer publishes its keys."""
    algorithms: Annotated[tuple[str, ...], FROM_TEXT, Expected("a list of names")] = ()
    """Which are taken; without any, HS256 for a secret, else RS256 and ES256."""
    audience: str | None = None
    """Whom a token has to be made for, if set."""
    issuer: str | None = None
    """Who has to have made it, if set."""
    user_claim: str = "sub"
    """Which claim names the user."""
    scope_claim: str = "scope"
    """Which claim holds the scopes; `operator` opens `/api/admin`."""
    leeway: Span = timedelta(seconds=30)
    """How far the signer's clock may be off."""

    @model_validator(mode="after")
    def _check(self) -> "JwtSettings":
        given = [name for name in ("secret", "public_key", "jwks_url") if getattr(self, name)]
        if len(given) != 1:
            raise UsageError("give exactly one of secret, public_key and jwks_url.")
        if self.secret is not None and len(self.secret.get_secret_value()) < 32:
            raise UsageError("secret is too short; at least 32 characters.")
        is_shared = self.secret is not None
        for name in self.algorithms:
            # An RSA key taken as a shared secret would let anyone sign who knows it.
            if name.startswith("HS") != is_shared or name.lower() == "none":
                raise UsageError(f"algorithm {name!r} does not go with {given[0]}.")
        return self

    @property
    def allowed_algorithms(self) -> list[str]:
        return [*(self.algorithms or (("HS256",) if self.secret else ("RS256", "ES256")))]


class ServerSettings(Config):
    """Without keys it listens to this machine alone."""

    host: str = "127.0.0.1"
    """Where it listens; any address but this machine's needs a key or `jwt`."""
    port: Port = 8_000
    """0 takes any free one."""
    cors_origins: Annotated[tuple[str, ...], FROM_TEXT, Expected("a list of origins")] = ()
    """Which pages of other origins may call it from a browser."""
    allowed_hosts: Annotated[tuple[str, ...], FROM_TEXT, Expected("a list of names")] = ()
    """Without keys, under which names it answers besides those of this machine."""
    jwt: JwtSettings | None = None
    """Tokens of somebody else that let their bearers in."""
    rate_per_minute: Annotated[Count | None, OR_NONE] = 600
    """Requests and frames for each key and user; `none` means as many as they like."""
    max_body_bytes: Count = 10_000_000
    """How big a message with pictures or files may be; other requests have at most 1 MB."""
    max_text_bytes: Count = 100_000
    """How long the text of a message may be, pictures and files apart."""
    max_import_bytes: Count = 1_000_000_000
    """How big an export may be that an operator imports; it is written to a temporary file."""
    max_frame_bytes: Count = 1_000_000
    """How big a frame of a socket may be."""
    max_content_blocks: Count = 100
    """How many blocks of text, pictures and files one message may have."""
    allow_content_urls: bool = False
    """Whether messages may name pictures and files by address, which this process may fetch, or by
    the provider's id, which it looks up in your account."""
    max_sockets_per_user: Count = 50
    """How many sockets and event streams, taken together, one user may hold open at once."""
    ping_every: Span = timedelta(seconds=20)
    """How often one who listens gets a sign of life; a socket that does not answer is closed."""
    log_format: Literal["console", "json"] = "console"
    """Lines for people, or one JSON object each."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """From which level up lines are written; `info` has each request and each turn."""
    traces: Annotated[str | None, Field(pattern="^https?://"), Expected(_COLLECTOR)] = None
    """Where traces are sent by OTLP over HTTP; needs the extra `otel`."""


class ServedSettings(Settings):
    """Everything has a default that works without a key, on one machine."""

    server: ServerSettings = ServerSettings()
    """How `segue serve` serves it."""

"""The settings of the server: where it listens, who may come in, and how much they may send."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from segue.agent.config import Config, Count, Span
from segue.core.errors import UsageError
from segue.settings import Settings

Port = Annotated[int, Field(ge=0, le=65_535)]


class JwtSettings(Config):
    """Tokens that somebody else signs. One of secret, public_key and jwks_url is given."""

    # For HS256 and the like: at least 32 characters, known to whoever signs.
    secret: SecretStr | None = None
    # For RS256, ES256 and the like: PEM.
    public_key: str | None = None
    # Where the signer publishes its keys.
    jwks_url: str | None = None
    algorithms: tuple[str, ...] = ()
    audience: str | None = None
    issuer: str | None = None
    # Which claim names the user, and which the scopes.
    user_claim: str = "sub"
    scope_claim: str = "scope"
    leeway: Span = timedelta(seconds=30)

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
    port: Port = 8_000
    # Which pages of other origins may call it from a browser.
    cors_origins: tuple[str, ...] = ()
    # Names under which it is reached; without keys, only those of this machine.
    allowed_hosts: tuple[str, ...] = ()
    jwt: JwtSettings | None = None
    # Requests and frames per minute for each key or user; none: as many as they like.
    rate_per_minute: Count | None = 600
    max_body_bytes: Count = 10_000_000
    max_frame_bytes: Count = 1_000_000
    # How many sockets one user may hold open at once.
    max_sockets_per_user: Count = 50
    ping_every: Span = timedelta(seconds=20)
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class ServedSettings(Settings):
    """The settings of a Segue with a server around it."""

    server: ServerSettings = ServerSettings()

"""The settings of the server: address, authentication and limits."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from segue.core.durations import OR_NONE
from segue.core.triggers import EVENT, TriggerType
from segue.errors import UsageError
from segue.settings import Settings
from segue.settings.schema import (
    FROM_TEXT,
    Config,
    Count,
    Expected,
    Span,
    did_you_mean,
    error_at,
)
from segue.webhooks import standard_key

_COLLECTOR = "a text that starts with 'https://' or 'http://'"

Port = Annotated[int, Field(ge=0, le=65_535)]


class JwtSettings(Config):
    """JWTs signed by another service. Needs one of secret, public_key and jwks_url."""

    secret: SecretStr | None = None
    """For HS256 and the like: at least 32 characters, shared with the signer."""
    public_key: str | None = None
    """For RS256, ES256 and the like: the signer's key as PEM."""
    jwks_url: str | None = None
    """URL of the signer's public keys."""
    algorithms: Annotated[tuple[str, ...], FROM_TEXT, Expected("a list of names")] = ()
    """Allowed algorithms; by default HS256 for a secret, else RS256 and ES256."""
    audience: str | None = None
    """Required audience (aud) of a token, if set."""
    issuer: str | None = None
    """Required issuer (iss) of a token, if set."""
    user_claim: str = "sub"
    """Claim with the user."""
    scope_claim: str = "scope"
    """Claim with the scopes; `operator` grants access to `/api/admin`."""
    leeway: Span = timedelta(seconds=30)
    """Allowed difference from the signer's clock."""

    @model_validator(mode="after")
    def _check(self) -> "JwtSettings":
        given = [name for name in ("secret", "public_key", "jwks_url") if getattr(self, name)]
        if len(given) != 1:
            raise UsageError("expected exactly one of secret, public_key and jwks_url.")
        if self.secret is not None and len(self.secret.get_secret_value()) < 32:
            raise UsageError("secret is too short; at least 32 characters.")
        is_shared = self.secret is not None
        for name in self.algorithms:
            # With a public key as a shared secret, anyone could sign.
            if name.startswith("HS") != is_shared or name.lower() == "none":
                raise UsageError(f"algorithm {name!r} does not match {given[0]}.")
        return self

    @property
    def allowed_algorithms(self) -> list[str]:
        return [*(self.algorithms or (("HS256",) if self.secret else ("RS256", "ES256")))]


def _check_hook_secret(secret: SecretStr) -> SecretStr:
    try:
        key = standard_key(secret.get_secret_value())
    except ValueError:
        key = b""
    if len(key) < 16:
        raise UsageError(
            "expected 'whsec_' and at least 16 bytes as base64, such as from: "
            "echo whsec_$(openssl rand -base64 24)"
        )
    return secret


class HookConfig(Config):
    """A service that reports events."""

    secret: Annotated[SecretStr, AfterValidator(_check_hook_secret)]
    """Shared with the service: `whsec_` and base64, as Standard Webhooks prescribe."""
    agent: str | None = None
    """Agent that tells the user about the event; `none` means the first one."""
    trigger: str = EVENT
    """Trigger of that agent; its prompt asks the model to tell the user."""


class ServerSettings(Config):
    """The server's address and limits. Without keys it answers only to this machine."""

    host: str = "127.0.0.1"
    """Address to listen on; any but loopback needs a key or `jwt`."""
    port: Port = 8_000
    """0 takes any free port."""
    cors_origins: Annotated[tuple[str, ...], FROM_TEXT, Expected("a list of origins")] = ()
    """Other origins whose pages may call the server from a browser."""
    allowed_hosts: Annotated[tuple[str, ...], FROM_TEXT, Expected("a list of names")] = ()
    """Without keys: host names that requests may use, besides those of this machine."""
    jwt: JwtSettings | None = None
    """Authentication by tokens of another service."""
    rate_per_minute: Annotated[Count | None, OR_NONE] = 600
    """Maximum requests and frames per key and user; `none` for no limit."""
    max_body_bytes: Count = 10_000_000
    """Maximum size of a message with pictures or files; other requests have at most 1 MB."""
    max_text_bytes: Count = 100_000
    """Maximum size of a message's text, without pictures and files."""
    max_import_bytes: Count = 1_000_000_000
    """Maximum size of an import, which is written to a temporary file."""
    max_frame_bytes: Count = 1_000_000
    """Maximum size of a frame of a socket."""
    max_content_blocks: Count = 100
    """Maximum number of blocks of text, pictures and files in a message."""
    allow_content_urls: bool = False
    """Allow addresses of pictures and files in messages, which this process may fetch, and file ids
    of the provider, which are looked up in your account."""
    max_sockets_per_user: Count = 50
    """Maximum number of open sockets and event streams per user, together."""
    max_connections_per_address: Annotated[Count | None, OR_NONE] = 256
    """Maximum number of open connections per client address (IPv6: per /64 network); set `none`
    behind a proxy, whose address all clients share."""
    hooks: Annotated[Mapping[str, HookConfig], Expected("a table by source")] = Field(
        default_factory=dict
    )
    """Services that may report events, at `/api/hooks/NAME`."""
    openai: bool = True
    """Serve agents as models at `/v1`, for clients of OpenAI's chat completions."""
    ag_ui: bool = True
    """Serve agents at `/ag-ui`, for clients of AG-UI."""
    mcp: bool = True
    """Serve the caller's memories, reminders and follow-ups as tools at `/mcp`."""
    langgraph: Annotated[Literal["/", "/langgraph"] | None, OR_NONE] = "/"
    """Path of the routes for clients of the LangGraph SDK; `none` for no such routes."""
    ping_every: Span = timedelta(seconds=20)
    """Interval of heartbeats and pings; a socket that does not answer is closed."""
    log_format: Literal["console", "json"] = "console"
    """Plain lines, or one JSON object per line."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """Lowest level that is logged; `info` includes each request and each turn."""
    traces: Annotated[str | None, Field(pattern="^https?://"), Expected(_COLLECTOR)] = None
    """Address of an OTLP/HTTP collector of traces; needs the extra `otel`."""


class ServedSettings(Settings):
    """All settings have defaults that work without a key, on one machine."""

    server: ServerSettings = ServerSettings()
    """Settings of `segue serve`."""

    @model_validator(mode="after")
    def _check_hooks(self) -> Self:
        """Otherwise only the sender of the first event would learn of it."""
        if wrong := [*self._wrong_hooks()]:
            raise ValidationError.from_exception_data("server", wrong)
        return self

    def _wrong_hooks(self) -> Iterator[InitErrorDetails]:
        agents = {agent.id: agent for agent in self.agents}
        for name, hook in self.server.hooks.items():
            place, agent = ("server", "hooks", name), hook.agent or self.agents[0].id
            if agent not in agents:
                yield error_at(
                    f"unknown agent {agent!r}; {did_you_mean(agent, [*agents])}", *place, "agent"
                )
            elif hook.trigger not in (
                own := [EVENT, *TriggerType, *agents[agent].autonomy.triggers]
            ):
                text = f"agent {agent!r} has no trigger {hook.trigger!r}"
                yield error_at(f"{text}; {did_you_mean(hook.trigger, own)}", *place, "trigger")

"""The settings of an MCP server whose tools an agent may use."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final, Self

from pydantic import Field, SecretStr, model_validator

from segue.errors import UsageError
from segue.settings.schema import FROM_TEXT, Config, Count, Expected, Span

# The first part of its tools' names. Without double underscores, and in small letters, so that
# `files__read` has one reading and a variable can name the server.
_NAME: Final = re.compile(r"(?=.{1,24}$)[a-z](?:_?[a-z0-9])*", re.ASCII)

_TEXTS: Final = Expected("a table of texts")


def check_server_names(servers: Mapping[str, "McpConfig"]) -> Mapping[str, "McpConfig"]:
    for name in servers:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r:.60} cannot name an MCP server; expected lower-case letters, digits and "
                "single underscores, at most 24, such as 'files'"
            )
    return servers


class McpConfig(Config):
    """An MCP server: a program that Segue starts, or an address. Its tools are `NAME__tool`."""

    command: str | None = None
    """The program to start, which talks over its standard input and output."""
    # Not in `repr`: arguments and addresses may contain keys.
    args: Annotated[tuple[str, ...], Field(repr=False), FROM_TEXT, Expected("a list of texts")] = ()
    """The program's arguments."""
    env: Annotated[Mapping[str, SecretStr], _TEXTS] = Field(default_factory=dict)
    """Variables of the program, which inherits only `PATH`, `HOME` and the like from Segue."""
    url: Annotated[
        str | None, Field(repr=False), Expected("a text that starts with 'https://' or 'http://'")
    ] = None
    """The server's address (streamable HTTP), instead of a program."""
    headers: Annotated[Mapping[str, SecretStr], _TEXTS] = Field(default_factory=dict)
    """Headers of each request to the address, such as `Authorization`."""
    tools: Annotated[tuple[str, ...], FROM_TEXT, Expected("a list of names")] = ()
    """Tools that the agent may use, by the server's own names; all if empty."""
    connect_time: Span = timedelta(seconds=15)
    """Time limit for connecting, including the program's start; the first replies wait for it."""
    call_time: Span = timedelta(seconds=30)
    """Time limit of one call, in addition to `limits.tool_time`."""
    result_chars: Count = 20_000
    """Maximum length of a result in characters; the middle of longer ones is left out."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise UsageError("expected either `command`, a program to start, or `url`, an address")
        if self.url is not None and not self.url.startswith(("https://", "http://")):
            raise UsageError("`url` is not an address; expected one that starts with 'https://'")
        mine, theirs = ("url", "command") if self.url else ("command", "url")
        wrong = {"command": ("headers",), "url": ("args", "env")}[mine]
        for name in wrong:
            if getattr(self, name):
                raise UsageError(f"`{name}` is for `{theirs}`, but this server has a `{mine}`")
        return self

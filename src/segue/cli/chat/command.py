"""`segue chat`: a conversation in the terminal, with a server or an agent in this process."""

import asyncio
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from segue.cli.access import Place, Target
from segue.cli.chat.conversation import ChatOptions, chat_here, chat_with_server
from segue.cli.output import Key, program
from segue.settings import load_settings

_URL = "A server's address; without it everything runs in this process."
_USER = "The user to talk as; if not given, the thread's or the key's user, or `me`."
_REDACTED = "…"


def chat(
    *,
    url: Annotated[str | None, typer.Option(help=_URL)] = None,
    key: Key = None,
    thread: Annotated[str | None, typer.Option(help="Continue this thread.")] = None,
    user: Annotated[str | None, typer.Option(help=_USER)] = None,
    agent: Annotated[str | None, typer.Option(help="The id of the agent to talk with.")] = None,
    place: Place,
) -> None:
    """Talk with an agent: replies appear as they are written, and the agent may speak first.

    Ctrl-C stops the reply; pressed again, or with nothing to stop, it leaves, as Ctrl-D does.
    Lines may also come from a pipe: each is sent when the one before is answered.
    """
    Target(place.config, place.database, url, key)  # checks that they can be given together
    command = resume_command(url, key, user, place.config, place.database)
    options = ChatOptions(user, agent, thread, command)
    if url is not None:
        raise typer.Exit(asyncio.run(chat_with_server(url, key, options)))
    settings = load_settings(place.config, database=place.database)
    raise typer.Exit(asyncio.run(chat_here(settings, options)))


def resume_command(
    url: str | None,
    key: str | None,
    user: str | None,
    config: Path | None,
    database: str | None,
) -> str:
    """The command that continues here, but for the thread, with secrets redacted."""
    if key is not None:
        key = None if key == os.environ.get("SEGUE_KEY") else _REDACTED
    if database is not None and ("://" in database or "=" in database):
        database = _REDACTED  # it may hold a password
    flags = {"url": url, "key": key, "user": user, "config": config, "database": database}
    given = (
        f"--{name} {value if value is _REDACTED else shlex.quote(str(value))}"
        for name, value in flags.items()
        if value is not None
    )
    return " ".join([program(), "chat", *given])

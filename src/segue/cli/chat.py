"""`segue chat`: a conversation in the terminal, with a server or all in this process."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from segue.cli.errors import told_plainly
from segue.cli.options import ConfigFile, Database, Key
from segue.cli.program import program
from segue.cli.working import Where

_URL = "A server's address; without it everything runs in this process."
# Stands for what is not shown.
_NAMELESS = "…"
_USER = "Whom to talk as; `me`, or the user of the thread or of the key, if not given."


def chat(  # noqa: PLR0913 - they are its options
    *,
    url: Annotated[str | None, typer.Option(help=_URL)] = None,
    key: Key = None,
    thread: Annotated[str | None, typer.Option(help="Go on with this thread.")] = None,
    user: Annotated[str | None, typer.Option(help=_USER)] = None,
    agent: Annotated[str | None, typer.Option(help="Whom to talk to, by id.")] = None,
    config: ConfigFile = None,
    database: Database = None,
) -> None:
    """Talk with an agent: words appear as they are written, and it may speak first.

    Ctrl-C stops the answer; again, or when there is nothing to stop, it leaves, as Ctrl-D does.
    Lines may also come from a pipe: each is sent when the one before is answered.
    """
    with told_plainly():
        Where(url, key, config, database).check()
    from segue.cli.chatting import Whom, chat_here, chat_with_server  # noqa: PLC0415
    from segue.cli.opening import read_settings, run  # noqa: PLC0415

    whom = Whom(user, agent, thread, back=way_back(url, key, user, config, database))
    if url is not None:
        raise typer.Exit(run(chat_with_server(url, key, whom)))
    raise typer.Exit(run(chat_here(read_settings(config, database), whom)))


def way_back(
    url: str | None,
    key: str | None,
    user: str | None,
    config: Path | None,
    database: str | None,
) -> str:
    """The command that leads back to the same place, without what is secret."""
    if key is not None:
        key = None if key == os.environ.get("SEGUE_KEY") else _NAMELESS
    if database is not None and ("://" in database or "=" in database):
        database = _NAMELESS  # it may hold a password
    flags = {"url": url, "key": key, "user": user, "config": config, "database": database}
    given = (
        f"--{name} {value if value is _NAMELESS else shlex.quote(str(value))}"
        for name, value in flags.items()
        if value is not None
    )
    return " ".join([program(), "chat", *given])

"""Options that several commands share, so that they are called and explained the same."""

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="Settings file; segue.toml of this folder if not given."),
]
Database = Annotated[
    str | None,
    typer.Option(help="SQLite folder or PostgreSQL address; overrides the settings file."),
]
Url = Annotated[
    str | None,
    typer.Option(help="A server's address, instead of a database; it takes an operator's key."),
]
Key = Annotated[str | None, typer.Option(help="A key of the server.", envvar="SEGUE_KEY")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[
    int, typer.Option(min=1, max=10_000, help="Number of entries at most; the newest.")
]
ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]

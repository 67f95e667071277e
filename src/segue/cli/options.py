"""Options that several commands share, so that they are called and explained the same."""

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="A settings file; segue.toml of this folder if not given."),
]
Database = Annotated[
    str | None,
    typer.Option(help="A folder for SQLite, or a PostgreSQL address; before the settings'."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many, the newest.")]
ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]

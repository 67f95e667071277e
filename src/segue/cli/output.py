"""How commands print: JSON for scripts, plain tables for people. Results go to stdout."""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.core.plain import exact_json

_WIDE = 10_000


def print_json(value: Any) -> None:
    """A value or records; large numbers and times as text."""
    typer.echo(json.dumps(exact_json(value), indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, nothing: str) -> None:
    """Rows under headings; the last column takes what is left. Words are shown as they are."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings[:-1]:
        table.add_column(heading, no_wrap=True)
    table.add_column(headings[-1], overflow="fold")
    for row in rows:
        # As text and not as markup: brackets in what was said are what was said.
        table.add_row(*map(Text, row))
    if table.row_count:
        _console().print(table)
    else:
        typer.echo(nothing)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def when(moment: datetime | None) -> str:
    """A time on this machine's clock."""
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def one_line(text: str, longest: int = 200) -> str:
    words = " ".join(text.split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def _console() -> Console:
    # In a pipe nothing is folded: what reads it has no width.
    return Console() if sys.stdout.isatty() else Console(width=_WIDE)

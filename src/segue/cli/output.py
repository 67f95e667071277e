"""How commands print: JSON for scripts, tables for people, and plain lines in a pipe.

Results go to stdout. What users and models said may hold what a terminal obeys: it is left out.
"""

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

from segue.core.plain import exact_json, harmless, one_line

__all__ = ["is_piped", "one_line", "print_json", "print_lines", "print_table", "when"]


def print_json(value: Any) -> None:
    """A value or records; large numbers and times as text."""
    typer.echo(harmless(json.dumps(exact_json(value), indent=2, ensure_ascii=False)))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, nothing: str) -> None:
    """Rows under headings; the last column takes what is left. Words are shown as they are.

    In a pipe: a line for each row, with a tab between its cells, and no padding.
    """
    if is_piped():
        lines = ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]
        print_lines(["\t".join(headings), *lines] if lines else [nothing])
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings[:-1]:
        table.add_column(heading, no_wrap=True)
    table.add_column(headings[-1], overflow="fold")
    for row in rows:
        # As text and not as markup: brackets in what was said are what was said.
        table.add_row(*(Text(harmless(cell)) for cell in row))
    if table.row_count:
        Console().print(table)
    else:
        typer.echo(nothing)


def is_piped() -> bool:
    """Whether a program or a file gets what is printed, and not a terminal."""
    return not sys.stdout.isatty()


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(harmless(line))


def when(moment: datetime | str | None) -> str:
    """A time on this machine's clock."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"

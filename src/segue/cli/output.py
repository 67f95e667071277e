"""How commands print: JSON for scripts, plain tables for people. Results go to stdout."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# JavaScript and others read larger numbers inexactly.
_EXACT = 2**53
_WIDE = 10_000


def print_json(value: Any) -> None:
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def plain(value: Any) -> Any:
    """A value as JSON has it: ids that readers would round, and times, as text."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _EXACT:
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def record(value: Any) -> dict[str, Any]:
    """A record's fields."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


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

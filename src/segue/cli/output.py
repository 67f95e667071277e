"""The options that commands share, and how commands print: JSON for scripts, tables for terminals,
tab-separated lines in a pipe.

Results go to stdout, errors to stderr. Terminal control characters in messages are removed.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import chain, repeat
from pathlib import Path
from typing import Annotated, Any, Final, Self

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from segue.core.autonomy.local_time import find_zone
from segue.core.text import exact_json, harmless
from segue.errors import NotFoundError, SegueError, UsageError

_NAME: Final = "segue"


def program(*, elsewhere: bool = False) -> str:
    """The command that runs this program again, such as `segue` or `.venv/bin/segue`; with its
    whole path if it is to be run from another folder.
    """
    typed = Path(sys.argv[0])
    if typed.name != _NAME or not typed.is_file():  # run as a module, or by a test
        return _NAME
    found = shutil.which(_NAME)
    if found is not None and Path(found).samefile(typed):
        return _NAME
    return shlex.quote(str(typed.absolute() if elsewhere else typed))


# Characters between the columns of a table, or at its edges.
_GAP: Final = 3
# A wrapped column with less room cannot be read.
_NARROWEST: Final = 10

# Exit codes: 2 if the caller can fix it, 1 for everything else that failed.
WRONG_USE: Final = 2
FAILED: Final = 1


class Command(TyperCommand):
    """A command whose `SegueError` is printed as one line and sets the exit code."""

    def get_params(self, ctx: Any) -> Any:
        return _without_flag_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SegueError as error:
            print_error(str(error))
            code = WRONG_USE if isinstance(error, UsageError | NotFoundError) else FAILED
            raise typer.Exit(code) from None


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> Any:
        return _without_flag_types(super().get_params(ctx))


def _without_flag_types(params: list[Any]) -> list[Any]:
    """Without the `<bool>` that typer's help shows for a flag."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def print_error(text: str) -> None:
    """Print an error as one line on stderr."""
    typer.echo(f"Error: {harmless(' '.join(text.split()))}", err=True)


ConfigFile = Annotated[Path | None, "Settings file; segue.toml of this folder if not given."]
Key = Annotated[str | None, typer.Option(help="A key of the server.", envvar="SEGUE_KEY")]
UserOfKey = Annotated[
    str | None, "The thread's user, at a server with a key that acts for many users."
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[
    int, typer.Option(min=1, max=10_000, help="Maximum number of entries, the newest.")
]
ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command returns: a value, which `--json` prints, and how to print it otherwise."""

    value: Any
    show: Callable[[], None]
    exit_code: int = 0

    @classmethod
    def table(
        cls, value: Any, headings: Sequence[str], rows: Iterable[Sequence[str]], *, nothing: str
    ) -> Self:
        return cls(value, lambda: print_table(headings, rows, nothing=nothing))


def with_options(function: Callable[..., Answer | None]) -> Callable[..., None]:
    """A command as typer takes it. A parameter `Annotated` with a text becomes an option with that
    help, each field of a dataclass an option, and an `Answer` gets `--json`.
    """
    given = signature(function)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in given.parameters.items()
        if is_dataclass(parameter.annotation)
    }
    found: list[Parameter] = []
    for name, parameter in given.parameters.items():
        group = groups.get(name)
        found += signature(group).parameters.values() if group else [parameter]
    if given.return_annotation is Answer and "as_json" not in given.parameters:
        found.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson))
    options = [each.replace(kind=each.KEYWORD_ONLY, annotation=_option(each)) for each in found]

    @wraps(function)
    def run(**values: Any) -> None:
        as_json = values.get("as_json")
        if "as_json" not in given.parameters:
            values.pop("as_json", None)
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        answer = function(**values)
        if answer is None:
            return
        if as_json:
            print_json(answer.value)
        else:
            answer.show()
        if answer.exit_code:
            raise typer.Exit(answer.exit_code)

    run.__annotations__ = {option.name: option.annotation for option in options}
    vars(run)["__signature__"] = Signature(options)
    return run


def _option(parameter: Parameter) -> Any:
    """The parameter's annotation, with a text in it made an option with that help."""
    annotation = parameter.annotation
    if not isinstance(text := getattr(annotation, "__metadata__", [None])[0], str):
        return annotation
    kind = annotation.__origin__
    # Named, a flag has no `--no-…`.
    names = [f"--{parameter.name.replace('_', '-')}"] if kind is bool else []
    return Annotated[kind, typer.Option(*names, help=text)]


def print_json(value: Any) -> None:
    """Print a value or records; numbers above 2^53 and times as strings."""
    typer.echo(harmless(json.dumps(exact_json(value), indent=2, ensure_ascii=False)))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    nothing: str = "",
    wrapped: int = 1,
    styles: Iterable[str] = (),
) -> None:
    """Print a table, or `nothing` without rows. The last `wrapped` columns are wrapped; `styles`
    are those of the rows.

    In a pipe, each row is one line with tabs between the cells. On a narrow terminal it is a list
    of its cells, since ids and times that are cut are of no use.
    """
    if is_piped():
        lines = ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]
        print_lines(["\t".join(headings), *lines] if lines else [nothing])
        return
    cells = [[harmless(cell) for cell in row] for row in rows]
    if not cells:
        typer.echo(nothing)
        return
    console, styled = Console(), zip(cells, chain(styles, repeat("")), strict=False)
    if _least_width(headings, cells, wrapped) > console.width:
        _print_lists(console, headings, styled)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings[:-wrapped]:
        table.add_column(heading, no_wrap=True)
    for heading in headings[-wrapped:]:
        table.add_column(heading, overflow="fold")
    for row, style in styled:
        # As `Text`: brackets in a message are not markup.
        table.add_row(*map(Text, row), style=style)
    console.print(table)


def _least_width(headings: Sequence[str], rows: Iterable[Sequence[str]], wrapped: int) -> int:
    """The width of a table whose wrapped columns are as narrow as can be read."""
    columns = zip(headings, *rows, strict=True)
    widths = [max(cell_len(line) for cell in c for line in cell.splitlines()) for c in columns]
    least = (*widths[:-wrapped], *(min(width, _NARROWEST) for width in widths[-wrapped:]))
    return sum(width + _GAP for width in least)


def _print_lists(
    console: Console, headings: Sequence[str], rows: Iterable[tuple[Sequence[str], str]]
) -> None:
    """Each row as lines with a heading and a cell; empty cells are left out."""
    width = max(map(len, headings))
    for row, style in rows:
        for heading, cell in zip(headings, row, strict=True):
            if cell:
                console.print(Text(f"{heading:{width}}  {cell}", style), soft_wrap=True)
        console.print()


def is_piped() -> bool:
    """Whether stdout is not a terminal."""
    return not sys.stdout.isatty()


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(harmless(line))


def counted(number: int, noun: str) -> str:
    """A number of things, such as `1 batch` or `1,000 messages`."""
    if number != 1:
        noun += "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}"


def when(moment: datetime | str | None) -> str:
    """A time in this machine's time zone; empty for None."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def when_of_user(moment: datetime | str, preferences: Mapping[str, Any]) -> str:
    """A time on the user's clock, with its zone; that of this machine if the user has set none."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    zone = find_zone(preferences.get("time_zone"))
    local = moment.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S} {zone or local.tzname()}"

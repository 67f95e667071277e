"""The command line: `segue`. One file per group of commands, each of them thin."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

import typer

from segue.cli import keys
from segue.cli.chat import chat
from segue.cli.compress import compress
from segue.cli.doctor import doctor
from segue.cli.help import Command, Group
from segue.cli.migrate import migrate
from segue.cli.records import batches, context, timers, why
from segue.cli.retain import retain
from segue.cli.serve import serve
from segue.cli.simulate import simulate
from segue.cli.stats import stats
from segue.cli.threads import history, threads
from segue.cli.transfers import export, forget, import_

app = typer.Typer(
    name="segue",
    cls=Group,
    help="Agents that speak first.",
    no_args_is_help=True,
    add_completion=False,
    # Mistakes of the user are told in one line; for ours the plain traceback says the most.
    pretty_exceptions_enable=False,
)
_GROUPS: Final[Mapping[str, Sequence[Callable[..., None]]]] = {
    "Talk": (chat,),
    "Look": (threads, history, batches, context, timers, why, stats),
    "Data": (compress, retain, export, import_, migrate, forget),
    "Operate": (serve, doctor, simulate),
}
for _title, _commands in _GROUPS.items():
    for _command in _commands:
        _name = _command.__name__.rstrip("_")
        app.command(_name, cls=Command, rich_help_panel=_title)(_command)
app.add_typer(keys.app, name="keys", rich_help_panel="Operate")


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"segue {version('segue')}")
        raise typer.Exit


@app.callback()
def _segue(
    *,
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_tell_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Agents that speak first."""
    _import_from_here()


def _import_from_here() -> None:
    """Let settings name modules of the working directory, as `python -m` would.

    Behind all others, so that a file called `random.py` breaks nothing.
    """
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def main() -> None:
    """The program `segue`."""
    app()

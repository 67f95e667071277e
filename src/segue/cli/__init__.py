"""The command line: `segue`. One file per group of commands, each of them thin."""

import typer

from segue.cli.simulate import simulate

app = typer.Typer(
    name="segue",
    help="Agents that speak first.",
    no_args_is_help=True,
    add_completion=False,
    # Mistakes of the user are told in one line; for ours the plain traceback says the most.
    pretty_exceptions_enable=False,
)
app.command()(simulate)


@app.callback()
def _segue() -> None:
    """Keeps `simulate` a command while it is the only one."""


def main() -> None:
    """The program `segue`."""
    app()

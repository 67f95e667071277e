"""The command line: `segue`. One module for each group of commands.

A command's module is imported when the command runs: `--help` must not wait for LangChain.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from segue.cli.output import WRONG_USE, Command, Group, print_error, with_options

# For each command: its section of the help, its `module:attribute`, and one line of help.
COMMANDS: Final = {
    "chat": ("Talk", "chat:chat", "Chat with an agent that may speak first."),
    "follow-up": ("Talk", "initiative:follow_up", "Let the agent write first in a thread."),
    "remind": ("Talk", "initiative:remind", "Set a reminder for a user."),
    "reminders": ("Look", "initiative:reminders", "List reminders, or cancel one."),
    "preferences": ("Talk", "initiative:preferences", "Set when agents may write to a user."),
    "threads": ("Look", "views:threads", "List conversations, the most recent first."),
    "history": ("Look", "views:history", "Show a conversation as its user sees it."),
    "batches": ("Look", "views:batches", "List a thread's batches with state and reasons."),
    "context": ("Look", "views:context", "Show what the model would get now."),
    "timers": ("Look", "views:timers", "List planned and past follow-ups."),
    "why": ("Look", "views:why", "Show why the agent wrote, and why it did not."),
    "stats": ("Look", "views:stats", "Show the outcomes of follow-ups."),
    "compress": ("Data", "housekeeping:compress", "Move old batches out of a thread's window."),
    "retain": ("Data", "housekeeping:retain", "Delete old batches."),
    "export": ("Data", "transfer:export", "Write conversations as lines of JSON."),
    "import": ("Data", "transfer:import_", "Import a full export: all of it or nothing."),
    "migrate": ("Data", "transfer:migrate", "Import conversations of a LangGraph app, or chats."),
    "forget": ("Data", "transfer:forget", "Delete all data of a user."),
    "init": ("Operate", "init:init", "Write a settings file, and an agent to start from."),
    "serve": ("Operate", "serve:serve", "Serve the agents over REST, WebSocket and SSE."),
    "doctor": ("Operate", "doctor:doctor", "Check settings, database, models and clock."),
    "simulate": ("Operate", "simulate:simulate", "Try a policy on a scenario, or on the past."),
    "keys": ("Operate", "keys:app", "Create, list and revoke keys of the server."),
}


class _Lazy(Group):
    """Imports a command when it is called; its line in the help is known before."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(str(name)), rest


app = typer.Typer(
    name="segue",
    cls=_Lazy,
    help="Agents that speak first.",
    no_args_is_help=True,
    add_completion=False,
    # A user's mistakes are printed in one line; for bugs a plain traceback helps most.
    pretty_exceptions_enable=False,
)


def load_command(name: str) -> Any:
    """The command of that name, with its options."""
    module, _, attribute = COMMANDS[name][1].partition(":")
    try:
        found = getattr(import_module(f"segue.cli.{module}"), attribute)
    except ModuleNotFoundError as error:  # the server is an extra
        print_error(f"`segue {name}` needs {error.name}; pip install 'segue[server]'.")
        raise typer.Exit(WRONG_USE) from error
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        found.command(name, cls=Command)(with_options(function))
    return typer.main.get_command(found)


for _name, (_section, _, _help) in COMMANDS.items():
    app.command(_name, cls=Command, rich_help_panel=_section, help=_help)(lambda: None)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"segue {version('segue')}")
        raise typer.Exit


@app.callback()
def _segue(
    *,
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Agents that speak first."""
    # Settings may name modules of the working directory. Last, so that `random.py` hides nothing.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def main() -> None:
    """The program `segue`."""
    app()

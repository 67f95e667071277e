"""`segue simulate`: weeks of a scenario in seconds, to tune a follow-up policy."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from segue.cli.errors import told_plainly

_DATABASE = "Keep the database in this new folder."
_SEED = "Another seed than the scenario's: another user of the same kind."


def simulate(
    scenario: Annotated[Path, typer.Argument(help="A TOML file; docs/simulate.md says more.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show plans and every gate's verdict.")
    ] = False,
    database: Annotated[Path | None, typer.Option(help=_DATABASE)] = None,
    seed: Annotated[int | None, typer.Option(help=_SEED)] = None,
) -> None:
    """Run a scenario with a scripted model on a virtual clock.

    Prints what was sent, what was not, and why.
    """
    # Here, since LangChain takes seconds to load and other commands should not wait for it.
    from segue.cli.timeline import print_report  # noqa: PLC0415
    from segue.testing.scenario import load_scenario  # noqa: PLC0415
    from segue.testing.simulation import simulate as run  # noqa: PLC0415

    with told_plainly():
        story = load_scenario(scenario)
        if seed is not None:
            story = story.model_copy(update={"seed": seed})
        report = run(story, database)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        print_report(report, Console(), verbose=verbose)

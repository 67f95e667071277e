"""`segue simulate`: weeks of a scenario in seconds, or the past once more, to tune a policy."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from segue.cli.errors import told_plainly
from segue.cli.options import ConfigFile
from segue.core.errors import UsageError

_SCENARIO = "A TOML file; docs/simulate.md says more. Or --from, or --all."
_FROM = "Instead of a scenario: the past of this thread."
_ALL = "Instead of a scenario: the past of all threads."
_POLICY = "With a past: a TOML file with what of an agent's `autonomy` is to be another."
_AGENT = "With a policy: it is meant for this agent alone."
_SINCE = "With a past: counted from a time on, 2027-01-31, or so long ago, 7d."
_DATABASE = "Of a past: the database, before the settings'. Of a scenario: keep it in a new folder."
_SEED = "Another seed than the scenario's: another user of the same kind."
_VERBOSE = "Show plans and every gate's verdict; of a past, everything that was sent or not."


def simulate(  # noqa: PLR0913 - each is an option
    scenario: Annotated[Path | None, typer.Argument(metavar="SCENARIO", help=_SCENARIO)] = None,
    *,
    thread: Annotated[str | None, typer.Option("--from", metavar="THREAD", help=_FROM)] = None,
    everything: Annotated[bool, typer.Option("--all", help=_ALL)] = False,
    policy: Annotated[Path | None, typer.Option(help=_POLICY)] = None,
    agent: Annotated[str | None, typer.Option(help=_AGENT)] = None,
    since: Annotated[str | None, typer.Option(help=_SINCE)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help=_VERBOSE)] = False,
    config: ConfigFile = None,
    database: Annotated[str | None, typer.Option(help=_DATABASE)] = None,
    seed: Annotated[int | None, typer.Option(help=_SEED)] = None,
) -> None:
    """Run a scenario on a virtual clock, or past conversations under another policy.

    Prints what was sent, what was not, and why. No model is asked, unless a scenario names one,
    and nobody is written to.
    """
    of_past = {"--policy": policy, "--agent": agent, "--since": since, "--config": config}
    with told_plainly():
        _check_one(scenario, thread, everything=everything)
        if scenario is not None:
            _check_unused(of_past, "a past: --from THREAD or --all")
        else:
            _check_unused({"--seed": seed}, "a scenario")
    if scenario is not None:
        _run(scenario, database, seed, as_json=as_json, verbose=verbose)
        return
    # Here, since LangChain takes seconds to load and other commands should not wait for it.
    from segue.cli.replaying import Question, print_replay, replay_past  # noqa: PLC0415
    from segue.cli.stats import moment  # noqa: PLC0415
    from segue.runtime.clock import SystemClock  # noqa: PLC0415

    with told_plainly():
        began = moment(since, SystemClock().now())
    question = Question(thread, policy, agent, began, keep_entries=verbose)
    print_replay(replay_past(question, config, database), as_json=as_json)


def _check_one(scenario: Path | None, thread: str | None, *, everything: bool) -> None:
    if sum((scenario is not None, thread is not None, everything)) != 1:
        raise UsageError("Name a scenario, or --from THREAD, or --all: one of the three.")


def _check_unused(options: Mapping[str, object], needed: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} needs {needed}.")


def _run(
    scenario: Path, database: str | None, seed: int | None, *, as_json: bool, verbose: bool
) -> None:
    from segue.cli.timeline import print_report  # noqa: PLC0415
    from segue.testing.scenario import load_scenario  # noqa: PLC0415
    from segue.testing.simulation import simulate as run  # noqa: PLC0415

    with told_plainly():
        story = load_scenario(scenario)
        if seed is not None:
            story = story.model_copy(update={"seed": seed})
        report = run(story, None if database is None else Path(database))
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        print_report(report, verbose=verbose)

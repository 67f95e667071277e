"""`segue simulate`: weeks of a scenario in seconds, or a replay of the past, to tune a policy."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.cli.output import ConfigFile, is_piped, print_lines, print_table
from segue.cli.replay import ReplayOptions, print_replay, replay_past
from segue.cli.stats import parse_time
from segue.core.autonomy.local_time import NIGHT
from segue.core.durations import show_duration
from segue.core.text import harmless
from segue.errors import UsageError
from segue.runtime.clock import SystemClock
from segue.simulate.report import EntryKind, SimulationReport, TimelineEntry
from segue.simulate.scenario import load_scenario
from segue.simulate.simulation import simulate as run

_HEADINGS: Final = ("when", "who", "what", "why")
_STYLES: Final[Mapping[EntryKind, str]] = {
    EntryKind.FOLLOW_UP: "bold green",
    EntryKind.POSTPONED: "yellow",
    EntryKind.NOT_SENT: "yellow",
    EntryKind.NOT_PLANNED: "yellow",
    EntryKind.PLANNED: "dim",
    EntryKind.PENDING: "dim",
    EntryKind.WISH: "cyan",
    EntryKind.OUTAGE: "red",
    EntryKind.FAILED: "red",
}

# The cells of a line, and its style.
_Row = tuple[tuple[str, str, str, str], str | None]


def print_report(report: SimulationReport, *, verbose: bool = False) -> None:
    """Print the timeline and the totals; `verbose` adds plans and every gate's verdict."""
    title = f"{report.title}: " if report.title else ""
    first, last = f"{report.start:%Y-%m-%d %H:%M}", f"{report.end:%Y-%m-%d %H:%M}"
    print_lines([f"{title}{report.user} from {first} to {last}"])
    rows = list(_rows(report, verbose=verbose))
    if is_piped():
        print_table(_HEADINGS, [cells for cells, _ in rows], nothing="")
        print_lines(map("\t".join, _lines(report)))
        return
    console = Console()
    console.print(_timeline(rows))
    console.print(_totals(report))


def _rows(report: SimulationReport, *, verbose: bool) -> Iterator[_Row]:
    agents = {entry.agent for entry in report.entries} - {None}
    for entry in report.entries:
        if entry.kind is EntryKind.PLANNED and not verbose:
            continue
        cells = (_when(entry.at), _who(entry, len(agents)), _what(entry), _why(entry))
        yield cells, _STYLES.get(entry.kind)
        for verdict in entry.verdicts if verbose else ():
            why = f"{verdict.outcome.value}: {verdict.reason}"
            yield ("", "", f"  {verdict.gate.value}", why), "dim"


def _timeline(rows: Iterable[_Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    when, who, *others = _HEADINGS
    table.add_column(when, no_wrap=True)
    table.add_column(who, overflow="fold")
    for heading in others:
        table.add_column(heading, ratio=3, overflow="fold")
    for cells, style in rows:
        # As text and not as markup: brackets in messages are shown as they are.
        table.add_row(*(Text(harmless(cell)) for cell in cells), style=style)
    return table


def _who(entry: TimelineEntry, agents: int) -> str:
    to = f" to {entry.agent}" if entry.kind is EntryKind.USER_MESSAGE and agents > 1 else ""
    return f"{entry.who}{to}"


def _what(entry: TimelineEntry) -> str:
    if entry.until is None:
        return entry.what
    words = {
        EntryKind.PLANNED: " for",
        EntryKind.PENDING: " for",
        EntryKind.NOT_SENT: ", planned for",
    }
    return f"{entry.what}{words.get(entry.kind, ' until')} {_when(entry.until)}"


def _why(entry: TimelineEntry) -> str:
    cause = entry.gate or (entry.trigger if entry.kind is EntryKind.FOLLOW_UP else None)
    return ": ".join(part for part in (cause, entry.why) if part)


def _totals(report: SimulationReport) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    for name, number, details in _lines(report):
        table.add_row(name, number, Text(details))
    return table


def _lines(report: SimulationReport) -> Iterator[tuple[str, str, str]]:
    sent = _listed(report.sent_by_trigger)
    yield "sent", f"{len(report.follow_ups)}", sent and f"{sent}; {report.answered} answered"
    night = f"{report.share_at_night:.0%} of those sent, from {NIGHT}"
    yield "at night", f"{report.sent_at_night}", night
    for name, counts in (
        ("postponed", report.postponed_by_gate),
        ("not sent", report.not_sent_by_gate),
    ):
        yield name, f"{sum(counts.values())}", _listed(counts)
    for reason, number in report.not_planned_by_reason.items():
        yield "not planned", f"{number}", reason
    silence, usage = report.longest_silence, report.usage
    yield "longest silence", "", f"{show_duration(silence.span)} from {_when(silence.since)}"
    tokens = f"about {usage.tokens_read:,} tokens read and {usage.tokens_written:,} written"
    yield "model calls", f"{usage.model_calls:,}", tokens


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.items())


def _when(moment: datetime) -> str:
    return f"{moment:%a %d %b %H:%M}"


_SCENARIO = "A TOML file, see docs/simulate.md. Or use --from or --all."
_FROM = "Instead of a scenario: replay this thread."
_ALL = "Instead of a scenario: replay all threads."
_POLICY = "Replay: a TOML file with the settings of `autonomy` to change."
_AGENT = "Replay: apply the policy to this agent only."
_SINCE = "Replay: count from this time on, a date, 2027-01-31, or an age, 7d."
_DATABASE = "Replay: the database; overrides the settings. Scenario: keep it in this new folder."
_SEED = "Overrides the scenario's seed: other follow-ups are answered."
_VERBOSE = "Show plans and every gate's verdict; in a replay, all that was sent or not."


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

    Prints what was sent, what was not, and why. No model is called, unless a scenario names one,
    and no user gets a message.
    """
    of_past = {"--policy": policy, "--agent": agent, "--since": since, "--config": config}
    _check_one(scenario, thread, everything=everything)
    if scenario is not None:
        _check_unused(of_past, "--from THREAD or --all")
        _run(scenario, database, seed, as_json=as_json, verbose=verbose)
        return
    _check_unused({"--seed": seed}, "a scenario")
    began = parse_time(since, SystemClock().now())
    options = ReplayOptions(thread, policy, agent, began, keep_events=verbose)
    print_replay(replay_past(options, config, database), as_json=as_json)


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
    story = load_scenario(scenario)
    if seed is not None:
        story = story.model_copy(update={"seed": seed})
    report = run(story, None if database is None else Path(database))
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        print_report(report, verbose=verbose)

"""A simulation's report for people: a timeline on the user's clock, then the totals.

At a terminal as tables; in a pipe as lines with tabs.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.cli.output import is_piped, print_lines, print_table
from segue.core.durations import show_duration
from segue.core.plain import harmless
from segue.core.quiet import NIGHT
from segue.testing.simulation_report import Entry, Kind, SimulationReport

_HEADINGS: Final = ("when", "who", "what", "why")
_STYLES: Final[Mapping[Kind, str]] = {
    Kind.FOLLOW_UP: "bold green",
    Kind.POSTPONED: "yellow",
    Kind.NOT_SENT: "yellow",
    Kind.NOT_PLANNED: "yellow",
    Kind.PLANNED: "dim",
    Kind.PENDING: "dim",
    Kind.WISH: "cyan",
    Kind.OUTAGE: "red",
    Kind.FAILED: "red",
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
        if entry.kind is Kind.PLANNED and not verbose:
            continue
        cells = (_when(entry.at), _who(entry, len(agents)), _what(entry), _why(entry))
        yield cells, _STYLES.get(entry.kind)
        for verdict in entry.verdicts if verbose else ():
            said = f"{verdict.outcome.value}: {verdict.reason}"
            yield ("", "", f"  {verdict.gate.value}", said), "dim"


def _timeline(rows: Iterable[_Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    when, who, *others = _HEADINGS
    table.add_column(when, no_wrap=True)
    table.add_column(who, overflow="fold")
    for heading in others:
        table.add_column(heading, ratio=3, overflow="fold")
    for cells, style in rows:
        # As text and not as markup: brackets in what was said are what was said.
        table.add_row(*(Text(harmless(cell)) for cell in cells), style=style)
    return table


def _who(entry: Entry, agents: int) -> str:
    to = f" to {entry.agent}" if entry.kind is Kind.USER_MESSAGE and agents > 1 else ""
    return f"{entry.who}{to}"


def _what(entry: Entry) -> str:
    if entry.until is None:
        return entry.what
    words = {Kind.PLANNED: " for", Kind.PENDING: " for", Kind.NOT_SENT: ", planned for"}
    return f"{entry.what}{words.get(entry.kind, ' until')} {_when(entry.until)}"


def _why(entry: Entry) -> str:
    cause = entry.gate or (entry.trigger if entry.kind is Kind.FOLLOW_UP else None)
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

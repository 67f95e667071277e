"""`segue simulate`: weeks of a scenario in seconds, or a replay of the past, to tune a policy."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from segue.cli.output import Answer, ConfigFile, print_lines, print_table, when
from segue.cli.target import Place
from segue.cli.views import parse_time
from segue.core.autonomy.local_time import NIGHT
from segue.core.durations import show_duration
from segue.errors import NotFoundError, UsageError
from segue.offline import OfflineSegue
from segue.runtime.clock import SystemClock
from segue.settings.agents import Autonomy
from segue.settings.loading import read_toml
from segue.simulate.replay import EventKind
from segue.simulate.replay_report import ReplayQuery, ReplayReport, replay
from segue.simulate.report import EntryKind, SimulationReport, TimelineEntry
from segue.simulate.scenario import load_scenario
from segue.simulate.simulation import simulate as run

_SCENARIO = "A TOML file, see docs/simulate.md. Or use --from or --all."
_FROM = "Instead of a scenario: replay this thread."
_ALL = "Instead of a scenario: replay all threads."
_POLICY = "Replay: a TOML file with the settings of `autonomy` to change."
_SINCE = "Replay: count from this time on, a date, 2027-01-31, or an age, 7d."
_DATABASE = "Replay: the database; overrides the settings. Scenario: keep it in this new folder."
_SEED = "Overrides the scenario's seed, which decides which follow-ups are answered."
_VERBOSE = "Show plans and every gate's verdict; in a replay, all that was sent or not."
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
_UNTIL: Final[Mapping[EntryKind, str]] = {
    EntryKind.PLANNED: " for",
    EntryKind.PENDING: " for",
    EntryKind.NOT_SENT: ", planned for",
}
_LABELS: Final = {
    EventKind.SENT_THEN: "was sent",
    EventKind.REPLIED_THEN: "was answered",
    EventKind.SENT: "would be sent",
    EventKind.POSTPONED: "would be postponed",
    EventKind.HELD_BACK: "would be held back",
    EventKind.HELD_OUT: "would be held out",
    EventKind.REPLY_LOST: "reply would be lost",
}
_UNKNOWN: Final = (
    "Users write as they did then. Which of them would have answered another follow-up, or wrote "
    "only because of one, is not known."
)
# Number of threads after which progress is printed.
_PROGRESS_EVERY: Final = 1_000

# The cells of a line, and its style.
_Row = tuple[tuple[str, str, str, str], str]


def simulate(  # noqa: PLR0913 - each is an option
    scenario: Annotated[Path | None, typer.Argument(metavar="SCENARIO", help=_SCENARIO)] = None,
    *,
    thread: Annotated[str | None, typer.Option("--from", metavar="THREAD", help=_FROM)] = None,
    everything: Annotated[bool, typer.Option("--all", help=_ALL)] = False,
    policy: Annotated[Path | None, _POLICY] = None,
    agent: Annotated[str | None, "Replay: apply the policy to this agent only."] = None,
    since: Annotated[str | None, _SINCE] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help=_VERBOSE)] = False,
    config: ConfigFile = None,
    database: Annotated[str | None, _DATABASE] = None,
    seed: Annotated[int | None, _SEED] = None,
) -> Answer:
    """Run a scenario on a virtual clock, or past conversations under another policy.

    Prints what was sent, what was not, and why. No model is called, unless a scenario names one,
    and no user gets a message.
    """
    if sum((scenario is not None, thread is not None, everything)) != 1:
        raise UsageError("Name a scenario, or --from THREAD, or --all: one of the three.")
    if scenario is not None:
        of_past = {"--policy": policy, "--agent": agent, "--since": since, "--config": config}
        _check_unused(of_past, "--from THREAD or --all")
        return _run_scenario(scenario, database, seed, verbose=verbose)
    _check_unused({"--seed": seed}, "a scenario")
    now = SystemClock().now()
    query = ReplayQuery(
        until=now, since=parse_time(since, now), thread_id=thread, keep_events=verbose
    )
    report = _replay(Place(config, database), query, policy, agent)
    return Answer(report.as_json(), lambda: _print_replay(report))


def _check_unused(options: Mapping[str, object], needed: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} needs {needed}.")


def _run_scenario(
    scenario: Path, database: str | None, seed: int | None, *, verbose: bool
) -> Answer:
    story = load_scenario(scenario)
    if seed is not None:
        story = story.model_copy(update={"seed": seed})
    report = run(story, None if database is None else Path(database))
    return Answer(report.as_json(), lambda: _print_simulation(report, verbose=verbose))


def _print_simulation(report: SimulationReport, *, verbose: bool) -> None:
    """Print the timeline and the totals; `verbose` adds plans and every gate's verdict."""
    title = f"{report.title}: " if report.title else ""
    first, last = f"{report.start:%Y-%m-%d %H:%M}", f"{report.end:%Y-%m-%d %H:%M}"
    print_lines([f"{title}{report.user} from {first} to {last}"])
    rows = [*_rows(report, verbose=verbose)]
    print_table(
        ("when", "who", "what", "why"),
        (cells for cells, _ in rows),
        wrapped=2,
        styles=(style for _, style in rows),
    )
    print_table(("total", "number", "details"), _totals(report))


def _rows(report: SimulationReport, *, verbose: bool) -> Iterator[_Row]:
    has_several = len({entry.agent for entry in report.entries} - {None}) > 1
    for entry in report.entries:
        if entry.kind is EntryKind.PLANNED and not verbose:
            continue
        who = entry.who
        if entry.kind is EntryKind.USER_MESSAGE and has_several:
            who += f" to {entry.agent}"
        yield (_when(entry.at), who, _what(entry), _why(entry)), _STYLES.get(entry.kind, "")
        for verdict in entry.verdicts if verbose else ():
            why = f"{verdict.outcome.value}: {verdict.reason}"
            yield ("", "", f"  {verdict.gate.value}", why), "dim"


def _what(entry: TimelineEntry) -> str:
    if entry.until is None:
        return entry.what
    return f"{entry.what}{_UNTIL.get(entry.kind, ' until')} {_when(entry.until)}"


def _why(entry: TimelineEntry) -> str:
    cause = entry.gate or (entry.trigger if entry.kind is EntryKind.FOLLOW_UP else None)
    return ": ".join(part for part in (cause, entry.why) if part)


def _totals(report: SimulationReport) -> Iterator[tuple[str, str, str]]:
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
    return ", ".join(f"{name} {number:,}" for name, number in counts.items())


def _when(moment: datetime) -> str:
    return f"{moment:%a %d %b %H:%M}"


def _replay(
    place: Place, query: ReplayQuery, policy: Path | None, agent: str | None
) -> ReplayReport:
    """Replay the past of the database, which is only read."""

    async def work(segue: OfflineSegue) -> ReplayReport:
        changes = _read_policy(policy) if policy else {}
        known = {config.id: config.autonomy for config in segue.settings.agents}
        used: dict[str, Autonomy] = {}

        def autonomy_of(agent_id: str) -> Autonomy:
            if agent_id not in used:
                autonomy = known.get(agent_id, Autonomy())
                is_changed = agent in (None, agent_id)
                used[agent_id] = (
                    autonomy.with_changes(changes, "policy") if is_changed else autonomy
                )
            return used[agent_id]

        asked = replace(query, zone=segue.settings.zone)
        report = await replay(segue.journal, autonomy_of, asked, _progress())
        if not report.threads and not report.unreadable:
            raise NotFoundError("The database has no conversations yet.")
        if agent is not None and agent not in used:
            raise NotFoundError(
                f"No conversation is with agent {agent!r}; the agents are: "
                f"{', '.join(sorted(used))}."
            )
        return report

    return place.run(work)


def _read_policy(path: Path) -> dict[str, Any]:
    """The settings of `autonomy` in a file, checked; they may be under `[autonomy]`."""
    values = read_toml(path, "policy")
    if values.keys() == {"autonomy"} and isinstance(values["autonomy"], dict):
        values = values["autonomy"]
    try:
        Autonomy(**values)
    except UsageError as error:
        raise UsageError("\n".join(f"{path}: {line}" for line in str(error).split("\n"))) from None
    return values


def _progress() -> Callable[[int], None]:
    shown = 0

    def show(threads: int) -> None:
        nonlocal shown
        if threads >= shown + _PROGRESS_EVERY:
            shown = threads
            typer.echo(f"{threads:,} threads", err=True)

    return show


def _print_replay(report: ReplayReport) -> None:
    if report.events:
        events = (
            (when(e.at), e.thread_id, _LABELS[e.kind], e.trigger or "", e.gate or "")
            for e in report.events
        )
        print_table(("when", "thread", "what", "trigger", "gate"), events)
    kinds = (EventKind.SENT_THEN, EventKind.REPLIED_THEN, EventKind.SENT, EventKind.REPLY_LOST)
    counters = [report.counts[kind] for kind in kinds]
    triggers = sorted({*report.counts[EventKind.SENT_THEN], *report.counts[EventKind.SENT]})
    rows = ((name, *(f"{counter[name]:,}" for counter in counters)) for name in triggers)
    headings = ("trigger", "sent then", "answered", "sent now", "replies lost")
    print_table(headings, rows, nothing="No follow-up was sent, and none would be.")
    print_lines(_sentences(report))


def _sentences(report: ReplayReport) -> Iterator[str]:
    yield f"{report.sentence} Users: {report.users:,}, threads: {report.threads:,}."
    then, now = EventKind.SENT_THEN, EventKind.SENT
    for label, kind in (("Held back", EventKind.HELD_BACK), ("Postponed", EventKind.POSTPONED)):
        if counter := report.counts[kind]:
            yield f"{label}: {_listed(dict(counter.most_common()))}."
    if held_out := report.total(EventKind.HELD_OUT):
        yield f"Held out: {held_out:,}."
    busiest, at_night = report.busiest_day, report.at_night
    yield f"Most sent to one user on one day: {busiest[now]:,} instead of {busiest[then]:,}."
    yield (
        f"At night, {NIGHT} on the user's clock: {at_night[now]:,} ({report.night_share(now):.0%}) "
        f"instead of {at_night[then]:,} ({report.night_share(then):.0%})."
    )
    if report.assumed:
        yield (
            f"{report.assumed:,} of those sent follow one that was never written; their trigger is "
            "assumed to be the same."
        )
    if report.requested:
        yield (
            f"Only silence is replayed; {report.requested:,} messages that programs, events and "
            "reminders asked for are left out."
        )
    if report.imported:
        yield (
            f"Threads that were imported: {report.imported:,}. The settings by which they were "
            "followed up are not known."
        )
    if report.unreadable:
        yield f"Threads that cannot be read and are left out: {report.unreadable:,}."
    yield _UNKNOWN

"""`segue simulate --from` and `--all`: past conversations under other settings."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import typer

from segue.cli.access import with_journal
from segue.cli.output import print_json, print_lines, print_table, when
from segue.core.autonomy.local_time import NIGHT
from segue.errors import NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.replay.engine import EventKind
from segue.replay.report import ReplayQuery, ReplayReport, replay
from segue.runtime.clock import SystemClock
from segue.settings import Settings
from segue.settings.agents import Autonomy
from segue.settings.loading import read_toml

# Number of threads after which progress is printed.
_PROGRESS_EVERY: Final = 1_000
_UNKNOWN: Final = (
    "Users wrote as they wrote then: who would have answered another follow-up, or wrote only "
    "because of one, is not known."
)
_LABELS: Final = {
    EventKind.SENT_THEN: "was sent",
    EventKind.REPLIED_THEN: "was answered",
    EventKind.SENT: "would be sent",
    EventKind.POSTPONED: "would be postponed",
    EventKind.HELD_BACK: "would be held back",
    EventKind.HELD_OUT: "would be held out",
    EventKind.REPLY_LOST: "reply would be lost",
}


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Which past, of one thread or of all, and under which policy."""

    thread_id: str | None
    policy: Path | None
    agent: str | None
    since: datetime | None
    keep_events: bool


def replay_past(options: ReplayOptions, config: Path | None, database: str | None) -> ReplayReport:
    """Replay the past of the database, which is only read."""

    async def work(journal: Journal, settings: Settings) -> ReplayReport:
        values = _read_policy(options.policy) if options.policy else {}
        thread = await journal.threads.get(options.thread_id) if options.thread_id else None
        query = ReplayQuery(
            until=SystemClock().now(),
            since=options.since,
            user_id=thread.user_id if thread else None,
            thread_id=options.thread_id,
            keep_events=options.keep_events,
        )
        known = {config.id: config.autonomy for config in settings.agents}
        used: dict[str, Autonomy] = {}

        def autonomy_of(agent_id: str) -> Autonomy:
            if agent_id not in used:
                autonomy = known.get(agent_id, Autonomy())
                is_changed = options.agent in (None, agent_id)
                used[agent_id] = _with_policy(autonomy, values) if is_changed else autonomy
            return used[agent_id]

        report = await replay(journal, autonomy_of, query, _progress())
        if not report.threads and not report.unreadable:
            raise NotFoundError("There is no conversation in the database yet.")
        if options.agent is not None and options.agent not in used:
            raise NotFoundError(
                f"There is no conversation with agent {options.agent!r}; there are some with: "
                f"{', '.join(sorted(used))}."
            )
        return report

    return with_journal(config, database, work)


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


def _with_policy(autonomy: Autonomy, values: Mapping[str, Any]) -> Autonomy:
    """An agent's autonomy with the settings of a file over its own."""
    known: dict[str, Any] = {name: getattr(autonomy, name) for name in Autonomy.model_fields}
    for section in ("policy", "delays"):
        if isinstance(given := values.get(section), Mapping):
            old = {each.name: getattr(known[section], each.name) for each in fields(known[section])}
            known[section] = {**old, **given}
    rest = {name: value for name, value in values.items() if name not in ("policy", "delays")}
    return Autonomy.parse({**known, **rest}, "policy")


def _progress() -> Callable[[int], None]:
    shown = 0

    def show(threads: int) -> None:
        nonlocal shown
        if threads >= shown + _PROGRESS_EVERY:
            shown = threads
            typer.echo(f"{threads:,} threads", err=True)

    return show


def print_replay(report: ReplayReport, *, as_json: bool) -> None:
    if as_json:
        print_json(report.as_json())
        return
    if report.events:
        events = (
            (when(e.at), e.thread_id, _LABELS[e.kind], e.trigger or "", e.gate or "")
            for e in report.events
        )
        print_table(("when", "thread", "what", "trigger", "gate"), events, nothing="")
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
            counts = ", ".join(f"{name} {number:,}" for name, number in counter.most_common())
            yield f"{label}: {counts}."
    if held_out := report.total(EventKind.HELD_OUT):
        yield f"Held out: {held_out:,}."
    busiest, at_night = report.busiest_day, report.at_night
    yield (f"The most that one user got on one day: {busiest[now]:,} instead of {busiest[then]:,}.")
    yield (
        f"At night, {NIGHT} on the user's clock: {at_night[now]:,} ({report.night_share(now):.0%}) "
        f"instead of {at_night[then]:,} ({report.night_share(then):.0%})."
    )
    if report.assumed:
        yield (
            f"{report.assumed:,} of those sent follow one that was never written; their trigger is "
            "assumed to be the same."
        )
    if report.imported:
        yield (
            f"Threads that were imported: {report.imported:,}. The settings by which they were "
            "followed up are not known."
        )
    if report.unreadable:
        yield f"Threads that cannot be read and are left out: {report.unreadable:,}."
    yield _UNKNOWN

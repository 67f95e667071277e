"""`segue stats`: what follow-ups come to, and which way to follow up does better."""

import csv
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segue.cli.errors import told_plainly
from segue.cli.options import AsJson, ConfigFile, Database, Key, Url
from segue.cli.output import print_json, print_lines, print_table
from segue.cli.working import Where, look
from segue.core.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from segue.journal.ports import Journal
    from segue.settings import Settings

Json = Mapping[str, Any]
_HEADINGS = (
    *("agent", "trigger", "variant", "replied", "ignored", "pending", "stopped", "failed"),
    *("held out", "suppressed", "reply rate", "median reply after", "suppressed by"),
)
_RATES = ("reply_rate", "wrote_unasked")


def stats(  # noqa: PLR0913 - each is an option
    *,
    agent: Annotated[str | None, typer.Option(help="Of one agent, by its id.")] = None,
    trigger: Annotated[str | None, typer.Option(help="Of one trigger, such as check_in.")] = None,
    since: Annotated[
        str | None, typer.Option(help="From a time on, 2027-01-31, or so long ago, 7d.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Before a time; the same.")] = None,
    window: Annotated[
        str, typer.Option(help="How long after a follow-up a message is its answer.")
    ] = "24h",
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Count what became of follow-ups, and whether following up helps.

    By agent, trigger and variant of the prompt; docs/outcomes.md says what the numbers mean.
    """
    from segue.core.durations import parse_duration  # noqa: PLC0415
    from segue.runtime.clock import SystemClock  # noqa: PLC0415
    from segue.runtime.stats import Wanted  # noqa: PLC0415
    from segue.runtime.stats import stats as stats_of  # noqa: PLC0415

    now = SystemClock().now()
    with told_plainly():
        if as_csv and as_json:
            raise UsageError("--csv and --json are two ways to print the same; take one.")
        wanted = Wanted(
            since=moment(since, now),
            until=moment(until, now),
            agent_id=agent,
            trigger_type=trigger,
            window=parse_duration(window),
        )
        wanted.query(now)  # raises before anything is opened

    async def work(journal: "Journal", settings: "Settings") -> Json:
        found = (await stats_of(journal, wanted, now)).as_json()
        _refuse_unknown(agent, [config.id for config in settings.agents], found)
        return found

    found = look(
        Where(url, key, config, database),
        "/api/admin/stats",
        work,
        since=wanted.since and wanted.since.isoformat(),
        until=wanted.until and wanted.until.isoformat(),
        agent=agent,
        trigger=trigger,
        window=wanted.window.total_seconds(),
    )
    if as_json:
        print_json(found)
    elif as_csv:
        _print_csv(found)
    else:
        print_table(_HEADINGS, map(_row, found["outcomes"]), nothing="There was no follow-up.")
        print_lines(_sentences(found))


def _refuse_unknown(agent: str | None, known: list[str], found: Json) -> None:
    if agent is not None and agent not in known and not found["outcomes"]:
        raise NotFoundError(
            f"There is no agent {agent!r:.60}, and nothing of one is stored; the settings have: "
            f"{', '.join(known)}."
        )


def moment(text: str | None, now: datetime) -> datetime | None:
    """A time on this machine's clock, or so long ago; `UsageError` if it is neither."""
    from segue.core.durations import parse_duration  # noqa: PLC0415

    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    try:
        return now - parse_duration(text)
    except UsageError:
        raise UsageError(
            f"{text!r:.60} is no time and no length of time; write a date such as 2027-01-31, "
            "2027-01-31T08:00, or how long ago, such as 7d."
        ) from None


def _row(row: Json) -> tuple[str, ...]:
    shown = ("replied", "ignored", "pending", "stopped", "failed", "held_out", "suppressed")
    return (
        row["agent"],
        row["trigger"] or "-",
        row["variant"] or "-",
        *(str(row[name]) for name in shown),
        _rate(row["reply_rate"]),
        _span(row["median_latency_seconds"]),
        ", ".join(f"{gate} {count}" for gate, count in row["suppressed_by"].items()),
    )


def _sentences(found: Json) -> Iterator[str]:
    for contest in found["comparisons"]:
        yield f"{contest['agent']}, {contest['trigger']}: {contest['sentence']}"
    for row in found["outcomes"]:
        if wrote := row["wrote_unasked"]:
            yield (
                f"{row['agent']}, {row['trigger']}: of {wrote['cases']} held out, the user wrote "
                f"on their own after {wrote['hits']}: {_rate(wrote)}."
            )
    if fallbacks := found["memory"]["fallback_rate"]:
        yield (
            f"Memory queries without words of the user's: {_rate(fallbacks)} of "
            f"{fallbacks['cases']}; {found['memory']['failed']} searches failed."
        )
    if found["unmarked"]:
        yield f"{found['unmarked']} stored triggers have lost their mark: a store loses metadata."


def _rate(rate: Json | None) -> str:
    if rate is None:
        return ""
    return f"{100 * rate['value']:.0f} % ({100 * rate['low']:.0f} to {100 * rate['high']:.0f})"


def _span(seconds: float | None) -> str:
    from segue.core.durations import show_duration  # noqa: PLC0415

    return "" if seconds is None else show_duration(timedelta(seconds=seconds))


def _print_csv(found: Json) -> None:
    rows = [_flat({**row}) for row in found["outcomes"]]
    if rows:
        writer = csv.DictWriter(sys.stdout, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with one value per column."""
    rates = {name: row.pop(name) or {} for name in _RATES}
    gates = row.pop("suppressed_by")
    for name, rate in rates.items():
        row |= {f"{name}_{part}": rate.get(part) for part in ("cases", "value", "low", "high")}
    return row | {"suppressed_by": " ".join(f"{gate}={count}" for gate, count in gates.items())}

"""`segue stats`: what became of follow-ups, and how they compare with the hold-out."""

import csv
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from segue.cli.access import Target
from segue.cli.output import Answer, AsJson, print_lines, print_table
from segue.core.durations import parse_duration, show_duration
from segue.errors import NotFoundError, UsageError
from segue.insight.stats import build_query
from segue.offline import OfflineSegue
from segue.runtime.clock import SystemClock

Json = Mapping[str, Any]
_OUTCOMES = (
    *("replied", "ignored", "pending", "stopped"),
    *("failed", "held_out", "suppressed", "withheld"),
)
_HEADINGS = (
    *("agent", "trigger", "variant", *(name.replace("_", " ") for name in _OUTCOMES)),
    *("reply rate", "median reply after", "suppressed by"),
)


def stats(  # noqa: PLR0913 - each is an option
    *,
    agent: Annotated[str | None, typer.Option(help="Only this agent, by its id.")] = None,
    trigger: Annotated[
        str | None, typer.Option(help="Only this trigger, such as check_in.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="From this time on: a date, 2027-01-31, or an age, 7d.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Before this time; the same forms.")] = None,
    window: Annotated[
        str, typer.Option(help="A message within this time counts as the answer.")
    ] = "24h",
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    target: Target,
) -> Answer:
    """Count what became of follow-ups, and compare them with the hold-out.

    By agent, trigger and variant of the prompt; docs/outcomes.md explains the numbers.
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json exclude each other.")
    now = SystemClock().now()
    query = build_query(
        now,
        since=parse_time(since, now),
        until=parse_time(until, now),
        agent=agent,
        trigger=trigger,
        window=parse_duration(window),
    )

    async def work(segue: OfflineSegue) -> Json:
        found = (await segue.stats(query)).as_json()
        _refuse_unknown(agent, [config.id for config in segue.settings.agents], found)
        return found

    found = target.look(
        "/api/admin/stats",
        work,
        since=since and query.since.isoformat(),
        until=until and query.until.isoformat(),
        agent=agent,
        trigger=trigger,
        window=query.window.total_seconds(),
    )
    return Answer(found, lambda: _print_csv(found) if as_csv else _print(found))


def _print(found: Json) -> None:
    print_table(_HEADINGS, map(_row, found["outcomes"]), nothing="There was no follow-up.")
    print_lines(_sentences(found))


def _refuse_unknown(agent: str | None, known: list[str], found: Json) -> None:
    if agent is not None and agent not in known and not found["outcomes"]:
        raise NotFoundError(
            f"There is no agent {agent!r:.60}, and nothing of one is stored; the settings have: "
            f"{', '.join(known)}."
        )


def parse_time(text: str | None, now: datetime) -> datetime | None:
    """A time on this machine's clock, or an age such as 7d; `UsageError` if it is neither."""
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
            f"{text!r:.60} is not a time or an age; write a date such as 2027-01-31 or "
            "2027-01-31T08:00, or an age such as 7d."
        ) from None


def _row(row: Json) -> tuple[str, ...]:
    latency = row["median_latency_seconds"]
    return (
        row["agent"],
        row["trigger"] or "-",
        row["variant"] or "-",
        *(str(row[name]) for name in _OUTCOMES),
        _rate(row["reply_rate"]),
        "" if latency is None else show_duration(timedelta(seconds=latency)),
        ", ".join(f"{gate} {count}" for gate, count in row["suppressed_by"].items()),
    )


def _sentences(found: Json) -> Iterator[str]:
    for arm in found["arms"]:
        wrote, difference = arm["wrote"], arm["difference"]
        line = (
            f"{arm['agent']}, {arm['trigger']}, {arm['variant'] or 'held out'}: users wrote after "
            f"{_rate(wrote)} of the moments in {wrote['cases']:,} threads"
        )
        if difference is not None:
            points = [f"{100 * difference[part]:+.0f}" for part in ("value", "low", "high")]
            line += ", {} points ({} to {}) against held out".format(*points)
        yield f"{line}."
    if fallbacks := found["memory"]["fallback_rate"]:
        yield (
            f"Memory queries without text of the user: {_rate(fallbacks)} of "
            f"{fallbacks['cases']}; {found['memory']['failed']} searches failed."
        )
    if (reminders := found["reminders"])["sent"]:
        yield (
            f"Reminders: {reminders['sent']:,} sent, {reminders['plainly']:,} of them in plain "
            "words, because the model failed or did not name what to remind of."
        )
    if found["unmarked"]:
        yield f"{found['unmarked']} stored triggers have no metadata: a store loses data."


def _rate(rate: Json | None) -> str:
    if rate is None:
        return ""
    return f"{100 * rate['value']:.0f} % ({100 * rate['low']:.0f} to {100 * rate['high']:.0f})"


def _print_csv(found: Json) -> None:
    rows = [_flat({**row}) for row in found["outcomes"]]
    if rows:
        writer = csv.DictWriter(sys.stdout, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with one value per column."""
    rate = row.pop("reply_rate") or {}
    gates = row.pop("suppressed_by")
    row |= {f"reply_rate_{part}": rate.get(part) for part in ("cases", "value", "low", "high")}
    return row | {"suppressed_by": " ".join(f"{gate}={count}" for gate, count in gates.items())}

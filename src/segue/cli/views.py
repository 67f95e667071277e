"""`segue threads`, `history`, `batches`, `context`, `timers`, `why`, `stats`: what is stored."""

import csv
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

import typer

from segue.cli.output import (
    Answer,
    AsJson,
    Limit,
    ThreadId,
    counted,
    print_lines,
    print_table,
    when,
)
from segue.cli.questions import with_questions
from segue.cli.target import Target, of_thread
from segue.core.durations import parse_duration, show_duration
from segue.core.text import one_line
from segue.core.triggers import FIXED_PROMPTS
from segue.errors import DeniedError, NotFoundError, UsageError
from segue.insight.stats import build_query
from segue.insight.views import Inspector
from segue.journal.records import Thread
from segue.offline import OfflineSegue
from segue.runtime.clock import SystemClock

_USER = "The user; by default the key's user, or `me` without a server."
_ALL = "The newest conversations of all users."
_ONE_THREAD = "The thread's id; without it, the pending timers of all threads."


def threads(
    *,
    user: Annotated[str | None, _USER] = None,
    of_all: Annotated[bool, typer.Option("--all", help=_ALL)] = False,
    limit: Limit = 50,
    target: Target,
) -> Answer:
    """List a user's conversations, or those of all users, the most recent first."""
    if of_all and user is not None:
        raise UsageError("--all lists the conversations of all users; leave out --user.")
    owner = "me" if user is None else user

    async def load(segue: OfflineSegue) -> Any:
        return await segue.inspector.list_threads(None if of_all else owner, limit=limit)

    # The key's own threads need no operator's key.
    is_own = target.url is not None and user is None and not of_all
    path = "/api/threads" if is_own else "/api/admin/threads"
    found = target.look(path, load, limit=limit, user=user)
    shown = ("user_id", "agent_id") if of_all else ("agent_id",)
    rows = (
        (
            thread["id"],
            *(thread[name] for name in shown),
            when(thread["updated_at"]),
            str(thread["message_count"]),
            one_line(thread["title"] or "", 60),
        )
        for thread in found
    )
    names = (name.removesuffix("_id") for name in shown)
    headings = ("id", *names, "last written", "messages", "title")
    subject = "You have" if is_own else f"{owner} has"
    nothing = f"{subject} no conversations here; --all lists those of all users."
    return Answer.table(found, headings, rows, nothing="No conversations." if of_all else nothing)


def history(thread_id: ThreadId, *, limit: Limit = 50, target: Target) -> Answer:
    """Show a conversation as its user sees it, oldest message first, with the agent's questions."""
    messages = _list(target, thread_id, "history", Inspector.list_history, limit)
    turns = _list(target, thread_id, "turns", Inspector.list_turns, limit)
    found = with_questions(messages, turns)[-limit:]
    rows = ((when(m["created_at"]), m["name"], m["shown"]) for m in found)
    headings = ("when", "who", "what")
    return Answer.table(found, headings, rows, nothing="No messages yet.")


def batches(thread_id: ThreadId, *, limit: Limit = 20, target: Target) -> Answer:
    """List the newest batches, oldest first: type, state, reasons, and nested batches."""
    newest_first = _list(target, thread_id, "batches", Inspector.list_batches, limit)
    found = newest_first[::-1]
    lines = (line for batch in found for line in _batch_lines(batch))
    return Answer(found, lambda: print_lines(lines if found else ["No batches yet."]))


def context(thread_id: ThreadId, *, target: Target) -> Answer:
    """Show what the model would get now, what is left out, and why.

    Memories are not included: they are searched with the user's next message.
    """

    async def work(segue: OfflineSegue, thread: Thread) -> Any:
        return await segue.inspector.get_context(thread, segue.get_agent(thread.agent_id))

    found = target.look(_path(thread_id, "context"), of_thread(thread_id, work))
    return Answer(found, lambda: _print_context(found))


def timers(
    thread_id: Annotated[str | None, typer.Argument(metavar="THREAD", help=_ONE_THREAD)] = None,
    *,
    limit: Limit = 50,
    target: Target,
) -> Answer:
    """List a thread's planned and past follow-ups with their outcome, the last due first.

    Without a thread: the pending timers of all threads, soonest first.
    """

    async def load_pending(segue: OfflineSegue) -> Any:
        return await segue.inspector.list_pending_timers(limit=limit)

    if thread_id is None:
        found = target.look("/api/admin/timers", load_pending, limit=limit)
    else:
        found = _list(target, thread_id, "timers", Inspector.list_timers, limit)
        found.sort(key=lambda timer: datetime.fromisoformat(timer["due_at"]), reverse=True)
    own = ("thread_id", "agent_id") if thread_id is None else ()
    rows = (
        (
            when(timer["due_at"]),
            *(timer[name] for name in own),
            timer["state"],
            timer["became"] or "",
            timer["trigger_type"] or timer["kind"],
            timer["why"],
        )
        for timer in found
    )
    names = (name.removesuffix("_id") for name in own)
    headings = ("due", *names, "state", "became", "trigger", "why")
    return Answer.table(found, headings, rows, nothing="No timers.")


def why(thread_id: ThreadId, *, limit: Limit = 50, target: Target) -> Answer:
    """Show why the agent wrote, and why it did not, oldest first.

    With --url, a user's own key explains the user's own threads.
    """
    try:
        found = _list(target, thread_id, "why", Inspector.list_reasons, limit)
    except DeniedError:  # not an operator's key
        found = _list(target, thread_id, "why", Inspector.list_reasons, limit, root="/api")
    rows = ((when(r["at"]), r["what"], r["outcome"], r["why"]) for r in found)
    headings = ("when", "what", "outcome", "why")
    return Answer.table(found, headings, rows, nothing="No decisions yet.")


def _path(thread_id: str, view: str, root: str = "/api/admin") -> str:
    return f"{root}/threads/{quote(thread_id, safe='')}/{view}"


def _list(
    target: Target,
    thread_id: str,
    view: str,
    load: Callable[..., Awaitable[list[dict[str, Any]]]],
    limit: int,
    root: str = "/api/admin",
) -> Any:
    """The JSON of a thread's view, from a server or from the database."""

    async def work(segue: OfflineSegue, thread: Thread) -> Any:
        return await load(segue.inspector, thread.id, limit=limit)

    return target.look(_path(thread_id, view, root), of_thread(thread_id, work), limit=limit)


def _batch_lines(batch: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """A batch and, indented, the batches nested in it."""
    indent = "    " * depth
    turns = ", ".join(f"{turn['kind']} {turn['state']}" for turn in reversed(batch["turns"]))
    where = f", in thread {batch['thread_id']}" if depth else ""
    yield (
        f"{indent}{batch['id']}  {when(batch['began_at'])}  {batch['type']}, "
        f"{batch['state']}{f' ({turns})' if turns else ''}{where}"
    )
    yield from (f"{indent}    ! {reason}" for reason in batch["reasons"])
    yield from (f"{indent}    {m['role']:7} {one_line(m['text'])}" for m in batch["messages"])
    for child in reversed(batch["nested"]):
        yield from _batch_lines(child, depth + 1)


def _print_context(found: Mapping[str, Any]) -> None:
    rows = ((line["role"], line["text"]) for line in found["lines"])
    print_table(("role", "what the model gets"), rows, nothing="Nothing yet.")
    left = ((str(d["batch"]), d["reason"], d["detail"]) for d in found["dropped"])
    print_table(("left out", "reason", "detail"), left, nothing="Nothing is left out.")
    if found["shortened"]:
        shorter = ((str(s["batch"]), s["detail"]) for s in found["shortened"])
        print_table(("shortened", "detail"), shorter)
    if found["state"]:
        state = ((s["channel"], str(s["bytes"]), s["value"]) for s in found["state"])
        print_table(("state", "bytes", "value"), state)
    cut = ", and there may be older ones that do not fit" if found["is_cut"] else ""
    size = f"{counted(found['tokens'], 'token')} in {counted(len(found['batches']), 'batch')}"
    typer.echo(f"About {size}{cut}.")


Json = Mapping[str, Any]
_OUTCOMES = (
    *("replied", "ignored", "pending", "stopped"),
    *("failed", "held_out", "suppressed", "withheld"),
)
_ALWAYS = ("replied", "ignored")
_MORE = ("reply rate", "median reply after", "suppressed by")


def stats(  # noqa: PLR0913 - each is an option
    *,
    agent: Annotated[str | None, "Only this agent, by its id."] = None,
    trigger: Annotated[str | None, "Only this trigger, such as check_in."] = None,
    since: Annotated[str | None, "From this time on: a date, 2027-01-31, or an age, 7d."] = None,
    until: Annotated[str | None, "Before this time; the same forms."] = None,
    window: Annotated[str, "A message within this time counts as the answer."] = "24h",
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    target: Target,
) -> Answer:
    """Show the outcomes of follow-ups, compared with the hold-out.

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
        if not found["outcomes"]:
            agents = segue.settings.agents
            triggers = {*FIXED_PROMPTS, *(name for a in agents for name in a.autonomy.triggers)}
            _check_known("agent", agent, [config.id for config in agents])
            _check_known("trigger", trigger, sorted(triggers))
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


def _check_known(what: str, name: str | None, known: Sequence[str]) -> None:
    if name is not None and name not in known:
        raise NotFoundError(
            f"Unknown {what} {name!r:.60}: nothing of it is stored, and the settings have: "
            f"{', '.join(known)}."
        )


def _print(found: Json) -> None:
    rows = found["outcomes"]
    # Columns of zeros would leave no room for the others.
    shown = [n for n in _OUTCOMES if n in _ALWAYS or any(row[n] for row in rows)]
    headings = ("agent", "trigger", "variant", *(name.replace("_", " ") for name in shown), *_MORE)
    print_table(headings, (_row(row, shown) for row in rows), nothing="No follow-ups.")
    print_lines(_sentences(found))


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
    except (UsageError, OverflowError):
        raise UsageError(
            f"{text!r:.60} is not a time or an age; write a date such as 2027-01-31 or "
            "2027-01-31T08:00, or an age such as 7d."
        ) from None


def _row(row: Json, shown: Sequence[str]) -> tuple[str, ...]:
    latency = row["median_latency_seconds"]
    return (
        row["agent"],
        row["trigger"] or "-",
        row["variant"] or "-",
        *(str(row[name]) for name in shown),
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
            f"Reminders: {reminders['sent']:,} sent, {reminders['plainly']:,} of them with the "
            "stored text, because the model failed or did not mention it."
        )
    if found["unmarked"]:
        yield f"{found['unmarked']} stored triggers have no metadata: the database loses data."


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

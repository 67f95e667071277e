"""`segue simulate --from` and `--all`: past conversations under other settings."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from segue.agent.config import Autonomy
from segue.cli.output import print_json, print_lines, print_table, when
from segue.cli.working import with_journal
from segue.core.errors import NotFoundError, UsageError
from segue.core.quiet import NIGHT
from segue.journal.ports import Journal
from segue.runtime.clock import SystemClock
from segue.runtime.reliving import Kind
from segue.runtime.replay import Replay, Wanted, replay
from segue.settings import Settings

# So many threads are told of as one step.
_EVERY = 1_000
_UNKNOWN = (
    "Users wrote as they wrote then: who would have answered another follow-up, or wrote only "
    "because of one, is not known."
)
_WORDS = {
    Kind.SENT_THEN: "was sent",
    Kind.REPLIED_THEN: "was answered",
    Kind.SENT: "would be sent",
    Kind.POSTPONED: "would be put off",
    Kind.HELD_BACK: "would be held back",
    Kind.HELD_OUT: "would be held out",
    Kind.REPLY_LOST: "reply would be lost",
}


def read_policy(path: Path) -> dict[str, Any]:
    """What a file says of an agent's autonomy, checked; it may stand under `[autonomy]`."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"The policy {str(path)!r} cannot be read: {reason}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The policy {str(path)!r} is no TOML: {error}.") from None
    if values.keys() == {"autonomy"} and isinstance(values["autonomy"], dict):
        values = values["autonomy"]
    try:
        Autonomy(**values)
    except UsageError as error:
        raise UsageError("\n".join(f"{path}: {line}" for line in str(error).split("\n"))) from None
    return values


def changed(autonomy: Autonomy, values: Mapping[str, Any]) -> Autonomy:
    """An agent's autonomy with what a file says laid over it."""
    known: dict[str, Any] = {name: getattr(autonomy, name) for name in Autonomy.model_fields}
    for section in ("policy", "delays"):
        if isinstance(given := values.get(section), Mapping):
            old = {each.name: getattr(known[section], each.name) for each in fields(known[section])}
            known[section] = {**old, **given}
    rest = {name: value for name, value in values.items() if name not in ("policy", "delays")}
    return Autonomy.parse({**known, **rest}, "policy")


def _autonomies(
    settings: Settings, values: Mapping[str, Any], only: str | None, met: dict[str, Autonomy]
) -> Callable[[str], Autonomy]:
    """Each agent's autonomy under the policy, which may be meant for one agent alone."""
    known = {config.id: config.autonomy for config in settings.agents}

    def autonomy_of(agent_id: str) -> Autonomy:
        if agent_id not in met:
            present = known.get(agent_id, Autonomy())
            met[agent_id] = changed(present, values) if only in (None, agent_id) else present
        return met[agent_id]

    return autonomy_of


@dataclass(frozen=True, slots=True)
class Question:
    """Which past, and under which policy: of one thread or, without one, of all."""

    thread_id: str | None
    policy: Path | None
    agent: str | None
    since: datetime | None
    keep_entries: bool


def replay_past(question: Question, config: Path | None, database: str | None) -> Replay:
    """Go through the past of the database again; it stays as it is."""

    async def work(journal: Journal, settings: Settings) -> Replay:
        values = read_policy(question.policy) if question.policy else {}
        thread = await journal.get_thread(question.thread_id) if question.thread_id else None
        wanted = Wanted(
            until=SystemClock().now(),
            since=question.since,
            user_id=thread.user_id if thread else None,
            thread_id=question.thread_id,
            keep_entries=question.keep_entries,
        )
        met: dict[str, Autonomy] = {}
        autonomy_of = _autonomies(settings, values, question.agent, met)
        found = await replay(journal, autonomy_of, wanted, _told_now_and_then())
        if not found.threads and not found.unreadable:
            raise NotFoundError("There is no conversation in the database yet.")
        if question.agent is not None and question.agent not in met:
            raise NotFoundError(
                f"There is no conversation with agent {question.agent!r}; there are some with: "
                f"{', '.join(sorted(met))}."
            )
        return found

    return with_journal(config, database, work)


def _told_now_and_then() -> Callable[[int], None]:
    told = 0

    def tell(threads: int) -> None:
        nonlocal told
        if threads >= told + _EVERY:
            told = threads
            typer.echo(f"{threads:,} threads", err=True)

    return tell


def print_replay(found: Replay, *, as_json: bool) -> None:
    if as_json:
        print_json(found.as_json())
        return
    if found.entries:
        told = (
            (when(e.at), e.thread_id, _WORDS[e.kind], e.trigger or "", e.gate or "")
            for e in found.entries
        )
        print_table(("when", "thread", "what", "trigger", "gate"), told, nothing="")
    triggers = sorted({*found.then, *found.now})
    counted = (found.then, found.replies, found.now, found.replies_lost)
    rows = ((name, *(f"{counts[name]:,}" for counts in counted)) for name in triggers)
    headings = ("trigger", "sent then", "answered", "sent now", "replies lost")
    print_table(headings, rows, nothing="Nothing was ever sent, and nothing would be.")
    print_lines(_sentences(found))


def _sentences(found: Replay) -> Iterator[str]:
    yield f"{found.sentence} Users: {found.users:,}, threads: {found.threads:,}."
    for words, counts in (("Held back", found.held_back), ("Put off", found.postponed)):
        if counts:
            listed = ", ".join(f"{name} {number:,}" for name, number in counts.most_common())
            yield f"{words}: {listed}."
    if found.held_out:
        yield f"Held out: {found.held_out:,}."
    yield (
        f"The most that one user got on one day: {found.busiest_now:,} "
        f"instead of {found.busiest_then:,}."
    )
    yield (
        f"At night, {NIGHT} on the user's clock: {found.night_now:,} ({found.night_share:.0%}) "
        f"instead of {found.night_then:,} ({found.night_share_then:.0%})."
    )
    if found.assumed:
        yield (
            f"{found.assumed:,} of those sent follow one that nobody ever wrote; they are taken to "
            "be of the same kind."
        )
    if found.brought_in:
        yield (
            f"Threads that were brought in from elsewhere: {found.brought_in:,}. By which settings "
            "they were followed up is not known."
        )
    if found.unreadable:
        yield f"Threads that are left out, since they cannot be read: {found.unreadable:,}."
    yield _UNKNOWN

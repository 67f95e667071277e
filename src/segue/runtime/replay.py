"""Replay: what past conversations would have had of follow-ups under other settings.

No model is asked and nothing is written. What nobody can know is not guessed: a user who would have
written because of another follow-up, or who wrote only because of one, stays as they were.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from segue.agent.config import Autonomy
from segue.core.quiet import NIGHT, find_zone, local_day
from segue.journal.ports import Journal
from segue.runtime.past import PastThread, past_of
from segue.runtime.reliving import Entry, Kind, relive


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which past: of whom, and from when on it is counted. A user's threads share caps, so they are
    lived through together, and one of them may be counted alone.
    """

    until: datetime
    since: datetime | None = None
    user_id: str | None = None
    thread_id: str | None = None
    # For a timeline; without it, memory does not grow with the past.
    keep_entries: bool = False


@dataclass(slots=True)
class Replay:
    """What the other settings change."""

    since: datetime | None
    until: datetime
    users: int = 0
    threads: int = 0
    # Of these, so many came from elsewhere: nobody knows what they were followed up by.
    brought_in: int = 0
    # Threads that are left out, since something of them cannot be read.
    unreadable: int = 0
    then: Counter[str] = field(default_factory=Counter)
    now: Counter[str] = field(default_factory=Counter)
    held_back: Counter[str] = field(default_factory=Counter)
    postponed: Counter[str] = field(default_factory=Counter)
    held_out: int = 0
    # Follow-ups of then that were answered, and those of them that leave nothing to answer now.
    replies: Counter[str] = field(default_factory=Counter)
    replies_lost: Counter[str] = field(default_factory=Counter)
    assumed: int = 0
    # The most that one user got on one day of theirs.
    busiest_then: int = 0
    busiest_now: int = 0
    # Between 22:00 and 08:00 of the user's.
    night_then: int = 0
    night_now: int = 0
    # In the order of time, over all users.
    entries: list[Entry] = field(default_factory=list)

    @property
    def difference(self) -> int:
        return self.now.total() - self.then.total()

    @property
    def night_share_then(self) -> float:
        return self.night_then / (self.then.total() or 1)

    @property
    def night_share(self) -> float:
        return self.night_now / (self.now.total() or 1)

    @property
    def sentence(self) -> str:
        """For people."""
        then, now = self.then.total(), self.now.total()
        if not self.difference:
            sent = f"As many sent as then: {now:,}"
        else:
            word = "more" if self.difference > 0 else "fewer"
            sent = f"{abs(self.difference):,} {word} sent: {now:,} instead of {then:,}"
        answered, lost = self.replies.total(), self.replies_lost.total()
        if not answered:
            return f"{sent}. Nobody had answered one."
        words = f"{lost:,} of {answered:,} replies" if lost else f"None of {answered:,} replies"
        return f"{sent}. {words} lost."

    def as_json(self) -> dict[str, Any]:
        return {
            "since": self.since,
            "until": self.until,
            "users": self.users,
            "threads": self.threads,
            "threads_brought_in": self.brought_in,
            "threads_unreadable": self.unreadable,
            "sent_then": dict(sorted(self.then.items())),
            "sent": dict(sorted(self.now.items())),
            "difference": self.difference,
            "replies_then": dict(sorted(self.replies.items())),
            "replies_lost": dict(sorted(self.replies_lost.items())),
            "held_back": dict(sorted(self.held_back.items())),
            "postponed": dict(sorted(self.postponed.items())),
            "held_out": self.held_out,
            "assumed": self.assumed,
            "busiest_day_then": self.busiest_then,
            "busiest_day": self.busiest_now,
            "sent_at_night_then": self.night_then,
            "share_at_night_then": round(self.night_share_then, 4),
            "sent_at_night": self.night_now,
            "share_at_night": round(self.night_share, 4),
            "sentence": self.sentence,
            "entries": self.entries,
        }


async def replay(
    journal: Journal,
    autonomy_of: Callable[[str], Autonomy],
    wanted: Wanted,
    tell: Callable[[int], None] = lambda _: None,
) -> Replay:
    """Go through the past of the journal again, with each agent's autonomy as it is given.

    `tell` hears after each user how many threads are done.
    """
    found = Replay(wanted.since, wanted.until)
    async with journal.snapshot() as rows:
        async for past in past_of(rows, wanted.user_id):
            threads = [thread for thread in past if thread is not None]
            found.unreadable += len(past) - len(threads)
            counted = [t for t in threads if wanted.thread_id in (None, t.id)]
            found.users += 1
            found.threads += len(counted)
            found.brought_in += sum(thread.is_brought_in for thread in counted)
            entries = [*_chosen(relive(threads, autonomy_of, wanted.until), wanted)]
            _add(found, entries, counted)
            if wanted.keep_entries:
                found.entries += entries
            tell(found.threads)
    found.entries.sort(key=lambda entry: entry.at)
    return found


def _chosen(entries: Iterable[Entry], wanted: Wanted) -> Iterator[Entry]:
    for entry in entries:
        is_recent = wanted.since is None or entry.at >= wanted.since
        if is_recent and wanted.thread_id in (None, entry.thread_id):
            yield entry


def _add(found: Replay, entries: Iterable[Entry], threads: Sequence[PastThread]) -> None:
    zones = {thread.id: find_zone(thread.wishes.time_zone) or UTC for thread in threads}
    days: dict[Kind, Counter[date]] = {Kind.SENT_THEN: Counter(), Kind.SENT: Counter()}
    for entry in entries:
        trigger = entry.trigger or "unknown"
        at_night = NIGHT.is_quiet(entry.at, zones[entry.thread_id])
        match entry.kind:
            case Kind.SENT_THEN:
                found.then[trigger] += 1
                found.night_then += at_night
            case Kind.SENT:
                found.now[trigger] += 1
                found.night_now += at_night
                found.assumed += entry.is_assumed
            case Kind.HELD_BACK:
                found.held_back[entry.gate or ""] += 1
            case Kind.POSTPONED:
                found.postponed[entry.gate or ""] += 1
            case Kind.HELD_OUT:
                found.held_out += 1
            case Kind.REPLIED_THEN:
                found.replies[trigger] += 1
            case Kind.REPLY_LOST:
                found.replies_lost[trigger] += 1
        if entry.kind in days:
            days[entry.kind][local_day(entry.at, zones[entry.thread_id])] += 1
    found.busiest_then = max(found.busiest_then, *days[Kind.SENT_THEN].values(), 0)
    found.busiest_now = max(found.busiest_now, *days[Kind.SENT].values(), 0)

"""Replay: which follow-ups past conversations would have had under other settings.

No model is called and nothing is written. How users would have reacted is not guessed: they write
when they wrote.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from segue.core.autonomy.local_time import NIGHT, find_zone, local_day
from segue.journal.journal import Journal
from segue.replay.engine import EventKind, ReplayEvent, replay_user
from segue.replay.past import PastThread, past_of
from segue.settings.agents import Autonomy


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayQuery:
    """Which past to replay, and from when on to count it. A user's threads share caps, so all are
    replayed, even if only one is counted.
    """

    until: datetime
    since: datetime | None = None
    user_id: str | None = None
    thread_id: str | None = None
    # For a timeline; without it, memory does not grow with the past.
    keep_events: bool = False

    def counts(self, event: ReplayEvent) -> bool:
        is_recent = self.since is None or event.at >= self.since
        return is_recent and self.thread_id in (None, event.thread_id)


@dataclass(slots=True)
class ReplayReport:
    """What the other settings change. Counters are by trigger or, of held back and postponed
    follow-ups, by gate.
    """

    since: datetime | None
    until: datetime
    users: int = 0
    threads: int = 0
    # Threads with messages that have no recorded turn.
    imported: int = 0
    # Threads that are left out.
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
    # The most that one user got on one local day.
    busiest_then: int = 0
    busiest_now: int = 0
    # Between 22:00 and 08:00 on the user's clock.
    night_then: int = 0
    night_now: int = 0
    # Oldest first, of all users.
    events: list[ReplayEvent] = field(default_factory=list)

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
        """The result for people."""
        then, now = self.then.total(), self.now.total()
        if not self.difference:
            sent = f"As many sent as then: {now:,}"
        else:
            word = "more" if self.difference > 0 else "fewer"
            sent = f"{abs(self.difference):,} {word} sent: {now:,} instead of {then:,}"
        answered, lost = self.replies.total(), self.replies_lost.total()
        if not answered:
            return f"{sent}. No follow-up had been answered."
        return f"{sent}. {f'{lost:,}' if lost else 'None'} of {answered:,} replies lost."

    def add(self, events: Iterable[ReplayEvent], threads: Sequence[PastThread]) -> None:
        """Count the events of one user."""
        zones = {thread.id: find_zone(thread.preferences.time_zone) or UTC for thread in threads}
        days_then: Counter[date] = Counter()
        days_now: Counter[date] = Counter()
        for event in events:
            trigger, zone = event.trigger or "unknown", zones[event.thread_id]
            match event.kind:
                case EventKind.SENT_THEN:
                    self.then[trigger] += 1
                    self.night_then += NIGHT.is_quiet(event.at, zone)
                    days_then[local_day(event.at, zone)] += 1
                case EventKind.SENT:
                    self.now[trigger] += 1
                    self.night_now += NIGHT.is_quiet(event.at, zone)
                    days_now[local_day(event.at, zone)] += 1
                    self.assumed += event.is_assumed
                case EventKind.HELD_BACK:
                    self.held_back[event.gate or ""] += 1
                case EventKind.POSTPONED:
                    self.postponed[event.gate or ""] += 1
                case EventKind.HELD_OUT:
                    self.held_out += 1
                case EventKind.REPLIED_THEN:
                    self.replies[trigger] += 1
                case EventKind.REPLY_LOST:
                    self.replies_lost[trigger] += 1
        self.busiest_then = max(self.busiest_then, *days_then.values(), 0)
        self.busiest_now = max(self.busiest_now, *days_now.values(), 0)

    def as_json(self) -> dict[str, Any]:
        return {
            "since": self.since,
            "until": self.until,
            "users": self.users,
            "threads": self.threads,
            "threads_brought_in": self.imported,
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
            "entries": self.events,
        }


async def replay(
    journal: Journal,
    autonomy_of: Callable[[str], Autonomy],
    query: ReplayQuery,
    on_progress: Callable[[int], None] = lambda _: None,
) -> ReplayReport:
    """Replay the past of a journal, with the autonomy that is given for each agent.

    `on_progress` is called after each user with the number of threads that are done.
    """
    report = ReplayReport(query.since, query.until)
    async with journal.transfer.snapshot() as rows:
        async for past in past_of(rows, query.user_id):
            threads = [thread for thread in past if thread is not None]
            counted = [t for t in threads if query.thread_id in (None, t.id)]
            report.users += 1
            report.threads += len(counted)
            report.unreadable += len(past) - len(threads)
            report.imported += sum(thread.is_imported for thread in counted)
            events = replay_user(threads, autonomy_of, query.until)
            kept = [event for event in events if query.counts(event)]
            report.add(kept, counted)
            if query.keep_events:
                report.events += kept
            on_progress(report.threads)
    report.events.sort(key=lambda event: event.at)
    return report

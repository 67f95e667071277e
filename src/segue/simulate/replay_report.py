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
from segue.settings.agents import Autonomy
from segue.simulate.past import PastThread, past_of
from segue.simulate.replay import EventKind, ReplayEvent, replay_user


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayQuery:
    """Which past to replay, and from when on to count it. A user's threads share caps, so all are
    replayed, even if only one is counted.
    """

    until: datetime
    since: datetime | None = None
    thread_id: str | None = None
    # For a timeline; without it, memory does not grow with the past.
    keep_events: bool = False
    # Of users who have not set theirs.
    zone: str | None = None

    def counts(self, event: ReplayEvent) -> bool:
        is_recent = self.since is None or event.at >= self.since
        return is_recent and self.thread_id in (None, event.thread_id)


@dataclass(slots=True)
class ReplayReport:
    """What the other settings change."""

    since: datetime | None
    until: datetime
    users: int = 0
    threads: int = 0
    # Threads with messages that have no recorded turn.
    imported: int = 0
    # Threads that are left out.
    unreadable: int = 0
    # Requested follow-ups, events and reminders that users saw; no policy of silence changes these.
    requested: int = 0
    # By trigger or, for held back and postponed follow-ups, by gate.
    counts: dict[EventKind, Counter[str]] = field(
        default_factory=lambda: {kind: Counter() for kind in EventKind}
    )
    # How many of those sent now have an assumed trigger.
    assumed: int = 0
    # The most that one user got on one local day, then and now.
    busiest_day: Counter[EventKind] = field(default_factory=Counter)
    # Sent between 22:00 and 08:00 on the user's clock, then and now.
    at_night: Counter[EventKind] = field(default_factory=Counter)
    # Oldest first, of all users.
    events: list[ReplayEvent] = field(default_factory=list)

    def total(self, kind: EventKind) -> int:
        return self.counts[kind].total()

    @property
    def difference(self) -> int:
        return self.total(EventKind.SENT) - self.total(EventKind.SENT_THEN)

    def night_share(self, kind: EventKind) -> float:
        return self.at_night[kind] / (self.total(kind) or 1)

    @property
    def sentence(self) -> str:
        """The result for people."""
        then, now = self.total(EventKind.SENT_THEN), self.total(EventKind.SENT)
        if not self.difference:
            sent = f"As many sent as then: {now:,}"
        else:
            word = "more" if self.difference > 0 else "fewer"
            sent = f"{abs(self.difference):,} {word} sent: {now:,} instead of {then:,}"
        answered, lost = self.total(EventKind.REPLIED_THEN), self.total(EventKind.REPLY_LOST)
        if not answered:
            return f"{sent}. No follow-up had been answered."
        return f"{sent}. {f'{lost:,}' if lost else 'None'} of {answered:,} replies lost."

    def add(self, events: Iterable[ReplayEvent], threads: Sequence[PastThread]) -> None:
        """Count the events of one user."""
        zones = {thread.id: find_zone(thread.preferences.time_zone) or UTC for thread in threads}
        days: Counter[tuple[EventKind, date]] = Counter()
        for event in events:
            self.counts[event.kind][event.gate or event.trigger or "unknown"] += 1
            self.assumed += event.is_assumed
            if event.kind in (EventKind.SENT_THEN, EventKind.SENT):
                zone = zones[event.thread_id]
                self.at_night[event.kind] += NIGHT.is_quiet(event.at, zone)
                days[event.kind, local_day(event.at, zone)] += 1
        for (kind, _), sent in days.items():
            self.busiest_day[kind] = max(self.busiest_day[kind], sent)

    def as_json(self) -> dict[str, Any]:
        then, now = EventKind.SENT_THEN, EventKind.SENT
        counts = {kind: dict(sorted(counter.items())) for kind, counter in self.counts.items()}
        return {
            "since": self.since,
            "until": self.until,
            "users": self.users,
            "threads": self.threads,
            "threads_brought_in": self.imported,
            "threads_unreadable": self.unreadable,
            "requested_left_out": self.requested,
            "sent_then": counts[then],
            "sent": counts[now],
            "difference": self.difference,
            "replies_then": counts[EventKind.REPLIED_THEN],
            "replies_lost": counts[EventKind.REPLY_LOST],
            "held_back": counts[EventKind.HELD_BACK],
            "postponed": counts[EventKind.POSTPONED],
            "held_out": self.total(EventKind.HELD_OUT),
            "assumed": self.assumed,
            "busiest_day_then": self.busiest_day[then],
            "busiest_day": self.busiest_day[now],
            "sent_at_night_then": self.at_night[then],
            "share_at_night_then": round(self.night_share(then), 4),
            "sent_at_night": self.at_night[now],
            "share_at_night": round(self.night_share(now), 4),
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
    thread = await journal.threads.get(query.thread_id) if query.thread_id else None
    async with journal.transfer.snapshot() as rows:
        async for past in past_of(rows, thread.user_id if thread else None, query.zone):
            threads = [thread for thread in past if thread is not None]
            counted = [t for t in threads if query.thread_id in (None, t.id)]
            report.users += 1
            report.threads += len(counted)
            report.unreadable += len(past) - len(threads)
            report.imported += sum(thread.is_imported for thread in counted)
            shown = [at for t in counted for at in t.requested_at if at <= query.until]
            report.requested += sum(query.since is None or at >= query.since for at in shown)
            events = replay_user(threads, autonomy_of, query.until)
            kept = [event for event in events if query.counts(event)]
            report.add(kept, counted)
            if query.keep_events:
                report.events += kept
            on_progress(report.threads)
    report.events.sort(key=lambda event: event.at)
    return report

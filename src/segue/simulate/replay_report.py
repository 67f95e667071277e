"""Replay: which follow-ups past conversations would have had under other settings. `replay` counts
them in a journal, `thread_report` lists those of one thread.

No model is called and nothing is written. How users would have reacted is not guessed: they write
when they wrote.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Final

from segue.core.autonomy.local_time import NIGHT, local_day
from segue.journal.journal import Journal
from segue.journal.records import Thread
from segue.settings.agents import Autonomy
from segue.simulate.past import PastThread, past_of
from segue.simulate.replay import EventKind, ReplayEvent, replay_user
from segue.simulate.report import HELD_OUT, EntryKind, SimulationReport, TimelineEntry, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayQuery:
    """Which past to replay and count; all threads of a user are replayed: they share caps."""

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
    """The effect of the other settings."""

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
        zones = {thread.id: thread.preferences.clock for thread in threads}
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


_KINDS: Final = {
    EventKind.SENT: EntryKind.FOLLOW_UP,
    EventKind.POSTPONED: EntryKind.POSTPONED,
    EventKind.HELD_BACK: EntryKind.NOT_SENT,
    EventKind.HELD_OUT: EntryKind.NOT_SENT,
}


def thread_report(
    thread: Thread, past: PastThread, events: Iterable[ReplayEvent], start: datetime, end: datetime
) -> dict[str, Any]:
    """A part of a thread's past on its user's clock, in the form of a simulation's report."""
    mine = [e for e in events if e.thread_id == thread.id and start <= e.at <= end]
    turns = [turn for turn in past.turns if not turn.is_follow_up]
    talk = [(turn.began_at, EntryKind.USER_MESSAGE, thread.user_id, "wrote") for turn in turns]
    # Only follow-ups have a record of when they were first shown.
    ended = [turn.shown_at or turn.ended_at for turn in turns]
    talk += [(at, EntryKind.REPLY, thread.agent_id, "answered") for at in ended if at is not None]
    entries = [
        TimelineEntry(at=at, kind=kind, who=who, what=what, agent=thread.agent_id)
        for at, kind, who, what in talk
        if start <= at <= end
    ]
    entries += [_entry(e, thread.agent_id) for e in mine if e.kind in _KINDS]
    zone = past.preferences.clock
    report = SimulationReport(
        title=thread.title or "A conversation",
        seed=0,
        user=thread.user_id,
        start=start.astimezone(zone),
        end=end.astimezone(zone),
        entries=tuple(
            replace(entry, at=entry.at.astimezone(zone))
            for entry in sorted(entries, key=lambda entry: entry.at)
        ),
        usage=Usage(),
    ).as_json()
    totals = report["totals"]
    # How users would have reacted is not known.
    del totals["answered"]
    totals["sent_then"] = sum(e.kind is EventKind.SENT_THEN for e in mine)
    totals["replies_lost"] = sum(e.kind is EventKind.REPLY_LOST for e in mine)
    return report


def _entry(event: ReplayEvent, agent_id: str) -> TimelineEntry:
    kind = _KINDS[event.kind]
    reasons = ["All gates are open."] if kind is EntryKind.FOLLOW_UP else []
    if event.is_assumed:
        reasons.append("Its trigger is assumed: the message before was never written.")
    return TimelineEntry(
        at=event.at,
        kind=kind,
        who=agent_id,
        what="",
        why=" ".join(reasons),
        agent=agent_id,
        trigger=event.trigger,
        gate=HELD_OUT if event.kind is EventKind.HELD_OUT else event.gate,
    )

"""`Simulator`: policies on a story or on the past of a thread, for the page.

A story runs in a process of its own, so that it can be stopped and holds nobody up. No model is
called, and nothing is stored.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from segue.core.autonomy.local_time import find_zone
from segue.errors import BackendError, ConflictError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread
from segue.settings.agents import Autonomy
from segue.simulate.comparison import describe_difference
from segue.simulate.past import PastThread, past_of
from segue.simulate.policies import change_policy, plain_policy, plain_value
from segue.simulate.replay import EventKind, ReplayEvent, replay_user
from segue.simulate.report import (
    HELD_OUT,
    EntryKind,
    SimulationReport,
    TimelineEntry,
    Usage,
)
from segue.simulate.stories import CPU_SECONDS, get_story, stories

_SECONDS: Final = 2.0 * CPU_SECONDS
_MOST_ENTRIES: Final = 3_000
# Of all threads of the user, since they share caps.
_MOST_MESSAGES: Final = 20_000
_MODULE: Final = "segue.simulate.stories"
_NAMES: Final = ("A", "B")
_TOO_LONG: Final = (
    "The simulation took too long; raise delays or lower caps, so that fewer follow-ups are sent."
)
_KINDS: Final = {
    EventKind.SENT: EntryKind.FOLLOW_UP,
    EventKind.POSTPONED: EntryKind.POSTPONED,
    EventKind.HELD_BACK: EntryKind.NOT_SENT,
    EventKind.HELD_OUT: EntryKind.NOT_SENT,
}

Json = dict[str, Any]


class Simulator:
    def __init__(self, segue: Segue, running: asyncio.Lock) -> None:
        self._segue = segue
        # Held by the one scenario that runs.
        self._running = running

    def options(self) -> Json:
        """The stories to choose from, and the policies of the agents as they are set."""
        return {
            "scenarios": [
                {"name": name, "title": story["title"]} for name, story in stories().items()
            ],
            "agents": [
                {"id": agent.id, "name": agent.name or agent.id, **_policy(agent.autonomy)}
                for agent in self._segue.agents
            ],
        }

    async def run_scenario(
        self, name: str, agent_id: str | None, policies: Sequence[Mapping[str, Any]]
    ) -> Json:
        """A story under one or two policies, each with the changes to the agent's own."""
        agent, story = self._segue.get_agent(agent_id), get_story(name)
        chosen = _chosen(agent.autonomy, policies)
        # Where a model or a custom decider plans, a story has the rules.
        decider = "none" if agent.autonomy.decider == "none" else "rules"
        settings = [{**plain_policy(each), "decider": decider} for each in chosen]
        given = {"name": name, "agent": agent.id, "policies": settings}
        if self._running.locked():
            raise ConflictError("Another simulation is running; try again in some seconds.")
        async with self._running:
            reports = await _run_apart(json.dumps(given).encode())
        zone = story["user"]["time_zone"]
        hours = [plain_policy(each)["policy"]["quiet_hours"] for each in chosen]
        return _answer(reports, chosen, hours, zone)

    async def replay_thread(
        self, thread_id: str, policies: Sequence[Mapping[str, Any]], days: int
    ) -> Json:
        """The last days of a thread under one or two policies of its agent; others keep theirs."""
        thread = await self._segue.get_thread(thread_id)
        own = self._segue.get_agent(thread.agent_id).autonomy
        chosen = _chosen(own, policies)
        past = await self._read_past(thread)
        mine = next((each for each in past if each.id == thread.id), None)
        if mine is None:
            raise UsageError(f"The past of thread {thread.id!r:.60} cannot be read.")
        deps = self._segue.system.deps
        end = min(deps.clock.now(), thread.updated_at + timedelta(days=2))
        picture = _Picture(thread, mine, end - timedelta(days=days), end)
        reports = []
        for autonomy in chosen:

            def autonomy_of(agent_id: str, changed: Autonomy = autonomy) -> Autonomy:
                if agent_id == thread.agent_id:
                    return changed
                known = {agent.id: agent.autonomy for agent in self._segue.agents}
                return known.get(agent_id, Autonomy())

            events = await asyncio.to_thread(replay_user, past, autonomy_of, end)
            reports.append(picture.report(events))
        hours = [plain_value(mine.preferences.apply_to(p.policy).quiet_hours) for p in chosen]
        return _answer(reports, chosen, hours, picture.zone_name)

    async def _read_past(self, thread: Thread) -> list[PastThread]:
        deps = self._segue.system.deps
        threads = await self._segue.list_threads(thread.user_id, limit=200)
        if sum(each.message_count for each in threads) > _MOST_MESSAGES:
            raise UsageError(
                f"The user has more than {_MOST_MESSAGES:,} messages; replay them with `segue "
                f"simulate --from {thread.id:.60}`."
            )
        async with deps.journal.transfer.snapshot() as rows:
            found = [each async for each in past_of(rows, thread.user_id, deps.zone)]
        return [each for threads_of_user in found for each in threads_of_user if each is not None]


def _policy(autonomy: Autonomy) -> Json:
    """With a note if the settings plan follow-ups in a way that no simulation repeats."""
    is_own = autonomy.decider not in ("rules", "none")
    return {"policy": plain_policy(autonomy), "plans_by_rules": not is_own}


def _chosen(own: Autonomy, policies: Sequence[Mapping[str, Any]]) -> list[Autonomy]:
    """`UsageError` names all that is wrong, in both."""
    chosen, wrong = [], []
    for name, changes in zip(_NAMES, policies, strict=False):
        try:
            chosen.append(change_policy(own, changes, f"policy {name}"))
        except UsageError as error:
            wrong.append(str(error))
    if wrong:
        raise UsageError("\n".join(wrong))
    return chosen


async def _run_apart(given: bytes) -> list[Json]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", _MODULE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            output, _ = await process.communicate(given)
    except TimeoutError:
        raise UsageError(_TOO_LONG) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if (process.returncode or 0) < 0:  # ended for its use of the CPU
        raise UsageError(_TOO_LONG)
    if process.returncode:
        raise BackendError("The simulation failed; `segue simulate` shows why.")
    reports: list[Json] = await asyncio.to_thread(json.loads, output)
    return reports


def _answer(
    reports: Sequence[Json], chosen: Sequence[Autonomy], hours: Sequence[Any], zone: str
) -> Json:
    if any(len(report["entries"]) > _MOST_ENTRIES for report in reports):
        raise UsageError(f"More than {_MOST_ENTRIES:,} things happen. {_TOO_LONG}")
    runs = [
        {
            "policy": plain_policy(autonomy),
            "quiet_hours": quiet,
            "entries": [{k: v for k, v in e.items() if k != "verdicts"} for e in report["entries"]],
            "totals": report["totals"],
        }
        for report, autonomy, quiet in zip(reports, chosen, hours, strict=True)
    ]
    first = reports[0]
    totals = [report["totals"] for report in reports]
    return {
        "title": first["title"],
        "start": first["start"],
        "end": first["end"],
        "time_zone": zone,
        "runs": runs,
        "difference": describe_difference(*totals) if len(totals) == len(_NAMES) else [],
    }


class _Picture:
    """A part of a thread's past, on its user's clock."""

    def __init__(self, thread: Thread, past: PastThread, start: datetime, end: datetime) -> None:
        self._thread = thread
        self._past = past
        self._zone = find_zone(past.preferences.time_zone) or UTC
        self.zone_name = past.preferences.time_zone or "UTC"
        self._start, self._end = start, end

    def report(self, events: Sequence[ReplayEvent]) -> Json:
        mine = [e for e in events if e.thread_id == self._thread.id and self._shows(e.at)]
        entries = [*self._talk(), *(self._entry(e) for e in mine if e.kind in _KINDS)]
        report = SimulationReport(
            title=self._thread.title or "A conversation",
            seed=0,
            user=self._thread.user_id,
            start=self._local(self._start),
            end=self._local(self._end),
            entries=tuple(sorted(entries, key=lambda entry: entry.at)),
            usage=Usage(),
        ).as_json()
        totals = report["totals"]
        # How users would have reacted is not known.
        del totals["answered"]
        totals["sent_then"] = sum(e.kind is EventKind.SENT_THEN for e in mine)
        totals["replies_lost"] = sum(e.kind is EventKind.REPLY_LOST for e in mine)
        return report

    def _shows(self, moment: datetime) -> bool:
        return self._start <= moment <= self._end

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone)

    def _talk(self) -> list[TimelineEntry]:
        user, agent = self._thread.user_id, self._thread.agent_id
        turns = [turn for turn in self._past.turns if not turn.is_follow_up]
        said = [(turn.began_at, EntryKind.USER_MESSAGE, user, "wrote") for turn in turns]
        # Only follow-ups have a record of when they were first shown.
        ended = [turn.shown_at or turn.ended_at for turn in turns]
        said += [(at, EntryKind.REPLY, agent, "answered") for at in ended if at is not None]
        return [
            TimelineEntry(at=self._local(at), kind=kind, who=who, what=what, agent=agent)
            for at, kind, who, what in said
            if self._shows(at)
        ]

    def _entry(self, event: ReplayEvent) -> TimelineEntry:
        kind = _KINDS[event.kind]
        reasons = ["All gates are open."] if kind is EntryKind.FOLLOW_UP else []
        if event.is_assumed:
            reasons.append("Its trigger is assumed: the message before was never written.")
        return TimelineEntry(
            at=self._local(event.at),
            kind=kind,
            who=self._thread.agent_id,
            what="",
            why=" ".join(reasons),
            agent=self._thread.agent_id,
            trigger=event.trigger,
            gate=HELD_OUT if event.kind is EventKind.HELD_OUT else event.gate,
        )

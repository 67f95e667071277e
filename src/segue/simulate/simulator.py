"""`Simulator`: policies on a story or on the past of a thread, for the page.

A story runs in a separate process, so that it can be stopped and does not block the server. No
model is called, and nothing is stored.
"""

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any, Final

from segue.core.autonomy.local_time import QuietHours
from segue.core.durations import show_duration
from segue.errors import BackendError, ConflictError, UsageError
from segue.facade import Segue
from segue.journal.records import Thread
from segue.settings.agents import Autonomy
from segue.simulate.past import PastThread, past_of
from segue.simulate.replay import replay_user
from segue.simulate.replay_report import thread_report
from segue.simulate.report import describe_difference
from segue.simulate.scenario import parse_hours
from segue.simulate.stories import CPU_SECONDS, get_story, stories

_SECONDS: Final = 2.0 * CPU_SECONDS
_MOST_ENTRIES: Final = 3_000
# Of all threads of the user, since they share caps.
_MOST_MESSAGES: Final = 20_000
_MODULE: Final = "segue.simulate.stories"
_NAMES: Final = ("A", "B")
_TOO_LONG: Final = (
    "The simulation took too long: the policy sends very many follow-ups, or this machine is busy. "
    "Try longer delays or lower caps, or try again later."
)

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
                {
                    "id": agent.id,
                    "name": agent.name or agent.id,
                    "policy": _plain_policy(agent.autonomy),
                    # Else the settings plan follow-ups in a way that no simulation repeats.
                    "plans_by_rules": agent.autonomy.decider in ("rules", "none"),
                }
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
        settings = [{**_plain_policy(each), "decider": decider} for each in chosen]
        given = {"name": name, "agent": agent.id, "policies": settings}
        if self._running.locked():
            raise ConflictError("Another simulation is running; try again in some seconds.")
        async with self._running:
            reports = await _run_apart(json.dumps(given).encode())
        zone = story["user"]["time_zone"]
        hours = [_plain(each.policy.quiet_hours) for each in chosen]
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
        start = end - timedelta(days=days)
        known = {agent.id: agent.autonomy for agent in self._segue.agents}
        reports = []
        for autonomy in chosen:
            changed = defaultdict(Autonomy, {**known, thread.agent_id: autonomy})
            events = await asyncio.to_thread(replay_user, past, changed.__getitem__, end)
            reports.append(thread_report(thread, mine, events, start, end))
        hours = [_plain(mine.preferences.apply_to(p.policy).quiet_hours) for p in chosen]
        return _answer(reports, chosen, hours, mine.preferences.time_zone or "UTC")

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


def _chosen(own: Autonomy, policies: Sequence[Mapping[str, Any]]) -> list[Autonomy]:
    """`UsageError` names all that is wrong, in both."""
    chosen, wrong = [], []
    for name, changes in zip(_NAMES, policies, strict=False):
        try:
            chosen.append(_change_policy(own, changes, f"policy {name}"))
        except UsageError as error:
            wrong.append(str(error))
    if wrong:
        raise UsageError("\n".join(wrong))
    return chosen


async def _run_apart(given: bytes) -> list[Json]:
    process = await asyncio.create_subprocess_exec(
        # `-P`: modules of the working directory hide none.
        *(sys.executable, "-P", "-m", _MODULE),
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
        raise UsageError(f"The story has more than {_MOST_ENTRIES:,} entries. {_TOO_LONG}")
    totals = [report["totals"] for report in reports]
    return {
        **{name: reports[0][name] for name in ("title", "start", "end")},
        "time_zone": zone,
        "runs": [
            {
                "policy": _plain_policy(autonomy),
                "quiet_hours": quiet,
                "entries": [
                    {k: v for k, v in entry.items() if k != "verdicts"}
                    for entry in report["entries"]
                ],
                "totals": report["totals"],
            }
            for report, autonomy, quiet in zip(reports, chosen, hours, strict=True)
        ],
        "difference": describe_difference(*totals) if len(totals) == len(_NAMES) else [],
    }


# The part of an agent's `autonomy` that a simulation may change: it names no code and no model.
_EDITABLE: Final = ("enabled", "delays", "policy", "holdout", "missed", "expires_after")


def _plain_policy(autonomy: Autonomy) -> Json:
    """As a settings file would have it, in JSON."""
    return {name: _plain(getattr(autonomy, name)) for name in _EDITABLE}


def _plain(value: Any) -> Any:
    if value is None:
        return "none"
    if isinstance(value, timedelta):
        return value.total_seconds() if value.microseconds else show_duration(value)
    if isinstance(value, QuietHours):
        return value.as_json()
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return value


def _change_policy(autonomy: Autonomy, changes: Mapping[str, Any], name: str) -> Autonomy:
    """`UsageError` names each wrong setting. Quiet hours may be a text, as in a scenario."""
    if unknown := sorted(changes.keys() - {*_EDITABLE}):
        raise UsageError(
            f"{name}.{unknown[0]:.60}: it cannot be changed here; expected one of: "
            f"{', '.join(_EDITABLE)}."
        )
    match changes:
        case {"policy": {"quiet_hours": str(hours)} as policy}:
            with suppress(UsageError):  # reported with the other mistakes
                parsed = parse_hours(hours) or None
                changes = {**changes, "policy": {**policy, "quiet_hours": parsed}}
    return autonomy.with_changes(changes, name)

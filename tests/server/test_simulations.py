"""Simulations over HTTP: policies on a scenario and on the past, bounded, for operators."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from segue.facade import Segue
from segue.server.settings import ServerSettings
from segue.simulate.report import describe_difference
from segue.simulate.simulator import Simulator
from segue.simulate.stories import stories
from segue.simulate.world import Stage, World, plain_agent
from tests.server.clients import Site, site_of
from tests.stories.scenes import eager_agent, model_of

pytestmark = pytest.mark.anyio

PLACE = "/api/admin/simulations"
# Less than a test may take.
SECONDS = 200.0
CALM = {"policy": {"max_per_day": 1, "cooldown": "12h"}}


@asynccontextmanager
async def patient_site(segue: Segue) -> AsyncIterator[Site]:
    """A scenario starts a process, which takes long on a busy machine."""
    async with site_of(segue) as site:
        site.http.timeout = httpx.Timeout(SECONDS)
        yield site


@pytest.fixture(autouse=True)
def _patient() -> Iterator[None]:
    """A busy machine is no reason to stop a scenario; its limit of CPU time holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("segue.simulate.simulator._SECONDS", SECONDS)
        yield


def refused(body: dict[str, Any], problem: str) -> tuple[dict[str, Any], str]:
    return {"scenario": "quiet-week", "policies": [{}], **body}, problem


async def test_a_scenario_under_two_policies(sqlite_stage: Stage) -> None:
    """What each of them sends and does not, on the user's clock, and the difference in words."""
    policy = {"quiet_hours": {"start": "22:00", "end": "08:00"}, "max_consecutive": 3}
    agent = plain_agent(autonomy={"policy": policy})
    never = {"enabled": False, "policy": {"quiet_hours": "23:00 to 7:30"}}
    async with sqlite_stage.world(agent) as world, patient_site(world.segue) as site:
        options = await site.get(PLACE)
        assert [each["name"] for each in options["scenarios"]] == [*stories()]
        [own] = options["agents"]
        assert own["policy"]["policy"]["quiet_hours"] == {"start": "22:00", "end": "08:00"}
        assert own["policy"]["delays"]["check_in"] == "1d"
        body = {"scenario": "quiet-week", "policies": [own["policy"], never]}
        made = await site.post(PLACE, body)
        first, second = made["runs"]
        assert first["quiet_hours"] == {"start": "22:00", "end": "08:00"}
        assert (made["time_zone"], made["start"]) == ("Europe/Berlin", "2027-03-01T09:00:00+01:00")
        kinds = [entry["kind"] for entry in first["entries"]]
        assert kinds.count("follow_up") == first["totals"]["sent"] > 2
        assert "postponed" in kinds
        waiting = next(e for e in first["entries"] if e["kind"] == "postponed")
        assert (waiting["gate"], waiting["until"][11:16]) == ("quiet_hours", "08:00")
        assert second["totals"]["sent"] == 0
        assert second["quiet_hours"] == {"start": "23:00", "end": "07:30"}
        sent = first["totals"]["sent"]
        assert made["difference"][0] == f"B sends {sent} fewer follow-ups: 0 instead of {sent}."
        assert (await world.segue.list_threads("mia")) == []


def test_one_follow_up_is_spoken_of_as_one() -> None:
    """In the sentences about the difference."""
    same = {"sent": 3, "sent_by_trigger": {}, "by_day": {}, "longest_silence": {"seconds": 60}}
    rest = {**same, "postponed_by_gate": {}, "not_sent_by_gate": {}}
    one, two = ({**rest, "sent_at_night": count} for count in (1, 2))
    night = "at night, between 22:00 and 08:00, instead of"
    assert describe_difference(two, one) == [f"1 comes {night} 2."]
    assert describe_difference(one, two) == [f"2 come {night} 1."]


async def test_a_policy_that_changes_nothing_makes_no_difference(sqlite_stage: Stage) -> None:
    """The same seed gives the same week."""
    async with sqlite_stage.world() as world, patient_site(world.segue) as site:
        made = await site.post(PLACE, {"scenario": "gone-silent", "policies": [{}, {}]})
        assert made["difference"] == ["Both policies do the same."]
        assert made["runs"][0] == made["runs"][1]


async def test_a_module_of_the_working_directory_hides_none(
    sqlite_stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server runs beside a project's own `queue.py`; so does the process of a simulation."""
    (tmp_path / "queue.py").write_text("raise RuntimeError('not this one')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    async with sqlite_stage.world() as world, patient_site(world.segue) as site:
        made = await site.post(PLACE, {"scenario": "quiet-week", "policies": [{"enabled": False}]})
    assert made["runs"][0]["totals"]["sent"] == 0


async def test_a_policy_with_half_an_emoji_is_named(sqlite_stage: Stage) -> None:
    """Although no error could quote it."""
    async with sqlite_stage.world() as world, patient_site(world.segue) as site:
        body = f'{{"thread_id": "{await site.new_thread()}", "policies": [{{"\\ud800": 1}}]}}'
        headers = {"Content-Type": "application/json"}
        answer = await site.http.post(PLACE, content=body, headers=headers)
        assert answer.status_code == 422
        assert "policy A" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        refused({"policies": [{}, {"delays": {"check_in": "soon"}}]}, "policy B.delays.check_in"),
        refused({"policies": [{"policy": {"max_per_day": -1}}]}, "policy A.policy.max_per_day"),
        refused({"policies": [{"policy": {"quiet_hours": "late"}}]}, "policy A.policy.quiet_hours"),
        refused({"policies": [{"policy": {"caps": 1}}]}, "policy A.policy.caps"),
        refused({"policies": [{"decider": "os:system"}]}, "policy A.decider: it cannot be changed"),
        refused({"policies": [{"prompts": {}}]}, "policy A.prompts"),
        refused(
            {"policies": [{"delays": {"check_in": "x"}}, {"policy": {"cooldown": "x"}}]}, "B.po"
        ),
        refused({"policies": []}, "policies: expected one or two JSON objects"),
        refused({"policies": [{}, {}, {}]}, "policies"),
        refused({"thread_id": "7"}, "scenario, thread_id"),
        refused({"scenario": None}, "scenario, thread_id"),
        refused({"scenario": None, "thread_id": "7", "days": 32}, "days"),
    ],
)
async def test_what_is_wrong_is_named(
    sqlite_stage: Stage, body: dict[str, Any], problem: str
) -> None:
    """Policy and field, so that a page can mark it; nothing is run."""
    async with sqlite_stage.world() as world, patient_site(world.segue) as site:
        answer = await site.http.post(PLACE, json=body)
        assert answer.status_code == 422
        assert problem in answer.text


@pytest.mark.parametrize("body", [{"scenario": "no-such"}, {"thread_id": "no-such"}])
async def test_what_is_not_there_is_not_found(sqlite_stage: Stage, body: dict[str, Any]) -> None:
    """A scenario or a thread."""
    async with sqlite_stage.world() as world, patient_site(world.segue) as site:
        answer = await site.http.post(PLACE, json={**body, "policies": [{}]})
        assert answer.status_code == 404


async def test_a_policy_without_end_is_stopped(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follow-up each second of a week would take hours; meanwhile others are answered."""
    monkeypatch.setattr("segue.simulate.simulator._SECONDS", 4.0)
    caps = {"max_consecutive": 10**6, "max_per_day": 10**6, "cooldown": 0, "quiet_hours": "none"}
    delays = dict.fromkeys(("check_in", "question_unanswered", "waiting_for_decision"), "1s")
    always = {"delays": delays, "policy": {**caps, "backoff": 1, "min_delay": 1}}
    body = {"scenario": "gone-silent", "policies": [always]}
    async with sqlite_stage.world() as world, patient_site(world.segue) as site:
        running = asyncio.create_task(site.http.post(PLACE, json=body))
        assert site.app is not None
        while not site.app.state.simulating.locked():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        assert (await site.http.post(PLACE, json=body)).status_code == 409
        assert (await site.http.get("/api/me")).status_code == 200
        answer = await running
        assert (answer.status_code, "took too long" in answer.text) == (422, True)
        monkeypatch.undo()
        made = await site.post(PLACE, {"scenario": "gone-silent", "policies": [{"enabled": False}]})
        assert made["runs"][0]["totals"]["sent"] == 0


async def talked(site: Site, world: World) -> str:
    """Two days in which the agent wrote first four times, and was answered once."""
    thread = await site.new_thread()
    for text in ("Where is Oslo?", "I like it."):
        await site.post(f"/api/threads/{thread}/messages", {"content": text})
        await world.clock.settle()
        await world.pass_time(hours=20)
    return thread


async def test_the_past_of_a_thread_under_another_policy(stage: Stage) -> None:
    """Under the settings that were in force it is the past; under calmer ones less is sent."""
    agent = eager_agent(policy={"max_consecutive": 2, "max_per_day": 10})
    models = {"guide": model_of()}
    async with stage.world(agent, models=models) as world, patient_site(world.segue) as site:
        thread = await talked(site, world)
        made = await site.post(PLACE, {"thread_id": thread, "policies": [{}, CALM]})
        same, calm = (run["totals"] for run in made["runs"])
        assert same["sent"] == same["sent_then"] == calm["sent_then"] == 4
        assert calm["sent"] < 4
        assert (same["user_messages"], same["replies"]) == (2, 2)
        assert "answered" not in same
        assert "4." in made["difference"][0]
        gates = {entry["gate"] for entry in made["runs"][1]["entries"] if entry["gate"]}
        assert gates <= {"daily_cap", "cooldown", "consecutive_cap"}
        before = await world.journal.turns.list_of(thread)
        assert await world.journal.turns.list_of(thread) == before
        hidden = [entry["what"] for run in made["runs"] for entry in run["entries"]]
        assert not [text for text in hidden if "Oslo" in text]


async def test_a_user_with_too_long_a_past_is_sent_to_the_command(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page does not hold up the server for one operator."""
    monkeypatch.setattr("segue.simulate.simulator._MOST_MESSAGES", 3)
    models = {"guide": model_of()}
    async with (
        sqlite_stage.world(eager_agent(), models=models) as world,
        patient_site(world.segue) as site,
    ):
        thread = await talked(site, world)
        simulator = Simulator(world.segue, asyncio.Lock())
        with pytest.raises(ValueError, match="segue simulate --from"):
            await simulator.replay_thread(thread, [{}], 7)


async def test_only_operators_simulate(sqlite_stage: Stage) -> None:
    """A user's key is refused before anything runs."""
    settings = ServerSettings(jwt={"secret": "x" * 32}, rate_per_minute=None)  # type: ignore[arg-type] # read like any other
    async with (
        sqlite_stage.world() as world,
        site_of(world.segue, settings) as site,
    ):
        answer = await site.http.post(PLACE, json={"scenario": "quiet-week", "policies": [{}]})
        assert answer.status_code == 401


@pytest.mark.parametrize("name", [*stories()])
async def test_every_scenario_has_something_to_show(sqlite_stage: Stage, name: str) -> None:
    """Within the limits of a simulation."""
    async with sqlite_stage.world() as world:
        made = await Simulator(world.segue, asyncio.Lock()).run_scenario(name, None, [{}])
        assert made["runs"][0]["totals"]["sent"] > 0

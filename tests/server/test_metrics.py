"""What Prometheus reads: each metric by the turn or follow-up that it counts, in a running app."""

import math
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from segue.core.autonomy.gates import FOR_FOLLOW_UPS
from segue.errors import BackendError
from segue.server.auth import USER_HEADER
from segue.server.metrics import Metrics
from segue.simulate.world import START, Stage, World, plain_agent
from tests.runtime.receiver import SECRET, Receiver, status
from tests.runtime.scenes import Held
from tests.server.clients import Site, site_of
from tests.stories.scenes import PATIENCE, arm, eager_agent, model_of, passing, slowly

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "server.md"


class Numbers:
    """What one scrape said."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def of(self, name: str, **labels: str) -> float:
        """A number; none is zero, as it is for who draws it."""
        return self._samples.get((f"segue_{name}", frozenset(labels.items())), 0)

    def all_of(self, name: str, label: str) -> dict[str, float]:
        """A metric by one of its labels, where it counted anything."""
        found: dict[str, float] = {}
        for (each, labels), value in self._samples.items():
            if each == f"segue_{name}":
                key = dict(labels)[label]
                found[key] = found.get(key, 0) + value
        return {key: value for key, value in found.items() if value}


async def scrape(site: Site) -> Numbers:
    answer = await site.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    return Numbers(answer.text)


async def say(site: Site, thread: str, text: str = "Where is Oslo?") -> None:
    await site.post(f"/api/threads/{thread}/messages", {"content": text})


async def settle(world: World) -> None:
    await world.clock.settle()


async def test_a_reply_is_counted_with_the_time_that_its_user_waited(stage: Stage) -> None:
    """From the moment it was accepted, by agent and origin; and what the model took and gave."""
    model = model_of(slowly(stage.clock, timedelta(seconds=3), "Oslo is in Norway."))
    async with stage.world(models={"guide": model}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await say(site, thread)
        await world.pass_time(seconds=3)
        found = await scrape(site)
    labels = {"agent": "guide", "origin": "reply"}
    assert found.of("turns_total", **labels, state="done") == 1
    for name in ("turn_seconds", "turn_first_token_seconds"):
        assert found.of(f"{name}_count", **labels) == 1
        assert found.of(f"{name}_sum", **labels) == 3
    assert found.of("model_calls_total", agent="guide", outcome="done") == 1
    assert found.of("model_seconds_count", agent="guide") == 1
    tokens = found.all_of("model_tokens_total", "direction")
    assert tokens.keys() == {"input", "output"}
    assert min(tokens.values()) > 1


async def test_a_follow_up_is_counted_step_by_step(stage: Stage) -> None:
    """Planned, fired, shown; with its gates, its timer, and no label that names a user."""
    async with (
        stage.world(eager_agent(), models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        site.http.headers[USER_HEADER] = "annabel"
        thread = await site.new_thread()
        await say(site, thread)
        await settle(world)
        assert (await scrape(site)).of("timers_pending") == 1
        await world.pass_time(PATIENCE)
        found = await scrape(site)
        turns = await world.journal.turns.list_of(thread)
    assert found.of("turns_total", agent="guide", origin="follow_up", state="done") == 1
    assert found.of("turn_seconds_count", agent="guide", origin="follow_up") == 1
    for outcome, times in (("planned", 2), ("fired", 1), ("shown", 1)):
        labels = {"agent": "guide", "trigger": "check_in", "outcome": outcome}
        assert found.of("follow_ups_total", **labels) == times, outcome
    # Before the model is asked, and before the user sees a word.
    assert found.all_of("gate_verdicts_total", "gate") == dict.fromkeys(map(str, FOR_FOLLOW_UPS), 2)
    assert found.all_of("gate_verdicts_total", "outcome") == {"allow": 24}
    assert found.of("timer_lateness_seconds_count") == 1
    assert found.of("timer_lateness_seconds_sum") == 0
    for name in (thread, "annabel", *(str(turn.id) for turn in turns)):
        assert name not in found.text


async def test_each_way_in_which_a_follow_up_is_not_sent_has_its_outcome(stage: Stage) -> None:
    """Put off, suppressed, withdrawn, void, failed, held out, and dropped by the user."""
    late, void = Held("Never seen."), Held("Never seen either.")
    model = model_of("Oslo.", late, void, "Bergen.", ValueError("no"))
    agent = eager_agent(decider="none", policy={"max_consecutive": 9})
    silent = eager_agent("silent", decider="none", holdout=1)
    models = {"guide": model, "silent": model_of()}
    async with (
        stage.world(agent, silent, models=models, retries=0) as world,
        site_of(world.segue) as site,
    ):
        thread, other = await site.new_thread(), await site.new_thread(agent_id="silent")

        async def arm_next(where: str = thread) -> None:
            await arm(world, where, world.clock.now() + PATIENCE)

        await say(site, thread)
        await settle(world)
        await arm_next()
        await world.segue.snooze(thread, START + 2 * PATIENCE)
        async with passing(world, 2 * PATIENCE):
            await late.asked.wait()
            await world.segue.set_thread_preferences(thread, muted=True)
            late.go.set()
        await arm_next()
        await world.pass_time(PATIENCE)
        await world.segue.set_thread_preferences(thread, muted=None)
        await arm_next()
        async with passing(world, PATIENCE):
            await void.asked.wait()
            await say(site, thread)
        await arm_next()
        await world.pass_time(PATIENCE)
        await arm_next(other)
        await world.pass_time(PATIENCE)
        await arm_next(other)
        await site.http.delete(f"/api/threads/{other}/follow-ups")
        found = await scrape(site)
    outcomes = found.all_of("follow_ups_total", "outcome")
    assert outcomes == {
        "not_planned": 2,
        "postponed": 1,
        "fired": 3,
        "withdrawn": 1,
        "suppressed": 1,
        "void": 1,
        "failed": 1,
        "held_out": 1,
        "cancelled": 1,
    }
    labels = {"agent": "silent", "trigger": "check_in", "outcome": "held_out"}
    assert found.of("follow_ups_total", **labels) == 1
    states = found.all_of("turns_total", "state")
    assert states == {"done": 2, "void": 2, "failed": 1}
    assert found.of("gate_verdicts_total", gate="muted", outcome="suppress") == 2
    assert found.of("gate_verdicts_total", gate="snoozed", outcome="postpone") == 1
    assert found.of("turn_breaks_total", agent="guide", cause="taken_away") == 1
    assert found.of("batches_settled_total", agent="guide") == 1


async def test_a_timer_that_nobody_was_there_for_is_late(stage: Stage) -> None:
    """By as much as it is found after its time."""
    agent = eager_agent(decider="none")
    async with (
        stage.world(agent, models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await say(site, thread)
        await settle(world)
        await arm(world, thread, world.clock.now() - timedelta(minutes=2))
        await settle(world)
        found = await scrape(site)
    assert found.of("timer_lateness_seconds_sum") == 120
    assert found.of("timer_lateness_seconds_bucket", le="60.0") == 0
    assert found.of("timer_lateness_seconds_bucket", le="300.0") == 1


async def test_tries_that_break_off_are_counted_by_cause(stage: Stage) -> None:
    """A model that fails for a moment, and what came of the turn in the end."""
    model = model_of(ConnectionError("away"), "Oslo.", ValueError("broken"))
    async with stage.world(models={"guide": model}) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await say(site, thread)
        await world.pass_time(minutes=1)
        await say(site, thread)
        await settle(world)
        found = await scrape(site)
    assert found.all_of("turn_breaks_total", "cause") == {"model": 1}
    assert found.all_of("turns_total", "state") == {"done": 1, "failed": 1}
    assert found.of("batches_settled_total", agent="guide") == 1
    assert found.all_of("model_calls_total", "outcome") == {"done": 1, "failed": 2}


async def test_a_turn_that_was_stopped_is_counted_as_that(stage: Stage) -> None:
    """It is neither done nor failed."""
    held = Held("Never said.")
    async with (
        stage.world(models={"guide": model_of(held)}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await say(site, thread)
        await held.asked.wait()
        await site.post(f"/api/threads/{thread}/cancel")
        await settle(world)
        found = await scrape(site)
    assert found.all_of("turns_total", "state") == {"cancelled": 1}


@pytest.mark.usefixtures("foreseen_meanings")
async def test_searches_for_memories_are_counted_by_whose_words_they_used(stage: Stage) -> None:
    """The message itself, the last one of a person for a follow-up, and none at all."""
    agent = eager_agent(decider="none").model_copy(
        update={"memory": plain_agent(memory={"enabled": True, "time_limit": 60}).memory}
    )
    async with (
        stage.world(agent, models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        thread, empty = await site.new_thread(), await site.new_thread()
        await say(site, thread)
        await settle(world)
        for where in (thread, empty):
            await arm(world, where, world.clock.now() + PATIENCE)
        await world.pass_time(PATIENCE)
        found = await scrape(site)
    assert found.all_of("memory_queries_total", "source") == {
        "current_message": 1,
        "last_real_user_message": 1,
        "none": 1,
    }


async def test_webhooks_are_counted_by_what_came_of_each_try(
    stage: Stage, receiver: Receiver
) -> None:
    """Tried again, done, and given up."""
    receiver.answer = status(503)
    webhook = {"url": receiver.target.url, "secret": SECRET, "all_replies": True}
    agent = plain_agent(webhook=webhook, autonomy={"decider": "none"})
    async with (
        stage.world(agent, models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        await say(site, thread)
        await settle(world)
        receiver.answer = status(200)
        await world.pass_time(minutes=1)
        receiver.answer = status(410)
        await say(site, thread)
        await settle(world)
        found = await scrape(site)
    for outcome in ("retried", "done", "dead"):
        labels = {"agent": "guide", "kind": "webhook", "outcome": outcome}
        assert found.of("effects_total", **labels) == 1, outcome


async def test_a_model_that_decides_about_follow_ups_is_counted_too(stage: Stage) -> None:
    """What it costs is the agent's, although it is no part of a turn."""
    async with (
        stage.world(eager_agent(decider="model"), models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        await say(site, await site.new_thread())
        await settle(world)
        found = await scrape(site)
    assert found.of("model_calls_total", agent="guide", outcome="done") == 2
    assert found.of("effects_total", agent="guide", kind="decide", outcome="done") == 1


async def test_open_sockets_and_requests_are_counted(sqlite_stage: Stage) -> None:
    """Requests by route and not by path, since anybody can make up paths."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            await socket.send('{"type": "ping"}')
            assert "pong" in str(await socket.recv())
            assert (await scrape(site)).of("sockets") == 1
        await site.get(f"/api/threads/{thread}/history")
        found = await scrape(site)
    route = {"route": "/api/threads/{thread_id}/history", "method": "GET"}
    assert found.of("requests_total", **route, status="200") == 1
    assert found.of("request_seconds_count", **route) == 1


async def test_timers_are_not_counted_at_every_scrape() -> None:
    """One look counts for some seconds; a database that is away costs this number alone."""
    looks: list[int] = []

    async def look(most: int) -> int:
        looks.append(most)
        return 7

    async def away(most: int) -> int:
        del most
        raise BackendError("The database is away.")

    metrics = Metrics()
    for _ in range(3):
        await metrics.count_timers(look)
    assert len(looks) == 1
    assert metrics.registry.get_sample_value("segue_timers_pending") == 7
    metrics = Metrics()
    await metrics.count_timers(away)
    value = metrics.registry.get_sample_value("segue_timers_pending")
    assert value is not None
    assert math.isnan(value)


def test_the_page_lists_exactly_the_metrics_that_there_are() -> None:
    """With their labels, in order."""
    rows = re.findall(r"^\| `(segue_\w+)` \|([^|]*)\|", PAGE.read_text("utf-8"), re.MULTILINE)
    listed = {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    collectors: Any = Metrics().registry._collector_to_names
    made = {
        f"{each._name}{'_total' if each._type == 'counter' else ''}": tuple(each._labelnames)
        for each in collectors
    }
    assert listed == made
    assert len(made) > 15

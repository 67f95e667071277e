"""Outcomes over the wire: numbers for operators, and nobody's words."""

from datetime import timedelta

import pytest

from segue.core.triggers import TRIGGER_PROMPTS
from segue.server.auth import new_key
from segue.simulate.world import Stage, World
from tests.server.clients import Site, site_of
from tests.stories.scenes import arm, eager_agent, model_of, new_thread

pytestmark = pytest.mark.anyio

STATS = "/api/admin/stats"
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
CANARY = "kumquat"
PROMPTS = {
    "check_in": [
        {"name": "warm", "text": f"Ask about the {CANARY}."},
        {"name": "brief", "text": f"Say {CANARY}."},
    ]
}
AGENT = eager_agent(prompts=PROMPTS, holdout=0.3, decider="none")


async def play(world: World) -> None:
    """Twelve users who are followed up or held out; half of them write."""
    threads = [await new_thread(world, f"user {number}") for number in range(12)]
    for thread in threads:
        await arm(world, thread, world.clock.now(), reason=CANARY)
    await world.pass_time(HOUR)
    for thread in threads[::2]:
        await world.segue.send(thread, f"What is a {CANARY}?")
    await world.pass_time(2 * DAY)


async def test_operators_get_the_numbers(stage: Stage) -> None:
    """The same as the library gives."""
    async with (
        stage.world(AGENT, models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        await play(world)
        found = await site.get(STATS)
        library = (await world.segue.stats()).as_json()
        assert found["outcomes"] == library["outcomes"]
        assert found["arms"] == library["arms"]
        assert {row["variant"] for row in found["outcomes"]} == {"warm", "brief", None}
        assert sum(row["total"] for row in found["outcomes"]) == 12
        assert {arm["variant"] for arm in found["arms"]} == {"warm", "brief", None}
        assert sum(arm["wrote"]["cases"] for arm in found["arms"]) == 12
        assert all(arm["difference"] for arm in found["arms"] if arm["variant"])


async def test_what_is_counted_can_be_chosen(sqlite_stage: Stage) -> None:
    """An agent, a trigger, a time and a window; a mistake is told as one."""
    async with (
        sqlite_stage.world(AGENT, models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        began = world.clock.now()
        await play(world)

        async def total(**given: str) -> int:
            rows = (await site.get(STATS, params=given))["outcomes"]
            return sum(row["total"] for row in rows)

        assert await total(agent="guide", trigger="check_in") == 12
        assert await total(agent="nobody") == 0
        assert await total(trigger="task_incomplete") == 0
        assert await total(since=(began + HOUR).isoformat()) == 0
        assert await total(until=began.isoformat()) == 0
        found = await site.get(STATS, params={"window": "60"})
        assert sum(row["replied"] for row in found["outcomes"]) == 0
        for wrong in (
            {"trigger": "Birthday!"},
            {"window": "0"},
            {"since": "2027-01-15T08:00:00"},
            {"since": began.isoformat(), "until": began.isoformat()},
        ):
            answer = await site.http.get(STATS, params=wrong)
            assert 400 <= answer.status_code < 500, wrong


async def test_nobody_else_gets_them(sqlite_stage: Stage) -> None:
    """They are of all users."""
    async with (
        sqlite_stage.world(AGENT, models={"guide": model_of()}) as world,
        site_of(world.segue) as site,
    ):
        key, words = new_key("laptop", "ann", world.clock.now())
        await world.journal.keys.add(key)
        headers = {"Authorization": f"Bearer {words}"}
        assert (await site.http.get(STATS, headers=headers)).status_code == 403
        assert (await site.http.get(STATS)).status_code == 401


async def test_no_word_of_anybody_is_sent(sqlite_stage: Stage) -> None:
    """Not even to operators: neither a trigger's words, nor its reason, nor a user's."""
    async with (
        sqlite_stage.world(AGENT, models={"guide": model_of(then=CANARY)}) as world,
        site_of(world.segue) as site,
    ):
        await play(world)
        text = await _text(site)
        assert "warm" in text
        assert CANARY not in text
        assert not any(words in text for words in TRIGGER_PROMPTS.values())


async def _text(site: Site) -> str:
    return (await site.http.get(STATS)).text

"""Stories of limits over days and a year: however eager an agent is, a user is never flooded."""

from collections import Counter
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from segue.journal.records import TimerState, TurnKind
from segue.simulate.world import START, Stage, World
from tests.stories.scenes import (
    PATIENCE,
    TOLD,
    arm,
    eager_agent,
    model_of,
    new_thread,
    sent_at,
    told,
)

pytestmark = pytest.mark.anyio

BERLIN = ZoneInfo("Europe/Berlin")
ALWAYS_YES = "tests.stories.deciders:always_yes"
NIGHT = {"start": "22:00", "end": "07:00"}


def by_day(moments: list[datetime], zone: ZoneInfo = BERLIN) -> Counter[date]:
    return Counter(moment.astimezone(zone).date() for moment in moments)


async def test_the_cap_of_the_day_counts_all_agents_of_a_user(stage: Stage) -> None:
    """Two agents share what one user gets in a day; what is over it waits for the next."""
    agents = [eager_agent(name, policy={"max_per_day": 4}) for name in ("guide", "coach")]
    models = {"guide": model_of(), "coach": model_of()}
    async with stage.world(*agents, models=models) as world:
        await world.segue.set_user_preferences("ann", time_zone="Europe/Berlin")
        threads = [await new_thread(world, agent=name) for name in ("guide", "coach")]
        for thread in threads:
            await world.say(thread, "Where is Oslo?")
            await world.pass_time(seconds=1)
        await world.pass_time(days=2)
        times = sorted([moment for t in threads for moment in await sent_at(world, t)])
        assert sorted(by_day(times).values()) == [2, 4]
        assert times[4] == datetime(2027, 1, 16, tzinfo=BERLIN)
        gates = [r for t in threads for r in await told(world, t, "the gates")]
        assert "postpone: All 4 of the day are sent; the next day begins 2027-01-16 00:00 in " in (
            "".join(gates).replace("Europe/Berlin", "")
        )


async def test_two_agents_at_the_same_instant_cannot_both_have_the_last_one(stage: Stage) -> None:
    """Both timers are due at once and both see room for one: one is sent, the other asks again."""
    agents = [eager_agent(name, policy={"max_per_day": 1}) for name in ("guide", "coach")]
    models = {"guide": model_of(), "coach": model_of()}
    async with stage.world(*agents, models=models) as world:
        threads = [await new_thread(world, agent=name) for name in ("guide", "coach")]
        for thread in threads:
            await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE)
        assert sorted([len(await sent_at(world, thread)) for thread in threads]) == [0, 1]
        assert sum(len(model.seen) for model in models.values()) == 3
        # It was considered anew at once, not when somebody found it again.
        [waiting] = [t for t in threads if not await sent_at(world, t)]
        assert (await world.segue.list_follow_ups(waiting))[0].state is TimerState.POSTPONED
        await world.pass_time(days=1)
        times = sorted([moment for t in threads for moment in await sent_at(world, t)])
        assert times[:2] == [START + PATIENCE, START.replace(hour=0) + timedelta(days=1)]


async def test_the_day_is_the_users_own(stage: Stage) -> None:
    """The cap of a user in Auckland starts anew at midnight in Auckland, not at that of UTC."""
    zone = ZoneInfo("Pacific/Auckland")
    async with stage.world(
        eager_agent(policy={"max_per_day": 1}), models={"guide": model_of()}
    ) as world:
        thread = await new_thread(world, time_zone="Pacific/Auckland")
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=2)
        assert (await sent_at(world, thread))[:2] == [
            START + PATIENCE,
            datetime(2027, 1, 16, tzinfo=zone),
        ]


async def test_the_cooldown_keeps_follow_ups_of_all_agents_apart(stage: Stage) -> None:
    """Two agents with one wish each are heard ten minutes apart, not in one breath."""
    policy = {"cooldown": 600, "max_consecutive": 1}
    agents = [eager_agent(name, policy=policy) for name in ("guide", "coach")]
    models = {"guide": model_of(), "coach": model_of()}
    async with stage.world(*agents, models=models) as world:
        threads = [await new_thread(world, agent=name) for name in ("guide", "coach")]
        for thread in threads:
            await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=1)
        times = sorted([moment for t in threads for moment in await sent_at(world, t)])
        assert times == [START + PATIENCE, START + PATIENCE + timedelta(minutes=10)]
        reasons = [r for t in threads for r in await told(world, t, "the gates")]
        assert "postpone: The last follow-up was less than 10m ago." in reasons


async def write_now_and_then(world: World, threads: list[str]) -> None:
    """A year of a user who writes a few times on some days, at all hours."""
    for turn in range(12):
        await world.pass_time(days=27, hours=(turn * 7) % 24)
        for n in range(3):
            await world.say(threads[(turn + n) % len(threads)], f"Thought {turn}, {n}.")
            await world.pass_time(hours=2 + (turn + n) % 4, minutes=17)
    await world.clock.advance_to(START + timedelta(days=365))


async def test_an_agent_that_never_has_enough_keeps_to_the_caps_for_a_year(
    sqlite_stage: Stage,
) -> None:
    """A decider that always says yes is bounded by day, by silence and by the night."""
    policy = {"max_per_day": 3, "max_consecutive": 2, "cooldown": 600}
    agents = [eager_agent(name, decider=ALWAYS_YES, policy=policy) for name in ("guide", "coach")]
    models = {"guide": model_of(), "coach": model_of()}
    async with sqlite_stage.world(*agents, models=models) as world:
        await world.segue.set_user_preferences("ann", time_zone="Europe/Berlin", quiet_hours=NIGHT)
        threads = [await new_thread(world, agent=name) for name in ("guide", "coach")]
        await write_now_and_then(world, threads)
        times = [moment for t in threads for moment in await sent_at(world, t)]
        assert len(times) > 30
        assert max(by_day(times).values()) == 3
        walls = [moment.astimezone(BERLIN).time() for moment in times]
        assert all(time(7) <= wall < time(22) for wall in walls)
        for thread in threads:
            turns = await world.journal.turns.list_of(thread, limit=10_000)
            shown = [t.epoch for t in turns if t.kind is TurnKind.FOLLOW_UP and t.shown_at]
            assert max(Counter(shown).values()) == 2
        assert sum(len(model.seen) for model in models.values()) == 36 + len(times)


def decides(messages: list[BaseMessage]) -> AIMessage | str:
    """A model that wants a follow-up whenever it is asked about one."""
    if not isinstance(messages[0], SystemMessage) or "You decide" not in messages[0].text:
        return TOLD
    args = {"follow_up": True, "trigger": "check_in", "delay_seconds": 60, "reason": "Why not?"}
    return AIMessage(
        "", tool_calls=[{"name": "decide_follow_up", "args": args, "id": "c1", "type": "tool_call"}]
    )


async def test_a_model_that_decides_is_bounded_in_the_same_way(stage: Stage) -> None:
    """Its wish is a wish: delays double, three ignored ones end it, and its words are kept."""
    model = model_of()
    model.script = decides
    async with stage.world(eager_agent(decider="model"), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=7)
        minute = timedelta(minutes=1)
        assert await sent_at(world, thread) == [START + n * minute for n in (1, 3, 7)]
        decisions = await world.journal.decisions.list_of(thread)
        plans = [decision.facts for decision in decisions if decision.kind == "plan"]
        assert [plan.get("words") for plan in plans] == [None] + ["Why not?"] * 3
        assert (await told(world, thread, "planning"))[-1].endswith("the user is next.")
        assert "Why not?" not in repr(await world.segue.why(thread))
        # Four replies and three decisions: of the fourth, nobody was asked.
        assert len(model.seen) == 7


async def test_held_out_follow_ups_cost_nothing_and_say_so(stage: Stage) -> None:
    """Who holds all of them out to learn what silence does, pays for no model call."""
    model = model_of()
    async with stage.world(eager_agent(holdout=1.0), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=1)
        assert len(model.seen) == 1
        [timer] = await world.segue.list_follow_ups(thread)
        assert timer.state is TimerState.SUPPRESSED
        assert await told(world, thread, "the follow-up planned") == [
            "suppressed: Held out: this share of follow-ups is not sent, to measure their effect."
        ]
        [gates] = [r for r in await world.segue.why(thread) if "the gates" in r.what]
        assert gates.details["held_out"] is True


async def test_a_share_of_follow_ups_is_held_out_and_the_rest_is_sent(stage: Stage) -> None:
    """Half of them means some of many, and what is sent is not touched by it."""
    model = model_of()
    agent = eager_agent(holdout=0.5, policy={"max_consecutive": 1})
    async with stage.world(agent, models={"guide": model}) as world:
        sent = []
        for number in range(12):
            thread = await new_thread(world, f"user {number}")
            await arm(world, thread, world.clock.now())
            await world.pass_time(seconds=1)
            sent.append(len(await sent_at(world, thread)))
        assert set(sent) == {0, 1}
        assert len(model.seen) == sum(sent)


async def test_the_variant_of_a_prompt_is_recorded_with_the_follow_up(stage: Stage) -> None:
    """Which words the model got can be told from the record, by name and without the words."""
    variants = {"warm": "Ask how the trip was.", "brief": "Say hello."}
    prompts = {"check_in": [{"name": name, "text": text} for name, text in variants.items()]}
    model = model_of()
    agent = eager_agent(prompts=prompts, policy={"max_consecutive": 1})
    async with stage.world(agent, models={"guide": model}) as world:
        recorded = []
        for number in range(8):
            thread = await new_thread(world, f"user {number}")
            await arm(world, thread, world.clock.now())
            await world.pass_time(seconds=1)
            [gates] = [r for r in await world.segue.why(thread) if "the gates" in r.what]
            recorded.append(gates.details["variant"])
            assert not any(text in repr(gates) for text in variants.values())
        assert [request[-1].text for request in model.seen] == [variants[v] for v in recorded]
        assert set(recorded) == set(variants)

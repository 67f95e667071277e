"""The gatekeeper: which facts the gates go by, what is recorded of their word, and what becomes
of a timer whose facts change while they are asked.
"""

import asyncio
import logging
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from segue.core.autonomy.gates import FOR_FOLLOW_UPS, Gate, GateOutcome
from segue.core.autonomy.local_time import QuietHours
from segue.core.autonomy.policy import Policy
from segue.core.triggers import TriggerType
from segue.errors import ConflictError
from segue.journal.records import NewTimer, Timer, TimerKind, TimerState, Turn, TurnKind
from segue.runtime.gatekeeper import GateCheck, Gatekeeper
from segue.settings.agents import Autonomy
from segue.simulate.world import START, Stage, World, plain_agent
from tests.runtime.scenes import Held, lines, new_thread

pytestmark = pytest.mark.anyio

SOON = timedelta(seconds=30)
NIGHT = QuietHours(time(22), time(7))
NAP = {"start": "13:00", "end": "15:00"}
LUNCH = {"start": "12:00", "end": "13:00"}


def quiet(**policy: Any) -> Any:
    """An agent whose follow-ups are the test's to arm."""
    return plain_agent(autonomy={"decider": "none", "policy": {"cooldown": 0, **policy}})


async def arm(world: World, thread: str, **more: Any) -> Timer:
    parts = world.system.deps
    due_at = more.pop("due_at", world.clock.now() + SOON)
    timer = NewTimer(thread, due_at, TriggerType.CHECK_IN.value, **more)
    armed = await parts.journal.timers.arm(timer, ids=parts.ids, now=world.clock.now())
    parts.wakeups.timers.at(due_at)
    return armed


async def check(
    world: World, thread: str, policy: Policy | None = None, now: datetime | None = None
) -> GateCheck:
    """What the gates say of a follow-up that is due now."""
    parts = world.system.deps
    epoch = (await parts.journal.threads.get(thread)).epoch
    now = now or world.clock.now()
    keeper = Gatekeeper(parts.journal, parts.zone)
    return await keeper.check(due(thread, epoch, now), Autonomy(policy=policy or Policy()), now)


def due(thread: str, epoch: int, due_at: datetime, **rules: Any) -> Timer:
    return Timer(
        id=7,
        thread_id=thread,
        agent_id="guide",
        user_id="ann",
        kind=TimerKind.FOLLOW_UP,
        state=TimerState.CLAIMED,
        trigger_type=TriggerType.CHECK_IN.value,
        reason=None,
        batch=None,
        epoch=epoch,
        due_at=due_at,
        **{"expires_at": None, "missed": "run", **rules},
        payload={},
        state_reason=None,
        created_at=START,
        updated_at=START,
    )


def said(checked: GateCheck, gate: Gate) -> str:
    return next(v.reason for v in checked.decision.verdicts if v.gate is gate)


async def test_the_users_zone_is_the_threads_own_before_the_users(stage: Stage) -> None:
    """A thread may be on another clock than the user; without any, it is that of the settings."""
    async with stage.world(quiet(), time_zone="Asia/Kolkata") as world:
        thread = await new_thread(world.segue)
        assert (await check(world, thread)).facts.zone == "Asia/Kolkata"
        assert "in Asia/Kolkata" in said(await check(world, thread), Gate.DAILY_CAP)
        await world.segue.set_user_preferences("ann", time_zone="Europe/Berlin")
        assert (await check(world, thread)).facts.zone == "Europe/Berlin"
        await world.segue.set_thread_preferences(thread, time_zone="Asia/Tokyo")
        assert (await check(world, thread)).facts.zone == "Asia/Tokyo"
        await world.segue.set_thread_preferences(thread, time_zone=None)
        assert (await check(world, thread)).facts.zone == "Europe/Berlin"


async def test_quiet_hours_of_the_thread_come_before_the_users_before_the_agents(
    stage: Stage,
) -> None:
    """The nearest wish counts, and `False` means none at all, not those of the next."""
    policy = Policy(quiet_hours=NIGHT)
    async with stage.world(quiet()) as world:
        thread = await new_thread(world.segue)

        async def hours() -> str:
            return said(await check(world, thread, policy), Gate.QUIET_HOURS).partition(";")[0]

        assert await hours() == "Quiet hours are 22:00 to 07:00"
        await world.segue.set_user_preferences("ann", quiet_hours=NAP)
        assert await hours() == "Quiet hours are 13:00 to 15:00"
        await world.segue.set_thread_preferences(thread, quiet_hours=LUNCH)
        assert await hours() == "Quiet hours are 12:00 to 13:00"
        await world.segue.set_thread_preferences(thread, quiet_hours=False)
        assert await hours() == "No quiet hours are set."
        await world.segue.set_thread_preferences(thread, quiet_hours=None)
        assert await hours() == "Quiet hours are 13:00 to 15:00"
        await world.segue.set_user_preferences("ann", quiet_hours=False)
        assert await hours() == "No quiet hours are set."
        await world.segue.set_user_preferences("ann", quiet_hours=None)
        assert await hours() == "Quiet hours are 22:00 to 07:00"


async def test_a_wish_for_silence_counts_wherever_it_was_made(stage: Stage) -> None:
    """Muted, snoozed and opted out are taken from the user and from the thread, the later snooze
    of both.
    """
    early, late = START + timedelta(hours=1), START + timedelta(hours=2)
    async with stage.world(quiet()) as world:
        for name, value in (("muted", True), ("opted_out", True)):
            thread = await new_thread(world.segue)
            await world.segue.set_thread_preferences(thread, **{name: value})
            assert getattr((await check(world, thread)).facts, name) is True
            await world.segue.set_thread_preferences(thread, **{name: False})
            await world.segue.set_user_preferences("ann", **{name: value})
            assert getattr((await check(world, thread)).facts, name) is True
            await world.segue.set_user_preferences("ann", **{name: None})
            assert getattr((await check(world, thread)).facts, name) is False
        await world.segue.set_user_preferences("ann", snoozed_until=late)
        await world.segue.snooze(thread, early)
        assert (await check(world, thread)).facts.snoozed_until == late


async def test_a_stored_wish_that_cannot_be_read_stops_nothing(stage: Stage) -> None:
    """What another version wrote counts as not set; the follow-up is judged without it."""
    odd = {"quiet_hours": "at night", "time_zone": "Mars/Base", "muted": "yes", "snoozed_until": 5}
    async with stage.world(quiet()) as world:
        thread = await new_thread(world.segue)
        await world.journal.threads.update(thread, settings=odd)
        await world.journal.users.update_settings("ann", odd, now=world.clock.now())
        checked = await check(world, thread)
        assert checked.is_allowed
        assert (checked.facts.zone, checked.facts.muted) == ("UTC", False)


async def test_the_facts_are_those_of_the_moment(stage: Stage) -> None:
    """Typing, what was sent since the user wrote, what was sent today: counted when asked."""
    async with stage.world(quiet(), models={"guide": lines("In Norway.", "Well?")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        facts = (await check(world, thread)).facts
        assert (facts.consecutive, facts.sent_today, facts.last_follow_up_at) == (0, 0, None)
        await arm(world, thread)
        await world.pass_time(SOON)
        await world.segue.report_typing(thread)
        facts = (await check(world, thread)).facts
        assert (facts.consecutive, facts.sent_today) == (1, 1)
        assert facts.last_follow_up_at == facts.typing_at == START + SOON
        assert facts.armed_epoch == facts.thread_epoch == 1
        # A day later in the user's zone none of today was sent; none was answered either.
        facts = (await check(world, thread, now=START + timedelta(days=1))).facts
        assert (facts.consecutive, facts.sent_today) == (1, 0)


async def test_the_day_of_the_user_begins_in_the_users_zone(stage: Stage) -> None:
    """What was sent yesterday evening in Auckland is not of today there, though it is in UTC."""
    async with stage.world(quiet(), models={"guide": lines("In Norway.", "Well?")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await arm(world, thread)
        await world.pass_time(SOON)  # half past nine in the evening, in Auckland
        late = START.replace(hour=23)
        assert (await check(world, thread, now=late)).facts.sent_today == 1
        await world.segue.set_user_preferences("ann", time_zone="Pacific/Auckland")
        assert (await check(world, thread, now=late)).facts.sent_today == 0


async def test_a_turn_does_not_stand_in_its_own_way(stage: Stage) -> None:
    """At its second look a follow-up is not counted as one that was sent."""
    held = Held("Well?")
    policy = {"max_consecutive": 1, "max_per_day": 1, "cooldown": 3600}
    async with stage.world(quiet(**policy), models={"guide": lines("In Norway.", held)}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await arm(world, thread)
        passing = asyncio.create_task(world.pass_time(SOON))
        await held.asked.wait()
        assert (await check(world, thread)).facts.consecutive == 1
        held.go.set()
        await passing
        assert (await world.heard(thread))[-1] == "Well?"


@pytest.mark.parametrize(
    ("wish", "outcome", "state"),
    [
        ({}, GateOutcome.ALLOW, TimerState.FIRED),
        ({"muted": True}, GateOutcome.SUPPRESS, TimerState.SUPPRESSED),
        ({"snoozed_until": START + timedelta(hours=1)}, GateOutcome.POSTPONE, TimerState.POSTPONED),
    ],
)
async def test_the_record_holds_every_verdict_and_the_facts(
    stage: Stage, wish: dict[str, Any], outcome: GateOutcome, state: TimerState
) -> None:
    """Yes, no or not yet: one decision with all gates, in order, and with what they went by."""
    async with stage.world(quiet(), models={"guide": lines("In Norway.")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.segue.set_thread_preferences(thread, time_zone="Europe/Berlin", **wish)
        timer = await arm(world, thread)
        await world.pass_time(SOON)
        [decision] = [d for d in await world.journal.decisions.list_of(thread) if d.kind == "gates"]
        assert decision.outcome == outcome
        assert list(decision.facts["verdicts"]) == [gate for gate in Gate if gate in FOR_FOLLOW_UPS]
        assert len(decision.reasons) == 1 + len(FOR_FOLLOW_UPS)
        assert decision.timer_id == timer.id
        assert decision.decided_at == START + SOON
        assert decision.facts["zone"] == "Europe/Berlin"
        assert decision.facts["due_at"] == (START + SOON).isoformat()
        assert decision.facts["trigger"] == TriggerType.CHECK_IN
        [found] = await world.journal.timers.list_of(thread)
        assert found.state == state
        if outcome is GateOutcome.POSTPONE:
            assert decision.facts["until"] == wish["snoozed_until"].isoformat()
            assert found.due_at == wish["snoozed_until"]
        if outcome is GateOutcome.ALLOW:
            [turn, _] = await world.journal.turns.list_of(thread)
            assert decision.turn_id == turn.id


async def test_a_count_that_changed_meanwhile_is_asked_about_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two agents see room for the day's last follow-up; the slower one asks again, and waits.

    The faster one is shown between the slower one's look and its shot.
    """
    one, other = (
        quiet(max_per_day=1).model_copy(update={"id": name}) for name in ("guide", "coach")
    )
    models = {"guide": lines("In Norway.", "Well?"), "coach": lines("Go on.", "And?")}
    async with stage.world(one, other, models=models) as world:
        slow, fast = [
            (await world.segue.create_thread("ann", name)).id for name in ("guide", "coach")
        ]
        for thread in (slow, fast):
            await world.say(thread, "Hello.")
        fire = world.journal.timers.fire

        async def overtaken(*given: Any, **more: Any) -> Turn | None:
            monkeypatch.setattr(world.journal.timers, "fire", fire)
            await arm(world, fast, due_at=world.clock.now())
            await world.system.runtime.timers.step()
            return await fire(*given, **more)

        monkeypatch.setattr(world.journal.timers, "fire", overtaken)
        await arm(world, slow)
        await world.pass_time(SOON)
        assert (await world.heard(fast))[-1] == "And?"
        assert await world.heard(slow) == ["Hello.", "In Norway."]
        [decision] = [d for d in await world.journal.decisions.list_of(slow) if d.kind == "gates"]
        assert (decision.outcome, decision.facts["gate"]) == (GateOutcome.POSTPONE, Gate.DAILY_CAP)
        await world.pass_time(days=1)
        assert (await world.heard(slow))[-1] == "Well?"


async def test_a_timer_that_is_always_overtaken_is_tried_again_later(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking again has an end; the timer is not lost, but considered anew after its lease."""
    async with sqlite_stage.world(quiet(), models={"guide": lines("Hi.", "Well?")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        fire, tries = world.journal.timers.fire, []

        async def refuse(*_: Any, **__: Any) -> None:
            tries.append(world.clock.now())
            raise ConflictError("Somebody was faster.")

        monkeypatch.setattr(world.journal.timers, "fire", refuse)
        await arm(world, thread)
        await world.pass_time(SOON)
        assert len(tries) == 10
        monkeypatch.setattr(world.journal.timers, "fire", fire)
        await world.pass_time(minutes=1)
        assert (await world.heard(thread))[-1] == "Well?"


async def test_a_timer_that_somebody_cancelled_meanwhile_is_left_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's wish between the look and the shot counts, and is all that is recorded."""
    async with stage.world(quiet(), models={"guide": lines("In Norway.")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        fire = world.journal.timers.fire

        async def too_late(*given: Any, **more: Any) -> Turn | None:
            await world.segue.cancel_follow_ups(thread)
            return await fire(*given, **more)

        monkeypatch.setattr(world.journal.timers, "fire", too_late)
        await arm(world, thread)
        await world.pass_time(SOON)
        assert await world.heard(thread) == ["Where is Oslo?", "In Norway."]
        [timer] = await world.segue.list_follow_ups(thread)
        assert (timer.state, timer.state_reason) == ("cancelled", "The user did not want it.")


async def test_the_timer_of_an_agent_that_is_gone_is_closed_with_the_reason(stage: Stage) -> None:
    """An owner who takes an agent out of the config leaves no timer that fails for ever."""
    async with stage.world(quiet(), models={"guide": lines("In Norway.")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await arm(world, thread)
    async with stage.world(plain_agent("coach")) as world:
        await world.pass_time(SOON)
        [timer] = await world.segue.list_follow_ups(thread)
        assert timer.state is TimerState.SUPPRESSED
        assert timer.state_reason == "Unknown agent 'guide'; the agents are: coach."
        assert (await world.segue.why(thread))[-1].why == timer.state_reason


async def test_a_defect_in_one_timer_does_not_hold_up_the_others(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that cannot be considered is logged and tried again; the other is sent in time."""
    async with sqlite_stage.world(quiet()) as world:
        threads = [await new_thread(world.segue, user) for user in ("ann", "bob")]
        for thread in threads:
            await world.say(thread, "Hello.")
            await arm(world, thread)
        get_thread = world.journal.threads.get

        async def broken(thread_id: str) -> Any:
            if thread_id == threads[0] and world.clock.now() == START + SOON:
                raise RuntimeError("a defect")
            return await get_thread(thread_id)

        monkeypatch.setattr(world.journal.threads, "get", broken)
        await world.pass_time(SOON)
        turns = [(await world.journal.turns.list_of(thread))[0] for thread in threads]
        assert [turn.kind for turn in turns] == [TurnKind.REPLY, TurnKind.FOLLOW_UP]
        assert "could not be considered" in caplog.text
        await world.pass_time(minutes=1)
        assert (await world.journal.turns.list_of(threads[0]))[0].kind is TurnKind.FOLLOW_UP


async def test_the_gates_see_the_rules_of_the_timer(sqlite_stage: Stage) -> None:
    """A timer brings its own epoch and its own rules for being late."""
    async with sqlite_stage.world(quiet()) as world:
        parts, thread = world.system.deps, await new_thread(world.segue)
        timer = due(thread, 3, START, expires_at=START + SOON, missed="skip")
        keeper = Gatekeeper(parts.journal, parts.zone)
        checked = await keeper.check(timer, Autonomy(), world.clock.now())
    facts, record = checked.facts, checked.record(parts.ids.next())
    assert (facts.armed_epoch, facts.due_at, facts.expires_at) == (3, START, START + SOON)
    assert (facts.missed, record.timer_id, record.turn_id) == ("skip", 7, None)


async def test_what_the_gates_said_is_logged_in_one_line(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator who follows the log sees each verdict with its reason."""
    caplog.set_level(logging.INFO)
    async with sqlite_stage.world(quiet()) as world:
        thread = await new_thread(world.segue)
        await check(world, thread, Policy(enabled=False), datetime(2027, 1, 15, tzinfo=UTC))
    line = f"A follow-up of thread {thread} (check_in): suppress. Follow-ups are disabled"
    assert line in caplog.text

"""The past once more: under its own settings what it was, under others what they make of it."""

import random
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue.agent.scripted import Line, ScriptedChatModel
from segue.core.autonomy.gates import Gate
from segue.core.autonomy.local_time import QuietHours
from segue.core.autonomy.policy import Preferences
from segue.core.messages import user_message
from segue.core.snowflake import millis_of
from segue.core.stamp import stamp
from segue.core.triggers import TriggerType
from segue.core.turn_rules import DoubleTexting
from segue.events import OutsideEvent
from segue.journal.journal import Journal
from segue.journal.records import nested_id
from segue.journal.stats import FollowUpOutcome
from segue.runtime.clock import sleep
from segue.runtime.ids import SnowflakeGenerator
from segue.settings import Settings
from segue.settings.agents import AgentConfig, Autonomy
from segue.simulate.past import PastPlan, PastThread, PastTurn, past_of
from segue.simulate.replay import EventKind, replay_user
from segue.simulate.replay_report import ReplayQuery, ReplayReport, replay
from segue.simulate.world import START, Stage, VirtualClock, World, plain_agent
from segue.stores import JOURNAL_FILE, journal_of
from tests.stories.deciders import SOON
from tests.stories.scenes import PATIENCE, TOLD, eager_agent, model_of, new_thread, slowly

pytestmark = pytest.mark.anyio

FAR = datetime(2030, 1, 1, tzinfo=UTC)
REPLIES = (
    "Oslo is the capital of Norway.",
    "Which city do you want to see first?",
    "Shall I book the train or the bus?",
    "I will look for a hotel and tell you.",
    "Booking the hotel failed.",
    "Good bye, and have a nice trip!",
)
Sent = tuple[datetime, str, str | None]


async def again(
    journal: Journal, *agents: AgentConfig, until: datetime = FAR, **wanted: Any
) -> ReplayReport:
    """The whole past under what these agents have as autonomy."""
    by_id = {agent.id: agent.autonomy for agent in agents}
    chosen = ReplayQuery(until=until, keep_events=True, **wanted)
    return await replay(journal, lambda agent_id: by_id.get(agent_id, Autonomy()), chosen)


def of(found: ReplayReport, kind: EventKind) -> list[Sent]:
    return [(e.at, e.thread_id, e.trigger) for e in found.events if e.kind is kind]


def moody(clock: VirtualClock, chance: random.Random) -> ScriptedChatModel:
    """A model that says one thing or another, and takes its time."""

    async def think(messages: list[BaseMessage]) -> str:
        del messages
        await sleep(clock, timedelta(seconds=chance.choice((0, 0, 1, 20))))
        return chance.choice(REPLIES)

    return ScriptedChatModel(script=think)


def some_agents(chance: random.Random) -> tuple[AgentConfig, AgentConfig]:
    def policy() -> dict[str, Any]:
        return {
            "max_consecutive": chance.choice((1, 2, 4)),
            "max_per_day": chance.choice((1, 3, 6)),
            "cooldown": chance.choice((0, 600, 7200)),
            "backoff": chance.choice((1, 1.5, 2)),
            "quiet_hours": chance.choice((None, QuietHours(time(21), time(8)))),
        }

    delays = {"question_unanswered": 1800, "check_in": 7200, "task_incomplete": 600}
    missed = chance.choice(("run", "skip", "run_if_within:7200"))
    first = plain_agent("ada", autonomy={"policy": policy(), "delays": delays, "missed": missed})
    second = plain_agent("bob", autonomy={"policy": policy(), "holdout": 0.3})
    return first, second


class Month:
    """Weeks of two users who write, type, fall silent, and change their minds."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.chance = random.Random(seed)  # noqa: S311 - a story, no secret
        self.agents = some_agents(self.chance)
        self.threads: list[str] = []

    @asynccontextmanager
    async def process(self) -> AsyncIterator[World]:
        models = {agent.id: moody(self.stage.clock, self.chance) for agent in self.agents}
        async with self.stage.world(*self.agents, models=models) as world:
            yield world

    async def live(self) -> ReplayReport:
        for _ in range(3):
            async with self.process() as world:
                await self._weeks(world)
            # Nobody is there for a while.
            await self.stage.clock.advance(timedelta(hours=self.chance.choice((0, 1, 40))))
        async with self.process() as world:
            await self._weeks(world)
            return await again(world.journal, *self.agents, until=world.clock.now())

    async def _weeks(self, world: World) -> None:
        if not self.threads:
            for user, agent in (("ann", "ada"), ("ann", "bob"), ("kim", "ada")):
                self.threads.append(await new_thread(world, user, agent))
        for _ in range(12):
            await self._act(world)
            await world.pass_time(hours=self.chance.choice((0.001, 0.3, 1, 5, 30)))

    async def _act(self, world: World) -> None:
        thread, chance = self.chance.choice(self.threads), self.chance
        match chance.choice(
            ("say", "say", "say", "type", "mute", "snooze", "zone", "drop", "stop")
        ):
            case "say":
                await world.say(thread, chance.choice(("Where is Oslo?", "A table!", "Bye!")))
            case "type":
                await world.segue.report_typing(thread)
            case "mute":
                await world.segue.set_thread_preferences(thread, muted=chance.random() < 0.3)
            case "snooze":
                await world.segue.snooze(thread, world.clock.now() + timedelta(hours=6))
            case "zone":
                zone = chance.choice(("Asia/Tokyo", "America/New_York"))
                hours = chance.choice(({"start": "22:00", "end": "07:00"}, False, None))
                await world.segue.set_user_preferences("ann", time_zone=zone, quiet_hours=hours)
            case "drop":
                await world.segue.cancel_follow_ups(thread)
            case "stop":
                await world.segue.cancel(thread)


@pytest.mark.parametrize("seed", [1, 7, 42, 234])
async def test_under_its_own_settings_the_past_is_what_it_was(stage: Stage, seed: int) -> None:
    """Every follow-up of weeks comes at the same moment, in the same thread, of the same kind."""
    found = await Month(stage, seed).live()
    # What began in the last minute may not be seen yet.
    seen = found.until - timedelta(minutes=1)
    then, now = (
        [s for s in of(found, k) if s[0] < seen] for k in (EventKind.SENT_THEN, EventKind.SENT)
    )
    assert now == then != []
    assert found.total(EventKind.REPLY_LOST) == found.assumed == 0


async def test_a_delay_that_a_decider_chose_is_doubled_once(stage: Stage) -> None:
    """The past begins with what was chosen, and not with what was made of it then."""
    agent = eager_agent(decider="tests.stories.deciders:always_yes")
    async with after_a_silence(stage, lasts=DAY, agent=agent) as (world, _):
        found = await again(world.journal, agent, until=world.clock.now())
    assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN)
    assert waited(found) == [SOON, 3 * SOON, 7 * SOON]


async def test_a_trigger_of_the_owners_own_has_a_past_too(stage: Stage) -> None:
    """With its own prompt, without the gates that it leaves out, and as long as it is declared."""
    own = {"bill_due": {"prompt": "Ask for the bill.", "leave_out": ["quiet_hours"]}}
    quiet: dict[str, Any] = {"policy": NIGHT, "decider": "tests.stories.deciders:bill_is_due"}
    agent = eager_agent(**quiet, triggers=own)
    async with after_a_silence(stage, lasts=DAY, agent=agent) as (world, _):
        found = await again(world.journal, agent, until=world.clock.now())
        without = await again(world.journal, eager_agent(**quiet), until=world.clock.now())
    assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN)
    assert waited(found) == [SOON, 3 * SOON, 7 * SOON]
    assert found.counts[EventKind.SENT] == {"bill_due": 3}
    assert found.unreadable == found.assumed == 0
    assert without.counts[EventKind.HELD_BACK] == {"decider": 1}


async def test_a_follow_up_that_nobody_saw_is_not_sent_again(stage: Stage) -> None:
    """The user wrote while the model was thinking: it comes to nothing now as it did then."""
    thinking = slowly(stage.clock, timedelta(minutes=1), "Which Oslo do you mean?")
    agent = eager_agent()
    async with stage.world(agent, models={"guide": model_of(TOLD, thinking)}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE + timedelta(seconds=10))
        await world.say(thread, "Never mind.")
        await world.pass_time(hours=1)
        found = await again(world.journal, agent, until=world.clock.now())
    assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN)
    assert min(at for at, _, _ in of(found, EventKind.SENT)) > START + timedelta(minutes=1)


async def test_what_was_put_off_at_the_last_moment_comes_as_late_again(stage: Stage) -> None:
    """The user was typing when the model had its words: it was tried again half a minute later."""
    thinking = slowly(stage.clock, timedelta(minutes=1), "Which Oslo do you mean?")
    agent = eager_agent()
    async with stage.world(agent, models={"guide": model_of(TOLD, thinking)}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE + timedelta(seconds=50))
        await world.segue.report_typing(thread)
        await world.pass_time(hours=1)
        found = await again(world.journal, agent, until=world.clock.now())
    assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN)
    assert of(found, EventKind.SENT)[0][0] == START + 2 * PATIENCE + timedelta(seconds=50)


async def test_who_is_typing_is_not_interrupted_in_the_past_either(stage: Stage) -> None:
    """That somebody typed is known only where it kept a follow-up waiting."""
    agent = eager_agent()
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE - timedelta(seconds=5))
        await world.segue.report_typing(thread)
        await world.pass_time(hours=1)
        found = await again(world.journal, agent, until=world.clock.now())
    assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN)
    assert of(found, EventKind.SENT)[0][0] == START + 2 * PATIENCE - timedelta(seconds=5)


async def test_an_answer_that_came_after_the_next_message_plans_nothing(stage: Stage) -> None:
    """What the first reply asks is past; the second one says goodbye."""
    asking = slowly(stage.clock, timedelta(minutes=1), "Which Oslo do you mean?")
    parting = "Good bye, and have a nice trip!"
    agent = eager_agent()
    async with stage.world(agent, models={"guide": model_of(asking, parting)}) as world:
        thread = await new_thread(world)
        await world.segue.send(thread, "Where is Oslo?")
        await world.pass_time(seconds=10)
        await world.segue.send(
            thread, "No need any more, thanks. Bye!", strategy=DoubleTexting.ENQUEUE
        )
        await world.pass_time(hours=1)
        found = await again(world.journal, agent, until=world.clock.now())
    assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN) == []
    assert found.total(EventKind.HELD_BACK) == 0


@asynccontextmanager
async def after_a_silence(
    stage: Stage, *, lasts: timedelta, agent: AgentConfig, replies: Sequence[Line] = ()
) -> AsyncIterator[tuple[World, str]]:
    """A user asked something and then wrote nothing for so long."""
    async with stage.world(agent, models={agent.id: model_of(*replies)}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(lasts)
        yield world, thread


def waited(found: ReplayReport) -> list[timedelta]:
    """After how long follow-ups would have come."""
    return [at - START for at, _, _ in of(found, EventKind.SENT)]


DAY = timedelta(days=1)
CHECK_IN = PastPlan(TriggerType.CHECK_IN)
GROWING = [PATIENCE, 3 * PATIENCE, 7 * PATIENCE]
NIGHT = {"quiet_hours": QuietHours(time(8), time(9))}  # the story begins at eight


@pytest.mark.parametrize(
    ("autonomy", "sent", "stopped", "gate"),
    [
        ({"policy": {"max_consecutive": 2}}, 2, EventKind.HELD_BACK, Gate.CONSECUTIVE_CAP),
        ({"policy": {"enabled": False}}, 0, EventKind.HELD_BACK, Gate.ENABLED),
        ({"enabled": False}, 0, EventKind.HELD_BACK, Gate.ENABLED),
        ({"policy": {"max_per_day": 1}}, 2, EventKind.POSTPONED, Gate.DAILY_CAP),
        ({"policy": NIGHT}, 3, EventKind.POSTPONED, Gate.QUIET_HOURS),
        ({"policy": {"cooldown": 3600}}, 3, EventKind.POSTPONED, Gate.COOLDOWN),
        ({"holdout": 1.0}, 0, EventKind.HELD_OUT, None),
        ({"decider": "none"}, 0, EventKind.HELD_BACK, "decider"),
    ],
)
async def test_each_setting_counts_in_the_past(
    stage: Stage, autonomy: dict[str, Any], sent: int, stopped: EventKind, gate: str | None
) -> None:
    """What another setting stops or puts off is told with the gate that did it."""
    async with after_a_silence(stage, lasts=DAY, agent=eager_agent()) as (world, _):
        found = await again(world.journal, eager_agent(**autonomy), until=world.clock.now())
        assert (found.total(EventKind.SENT_THEN), found.total(EventKind.SENT)) == (3, sent)
        assert gate in {e.gate for e in found.events if e.kind is stopped}


@pytest.mark.parametrize("seed", range(2))
async def test_another_policy_sends_what_it_would_have_sent(folder: str, seed: int) -> None:
    """Users who do not react get from B what the past under A gives when it is replayed by B."""
    policies = [{"max_consecutive": 4, "max_per_day": 9}, {"max_consecutive": 2, "max_per_day": 1}]
    sent = []
    for number, policy in enumerate(policies):
        agent = eager_agent(policy={"cooldown": 600, **policy}, expires_after=None)
        stage = Stage(f"{folder}/{number}")
        chance = random.Random(seed)  # noqa: S311 - a story, no secret
        async with stage.world(agent, models={"guide": model_of()}) as world:
            thread = await new_thread(world)
            for _ in range(15):
                await world.say(thread, "Where is Oslo?")
                await world.pass_time(hours=chance.choice((0.005, 0.02, 1, 7, 50)))
            found = await again(world.journal, agent, until=world.clock.now())
            sent.append([at for at, _, _ in of(found, EventKind.SENT_THEN)])
            if number == 0:
                under_b = eager_agent(policy={"cooldown": 600, **policies[1]}, expires_after=None)
                found = await again(world.journal, under_b, until=world.clock.now())
                expected = [at for at, _, _ in of(found, EventKind.SENT)]
    assert len(sent[1]) < len(sent[0])
    assert sent[1] == expected


async def test_a_reply_is_lost_where_nothing_is_left_to_answer(stage: Stage) -> None:
    """Of two that were answered, the policy that waits longer keeps the later answer."""
    agent, slow = eager_agent(), eager_agent(delays={"check_in": 3600})
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        for minutes in (10, 90, 60 * 48):
            await world.say(thread, "Where is Oslo?")
            await world.pass_time(minutes=minutes)
        await world.say(thread, "After two days, this is no answer any more.")
        found = await again(world.journal, slow, until=world.clock.now())
        stats = await world.segue.stats(window=timedelta(hours=24))
        replied = sum(row.counts.get(FollowUpOutcome.REPLIED, 0) for row in stats.outcomes)
        assert (
            (found.total(EventKind.REPLIED_THEN), found.total(EventKind.REPLY_LOST))
            == (replied, 1)
            == (2, 1)
        )
        assert found.sentence.endswith("1 of 2 replies lost.")
        lost = of(found, EventKind.REPLY_LOST)
        assert [at for at, _, _ in lost] == [START + timedelta(seconds=210)]


async def test_what_nobody_ever_wrote_is_taken_to_be_of_the_same_kind(stage: Stage) -> None:
    """A policy that sends more than was ever written says how many it had to assume."""
    asks = ["Which city do you want to see?"] * 4
    once = eager_agent(policy={"max_consecutive": 1})
    async with after_a_silence(stage, lasts=DAY, agent=once, replies=asks) as (world, _):
        found = await again(world.journal, eager_agent(), until=world.clock.now())
    assert of(found, EventKind.SENT_THEN) == of(found, EventKind.SENT)[:1]
    # The second follows the words of the first, which are known; the third those of the second.
    assert waited(found) == GROWING
    assert (found.difference, found.assumed) == (2, 1)
    assert {trigger for _, _, trigger in of(found, EventKind.SENT)} == {"question_unanswered"}


async def test_words_are_read_where_a_policy_had_kept_the_decider_from_it(stage: Stage) -> None:
    """An agent that never followed up is replayed by what it said, closing words included."""
    off = eager_agent(enabled=False)
    replies = ["Which city do you want to see?", "Good bye, and have a nice trip!"]
    async with after_a_silence(stage, lasts=DAY, agent=off, replies=replies) as (world, thread):
        await world.say(thread, "None, thanks. Bye!")
        await world.pass_time(DAY)
        found = await again(world.journal, eager_agent(), until=world.clock.now())
    assert found.total(EventKind.SENT_THEN) == 0
    assert dict(found.counts[EventKind.SENT]) == {"question_unanswered": 3}


async def test_words_are_read_together_with_the_turns_before_them(stage: Stage) -> None:
    """What the user looked for two turns ago is still to be chosen, in the past as at the time."""
    replies = ["When do you arrive?", "What may it cost?", "There are 4 hotels by the station."]
    off = eager_agent(enabled=False)
    async with stage.world(off, models={"guide": model_of(*replies)}) as world:
        thread = await new_thread(world)
        for words in ("I'm looking for a hotel in Oslo.", "On Friday.", "Up to 90 euros."):
            await world.say(thread, words)
        await world.pass_time(DAY)
        found = await again(world.journal, eager_agent(), until=world.clock.now())
    assert set(found.counts[EventKind.SENT]) == {"waiting_for_decision"}


async def test_what_nobody_had_found_before_the_user_wrote_is_not_sent(stage: Stage) -> None:
    """The process was away when it was due, and the user came back first."""
    agent = eager_agent()
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
    await stage.clock.advance(DAY)
    journal = journal_of(Settings(database=stage.database, agents=(agent,)))
    await journal.open()
    try:
        now = stage.clock.now()
        ids = SnowflakeGenerator(9, clock=lambda: millis_of(now))
        await journal.inbox.accept(thread, user_message("Hello?"), ids=ids, now=now)
        found = await again(journal, agent, until=now)
    finally:
        await journal.close()
    assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN) == []


async def test_what_was_said_may_be_gone_while_it_is_known_what_came_of_it(stage: Stage) -> None:
    """Retention takes words; what was decided about them is still there."""
    agent = eager_agent(policy={"max_consecutive": 1})
    async with after_a_silence(stage, lasts=DAY, agent=agent) as (world, thread):
        turns = await world.journal.turns.list_of(thread)
        await world.journal.removal.remove_batches(thread, [turns[-1].batch])
        found = await again(world.journal, agent, until=world.clock.now())
    assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN)
    assert len(of(found, EventKind.SENT)) == 1


async def test_conversations_from_elsewhere_have_a_past_too(stage: Stage) -> None:
    """Messages alone tell when somebody wrote and what was left open."""
    import_from = [("Where is Oslo?", "Which Oslo do you mean?"), ("The one in Norway.", "Bye!")]
    async with stage.world(eager_agent(enabled=False)) as world:
        thread = await new_thread(world)
        ids = world.system.deps.ids
        messages: list[BaseMessage] = []
        for question, answer in import_from:
            messages += stamp(
                [HumanMessage(question, id=question), AIMessage(answer, id=answer)], ids
            )
            await world.clock.advance(DAY)
        assert await world.journal.messages.import_messages(thread, messages) == len(messages)
        found = await again(world.journal, eager_agent(), until=world.clock.now())
    assert waited(found) == GROWING
    assert found.imported == 1


@pytest.mark.parametrize(("zone", "night"), [("Pacific/Honolulu", 1), ("UTC", 0)])
async def test_what_comes_at_night_is_counted_on_the_users_clock(
    stage: Stage, zone: str, night: int
) -> None:
    """Eight in the morning in UTC is ten at night in Honolulu; then and now are counted each."""
    agent = eager_agent(policy={"max_consecutive": 1})
    async with stage.world(agent, models={agent.id: model_of()}) as world:
        await world.segue.set_user_preferences("ann", time_zone=zone)
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(hours=1)
        found = await again(world.journal, agent, until=world.clock.now())
    assert (found.total(EventKind.SENT_THEN), found.total(EventKind.SENT)) == (1, 1)
    for kind in (EventKind.SENT_THEN, EventKind.SENT):
        assert (found.at_night[kind], found.night_share(kind)) == (night, night)


async def test_one_thread_is_counted_while_its_neighbours_take_their_share(
    stage: Stage,
) -> None:
    """The caps are the user's: another thread's follow-ups leave less for this one."""
    both = [eager_agent(a, policy={"max_per_day": 9}) for a in ("ada", "bob")]
    async with stage.world(*both, models={a.id: model_of() for a in both}) as world:
        first = await new_thread(world, agent="ada")
        second = await new_thread(world, agent="bob")
        await world.say(first, "Where is Oslo?")
        await world.pass_time(seconds=1)
        await world.say(second, "Where is Rome?")
        await world.pass_time(hours=1)
        until = world.clock.now()
        capped = [eager_agent(a, policy={"max_per_day": 1}) for a in ("ada", "bob")]
        found = await again(world.journal, *capped, until=until, thread_id=second)
        assert (found.threads, found.total(EventKind.SENT_THEN), found.total(EventKind.SENT)) == (
            1,
            3,
            0,
        )
        later = await again(world.journal, *both, since=START + timedelta(minutes=1), until=until)
        assert later.total(EventKind.SENT_THEN) == later.total(EventKind.SENT) == 4
        assert later.busiest_day == {EventKind.SENT_THEN: 4, EventKind.SENT: 4}


async def test_an_agent_that_goes_on_has_ended_when_it_is_done(stage: Stage) -> None:
    """The silence after work in several steps begins with the last of them."""
    wish = {"after_seconds": 3600, "reason": "see if it is done"}
    call = {"name": "continue_later", "args": wish, "id": "1", "type": "tool_call"}
    replies: list[Line] = [AIMessage("", tool_calls=[call]), "I am on it.", "It is done."]
    agent = eager_agent().model_copy(update={"continuations": 2})
    async with after_a_silence(stage, lasts=DAY, agent=agent, replies=replies) as (world, _):
        found = await again(world.journal, agent, until=world.clock.now())
    assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN)
    assert of(found, EventKind.SENT)[0][0] == START + timedelta(hours=1) + PATIENCE


async def test_a_thread_that_cannot_be_read_is_left_out(folder: str) -> None:
    """One damaged decision does not hide everybody else's past."""
    stage = Stage(folder)
    agent = eager_agent()
    async with stage.world(agent, models={"guide": model_of()}) as world:
        broken, whole = await new_thread(world, "ann"), await new_thread(world, "kim")
        for thread in (broken, whole):
            await world.say(thread, "Where is Oslo?")
        await world.pass_time(DAY)
        with closing(sqlite3.connect(Path(folder) / JOURNAL_FILE)) as db, db:
            db.execute("UPDATE decisions SET facts = '[1]' WHERE thread_id = ?", (broken,))
        found = await again(world.journal, agent, until=world.clock.now())
    assert (found.threads, found.unreadable, found.total(EventKind.SENT_THEN)) == (1, 1, 3)
    assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN)


async def test_settings_without_any_delay_come_to_an_end(stage: Stage) -> None:
    """Nobody means them, and a replay does not try to reach the last of a billion."""
    endless = eager_agent(
        policy={"max_consecutive": 10**9, "max_per_day": 10**9, "min_delay": 0, "max_delay": 0}
    )
    async with after_a_silence(stage, lasts=DAY, agent=eager_agent()) as (world, _):
        found = await again(world.journal, endless, until=world.clock.now())
    assert found.total(EventKind.SENT) == 1_000


def test_what_was_put_off_until_now_is_not_tried_for_ever() -> None:
    """A clock that went back may have left such a record."""
    asked = PastTurn(batch=1, is_follow_up=False, began_at=START, ended_at=START, plan=CHECK_IN)
    due = START + PATIENCE
    unseen = PastTurn(batch=2, is_follow_up=True, began_at=due, postponed_until=due)
    past = PastThread("t", "guide", (asked, unseen), (), (), (), Preferences(), False)
    assert [*replay_user([past], lambda _: eager_agent().autonomy, FAR)] == []


async def test_threads_in_which_agents_ask_each_other_are_not_counted(stage: Stage) -> None:
    """Nobody is followed up in them."""
    async with after_a_silence(stage, lasts=DAY, agent=eager_agent()) as (world, thread):
        await world.journal.threads.create(
            nested_id(thread, "guide"), agent_id="guide", user_id="ann", now=world.clock.now()
        )
        found = await again(world.journal, eager_agent(), until=world.clock.now())
    assert found.threads == 1


async def test_nothing_is_written(folder: str) -> None:
    """A replay leaves the database as it was, to the byte."""
    stage = Stage(folder)
    async with after_a_silence(stage, lasts=DAY, agent=eager_agent()) as (world, _):
        before = [line async for line in world.segue.export_all()][1:]
        await again(world.journal, eager_agent(policy={"max_per_day": 1}))
        assert [line async for line in world.segue.export_all()][1:] == before
        assert len(before) > 10


async def test_what_was_requested_is_not_replayed(stage: Stage) -> None:
    """A program's wish and an event do not depend on the policy that is tried."""
    async with stage.world(eager_agent("ada", decider="none")) as world:
        await world.segue.create_thread("sam", thread_id="one")
        await world.segue.follow_up("one", key="a")
        await world.segue.wake(OutsideEvent(id="1"), thread="one")
        await world.pass_time(hours=1)
        assert len(await world.heard("one")) == 2
        [[past]] = [threads async for threads in past_of(world.journal.transfer)]
        assert past is not None
        assert (past.turns, past.checks, past.is_imported) == ((), (), False)


async def test_requested_messages_are_counted_and_left_out(stage: Stage) -> None:
    """Each time of a recurring reminder, too: none is taken for a follow-up, nor for an answer."""
    agent = eager_agent(policy={"max_consecutive": 1, "cooldown": 0})
    model = model_of("Which city?", then="Stretch, a parcel, the exam.")
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "I want to travel.")
        await world.pass_time(minutes=2)
        began = world.clock.now()
        await world.segue.remind(thread, "stretch", every="FREQ=HOURLY")
        await world.segue.wake(OutsideEvent(id="1"), thread=thread)
        await world.pass_time(hours=3)
        turns = await world.journal.turns.list_of(thread)
        asked = [turn for turn in turns if turn.kind.speaks_first and turn.queued_at > began]
        assert len(asked) >= 3
        found = await again(world.journal, agent, until=world.clock.now())
        assert found.requested == len([turn for turn in asked if turn.shown_at])
        assert of(found, EventKind.SENT) == of(found, EventKind.SENT_THEN)
        assert len(of(found, EventKind.SENT)) == 1
        assert found.as_json()["requested_left_out"] == found.requested
        later = world.clock.now() + timedelta(seconds=1)
        late = await again(world.journal, agent, since=later)
        assert late.requested == 0

"""Effects end to end: what a follow-up says reaches a real server, signed, at least once, and
"delivered" is said only with that server's answer.
"""

import asyncio
import json
import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.agent.scripted import ScriptedChatModel
from segue.core.triggers import TriggerType
from segue.errors import BackendError, UsageError
from segue.journal.effects import Effect, EffectLease
from segue.journal.records import EffectState
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, Stage, World, plain_agent
from segue.webhooks import verify
from tests.runtime.receiver import SECRET, Receiver, status
from tests.runtime.scenes import Held, lines, new_thread

pytestmark = pytest.mark.anyio

SILENCE = timedelta(seconds=30)
# When a delivery is tried: 5 s, and three times as long after each attempt, up to an hour.
TRIES = [0, 5, 20, 65, 200, 605, 1820, 5420]
LEASE = timedelta(minutes=2)


def eager(receiver: Receiver | None, id: str = "guide", **config: Any) -> AgentConfig:
    """An agent that speaks first once, after half a minute, and sends it to the receiver."""
    all_replies = config.pop("all_replies", False)
    if receiver is not None:
        url, secret = receiver.target.url, receiver.target.secret
        config["webhook"] = {"url": url, "secret": secret, "all_replies": all_replies}
    delays = {trigger.value: SILENCE.total_seconds() for trigger in TriggerType}
    policy = {"max_consecutive": 1, "cooldown": 0, "max_per_day": 1_000}
    autonomy = {"delays": delays, "policy": policy, "decider": config.pop("decider", "rules")}
    return plain_agent(id, autonomy=autonomy, **config)


def call(tool: str, args: dict[str, Any], text: str = "") -> AIMessage:
    return AIMessage(text, tool_calls=[{"name": tool, "args": args, "id": f"of-{tool}"}])


def model(*said: Any) -> dict[str, ScriptedChatModel]:
    return {"guide": lines(*said)}


async def one_follow_up(world: World) -> str:
    """A conversation in which the agent has just spoken first."""
    thread = await new_thread(world.segue)
    await world.say(thread, "I am moving to Oslo.")
    await world.pass_time(SILENCE)
    return thread


async def effects(world: World, thread: str) -> list[Effect]:
    return await world.journal.effects.list_of(thread)


async def told(world: World, thread: str) -> list[str]:
    """What `why` says of webhooks."""
    reasons = await world.segue.why(thread, limit=1_000)
    return [f"{r.outcome}: {r.why}" for r in reasons if "webhook" in r.what]


def signed_at(headers: Message) -> datetime:
    stamp = str(headers["Segue-Signature"]).partition(",")[0].removeprefix("t=")
    return datetime.fromtimestamp(int(stamp), UTC)


async def test_a_follow_up_reaches_the_receiver_signed(stage: Stage, receiver: Receiver) -> None:
    """One request with what the user sees, and the receiver can tell that it is from us."""
    async with stage.world(eager(receiver), models=model("In Norway.", "Still there?")) as world:
        thread = await one_follow_up(world)
        [(path, headers, body)] = receiver.got
        assert path == "/hooks/segue?key=hush"
        assert verify(SECRET, headers["Segue-Signature"], body, now=world.clock.now())
        assert not verify("another secret, as long", headers["Segue-Signature"], body, now=START)
        [reply] = (await world.segue.history(thread)).messages[2:]
        [turn, _] = await world.journal.turns.list_of(thread)
        assert json.loads(body) == {
            "event": "follow_up",
            "agent_id": "guide",
            "user_id": "ann",
            "thread_id": thread,
            "turn_id": str(turn.id),
            "messages": [{"id": reply.id, "text": "Still there?"}],
        }
        assert headers["Segue-Event-Id"] == f"webhook:{turn.id}"


async def test_delivered_is_said_with_the_receivers_answer(
    stage: Stage, receiver: Receiver
) -> None:
    """The record holds what the receiver answered and when."""
    receiver.answer = status(202)
    async with stage.world(eager(receiver), models=model()) as world:
        thread = await one_follow_up(world)
        [effect] = await effects(world, thread)
        evidence = "202 at 2027-01-15T08:00:30+00:00"
        assert (effect.state, effect.evidence) == (EffectState.DONE, evidence)
        assert await told(world, thread) == [f"delivered: {evidence}"]


async def test_a_failing_receiver_is_tried_again_and_given_up_and_revived(
    stage: Stage, receiver: Receiver
) -> None:
    """Eight tries over an hour and a half, each signed anew; then it waits for an operator."""
    receiver.answer = status(500)
    async with stage.world(eager(receiver), models=model()) as world:
        thread = await one_follow_up(world)
        answered = "The webhook answered 500."
        assert (await told(world, thread))[0].startswith(f"waiting: {answered}")
        await world.pass_time(days=2)
        first = START + SILENCE
        assert [signed_at(headers) - first for _, headers, _ in receiver.got] == [
            timedelta(seconds=seconds) for seconds in TRIES
        ]
        assert len({headers["Segue-Event-Id"] for _, headers, _ in receiver.got}) == 1
        assert (await told(world, thread))[0].startswith(f"not delivered: {answered}")
        [dead] = await world.journal.effects.list_dead()
        assert (dead.state, dead.attempts, dead.evidence) == (EffectState.DEAD, 8, None)

        receiver.answer = status(200)
        await world.journal.effects.revive(dead.id, now=world.clock.now())
        world.system.deps.wakeups.effects.now()
        await world.clock.settle()
        [(_, headers, body)] = receiver.got[8:]
        assert verify(SECRET, headers["Segue-Signature"], body, now=world.clock.now())
        assert (await told(world, thread))[0].startswith("delivered: 200 at ")


async def test_a_receiver_that_comes_back_gets_it_once(stage: Stage, receiver: Receiver) -> None:
    """After the first 2xx nothing more is sent, and the record says what was answered then."""
    receiver.answer = status(503)
    async with stage.world(eager(receiver), models=model()) as world:
        thread = await one_follow_up(world)
        await world.pass_time(seconds=10)
        receiver.answer = status(204)
        await world.pass_time(days=1)
        assert len(receiver.got) == 3
        assert await told(world, thread) == ["delivered: 204 at 2027-01-15T08:00:50+00:00"]


async def test_a_refusal_for_good_is_not_repeated(stage: Stage, receiver: Receiver) -> None:
    """A receiver that says 410 is asked once."""
    receiver.answer = status(410)
    async with stage.world(eager(receiver), models=model()) as world:
        thread = await one_follow_up(world)
        await world.pass_time(days=1)
        assert len(receiver.got) == 1
        assert (await told(world, thread))[0].startswith("not delivered: ")


async def never(*_: Any, **__: Any) -> None:
    """A step that is never heard of again."""
    await asyncio.Event().wait()


async def test_a_crash_after_the_request_sends_it_again_with_the_same_id(
    stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost that nobody noted down; the receiver knows a repetition by its event id."""
    async with stage.world(eager(receiver), models=model()) as world:
        monkeypatch.setattr(world.journal.effects, "complete", never)
        thread = await new_thread(world.segue)
        await world.say(thread, "I am moving to Oslo.")
        passing = asyncio.create_task(world.pass_time(SILENCE))
        await asyncio.to_thread(receiver.asked.wait)
        assert await told(world, thread) == ["under way: "]
    passing.cancel()
    async with stage.world(eager(receiver), models=model()) as world:
        await world.pass_time(LEASE)
        (_, once, body), (_, again, same) = receiver.got
        assert once["Segue-Event-Id"] == again["Segue-Event-Id"]
        assert body == same
        assert (await told(world, thread))[0].startswith("delivered: ")


async def test_two_workers_do_not_send_the_same_at_the_same_time(
    stage: Stage, receiver: Receiver
) -> None:
    """While one waits for the receiver, the other finds nothing to do."""
    answered = status(200)

    def after_a_while(handler: Any) -> None:
        receiver.over.wait()
        answered(handler)

    receiver.answer = after_a_while
    async with (
        stage.world(eager(receiver), models=model()) as one,
        stage.world(eager(receiver), models=model()) as other,
    ):
        thread = await new_thread(one.segue)
        await one.say(thread, "I am moving to Oslo.")
        passing = asyncio.create_task(one.pass_time(SILENCE))
        await asyncio.to_thread(receiver.asked.wait)
        next_at = await other.system.runtime.effects.step()
        assert next_at == one.clock.now() + LEASE
        receiver.over.set()
        await passing
        assert len(receiver.got) == 1
        assert (await told(other, thread))[0].startswith("delivered: ")


async def test_many_effects_and_two_workers_are_one_request_each(
    stage: Stage, receiver: Receiver
) -> None:
    """Both take from the same outbox at once, and nothing is sent twice or left behind."""
    agent = eager(receiver)
    async with (
        stage.world(agent, models=model()) as one,
        stage.world(agent, models=model()) as other,
    ):
        receiver.answer = status(500)
        threads = [await new_thread(one.segue, f"user-{n}") for n in range(20)]
        for thread in threads:
            await one.say(thread, "I am moving to Oslo.")
        await one.pass_time(SILENCE)
        assert len(receiver.got) == 20
        receiver.got.clear()
        receiver.answer = status(200)
        both = asyncio.gather(*(other.system.runtime.effects.step() for _ in range(3)))
        await one.pass_time(seconds=5)
        await both
        await one.pass_time(days=1)
        sent = Counter(headers["Segue-Event-Id"] for _, headers, _ in receiver.got)
        assert len(sent) == 20
        assert set(sent.values()) == {1}


async def test_an_effect_that_nobody_knows_waits_for_somebody_who_does(
    stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older process leaves to a newer one what only that one can do."""
    async with stage.world(eager(receiver), models=model()) as world:
        monkeypatch.setattr(world.system.runtime.effects, "_handlers", {})
        thread = await one_follow_up(world)
        await world.pass_time(days=1)
        [effect] = await effects(world, thread)
        assert (effect.state, effect.attempts) == (EffectState.PENDING, 0)
        assert receiver.got == []
    async with stage.world(eager(receiver), models=model()) as world:
        await world.clock.settle()
        assert len(receiver.got) == 1


@dataclass
class Hanging:
    """A receiver of effects that never answers for some threads, and notes the others."""

    dead: frozenset[str] = frozenset()
    begun: list[str] = field(default_factory=list)
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: list[str] = field(default_factory=list)
    done: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    async def take(self, effect: Effect) -> str:
        self.begun.append(effect.thread_id)
        self.is_asked.set()
        if effect.thread_id in self.dead:
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.append(effect.thread_id)
        self.done.put_nowait(effect.thread_id)
        return "taken"


def handle(world: World, monkeypatch: pytest.MonkeyPatch, **handlers: Hanging) -> None:
    takers = {kind: hanging.take for kind, hanging in handlers.items()}
    monkeypatch.setattr(world.system.runtime.effects, "_handlers", takers)


async def test_a_webhook_that_hangs_does_not_hold_up_deciders(
    stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of effect has its own slots."""
    monkeypatch.setattr("segue.runtime.effects._SLOTS", 2)
    agent = eager(receiver, all_replies=True, decider="model")
    async with stage.world(agent, models=model()) as world:
        threads = [await new_thread(world.segue, f"user-{n}") for n in range(4)]
        webhooks, deciders = Hanging(frozenset(threads)), Hanging()
        handle(world, monkeypatch, webhook=webhooks, decide=deciders)
        for thread in threads:
            await world.segue.reply(thread, "I am moving to Oslo.")
        assert {await deciders.done.get() for _ in threads} == {*threads}
        assert len(webhooks.begun) == 2


async def test_a_slot_is_filled_again_while_another_effect_hangs(
    stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Effects do not wait for the slowest of those that were begun with them."""
    monkeypatch.setattr("segue.runtime.effects._SLOTS", 2)
    agent = eager(receiver, all_replies=True)
    async with stage.world(agent, models=model()) as world:
        threads = [await new_thread(world.segue, f"user-{n}") for n in range(5)]
        handle(world, monkeypatch)
        for thread in threads:
            await world.say(thread, "I am moving to Oslo.")
        webhooks = Hanging(frozenset(threads[:1]))
        handle(world, monkeypatch, webhook=webhooks)
        world.system.deps.wakeups.effects.now()
        assert {await webhooks.done.get() for _ in threads[1:]} == {*threads[1:]}


async def test_an_agent_whose_webhook_hangs_does_not_hold_up_another_agents(
    stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much of one agent waits, it has a part of the slots alone."""
    monkeypatch.setattr("segue.runtime.effects._SLOTS", 4)
    monkeypatch.setattr("segue.runtime.effects._SHARE", 2)
    agents = [eager(receiver, name, all_replies=True) for name in ("guide", "atlas")]
    async with stage.world(*agents, models={"guide": lines(), "atlas": lines()}) as world:
        threads = [await new_thread(world.segue, f"user-{n}") for n in range(6)]
        webhooks = Hanging(frozenset(threads))
        handle(world, monkeypatch, webhook=webhooks)
        for thread in threads:
            await world.segue.reply(thread, "I am moving to Oslo.")
        other = await world.segue.create_thread("ann", "atlas")
        for _ in range(3):
            await world.segue.reply(other, "I am moving to Oslo.")
            assert await webhooks.done.get() == other.id
        assert len(webhooks.begun) < 4 + 3


async def test_effects_at_work_are_stopped_with_the_process(
    stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of them goes on when the block is left, and the next process does them again."""
    agent = eager(receiver, all_replies=True)
    async with stage.world(agent, models=model()) as world:
        thread = await new_thread(world.segue)
        webhooks = Hanging(frozenset({thread}))
        handle(world, monkeypatch, webhook=webhooks)
        await world.segue.reply(thread, "I am moving to Oslo.")
        await webhooks.is_asked.wait()
    assert webhooks.stopped == [thread]
    async with stage.world(agent, models=model()) as world:
        await world.clock.settle()
        assert receiver.got == []
        await world.pass_time(LEASE)
        sent = [json.loads(body)["event"] for _, _, body in receiver.got]
        assert sent == ["follow_up", "reply"]


async def test_a_handler_that_hangs_is_stopped_and_tried_again(
    stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the time of its lease, so that it is never at work twice."""
    async with stage.world(eager(receiver), models=model()) as world:
        runner = world.system.runtime.effects
        works = dict(runner._handlers)
        monkeypatch.setattr("segue.runtime.effects._LEASE", timedelta(milliseconds=10))
        monkeypatch.setattr(runner, "_handlers", {"webhook": never})
        thread = await one_follow_up(world)
        [effect] = await effects(world, thread)
        assert (effect.state, effect.error) == (EffectState.PENDING, "TimeoutError")
        monkeypatch.setattr("segue.runtime.effects._LEASE", LEASE)
        monkeypatch.setattr(runner, "_handlers", works)
        await world.pass_time(seconds=5)
        assert len(receiver.got) == 1


async def test_an_effect_whose_end_cannot_be_noted_is_done_again_after_its_lease(
    stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is away for a moment loses nothing, and the worker goes on."""
    async with stage.world(eager(receiver), models=model()) as world:
        complete = world.journal.effects.complete

        async def away(*_: Any) -> None:
            monkeypatch.setattr(world.journal.effects, "complete", complete)
            raise BackendError("The database is away.")

        monkeypatch.setattr(world.journal.effects, "complete", away)
        thread = await one_follow_up(world)
        assert await told(world, thread) == ["under way: "]
        await world.pass_time(LEASE)
        assert len(receiver.got) == 2
        assert (await told(world, thread))[0].startswith("delivered: ")


async def test_an_agent_without_its_webhook_any_more_gives_up(
    stage: Stage, receiver: Receiver
) -> None:
    """What waited for a receiver that the owner took out of the config is not kept trying."""
    receiver.answer = status(500)
    async with stage.world(eager(receiver), models=model()) as world:
        thread = await one_follow_up(world)
    async with stage.world(eager(None), models=model()) as world:
        await world.pass_time(seconds=5)
        [said] = await told(world, thread)
        assert said.startswith("not delivered: The agent has no webhook any more.")
    assert len(receiver.got) == 1


async def test_a_handler_that_breaks_is_tried_again_and_quotes_nothing(
    stage: Stage,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A defect costs neither the effect nor a word of the conversation in the log."""
    caplog.set_level(logging.INFO)
    async with stage.world(eager(receiver), models=model()) as world:
        runner = world.system.runtime.effects
        works = dict(runner._handlers)

        async def breaks(effect: Effect) -> str:
            raise RuntimeError(f"cannot send {effect.payload}")

        monkeypatch.setattr(runner, "_handlers", {"webhook": breaks})
        thread = await one_follow_up(world)
        [effect] = await effects(world, thread)
        assert (effect.state, effect.error) == (EffectState.PENDING, "RuntimeError")
        assert "Fine." not in caplog.text
        monkeypatch.setattr(runner, "_handlers", works)
        await world.pass_time(seconds=5)
        assert len(receiver.got) == 1


async def test_answers_are_sent_only_where_the_owner_wants_all(
    stage: Stage, receiver: Receiver
) -> None:
    """Who is there to read the answer needs no webhook, unless the config says so."""
    for all_replies, expected in ((False, ["follow_up"]), (True, ["reply", "follow_up"])):
        receiver.got.clear()
        agent = eager(receiver, all_replies=all_replies)
        async with stage.world(agent, models=model("In Norway.", "Still there?")) as world:
            thread = await one_follow_up(world)
            sent = [json.loads(body) for _, _, body in receiver.got]
            assert [each["event"] for each in sent] == expected
            texts = [message["text"] for each in sent for message in each["messages"]]
            assert texts == ["In Norway.", "Still there?"][-len(expected) :]
            whats = [r.what for r in await world.segue.why(thread) if "webhook" in r.what]
            assert whats == [f"the webhook of a {name.replace('_', '-')}" for name in expected]


async def test_a_refusal_is_sent_with_its_text(stage: Stage, receiver: Receiver) -> None:
    """OpenAI's client keeps it beside an empty content."""
    refusing = AIMessage("", additional_kwargs={"refusal": "I can't help."})
    async with stage.world(eager(receiver), models=model("In Norway.", refusing)) as world:
        await one_follow_up(world)
        [(_, _, body)] = receiver.got
        assert [message["text"] for message in json.loads(body)["messages"]] == ["I can't help."]


async def test_what_agents_tell_each_other_is_not_sent(stage: Stage, receiver: Receiver) -> None:
    """The answer of a nested agent is a tool's result and no message to anybody."""
    asking = call("ask_agent", {"name": "atlas", "text": "I am moving to Oslo."})
    guide = eager(receiver, may_ask=("atlas",), all_replies=True)
    atlas = eager(receiver, "atlas", all_replies=True)
    models = {"guide": lines(asking, "In Norway.", "Still there?"), "atlas": lines("59 degrees.")}
    async with stage.world(guide, atlas, models=models) as world:
        thread = await one_follow_up(world)
        assert [m.text for m in (await world.segue.history(f"{thread}/atlas")).messages] == [
            "I am moving to Oslo.",
            "59 degrees.",
        ]
        sent = [json.loads(body) for _, _, body in receiver.got]
        assert [each["thread_id"] for each in sent] == [thread, thread]
        assert "59 degrees." not in repr(sent)


def look() -> str:
    """Looks something up."""
    return "It rains."


async def test_a_follow_up_that_was_cut_off_is_sent_whole(stage: Stage, receiver: Receiver) -> None:
    """What it said before a restart is in the webhook with what it said after it."""
    held = Held("Take an umbrella!")
    agent = eager(receiver, tools=(look,))
    said = (AIMessage("In Norway."), call("look", {}, "Let me see."), held)
    async with stage.world(agent, models=model(*said), patience=timedelta(0)) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "I am moving to Oslo.")
        passing = asyncio.create_task(world.pass_time(SILENCE))
        await held.asked.wait()
    passing.cancel()
    async with stage.world(agent, models=model("Take an umbrella!")) as world:
        await world.pass_time(SILENCE)
        assert await world.heard(thread) == [
            "I am moving to Oslo.",
            "In Norway.",
            "Let me see.",
            "Take an umbrella!",
        ]
        [sent] = [json.loads(body) for _, _, body in receiver.got]
        assert [m["text"] for m in sent["messages"]] == ["Let me see.", "Take an umbrella!"]


async def test_a_follow_up_that_was_seen_is_finished_whatever_the_gates_say_by_then(
    stage: Stage, receiver: Receiver
) -> None:
    """The user muted the thread between its first words and the restart: half of it would stay."""
    held = Held("Take an umbrella!")
    agent = eager(receiver, tools=(look,))
    said = (AIMessage("In Norway."), call("look", {}, "Let me see."), held)
    async with stage.world(agent, models=model(*said), patience=timedelta(0)) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "I am moving to Oslo.")
        passing = asyncio.create_task(world.pass_time(SILENCE))
        await held.asked.wait()
        await world.segue.set_thread_preferences(thread, muted=True)
    passing.cancel()
    async with stage.world(agent, models=model("Take an umbrella!")) as world:
        await world.pass_time(SILENCE)
        assert (await world.heard(thread))[2:] == ["Let me see.", "Take an umbrella!"]


async def test_what_was_sent_is_not_sent_again_when_the_agent_goes_on(
    stage: Stage, receiver: Receiver
) -> None:
    """A turn that goes on in the batch of another one sends only what it says itself."""
    going_on = call("continue_later", {"after_seconds": 10, "reason": "see if it is done"})
    agent = eager(receiver, all_replies=True, continuations=1, decider="none")
    async with stage.world(agent, models=model(going_on, "Under way.", "It is done.")) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Please send the parcel.")
        await world.pass_time(seconds=10)
        assert await world.heard(thread) == ["Please send the parcel.", "Under way.", "It is done."]
        sent = [json.loads(body)["messages"] for _, _, body in receiver.got]
        assert [[m["text"] for m in messages] for messages in sent] == [
            ["Under way."],
            ["It is done."],
        ]


async def test_a_continuation_is_sent_like_a_follow_up(stage: Stage, receiver: Receiver) -> None:
    """The user may be away by then; `why` names the delivery for what it is."""
    going_on = call("continue_later", {"after_seconds": 10, "reason": "see if it is done"})
    agent = eager(receiver, continuations=1, decider="none")
    async with stage.world(agent, models=model(going_on, "Under way.", "It is done.")) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Please send the parcel.")
        assert receiver.got == []
        await world.pass_time(seconds=10)
        [(_, _, body)] = receiver.got
        sent = json.loads(body)
        assert sent["event"] == "continuation"
        assert [message["text"] for message in sent["messages"]] == ["It is done."]
        story = {reason.what: reason.outcome for reason in await world.segue.why(thread)}
        assert story["the webhook of a continuation"] == "delivered"


@pytest.mark.parametrize(
    ("webhook", "said"),
    [
        ({"url": "example.org/hush", "secret": SECRET}, "starts with http:// or https://"),
        ({"url": "https://example.org:99999/", "secret": SECRET}, "starts with http"),
        ({"url": "https://example.org/", "secret": "hush"}, "has 4 characters"),
    ],
)
async def test_a_webhook_that_cannot_work_is_refused_at_the_start(
    sqlite_stage: Stage, webhook: dict[str, Any], said: str
) -> None:
    """The error names the agent and what is wrong, and quotes neither the URL nor the secret."""
    agent = plain_agent("atlas", webhook=webhook)
    with pytest.raises(UsageError, match=f"agent 'atlas': webhook: .*{said}") as caught:
        async with sqlite_stage.world(plain_agent(), agent):
            raise AssertionError
    assert "hush" not in str(caught.value)


async def test_secrets_are_in_no_repr_and_in_no_log(
    stage: Stage, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the secret nor what a webhook's address hides is written down anywhere."""
    caplog.set_level(logging.INFO)
    receiver.answer = status(500)
    agent = eager(receiver)
    async with stage.world(agent, models=model()) as world:
        thread = await one_follow_up(world)
        await world.pass_time(days=1)
        shown = repr([await effects(world, thread), await world.segue.why(thread)])
        assert SECRET not in repr([world.system, agent.webhook])
    # The HTTP client's own lines are for `configure_logging` to keep quiet.
    ours = [record for record in caplog.records if record.name.startswith("segue")]
    lines_logged = "\n".join(record.getMessage() for record in ours)
    assert "Effect" in lines_logged
    for hidden in (SECRET, "hush", receiver.target.origin):
        assert hidden not in shown
        assert hidden not in lines_logged


async def test_an_effect_whose_lease_ran_out_is_left_to_who_has_it_now(
    stage: Stage,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who was too slow writes nothing over what the next one noted, and goes on with its work."""
    async with stage.world(eager(receiver), models=model()) as world:
        journal = world.journal
        complete = journal.effects.complete

        async def slowly(lease: EffectLease, evidence: str | None = None) -> None:
            monkeypatch.setattr(journal.effects, "complete", complete)
            later = world.clock.now() + LEASE
            [again] = await journal.effects.claim(
                "other", kind="webhook", now=later, lease_for=LEASE
            )
            await complete(again, "200 by the other")
            await complete(lease, evidence)

        monkeypatch.setattr(journal.effects, "complete", slowly)
        thread = await one_follow_up(world)
        assert await told(world, thread) == ["delivered: 200 by the other"]
        assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []

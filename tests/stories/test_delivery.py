"""Follow-ups against a baseline: timers of a program that does nothing else and never fails."""

import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from evals.naturalness import CONVERSATIONS
from segue.agent.scripted import ScriptedChatModel, demo_reply
from segue.core.speech.guard import find_machinery
from segue.core.stamp import stamp
from segue.core.triggers import TriggerType
from segue.simulate.world import START, Stage
from tests.stories.scenes import PATIENCE, arm, eager_agent, model_of, new_thread, sent_at

pytestmark = pytest.mark.anyio

SILENCES = {
    "hasty": timedelta(seconds=30),
    "calm": timedelta(minutes=10),
    "slow": timedelta(hours=5),
}
IN_A_ROW = 3
END = START + timedelta(days=4)


def baseline(written: Sequence[datetime], silence: timedelta) -> Iterator[datetime]:
    """When follow-ups are due: after each message, each after twice the silence of the last."""
    for message, following in zip(written, [*written[1:], END], strict=True):
        due = message
        for number in range(IN_A_ROW):
            due += silence * 2**number
            if due >= following:
                break
            yield due


async def test_follow_ups_come_as_often_and_as_punctually_as_the_baseline(stage: Stage) -> None:
    """In 18 conversations over four days not one is missing, early, late or too many."""
    chance = random.Random(7)  # noqa: S311 - no secret
    agents = [
        eager_agent(
            name,
            delays={trigger.value: silence.total_seconds() for trigger in TriggerType},
            policy={"max_consecutive": IN_A_ROW, "max_per_day": 1_000},
        )
        for name, silence in SILENCES.items()
    ]
    models = {agent.id: model_of() for agent in agents}
    async with stage.world(*agents, models=models) as world:
        threads = [
            (await new_thread(world, user=f"{name}-{n}", agent=name), name)
            for name in SILENCES
            for n in range(6)
        ]
        written: dict[str, list[datetime]] = {thread: [] for thread, _ in threads}
        plans = [
            (START + timedelta(seconds=chance.randrange(3 * 86_400), milliseconds=7), thread)
            for thread, _ in threads
            for _ in range(4)
        ]
        for at, thread in sorted(plans):
            await world.pass_time(at - world.clock.now())
            await world.say(thread, "Where is Oslo?")
            written[thread].append(at)
        await world.pass_time(END - world.clock.now())
        sent = {thread: await sent_at(world, thread) for thread, _ in threads}
    due = {thread: list(baseline(written[thread], SILENCES[name])) for thread, name in threads}
    assert sent == due
    assert sum(map(len, due.values())) > 150


def touchy(messages: list[BaseMessage]) -> str:
    """A model that comments on machinery wherever it sees some, as models do with markers."""
    seen = " ".join(f"{message.text} {message.additional_kwargs or ''}" for message in messages)
    if any(word in seen for word in ("AUTONOMOUS", "synthetic", "batch", *TriggerType)):
        return "I see you mentioned an incomplete message."
    return demo_reply(messages)


async def test_no_follow_up_of_any_kind_comments_on_what_made_it(sqlite_stage: Stage) -> None:
    """Each trigger after each conversation of the naturalness eval: keyword detection finds
    nothing in any of the replies of a model that would comment on a marker or on metadata.
    """
    agent = eager_agent(decider="none", policy={"max_per_day": 1_000})
    models = {"guide": ScriptedChatModel(script=touchy)}
    replies: list[str] = []
    async with sqlite_stage.world(agent, models=models) as world:
        for name, talk in CONVERSATIONS.items():
            for trigger in TriggerType:
                thread = await new_thread(world, user=f"{name} {trigger.value}")
                said: list[BaseMessage] = [
                    HumanMessage(text) if number % 2 == 0 else AIMessage(text)
                    for number, text in enumerate(talk)
                ]
                for message in said:
                    message.id = f"{thread}-{len(message.text)}"
                messages = stamp(said, world.system.deps.ids)
                await world.journal.messages.import_messages(thread, messages)
                await arm(world, thread, world.clock.now() + PATIENCE, trigger)
                await world.pass_time(PATIENCE)
                replies += (await world.heard(thread))[len(talk) :]
    assert len(replies) == len(CONVERSATIONS) * len(TriggerType)
    assert {reply: found for reply in replies if (found := find_machinery(reply))} == {}

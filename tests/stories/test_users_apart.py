"""Stories of users who talk with the same agents: what one of them told is told to nobody else."""

import pytest

from segue.simulate.world import Stage, plain_agent
from tests.agent.meanings import Meanings
from tests.stories.scenes import PATIENCE, eager_agent, model_of, new_thread, sent_at

pytestmark = pytest.mark.anyio

ASKED = "What is my dog called?"
DOGS = {"ann": "The dog is called Canary.", "bob": "The dog is called Rex.", "cleo": None}


@pytest.mark.parametrize("found_by", ["words", "meaning"])
async def test_a_model_is_told_what_its_own_user_said_and_nothing_else(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, found_by: str
) -> None:
    """In a reply and in a follow-up, however memories are found; another agent knows none."""
    everything_alike = Meanings(**{"": "a dog"}) if found_by == "meaning" else None
    monkeypatch.setattr("segue.compose._embedder", lambda _: everything_alike)
    autonomy = eager_agent(policy={"max_consecutive": 1}).autonomy
    agents = [
        plain_agent(name, memory={"enabled": True}).model_copy(update={"autonomy": autonomy})
        for name in ("guide", "coach")
    ]
    models = {"guide": model_of(), "coach": model_of()}
    question = ASKED if found_by == "words" else "Who barks?"
    async with stage.world(*agents, models=models) as world:
        book = world.system.books["guide"]
        for user, dog in DOGS.items():
            if dog:
                await book.remember("guide", user, dog)
        for user, dog in DOGS.items():
            for name, model in models.items():
                before = len(model.seen)
                thread = await new_thread(world, user, name)
                await world.say(thread, question)
                await world.pass_time(PATIENCE)
                assert len(await sent_at(world, thread)) == 1
                told = [
                    {each for each in DOGS.values() if each and each in str(request)}
                    for request in model.seen[before:]
                ]
                assert told == [{dog} if dog and name == "guide" else set()] * 2

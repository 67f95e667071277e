"""Follow-ups as a user lives them: natural, on topic, and without a word about machinery."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from segue import TRIGGER_PROMPTS, TriggerType, is_synthetic
from segue.agent.checkpoints.store import SqliteCheckpoints
from segue.agent.models import load_model
from segue.agent.scripted import ScriptedChatModel
from segue.core.speech.guard import find_machinery
from segue.journal.sqlite import SqliteJournal
from segue.simulate.world import Stage
from segue.testing.providers import request_problems
from tests.agent.session import Session, streamed
from tests.stories.scenes import eager_agent

pytestmark = pytest.mark.anyio


@pytest.fixture
def model() -> ScriptedChatModel:
    return ScriptedChatModel(script=load_model("scripted", {}).script)  # type: ignore[attr-defined]  # the demo's


@pytest.fixture
async def session(tmp_path: Path, model: ScriptedChatModel) -> AsyncIterator[Session]:
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.open()
    checkpoints = await SqliteCheckpoints(tmp_path / "runs.db").open()
    yield await Session.begin(journal, checkpoints, model)
    await checkpoints.close()
    await journal.close()


PIZZA = ("We want pizza on Friday.", "Two of us like mushrooms, Sam wants pepperoni.")


@pytest.mark.parametrize("trigger", TriggerType)
async def test_each_trigger_ends_in_a_natural_reply(session: Session, trigger: TriggerType) -> None:
    """After a talk about pizza the agent speaks first, on topic, and shows nothing of the timer."""
    for line in PIZZA:
        await session.say(line)
    reply = streamed(await session.nudge(trigger, reason="idle for 30 s"))
    assert reply
    assert find_machinery(reply) is None
    shown = await session.history()
    assert shown[-1] == reply
    assert TRIGGER_PROMPTS[trigger] not in shown
    batch = await session.last_batch()
    assert batch.is_complete
    assert [is_synthetic(m) for m in batch.messages] == [True, False]
    assert batch.messages[0].additional_kwargs["trigger_type"] == trigger
    assert batch.messages[0].text == TRIGGER_PROMPTS[trigger]


async def test_several_follow_ups_in_a_row_do_not_confuse(
    session: Session, model: ScriptedChatModel
) -> None:
    """Each is answered naturally, every request is one that all providers take, and a later
    question is answered as if nothing had happened.
    """
    await session.say(PIZZA[0])
    for trigger in TriggerType:
        reply = streamed(await session.nudge(trigger))
        assert reply
        assert find_machinery(reply) is None
    await session.say("What did we want to eat?")
    assert [request_problems(request) for request in model.seen] == [[]] * 6
    shown = await session.history()
    assert len(shown) == 8
    assert not set(shown) & set(TRIGGER_PROMPTS.values())


async def test_a_user_who_types_a_triggers_words_sees_them(session: Session) -> None:
    """Only the mark decides what is shown; the same words from a person are a person's."""
    words = TRIGGER_PROMPTS[TriggerType.CHECK_IN]
    await session.say(words)
    await session.nudge()
    assert (await session.history()).count(words) == 1


async def test_the_scripted_model_never_quotes_an_owners_prompt(stage: Stage) -> None:
    """Not that of this follow-up, and not one of before that the settings no longer have."""
    old, new = "Ask warmly about OLDMARKER biscuits.", "Ask about the NEWMARKER guitars."
    for prompt in (old, new):
        prompts = {trigger.value: prompt for trigger in TriggerType}
        async with stage.world(eager_agent(prompts=prompts)) as world:
            await world.segue.create_thread("ann", thread_id="talk")
            for text in ("I want to learn the guitar.", "ok"):
                await world.say("talk", text)
                await world.pass_time(hours=6)
            heard = await world.heard("talk")
            turns = await world.journal.turns.list_of("talk")
    assert sum(turn.shown_at is not None for turn in turns) >= 4
    assert "MARKER" not in repr(heard)
    assert "biscuits" not in repr(heard)

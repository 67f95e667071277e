"""A follow-up that is machinery is not shown, and the record says so."""

import pytest

from segue.simulate.world import Stage
from tests.stories.scenes import eager_agent, model_of

pytestmark = pytest.mark.anyio

ANSWER = "You hold it on your knee. Shall we begin with a song?"


async def told(stage: Stage, follow_up: str) -> tuple[list[str], list[str], list[str]]:
    """What the user saw and heard after this follow-up, and what the record says of it."""
    model = model_of(ANSWER, follow_up, then="Are you there?")
    agent = eager_agent("ada", policy={"max_consecutive": 1})
    async with stage.world(agent, models={"ada": model}) as world:
        await world.segue.create_thread("sam", thread_id="one")
        await world.say("one", "How do I hold a guitar?")
        await world.pass_time(days=1)
        shown = (await world.heard("one"))[2:]
        reasons = [str(reason) for reason in await world.segue.why("one")]
        states = [turn.state.value for turn in await world.journal.turns.list_of("one")]
    return shown, reasons, states


@pytest.mark.parametrize(
    "follow_up",
    [
        "NO_REPLY",
        "[SILENT]",
        "I see you sent an incomplete message. Could you finish it?",
        "The user hasn't responded, so I should check in. How is the guitar?",
        "*waits patiently*",
        "Hi [Name], how is the guitar?",
    ],
)
async def test_machinery_is_not_shown(stage: Stage, follow_up: str) -> None:
    """It counts as silence; its words are for operators."""
    shown, reasons, states = await told(stage, follow_up)
    assert shown == []
    assert any("withheld" in reason for reason in reasons)
    assert follow_up not in str(reasons)
    assert states == ["void", "done"]


@pytest.mark.parametrize("follow_up", ["How is the guitar?", "Well? " * 200, ""])
async def test_talk_is_shown_whole(stage: Stage, follow_up: str) -> None:
    """However short or long it is; what is held back at first is not lost."""
    shown, reasons, _ = await told(stage, follow_up)
    assert shown == ([follow_up] if follow_up else [])
    assert not any("withheld" in reason for reason in reasons)

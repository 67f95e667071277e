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


async def test_each_cause_is_a_warning_once(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever builds a graph learns why its follow-ups are never heard, without a flood."""
    model = model_of(ANSWER, "check_in: still there?", ANSWER, "check_in again?", then="NO_REPLY")
    agent = eager_agent("ada", policy={"max_consecutive": 1})
    with caplog.at_level("INFO"):
        async with sqlite_stage.world(agent, models={"ada": model}) as world:
            await world.segue.create_thread("sam", thread_id="one")
            for _ in range(2):
                await world.say("one", "How do I hold a guitar?")
                await world.pass_time(days=1)
    found = [line for line in caplog.records if "was withheld" in line.getMessage()]
    assert [line.levelname for line in found] == ["WARNING", "INFO"]
    assert "(trigger name)" in found[0].getMessage()

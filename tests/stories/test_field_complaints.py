"""What users of other systems complain about, as stories that end well here.

Reminders have theirs in `test_reminders.py`, leaks in `test_leak_canary.py` and `test_guard.py`.
"""

from datetime import timedelta

import pytest

from segue.journal.records import TimerState
from segue.simulate.world import Stage
from tests.stories.scenes import PATIENCE, eager_agent, model_of, slowly

pytestmark = pytest.mark.anyio

ASKS = "Which day suits you?"


async def test_switching_follow_ups_on_writes_to_no_old_conversation(stage: Stage) -> None:
    """A support bot wrote to all resolved conversations on the day that it got follow-ups."""
    async with stage.world(
        eager_agent("ada", enabled=False), models={"ada": model_of(then=ASKS)}
    ) as w:
        for user in ("ann", "bob", "sam"):
            await w.segue.create_thread(user, thread_id=user)
            await w.say(user, "I want to learn the guitar.")
    async with stage.world(eager_agent("ada"), models={"ada": model_of(then=ASKS)}) as world:
        await world.pass_time(days=10)
        assert [len(await world.heard(user)) for user in ("ann", "bob", "sam")] == [2, 2, 2]
        await world.say("ann", "And the piano.")
        await world.pass_time(days=1)
        assert len(await world.heard("ann")) > 4
        assert len(await world.heard("bob")) == 2


async def test_silence_is_dated_from_our_reply(stage: Stage) -> None:
    """A model that takes ten minutes leaves the user as much time as one that takes none."""
    slow = slowly(stage.clock, timedelta(minutes=10), ASKS)
    async with stage.world(eager_agent("ada"), models={"ada": model_of(slow, then="Well?")}) as w:
        await w.segue.create_thread("sam", thread_id="one")
        await w.segue.send("one", "I want to learn the guitar.")
        await w.pass_time(minutes=10)
        [planned] = await w.segue.list_follow_ups("one")
        assert planned.due_at == w.clock.now() + PATIENCE
        await w.pass_time(PATIENCE - timedelta(seconds=1))
        assert len(await w.heard("one")) == 2
        await w.pass_time(seconds=2)
        assert len(await w.heard("one")) == 3


async def test_no_countdown_runs_to_a_follow_up_that_is_dropped(stage: Stage) -> None:
    """The step that stores the user's message also says that the follow-up is off."""
    async with stage.world(eager_agent("ada"), models={"ada": model_of(then=ASKS)}) as world:
        await world.segue.create_thread("sam", thread_id="one")
        await world.say("one", "I want to learn the guitar.")
        [planned] = await world.segue.list_follow_ups("one")
        await world.segue.send("one", "Tuesday.")
        listed = {t.id: t for t in await world.segue.list_follow_ups("one")}
        dropped = listed[planned.id]
        assert (dropped.state, dropped.state_reason) == (TimerState.CANCELLED, "The user wrote.")

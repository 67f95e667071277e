"""What operators see over all users; that others do not is `test_isolation`'s."""

from datetime import timedelta

import pytest

from segue.simulate.world import Stage
from tests.runtime.scenes import always
from tests.server.clients import site_of

pytestmark = pytest.mark.anyio


async def test_an_operator_lists_threads_and_timers_of_all_users(stage: Stage) -> None:
    """Threads newest first, of one user if named; what is to come soonest first; both bounded."""
    async with (
        stage.world(models={"guide": always("Anything else?")}) as world,
        site_of(world.segue) as site,
    ):
        ids = []
        for user in ("ann", "bob"):
            thread = await world.segue.create_thread(user)
            await world.say(thread.id, "Where are the maps?")
            await world.pass_time(timedelta(minutes=1))
            ids.append(thread.id)
        threads = await site.list("/api/admin/threads")
        assert [(t["id"], t["user_id"]) for t in threads] == [(ids[1], "bob"), (ids[0], "ann")]
        [anns] = await site.list("/api/admin/threads", params={"user": "ann"})
        assert anns["id"] == ids[0]
        timers = await site.list("/api/admin/timers")
        assert [timer["thread_id"] for timer in timers] == ids
        assert [timer["state"] for timer in timers] == ["pending", "pending"]
        [soonest] = await site.list("/api/admin/timers", params={"limit": 1})
        assert soonest == timers[0]
        [of_thread] = await site.list(f"/api/admin/threads/{ids[0]}/timers")
        assert of_thread == timers[0] | {"expected": None}


async def test_an_operator_reads_what_a_user_sees(stage: Stage) -> None:
    """And why the agent wrote, in any thread; of one that is not there it is said."""
    async with (
        stage.world(models={"guide": always("The third floor.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await world.segue.create_thread("ann")
        await world.say(thread.id, "Where are the maps?")
        said = await site.list(f"/api/admin/threads/{thread.id}/history")
        assert [(m["name"], m["text"]) for m in said] == [
            ("ann", "Where are the maps?"),
            ("guide", "The third floor."),
        ]
        reasons = await site.list(f"/api/admin/threads/{thread.id}/why")
        assert reasons[0]["what"] == "planning a follow-up"
        for view in ("history", "why"):
            missing = await site.http.get(f"/api/admin/threads/nowhere/{view}")
            assert missing.status_code == 404

"""What a user says about follow-ups in a message, as the server shows it."""

import pytest

from segue.simulate.world import Stage
from tests.server.clients import site_of
from tests.stories.scenes import eager_agent

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("said", "preference", "reason"),
    [
        (
            "Please stop writing to me.",
            {"opted_out": True},
            "The user asked not to be written to any more.",
        ),
        (
            "Let's talk tomorrow.",
            {"snoozed_until": "2027-01-16T09:00:00Z"},
            "The user asked to be written to later.",
        ),
    ],
)
async def test_a_wish_in_a_message_is_shown_to_the_user(
    stage: Stage, said: str, preference: dict[str, object], reason: str
) -> None:
    """As a preference that can be undone, and in `why`."""
    async with stage.world(eager_agent()) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        await site.post(f"/api/threads/{thread}/messages", {"content": said})
        await world.clock.settle()
        assert (await site.get("/api/me"))["preferences"] == preference
        reasons = await site.list(f"/api/threads/{thread}/why")
        assert reason in [each["why"] for each in reasons]
        undone = await site.http.patch("/api/me", json=dict.fromkeys(preference))
        assert undone.json()["preferences"] == {}

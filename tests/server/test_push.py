"""Notifications over HTTP: a browser subscribes, is notified, and leaves."""

from datetime import timedelta

import pytest

from segue.simulate.world import Stage
from tests.runtime.browser import Subscribed
from tests.runtime.receiver import Receiver
from tests.server.clients import as_user, site_of
from tests.stories.scenes import PATIENCE, eager_agent

pytestmark = pytest.mark.anyio
PLACE = "/api/push/subscriptions"


async def test_a_browser_that_subscribes_is_notified_until_it_leaves(
    stage: Stage, receiver: Receiver
) -> None:
    """With the body that `PushSubscription.toJSON()` gives, and the key of the server."""
    browser = Subscribed(receiver)
    agent = eager_agent(policy={"max_consecutive": 1})
    async with (
        stage.world(agent, push={"services": [browser.service]}) as world,
        site_of(world.segue, None, **as_user("ann")) as site,
    ):
        key = (await site.get("/api/push/key"))["key"]
        assert key == await world.segue.notifier.public_key()
        first = await site.post(PLACE, browser.body)
        assert await site.post(PLACE, browser.body) == first
        assert first.keys() == {"id", "created_at"}
        thread = await site.new_thread()
        for number in (1, 1):
            await site.post(f"/api/threads/{thread}/messages", {"content": "Where is Oslo?"})
            await world.clock.settle()
            await world.pass_time(PATIENCE + timedelta(seconds=5))
            assert len(receiver.got) == number
            shown = browser.read(receiver.got[0][2])
            assert shown["thread"] == thread
            left = await site.http.request("DELETE", PLACE, json={"endpoint": browser.endpoint})
            assert (left.status_code, left.content) == (204, b"")


async def test_a_browser_is_its_users_alone(stage: Stage, receiver: Receiver) -> None:
    """Another user can neither end it nor learn of it."""
    browser = Subscribed(receiver)
    async with (
        stage.world(push={"services": [browser.service]}) as world,
        site_of(world.segue) as site,
    ):
        await site.post(PLACE, browser.body, headers=as_user("ann"))
        body = {"endpoint": browser.endpoint}
        left = await site.http.request("DELETE", PLACE, json=body, headers=as_user("bob"))
        assert left.status_code == 204
        assert len(await world.journal.push.list_of("ann")) == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"endpoint": "http://127.0.0.1:9/"}, "push.services"),
        ({"endpoint": "x" * 1_001}, "endpoint"),
        ({"keys": {"p256dh": "AAAA", "auth": "AAAA"}}, "keys.p256dh"),
        ({"keys": {"auth": "AAAA"}}, "keys.p256dh"),
        ({"more": 1}, "more"),
    ],
)
async def test_what_is_not_a_subscription_is_refused(
    sqlite_stage: Stage, receiver: Receiver, change: dict[str, object], named: str
) -> None:
    """With the name of the field, and nothing is stored."""
    browser = Subscribed(receiver)
    async with (
        sqlite_stage.world(push={"services": [browser.service]}) as world,
        site_of(world.segue, None, **as_user("ann")) as site,
    ):
        refused = await site.http.post(PLACE, json={**browser.body, **change})
        assert refused.status_code == 422
        assert named in refused.text
        assert await world.journal.push.list_of("ann") == []


async def test_a_server_without_push_services_says_so(sqlite_stage: Stage) -> None:
    """The page then offers no notifications."""
    async with (
        sqlite_stage.world(push={"services": []}) as world,
        site_of(world.segue) as site,
    ):
        refused = await site.http.get("/api/push/key")
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")

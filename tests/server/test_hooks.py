"""Requests of programs over HTTP: follow-ups, and events that other services report."""

import base64
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from segue.errors import UsageError
from segue.runtime.clock import SystemClock
from segue.server.auth import USER_HEADER, new_key
from segue.server.settings import HookConfig, ServerSettings
from segue.simulate.world import Stage, World
from segue.webhooks import verify_standard
from tests.server.clients import Site, site_of
from tests.stories.scenes import eager_agent, model_of

pytestmark = pytest.mark.anyio

KEY = b"0123456789abcdef01234567"
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
SHOP = ServerSettings(
    rate_per_minute=None, hooks={"shop": HookConfig.parse({"secret": SECRET}, "shop")}
)
EVENT = {"type": "parcel.shipped", "user_id": "sam", "data": {"parcel": 7}, "timestamp": "now"}
AGENT = eager_agent("ada", decider="none")


def signed(body: bytes, now: float, event: str = "msg_1", key: bytes = KEY) -> dict[str, str]:
    """The headers of a Standard Webhook, made by hand from its specification."""
    content = f"{event}.{int(now)}.".encode() + body
    digest = base64.b64encode(hmac.digest(key, content, "sha256")).decode()
    return {
        "webhook-id": event,
        "webhook-timestamp": str(int(now)),
        "webhook-signature": f"v1,{base64.b64encode(b'another').decode()} v1,{digest}",
    }


async def report(site: Site, world: World, body: Any = EVENT, **how: Any) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {
        **signed(content, world.clock.now().timestamp(), **how),
        "content-type": "application/json",
    }
    answer = await site.http.post("/api/hooks/shop", content=content, headers=headers)
    return answer.status_code, answer.json()


def test_a_known_signature_is_accepted() -> None:
    """The example of the specification, so that stock senders are understood."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    then = datetime.fromtimestamp(1614265330, UTC)
    assert verify_standard(secret, headers, body, now=then)
    assert not verify_standard(secret, headers, body + b" ", now=then)
    assert not verify_standard(secret, headers, body, now=SystemClock().now())
    assert not verify_standard("", headers, body, now=then)


async def test_a_signed_event_is_told_once(stage: Stage) -> None:
    """A service that sends it again, as services do, changes nothing."""
    models = {"ada": model_of("Parcel 7 is on its way.")}
    async with stage.world(AGENT, models=models) as world, site_of(world.segue, SHOP) as site:
        first = await report(site, world)
        assert (first[0], first[1]["trigger"], first[1]["state"]) == (202, "event", "pending")
        assert await report(site, world) == first
        await world.pass_time(hours=1)
        assert (await report(site, world))[1]["state"] == "fired"
        await world.pass_time(hours=1)
        [thread] = await world.segue.list_threads("sam")
        assert await world.heard(thread.id) == ["Parcel 7 is on its way."]


async def test_a_sender_learns_at_once_that_the_user_wants_nothing(stage: Stage) -> None:
    """Opted out or muted: the answer says suppressed and why, nothing waits, and `why` has it."""
    async with stage.world(AGENT) as world, site_of(world.segue, SHOP) as site:
        thread = await world.segue.create_thread("sam", thread_id="one")
        for n, wish in enumerate(("opted_out", "muted")):
            await world.segue.set_user_preferences("sam", **{wish: True})
            code, told = await report(site, world, event=f"msg_{n}")
            own = {USER_HEADER: "sam"}
            asked = await site.post("/api/threads/one/follow-ups", {"key": f"{n}"}, headers=own)
            await world.segue.set_user_preferences("sam", **{wish: None})
            assert (code, told["state"], asked["state"]) == (202, "suppressed", "suppressed")
            reasons = [reason.why for reason in await world.segue.why("one")]
            for answer in (told, asked):
                assert answer["reason"] in reasons
            again = await report(site, world, event=f"msg_{n}")
            assert again == (202, told)
        await world.pass_time(hours=1)
        assert await world.heard("one") == []
        [row, other] = (await world.segue.stats()).outcomes
        assert dict(row.suppressed_by) == dict(other.suppressed_by) == {"opted_out": 1, "muted": 1}
        assert (await world.segue.follow_up(thread)).state.value == "pending"


async def test_a_hook_names_its_agent_and_trigger(stage: Stage) -> None:
    """Who tells the event, and what the model is asked, are the operator's choice."""
    bob = eager_agent("bob", decider="none", triggers={"parcel": {"prompt": "Tell me, in rhyme."}})
    hook = HookConfig.parse({"secret": SECRET, "agent": "bob", "trigger": "parcel"}, "shop")
    settings = ServerSettings(rate_per_minute=None, hooks={"shop": hook})
    async with stage.world(AGENT, bob) as world, site_of(world.segue, settings) as site:
        assert (await report(site, world))[1]["trigger"] == "parcel"
        await world.pass_time(minutes=1)
        [thread] = await world.segue.list_threads("sam")
        [batch] = await world.journal.messages.tail(thread.id, max_tokens=1_000)
        assert thread.agent_id == "bob"
        assert batch.messages[0].text.startswith("Tell me, in rhyme.")


async def test_what_is_not_signed_is_refused(stage: Stage) -> None:
    """By the same words for an unknown source, another key and another body; an old request is told
    that it is old, whatever its signature.
    """
    async with stage.world(AGENT) as world, site_of(world.segue, SHOP) as site:
        now, body = world.clock.now().timestamp(), json.dumps(EVENT).encode()
        good = signed(body, now)
        cases: list[tuple[str, bytes, Mapping[str, str]]] = [
            ("other", body, good),
            ("shop", body, signed(body, now, key=b"x" * 24)),
            ("shop", body + b" ", good),
            ("shop", body, signed(body, now - 301)),
            ("shop", body, {}),
            ("shop", body, {**good, "webhook-id": "msg_2"}),
            ("shop", body, {**good, "webhook-signature": "v2,zzz"}),
        ]
        details, old = set[str](), set[str]()
        for source, content, headers in cases:
            refused = await site.http.post(f"/api/hooks/{source}", content=content, headers=headers)
            assert refused.status_code == 401
            is_old = headers.get("webhook-timestamp") != good["webhook-timestamp"]
            (old if is_old else details).add(refused.json()["detail"])
        assert (len(details), len(old)) == (1, 1)
        assert "five minutes" in old.pop()
        assert await world.segue.list_threads("sam") == []


async def test_a_signed_event_that_cannot_be_right_gets_a_sentence(stage: Stage) -> None:
    """No traceback, and nothing is planned."""
    async with stage.world(AGENT) as world, site_of(world.segue, SHOP) as site:
        cases: list[tuple[int, Any]] = [
            (422, b"{"),
            (400, b"\xff"),
            (422, []),
            (422, {"type": "x"}),
            (422, {"type": "x", "user_id": "sam", "thread_id": "one"}),
            (422, {"user_id": "sam"}),
            (422, {"type": "x", "user_id": "sam", "data": "y" * 30_000}),
            (422, {"type": "two\nlines", "user_id": "sam"}),
            (404, {"type": "x", "thread_id": "nowhere"}),
            (413, {"type": "x", "data": "y" * 200_000}),
            (413, {"type": "x", "data": [0] * 12_000}),
        ]
        for status, body in cases:
            found, problem = await report(site, world, body)
            assert (found, bool(problem["detail"])) == (status, True), body
        assert await world.segue.list_threads("sam") == []


async def test_a_program_requests_a_follow_up(stage: Stage) -> None:
    """Also in a conversation without a message; the key makes it once."""
    models = {"ada": model_of("Welcome!")}
    async with stage.world(AGENT, models=models) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        path, body = f"/api/threads/{thread}/follow-ups", {"after": "20m", "key": "hi"}
        made = await site.post(path, {**body, "prompt": "Welcome me.", "data": {"name": "Sam"}})
        assert await site.post(path, body) == {**made, "is_new": False}
        assert "Welcome me" not in json.dumps(await site.get(path))
        await world.pass_time(minutes=21)
        assert await world.heard(thread) == ["Welcome!"]
        past = {"at": "2001-01-01T00:00:00Z"}
        for wrong in ({"after": "soon"}, {"trigger": "birthday"}, past, {"key": ""}):
            refused = await site.http.post(path, json=wrong)
            assert (refused.status_code, bool(refused.json()["detail"])) == (422, True)
        for text in ('{"prompt": "half \\ud83d"}', '{"data": ["\\ud83d"]}', '{"key": "\\ud83d"}'):
            headers = {"content-type": "application/json"}
            refused = await site.http.post(path, content=text, headers=headers)
            assert refused.status_code == 422, text


async def test_no_user_sets_a_prompt(stage: Stage) -> None:
    """It is an instruction that no person reads: it takes a program's key, not a user's own."""
    async with stage.world(AGENT) as world:
        keys = {}
        for name, user in (("sam", "sam"), ("shop", None)):
            key, keys[name] = new_key(name, user, world.clock.now(), is_operator=False)
            await world.journal.keys.add(key)
        thread = await world.segue.create_thread("sam")
        path = f"/api/threads/{thread.id}/follow-ups"
        async with site_of(world.segue) as site:
            for name, status in (("sam", 403), ("shop", 201)):
                headers = {"Authorization": f"Bearer {keys[name]}", USER_HEADER: "sam"}
                answer = await site.http.post(path, json={"prompt": "Hi"}, headers=headers)
                assert answer.status_code == status


def test_a_weak_secret_is_refused() -> None:
    """A short one could be guessed, and one that is not base64 would never match."""
    for weak in ("", "whsec_", "whsec_c2hvcnQ=", "not base64 at all!!"):
        with pytest.raises(UsageError, match="secret"):
            HookConfig.parse({"secret": weak}, "hook")

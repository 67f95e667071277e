"""Notifications end to end: encrypted for a browser, sent to a real server, once or once more."""

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from segue.core.triggers import TRIGGER_PROMPTS
from segue.errors import NotFoundError, UsageError
from segue.journal.effects import Effect
from segue.journal.records import EffectState
from segue.simulate.world import Stage, World
from tests.runtime.browser import Subscribed
from tests.runtime.receiver import Receiver, status
from tests.runtime.scenes import lines, new_thread
from tests.runtime.test_effects import SILENCE, eager, never

pytestmark = pytest.mark.anyio

# After which a browser is notified of what is not read.
DELAY = timedelta(seconds=5)
FIRST = "Did you find a flat in Oslo?"


def world_of(
    stage: Stage, browser: Subscribed, *said: Any, **push: Any
) -> AbstractAsyncContextManager[World]:
    models = {"guide": lines(*(said or ("In Norway.", FIRST)))}
    chosen = {"services": [browser.service], **push}
    return stage.world(eager(None, name="Guide"), models=models, push=chosen)


async def subscribe(world: World, browser: Subscribed, user: str = "ann") -> None:
    notifier = world.segue.notifier
    await notifier.subscribe(user, browser.endpoint, browser.p256dh, browser.auth)


async def told(world: World, thread: str) -> list[str]:
    reasons = await world.segue.why(thread, limit=1_000)
    return [f"{r.outcome}: {r.why}" for r in reasons if "notification" in r.what]


async def speak_first(world: World) -> str:
    """A conversation in which the agent has just spoken first, unread."""
    thread = await new_thread(world.segue)
    await world.say(thread, "I am moving to Oslo.")
    await world.pass_time(SILENCE)
    return thread


async def pushes(world: World, thread: str) -> list[Effect]:
    return [each for each in await world.journal.effects.list_of(thread) if each.kind == "push"]


async def test_a_browser_gets_what_an_agent_writes_first(stage: Stage, receiver: Receiver) -> None:
    """Encrypted for it alone, signed by the server's key; the answer before it is not sent."""
    browser = Subscribed(receiver)
    async with world_of(stage, browser, contact="mailto:ops@example.org") as world:
        await subscribe(world, browser)
        thread = await speak_first(world)
        assert receiver.got == []  # an open page may still mark it as read
        await world.pass_time(DELAY)
        [(path, headers, body)] = receiver.got
        assert path == "/send/phone"
        last = (await world.segue.history(thread)).messages[-1]
        assert browser.read(body) == {
            "title": "Guide",
            "body": FIRST,
            "thread": thread,
            "position": str(last.additional_kwargs["position"]),
        }
        assert (headers["Content-Encoding"], headers["TTL"]) == ("aes128gcm", "86400")
        key = await world.segue.notifier.public_key()
        token, shown = headers["Authorization"].removeprefix("vapid t=").split(", k=")
        assert shown == key
        point = ec.EllipticCurvePublicKey.from_encoded_point(
            ec.SECP256R1(), jwt.utils.base64url_decode(key)
        )
        claims = jwt.decode(
            token, point, ["ES256"], audience=browser.service, options={"verify_exp": False}
        )
        assert claims["sub"] == "mailto:ops@example.org"
        assert (await told(world, thread))[0].startswith("delivered: 200 at ")
        [effect] = await pushes(world, thread)
        assert FIRST not in repr(effect.payload)


async def test_what_is_read_by_then_is_not_sent(stage: Stage, receiver: Receiver) -> None:
    """A page that is open marks it, and no other device rings."""
    browser = Subscribed(receiver)
    async with world_of(stage, browser) as world:
        await subscribe(world, browser)
        thread = await speak_first(world)
        last = (await world.segue.history(thread)).messages[-1].additional_kwargs["position"]
        await world.segue.mark_read(thread, last)
        await world.pass_time(DELAY)
        assert receiver.got == []
        assert await told(world, thread) == ["not sent: The user has read it."]


async def test_a_reminder_is_sent_to_every_browser_of_its_user(
    stage: Stage, receiver: Receiver
) -> None:
    """And to nobody else's; each can read its own alone."""
    mine = [Subscribed(receiver, name) for name in ("phone", "desk")]
    other = Subscribed(receiver, "stranger")
    async with world_of(stage, other, "Well noted.", "Time to call mum.") as world:
        for each in mine:
            await subscribe(world, each)
        await subscribe(world, other, "bob")
        thread = await new_thread(world.segue)
        await world.segue.remind(thread, "call mum", after="20m")
        await world.pass_time(minutes=21)
        got = {path.rpartition("/")[2]: body for path, _, body in receiver.got}
        assert {*got} == {"phone", "desk"}
        for each, name in zip(mine, ("phone", "desk"), strict=True):
            assert "call mum" in each.read(got[name])["body"]


async def test_no_trigger_and_no_long_text_is_sent(stage: Stage, receiver: Receiver) -> None:
    """The body is one line of at most 300 characters, and what the agent said, not why."""
    browser = Subscribed(receiver)
    long = "🙂\n" * 5_000
    async with world_of(stage, browser, "In Norway.", long) as world:
        await subscribe(world, browser)
        thread = await speak_first(world)
        await world.pass_time(DELAY)
        [(_, headers, body)] = receiver.got
        shown = browser.read(body)
        assert len(shown["body"]) <= 300
        assert "\n" not in shown["body"]
        assert len(body) <= 4_096
        assert shown.keys() == {"title", "body", "thread", "position"}
        hidden = [*TRIGGER_PROMPTS.values(), *TRIGGER_PROMPTS]
        assert not [text for text in hidden if text in f"{shown} {headers}"]
        assert (await told(world, thread))[0].startswith("delivered")


@pytest.mark.parametrize("code", [404, 410])
async def test_a_subscription_that_its_service_ended_is_removed(
    stage: Stage, receiver: Receiver, code: int
) -> None:
    """The next follow-up does not knock there again; it is no dead letter."""
    browser = Subscribed(receiver)
    receiver.answer = status(code)
    async with world_of(stage, browser) as world:
        await subscribe(world, browser)
        thread = await speak_first(world)
        await world.pass_time(DELAY)
        assert await world.journal.push.list_of("ann") == []
        assert await world.journal.effects.list_dead() == []
        assert (await told(world, thread))[0].startswith(f"not sent: {code} at ")
        await world.say(thread, "Not yet.")
        await world.pass_time(hours=1)
        assert len(receiver.got) == 1


async def test_a_service_that_fails_is_tried_again_and_given_up(
    stage: Stage, receiver: Receiver
) -> None:
    """Like a webhook: eight attempts, then an operator may revive it; a refusal is not repeated."""
    browser = Subscribed(receiver)
    receiver.answer = status(503)
    async with world_of(stage, browser) as world:
        await subscribe(world, browser)
        thread = await speak_first(world)
        await world.pass_time(days=1)
        [dead] = await world.journal.effects.list_dead()
        assert (dead.kind, dead.attempts, dead.error) == (
            *("push", 8),
            "The push service answered 503.",
        )
        assert browser.endpoint not in repr(dead)
        receiver.got.clear()
        receiver.answer = status(403)
        await world.segue.retry_effect(dead.id)
        await world.clock.settle()
        assert len(receiver.got) == 1
        assert (await told(world, thread))[0].startswith("not delivered: The push service answer")
        receiver.answer = status(201)
        await world.segue.retry_effect(dead.id)
        await world.clock.settle()
        assert (await told(world, thread))[0].startswith("delivered: 201 at ")


async def test_a_crash_after_the_request_sends_it_once_more(
    stage: Stage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never lost; and the browser shows one, since both have the same topic and position."""
    browser = Subscribed(receiver)
    async with world_of(stage, browser) as world:
        await subscribe(world, browser)
        monkeypatch.setattr(world.journal.effects, "complete", never)
        thread = await speak_first(world)
        passing = asyncio.create_task(world.pass_time(DELAY))
        await asyncio.to_thread(receiver.asked.wait)
    passing.cancel()
    async with world_of(stage, browser) as world:
        await world.pass_time(minutes=3)
        [effect] = await pushes(world, thread)
        assert (effect.state, effect.attempts) == (EffectState.DONE, 2)
    assert len(receiver.got) == 2
    assert len({headers["Topic"] for _, headers, _ in receiver.got}) == 1
    assert len({browser.read(body)["position"] for _, _, body in receiver.got}) == 1


async def test_all_processes_have_one_key(stage: Stage, receiver: Receiver) -> None:
    """It outlives them: browsers that subscribed with it can still be reached."""
    browser = Subscribed(receiver)
    async with world_of(stage, browser) as one, world_of(stage, browser) as other:
        notifiers = one.segue.notifier, other.segue.notifier
        keys = await asyncio.gather(*(each.public_key() for each in notifiers))
    async with world_of(stage, browser) as later:
        keys.append(await later.segue.notifier.public_key())
    assert len({*keys}) == 1


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://fcm.googleapis.com/x",
        "https://fcm.googleapis.com:8443/x",
        "https://fcm.googleapis.com@127.0.0.1/x",
        "https://user@fcm.googleapis.com/x",
        "https://127.0.0.1/x",
        "https://169.254.169.254/latest",
        "https://push.apple.com.example.org/x",
        "https://evil-push.apple.com/x",
        "https://push.apple.com/x",
        "https://127.0.0.1\\.push.apple.com/x",
        "https://127.0.0.1%2f.push.apple.com/x",
        "https://127.0.0.1%23.push.apple.com/x",
        "https://user%40.push.apple.com/x",
        "https://a b.push.apple.com/x",
        "https://.push.apple.com/x",
        "https://a..push.apple.com/x",
        "https://fcm.googleapis.com.example.org/x",
        "https://fcm.googleapis.com\\@127.0.0.1/x",
        "https://fcm.googleapis.com/é",
        f"https://fcm.googleapis.com/{'x' * 1_000}",
        "file:///etc/passwd",
        "//fcm.googleapis.com/x",
        "",
    ],
)
async def test_only_push_services_are_sent_to(
    sqlite_stage: Stage, receiver: Receiver, endpoint: str
) -> None:
    """A client cannot make the server send requests to its own network, or anywhere else."""
    browser = Subscribed(receiver)
    async with sqlite_stage.world() as world:
        with pytest.raises(UsageError, match=r"push\.services") as caught:
            await world.segue.notifier.subscribe("ann", endpoint, browser.p256dh, browser.auth)
        assert not endpoint or endpoint not in str(caught.value)
        assert await world.journal.push.list_of("ann") == []


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://fcm.googleapis.com/fcm/send/7",
        "https://web.push.apple.com/Q",
        "https://FCM.googleapis.com:443/",
    ],
)
async def test_the_services_of_browsers_are_known(
    sqlite_stage: Stage, receiver: Receiver, endpoint: str
) -> None:
    """Without a setting, and with the hosts below one."""
    browser = Subscribed(receiver)
    async with sqlite_stage.world() as world:
        await world.segue.notifier.subscribe("ann", endpoint, browser.p256dh, browser.auth)
        assert [each.endpoint for each in await world.journal.push.list_of("ann")] == [endpoint]


async def test_a_service_that_is_not_allowed_any_more_gets_nothing(
    stage: Stage, receiver: Receiver
) -> None:
    """The setting counts when a notification is sent, not only when a browser subscribes."""
    browser = Subscribed(receiver)
    async with world_of(stage, browser) as world:
        await subscribe(world, browser)
        thread = await speak_first(world)
    async with world_of(stage, browser, services=["https://push.example.org"]) as world:
        await world.pass_time(minutes=1)
        assert receiver.got == []
        assert "push.services" in (await told(world, thread))[0]


async def test_without_services_notifications_are_off(stage: Stage, receiver: Receiver) -> None:
    """No key is given out, and no browser is taken."""
    browser = Subscribed(receiver)
    async with world_of(stage, browser, services=[]) as world:
        with pytest.raises(NotFoundError, match=r"push\.services"):
            await world.segue.notifier.public_key()
        with pytest.raises(UsageError):
            await subscribe(world, browser)


async def test_a_user_has_at_most_twenty_browsers(stage: Stage, receiver: Receiver) -> None:
    """The newest ones stay; a browser that subscribes again is not one more."""
    browsers = [Subscribed(receiver, f"browser-{n}") for n in range(22)]
    async with world_of(stage, browsers[0]) as world:
        for each in [*browsers, browsers[-1]]:
            await subscribe(world, each)
        kept = [each.endpoint for each in await world.journal.push.list_of("ann")]
        assert kept == [each.endpoint for each in browsers[2:]]

"""Webhooks: signed requests to a real server, and what each of its answers means."""

import asyncio
import base64
import hmac
import json
import logging
import math
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.errors import BackendError, UsageError
from segue.runtime.delivery import DeliveryError, Webhooks, WebhookTarget, next_try
from segue.webhooks import sign, sign_standard, verify, verify_standard
from tests.runtime.receiver import SECRET, Answer, Handler, Receiver, status

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STAMP = int(NOW.timestamp())
BODY = b'{"text": "Hello"}'
TOLERANCE = timedelta(minutes=5)
HOUR = timedelta(hours=1)


def silence(handler: Handler) -> None:
    handler.receiver.over.wait()


def hanging_up(handler: Handler) -> None:
    handler.close_connection = True


def head_that_never_ends(handler: Handler) -> None:
    handler.close_connection = True
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not handler.receiver.over.wait(0.02):
        handler.wfile.write(b"X-More: x\r\n")


def body_that_never_ends(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(1 << 40))
    handler.end_headers()
    handler.close_connection = True
    while not handler.receiver.over.is_set():
        handler.wfile.write(b"x" * 65_536)


@pytest.fixture
async def client(receiver: Receiver) -> AsyncIterator[httpx.AsyncClient]:
    del receiver  # it is left after the client, whose connections it waits for
    async with httpx.AsyncClient(trust_env=False) as opened:
        yield opened


@pytest.fixture
def webhooks(client: httpx.AsyncClient) -> Webhooks:
    return Webhooks(client, lambda: NOW)


def hasty(client: httpx.AsyncClient) -> Webhooks:
    return Webhooks(client, lambda: NOW, time_limit=timedelta(milliseconds=200))


async def failure(webhooks: Webhooks, target: WebhookTarget) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        await webhooks.deliver(target, "91", {"text": "Hello"})
    return caught.value


async def test_a_delivery_can_be_checked_by_its_receiver(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    """What arrives is the payload as JSON, with its id, and a signature that verifies."""
    payload = {"text": "Grüße 漢", "n": 1, "odd": math.nan, "at": NOW}
    evidence = await webhooks.deliver(receiver.target, "91", payload)
    assert evidence == "200 at 2026-03-01T12:00:00+00:00"
    [(path, headers, body)] = receiver.got
    assert path == "/hooks/segue?key=hush"
    assert json.loads(body) == {"text": "Grüße 漢", "n": 1, "odd": None, "at": repr(NOW)}
    assert headers["Content-Type"] == "application/json"
    assert headers["Segue-Event-Id"] == "91"
    assert headers["User-Agent"].startswith("Segue/")
    signature = headers["Segue-Signature"]
    assert verify(SECRET, signature, body, now=NOW, tolerance=TOLERANCE)
    assert not verify(SECRET, signature, body + b" ", now=NOW, tolerance=TOLERANCE)


async def test_a_delivery_can_be_checked_by_a_stock_library(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    """It is signed by Standard Webhooks, too, with what the secret encodes, or with its text."""
    encoded = "whsec_" + base64.b64encode(SECRET.encode()).decode()
    for secret in (encoded, SECRET):
        await webhooks.deliver(WebhookTarget(receiver.target.url, secret), "91", {"n": 1})
    for _, headers, body in receiver.got:
        assert verify_standard(encoded, dict(headers), body, now=NOW)
        assert not verify_standard(encoded, dict(headers), body + b" ", now=NOW)
        assert headers["webhook-id"] == "91"


def test_a_standard_signature_is_that_of_the_specification() -> None:
    """Its own example, so that stock receivers understand us."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    assert sign_standard(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_that_is_not_what_it_says_is_refused() -> None:
    """A `whsec_` without base64 would be a key that no library can read."""
    with pytest.raises(UsageError, match="not base64"):
        WebhookTarget("https://example.org/hook", "whsec_not base64 at all")


async def test_a_retry_has_the_same_id_and_a_new_signature(
    client: httpx.AsyncClient, receiver: Receiver
) -> None:
    """A receiver knows a repetition by its id, and does not take it for a replay."""
    moments = iter([NOW, NOW, NOW + HOUR, NOW + HOUR])
    webhooks = Webhooks(client, lambda: next(moments))
    receiver.answer = status(503)
    await failure(webhooks, receiver.target)
    receiver.answer = status(204)
    assert (await webhooks.deliver(receiver.target, "91", {})).startswith("204 at ")
    first, second = [headers for _, headers, _ in receiver.got]
    assert first["Segue-Event-Id"] == second["Segue-Event-Id"] == "91"
    assert verify(SECRET, second["Segue-Signature"], b"{}", now=NOW + HOUR)


async def test_connections_are_used_again(webhooks: Webhooks, receiver: Receiver) -> None:
    """Short answers are read to their end, so that deliveries in a row need one handshake."""
    receiver.answer = status(200, b"thank you")
    for _ in range(3):
        await webhooks.deliver(receiver.target, "91", {})
    assert receiver.connections == 1


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504, 599])
async def test_a_passing_failure_is_tried_again(
    code: int, webhooks: Webhooks, receiver: Receiver
) -> None:
    """Too busy, too early and broken may be over later."""
    receiver.answer = status(code)
    error = await failure(webhooks, receiver.target)
    assert error.retryable
    assert error.retry_after is None
    assert f"answered {code}" in str(error)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 410, 413, 422, 451])
async def test_a_refusal_is_final(code: int, webhooks: Webhooks, receiver: Receiver) -> None:
    """The same request would be refused again."""
    receiver.answer = status(code, Retry_After="5")
    error = await failure(webhooks, receiver.target)
    assert not error.retryable
    assert error.retry_after is None
    assert f"answered {code}" in str(error)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(code: int, receiver: Receiver) -> None:
    """Signed data goes nowhere but to its target, even if the client would follow."""
    receiver.answer = status(code, Location=receiver.target.url)
    async with httpx.AsyncClient(follow_redirects=True, trust_env=False) as client:
        error = await failure(Webhooks(client, lambda: NOW), receiver.target)
    assert not error.retryable
    assert "redirect" in str(error)
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("120", timedelta(minutes=2)),
        (" 7 ", timedelta(seconds=7)),
        ("0", timedelta()),
        ("86400", HOUR),
        ("Sun, 01 Mar 2026 12:10:00 GMT", timedelta(minutes=10)),
        ("Sun, 01 Mar 2026 12:10:00 -0000", timedelta(minutes=10)),
        ("Sun, 01 Mar 2026 11:00:00 GMT", timedelta()),
        ("Mon, 01 Mar 2027 12:00:00 GMT", HOUR),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("9" * 400, None),
    ],
)
async def test_a_receiver_may_ask_for_a_pause(
    said: str, expected: timedelta | None, webhooks: Webhooks, receiver: Receiver
) -> None:
    """In seconds or until a date, up to an hour; nonsense is no request."""
    receiver.answer = status(429, Retry_After=said)
    assert (await failure(webhooks, receiver.target)).retry_after == expected


@pytest.mark.parametrize("answer", [silence, head_that_never_ends])
async def test_a_slow_receiver_is_tried_again(
    answer: Answer, client: httpx.AsyncClient, receiver: Receiver
) -> None:
    """One that does not answer in time, or only begins to, holds nobody up."""
    receiver.answer = answer
    async with asyncio.timeout(60):
        error = await failure(hasty(client), receiver.target)
    assert error.retryable
    assert "did not answer in time" in str(error)


async def test_an_endless_answer_is_not_read(webhooks: Webhooks, receiver: Receiver) -> None:
    """The head has said that the delivery was taken."""
    receiver.answer = body_that_never_ends
    assert (await webhooks.deliver(receiver.target, "91", {})).startswith("200 at ")


async def test_an_answer_that_drips_is_not_waited_for() -> None:
    """The head has said that the delivery was taken."""

    async def drip() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    # Its head comes without any wait, so only the body can exceed the limit.
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=drip()))
    async with httpx.AsyncClient(transport=transport) as client, asyncio.timeout(60):
        target = WebhookTarget("http://h/", SECRET)
        assert (await hasty(client).deliver(target, "91", {})).startswith("200 at ")


async def test_no_more_than_a_little_of_an_answer_is_read() -> None:
    """A receiver cannot make us read what it likes."""
    read = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1_000):
            read += 256
            yield b"x" * 256

    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=flood()))
    async with httpx.AsyncClient(transport=transport) as client:
        await Webhooks(client, lambda: NOW).deliver(WebhookTarget("http://h/", SECRET), "91", {})
    assert read <= 1_024 + 256


async def test_a_receiver_that_hangs_up_is_tried_again(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    """No answer at all is a failure of the moment."""
    receiver.answer = hanging_up
    error = await failure(webhooks, receiver.target)
    assert error.retryable
    assert "cannot be reached" in str(error)


async def test_a_receiver_that_is_down_is_tried_again(webhooks: Webhooks) -> None:
    """A refused connection is a failure of the moment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    error = await failure(webhooks, WebhookTarget(f"http://127.0.0.1:{port}/", SECRET))
    assert error.retryable
    assert error.code == "delivery"
    assert isinstance(error, BackendError)


async def test_a_cancelled_delivery_is_cancelled(webhooks: Webhooks, receiver: Receiver) -> None:
    """A runtime that stops does not wait for a receiver, and records no failure."""
    receiver.answer = silence
    task = asyncio.create_task(webhooks.deliver(receiver.target, "91", {}))
    await asyncio.to_thread(receiver.asked.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("answer", [status(500), status(404), status(301), silence, hanging_up])
async def test_errors_give_nothing_away(
    answer: Answer, client: httpx.AsyncClient, receiver: Receiver
) -> None:
    """Neither the secret nor anything of the URL is in an error or its cause."""
    receiver.answer = answer
    url = receiver.target.url.replace("http://", "http://user:passw0rd@")
    target = WebhookTarget(url, SECRET)
    error = await failure(hasty(client), target)
    shown = f"{error} {error!r} {target!r}"
    # The client's own error holds the request, so it is neither the cause nor shown as context.
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    assert receiver.target.origin not in str(error)
    for hidden in (SECRET, "hush", "hooks", "passw0rd"):
        assert hidden not in shown


async def test_the_clients_log_does_not_tell_the_url(
    client: httpx.AsyncClient, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """However a program logs: of a delivery the client says nothing, of others all."""
    caplog.set_level(logging.DEBUG)
    await Webhooks(client, lambda: NOW).deliver(receiver.target, "91", {})
    assert receiver.got
    for hidden in (SECRET, "hush", "hooks"):
        assert hidden not in caplog.text
    await client.get(f"{receiver.target.origin}/another")
    assert "/another" in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "file:///etc/hosts",
        "javascript:alert(1)",
        "example.net/hook",
        "//example.net",
        "https:///hook",
        "http://[::1",
        "http://example.org:99999/",
        "http://example.org:0/",
        "",
    ],
)
def test_a_target_is_on_the_web(url: str) -> None:
    """A URL that cannot work is told at once, without quoting what may be a secret."""
    with pytest.raises(UsageError, match=r"starts with http:// or https://") as caught:
        WebhookTarget(url, SECRET)
    assert not url or url not in str(caught.value)


def test_a_short_secret_is_refused() -> None:
    """A signature is worth as much as its secret."""
    with pytest.raises(UsageError, match="15 characters; expected at least 16") as caught:
        WebhookTarget("https://example.org", "fifteen letters")
    assert "fifteen" not in str(caught.value)
    assert WebhookTarget("https://example.org", "sixteen letters!").origin == "https://example.org"


@pytest.mark.parametrize("event_id", ["", " ", "a\r\nX-Evil: 1", "ä"])
async def test_an_id_that_is_no_header_is_refused(event_id: str, webhooks: Webhooks) -> None:
    """Nobody can add a header of their own."""
    with pytest.raises(UsageError, match="event id"):
        await webhooks.deliver(WebhookTarget("http://127.0.0.1:9/", SECRET), event_id, {})


def test_the_signature_is_the_documented_one() -> None:
    """Receivers in any language can compute it from the secret, the time and the raw body."""
    expected = hmac.digest(SECRET.encode(), f"{STAMP}.".encode() + BODY, "sha256").hex()
    assert sign(SECRET, STAMP, BODY) == f"t={STAMP},v1={expected}"
    # printf '0.' | openssl dgst -sha256 -hmac kkkkkkkkkkkkkkkk
    assert sign("k" * 16, 0, b"") == (
        "t=0,v1=ebac77380a421376b9a6f1792d4339f5d34a256efbdcfd07f7a4f92fa274ab29"
    )


@pytest.mark.parametrize("seconds", [-300, -1, 0, 299, 300])
def test_a_fresh_signature_verifies(seconds: int) -> None:
    """Within the tolerance, with clocks that differ either way."""
    header = sign(SECRET, STAMP, BODY)
    moment = NOW + timedelta(seconds=seconds)
    assert verify(SECRET, header, BODY, now=moment, tolerance=TOLERANCE)


@pytest.mark.parametrize("seconds", [-301, 301, 86_400])
def test_a_replay_is_refused(seconds: int) -> None:
    """What was signed too long ago, or in the future, does not count."""
    header = sign(SECRET, STAMP, BODY)
    moment = NOW + timedelta(seconds=seconds)
    assert not verify(SECRET, header, BODY, now=moment, tolerance=TOLERANCE)


@pytest.mark.parametrize(
    "header",
    [
        sign("another secret of ours", STAMP, BODY),
        sign(SECRET, STAMP, BODY + b" "),
        sign(SECRET, STAMP - 1, BODY).replace(str(STAMP - 1), str(STAMP)),
        sign(SECRET, STAMP, BODY)[:-1],
        sign(SECRET, STAMP, BODY).upper(),
        sign(SECRET, STAMP, BODY).replace("v1", "v0"),
        f"t={STAMP}," + sign(SECRET, STAMP, BODY),
        f"t={STAMP}",
        f"t={STAMP},v1=",
        f"t={STAMP},v1=ä\ud83d",
        "t=²,v1=0",
        f"t={'9' * 5_000},v1=0",
        "t=-1,v1=0",
        "t,v1",
        "",
    ],
)
def test_a_forged_signature_is_refused(header: str) -> None:
    """Another secret, body, time or shape is false, and never an error."""
    assert verify(SECRET, header, BODY, now=NOW, tolerance=TOLERANCE) is False


def test_a_secret_can_be_changed_without_a_gap() -> None:
    """One of several signatures is enough, so both secrets hold for a while."""
    old, new = (sign(s, STAMP, BODY).split(",")[1] for s in ("the old secret...", SECRET))
    assert verify(SECRET, f"t={STAMP}, {old}, {new}", BODY, now=NOW, tolerance=TOLERANCE)


def test_a_moment_without_a_zone_is_refused() -> None:
    """A receiver whose clock has no zone would accept replays for hours."""
    with pytest.raises(UsageError, match="time zone"):
        verify(SECRET, sign(SECRET, STAMP, BODY), BODY, now=NOW.replace(tzinfo=None))


@given(st.text(), st.binary())
def test_no_header_breaks_verification(header: str, body: bytes) -> None:
    """Whatever is sent to a receiver, it gets a plain no."""
    assert verify(SECRET, header, body, now=NOW) is False


def test_pauses_grow_until_it_is_given_up() -> None:
    """Eight attempts in about one and a half hours, the same on every run."""
    pauses = [next_try(attempts) for attempts in range(1, 10)]
    seconds = [5, 15, 45, 135, 405, 1_215, 3_600]
    assert pauses == [*(timedelta(seconds=s) for s in seconds), None, None]


def test_a_pause_is_never_shorter_than_asked_for() -> None:
    """A receiver's wish lengthens a pause, within an hour, and revives nothing."""
    assert next_try(1, retry_after=timedelta(minutes=2)) == timedelta(minutes=2)
    assert next_try(4, retry_after=timedelta(seconds=1)) == timedelta(seconds=135)
    assert next_try(1, retry_after=timedelta(days=1)) == HOUR
    assert next_try(8, retry_after=timedelta(seconds=1)) is None


def test_a_request_without_a_signature_is_not_ours() -> None:
    """A receiver that finds no header gets an answer, not an error."""
    assert not verify(SECRET, None, b"{}", now=NOW)

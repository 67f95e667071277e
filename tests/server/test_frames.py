"""Whatever a client sends over a socket: it hears what is wrong, and the socket stays open."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection

from segue.errors import UsageError
from segue.server.settings import ServerSettings
from segue.server.socket import parse_frame
from segue.simulate.world import Stage
from tests.runtime.scenes import always
from tests.server.clients import PATIENCE, Frame, Site, checked, frames_until, site_of

pytestmark = pytest.mark.anyio

TYPES = ["message", "cancel", "typing", "answer", "ping", "token", "", "Message", "accepted"]
DEEP = 5_000

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=[]), max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
fields = st.sampled_from(
    ["type", "content", "client_message_id", "strategy", "turn_id", "answer", "synthetic", "é"]
)
almost = st.builds(
    lambda kind, more: {"type": kind, **more},
    st.sampled_from(TYPES),
    st.dictionaries(fields, values, max_size=4),
)
frames = st.one_of(
    st.text(max_size=50),
    st.binary(max_size=50),
    values.map(json.dumps),
    almost.map(json.dumps),
    almost.map(lambda frame: json.dumps(frame)[:-1]),
)
# What random data does not find by itself.
NASTY: list[str | bytes] = [
    "[" * DEEP,
    "[" * DEEP + "]" * DEEP,
    '{"type":"answer","turn_id":"2255260483588198400","answer":' + "[" * 300 + "]" * 300 + "}",
    '{"type":"message","content":' + '{"a":' * DEEP + "1" + "}" * DEEP + "}",
    '{"type":"answer","turn_id":"2255260483588198400","answer":' + "9" * 5_000 + "}",
    '{"type":"answer","turn_id":' + "9" * 400 + ',"answer":1}',
    '{"type":"answer","turn_id":"9999999999999999999","answer":1}',
    '{"type":"answer","turn_id":"0000000000000000000","answer":1}',
    '{"type":"answer","turn_id":"2255260483588198400","answer":1e999}',
    '{"type":"answer","turn_id":"2255260483588198400","answer":NaN}',
    '{"type":"message","content":"   "}',
    '{"type":"message","content":[]}',
    '{"type":"message","content":[{"type":"tool_use","id":"1"}]}',
    '{"type":"message","content":[null]}',
    '{"type":"message","content":"Hi","client_message_id":""}',
    '{"type":"message","content":"Hi","client_message_id":"' + "a" * 201 + '"}',
    '{"type":"message","content":"Hi","strategy":"panic"}',
    '{"type":"message","content":"Hi","type":"dance"}',
    '{"type":["message"],"content":"Hi"}',
    '{"type":"ping","pong":1}',
    "\ufeff{}",
    "\x00",
    b"\xff\xfe",
    b'{"type":"ping"}',
]


def refusal(frame: str | bytes) -> str:
    """Why a frame is none; empty if it is one."""
    try:
        parse_frame(frame if isinstance(frame, str) else "")
    except UsageError as error:
        return str(error)
    return ""


async def replies(socket: ClientConnection, frame: str | bytes) -> list[dict[str, Any]]:
    """What comes to a frame until the pong of a ping after it."""
    await socket.send(frame)
    await socket.send('{"type":"ping"}')
    return (await frames_until(socket, "pong"))[:-1]


@settings(max_examples=3 * settings().max_examples, suppress_health_check=[*HealthCheck])
@given(frame=frames.filter(lambda frame: isinstance(frame, str)))
def test_a_frame_is_read_or_refused_in_words(frame: str) -> None:
    """No text makes the reader fail in any other way, and it quotes nothing that cannot be sent."""
    assert len(refusal(frame).encode()) < 2_000


async def test_no_frame_ends_a_socket(sqlite_stage: Stage) -> None:
    """Made-up and nasty frames are each answered by one error, and the conversation goes on."""
    async with (
        sqlite_stage.world(models={"guide": always("Fine.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws", max_size=None) as socket:
            for frame in NASTY:
                heard = await replies(socket, frame)
                assert [each["type"] for each in heard] == ["error"], (frame[:80], heard)
                assert heard[0]["code"] in {"usage", "not_found"}
            await asyncio.to_thread(_fuzz, socket, asyncio.get_running_loop())
            await socket.send(json.dumps({"type": "message", "content": "Hello"}))
            assert (await frames_until(socket, "accepted"))[-1]["is_new"] is True


async def test_half_an_emoji_is_replaced_at_both_doors(sqlite_stage: Stage) -> None:
    """A browser that cuts a text in the middle of one sends it; the rest of the text counts."""
    half = '"content":"Fine \\ud83d"'
    async with (
        sqlite_stage.world(models={"guide": always("Good.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        headers = {"Content-Type": "application/json"}
        path = f"/api/threads/{thread}/messages"
        posted = await site.http.post(path, content=f"{{{half}}}", headers=headers)
        assert posted.status_code == 202
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            await socket.send(f'{{"type":"message",{half}}}')
            await frames_until(socket, "accepted")
        said = [
            each["text"] for each in (await site.get(f"/api/threads/{thread}/history"))["items"]
        ]
        assert [text for text in said if text != "Good."] == ["Fine \ufffd"] * 2


def _fuzz(socket: ClientConnection, loop: asyncio.AbstractEventLoop) -> None:
    @settings(suppress_health_check=[*HealthCheck])
    @given(frame=frames)
    def attack(frame: str | bytes) -> None:
        if not refusal(frame) or not _can_be_sent(frame):
            return
        heard = asyncio.run_coroutine_threadsafe(replies(socket, frame), loop).result(PATIENCE)
        assert [each["type"] for each in heard] == ["error"], (frame, heard)

    attack()


def _can_be_sent(frame: str | bytes) -> bool:
    """Half an emoji is no text of WebSocket; a client's own library refuses it."""
    try:
        return isinstance(frame, bytes) or frame.encode() is not None
    except UnicodeEncodeError:
        return False


async def _closed(socket: ClientConnection) -> int | None:
    await asyncio.wait_for(socket.wait_closed(), PATIENCE)
    return socket.close_code


async def _talks(site: Site, path: str) -> bool:
    async with site.socket(path) as socket:
        await socket.send('{"type":"ping"}')
        return bool(await frames_until(socket, "pong"))


async def test_a_frame_that_is_too_big_closes_only_its_own_socket(sqlite_stage: Stage) -> None:
    """With 1009, as text, bytes or in pieces; others talk on, and the next one gets in."""
    limits = ServerSettings(rate_per_minute=None, max_frame_bytes=10_000)
    async with sqlite_stage.world() as world, site_of(world.segue, limits) as site:
        thread = await site.new_thread()
        path = f"/api/threads/{thread}/ws"
        async with site.socket(path) as other:
            for big in ("x" * 10_001, b"x" * 10_001, iter(["x" * 6_000] * 2)):
                async with site.socket(path) as socket:
                    await socket.send(big)
                    assert await _closed(socket) == 1009
            await other.send('{"type":"ping"}')
            await frames_until(other, "pong")
        fits = json.dumps({"type": "message", "content": "x" * 9_000})
        async with site.socket(path) as socket:
            await socket.send(fits)
            await frames_until(socket, "accepted")
        assert await _talks(site, path)


async def test_a_client_that_leaves_at_once_is_no_failure(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """It is gone when the answers to its frames are sent, and the log has no error of it."""
    async with (
        sqlite_stage.world(models={"guide": always("Fine.")}) as world,
        site_of(world.segue) as site,
    ):
        path = f"/api/threads/{await site.new_thread()}/ws?since=0"
        for frames in range(1, 31):
            async with site.socket(path) as socket:
                for _ in range(frames):
                    await socket.send('{"type":"message","content":"Hello"}')
                socket.transport.abort()
        assert await _talks(site, path)
    assert [each for each in caplog.records if each.exc_info] == []


async def test_what_is_no_text_closes_only_its_own_socket(
    sqlite_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes that are sent as text but are none end that socket with 1007, and the server lives; the
    log has no traceback of it.
    """
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        path = f"/api/threads/{thread}/ws"
        async with site.socket(path) as socket:
            await socket.send(b"\xff\xfe\xfd", text=True)
            assert await _closed(socket) == 1007
        assert await _talks(site, path)
    assert [each for each in caplog.records if each.exc_info] == []


@pytest.mark.parametrize("since", ["x", "-1", "1.1.1", "9" * 19, "0.", "%00", "1e5"])
async def test_a_cursor_that_is_none_is_refused(sqlite_stage: Stage, since: str) -> None:
    """By closing with 4400, before anything is heard."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        async with site.socket(f"/api/threads/{thread}/ws?since={since}") as socket:
            assert await _closed(socket) == 4400
        refused = await site.http.get(f"/api/threads/{thread}/events?since={since}")
        assert refused.status_code == 422


async def test_who_listens_to_a_thread_that_is_deleted_is_told(stage: Stage) -> None:
    """The socket closes with 4404 and the stream ends with the same reason."""
    async with (
        stage.world(models={"guide": always("Fine.")}) as world,
        site_of(world.segue) as site,
    ):
        thread = await site.new_thread()
        path = f"/api/threads/{thread}"
        await site.post(f"{path}/messages", {"content": "Hello"})
        await world.clock.settle()
        async with (
            site.socket(f"{path}/ws?since=0") as socket,
            site.http.stream("GET", f"{path}/events?since=0") as stream,
        ):
            lines = stream.aiter_lines()
            async for line in lines:  # it listens
                if line.startswith("data: "):
                    break
            await frames_until(socket, "message")
            assert (await site.http.delete(path)).status_code == 200
            assert await _closed(socket) == 4404
            rest = [line async for line in lines]
        last = json.loads([line for line in rest if line.startswith("data: ")][-1][6:])
        assert (last["type"], last["code"]) == ("error", "not_found")


async def test_the_description_of_frames_is_served_and_refuses_what_is_none(
    sqlite_stage: Stage,
) -> None:
    """Whoever writes a client finds every frame there; a field too many is none."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        served = await site.get("/frames.json")
    kinds = served["$defs"]["ServerFrame"]["discriminator"]["mapping"].keys()
    assert kinds >= {"message", "token", "started", "done", "tool", "thread", "deleted", "error"}
    token: Frame = {"type": "token", "thread_id": "t", "cursor": "0.1", "turn_id": None}
    token |= {"message_id": "m", "offset": 0, "text": "Hi", "origin": "reply"}
    checked(token)
    with pytest.raises(AssertionError):
        checked({**token, "trigger": "check_in"})

"""Whatever is sent to the LangGraph wire: no 5xx, no traceback, and the loop stays free.

`SEGUE_FUZZ_ROUNDS=100` sends a hundred times as much, `SEGUE_FUZZ_SEED` something else.
"""

import json
import random
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from segue.facade import Segue
from segue.server.app import create_app
from tests.server import nasty
from tests.server.langgraph.test_access import BODIES, fill, wire_doors
from tests.server.test_fuzz import AS_JSON, ROUNDS, SEED, attacked, check_each_time
from tests.server.watched import Watched

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("foreseen_meanings")]
WORDS = (
    *("assistant_id", "input", "messages", "command", "resume", "stream_mode", "config"),
    *("configurable", "checkpoint", "metadata", "multitask_strategy", "if_not_exists", "guide"),
    *("role", "type", "content", "id", "kwargs", "human", "user", "enqueue", "values", "limit"),
    *("namespace", "memories", "key", "value", "schedule", "0 9 * * *", "channels", "since"),
    *("method", "params", "run.start", "input.respond", "thread_id", "run_ids", "status", "all"),
)
IDS = (
    "-1",
    "0",
    "0~3~m",
    "2255260483584000000~9~é",
    "2255260483584000000.9~x~",
    "x",
    "~",
    "9" * 30,
)


def _nothing() -> AbstractAsyncContextManager[Segue]:
    raise AssertionError("This app only shows its routes.")


def _made(dice: random.Random, depth: int = 0) -> Any:
    """JSON of words that the routes know, in places where they do not expect them."""
    kind = dice.randrange(9 if depth < 5 else 5)
    if kind < 3:
        return dice.choice(WORDS)
    if kind < 5:
        return dice.choice([None, True, 0, -1, 2**53, 1e300, "", "\ud800", "é" * 50])
    if kind < 7:
        return [_made(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {dice.choice(WORDS): _made(dice, depth + 1) for _ in range(dice.randrange(5))}


def _changed(dice: random.Random, body: Any) -> Any:
    """A good body with something wrong in it."""
    if not isinstance(body, dict) or not body or dice.random() < 0.2:
        return _made(dice)
    name = dice.choice([*body])
    return {**body, name: _changed(dice, body[name])}


async def test_no_body_query_or_header_breaks_a_route(folder: str) -> None:
    """On every route of the wire, good bodies that were damaged, and random ones."""
    dice = random.Random(f"wire {SEED}")  # noqa: S311 - not a secret
    async with attacked(folder) as (watched, thread):
        doors = [door for door in wire_doors(create_app(_nothing)) if door.method is not None]
        for _ in range(6 * ROUNDS):
            for door in doors:
                if door.method == "DELETE" and door.names == ["thread_id"]:
                    continue
                good = BODIES.get(door.path.rsplit("/", maxsplit=1)[-1], {"limit": 1})
                raw = json.dumps(_changed(dice, good)).encode()
                if dice.random() < 0.1:
                    raw = next(iter(nasty.bodies(dice, 1, 10_000)))
                names = [dice.choice([thread, "x", "%00", "2255260483584000000"]) for _ in "abc"]
                await _check_sent(watched, str(door.method), fill(door, *names), raw, dice)


async def _check_sent(
    watched: Watched, method: str, path: str, body: bytes, dice: random.Random
) -> None:
    headers = httpx.Headers({**AS_JSON, "Last-Event-ID": dice.choice(IDS)}, encoding="utf-8")
    params = {dice.choice(["limit", "offset", "stream_mode", "key", "wait"]): dice.choice(WORDS)}

    async def send() -> None:
        async with watched.site.http.stream(
            method, path, params=params, content=body, headers=headers
        ) as answer:
            assert answer.status_code < 500, (method, path, body[:200], await answer.aread())

    await check_each_time(watched, (method, path, body), send)


async def test_no_frame_breaks_a_socket(folder: str) -> None:
    """A frame that is not a command gets an error, and the socket lives on."""
    dice = random.Random(f"wire frames {SEED}")  # noqa: S311 - not a secret
    async with attacked(folder) as (watched, thread):
        path = f"/threads/{thread}/stream/events"
        for _ in range(20 * ROUNDS):
            frames = [json.dumps(_made(dice)), "{", "", json.dumps({"id": 1, "method": "x"})]
            answers: list[Any] = []
            good = {"id": 3, "method": "subscription.subscribe", "params": BODIES["events"]}
            frames.append(json.dumps(_changed(dice, good)))
            async with watched.site.socket(path) as socket:
                try:
                    for frame in frames:
                        await socket.send(frame)
                    ping = {"id": 77, "method": "state.get", "params": {}}
                    await socket.send(json.dumps(ping))
                    while not answers or answers[-1].get("id") != 77:
                        answers.append(json.loads(await socket.recv()))
                except ConnectionClosed as closed:
                    pytest.fail(f"{frames} closed it: {closed}")
            refused = [each.get("id") for each in answers if each["type"] == "error"]
            assert refused.count(None) >= 2, (frames, answers)  # "{" and ""
            assert 1 in refused, (frames, answers)
            assert answers[-1]["type"] == "success", (frames, answers)

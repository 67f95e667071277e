"""What may be sent of content: data, but no address that this process might fetch."""

import json
from functools import reduce
from typing import Any, cast

import pytest

from segue.server.problems import ApiError
from segue.server.routes.messages import check_references
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage
from tests.runtime.scenes import always
from tests.server.clients import frames_until, site_of

pytestmark = pytest.mark.anyio

PICTURE = "iVBORw0KGgo="
INSIDE = "http://169.254.169.254/latest/meta-data"


def deep(levels: int) -> Any:
    return reduce(lambda inner, _: [inner], range(levels), cast("Any", INSIDE))


ADDRESSES: list[Any] = [
    {"type": "image_url", "image_url": {"url": "https://intranet/plan.png"}},
    {"type": "image_url", "image_url": "https://intranet/plan.png"},
    {"type": "image_url", "image_url": {"url": "file:/etc/passwd"}},
    {"type": "image_url", "image_url": {"url": "//intranet/plan.png"}},
    {"type": "image", "url": INSIDE},
    {"type": "image", "base64": PICTURE, "source": {"type": "url", "url": INSIDE}},
    {"type": "image", "base64": PICTURE, "more": f" {INSIDE.upper()}"},
    {"type": "image", "base64": PICTURE, "more": deep(100)},
    {"type": "file", "base64": PICTURE, "file": {"file_uri": "gs://bucket/plan.pdf"}},
    {"type": "video", "id": "v1", "fileUri": "bucket/plan.mp4"},
]
DATA: list[Any] = [
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
    {"type": "image", "base64": PICTURE, "mime_type": "image/png"},
    {"type": "text-plain", "text": f"{INSIDE} is no address that I would open."},
    {"type": "text", "text": "https://example.org"},
    "https://example.org",
]
WITH_URLS = ServerSettings(rate_per_minute=None, allow_content_urls=True)


@pytest.mark.parametrize("block", ADDRESSES, ids=lambda block: str(block)[:60])
async def test_an_address_is_refused_by_http_and_by_socket(
    sqlite_stage: Stage, block: dict[str, Any]
) -> None:
    """Wherever in a block it stands; both say how to send it instead, and nothing is stored."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        content = [{"type": "text", "text": "What is this?"}, block]
        body = {"content": content}
        refused = await site.http.post(f"/api/threads/{thread}/messages", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "content_url")
        assert "base64" in refused.json()["detail"]
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            await socket.send(json.dumps({"type": "message", **body}))
            [error] = await frames_until(socket, "error")
            assert error["code"] == "content_url"
        assert (await site.get(f"/api/threads/{thread}/history"))["items"] == []


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "base64": "x"},
        {"type": "image", "source_type": "base64", "data": "x"},
        {"type": "image", "source_type": "url", "id": "x"},
        {"type": "file", "source_type": "text", "text": "x"},
    ],
    ids=str,
)
async def test_a_block_that_no_model_could_be_given_is_refused(
    sqlite_stage: Stage, block: dict[str, Any]
) -> None:
    """By HTTP and by socket; the thread goes on as if nothing had been sent."""
    models = {"guide": always("Fine.")}
    async with sqlite_stage.world(models=models) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        path, body = f"/api/threads/{thread}", {"content": [block]}
        refused = await site.http.post(f"{path}/messages", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "usage")
        async with site.socket(f"{path}/ws") as socket:
            await socket.send(json.dumps({"type": "message", **body}))
            [error] = await frames_until(socket, "error")
            assert error["code"] == "usage"
        await site.post(f"{path}/messages", {"content": "Hello"})
        await world.clock.settle()
        page = await site.get(f"{path}/history")
        assert [message["text"] for message in page["items"]] == ["Hello", "Fine."]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "file", "file_id": "file-1"},
        {"type": "image", "fileId": "file-1"},
        {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
    ],
    ids=str,
)
async def test_a_file_of_the_owner_is_not_a_users_to_name(
    sqlite_stage: Stage, block: dict[str, Any]
) -> None:
    """The provider would look it up in the account of whoever runs the server."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        path = f"/api/threads/{await site.new_thread()}/messages"
        refused = await site.http.post(path, json={"content": [block]})
        assert (refused.status_code, refused.json()["code"]) == (422, "content_file")


async def test_data_and_words_are_taken(sqlite_stage: Stage) -> None:
    """Pictures and files as they are, and text that speaks of addresses."""
    models = {"guide": always("Fine.")}
    async with sqlite_stage.world(models=models) as world, site_of(world.segue) as site:
        thread = await site.new_thread()
        for block in DATA:
            content = [{"type": "text", "text": "Look."}, block]
            await site.post(f"/api/threads/{thread}/messages", {"content": content})
        await site.post(f"/api/threads/{thread}/messages", {"content": INSIDE})
        page = await site.get(f"/api/threads/{thread}/history")
        said = [message for message in page["items"] if message["role"] == "user"]
        assert len(said) == len(DATA) + 1


async def test_a_server_that_trusts_its_users_takes_addresses(sqlite_stage: Stage) -> None:
    """If it is set so, by HTTP and by socket; in the history they are as they were sent."""
    block = {"type": "image_url", "image_url": {"url": "https://example.org/plan.png"}}
    models = {"guide": always("Fine.")}
    async with (
        sqlite_stage.world(models=models) as world,
        site_of(world.segue, WITH_URLS) as site,
    ):
        thread = await site.new_thread()
        await site.post(f"/api/threads/{thread}/messages", {"content": [block]})
        async with site.socket(f"/api/threads/{thread}/ws") as socket:
            await socket.send(json.dumps({"type": "message", "content": [block]}))
            await frames_until(socket, "accepted")
        page = await site.get(f"/api/threads/{thread}/history")
        said = [message["content"] for message in page["items"] if message["role"] == "user"]
        assert said == [[block], [block]]


def test_no_depth_hides_an_address() -> None:
    """However deep, it is found without a failure."""
    with pytest.raises(ApiError):
        check_references([deep(100_000)])


def test_content_of_no_shape_is_left_to_who_reads_it() -> None:
    """It is refused there, in better words."""
    check_references([None, 5, ["x"], {"type": None}])

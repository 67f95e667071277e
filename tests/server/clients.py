"""What the server's tests share: a served world, and clients that speak real HTTP and WebSocket."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import jsonschema_rs
from fastapi import FastAPI
from websockets.asyncio.client import ClientConnection, connect

from segue.facade import Segue
from segue.server.app import create_app
from segue.server.auth import USER_HEADER
from segue.server.frames import frames_schema
from segue.server.serving import open_socket, serving
from segue.server.settings import ServerSettings

# Far longer than anything takes; a test that waits so long has failed.
PATIENCE = 60.0
Frame = dict[str, Any]
_SCHEMA = jsonschema_rs.Draft202012Validator({**frames_schema(), "$ref": "#/$defs/ServerFrame"})


@dataclass(frozen=True)
class Site:
    """A server that runs, and a client of it."""

    address: str
    http: httpx.AsyncClient
    app: FastAPI | None = None

    @property
    def connections(self) -> int:
        """How many sockets and streams the server counts as open."""
        assert self.app is not None
        return sum(counts.total() for counts in self.app.state.connections.values())

    async def get(self, path: str, **given: Any) -> Any:
        return self._good(await self.http.get(path, **given))

    async def list(self, path: str, **given: Any) -> list[Any]:
        """The items of a list."""
        items: list[Any] = (await self.get(path, **given))["items"]
        return items

    async def post(self, path: str, body: Any = None, **given: Any) -> Any:
        return self._good(await self.http.post(path, json=body, **given))

    async def new_thread(self, **body: Any) -> str:
        made: str = (await self.post("/api/threads", body))["id"]
        return made

    def socket(self, path: str, **given: Any) -> connect:
        return connect(self.address.replace("http", "ws", 1) + path, **given)

    @staticmethod
    def _good(response: httpx.Response) -> Any:
        assert response.is_success, response.text
        return response.json() if response.content else None


@asynccontextmanager
async def site_of(
    segue: Segue, settings: ServerSettings | None = None, **headers: str
) -> AsyncIterator[Site]:
    """Serve a Segue on a free port until the block is left."""
    chosen = (settings or ServerSettings(rate_per_minute=None)).model_copy(update={"port": 0})
    app = create_app(segue, chosen)
    async with (
        serving(app, open_socket(chosen)) as address,
        httpx.AsyncClient(base_url=address, headers=headers, timeout=PATIENCE) as client,
    ):
        yield Site(address, client, app)


def checked(frame: Frame) -> Frame:
    """A frame that the server sent; what its own description does not allow is a failed test."""
    problems = [error.message for error in _SCHEMA.iter_errors(frame)]
    assert not problems, (frame, problems)
    return frame


def as_user(name: str) -> dict[str, str]:
    return {USER_HEADER: name}


async def frames_until(socket: ClientConnection, kind: str, **fields: Any) -> list[Frame]:
    """What a socket hears, up to a frame of a kind with some fields."""
    return await _until(socket, lambda f: f["type"] == kind and fields.items() <= f.items())


async def frames_until_said(socket: ClientConnection, text: str) -> list[Frame]:
    """What a socket hears, up to a message."""
    return await _until(socket, lambda f: f["type"] == "message" and f["message"]["text"] == text)


async def _until(socket: ClientConnection, is_last: Callable[[Frame], bool]) -> list[Frame]:
    heard: list[Frame] = []
    async with asyncio.timeout(PATIENCE):
        async for text in socket:
            heard.append(checked(json.loads(text)))
            if is_last(heard[-1]):
                return heard
    raise AssertionError(f"The socket closed ({socket.close_code}) after {heard}")

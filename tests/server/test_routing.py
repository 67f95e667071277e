"""The index of routes: it finds what matching one by one would find, only sooner."""

import re
from collections.abc import Sequence

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute, Match

from segue.server.app import RouteIndex, create_app
from segue.server.settings import ServerSettings
from segue.simulate.world import Stage
from tests.server.clients import site_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def app() -> FastAPI:
    def never() -> None: ...

    return create_app(never, ServerSettings())  # type: ignore[arg-type] # is not opened


def first_match(routes: Sequence[BaseRoute], scope: dict[str, object]) -> object:
    for route in routes:
        match, found = route.matches(scope)
        if match is Match.FULL:
            return found
    return None


def test_the_index_finds_the_same_route_as_a_search_through_all(app: FastAPI) -> None:
    """For each route, with names of several kinds, and with each method."""
    index, *routes = [
        r for r in app.routes if isinstance(r, RouteIndex | APIRoute | APIWebSocketRoute)
    ]
    assert isinstance(index, RouteIndex)
    found = set()
    for route in routes:
        assert isinstance(route, APIRoute | APIWebSocketRoute)
        for name in ("x", "search", "crons", "a/b", ""):
            path = re.sub(r"{\w+}", name, route.path_format)
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", None):
                scope = {"type": "http", "path": path, "method": method}
                if method is None:
                    scope = {"type": "websocket", "path": path}
                for root in ("", "/below"):
                    asked = {**scope, "path": root + path, "root_path": root}
                    expected = first_match(routes, dict(asked))
                    assert index.matches(dict(asked)) == (
                        (Match.NONE, {}) if expected is None else (Match.FULL, expected)
                    )
                    found.add(id(expected["route"]) if isinstance(expected, dict) else None)
    assert len(found - {None}) == len(routes)


async def test_a_wrong_method_and_a_path_with_a_slash_are_still_told(sqlite_stage: Stage) -> None:
    """What the index does not find is matched as before: 405, a redirect, or 404."""
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        assert (await site.http.put("/api/me", json={})).status_code == 405
        assert (await site.http.get("/api/me/")).status_code == 307
        assert (await site.http.get("/api/nothing")).status_code == 404

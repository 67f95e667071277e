"""Every way into the server, read from the app itself: a new route is tried without being named."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIWebSocketRoute, iter_route_contexts

_NAME = re.compile(r"\{(\w+)(?::\w+)?\}")
ADMIN = "/api/admin/"
# Routes of other protocols whose paths name agents, which are everybody's.
PROTOCOLS = ("/v1", "/ag-ui", "/mcp")
WIRE = ("/assistants", "/threads", "/runs", "/store", "/ok", "/info")


@dataclass(frozen=True)
class Door:
    """A route and one of its methods; a socket has none."""

    path: str
    method: str | None
    # An example of its body, if it takes one.
    body: dict[str, Any] | None = None
    # Its required parameters, but for those of the path.
    needs: tuple[str, ...] = ()

    @property
    def is_admin(self) -> bool:
        return self.path.startswith(ADMIN)

    @property
    def is_of_agents(self) -> bool:
        return self.path.startswith(PROTOCOLS)

    @property
    def is_wire(self) -> bool:
        """Whether it is a route of the LangGraph SDK, which have tests of their own."""
        return self.path.startswith(WIRE) and not self.path.startswith("/api/")

    @property
    def names(self) -> list[str]:
        """The parameters in its path."""
        return _NAME.findall(self.path)

    def at(self, **values: str) -> str:
        """Its path with values for the names in it."""
        return _NAME.sub(lambda found: values[found[1]], self.path)

    def __str__(self) -> str:
        return f"{self.method or 'WS'} {self.path}"


def doors(app: FastAPI) -> list[Door]:
    """Those of our own API and of the page."""
    return [door for door in all_doors(app) if not door.is_wire]


def all_doors(app: FastAPI) -> list[Door]:
    return sorted(_doors(app), key=lambda door: (door.path, door.method or ""))


def _doors(app: FastAPI) -> Iterator[Door]:
    document = app.openapi()
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIWebSocketRoute):
            yield Door(str(route.path), None)
        for method in sorted(route.methods or ()):
            shown = re.sub(r":\w+}", "}", str(route.path))
            told = document["paths"].get(shown, {}).get(method.lower(), {})
            needs = [
                p["name"]
                for p in told.get("parameters", ())
                if p["in"] == "query" and p["required"]
            ]
            yield Door(str(route.path), method, _example(document, told), tuple(needs))


def _example(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any] | None:
    """A body as the documentation shows it."""
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return None
    schema = content["application/json"]["schema"]
    reference = schema.get("anyOf", [schema])[0]["$ref"]  # one that may be left out has several
    fields = document["components"]["schemas"][reference.rsplit("/")[-1]]["properties"]
    return {name: f["examples"][0] for name, f in fields.items() if f.get("examples")}

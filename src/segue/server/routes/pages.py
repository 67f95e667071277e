"""Pages without stored data, which need no key: documentation, health and metrics.

`/docs` lists all routes; it has no scripts and loads nothing.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from segue.server.access import lifespan_of, require_local
from segue.server.frames import frames_schema
from segue.server.metrics import Metrics
from segue.server.middleware import operation_id
from segue.server.problems import ApiError, errors

Node = Mapping[str, Any]


def _routes(document: Node) -> Iterator[str]:
    """Routes by tag, then their schemas."""
    info, schemas = document["info"], document.get("components", {}).get("schemas", {})
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}: routes</h1>"
    yield '<p><a href="./">Start</a> · <a href="openapi.json">openapi.json</a>, for programs</p>'
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            [tag, *_] = operation.get("tags", ["other"])
            by_tag.setdefault(tag, []).append(_operation(method, path, operation))
    for tag, operations in by_tag.items():
        yield f"<h2>{escape(tag.capitalize())}</h2>"
        yield from operations
    yield "<h2>Schemas</h2>"
    for name, schema in schemas.items():
        yield f'<h3 id="{escape(name)}">{escape(name)}</h3>'
        yield _prose(schema.get("description", ""))
        yield _properties(schema) if "properties" in schema else f"<p>{_takes(schema)}</p>"


def _operation(method: str, path: str, operation: Node) -> str:
    name = f"<strong>{escape(method.upper())}</strong> <code>{escape(path)}</code>"
    parts = [_prose(operation.get("description", ""))]
    if given := operation.get("parameters"):
        rows = [
            (p["name"], p["in"], _takes(p["schema"]), _need(p.get("required")), _words(p))
            for p in given
        ]
        parts.append(_table(("parameter", "in", "takes", "", "meaning"), rows))
    if body := operation.get("requestBody"):
        parts.append(f"<p>Body: {_content(body)}</p>")
    answers = sorted(operation["responses"].items())
    good = [
        (code, _content(answer), escape(answer.get("description", "")))
        for code, answer in answers
        if code < "400"
    ]
    parts.append(_table(("status", "answer", "meaning"), good))
    if bad := [escape(code) for code, _ in answers if code >= "400"]:
        parts.append(f'<p>Or <a href="#Problem">Problem</a>, with {", ".join(bad)}.</p>')
    summary = escape(operation.get("summary", ""))
    return f"<details><summary>{name} {summary}</summary>{''.join(parts)}</details>"


def _content(holder: Node) -> str:
    """Media types with their schemas."""
    found = [
        f"{escape(kind)} {_takes(media['schema'])}" if media.get("schema") else escape(kind)
        for kind, media in holder.get("content", {}).items()
    ]
    return " or ".join(found) or "nothing"


def _properties(schema: Node) -> str:
    required = schema.get("required", ())
    rows = [
        (name, _takes(each), _need(name in required), _words(each))
        for name, each in schema["properties"].items()
    ]
    return _table(("field", "takes", "", "meaning"), rows)


def _takes(schema: Node) -> str:
    """A schema in a few words, with a link if it has a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(map(_takes, schema[several]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_takes(schema.get('items', {}))}"
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"table of {_takes(values)}"
    return escape(str(schema.get("format") or schema.get("type") or "anything"))


def _words(described: Node) -> str:
    """The description, with default and example."""
    words = _marked(described.get("description", ""))
    schema = described.get("schema", described)
    if "default" in schema and schema["default"] is not None:
        words += f" Default: <code>{escape(str(schema['default']))}</code>."
    for example in schema.get("examples", ())[:1]:
        words += f" Example: <code>{escape(json.dumps(example, ensure_ascii=False))}</code>."
    return words.strip()


def _need(required: Any) -> str:
    return "required" if required else "optional"


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """The first cell of a row is a name; the others are HTML."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    lines = "".join(
        f'<tr><th scope="row"><code>{escape(name)}</code></th>'
        f"{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for name, *cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _prose(text: str) -> str:
    return f"<p>{_marked(text)}</p>" if text else ""


def _marked(text: str) -> str:
    """HTML for text with code in backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


router = APIRouter(include_in_schema=False, dependencies=[Depends(require_local)])
health = APIRouter(tags=["health"], generate_unique_id_function=operation_id)

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
code, pre { font-family: ui-monospace, monospace; }
pre { padding: .75rem; border: 1px solid GrayText; overflow-x: auto; }
summary { cursor: pointer; padding: .25rem 0; }
details { border-bottom: 1px solid GrayText; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: .5rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; }
tbody th { font-weight: normal; }
"""
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """All routes with their schemas; rendered once, because anyone may ask."""
    state = request.app.state
    if not hasattr(state, "docs_page"):
        state.docs_page = _page("Segue: routes", "\n".join(_routes(request.app.openapi())))
    page: HTMLResponse = state.docs_page
    return page


@router.get("/frames.json")
async def frames() -> JSONResponse:
    """A JSON Schema of all frames of sockets and event streams."""
    return JSONResponse(frames_schema())


def _page(title: str, body: str) -> HTMLResponse:
    html = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
    return HTMLResponse(html, headers=_HEADERS)


class Health(BaseModel):
    status: str


@health.get("/healthz")
async def healthz() -> Health:
    """The process answers."""
    return Health(status="ok")


@health.get("/readyz", responses=errors(503))
async def readyz(request: Request) -> Health:
    """Migrations and the self-test are done, and the database accepts writes."""
    lifespan = lifespan_of(request)
    if not lifespan.is_ready:
        raise ApiError(503, "starting", "The server is starting or stopping.", {"Retry-After": "1"})
    await lifespan.segue.check_writable()
    return Health(status="ready")


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """For Prometheus. No label contains a user, a thread or a message."""
    found: Metrics = request.app.state.metrics
    lifespan = lifespan_of(request)
    if lifespan.is_ready:
        inspector = lifespan.segue.inspector
        await found.count_timers(lambda most: inspector.count_pending_timers(limit=most))
    return Response(generate_latest(found.registry), media_type=CONTENT_TYPE_LATEST)

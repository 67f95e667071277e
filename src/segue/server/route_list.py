"""The page `/docs`: the OpenAPI document as plain HTML, for reading without any script.

Pure: document in, HTML out. It knows the parts of OpenAPI that FastAPI writes.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

Node = Mapping[str, Any]


def render_routes(document: Node) -> str:
    """The body of the page: routes by tag, then the shapes that they take and give."""
    return "\n".join(_body(document))


def _body(document: Node) -> Iterator[str]:
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
    yield "<h2>Shapes</h2>"
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
    """Media types with their shapes."""
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
    """A schema in a few words, with a link to a shape that has a name."""
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
    """What it means, and an example."""
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
    """Cells are HTML already, but for the first of a row, which is a name."""
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
    """Code in backticks is the only mark that our texts use."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))

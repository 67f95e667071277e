"""Plain text and plain JSON: what every provider and every database takes."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from math import isfinite
from typing import Any, Final

# JavaScript and others read larger numbers inexactly.
_EXACT: Final = 2**53
# All of C0 and C1 but tabs and line breaks, and what overrides the direction of a text.
_OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def storable(text: str) -> str:
    """Text that can be sent and stored everywhere: half an emoji and a NUL cannot."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\x00", "\ufffd")


def one_line(text: str, longest: int = 200) -> str:
    words = " ".join(text.split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def harmless(text: str) -> str:
    """Text without what a terminal obeys: control characters, and marks that turn its direction."""
    return _OBEYED.sub("", text)


def plain_json(value: Any, depth: int = 64) -> Any:
    """The value in what every JSON writer takes, the same on every run."""
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, dict | list | tuple):
        return _plain_container(value, depth - 1) if depth else "…"
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return hex(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return storable(repr(value))


def exact_json(value: Any) -> Any:
    """A value or a record as any reader of JSON has it: times, and ids it would round, as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: exact_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): exact_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [exact_json(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _EXACT:
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _plain_container(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return {storable(str(key)): plain_json(inner, depth) for key, inner in value.items()}
    return [plain_json(inner, depth) for inner in value]


def sendable_args(args: dict[str, Any]) -> dict[str, Any]:
    """Arguments as they can be sent: themselves, unless some JSON writer would choke on them."""
    try:
        json.dumps(args, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        plain: dict[str, Any] = plain_json(args)
        return plain
    return args

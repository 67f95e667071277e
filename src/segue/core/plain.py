"""Plain text and plain JSON: what every provider and every database takes."""

import json
from math import isfinite
from typing import Any


def storable(text: str) -> str:
    """Text that can be sent and stored everywhere: half an emoji and a NUL cannot."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\x00", "\ufffd")


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

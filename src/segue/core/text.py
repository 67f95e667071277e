"""Text and JSON that can be stored, sent and printed everywhere, and the rule for names and ids.

The API, the library, imports and migrations share these rules. A name appears in addresses, log
lines and indices, so it is short and on one line.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from math import isfinite
from typing import Any, Final

from segue.errors import UsageError

LONGEST_NAME: Final = 200
# A migrated message is named after its thread, and a repeated one after its batch as well.
LONGEST_MESSAGE_ID: Final = 400

# JavaScript and others round larger numbers.
_LARGEST_EXACT: Final = 2**53
_UNPAIRED_SURROGATES: Final = re.compile(
    "[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]"
)
# C0 and C1 without tab and line feed, and the marks that override the direction of a text.
_TERMINAL_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
UNSPACED: Final = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
# Control characters, line breaks, and surrogates, which no database takes.
_NOT_IN_NAME: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def is_name(text: object, longest: int = LONGEST_NAME) -> bool:
    if not isinstance(text, str) or not text.strip() or len(text) > longest:
        return False
    return _NOT_IN_NAME.search(text) is None


def name_rule(longest: int = LONGEST_NAME) -> str:
    """The rule for names, for the text of an error."""
    return f"1 to {longest} characters on one line, without control characters"


def check_name(given: object, what: str) -> str:
    """The name; `UsageError` if it cannot be one."""
    if not isinstance(given, str) or not is_name(given):
        raise UsageError(
            f"{what} is {given!r:.80}; expected text of {name_rule()}. Nothing was written."
        )
    return given


def check_storable(value: Any, what: str) -> None:
    """`UsageError` for JSON with a text that `storable` would change, so that the program that sent
    it learns of it.
    """
    if isinstance(value, Mapping | list | tuple):
        for each in (*value, *value.values()) if isinstance(value, Mapping) else value:
            check_storable(each, what)
    elif isinstance(value, str) and storable(value) != value:
        raise UsageError(
            f"{what} has half of a surrogate pair or a NUL character, which no database stores; "
            "send the text as whole Unicode characters. Nothing was written."
        )


def storable(text: str) -> str:
    """The text with U+FFFD in place of unpaired surrogates and NUL, which not every store takes."""
    try:
        if not text.isascii():  # known without a look at the text, such as 10 MB of base64
            text.encode()
    except UnicodeEncodeError:
        # A pattern finds the surrogates: a codec that replaces them calls Python for each one.
        text = _UNPAIRED_SURROGATES.sub("\ufffd", text)
        text = text.encode("utf-16", "surrogatepass").decode("utf-16")
    return text.replace("\x00", "\ufffd")


def one_line(text: str, longest: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def cut_text(text: str, length: int) -> str:
    """The beginning and the end of a text: a message states its request at one of them."""
    half = length // 2
    mark = f" [… {len(text) - 2 * half:,} characters left out …] "
    if len(text) <= 2 * half + len(mark):
        return text
    return text[:half] + mark + text[-half:]


def harmless(text: str) -> str:
    """The text without control characters and direction marks, which a terminal obeys."""
    return _TERMINAL_CONTROLS.sub("", text)


def plain_json(value: Any, depth: int = 64) -> Any:
    """The value as types that every JSON writer takes; the same on every run."""
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
    """The arguments of a call, unchanged if a strict JSON writer takes them, else plain."""
    try:
        json.dumps(args, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        plain: dict[str, Any] = plain_json(args)
        return plain
    return args


def rfc3339(moment: datetime) -> str:
    """A time for JSON: one in UTC ends with `Z`."""
    text = moment.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def exact_json(value: Any) -> Any:
    """A value or a record for any JSON reader: times, and numbers that it would round or that JSON
    does not have, as text.
    """
    if isinstance(value, str):
        return storable(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: exact_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {storable(str(name)): exact_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [exact_json(each) for each in value]
    if isinstance(value, datetime):
        return rfc3339(value)
    return value if _is_exact(value) else storable(str(value))


def _is_exact(value: Any) -> bool:
    """Whether each JSON reader gets a value as it is."""
    if isinstance(value, float):
        return isfinite(value)
    return value is None or (isinstance(value, int) and abs(value) < _LARGEST_EXACT)


def is_deeper(value: Any, most: int) -> bool:
    """Whether containers are nested more than `most` deep. No recursion."""
    level = [value] if isinstance(value, dict | list | tuple) else []
    for _ in range(most):
        if not level:
            return False
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [v for values in inside for v in values if isinstance(v, dict | list | tuple)]
    return bool(level)

"""Errors of settings: where, what was given, and what was expected.

Quotes a value only if it is short and the setting takes no free text, such as a number or a length
of time: any other text may be a secret, or a secret in the wrong place.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import time, timedelta
from difflib import get_close_matches
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from segue.errors import UsageError
from segue.settings.schema import Setting, settings_of

_UNKNOWN: Final = ("extra_forbidden", "unexpected_keyword_argument")
# Longest text to quote: longer than any length of time, shorter than any key.
_LONGEST_QUOTE: Final = 20
_PLAIN: Final = (bool, int, float, timedelta, time, NoneType)
_KINDS: Final[tuple[tuple[Any, str], ...]] = (
    (bool, "true or false"),
    (int | float, "a number"),
    (str, "a text"),
    (Mapping, "a table"),
    (Sequence, "a list"),
    (type(None), "nothing"),
)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One invalid setting. In its place, agents are named by id."""

    place: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        ending = "" if self.text.endswith("?") else "."
        return ": ".join([*filter(None, [".".join(self.place)]), f"{self.text}{ending}"])


def find_mistakes(error: ValidationError, section: type, values: Any) -> list[Mistake]:
    """All errors that pydantic found in the `values` of a section."""
    return [
        Mistake(tuple(_place(problem["loc"], values)), _describe(problem, section))
        for problem in error.errors(include_url=False)
    ]


def error_at(text: str, *place: int | str) -> InitErrorDetails:
    """For pydantic: an error at a place inside the validated value."""
    return InitErrorDetails(
        type="value_error", loc=place, input=None, ctx={"error": UsageError(text)}
    )


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A known name that is similar, or else all of them."""
    near = get_close_matches(name.lower(), known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"


def _place(loc: Sequence[int | str], values: Any) -> Iterator[str]:
    for part in loc:
        if part == "[key]":
            return
        name: Any = part
        if isinstance(part, int) and isinstance(values, Mapping):  # a table that became a list
            name = [*values][part]
            values = values[name]
        else:
            values = _inside(values, part)
            name = (isinstance(part, int) and _inside(values, "id")) or part
        yield str(name)


def _inside(values: Any, part: int | str) -> Any:
    try:
        holds = isinstance(values, Mapping | Sequence)
        return values[part] if holds else getattr(values, str(part), None)
    except (LookupError, TypeError):
        return None


def _describe(problem: Any, section: type) -> str:
    kind, given = problem["type"], problem["input"]
    loc: tuple[int | str, ...] = problem["loc"]
    if kind == "value_error":  # one of our own checks
        return str(problem["ctx"]["error"]).removesuffix(".")
    where, setting = _find(loc, section)
    if loc and loc[-1] == "[key]" and setting is not None:
        keys = [each.value for each in _enums_in(setting.type)]
        return f"unknown; {did_you_mean(str(loc[-2]), keys)}"
    if kind in _UNKNOWN:
        return f"unknown; {did_you_mean(str(loc[-1]), list(settings_of(where)))}"
    expected = setting.expected if setting else "a table"
    if kind.startswith("missing"):
        return f"missing; expected {expected}"
    is_number = kind.startswith(("greater_than", "less_than")) and isinstance(given, int | float)
    is_quoted = setting is not None and _may_quote(given, setting)
    shown = given if is_number else repr(given) if is_quoted else _kind_of(given)
    return f"got {shown}; expected {expected}"


def _find(loc: Sequence[int | str], section: type) -> tuple[type, Setting | None]:
    """The innermost section of a place, and the last known setting."""
    setting = None
    for part in loc:
        found = settings_of(section).get(str(part))
        if found is not None:
            setting, section = found, found.section or section
    return section, setting


def _enums_in(kind: Any) -> Iterator[Enum]:
    if isinstance(kind, type) and issubclass(kind, Enum):
        yield from kind
    for part in get_args(kind):
        yield from _enums_in(part)


def _may_quote(given: Any, setting: Setting) -> bool:
    return isinstance(given, str) and len(given) <= _LONGEST_QUOTE and _is_plain(setting.type)


def _is_plain(kind: Any) -> bool:
    """Whether a type takes no free text."""
    if get_origin(kind) is Annotated:
        return _is_plain(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return True
    if kind is Ellipsis or (isinstance(kind, type) and (kind in _PLAIN or issubclass(kind, Enum))):
        return True
    return bool(get_args(kind)) and all(map(_is_plain, get_args(kind)))


def _kind_of(given: Any) -> str:
    return next((text for kind, text in _KINDS if isinstance(given, kind)), type(given).__name__)

"""Sections of settings as data, and errors in them in plain English.

A section is a config or a dataclass. An error says where it is, what was given and what was
expected. It quotes a value only if it is short and the setting takes no free text, such as a number
or a length of time: any other text may be a secret, or a secret in the wrong place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import time, timedelta
from difflib import get_close_matches
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Self, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails

from segue.core.durations import OR_NONE, Duration, show_duration
from segue.errors import UsageError

_TYPES: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    SecretStr: "a text that is kept secret",
    timedelta: "a length of time ('30s', '5m', '1h30m', '2d', or a number of seconds)",
    time: "a time of day ('22:00')",
}
_BOUNDS: Final[Mapping[str, str]] = {
    "ge": "at least {}",
    "gt": "more than {}",
    "le": "at most {}",
    "lt": "less than {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
}
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
    (NoneType, "nothing"),
)


@dataclass(frozen=True, slots=True)
class Expected:
    """In an annotation: what a setting takes, if its type does not say it."""

    text: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a section."""

    name: str
    type: Any

    @property
    def section(self) -> Any:
        """The section that it contains, alone, in a list or by name; None if none."""
        return next(filter(is_section, _types_in(self.type)), None)

    @property
    def expected(self) -> str:
        """What it takes, in plain English."""
        return ", ".join(dict.fromkeys(_describe(self.type)))


def settings_of(section: Any) -> dict[str, Setting]:
    """All settings of a section, in the order of the code, by the name that files use."""
    types = get_type_hints(section, include_extras=True)
    if issubclass(section, BaseModel):
        names = {name: field.alias or name for name, field in section.model_fields.items()}
    else:
        names = {each.name: each.name for each in fields(section)}
    return {name: Setting(name, types[attribute]) for attribute, name in names.items()}


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, BaseModel))


def _types_in(kind: Any) -> Iterator[Any]:
    yield kind
    for part in get_args(kind):
        yield from _types_in(part)


def _describe(kind: Any) -> Iterator[str]:
    """What a type takes, then its bounds."""
    if get_origin(kind) is Annotated:
        of, *more = get_args(kind)
        yield from [each.text for each in more if isinstance(each, Expected)] or _describe(of)
        for each in more:
            yield from ["or 'none'"] if each is OR_NONE else _bounds(each)
    elif get_origin(kind) in (Union, UnionType):
        for part in get_args(kind):
            yield from () if part is NoneType else _describe(part)
    elif get_origin(kind) is Literal:
        yield _listed(get_args(kind))
    elif _is_enum(kind):
        yield _listed([each.value for each in kind])
    elif get_origin(kind) is tuple:
        yield "a list"
    elif is_section(kind) or get_origin(kind) is not None:
        yield "a table"
    else:
        yield _TYPES.get(kind, "anything")


def _bounds(given: Any) -> Iterator[str]:
    for each in given.metadata if isinstance(given, FieldInfo) else ():
        for name, text in _BOUNDS.items():
            if (bound := getattr(each, name, None)) is not None:
                yield text.format(_show_bound(bound))


def _show_bound(bound: Any) -> str:
    if isinstance(bound, timedelta):
        return show_duration(bound) if bound else "0"
    return f"{bound:g}"


def _listed(values: Any) -> str:
    *first, last = [f"'{value}'" for value in values]
    return f"{', '.join(first)} or {last}" if first else last


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


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
        Mistake(tuple(_place(problem["loc"], values)), _explain(problem, section))
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


def _explain(problem: Any, section: type) -> str:
    kind, given = problem["type"], problem["input"]
    loc: tuple[int | str, ...] = problem["loc"]
    if kind == "value_error":  # one of our own checks
        return str(problem["ctx"]["error"]).removesuffix(".")
    where, setting = _find(loc, section)
    if loc and loc[-1] == "[key]" and setting is not None:
        keys = [each.value for kind in filter(_is_enum, _types_in(setting.type)) for each in kind]
        return f"unknown; {did_you_mean(str(loc[-2]), keys)}"
    if kind in _UNKNOWN:
        return f"unknown; {did_you_mean(str(loc[-1]), list(settings_of(where)))}"
    expected = setting.expected if setting else "a table"
    if kind.startswith("missing"):
        return f"missing; expected {expected}"
    is_number = kind.startswith(("greater_than", "less_than")) and isinstance(given, int | float)
    is_short = isinstance(given, str) and len(given) <= _LONGEST_QUOTE
    is_quoted = is_short and setting is not None and _is_plain(setting.type)
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


def _is_plain(kind: Any) -> bool:
    """Whether a type takes no free text."""
    if get_origin(kind) is Annotated:
        return _is_plain(get_args(kind)[0])
    if kind is Ellipsis or kind in _PLAIN or _is_enum(kind) or get_origin(kind) is Literal:
        return True
    return bool(get_args(kind)) and all(map(_is_plain, get_args(kind)))


def _kind_of(given: Any) -> str:
    return next((text for kind, text in _KINDS if isinstance(given, kind)), type(given).__name__)


def _as_list(given: Any) -> Any:
    """Split a text at its commas, as the environment writes a list."""
    return [each.strip() for each in given.split(",")] if isinstance(given, str) else given


Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Span = Annotated[Duration, Field(gt=timedelta(0))]
# A list that may also be one text with commas.
FROM_TEXT: Final = BeforeValidator(_as_list)


class Config(BaseModel):
    """Settings that are validated when they are created and never change.

    `UsageError` lists all errors, one on each line.
    """

    # Errors do not quote the input: secrets may be in it.
    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UsageError(_lines(find_mistakes(error, type(self), values))) from None

    # Without it, pydantic calls `__init__` for nested sections, too, and their place is lost.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # pydantic's own mark

    @classmethod
    def parse(cls, values: Mapping[str, Any], name: str) -> Self:
        """The config in `values`; `UsageError` lists all errors."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            found = find_mistakes(error, cls, values)
            raise UsageError(_lines(Mistake((name, *m.place), m.text) for m in found)) from None


def _lines(mistakes: Iterable[Mistake]) -> str:
    return "\n".join(map(str, mistakes))

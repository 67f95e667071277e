"""Sections of settings as data: name, type, default and meaning of each setting.

Error messages and documentation are made from it. A section is a config or a dataclass; a setting's
meaning is the docstring below it.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import time, timedelta
from enum import Enum
from itertools import pairwise
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

REQUIRED: Final = object()

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


def _none_of(given: Any) -> Any:
    return None if given == "none" else given


# In an annotation: 'none' means None, which neither TOML nor the environment can write.
OR_NONE: Final = BeforeValidator(_none_of)


@dataclass(frozen=True, slots=True)
class Expected:
    """In an annotation: what a setting takes, if its type does not say it."""

    text: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a section."""

    name: str
    type: Any
    default: Any

    @property
    def section(self) -> Any:
        """The section that it contains, alone, in a list or by name; None if none."""
        return next(_sections_in(self.type), None)

    @property
    def expected(self) -> str:
        """What it takes, in plain English."""
        return ", ".join(dict.fromkeys(_describe(self.type)))


def settings_of(section: type) -> dict[str, Setting]:
    """All settings of a section, in the order of the code, by the name that files use."""
    types = get_type_hints(section, include_extras=True)
    aliases = {name: field.alias for name, field in getattr(section, "model_fields", {}).items()}
    return {
        name: Setting(name, types[attribute], default)
        for attribute, default in _defaults(section)
        for name in [aliases.get(attribute) or attribute]
    }


def meanings_of(section: type) -> dict[str, str]:
    """What each setting means: its docstring, read from the source file."""
    found: dict[str, str] = {}
    for kind in reversed([k for k in section.__mro__ if is_section(k) and k is not BaseModel]):
        [tree] = ast.parse(dedent(inspect.getsource(kind))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for setting, below in pairwise(body):
            match setting, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = " ".join(text.split())
    return found


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, BaseModel))


def _defaults(section: Any) -> Iterator[tuple[str, Any]]:
    if issubclass(section, BaseModel):
        for name, field in section.model_fields.items():
            required = field.is_required()
            yield name, REQUIRED if required else field.get_default(call_default_factory=True)
        return
    for each in fields(section):
        yield each.name, REQUIRED if each.default is MISSING else each.default


def _sections_in(kind: Any) -> Iterator[type]:
    if is_section(kind):
        yield kind
    for part in get_args(kind):
        yield from _sections_in(part)


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
    elif isinstance(kind, type) and issubclass(kind, Enum):
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
                number = bound.total_seconds() if isinstance(bound, timedelta) else bound
                yield text.format(f"{number:g}")


def _listed(values: Any) -> str:
    *first, last = [f"'{value}'" for value in values]
    return f"{', '.join(first)} or {last}" if first else last

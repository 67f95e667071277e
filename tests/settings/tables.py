"""The tables of docs/settings.md, made from the settings' classes by `make docs`.

Rewrites the part of the page between the two marks; the rest of the page is written by hand.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import timedelta
from enum import Enum
from inspect import cleandoc, getsource
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

from pydantic import BaseModel

from segue.core.durations import show_duration
from segue.server.settings import ServedSettings
from segue.settings.loading import variable
from segue.settings.schema import Setting, is_section, settings_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "settings.md"

BEGIN: Final = "<!-- made by `make docs`: tables -->"
END: Final = "<!-- end of tables -->"

# Placeholders for the names of entries, in settings that contain sections by name.
_ENTRIES: Final[Mapping[str, str]] = {
    "agents": "ID",
    "prompts": "TRIGGER",
    "by_type": "TYPE",
    "mcp": "NAME",
    "triggers": "NAME",
    "hooks": "NAME",
}


def make_tables() -> str:
    """One table for each section."""
    return "\n".join(_lines(ServedSettings, ())).strip()


def rewrite(page: str) -> str:
    """The page with new tables between its marks."""
    before, after = page[: page.index(BEGIN)], page[page.index(END) :]
    return f"{before}{BEGIN}\n{make_tables()}\n{after}"


def _lines(section: type, place: Sequence[str]) -> Iterator[str]:
    meanings, defaults = _meanings(section), dict(_defaults(section))
    settings = settings_of(section)
    yield f"### {_heading(place)}"
    yield cleandoc(section.__doc__ or "").partition("\n")[0]
    yield ""
    yield "| setting | takes | default | meaning | variable |"
    yield "|---|---|---|---|---|"
    for name, setting in settings.items():
        cells = (
            f"`{name}`",
            _takes(setting),
            _default(setting, defaults[name]),
            meanings.get(name, ""),
            _variable([*place, name]),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    for name, setting in settings.items():
        if setting.section is not None:
            entry = [_ENTRIES[name]] if name in _ENTRIES else []
            yield from _lines(setting.section, [*place, name, *entry])


def _heading(place: Sequence[str]) -> str:
    if not place:
        return "At the top of the file"
    name = f"[{'.'.join(place)}]"
    return f"`[{name}]`, one or more" if _is_list(place) else f"`{name}`"


def _is_list(place: Sequence[str]) -> bool:
    """Whether there are several sections with the same name: the variants of a prompt."""
    return "TRIGGER" in place or "prompt" in place


def _takes(setting: Setting) -> str:
    expected = "a table, see below" if setting.section else setting.expected
    return re.sub(r" \([^)]*\)|^an? ", "", expected)


def _meanings(section: type) -> dict[str, str]:
    """What each setting means: its docstring, read from the source file."""
    found: dict[str, str] = {}
    for kind in reversed([k for k in section.__mro__ if is_section(k) and k is not BaseModel]):
        [tree] = ast.parse(dedent(getsource(kind))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for setting, below in pairwise(body):
            match setting, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = " ".join(text.split())
    return found


def _defaults(section: Any) -> Iterator[tuple[str, Any]]:
    """The default of each setting; `MISSING` if it is required."""
    if not issubclass(section, BaseModel):
        yield from ((each.name, each.default) for each in fields(section))
        return
    for name, field in section.model_fields.items():
        default = field.get_default(call_default_factory=True)
        yield field.alias or name, MISSING if field.is_required() else default


def _default(setting: Setting, default: Any) -> str:
    match default:
        case d if d is MISSING:
            return "required"
        case timedelta() as span:
            return f"`{show_duration(span)}`"
        case bool(flag):
            return f"`{str(flag).lower()}`"
        case Enum(value=value) | (str() | int() | float() as value):
            return f"`{value}`"
        case (str(), *_) as texts:
            return ", ".join(f"`{each}`" for each in texts)
    return "" if setting.section else "none"


def _variable(place: Sequence[str]) -> str:
    """The variable's name; none for an agent's id and for settings in a list."""
    is_settable = place[-2:] != ["ID", "id"] and not _is_list(place[:-1])
    return f"`{variable(place)}`" if is_settable else ""


if __name__ == "__main__":
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

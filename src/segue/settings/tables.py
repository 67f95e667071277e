"""The tables of docs/settings.md: `python -m segue.settings.tables PAGE package.module:Settings`.

Made from the named settings class. Rewrites the part of the page between the two marks; the rest of
the page is written by hand.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from inspect import cleandoc
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from segue.core.durations import show_duration
from segue.settings.loading import variable
from segue.settings.schema import REQUIRED, Setting, meanings_of, settings_of
from segue.settings.settings import Settings

BEGIN: Final = "<!-- made by `make docs`: tables -->"
END: Final = "<!-- end of tables -->"

# Placeholders for the names of entries, in settings that contain sections by name.
_ENTRIES: Final[Mapping[str, str]] = {"agents": "ID", "prompts": "TRIGGER", "by_type": "TYPE"}


def make_tables(section: type = Settings, place: Sequence[str] = ()) -> str:
    """One table for a section, and one for each section in it."""
    return "\n".join(_lines(section, place)).strip()


def rewrite(page: str, section: type = Settings) -> str:
    """The page with new tables between its marks."""
    before, after = page[: page.index(BEGIN)], page[page.index(END) :]
    return f"{before}{BEGIN}\n{make_tables(section)}\n{after}"


def _lines(section: type, place: Sequence[str]) -> Iterator[str]:
    meanings = meanings_of(section)
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
            _default(setting),
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
    return f"`[{name}]`, one or more" if place[-1] == "TRIGGER" else f"`{name}`"


def _takes(setting: Setting) -> str:
    expected = "a table, see below" if setting.section else setting.expected
    return re.sub(r" \([^)]*\)|^an? ", "", expected)


def _default(setting: Setting) -> str:
    match setting.default:
        case d if d is REQUIRED:
            return "required"
        case timedelta() as span:
            return f"`{show_duration(span)}`"
        case Enum(value=value) | (str() as value):
            return f"`{value}`"
        case bool(flag):
            return f"`{str(flag).lower()}`"
        case int() | float() as number:
            return f"`{number}`"
    return "" if setting.section else "none"


def _variable(place: Sequence[str]) -> str:
    """The variable's name; none for an agent's id and for settings in a list."""
    is_settable = place[-2:] != ["ID", "id"] and "TRIGGER" not in place
    return f"`{variable(place)}`" if is_settable else ""


if __name__ == "__main__":
    page, path = Path(sys.argv[1]), sys.argv[2]
    chosen: type = resolve_name(path)
    page.write_text(rewrite(page.read_text(encoding="utf-8"), chosen), encoding="utf-8")

"""Configs as people write them: lengths of time and quiet hours in words, in any depth.

Knows no config by name: which settings are lengths follows from the types.
"""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from datetime import timedelta
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

from segue.core.errors import UsageError
from segue.core.quiet import QuietHours
from segue.testing.moments import read_hours, read_span


def readable(kind: type, given: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The settings of a config with texts turned into lengths of time and quiet hours."""
    hints = get_type_hints(kind)
    read = dict(given)
    for name, value in given.items():
        hint, place = hints.get(name), f"{path}{name}"
        options = {hint, *get_args(hint)}
        try:
            if timedelta in options and _is_for_people(value):
                read[name] = read_span(value)
            elif QuietHours in options:
                read[name] = read_hours(value) or None
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from None
        if isinstance(value, Mapping) and isinstance(hint, type) and _has_settings(hint):
            read[name] = readable(hint, value, f"{place}.")
    return read


def _is_for_people(value: Any) -> bool:
    """Whether it is no number of seconds and no text that pydantic can read: PT2H, 02:30:00."""
    return isinstance(value, str) and not value.startswith("P") and ":" not in value


def _has_settings(hint: Any) -> bool:
    return isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, BaseModel))


def names_of(kind: type) -> Iterator[str]:
    """All settings of a config and of those in it."""
    for name, hint in get_type_hints(kind).items():
        yield name
        for part in (hint, *get_args(hint)):
            if _has_settings(part):
                yield from names_of(part)

"""`load_settings`: settings from a file, then the environment, then flags; later sources override.

Remembers which of them set what, so that an error names its file, its variable or its flag. Which
settings exist and what they take is defined by `Settings`.
"""

import json
import logging
import os
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar, overload

from pydantic import ValidationError

from segue.errors import UsageError
from segue.settings.schema import Mistake, did_you_mean, find_mistakes
from segue.settings.settings import FIRST_TRY, Settings, first_try, leave_model_unset

logger = logging.getLogger(__name__)

FILE: Final = "segue.toml"
PREFIX: Final = "SEGUE_"
# From this similarity on, an unknown name is a typo of a setting. Other names are left alone, such
# as those that Kubernetes gives every process for a service called segue.
_TYPO: Final = 0.8
# The server's section of the same file, and variables that commands read themselves.
_SERVER: Final = frozenset({"server"})
_OTHER_VARIABLES: Final = _SERVER | {"key"}
_ENVIRONMENT: Final = "environment"

AnySettings = TypeVar("AnySettings", bound=Settings)
Place = tuple[str, ...]


def variable(place: Iterable[str]) -> str:
    """The name of the variable that sets the setting at a place."""
    return PREFIX + "__".join(map(_in_capitals, place))


@overload
def load_settings(
    path: Path | str | None = ...,
    environ: Mapping[str, str] = ...,
    *,
    kind: type[AnySettings],
    without: Collection[str] = ...,
    **flags: Any,
) -> AnySettings: ...
@overload
def load_settings(
    path: Path | str | None = ...,
    environ: Mapping[str, str] = ...,
    *,
    without: Collection[str] = ...,
    **flags: Any,
) -> Settings: ...
def load_settings(
    path: Path | str | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    kind: type[Settings] = Settings,
    without: Collection[str] = (),
    **flags: Any,
) -> Settings:
    """Settings from the file (`segue.toml` of this folder, if it exists and no other is named),
    then from variables `SEGUE_…`, then from flags that are not None.

    `UsageError` lists all errors, each with its source. `kind` may be a subclass with more
    sections. Agents' sections in `without` are not read: a program that does not use them does not
    need their secrets.
    """
    known = list(kind.model_fields)
    file = _read_file(path, ignored=_SERVER - {*known})
    agents = file.values.get("agents", first_try())
    ids = [*agents] if isinstance(agents, Mapping) else []
    variables, typos = _read_environment(environ, known, ids)
    given = {tuple(name.split("__")): value for name, value in flags.items() if value is not None}
    sources = [
        file,
        _Source(_ENVIRONMENT, _nested(variables)),
        _Source("flags", _nested(given)),
    ]
    merged: dict[str, Any] = {}
    is_first_try = "agents" not in file.values and ("agents",) not in {*variables, *given}
    places = [("agents", FIRST_TRY, name) for name in ("model", "graph")]
    has_model = any(each.depth(place) == 3 for each in sources for place in places)
    if is_first_try:
        merged["agents"] = first_try(has_model=has_model)
    for source in sources:
        merged = _merged(merged, source.values)
    if without and isinstance(agents := merged.get("agents"), Mapping):
        merged["agents"] = {name: _leave_out(each, without) for name, each in agents.items()}
    try:
        settings = kind.model_validate(merged)
    except ValidationError as error:
        typos = [*typos, *_located(find_mistakes(error, kind, merged), sources)]
    if typos:
        raise UsageError("\n".join(typos))
    if is_first_try and not has_model:
        leave_model_unset(settings.agents[0])
    return settings


@dataclass(frozen=True, slots=True)
class _Source:
    """A file, the environment or flags, and the settings in it."""

    name: str
    values: Mapping[str, Any]

    def describe(self, mistake: Mistake) -> str:
        name = variable(mistake.place)
        if self.name == _ENVIRONMENT:
            return str(Mistake((name,), mistake.text))
        if mistake.place[-1:] == ("secret",) and mistake.text.startswith("missing"):
            mistake = Mistake(mistake.place, f"{mistake.text}; {name} may hold it")
        return f"{self.name}: {mistake}"

    def depth(self, place: Iterable[str]) -> int:
        """How many parts of a setting's place it contains."""
        depth = 0
        values: Any = self.values
        for part in place:
            if not isinstance(values, Mapping) or part not in values:
                break
            depth, values = depth + 1, values[part]
        return depth


def _located(mistakes: Iterable[Mistake], sources: Sequence[_Source]) -> Iterator[str]:
    for mistake in mistakes:
        # Of the sources that contain the setting, the last one won.
        source = max(reversed(sources), key=lambda each: each.depth(mistake.place))
        yield source.describe(mistake)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The values of a TOML file; `UsageError` if it is not there or not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"The {what} {str(path.absolute())!r} does not exist.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"The {what} {str(path)!r} cannot be read: {reason}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: this is not TOML: {error}.") from None


def _read_file(path: Path | str | None, ignored: Iterable[str]) -> _Source:
    file = Path(FILE if path is None else path)
    if path is None and not file.exists():
        return _Source(FILE, {})
    values = read_toml(file, "settings file")
    for name in ignored:
        values.pop(name, None)
    if isinstance(agents := values.get("agents"), list):
        # A table by id, if all have one: variables name agents by id.
        by_id = {agent["id"]: agent for agent in agents if _has_id(agent)}
        values["agents"] = by_id if len(by_id) == len(agents) else agents
    return _Source(str(file), values)


def _has_id(agent: Any) -> bool:
    return isinstance(agent, dict) and isinstance(agent.get("id"), str)


def _read_environment(
    environ: Mapping[str, str], known: Sequence[str], agents: Sequence[str]
) -> tuple[dict[Place, Any], list[str]]:
    """The values of variables by place, and an error for each typo.

    An agent is named by its id in capitals, with `_` for all but letters and digits; only agents
    of the file can be named. An empty variable sets nothing.
    """
    values: dict[Place, Any] = {}
    typos: list[str] = []
    unread: list[str] = []
    ids = {_in_capitals(name): name for name in agents}
    for name in sorted(each for each in environ if each.startswith(PREFIX) and environ[each]):
        first, *rest = name.removeprefix(PREFIX).split("__")
        top = first.lower()
        if top not in known:
            if get_close_matches(top, known, n=1, cutoff=_TYPO):
                typos.append(_unknown(name, top, known))
            elif top not in _OTHER_VARIABLES:
                unread.append(name)
        elif top == "agents" and rest and rest[0] not in ids:
            typos.append(_unknown(name, rest[0], agents))
        else:
            agent = [ids[rest.pop(0)]] if top == "agents" and rest else []
            values[top, *agent, *_names(rest)] = _parse(environ[name])
    if unread:
        logger.warning("Variables that are not settings and were not read: %s", ", ".join(unread))
    return values, typos


def _names(parts: Sequence[str]) -> Sequence[str]:
    """The names of settings; the variables of an MCP server's program keep their case."""
    match parts:
        case ["MCP", server, "ENV", *own]:
            return ["mcp", server.lower(), "env", *own]
    return [*map(str.lower, parts)]


def _unknown(name: str, part: str, known: Sequence[str]) -> str:
    return str(Mistake((name,), f"unknown; {did_you_mean(part, known)}"))


def _parse(text: str) -> Any:
    """A list or a table as JSON; anything else is text."""
    if text.startswith(("[", "{")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _in_capitals(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name).upper()


def _leave_out(agent: Any, sections: Collection[str]) -> Any:
    if not isinstance(agent, Mapping):
        return agent
    return {name: value for name, value in agent.items() if name not in sections}


def _nested(values: Mapping[Place, Any]) -> dict[str, Any]:
    """Values by place, as tables in tables."""
    whole: dict[str, Any] = {}
    for place, value in values.items():
        whole = _merged(whole, reduce(lambda inner, part: {part: inner}, reversed(place), value))
    return whole


def _merged(first: Any, second: Any) -> Any:
    """Tables are merged; of anything else the second is taken."""
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return second
    return {**first, **{name: _merged(first.get(name), new) for name, new in second.items()}}

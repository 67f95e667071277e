"""`load_settings`: settings from a file, then the environment, then flags; what comes later wins.

Owns which of them set what, so that a mistake is told by its file, its variable or its flag. What
the settings are and what they take is `Settings`'s.
"""

import os
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast, overload

from pydantic import ValidationError

from segue.agent.mistakes import Mistake, find_mistakes
from segue.core.errors import UsageError
from segue.settings.environment import read_environment, variable
from segue.settings.settings import FIRST_TRY, Settings, first_try

FILE: Final = "segue.toml"

# A section of the same file that the server reads, and nobody without one needs to know.
_SERVER: Final = frozenset({"server"})
# Variables of our name that are read elsewhere: by commands that talk with a server.
_COMMANDS: Final = frozenset({"key"})
_ENVIRONMENT: Final = "environment"
# What should not be in a file that others read.
_SECRET: Final = ("secret",)

AnySettings = TypeVar("AnySettings", bound=Settings)


@dataclass(frozen=True, slots=True)
class _Source:
    """A place where settings are written."""

    name: str
    values: Mapping[str, Any]

    def tell(self, mistake: Mistake) -> str:
        if self.name == _ENVIRONMENT:
            return str(Mistake((variable(mistake.place),), mistake.words))
        if mistake.place[-1:] == _SECRET and mistake.words.startswith("missing"):
            hint = f"{mistake.words}; {variable(mistake.place)} may hold it"
            mistake = Mistake(mistake.place, hint)
        return f"{self.name}: {mistake}"

    def leads_to(self, place: Iterable[str]) -> int:
        """How many steps of the way to a setting are in it."""
        steps, values = 0, cast("Any", self.values)
        for part in place:
            if not isinstance(values, Mapping) or part not in values:
                break
            steps, values = steps + 1, values[part]
        return steps


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
    """Settings from the file (`segue.toml` of this folder if none is named, and if there is one),
    then from variables `SEGUE_…`, then from flags, where None means: not given.

    `UsageError` tells all mistakes at once, each with where it is. `kind` may be a subclass with
    further sections. Sections of agents named in `without` are not read: a program that does not
    use them does not need the secrets in them.
    """
    known = list(kind.model_fields)
    file = _read_file(path, ignored=_SERVER - {*known})
    agents = file.values.get("agents", first_try())
    variables = read_environment(
        environ,
        known,
        agents=[*agents] if isinstance(agents, Mapping) else [],
        ignored=_SERVER | _COMMANDS,
    )
    given = {tuple(name.split("__")): value for name, value in flags.items() if value is not None}
    sources = [
        file,
        _Source(_ENVIRONMENT, _nested(variables.values)),
        _Source("flags", _nested(given)),
    ]
    are_given = "agents" in file.values or ("agents",) in {*variables.values, *given}
    graph = ("agents", FIRST_TRY, "graph")
    has_graph = any(source.leads_to(graph) == len(graph) for source in sources)
    merged: dict[str, Any] = {} if are_given else {"agents": first_try(has_graph=has_graph)}
    for source in sources:
        merged = _merged(merged, source.values)
    if without and isinstance(agents := merged.get("agents"), Mapping):
        merged["agents"] = {name: _leave_out(each, without) for name, each in agents.items()}
    wrong = variables.slips
    try:
        settings = kind.model_validate(merged)
    except ValidationError as error:
        wrong = [*wrong, *_told(find_mistakes(error, kind, merged), sources)]
    if wrong:
        raise UsageError("\n".join(wrong))
    return settings


def _leave_out(agent: Any, sections: Collection[str]) -> Any:
    if not isinstance(agent, Mapping):
        return agent
    return {name: value for name, value in agent.items() if name not in sections}


def _told(mistakes: Iterable[Mistake], sources: Sequence[_Source]) -> Iterator[str]:
    for mistake in mistakes:
        # Of those that know the setting, the last one won.
        source = max(reversed(sources), key=lambda each: each.leads_to(mistake.place))
        yield source.tell(mistake)


def _read_file(path: Path | str | None, ignored: Iterable[str]) -> _Source:
    file = Path(FILE if path is None else path)
    if path is None and not file.exists():
        return _Source(FILE, {})
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"There is no settings file {str(file.absolute())!r}.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"The settings file {str(file)!r} cannot be read: {reason}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: this is no TOML: {error}.") from None
    for name in ignored:
        values.pop(name, None)
    if isinstance(values.get("agents"), list):
        values["agents"] = _by_id(values["agents"])
    return _Source(str(file), values)


def _by_id(agents: list[Any]) -> Any:
    """A list of agents as a table, so that a variable can change one; as it is if it cannot be."""
    named = {
        agent["id"]: agent
        for agent in agents
        if isinstance(agent, dict) and isinstance(agent.get("id"), str)
    }
    return named if len(named) == len(agents) else agents


def _nested(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Values by their places, as tables in tables."""
    whole: dict[str, Any] = {}
    for place, value in values.items():
        inner = value
        for part in reversed(place):
            inner = {part: inner}
        whole = _merged(whole, inner)
    return whole


def _merged(first: Any, second: Any) -> Any:
    """Tables are put together, of anything else the second is taken."""
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return second
    return {**first, **{name: _merged(first.get(name), new) for name, new in second.items()}}

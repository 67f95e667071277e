"""What an agent is, as data: the words of its config, with defaults that work without a key."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import timedelta
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from segue.agent.mistakes import Mistake, find_mistakes
from segue.agent.own_graph import check_beside_graph
from segue.agent.sections import OR_NONE, Expected
from segue.core.compress import Strategy
from segue.core.decide import Delays
from segue.core.durations import Length, parse_duration
from segue.core.errors import UsageError
from segue.core.policy import Policy
from segue.core.prompts import PromptVariant
from segue.core.triggers import TriggerType

POSSIBLE_EMBEDDERS: Final = "'local', or 'provider:model' such as 'openai:text-embedding-3-small'"
# The name of a text that simply replaces a trigger's prompt.
OWN_PROMPT: Final = "own"

_EMBEDDER: Final = re.compile(r"local|[^\s:][^:]*:.*\S.*")
_MISSED: Final = re.compile(r"run|skip|run_if_within:\d+(?:\.\d+)?", re.ASCII)
_WITHIN: Final = "run_if_within:"
_DECIDER: Final = re.compile(r"rules|model|none|[^\s:]+:[^\s:]+")


def check_embedder(name: str) -> str:
    """The name of an embedder, if it can be one; whether it is there shows when it is loaded."""
    if not _EMBEDDER.fullmatch(name):
        raise UsageError(f"There is no embedder {name!r}; an embedder is {POSSIBLE_EMBEDDERS}.")
    return name


def _check_id(id: str) -> str:
    if not id.isprintable() or id != id.strip():
        raise UsageError(
            f"The id {id!r} has control characters, or blanks around it; expected plain text."
        )
    return id


def _check_missed(policy: str) -> str:
    """The policy as timers keep it, with its length of time in seconds."""
    with suppress(UsageError):
        if policy.startswith(_WITHIN):
            span = parse_duration(policy.removeprefix(_WITHIN))
            return f"{_WITHIN}{round(span.total_seconds())}"
    if not _MISSED.fullmatch(policy):
        raise UsageError(
            f"There is no policy {policy!r}; expected 'run', 'skip' or 'run_if_within:' with a "
            "length of time."
        )
    return policy


def _check_decider(given: Any) -> Any:
    named = isinstance(given, str) and _DECIDER.fullmatch(given)
    if not named and not callable(getattr(given, "decide", given)):
        raise UsageError(
            f"There is no decider {given!r:.80}; expected 'rules', 'model', 'none', a function, or "
            "the path of one, 'package.module:attribute'."
        )
    return given


def _check_delays(delays: Delays) -> Delays:
    for each in fields(delays):
        if getattr(delays, each.name) <= timedelta():
            raise UsageError(f"The delay {each.name} is not above zero.")
    return delays


def _as_list(given: Any) -> Any:
    """As the environment writes it: with commas, or a single one."""
    return [each.strip() for each in given.split(",")] if isinstance(given, str) else given


def _as_variants(given: Any) -> Any:
    """A single text is a single variant."""
    return [{"name": OWN_PROMPT, "text": given}] if isinstance(given, str) else given


def _check_variants(variants: tuple[PromptVariant, ...]) -> tuple[PromptVariant, ...]:
    names = [variant.name for variant in variants]
    if not names:
        raise UsageError("There is no variant; leave the trigger out to keep its fixed prompt.")
    if len(set(names)) < len(names):
        raise UsageError(f"Two variants share a name: {', '.join(names)}.")
    return variants


Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Span = Annotated[Length, Field(gt=timedelta(0))]
# A list that may be written as one text, with commas.
FROM_TEXT: Final = BeforeValidator(_as_list)
Variants = Annotated[
    tuple[PromptVariant, ...], BeforeValidator(_as_variants), AfterValidator(_check_variants)
]


class Config(BaseModel):
    """Settings that are checked when they are read, and never change afterwards.

    What is wrong is a `UsageError` that names every mistake, one on a line.
    """

    # What is wrong is named, not quoted: secrets may stand beside it.
    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UsageError(_told(find_mistakes(error, type(self), values))) from None

    # Otherwise pydantic would call it for a section in another one, too, and lose its place.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # pydantic's own mark

    @classmethod
    def parse(cls, values: Mapping[str, Any], name: str) -> Self:
        """The config in `values`; `UsageError` naming each setting that is wrong."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            found = find_mistakes(error, cls, values)
            raise UsageError(_told(Mistake((name, *m.place), m.words) for m in found)) from None


def _told(mistakes: Iterable[Mistake]) -> str:
    return "\n".join(map(str, mistakes))


class MemoryConfig(Config):
    """Long-term memory: what is searched before a reply, and how much of it is told."""

    enabled: bool = True
    """Whether the agent remembers anything about its users; with a `graph`, off unless set."""
    embedder: Annotated[
        str, AfterValidator(check_embedder), Expected("'local' or 'provider:model'")
    ] = "local"
    """What turns texts into vectors: `local`, or any LangChain `provider:model`."""
    limit: Count = 5
    """How many memories a reply is told at most."""
    max_tokens: Count = 500
    """In how many tokens they are told at most."""
    threshold: Annotated[Share | None, OR_NONE] = None
    """The least similarity of a memory that shares no word with the query; `none` means the
    embedder's own.
    """
    text_weight: Share = 0.5
    """The share of words against meaning: 0 goes by meaning alone, 1 by words alone."""
    time_limit: Span = timedelta(seconds=2)
    """A reply does not wait longer than this for memories."""
    duplicate_at: Share = 0.95
    """A fact this similar to one that is there replaces it."""
    capacity: Count = 1_000
    """How many facts one user may have with one agent."""


class Limits(Config):
    """How long and how far one run may go."""

    steps: Count = 50
    """Model calls and tool steps of one run."""
    model_time: Span = timedelta(seconds=120)
    """How long one model call may take."""
    tool_time: Span = timedelta(seconds=60)
    """How long one tool may take."""


class Autonomy(Config):
    """When and how the agent speaks first."""

    enabled: bool = True
    """Off, nothing is planned. The policy's own switch stops what is planned already."""
    policy: Policy = Policy()
    """What the gates allow."""
    delays: Annotated[Delays, AfterValidator(_check_delays)] = Delays()
    """How long the user's silence lasts before the first follow-up, by trigger."""
    prompts: Annotated[
        Mapping[TriggerType, Variants], Expected("a table of texts, or of variants, by trigger")
    ] = Field(default_factory=dict)
    """By trigger, a text instead of its fixed prompt, or weighted variants of one."""
    holdout: Share = 0.0
    """The share of follow-ups that are not sent, to learn what silence does."""
    decider: Annotated[
        Any,
        AfterValidator(_check_decider),
        Expected("'rules', 'model', 'none' or 'package.module:attribute'"),
    ] = "rules"
    """What plans follow-ups: the rules, the agent's model, nothing, or a function of yours."""
    missed: Annotated[
        str,
        AfterValidator(_check_missed),
        Expected("'run', 'skip' or 'run_if_within:' with a length of time"),
    ] = "run"
    """What becomes of a follow-up that is found late, after the process was down."""
    expires_after: Annotated[Span | None, OR_NONE] = timedelta(days=2)
    """How long after its time a follow-up may still be sent; `none` means for ever."""


class CompressionConfig(Config):
    """What becomes of a conversation that outgrows its window; history keeps all of it."""

    enabled: bool = True
    """Off, what does not fit is simply left out, the oldest first."""
    strategy: Strategy = Strategy.SUMMARISE
    """Who leaves: the oldest, summed up by a model or not, or what matters least, as such or with
    its age. Only `summarise` asks a model.
    """
    trigger_share: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Above this share of `context_tokens`, batches leave; always before the answer's part."""
    target_share: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Until at most this share is left, the summary included."""
    keep: Count = 4
    """So many of the last batches never leave."""
    half_life: Span = timedelta(days=7)
    """With `time_decay`, in this time a batch loses half of what it matters."""
    summary_tokens: Count = 500
    """How long a summary may be; never more than half of `target_share`."""
    model: Annotated[str | None, OR_NONE, Expected("'local', 'scripted' or 'provider:model'")] = (
        None
    )
    """What sums up; `none` means the agent's own model. Its window is at least as large."""

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.target_share >= self.trigger_share:
            raise UsageError(
                f"target_share is {self.target_share:g}; expected less than trigger_share, "
                f"{self.trigger_share:g}, or each turn would be compressed."
            )
        return self


class WebhookConfig(Config):
    """Where what the agent says is sent, so that it reaches a user who is not there."""

    # Not in a `repr`: paths and queries of webhooks are often secrets.
    url: Annotated[
        str, Field(repr=False), Expected("a text that starts with 'https://' or 'http://'")
    ]
    """Your server's address."""
    secret: SecretStr
    """Shared with the receiver, who checks the signature with it; at least 16 characters."""
    all_replies: bool = False
    """Answers too, not follow-ups alone."""


class AgentConfig(Config):
    """One agent: a model with a prompt and tools, or a graph of your own."""

    id: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_id)]
    """The agent's name for programs; the section's name in a file."""
    name: str | None = None
    """The agent's name for people."""
    model: Annotated[str, Expected("'local', 'scripted' or 'provider:model'")] = "local"
    """The chat model: `local`, `scripted` for demos, or any LangChain `provider:model`."""
    model_settings: Mapping[str, Any] = Field(default_factory=dict)
    """Passed on to the model as they are: `temperature`, `max_tokens`, `base_url` and the like."""
    system_prompt: str = "You are a friendly companion. Answer briefly and naturally."
    """Who the agent is and how it speaks."""
    tools: Annotated[
        tuple[Any, ...], FROM_TEXT, Expected("a list of 'package.module:attribute'")
    ] = ()
    """LangChain tools, or functions with a docstring."""
    graph: Annotated[Any, Expected("'package.module:attribute'")] = None
    """A LangGraph graph of your own; replaces model, prompt, tools and what goes with them."""
    checkpoint_types: Annotated[
        tuple[str, ...], FROM_TEXT, Expected("a list of 'package.module:Type'")
    ] = ()
    """Types that a graph's checkpoints may hold besides those that its state declares."""
    context_tokens: Count = 8_000
    """The model's window; a quarter of it is kept for the answer."""
    memory: MemoryConfig = MemoryConfig()
    """What it remembers about its users."""
    limits: Limits = Limits()
    """How long and how far one run may go."""
    autonomy: Autonomy = Autonomy()
    """When and how it speaks first."""
    compression: CompressionConfig = CompressionConfig()
    """What becomes of a conversation that outgrows its window."""
    continuations: Annotated[int, Field(ge=0)] = 0
    """How often it may go on by itself in one batch, with `continue_later`."""
    may_ask: Annotated[tuple[str, ...], FROM_TEXT, Expected("a list of ids")] = ()
    """Other agents that it may ask, by id, with `ask_agent`."""
    webhook: WebhookConfig | None = None
    """Where what it says is sent."""

    @model_validator(mode="after")
    def _check_beside_graph(self) -> Self:
        check_beside_graph(self)
        return self

    @property
    def keeps_memories(self) -> bool:
        """Whether it remembers its users; with a graph of its own only if that was set."""
        is_wanted = self.graph is None or "enabled" in self.memory.model_fields_set
        return self.memory.enabled and is_wanted

"""What an agent is, as data: the words of its config, with defaults that work without a key."""

import re
from collections.abc import Mapping
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
)

from segue.core.decide import Delays
from segue.core.errors import UsageError
from segue.core.policy import Policy
from segue.core.prompts import PromptVariant
from segue.core.triggers import TriggerType

POSSIBLE_EMBEDDERS: Final = "'local', or 'provider:model' such as 'openai:text-embedding-3-small'"
# The name of a text that simply replaces a trigger's prompt.
OWN_PROMPT: Final = "own"

_EMBEDDER: Final = re.compile(r"local|[^\s:][^:]*:.*\S.*")
_MISSED: Final = re.compile(r"run|skip|run_if_within:\d+(?:\.\d+)?", re.ASCII)
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
    if not _MISSED.fullmatch(policy):
        raise UsageError(
            f"There is no policy {policy!r}; expected 'run', 'skip' or 'run_if_within:<seconds>'."
        )
    return policy


def _check_decider(name: str) -> str:
    if not _DECIDER.fullmatch(name):
        raise UsageError(
            f"There is no decider {name!r}; expected 'rules', 'model', 'none' or the path of one, "
            "'package.module:attribute'."
        )
    return name


def _check_delays(delays: Delays) -> Delays:
    for each in fields(delays):
        if getattr(delays, each.name) <= timedelta():
            raise UsageError(f"The delay {each.name} is not above zero.")
    return delays


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
Span = Annotated[timedelta, Field(gt=timedelta(0))]
Variants = Annotated[
    tuple[PromptVariant, ...], BeforeValidator(_as_variants), AfterValidator(_check_variants)
]


class Config(BaseModel):
    """Settings that are checked when they are read, and never change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    @classmethod
    def parse(cls, values: Mapping[str, Any], name: str) -> Self:
        """The config in `values`; `UsageError` naming each setting that is wrong."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join([name, *map(str, problem['loc'])])}: {_words(problem['msg'])}"
                for problem in error.errors(include_url=False)
            )
            raise UsageError(f"{wrong}.") from None


def _words(message: str) -> str:
    """A problem's words, without what pydantic puts before those of a check of ours."""
    return message.removeprefix("Value error, ").removesuffix(".")


class MemoryConfig(Config):
    """Long-term memory: what is searched before a reply, and how much of it is told."""

    enabled: bool = True
    # `local`, or any LangChain `provider:model`.
    embedder: Annotated[str, AfterValidator(check_embedder)] = "local"
    # How many memories are told at most, and in how many tokens.
    limit: Count = 5
    max_tokens: Count = 500
    # Least similarity of a memory that shares no word with the query. It depends on the embedder:
    # none means the embedder's own.
    threshold: Share | None = None
    # The share of words against meaning.
    text_weight: Share = 0.5
    # A reply does not wait longer than this for memories.
    time_limit: Span = timedelta(seconds=2)
    # A fact this similar to one that is there replaces it.
    duplicate_at: Share = 0.95
    # How many facts one user may have with one agent.
    capacity: Count = 1_000


class Limits(Config):
    """How long and how far one run may go."""

    # Model calls and tool steps of one run.
    steps: Count = 50
    model_time: Span = timedelta(seconds=120)
    tool_time: Span = timedelta(seconds=60)


class Autonomy(Config):
    """When and how the agent speaks first."""

    # Nothing is planned where it is off. The policy's own switch stops what is planned already.
    enabled: bool = True
    policy: Policy = Policy()
    # How long the user's silence lasts before the first follow-up, by trigger.
    delays: Annotated[Delays, AfterValidator(_check_delays)] = Delays()
    # By trigger, a text instead of its fixed prompt, or weighted variants of one.
    prompts: Mapping[TriggerType, Variants] = Field(default_factory=dict)
    # The share of follow-ups that are not sent, to learn what silence does.
    holdout: Share = 0.0
    # What plans follow-ups: `rules`, the agent's `model`, `none`, or a `package.module:attribute`.
    decider: Annotated[str, AfterValidator(_check_decider)] = "rules"
    # What becomes of a timer that is found late: run, skip, or run_if_within:<seconds>.
    missed: Annotated[str, AfterValidator(_check_missed)] = "run"
    # How long after its time a follow-up may still be sent; none means for ever.
    expires_after: Span | None = timedelta(days=2)


class WebhookConfig(Config):
    """Where what the agent says is sent, so that it reaches a user who is not there."""

    url: str
    # Shared with the receiver, who checks the signature with it.
    secret: SecretStr
    # Answers too, not follow-ups alone.
    all_replies: bool = False


class AgentConfig(Config):
    """One agent: a model with a prompt and tools, or a graph of your own."""

    id: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_id)]
    name: str | None = None
    # `provider:model`, `local`, or `scripted`.
    model: str = "local"
    # Passed on to the model as they are: temperature, max_tokens, base_url and the like.
    model_settings: Mapping[str, Any] = Field(default_factory=dict)
    system_prompt: str = "You are a friendly companion. Answer briefly and naturally."
    # Each a `package.module:attribute` that is a LangChain tool or a function, or such a thing.
    tools: tuple[Any, ...] = ()
    # A `package.module:attribute` that is a LangGraph graph, or a graph. Replaces all above.
    graph: Any = None
    # The model's window; a quarter of it is kept for the answer.
    context_tokens: Count = 8_000
    memory: MemoryConfig = MemoryConfig()
    limits: Limits = Limits()
    autonomy: Autonomy = Autonomy()
    # How often it may go on by itself in one batch, with `continue_later`.
    continuations: Annotated[int, Field(ge=0)] = 0
    # Other agents that it may ask, by id, with `ask_agent`.
    may_ask: tuple[str, ...] = ()
    webhook: WebhookConfig | None = None

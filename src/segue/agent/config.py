"""What an agent is, as data: the words of its config, with defaults that work without a key."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from segue.core.errors import UsageError

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Span = Annotated[timedelta, Field(gt=timedelta(0))]


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
                f"{'.'.join([name, *map(str, problem['loc'])])}: {problem['msg']}"
                for problem in error.errors(include_url=False)
            )
            raise UsageError(f"{wrong}.") from None


class MemoryConfig(Config):
    """Long-term memory: what is searched before a reply, and how much of it is told."""

    enabled: bool = True
    # `local`, or any LangChain `provider:model`.
    embedder: str = "local"
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


class AgentConfig(Config):
    """One agent: a model with a prompt and tools, or a graph of your own."""

    id: Annotated[str, Field(min_length=1, max_length=200)]
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

"""What LangGraph's clients send to start a run. A field that cannot be honoured is refused."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from segue.core.turn_rules import DoubleTexting
from segue.errors import UsageError
from segue.server.requests import StrictModel

MODES: Final = frozenset({"values", "messages", "messages-tuple", "updates", "custom", "events"})
_NO_DATA: Final = "Segue has no data for it; use one of: " + ", ".join(sorted(MODES))
NO_FORK: Final = (
    "not supported: a thread goes on from its end; it keeps no checkpoints to fork from"
)
_REFUSED: Final[Mapping[str, str]] = {
    "interrupt_before": "a run stops only where its graph asks a question",
    "interrupt_after": "a run stops only where its graph asks a question",
    "webhook": "webhooks are set in the settings of an agent",
    "after_seconds": "a run starts at once; a reminder or a follow-up can wait",
    "context": "the context of a graph is set by its owner, not by clients",
    "metadata": "runs keep no metadata of clients; threads do",
    "feedback_keys": "there is no LangSmith here to give feedback to",
}
# What `config` may hold: a client's binding to the thread, and what only concerns tracing.
_CONFIGURABLE: Final = frozenset({"thread_id", "assistant_id", "graph_id"})
_CONFIG: Final = frozenset({"configurable", "tags", "metadata", "recursion_limit", "run_name"})


class RunOptions(StrictModel):
    """Beside its assistant and its input; also those that change nothing here: every run is
    durable, its stream can be resumed, and no subgraph is shown.
    """

    command: dict[str, Any] | None = None
    multitask_strategy: Literal["reject", "interrupt", "rollback", "enqueue"] | None = None
    if_not_exists: Literal["create", "reject"] | None = None
    on_disconnect: Literal["continue", "cancel"] | None = None
    on_completion: Literal["delete", "keep"] | None = None
    stream_mode: str | list[str] = "values"
    config: dict[str, Any] | None = None

    stream_subgraphs: bool = False
    stream_resumable: bool = False
    durability: Literal["sync", "async", "exit"] | None = None
    checkpoint_during: bool | None = None
    strict_resume: bool | None = None
    langsmith_tracer: Any = None

    checkpoint: Any = None
    checkpoint_id: Any = None
    interrupt_before: Any = None
    interrupt_after: Any = None
    webhook: Any = None
    after_seconds: Any = None
    context: Any = None
    metadata: Any = None
    feedback_keys: Any = None

    @property
    def named_checkpoint(self) -> Any:
        """The id of the state that a client goes on from, if it names one."""
        if isinstance(self.checkpoint, Mapping):
            return self.checkpoint.get("checkpoint_id") or self.checkpoint_id
        return self.checkpoint or self.checkpoint_id

    @property
    def strategy(self) -> DoubleTexting | None:
        return None if self.multitask_strategy is None else DoubleTexting(self.multitask_strategy)

    @property
    def modes(self) -> frozenset[str]:
        return parse_modes(self.stream_mode)

    def check(self) -> None:
        """`UsageError` names the first field that cannot be honoured."""
        for name, reason in _REFUSED.items():
            if getattr(self, name):
                raise UsageError(f"{name}: not supported: {reason}.")
        if self.multitask_strategy == "rollback":
            raise UsageError(
                "multitask_strategy: 'rollback' is not supported: a stored message is never taken "
                "back; use 'interrupt'."
            )
        _check_config(self.config or {})
        parse_modes(self.stream_mode)


class RunIn(RunOptions):
    """A run on a thread, or a stateless one."""

    assistant_id: str = Field(max_length=200)
    input: Any = None


def _check_config(config: Mapping[str, Any]) -> None:
    inner = config.get("configurable") or {}
    if not isinstance(inner, Mapping):
        raise UsageError("config.configurable: expected an object.")
    if inner.get("checkpoint_id") or inner.get("checkpoint_ns"):
        raise UsageError(f"config.configurable: {NO_FORK}.")
    unknown = sorted(name for name in inner if inner[name] and name not in _CONFIGURABLE)
    unknown += sorted(name for name in config if config[name] and name not in _CONFIG)
    if unknown:
        raise UsageError(
            f"config: {unknown[0]!r:.60} is not supported: a graph is configured by its owner, "
            "not by clients."
        )


def parse_modes(given: str | list[str]) -> frozenset[str]:
    modes = frozenset([given] if isinstance(given, str) else given)
    if unknown := sorted(modes - MODES):
        raise UsageError(f"stream_mode: {unknown[0]!r:.60} is not supported: {_NO_DATA}.")
    return modes

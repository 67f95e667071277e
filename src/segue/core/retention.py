"""Retention: which whole batches to delete, by age, count and type."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from segue.core.metadata import BatchType
from segue.errors import UsageError


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """The facts about a stored batch that rules use."""

    id: int
    type: BatchType
    messages: int
    # When its last message was stored.
    last_at: datetime
    # Queued, running, or waiting for an answer or a continuation.
    is_unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """Delete batches older than `older_than`, except the last `keep_last` of their thread.

    With types, only batches of these types are deleted and counted. Without an age, all but the
    last ones are deleted; without a count, all older ones.
    """

    older_than: timedelta | None = None
    keep_last: int | None = None
    types: Collection[BatchType] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if self.older_than is None and self.keep_last is None:
            raise UsageError("A retention rule needs older_than or keep_last; it has neither.")
        if self.older_than is not None and self.older_than <= timedelta(0):
            raise UsageError(f"older_than is {self.older_than}; expected more than 0.")
        if self.keep_last is not None and self.keep_last < 1:
            raise UsageError(f"keep_last is {self.keep_last}; expected at least 1.")

    def expired(self, batches: Sequence[KeptBatch], now: datetime) -> list[KeptBatch]:
        """Those of a thread's batches to delete, oldest first.

        Never the newest of the thread, and never an unfinished one.
        """
        ordered = sorted(batches, key=lambda batch: batch.id)
        matching = [b for b in ordered if not self.types or b.type in self.types]
        last = matching[-self.keep_last :] if self.keep_last else []
        kept = {batch.id for batch in (*ordered[-1:], *last)}
        return [
            batch
            for batch in matching
            if batch.id not in kept and not batch.is_unfinished and self._is_old(batch, now)
        ]

    def _is_old(self, batch: KeptBatch, now: datetime) -> bool:
        return self.older_than is None or now - batch.last_at > self.older_than


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """At most one rule per batch type; without a rule nothing is deleted."""

    rules: Sequence[RetentionRule] = ()

    def __post_init__(self) -> None:
        ruled = Counter(kind for rule in self.rules for kind in rule.types or BatchType)
        if twice := [kind.value for kind, times in ruled.items() if times > 1]:
            raise UsageError(
                f"Only one retention rule per batch type; several match {', '.join(twice)}."
            )

    @property
    def among_agents(self) -> "RetentionPolicy | None":
        """The rules for `agent_to_agent` batches alone, if any.

        Under a rule for all types, these batches are deleted with the batch that asked.
        """
        rules = [rule for rule in self.rules if {*rule.types} == {BatchType.AGENT_TO_AGENT}]
        return RetentionPolicy(rules) if rules else None

    def expired(self, batches: Sequence[KeptBatch], now: datetime) -> list[KeptBatch]:
        """Those of a thread's batches to delete by any rule, oldest first."""
        gone = [batch for rule in self.rules for batch in rule.expired(batches, now)]
        return sorted(gone, key=lambda batch: batch.id)

"""Which batches have been kept long enough: whole ones, by age and by count, for each type."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from segue.core.errors import UsageError
from segue.core.metadata import BatchType


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """What a rule has to know of a stored batch."""

    id: int
    type: BatchType
    messages: int
    # When its last message was stored.
    last_at: datetime
    # Somebody works on it, or will.
    is_unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """Batches go that are older than a time and not among the last ones of their thread.

    With types, it is about batches of these alone; the last ones are counted among them. Without a
    time, all but the last ones go; without a count, all that are older.
    """

    older_than: timedelta | None = None
    keep_last: int | None = None
    types: Collection[BatchType] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if self.older_than is None and self.keep_last is None:
            raise UsageError("A rule needs an age or a number of batches to keep; it has neither.")
        if self.older_than is not None and self.older_than <= timedelta(0):
            raise UsageError(f"An age is more than nothing, not {self.older_than}.")
        if self.keep_last is not None and self.keep_last < 1:
            raise UsageError(f"At least one batch is kept, not {self.keep_last}.")

    def expired(self, batches: Sequence[KeptBatch], now: datetime) -> list[KeptBatch]:
        """Of all batches of a thread those that go, oldest first.

        Never the newest one of all, and never one that is not finished.
        """
        ordered = sorted(batches, key=lambda batch: batch.id)
        meant = [b for b in ordered if not self.types or b.type in self.types]
        last = meant[-self.keep_last :] if self.keep_last else []
        kept = {batch.id for batch in (*ordered[-1:], *last)}
        return [
            batch
            for batch in meant
            if batch.id not in kept and not batch.is_unfinished and self._is_old(batch, now)
        ]

    def _is_old(self, batch: KeptBatch, now: datetime) -> bool:
        return self.older_than is None or now - batch.last_at > self.older_than


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Rules of which each batch has one at most, so that none is kept by one and lost by another.

    Without any rule, nothing goes.
    """

    rules: Sequence[RetentionRule] = ()

    def __post_init__(self) -> None:
        ruled = Counter(kind for rule in self.rules for kind in rule.types or BatchType)
        if twice := [kind.value for kind, times in ruled.items() if times > 1]:
            raise UsageError(f"A batch has one rule; there are several for {', '.join(twice)}.")

    @property
    def among_agents(self) -> "RetentionPolicy | None":
        """What is said of batches in which agents ask each other, and of no others.

        By a rule for all types, they go with the batch that asked.
        """
        rules = [rule for rule in self.rules if {*rule.types} == {BatchType.AGENT_TO_AGENT}]
        return RetentionPolicy(rules) if rules else None

    def expired(self, batches: Sequence[KeptBatch], now: datetime) -> list[KeptBatch]:
        """Of all batches of a thread those that go by any rule, oldest first."""
        gone = [batch for rule in self.rules for batch in rule.expired(batches, now)]
        return sorted(gone, key=lambda batch: batch.id)

"""Which batches go by a rule."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.errors import UsageError
from segue.core.metadata import BatchType
from segue.core.retention import KeptBatch, RetentionRule

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
DAY = timedelta(days=1)
ASKED, TRIGGERED = BatchType.USER_REQUEST, BatchType.SYSTEM_TRIGGER


def kept(
    *days: int, types: Sequence[BatchType] = (), open_ones: Sequence[int] = ()
) -> list[KeptBatch]:
    """Batches that are so many days old, oldest first."""
    kinds = types or (ASKED,) * len(days)
    return [
        KeptBatch(n, kind, 2, NOW - age * DAY, n in open_ones)
        for n, (age, kind) in enumerate(zip(days, kinds, strict=True), 1)
    ]


def gone(rule: RetentionRule, batches: list[KeptBatch]) -> list[int]:
    return [batch.id for batch in rule.expired(batches, NOW)]


def test_what_is_older_goes() -> None:
    """By the time of the last message; what is exactly as old stays."""
    assert gone(RetentionRule(older_than=90 * DAY), kept(200, 91, 90, 1)) == [1, 2]


def test_all_but_the_last_ones_go() -> None:
    """Whatever their age."""
    assert gone(RetentionRule(keep_last=2), kept(4, 3, 2, 1)) == [1, 2]


def test_with_age_and_number_both_have_to_be_so() -> None:
    """A quiet thread keeps its last batches, a busy one its young ones."""
    rule = RetentionRule(older_than=90 * DAY, keep_last=2)
    assert gone(rule, kept(200, 150, 100)) == [1]
    assert gone(rule, kept(200, 3, 2, 1)) == [1]


def test_a_rule_may_be_about_some_types_alone() -> None:
    """Then the last ones are counted among these."""
    batches = kept(9, 8, 7, 6, 5, types=(TRIGGERED, ASKED, TRIGGERED, TRIGGERED, ASKED))
    assert gone(RetentionRule(older_than=DAY, types={TRIGGERED}), batches) == [1, 3, 4]
    assert gone(RetentionRule(keep_last=1, types={TRIGGERED}), batches) == [1, 3]


def test_an_unfinished_batch_stays() -> None:
    """However old it is."""
    assert gone(RetentionRule(older_than=DAY), kept(9, 8, 7, open_ones=(2,))) == [1]


@given(
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from(BatchType), st.booleans()), min_size=1),
    st.one_of(st.none(), st.integers(1, 300)),
    st.one_of(st.none(), st.integers(1, 5)),
)
def test_the_newest_and_the_unfinished_always_stay(
    drawn: list[tuple[int, BatchType, bool]], days: int | None, last: int | None
) -> None:
    """Whatever the rule says."""
    batches = [KeptBatch(n, kind, 1, NOW - d * DAY, o) for n, (d, kind, o) in enumerate(drawn, 1)]
    if days is None and last is None:
        return
    rule = RetentionRule(older_than=None if days is None else days * DAY, keep_last=last)
    expired = rule.expired(batches, NOW)
    assert batches[-1] not in expired
    assert not any(batch.is_unfinished for batch in expired)


@pytest.mark.parametrize(
    "wrong", [{}, {"older_than": timedelta(0)}, {"keep_last": 0}, {"types": {TRIGGERED}}]
)
def test_a_rule_that_says_nothing_is_refused(wrong: dict[str, object]) -> None:
    """A slip must not be one that removes everything."""
    with pytest.raises(UsageError):
        RetentionRule(**wrong)  # type: ignore[arg-type]  # that is what is refused

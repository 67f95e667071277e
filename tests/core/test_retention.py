"""Which batches go by a rule, and by a policy of several."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.metadata import BatchType
from segue.core.retention import KeptBatch, RetentionPolicy, RetentionRule
from segue.errors import UsageError

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
DAY = timedelta(days=1)
ASKED, TRIGGERED = BatchType.USER_REQUEST, BatchType.SYSTEM_TRIGGER
AMONG_AGENTS = BatchType.AGENT_TO_AGENT


def kept(
    *days: int, types: Sequence[BatchType] = (), open_ones: Sequence[int] = ()
) -> list[KeptBatch]:
    """Batches that are so many days old, oldest first."""
    kinds = types or (ASKED,) * len(days)
    return [
        KeptBatch(n, kind, 2, NOW - age * DAY, n in open_ones)
        for n, (age, kind) in enumerate(zip(days, kinds, strict=True), 1)
    ]


def gone(rule: RetentionRule | RetentionPolicy, batches: list[KeptBatch]) -> list[int]:
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


def test_each_type_has_its_own_age() -> None:
    """What goes is told oldest first, whichever rule it goes by."""
    policy = RetentionPolicy(
        [
            RetentionRule(older_than=365 * DAY, types={ASKED}),
            RetentionRule(older_than=30 * DAY, types={TRIGGERED}),
            RetentionRule(older_than=7 * DAY, types={AMONG_AGENTS}),
        ]
    )
    kinds = (TRIGGERED, ASKED, TRIGGERED, AMONG_AGENTS, ASKED, AMONG_AGENTS, ASKED)
    assert gone(policy, kept(500, 400, 40, 20, 20, 5, 1, types=kinds)) == [1, 2, 3, 4]


def test_each_type_keeps_its_own_last_ones() -> None:
    """Many of one type do not push out those of another."""
    policy = RetentionPolicy(
        [RetentionRule(keep_last=2, types={ASKED}), RetentionRule(keep_last=1, types={TRIGGERED})]
    )
    kinds = (ASKED, ASKED, TRIGGERED, TRIGGERED, ASKED, TRIGGERED)
    assert gone(policy, kept(9, 8, 7, 6, 5, 4, types=kinds)) == [1, 3, 4]


def test_without_a_rule_nothing_goes() -> None:
    """Of a type that no rule is about, everything stays."""
    assert gone(RetentionPolicy(), kept(900, 800, 1)) == []
    policy = RetentionPolicy([RetentionRule(older_than=DAY, types={TRIGGERED})])
    assert gone(policy, kept(900, 800, 1)) == []


@pytest.mark.parametrize("second", [{ASKED, TRIGGERED}, set()], ids=["named", "all"])
def test_no_batch_has_two_rules(second: set[BatchType]) -> None:
    """Nobody could say which of the two holds."""
    first = RetentionRule(older_than=DAY, types={TRIGGERED})
    with pytest.raises(UsageError, match="system_trigger"):
        RetentionPolicy([first, RetentionRule(keep_last=1, types=second)])


rules = st.builds(
    lambda days, last: (days * DAY if days else None, last if last or days else 1),
    st.one_of(st.none(), st.integers(1, 300)),
    st.one_of(st.none(), st.integers(1, 5)),
)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from(BatchType), st.booleans()), min_size=1),
    st.dictionaries(st.sampled_from(BatchType), rules),
)
def test_a_policy_takes_from_each_type_what_its_rule_says(
    drawn: list[tuple[int, BatchType, bool]],
    by_type: dict[BatchType, tuple[timedelta | None, int | None]],
) -> None:
    """No more and no less; and the newest and the unfinished stay, whatever it says."""
    batches = [KeptBatch(n, kind, 1, NOW - d * DAY, o) for n, (d, kind, o) in enumerate(drawn, 1)]
    alone = {
        kind: RetentionRule(older_than=age, keep_last=last, types={kind})
        for kind, (age, last) in by_type.items()
    }
    expired = RetentionPolicy([*alone.values()]).expired(batches, NOW)
    assert [batch.id for batch in expired] == sorted({batch.id for batch in expired})
    for kind in BatchType:
        by_rule = alone[kind].expired(batches, NOW) if kind in alone else []
        assert [batch for batch in expired if batch.type is kind] == by_rule
    assert batches[-1] not in expired
    assert not any(batch.is_unfinished for batch in expired)


def test_only_a_rule_of_its_own_is_about_what_agents_ask_each_other() -> None:
    """By a rule for several types it goes with the batch that asked."""
    own = RetentionRule(older_than=DAY, types={AMONG_AGENTS})
    rest = RetentionRule(older_than=DAY, types={ASKED})
    assert RetentionPolicy([rest, own]).among_agents == RetentionPolicy([own])
    for types in ({AMONG_AGENTS, ASKED}, frozenset[BatchType]()):
        rule = RetentionRule(older_than=DAY, types=types)
        assert RetentionPolicy([rule]).among_agents is None

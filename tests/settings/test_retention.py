"""The policy that the settings of retention amount to."""

from datetime import timedelta
from typing import Any

import pytest

from segue.core.metadata import BatchType
from segue.core.retention import RetentionRule
from segue.errors import UsageError
from segue.settings import Settings, load_settings

ASKED, TRIGGERED = BatchType.USER_REQUEST, BatchType.SYSTEM_TRIGGER
YEAR, MONTH, WEEK = timedelta(days=365), timedelta(days=30), timedelta(days=7)


def rules(retention: dict[str, Any]) -> list[RetentionRule]:
    policy = Settings(retention=retention).retention.policy  # type: ignore[arg-type]  # as in a file
    return [] if policy is None else [*policy.rules]


def test_the_others_are_all_types_without_a_section() -> None:
    """One age for most, and another for each type that has its own."""
    found = rules({"older_than": "365d", "by_type": {"system_trigger": {"older_than": "30d"}}})
    assert found == [
        RetentionRule(older_than=YEAR, types=frozenset(BatchType) - {TRIGGERED}),
        RetentionRule(older_than=MONTH, types=frozenset({TRIGGERED})),
    ]


def test_a_type_with_an_empty_section_is_kept_for_ever() -> None:
    """And a section takes nothing over from above."""
    found = rules({"keep_last": 1, "by_type": {"user_request": {}}})
    assert found == [RetentionRule(keep_last=1, types=frozenset(BatchType) - {ASKED})]


def test_a_rule_that_is_about_no_type_any_more_is_not_about_all() -> None:
    """The only type that is named has a section of its own: the rest stays."""
    only = {"older_than": "30d", "types": ["system_trigger"]}
    assert rules({**only, "by_type": {"system_trigger": {}}}) == []
    found = rules({**only, "by_type": {"system_trigger": {"older_than": "7d"}}})
    assert found == [RetentionRule(older_than=WEEK, types=frozenset({TRIGGERED}))]


def test_a_section_alone_leaves_the_others_alone() -> None:
    """Nothing else goes unless something is set for it."""
    found = rules({"by_type": {"system_trigger": {"keep_last": 3}}})
    assert found == [RetentionRule(keep_last=3, types=frozenset({TRIGGERED}))]


def test_variables_set_it_too() -> None:
    """By the type's name in capitals."""
    environ = {"SEGUE_RETENTION__BY_TYPE__SYSTEM_TRIGGER__OLDER_THAN": "30d"}
    policy = load_settings(environ=environ).retention.policy
    assert policy is not None
    assert policy.rules == [RetentionRule(older_than=MONTH, types=frozenset({TRIGGERED}))]


@pytest.mark.parametrize(
    "wrong", [{"followup": {}}, {"system_trigger": {"older_than": "0d"}}, {"system_trigger": 30}]
)
def test_a_slip_is_told_with_its_place(wrong: dict[str, Any]) -> None:
    """A type that there is not, an age that is none, an age without its name."""
    with pytest.raises(UsageError, match=r"retention\.by_type"):
        rules({"by_type": wrong})

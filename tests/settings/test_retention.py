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


@pytest.mark.parametrize("age", [90, 90.5, "90", "+90", "30s", "59m", timedelta(seconds=90)])
def test_an_age_has_its_unit_and_is_an_hour_or_more(age: Any) -> None:
    """`90` is not read as 90 seconds, after which the next start would delete nearly everything."""
    expected = (
        r"retention\..*older_than: got .*; expected a length of time with its unit "
        r"\('36h', '90d', '52 weeks'\), at least 1h, or 'none'\."
    )
    for retention in ({"older_than": age}, {"by_type": {"system_trigger": {"older_than": age}}}):
        with pytest.raises(UsageError, match=expected):
            rules(retention)
    assert rules({"older_than": "1h"}) == [
        RetentionRule(older_than=timedelta(hours=1), types=frozenset(BatchType))
    ]


def test_what_is_deleted_can_be_read() -> None:
    """Each rule in plain English; nothing if nothing ever is."""
    assert Settings().retention.deleted is None
    settings = Settings(
        retention={  # type: ignore[arg-type]  # as in a file
            "older_than": "90d",
            "keep_last": 20,
            "by_type": {"system_trigger": {"older_than": "36h"}, "continuation": {"keep_last": 3}},
        }
    )
    assert settings.retention.deleted == (
        "user_request, agent_to_agent batches with no new message for 90 days except the last 20 "
        "of each thread; system_trigger batches with no new message for 1 day and 12 hours; "
        "continuation batches except the last 3 of each thread"
    )


@pytest.mark.parametrize(
    "wrong", [{"followup": {}}, {"system_trigger": {"older_than": "0d"}}, {"system_trigger": 30}]
)
def test_a_slip_is_told_with_its_place(wrong: dict[str, Any]) -> None:
    """A type that there is not, an age that is none, an age without its name."""
    with pytest.raises(UsageError, match=r"retention\.by_type"):
        rules({"by_type": wrong})

"""Rates with their intervals, and the difference of two rates."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.insight.stats import Rate, compare, wilson

COUNTS = st.integers(1, 10_000)
SHARES = st.floats(0, 1)


def rate(hits: float, cases: int) -> Rate:
    found = Rate.of(hits, cases)
    assert found is not None
    return found


rates = st.builds(lambda cases, share: rate(round(cases * share), cases), COUNTS, SHARES)


@pytest.mark.parametrize(
    ("hits", "cases", "low", "high"),
    [
        (8, 10, 0.4902, 0.9433),
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_intervals_are_those_of_the_textbook(
    hits: int, cases: int, low: float, high: float
) -> None:
    """Wilson intervals, to four decimal places."""
    found = Rate.of(hits, cases)
    assert found is not None
    assert (found.cases, found.value) == (cases, hits / cases)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_without_a_case_there_is_no_rate() -> None:
    """Nothing out of nothing is not zero."""
    assert Rate.of(0, 0) is None


@given(SHARES, COUNTS)
def test_a_rate_lies_in_its_interval(share: float, cases: int) -> None:
    """And the interval among the shares that there are."""
    low, high = wilson(share, cases)
    assert 0 <= low <= share <= high <= 1
    assert low < high


@given(SHARES, COUNTS, COUNTS)
def test_more_cases_say_more(share: float, some: int, more: int) -> None:
    """The interval narrows."""
    low, high = wilson(share, some)
    narrow_low, narrow_high = wilson(share, some + more)
    assert narrow_high - narrow_low < high - low


@given(SHARES, COUNTS)
def test_yes_and_no_are_alike(share: float, cases: int) -> None:
    """The interval of those who did not is the mirror of those who did."""
    low, high = wilson(share, cases)
    assert wilson(1 - share, cases) == pytest.approx((1 - high, 1 - low))


@given(rates, rates)
def test_a_difference_reads_the_same_from_both_sides(one: Rate, other: Rate) -> None:
    """Swapping the rates changes only the sign, and the value lies in its interval."""
    here, there = compare(one, other), compare(other, one)
    assert (here.value, here.low, here.high) == pytest.approx(
        (-there.value, -there.high, -there.low)
    )
    assert -1 <= here.low <= here.value <= here.high <= 1


def test_a_difference_is_that_of_the_textbook() -> None:
    """Newcombe's first example, 56 of 70 against 48 of 80, to four decimal places."""
    found = compare(rate(56, 70), rate(48, 80))
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_a_real_difference_is_found_and_a_few_threads_prove_nothing() -> None:
    """The interval leaves zero with 300 threads in each arm, and keeps it with 10."""
    assert compare(rate(180, 300), rate(120, 300)).low > 0
    assert compare(rate(6, 10), rate(4, 10)).low < 0


def test_equal_arms_rarely_seem_to_differ() -> None:
    """Of 1,000 experiments without a difference, about 5 % have an interval without zero."""
    random = Random(7)  # noqa: S311 - the same experiments on each run
    alarms = 0
    for _ in range(1_000):
        one, other = (rate(sum(random.random() < 0.4 for _ in range(80)), 80) for _ in "ab")
        found = compare(one, other)
        alarms += found.low > 0 or found.high < 0
    assert alarms <= 70

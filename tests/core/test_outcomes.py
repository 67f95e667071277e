"""Rates with their intervals, and arms compared so that looking often proves nothing by itself."""

import math
from itertools import accumulate, pairwise
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from segue.core.outcomes import (
    ALPHA,
    MARGIN,
    MIN_THREADS,
    Arm,
    Comparison,
    Rate,
    Verdict,
    compare,
    half_width,
    wilson,
)

COUNTS = st.integers(1, 10_000)
SHARES = st.floats(0, 1)
Z = 1.959963984540054


def arm(threads: int, share: float) -> Arm:
    """Threads of one moment each, of which this share is a yes."""
    hits = round(threads * share)
    return Arm(threads, float(hits), float(hits), threads)


def arms(smallest: int = 1) -> st.SearchStrategy[Arm]:
    return st.builds(arm, st.integers(smallest, 20_000), SHARES)


def grown(given: Arm, times: float) -> Arm:
    """The same share in more threads."""
    threads = math.ceil(given.threads * times)
    factor = threads / given.threads
    return Arm(threads, given.total * factor, given.squares * factor, round(given.moments * factor))


@pytest.mark.parametrize(
    ("hits", "cases", "low", "high"),
    [
        (8, 10, 0.4902, 0.9433),
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_intervals_are_those_of_the_books(hits: int, cases: int, low: float, high: float) -> None:
    """Wilson's, to four places."""
    found = Rate.of(hits, cases)
    assert found is not None
    assert (found.hits, found.cases, found.value) == (hits, cases, hits / cases)
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


@given(arms(), arms())
def test_a_comparison_reads_the_same_from_both_sides(one: Arm, other: Arm) -> None:
    """What is better here is worse there, by as much, and waits for as many."""
    here, there = compare(one, other), compare(other, one)
    mirrored = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    assert mirrored.get(here.verdict, here.verdict) is there.verdict
    assert (here.difference, here.low, here.high) == pytest.approx(
        (-there.difference, -there.high, -there.low)
    )
    assert here.needed == there.needed


@given(arms(), arms())
def test_a_verdict_is_what_its_interval_says(one: Arm, other: Arm) -> None:
    """Better and worse leave no room for nothing, alike leaves none for more than the margin."""
    found = compare(one, other)
    assert -1 <= found.low <= found.difference <= found.high <= 1
    expected = {
        Verdict.BETTER: found.low > 0,
        Verdict.WORSE: found.high < 0,
        Verdict.ALIKE: found.low > -MARGIN and found.high < MARGIN,
        Verdict.TOO_EARLY: True,
    }
    assert expected[found.verdict]
    assert (found.needed is not None) == (found.verdict is Verdict.TOO_EARLY)


@given(arms(MIN_THREADS), arms(MIN_THREADS))
def test_as_many_more_as_are_asked_for_are_enough(one: Arm, other: Arm) -> None:
    """If the shares stay, the next verdict is one; and it takes no fewer than half of them."""
    found = compare(one, other)
    assume(found.needed is not None and found.needed < 10**8)
    times = 1 + (found.needed or 0) / (one.threads + other.threads)
    later = compare(grown(one, times * 1.05), grown(other, times * 1.05))
    assert later.verdict is not Verdict.TOO_EARLY
    # Of shares near none or all, more is believed to vary than does; growing soon shows it.
    if times > 2.2 and all(0.2 < each.mean < 0.8 for each in (one, other)):
        sooner = 1 + (times - 1) / 2
        assert compare(grown(one, sooner), grown(other, sooner)).verdict is Verdict.TOO_EARLY


@given(st.integers(1, MIN_THREADS - 1), arms())
def test_a_few_threads_prove_nothing(threads: int, other: Arm) -> None:
    """However clear they seem."""
    for share in (0, 1):
        found = compare(arm(threads, share), other)
        assert found.verdict is Verdict.TOO_EARLY
        assert (found.needed or 0) >= 1


def test_an_empty_arm_is_too_early() -> None:
    """And nobody can say how many it takes."""
    found = compare(arm(500, 0.5), Arm(0, 0.0, 0.0))
    assert (found.verdict, found.needed) == (Verdict.TOO_EARLY, None)
    assert found.sentence("followed up", "held out") == (
        "Too early to say: there is no conversation held out yet."
    )


def test_threads_that_agree_are_still_few() -> None:
    """Twenty silent users do not make silence certain."""
    assert arm(20, 0).variance > 0.001
    assert compare(arm(20, 0), arm(20, 0.2)).verdict is Verdict.TOO_EARLY


def test_threads_count_and_not_their_moments() -> None:
    """Ten moments in each thread that all say the same are one thread's worth."""
    often = Arm(100, 50.0, 50.0, 1_000)
    assert often.variance == pytest.approx(arm(100, 0.5).variance)
    assert (often + arm(100, 0.5)) == Arm(200, 100.0, 100.0, 1_100)


@given(st.lists(st.floats(1, 1e7), min_size=2, max_size=20, unique=True))
def test_the_interval_narrows_as_one_learns(informations: list[float]) -> None:
    """And is wider than one that holds for a single look."""
    widths = [half_width(information) for information in sorted(informations)]
    assert all(wide > narrow for wide, narrow in pairwise(widths))
    assert all(half_width(i) > Z / math.sqrt(i) for i in informations)


def alarms(random: Random, looks: int, step: int) -> tuple[bool, bool]:
    """Two equal arms, looked at again and again: whether we, and a single-look test, cried out."""
    one = [*accumulate(random.random() < 0.5 for _ in range(looks * step))]
    other = [*accumulate(random.random() < 0.5 for _ in range(looks * step))]
    ours = naive = False
    for size in range(step, looks * step + 1, step):
        left, right = (
            Arm(size, float(hits[size - 1]), float(hits[size - 1]), size) for hits in (one, other)
        )
        ours |= compare(left, right).verdict in (Verdict.BETTER, Verdict.WORSE)
        spread = math.sqrt(left.variance + right.variance)
        naive |= abs(left.mean - right.mean) > Z * spread
    return ours, naive


def test_who_looks_every_day_is_not_fooled() -> None:
    """Of 300 experiments without a difference, at most the promised share ever cries out, while
    the usual interval, looked at as often, cries out in more than a quarter of them.
    """
    random = Random(7)  # noqa: S311 - the same experiments on each run
    cried = [alarms(random, looks=60, step=25) for _ in range(300)]
    assert sum(ours for ours, _ in cried) <= ALPHA * len(cried)
    assert sum(naive for _, naive in cried) > len(cried) / 4


def test_a_real_difference_is_found() -> None:
    """Twenty points with a few hundred threads each; two points never, but that they are few."""
    assert compare(arm(300, 0.6), arm(300, 0.4)).verdict is Verdict.BETTER
    assert compare(arm(300, 0.4), arm(300, 0.6)).verdict is Verdict.WORSE
    assert compare(arm(20_000, 0.50), arm(20_000, 0.505)).verdict is Verdict.ALIKE


SENTENCES = {
    Verdict.BETTER: (
        'Better with "warm": users wrote after 62 % of the moments with "warm" and after '
        "40 % held out (+13 to +31 points)."
    ),
    Verdict.WORSE: (
        'Worse with "warm": users wrote after 40 % of the moments with "warm" and after '
        "62 % held out (-31 to -13 points)."
    ),
    Verdict.ALIKE: (
        "No difference worth speaking of: users wrote after 50 % of the moments with "
        '"warm" and after 50 % held out (-2 to +2 points).'
    ),
    Verdict.TOO_EARLY: (
        'Too early to say: users wrote after 50 % of the moments with "warm" and after '
        "40 % held out; about 877 more conversations would tell."
    ),
}


@pytest.mark.parametrize(
    "found",
    [
        compare(arm(500, 0.62), arm(500, 0.4)),
        compare(arm(500, 0.4), arm(500, 0.62)),
        compare(arm(20_000, 0.5), arm(20_000, 0.5)),
        compare(arm(100, 0.5), arm(50, 0.4)),
    ],
    ids=lambda found: found.verdict.value,
)
def test_a_comparison_is_said_in_a_sentence(found: Comparison) -> None:
    """With both shares, what it proves, or how many more it takes."""
    assert found.sentence('with "warm"', "held out") == SENTENCES[found.verdict]


def test_every_verdict_has_its_sentence() -> None:
    """None is left without words."""
    assert set(SENTENCES) == set(Verdict)

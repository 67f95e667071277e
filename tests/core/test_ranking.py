"""What words are worth, and the best by words and meaning."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.ranking import best_matches, full_score, relevances, word_weights

SCORES = st.dictionaries(st.integers(1, 50), st.integers(-100, 100).map(lambda n: n / 100))
WORD_SCORES = st.dictionaries(st.integers(1, 50), st.floats(0.01, 9), max_size=20)


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    """How much it says about a text falls with the number of texts that hold it."""
    weights = [word_weights(["tea"], {"tea": n}, 100)["tea"] for n in (1, 10, 50, 100)]
    assert all(rarer > commoner for rarer, commoner in pairwise(weights))


def test_a_word_that_is_everywhere_still_counts_for_a_text() -> None:
    """In a small namespace most words are common; none counts against a text."""
    assert word_weights(["tea"], {"tea": 2}, 2)["tea"] > 0


def test_a_word_asked_twice_counts_twice() -> None:
    """Who repeats a word in a question means it; one that nobody wrote is worth nothing."""
    weights = word_weights(["tea", "cat", "tea", "fox"], {"tea": 3, "cat": 3}, 9)
    assert weights["tea"] == pytest.approx(2 * weights["cat"])
    assert set(weights) == {"tea", "cat"}


def test_the_weight_decides_between_words_and_meaning() -> None:
    """All of it on one side ranks by that side."""
    by_text, by_vector = {1: 3.0, 2: 1.0}, {1: 0.1, 2: 0.9, 3: 0.5}
    assert best(by_text, by_vector, 1.0)[0] == 1
    assert best(by_text, by_vector, 0.0) == [2, 3, 1]


def best(by_text: dict[int, float], by_vector: dict[int, float], weight: float) -> list[int]:
    return list(best_matches(by_text, by_vector, text_weight=weight, threshold=None, limit=10))


def test_rounding_does_not_outweigh_words() -> None:
    """Vectors that differ by nothing but rounding leave the decision to the words."""
    assert best({2: 1.0}, {1: 0.5 + 1e-8, 2: 0.5}, 0.1) == [2, 1]


def test_without_vectors_the_words_decide_whatever_the_weight() -> None:
    """An embedder that is away changes no order of words."""
    assert best({1: 1.0, 2: 2.0}, {}, 0.0) == [2, 1]


def test_what_is_far_and_shares_no_word_is_left_out() -> None:
    """The threshold is for meaning; a common word is a reason of its own."""
    found = best_matches(
        {1: 1.0}, {1: 0.1, 2: 0.1, 3: 0.3}, text_weight=0.5, threshold=0.3, limit=10
    )
    assert set(found) == {1, 3}


def test_of_equals_the_older_one_comes_first() -> None:
    """A search that is made again gives the same order."""
    assert best({}, {3: 0.5, 1: 0.5, 2: 0.5}, 0.5) == [1, 2, 3]


@given(WORD_SCORES, SCORES, st.floats(0, 1), st.none() | st.floats(-1, 1), st.integers(1, 10))
def test_the_best_come_first_and_no_more_than_asked(
    by_text: dict[int, float],
    by_vector: dict[int, float],
    weight: float,
    threshold: float | None,
    limit: int,
) -> None:
    """Whatever the scores: falling order, within the limit, and only what was scored."""
    found = best_matches(by_text, by_vector, text_weight=weight, threshold=threshold, limit=limit)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert len(found) <= limit
    assert found.keys() <= by_text.keys() | by_vector.keys()


@given(WORD_SCORES, SCORES, st.floats(0, 1))
def test_a_limit_only_cuts_the_list(
    by_text: dict[int, float], by_vector: dict[int, float], weight: float
) -> None:
    """The first few of all are the few that are asked for."""
    few, every = (
        list(best_matches(by_text, by_vector, text_weight=weight, threshold=None, limit=limit))
        for limit in (3, 100)
    )
    assert few == every[:3]
    assert set(every) == by_text.keys() | by_vector.keys()


@given(by_text=WORD_SCORES, by_vector=SCORES, full=st.floats(0.01, 20))
def test_relevance_has_a_scale_and_keeps_the_order(
    by_text: dict[int, float], by_vector: dict[int, float], full: float
) -> None:
    """From 0 to 1, never rising down the list, and at least as much as the similarity."""
    ranked = best(by_text, by_vector, 0.5)
    scores = relevances(ranked, by_text, by_vector, full=full)
    assert list(scores) == ranked
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert all(0 <= score <= 1 for score in scores.values())
    assert all(scores[item] >= near for item, near in by_vector.items() if item in scores)


def test_an_average_memory_with_all_words_once_is_fully_relevant() -> None:
    """A word that no memory holds counts as well: without it something is missing."""
    asked, spread = ["tea", "cake"], {"tea": 2, "cake": 1}
    weights = word_weights(asked, spread, 10)
    assert full_score(asked, spread, 10) == pytest.approx(sum(weights.values()))
    assert full_score([*asked, "jazz"], spread, 10) > full_score(asked, spread, 10)

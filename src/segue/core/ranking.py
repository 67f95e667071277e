"""How well memories match: by words, by meaning, and by both.

Everything is taken within one namespace, so that what others know changes nothing. By words the
score is BM25; a database sums it up, since it has the words. By meaning a memory is as near as its
vector. The two are fused as a weighted sum, after each was brought to the same scale: on real
questions that beat either of them at every size of a namespace, and fusing by rank was worse.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest, nsmallest
from math import fsum, inf, log, sqrt
from typing import Final

# So many of those with the most words are looked at.
TEXT_CANDIDATES: Final = 200
# Differences below this are rounding, and must not be blown up to the scale of real ones.
_NO_DIFFERENCE: Final = 1e-6


def word_weights(asked: Sequence[str], spread: Mapping[str, int], total: int) -> dict[str, float]:
    """What each word is worth, given how many of the `total` texts hold it.

    Rare words count more, and a word that is asked twice counts twice. None counts against a text,
    however common it is.
    """
    wanted = Counter(asked)
    return {
        word: wanted[word] * log(1 + (max(total, n) - n + 0.5) / (n + 0.5))
        for word, n in spread.items()
    }


def full_score(asked: Sequence[str], spread: Mapping[str, int], total: int) -> float:
    """The score by text of an item of average length that holds every word once."""
    everything = dict.fromkeys(asked, 0) | dict(spread)
    return fsum(word_weights(asked, everything, total).values())


def best_matches(
    by_text: Mapping[int, float],
    by_vector: Mapping[int, float],
    *,
    text_weight: float,
    threshold: float | None,
    limit: int,
) -> dict[int, float]:
    """The fused scores of the best items, best first; of equals the older one.

    Each ranking is brought to mean 0 and deviation 1 over all items. An item without any of the
    words scores 0 by text and must be as near as `threshold`; one without a vector scores like the
    farthest one. Without any vector the words alone count.
    """
    weight = text_weight if by_vector else 1.0
    total = len(by_text.keys() | by_vector.keys())
    farthest = min(by_vector.values(), default=0.0)
    text_mean, text_scale = _scale(by_text, 0.0, total)
    mean, scale = _scale(by_vector, farthest, total)

    unsaid = weight * ((0.0 - text_mean) * text_scale)

    def fused(item: int) -> float:
        by_words = (by_text.get(item, 0.0) - text_mean) * text_scale
        by_meaning = (by_vector.get(item, farthest) - mean) * scale
        return weight * by_words + (1 - weight) * by_meaning

    # Most have none of the words, and few of those are near. Scored as above, rounding and all.
    least = -inf if threshold is None else threshold
    wordless = (
        (unsaid + (1 - weight) * ((near - mean) * scale), -i)
        for i, near in by_vector.items()
        if near >= least and i not in by_text
    )
    nearest = [-i for _, i in nlargest(limit, wordless)]
    best = nsmallest(limit, ((-fused(item), item) for item in (*by_text, *nearest)))
    return {item: -score for score, item in best}


def relevances(
    ranked: Iterable[int],
    by_text: Mapping[int, float],
    by_vector: Mapping[int, float],
    *,
    full: float,
) -> dict[int, float]:
    """How well ranked items fit, from 0 to 1, whatever else is stored; best first, as they came.

    The fused scores say only which of one query's items is better. This is the similarity of an
    item, or the share of the asked words that it holds, weighed by rarity, whichever is more, and
    at least that of the items after it.
    """
    scores: dict[int, float] = {}
    least = 0.0
    for item in reversed([*ranked]):
        held = by_text.get(item, 0.0) / full if full else 0.0
        least = min(max(least, held, by_vector.get(item, 0.0)), 1.0)
        scores[item] = least
    return dict(reversed(scores.items()))


def _scale(scores: Mapping[int, float], others: float, total: int) -> tuple[float, float]:
    """Mean, and what to multiply with for a deviation of 1; items without a score have `others`."""
    if not total:
        return 0.0, 0.0
    missing = total - len(scores)
    values = scores.values()
    mean = (fsum(values) + missing * others) / total
    squares = fsum([(value - mean) ** 2 for value in values]) + missing * (others - mean) ** 2
    deviation = sqrt(squares / total)
    return mean, 1 / deviation if deviation >= _NO_DIFFERENCE else 0.0

"""Searching memories: the query, the words of a text, and the ranking of the matches.

A search covers one namespace, so other users' memories change nothing. The text score is BM25,
summed by the database that holds the words; the vector score is the similarity. Both are
standardised and added with weights: on real questions this was better than either score alone at
every size of a namespace, and better than fusion by rank.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from heapq import nsmallest
from math import fsum, inf, log, sqrt
from typing import Final

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.calls import blocks_of, words_beside
from segue.core.metadata import check_messages, is_synthetic
from segue.core.text import UNSPACED


class QuerySource(StrEnum):
    CURRENT_MESSAGE = "current_message"
    LAST_REAL_USER_MESSAGE = "last_real_user_message"
    CONVERSATION_SUMMARY = "conversation_summary"


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """The text to search memories with, and where it comes from."""

    text: str
    source: QuerySource
    # None for a summary.
    message_id: str | None = field(default=None, compare=False)


def memory_query(messages: Sequence[BaseMessage], summary: str | None = None) -> MemoryQuery | None:
    """The text to search memories with; None means: do not search.

    The current message if a person wrote it, else the last message that a person wrote, else the
    summary. Only text counts; a message without text is skipped. `messages` are oldest first.
    """
    source = QuerySource.CURRENT_MESSAGE
    for message in check_messages(reversed(messages)):
        if not isinstance(message, HumanMessage):
            continue
        if not is_synthetic(message) and (text := text_of(message)):
            return MemoryQuery(text, source, message.id)
        source = QuerySource.LAST_REAL_USER_MESSAGE
    if summary and summary.strip():
        return MemoryQuery(summary.strip(), QuerySource.CONVERSATION_SUMMARY)
    return None


def text_of(message: BaseMessage) -> str:
    """The text parts of a message, stripped, one per line."""
    parts = (
        block if isinstance(block, str) else block.get("text")
        for block in blocks_of(message)
        if isinstance(block, str) or block.get("type") in ("text", "text-plain")
    )
    text = "\n".join(part.strip() for part in parts if isinstance(part, str) and part.strip())
    return text or words_beside(message)


# Characters and words beyond these limits are ignored: a memory is shorter, and a query is best at
# its start.
_MAX_CHARACTERS: Final = 20_000
_MAX_WORDS: Final = 1_000
_MAX_WORD_LENGTH: Final = 64
STOP_WORDS: Final = frozenset(
    """
    a about above after again against all am an and any are as at be because been before being
    below between both but by can cannot could did do does doing down during each few for from
    further had has have having he her here hers herself him himself his how i if in into is it
    its itself just me more most my myself no nor not now of off on once only or other our ours
    ourselves out over own same she should so some such than that the their theirs them
    themselves then there these they this those through to too under until up very was we were
    what when where which while who whom why will with would you your yours yourself yourselves
    d don ll m re s t ve
    """.split()  # noqa: SIM905 - as a list it would fill a page
)
_UNSPACED: Final = re.compile(f"[{UNSPACED}]+")


def indexed_words(text: str) -> list[str]:
    """The words to index a memory by, with repetitions."""
    words = []
    for word in _words(text):
        # Single characters too, for queries of one character.
        words += [*word, *_pairs(word)] if _UNSPACED.fullmatch(word) else [word]
    return words[:_MAX_WORDS]


def query_words(text: str) -> list[str]:
    """The words to search for, with repetitions; none if the text has only stop words or signs."""
    words = []
    for word in _words(text):
        words += _pairs(word) if _UNSPACED.fullmatch(word) and len(word) > 1 else [word]
    return words[:_MAX_WORDS]


@lru_cache(maxsize=10_000)
def stem(word: str) -> str:
    """The stem of a lower-case word by Porter's algorithm; only words of a to z have one.

    Stems are stored, so the algorithm must not change: Porter's is frozen, Snowball's `english` is
    not.
    """
    if len(word) <= 2 or not (word.isascii() and word.isalpha()):
        return word
    # Imported here because the package loads all its languages, which takes 0.2 s.
    from snowballstemmer import porter_stemmer  # type: ignore[import-untyped] # noqa: PLC0415

    # A stemmer has state, and threads share this function: one stemmer per word.
    return str(porter_stemmer.PorterStemmer().stemWord(word))


def _words(text: str) -> list[str]:
    # Cut twice: normalising can turn one character into eighteen.
    plain = unicodedata.normalize("NFKD", text[:_MAX_CHARACTERS])[: 2 * _MAX_CHARACTERS].casefold()
    letters = "".join(sign if _is_letter(sign) else " " for sign in plain if not _is_accent(sign))
    # An unspaced script may follow a spaced one without a gap.
    spaced = _UNSPACED.sub(lambda run: f" {run[0]} ", letters)
    words = [word for word in spaced.split() if word not in STOP_WORDS]
    return [stem(word[:_MAX_WORD_LENGTH]) for word in words[:_MAX_WORDS]]


def _is_accent(sign: str) -> bool:
    """A combining mark or an emoji's variation selector."""
    return unicodedata.combining(sign) != 0 or "\ufe00" <= sign <= "\ufe0f"


def _is_letter(sign: str) -> bool:
    """A letter, a digit, or a vowel sign of an Indic script."""
    return sign.isalnum() or unicodedata.category(sign) in ("Mn", "Mc")


def _pairs(word: str) -> list[str]:
    return [word[n : n + 2] for n in range(len(word) - 1)]


# Number of memories with the best text scores that are ranked.
TEXT_CANDIDATES: Final = 200
# A smaller deviation is a rounding error, which must not be scaled up.
_MIN_DEVIATION: Final = 1e-6


def word_weights(query: Sequence[str], spread: Mapping[str, int], total: int) -> dict[str, float]:
    """The BM25 weight of each word in `spread`: how many of the `total` texts hold it.

    Rare words weigh more, a word that is twice in the query weighs double, none is negative.
    """
    times = Counter(query)
    return {
        word: times[word] * log(1 + (max(total, n) - n + 0.5) / (n + 0.5))
        for word, n in spread.items()
    }


def full_score(query: Sequence[str], spread: Mapping[str, int], total: int) -> float:
    """The text score of an item of average length that holds every word of the query once."""
    return fsum(word_weights(query, dict.fromkeys(query, 0) | dict(spread), total).values())


def best_matches(
    by_text: Mapping[int, float],
    by_vector: Mapping[int, float],
    *,
    text_weight: float,
    threshold: float | None,
    limit: int,
) -> dict[int, float]:
    """The combined scores of the best items, best first; of equal ones the lower id first.

    Each score is brought to mean 0 and deviation 1 over all items. An item without a text score has
    0 and needs a similarity of at least `threshold`; one without a vector has the lowest similarity
    of all. Without any vectors only the text counts.
    """
    weight = text_weight if by_vector else 1.0
    items = by_text.keys() | by_vector.keys()
    farthest = min(by_vector.values(), default=0.0)
    text_mean, text_scale = _scale(by_text, 0.0, len(items))
    mean, scale = _scale(by_vector, farthest, len(items))

    def combined(item: int) -> float:
        text = (by_text.get(item, 0.0) - text_mean) * text_scale
        vector = (by_vector.get(item, farthest) - mean) * scale
        return weight * text + (1 - weight) * vector

    least = -inf if threshold is None else threshold
    matches = (item for item in items if item in by_text or by_vector[item] >= least)
    best = nsmallest(limit, ((-combined(item), item) for item in matches))
    return {item: -score for score, item in best}


def relevances(
    ranked: Iterable[int],
    by_text: Mapping[int, float],
    by_vector: Mapping[int, float],
    *,
    full: float,
) -> dict[int, float]:
    """How relevant ranked items are, from 0 to 1, comparable between queries; in the same order.

    An item's relevance is its similarity or its share of `full`, the text score of a full match,
    whichever is higher, and at least that of the items ranked below it.
    """
    scores: dict[int, float] = {}
    least = 0.0
    for item in reversed([*ranked]):
        share = by_text.get(item, 0.0) / full if full else 0.0
        least = min(max(least, share, by_vector.get(item, 0.0)), 1.0)
        scores[item] = least
    return dict(reversed(scores.items()))


def _scale(scores: Mapping[int, float], default: float, total: int) -> tuple[float, float]:
    """The mean of `total` items and the factor to a deviation of 1; `default` fills gaps."""
    if not total:
        return 0.0, 0.0
    missing = total - len(scores)
    values = scores.values()
    mean = (fsum(values) + missing * default) / total
    squares = fsum([(value - mean) ** 2 for value in values]) + missing * (default - mean) ** 2
    deviation = sqrt(squares / total)
    return mean, 1 / deviation if deviation >= _MIN_DEVIATION else 0.0

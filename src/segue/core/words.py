"""The words by which a memory is found, the same on every database.

Case, accents and English endings do not count, and English filler words are left out: "the" in
both says nothing about whether a memory fits. Scripts without spaces are cut into pairs of signs.
"""

import re
import unicodedata
from typing import Final

from segue.core.porter import stem

# More of a text than this is not looked at: a memory is shorter, and a query is best at its start.
_READ: Final = 20_000
_MOST_WORDS: Final = 1_000
_LONGEST_WORD: Final = 64
_FILLERS: Final = frozenset(
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
# Thai and Lao, Burmese, Khmer, Japanese, Chinese: words are not set apart.
_UNSPACED: Final = re.compile(
    "[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def indexed_words(text: str) -> list[str]:
    """The words of a memory; one that is there twice counts twice."""
    words = []
    for word in _written(text):
        if _UNSPACED.fullmatch(word):
            # Also sign by sign, since a single one may be asked for.
            words += [*word, *_pairs(word)]
        else:
            words.append(word)
    return words[:_MOST_WORDS]


def asked_words(text: str) -> list[str]:
    """What to look for. Any text will do; one of signs or filler words alone asks for nothing."""
    words = []
    for word in _written(text):
        unspaced = _UNSPACED.fullmatch(word) and len(word) > 1
        words += _pairs(word) if unspaced else [word]
    return words[:_MOST_WORDS]


def _written(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", text[:_READ]).casefold()
    letters = "".join(sign if _is_letter(sign) else " " for sign in plain if not _is_accent(sign))
    # A script without spaces may stand next to another one.
    spaced = _UNSPACED.sub(lambda run: f" {run[0]} ", letters)
    return [stem(word[:_LONGEST_WORD]) for word in spaced.split() if word not in _FILLERS]


def _is_accent(sign: str) -> bool:
    """What changes a letter a little, or says how an emoji is drawn."""
    return unicodedata.combining(sign) != 0 or "\ufe00" <= sign <= "\ufe0f"


def _is_letter(sign: str) -> bool:
    """A letter, a digit, or a vowel sign as Indian scripts have them."""
    return sign.isalnum() or unicodedata.category(sign) in ("Mn", "Mc")


def _pairs(word: str) -> list[str]:
    return [word[n : n + 2] for n in range(len(word) - 1)]

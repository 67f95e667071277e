"""Word stems by Porter's algorithm, so that "walks", "walked" and "walking" are one word.

Its author declared it frozen, so stems that were stored years ago still match those of today's
query. It is made for English; in other languages it cuts the same endings from the same words, so
a word is still found by itself.
"""

from functools import lru_cache
from typing import Final

_STEP_2: Final = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"),
    ("abli", "able"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"),
    ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"),
    ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_STEP_3: Final = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"),
    ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4: Final = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "sion",
    "tion", "ou", "ism", "ate", "iti", "ous", "ive", "ize",
)  # fmt: skip


@lru_cache(maxsize=10_000)
def stem(word: str) -> str:
    """The stem of a word in lower case; whatever is not of the letters a to z stays as it is."""
    if len(word) <= 2 or not (word.isascii() and word.isalpha()):
        return word
    word = _without_plural(word)
    word = _without_tense(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    word = _without_suffix(word)
    return _without_last_e(word)


def _shape(word: str) -> str:
    """A letter per letter: v for a vowel, c for a consonant; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        is_vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if is_vowel else "c"
    return shape


def _measure(word: str) -> int:
    """How often a vowel is followed by a consonant."""
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """Whether it ends like "hop": consonant, vowel, consonant, and not in w, x or y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _without_tense(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending):
            bare = word.removesuffix(ending)
            return _completed(bare) if "v" in _shape(bare) else word
    return word


def _completed(bare: str) -> str:
    """What a verb looks like after it lost its ending: hopp is hop, fil is file."""
    if bare.endswith(("at", "bl", "iz")):
        return bare + "e"
    if bare[-1:] == bare[-2:-1] and _shape(bare).endswith("c"):
        return bare if bare[-1] in "lsz" else bare[:-1]
    return bare + "e" if _measure(bare) == 1 and _ends_short(bare) else bare


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    matching = [rule for rule in rules if word.endswith(rule[0])]
    if not matching:
        return word
    ending, replacement = max(matching, key=lambda rule: len(rule[0]))
    bare = word.removesuffix(ending)
    return bare + replacement if _measure(bare) > 0 else word


def _without_suffix(word: str) -> str:
    matching = [ending for ending in _STEP_4 if word.endswith(ending)]
    if not matching:
        return word
    ending = max(matching, key=len)
    # Of "-sion" and "-tion" only the "ion" is a suffix.
    bare = word.removesuffix(ending[-3:] if ending in ("sion", "tion") else ending)
    return bare if _measure(bare) > 1 else word


def _without_last_e(word: str) -> str:
    if word.endswith("e"):
        bare = word[:-1]
        measure = _measure(bare)
        if measure > 1 or (measure == 1 and not _ends_short(bare)):
            word = bare
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
